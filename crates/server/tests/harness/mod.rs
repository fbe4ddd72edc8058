//! A server on loopback with a configuration text, and a client that sends raw bytes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed harness is a failed test")]

use server::config::ServiceConfig;
use server::{RunningServer, ServerStartError};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Limit of any wait in a test; it is not reached if all is well. If others use the disk, five hundred cold pages can take twenty
/// seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two collections: items with a number as key, texts with a generated one.
pub const COLLECTIONS: &str = r#"
[collections.items]
key = { field = "id", type = "u32" }
[collections.items.schema]
type = "object"
additionalProperties = false
required = ["id", "group", "price"]
[collections.items.schema.properties]
id = { type = "integer", minimum = 0, maximum = 4294967295 }
group = { type = "string" }
price = { type = "integer" }
note = { type = "string" }
"#;

/// `[server]` of tests with a file of their own.
pub const SERVER: &str = "http = \"127.0.0.1:0\"\nthreads = 1\ndurability = \"none\"\n";

/// A running server; drained when it is dropped.
pub struct TestServer {
    running: Option<RunningServer>,
    address: std::net::SocketAddr,
    folder: tempfile::TempDir,
}

/// A reply as received.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// A header field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// Reads a config text, and returns the mistakes that `serve` would report.
pub fn mistakes(config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("service.toml");
    std::fs::write(&path, config).unwrap();
    match ServiceConfig::load(&path, &[]) {
        Err(error) => error.to_string(),
        Ok(config) => server::check(&config).map_or_else(|error| error.to_string(), |()| String::new()),
    }
}

impl TestServer {
    /// Serves the collections and the sections of `more`; with the `[server]` keys of `settings`.
    #[track_caller]
    pub fn start(settings: &str, more: &str) -> TestServer {
        Self::try_start(settings, more).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn try_start(settings: &str, more: &str) -> Result<TestServer, ServerStartError> {
        // Keys that the test sets are left out of the defaults.
        let given = [("threads", "1"), ("durability", "\"none\"")];
        let given = given.iter().filter(|(name, _)| !settings.contains(name));
        let given: String = given.map(|(name, value)| format!("{name} = {value}\n")).collect();
        Self::of_file(&format!("{COLLECTIONS}\n[server]\nhttp = \"127.0.0.1:0\"\n{given}{settings}\n{more}"))
    }

    /// Serves a whole file.
    pub fn of_file(text: &str) -> Result<TestServer, ServerStartError> {
        Self::of_file_beside(text, &[])
    }

    /// The same with other files beside it.
    pub fn of_file_beside(text: &str, files: &[(&str, &[u8])]) -> Result<TestServer, ServerStartError> {
        let folder = tempfile::tempdir().unwrap();
        for (name, contents) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, contents).unwrap();
        }
        let path = folder.path().join("service.toml");
        std::fs::write(&path, text).unwrap();
        let config = ServiceConfig::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let running = server::start(&config, &folder.path().join("data"))?;
        Ok(TestServer { address: running.address(), running: Some(running), folder })
    }

    /// Replaces the text of the configuration file and reloads it.
    #[track_caller]
    pub fn reload(&self, text: &str) -> Answer {
        std::fs::write(self.folder.path().join("service.toml"), text).unwrap();
        self.ask("POST", "/_/config/reload", "", b"")
    }

    /// The same with permission to drop what the text no longer declares.
    #[track_caller]
    pub fn reload_dropping(&self, text: &str) -> Answer {
        std::fs::write(self.folder.path().join("service.toml"), text).unwrap();
        self.ask("POST", "/_/config/reload?allow-drop=true", "", b"")
    }

    /// Drains the server.
    pub fn drain(&self) {
        self.running.as_ref().expect("it runs").drain();
    }

    /// The folder of the configuration file.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Its address.
    pub fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    /// The address of the general API's own listener, if it has one.
    pub fn admin_address(&self) -> Option<std::net::SocketAddr> {
        self.running.as_ref().and_then(RunningServer::admin_address)
    }

    pub fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// One request on a connection of its own.
    #[track_caller]
    pub fn ask(&self, method: &str, target: &str, fields: &str, body: &[u8]) -> Answer {
        let mut client = self.connect();
        client.send(method, target, fields, body);
        client.answer(method == "HEAD")
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Answer {
        self.ask("GET", target, "", b"")
    }

    #[track_caller]
    pub fn query(&self, request: &serde_json::Value) -> Answer {
        self.ask("POST", "/_/query", "", request.to_string().as_bytes())
    }

    /// The value of a metric.
    #[track_caller]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/_/metrics");
        let line = text.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().unwrap()
    }

    /// Stores items with these keys: group `g<key % 3>`, price = key * 10.
    #[track_caller]
    pub fn put_items(&self, keys: std::ops::Range<u32>) {
        for start in keys.clone().step_by(5_000) {
            let end = keys.end.min(start + 5_000);
            let line = |id: u32| format!("{{\"id\":{id},\"group\":\"g{}\",\"price\":{}}}\n", id % 3, id * 10);
            let lines: String = (start..end).map(line).collect();
            let answer = self.ask("POST", "/_/collections/items/bulk", "", lines.as_bytes());
            assert_eq!((answer.status, answer.text()), (200, ""));
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain();
            running.join().unwrap();
        }
    }
}

/// One connection.
pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn new(address: std::net::SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        // Head and body are sent in two writes: the second would wait for the server's delayed acknowledgement of the first.
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client { stream, unread: Vec::new() }
    }

    pub fn send(&mut self, method: &str, target: &str, fields: &str, body: &[u8]) {
        let length = body.len();
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{fields}\r\n");
        self.stream.write_all(head.as_bytes()).unwrap();
        self.stream.write_all(body).unwrap();
    }

    /// Whether bytes have arrived that [`answer`](Client::answer) has not read.
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let is_there = self.stream.peek(&mut [0]).is_ok_and(|read| read == 1);
        self.stream.set_nonblocking(false).unwrap();
        is_there
    }

    /// The next reply's head, without its body.
    #[track_caller]
    pub fn head(&mut self) -> String {
        loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                return String::from_utf8(self.unread.drain(..at + 4).collect()).unwrap();
            }
            assert!(self.more(), "the connection ended: {}", String::from_utf8_lossy(&self.unread));
        }
    }

    /// Reads more of a body without end, including its framing. `false`: the connection ended.
    pub fn read_into(&mut self, text: &mut String) -> bool {
        let more = !self.unread.is_empty() || self.more();
        text.push_str(&String::from_utf8_lossy(&self.unread));
        self.unread.clear();
        more
    }

    /// Reads into a text until a condition holds. A feed with only heartbeats is given up after a while.
    #[track_caller]
    pub fn read_until(&mut self, text: &mut String, is_there: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !is_there(text) {
            assert!(self.read_into(text) && began.elapsed() < PATIENCE, "it never came: {text}");
        }
    }

    /// The connection, and the bytes that were received and not read yet.
    pub fn into_parts(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.unread)
    }

    /// Reads the remaining chunks of a body; returns whether the last one came before the connection ended.
    pub fn rest_is_whole(&mut self, body: &mut Vec<u8>) -> bool {
        loop {
            match self.next_chunk(body) {
                Some(0) => return true,
                Some(_) => {}
                None => return false,
            }
        }
    }

    /// Reads the next chunk of a body; `false` after the last one, and if the connection ended before.
    pub fn chunk(&mut self, body: &mut Vec<u8>) -> bool {
        self.next_chunk(body).is_some_and(|size| size > 0)
    }

    fn next_chunk(&mut self, body: &mut Vec<u8>) -> Option<usize> {
        let end = loop {
            if let Some(at) = self.unread.windows(2).position(|window| window == b"\r\n") {
                break at + 2;
            }
            if !self.more() {
                return None;
            }
        };
        let size = std::str::from_utf8(&self.unread[..end - 2]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        while self.unread.len() < end + size + 2 {
            if !self.more() {
                return None;
            }
        }
        body.extend_from_slice(&self.unread[end..end + size]);
        self.unread.drain(..end + size + 2);
        Some(size)
    }

    fn more(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        let read = loop {
            match self.stream.read(&mut piece) {
                // The kernel does so to a thread that has made a ring and closed it: the ring's end is a task of that thread.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("nothing came for {PATIENCE:?}"),
                read => break read.unwrap_or(0),
            }
        };
        self.unread.extend_from_slice(&piece[..read]);
        read > 0
    }

    /// The next reply, its body by Content-Length or in chunks; `body` is truncated if the connection ended early.
    #[track_caller]
    pub fn answer(&mut self, head_only: bool) -> Answer {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "the connection ended: {}", String::from_utf8_lossy(&self.unread));
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        let bodyless = head_only || matches!(status, 204 | 304);
        if answer.field("Transfer-Encoding").is_some() && !bodyless {
            while self.chunk(&mut answer.body) {}
            return answer;
        }
        let length = answer.field("Content-Length").filter(|_| !bodyless).map_or(0, |text| text.parse().unwrap());
        while self.unread.len() < length && self.more() {}
        let end = length.min(self.unread.len());
        answer.body = self.unread.drain(..end).collect();
        answer
    }
}
