//! A client as plain as can be: one connection, bytes out, one reply in.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const REPLY_LIMIT: Duration = Duration::from_secs(20);

/// A reply: status and body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// One keep-alive connection; opened again when the server closed it.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
    /// Bytes received behind the last reply (pipelining).
    rest: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address, stream: None, rest: Vec::new() }
    }

    fn stream(&mut self) -> std::io::Result<&mut TcpStream> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(REPLY_LIMIT))?;
            stream.set_nodelay(true)?;
            self.rest.clear();
            self.stream = Some(stream);
        }
        Ok(self.stream.as_mut().expect("just opened"))
    }

    /// Sends raw bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream()?.write_all(bytes)
    }

    /// Reads the next reply. Its connection is forgotten when the reply says close.
    pub(crate) fn receive(&mut self) -> std::io::Result<Answer> {
        let head_end = loop {
            if let Some(at) = self.rest.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.rest[..head_end]).to_ascii_lowercase();
        let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|value| value.trim().parse::<usize>().ok())
            .ok_or_else(|| std::io::Error::other(format!("a reply without length: {head}")))?;
        while self.rest.len() < head_end + length {
            self.more()?;
        }
        let body = self.rest[head_end..head_end + length].to_vec();
        self.rest.drain(..head_end + length);
        if head.contains("connection: close") {
            self.stream = None;
        }
        Ok(Answer { status, body })
    }

    fn more(&mut self) -> std::io::Result<()> {
        let mut piece = [0; 16 * 1024];
        let stream = self.stream.as_mut().ok_or_else(|| std::io::Error::other("no connection"))?;
        match stream.read(&mut piece)? {
            0 => {
                self.stream = None;
                Err(std::io::ErrorKind::UnexpectedEof.into())
            }
            count => {
                self.rest.extend_from_slice(&piece[..count]);
                Ok(())
            }
        }
    }

    /// One request, one reply.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, target: &str, body: Option<&[u8]>) -> Answer {
        let bytes = request_bytes(method, target, body);
        let answer = self.send(&bytes).and_then(|()| self.receive());
        answer.unwrap_or_else(|error| panic!("{method} {target}: no reply: {error}"))
    }
}

/// The bytes of a request with keep-alive.
pub(crate) fn request_bytes(method: &str, target: &str, body: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n").into_bytes();
    if let Some(body) = body {
        bytes.extend_from_slice(
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()).as_bytes(),
        );
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body.unwrap_or_default());
    bytes
}
