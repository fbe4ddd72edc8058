//! A client that speaks raw bytes, and an application under test.
#![allow(clippy::unwrap_used, reason = "a failed client is a failed test")]

use sapsan::{App, RunningApp};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any reply takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts an application with one loop on a free port.
pub(crate) fn started(app: App) -> RunningApp {
    app.threads(1).start("127.0.0.1:0").expect("the application starts")
}

/// A reply as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    /// The first field of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Status and body in one text.
    pub(crate) fn told(&self) -> String {
        format!("{} {}", self.status, self.body)
    }
}

/// A connection.
pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the application listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, buffer: Vec::new() }
    }

    pub(crate) fn send(&mut self, request: &str) {
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// The next reply; its end is known by its length or by chunks.
    pub(crate) fn reply(&mut self) -> Reply {
        let end = self.until(|bytes| find(bytes, b"\r\n\r\n").map(|at| at + 4));
        let head = String::from_utf8(self.buffer.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut reply = Reply { status, head, body: String::new() };
        let body = match reply.header("Content-Length").map(|length| length.parse::<usize>().unwrap()) {
            Some(length) => {
                self.until(|bytes| (bytes.len() >= length).then_some(length));
                self.buffer.drain(..length).collect()
            }
            None if reply.header("Transfer-Encoding").is_some() => self.chunks(),
            None => Vec::new(),
        };
        reply.body = String::from_utf8(body).unwrap();
        reply
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.until(|bytes| find(bytes, b"\r\n").map(|at| at + 2));
            let size = String::from_utf8(self.buffer.drain(..line).collect()).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            self.until(|bytes| (bytes.len() >= size + 2).then_some(size + 2));
            let chunk: Vec<u8> = self.buffer.drain(..size + 2).collect();
            body.extend_from_slice(&chunk[..size]);
            if size == 0 {
                return body;
            }
        }
    }

    /// Reads until what has arrived is enough.
    fn until(&mut self, enough: impl Fn(&[u8]) -> Option<usize>) -> usize {
        loop {
            if let Some(end) = enough(&self.buffer) {
                return end;
            }
            let mut piece = [0; 16 << 10];
            let read = self.stream.read(&mut piece).expect("a reply in time");
            assert!(read > 0, "the connection ended behind {:?}", String::from_utf8_lossy(&self.buffer));
            self.buffer.extend_from_slice(&piece[..read]);
        }
    }

    /// What arrives next, as it comes.
    pub(crate) fn read_raw(&mut self, piece: &mut [u8]) -> usize {
        let read = self.stream.read(piece).expect("a reply in time");
        assert!(read > 0, "the connection ended");
        read
    }

    /// Whether the server has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut piece = [0; 1];
        matches!(self.stream.read(&mut piece), Ok(0) | Err(_))
    }

    pub(crate) fn ask(&mut self, request: &str) -> Reply {
        self.send(request);
        self.reply()
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// The bytes of a request without a body.
pub(crate) fn request(method: &str, target: &str, fields: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n")
}

/// The same with one.
pub(crate) fn with_body(method: &str, target: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// One GET on a connection of its own.
pub(crate) fn get(running: &RunningApp, target: &str) -> Reply {
    Client::to(running.address()).ask(&request("GET", target, ""))
}

/// One POST of JSON.
pub(crate) fn post(running: &RunningApp, target: &str, body: &str) -> Reply {
    Client::to(running.address()).ask(&with_body("POST", target, "application/json", body))
}
