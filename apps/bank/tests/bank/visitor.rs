//! A client of the pages through a real socket: one request per connection, a cookie jar, and an address of its own, which it
//! claims as a proxy would.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A reply that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Visitor {
    pub(crate) server: SocketAddr,
    /// Sent as `X-Forwarded-For`.
    pub(crate) address: Option<String>,
    /// Further header fields, each with its line end.
    pub(crate) fields: String,
    pub(crate) cookies: BTreeMap<String, String>,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The first header field of a name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.fields().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body, which must be text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of text")
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.map(|(name, value)| (name, value.trim()))
    }

    /// The text of the element with this id; the element must have no children. Of HTML's character references only the
    /// apostrophe's is decoded.
    pub(crate) fn element(&self, id: &str) -> Option<String> {
        let (_, behind) = self.text().split_once(format!("id=\"{id}\"").as_str())?;
        let (_, text) = behind.split_once('>')?;
        text.split_once('<').map(|(text, _)| text.replace("&#39;", "'"))
    }
}

impl Visitor {
    pub(crate) fn new(server: SocketAddr) -> Visitor {
        Visitor { server, address: None, fields: String::new(), cookies: BTreeMap::new() }
    }

    /// A visitor whose requests are forwarded by a proxy from this address.
    pub(crate) fn from(server: SocketAddr, address: &str) -> Visitor {
        Visitor { address: Some(address.to_owned()), ..Visitor::new(server) }
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, "").unwrap()
    }

    pub(crate) fn post(&mut self, path: &str, form: &str) -> Reply {
        self.ask("POST", path, form).unwrap()
    }

    /// Posts the form of the login page.
    pub(crate) fn log_in(&mut self, login: &str, password: &str) -> Reply {
        self.post("/login", &format!("login={login}&password={password}"))
    }

    /// Logs in without success, and returns the notice of the page that follows.
    #[track_caller]
    pub(crate) fn refused(&mut self, login: &str, password: &str) -> String {
        let reply = self.log_in(login, password);
        assert_eq!((reply.status, reply.header("Location")), (302, Some("/")));
        self.get("/").element("notice-message").expect("a notice")
    }

    /// Sends one request. An error if the server is gone before it has replied.
    pub(crate) fn ask(&mut self, method: &str, path: &str, form: &str) -> std::io::Result<Reply> {
        let mut stream = TcpStream::connect(self.server)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.server);
        if let Some(address) = &self.address {
            head.push_str(&format!("X-Forwarded-For: {address}\r\n"));
        }
        if !self.cookies.is_empty() {
            let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            head.push_str(&format!("Cookie: {}\r\n", cookies.join("; ")));
        }
        if method == "POST" {
            head.push_str("Content-Type: application/x-www-form-urlencoded\r\n");
            head.push_str(&format!("Content-Length: {}\r\n", form.len()));
        }
        stream.write_all(format!("{head}{}\r\n{form}", self.fields).as_bytes())?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let reply = reply(&bytes).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        self.keep_cookies(&reply);
        Ok(reply)
    }

    fn keep_cookies(&mut self, reply: &Reply) {
        let fields = reply.fields().filter(|(name, _)| name.eq_ignore_ascii_case("Set-Cookie"));
        for (_, cookie) in fields {
            let (pair, attributes) = cookie.split_once(';').unwrap_or((cookie, ""));
            let (name, value) = pair.split_once('=').expect("a cookie's name and value");
            let is_gone = attributes.to_ascii_lowercase().contains("max-age=0");
            if is_gone {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}

/// Parses a complete reply. None: its body is incomplete.
fn reply(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let reply = Reply { status, body: bytes[end + 4..].to_vec(), head };
    let length = reply.header("Content-Length").map_or(Some(0), |length| length.parse::<usize>().ok())?;
    (reply.body.len() == length).then_some(reply)
}
