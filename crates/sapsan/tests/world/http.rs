//! A client as plain as can be: one connection at a time, one request, one reply with a length or in chunks.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that takes longer for one reply hangs.
const REPLY_LIMIT: Duration = Duration::from_secs(120);

/// A reply: status and body.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body as JSON; null if it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One keep-alive connection, opened again after an error.
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        Client { address, stream: None }
    }

    /// One request and its reply. An error says that it is unknown whether the request was carried out.
    pub(crate) fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> std::io::Result<Reply> {
        let reply = self.try_ask(method, target, body);
        if reply.is_err() {
            self.stream = None;
        }
        reply
    }

    fn try_ask(&mut self, method: &str, target: &str, body: &[u8]) -> std::io::Result<Reply> {
        let stream = self.stream()?;
        let mut request =
            format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len())
                .into_bytes();
        request.extend_from_slice(body);
        stream.get_mut().write_all(&request)?;
        let head = read_head(stream)?;
        let body = match head.length {
            Some(length) => {
                let mut body = vec![0; length];
                stream.read_exact(&mut body)?;
                body
            }
            None if head.is_chunked => {
                let mut body = Vec::new();
                while read_chunk(stream, &mut body)? {}
                body
            }
            None => Vec::new(),
        };
        if head.closes {
            self.stream = None;
        }
        Ok(Reply { status: head.status, body })
    }

    fn stream(&mut self) -> std::io::Result<&mut BufReader<TcpStream>> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_read_timeout(Some(REPLY_LIMIT))?;
                stream.set_nodelay(true)?;
                BufReader::new(stream)
            }
        };
        Ok(self.stream.insert(stream))
    }
}

struct Head {
    status: u16,
    length: Option<usize>,
    is_chunked: bool,
    closes: bool,
}

fn read_head(stream: &mut impl BufRead) -> std::io::Result<Head> {
    let mut text = String::new();
    loop {
        let before = text.len();
        if stream.read_line(&mut text)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if text[before..].trim_end().is_empty() {
            break;
        }
    }
    let text = text.to_ascii_lowercase();
    let field = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
    let status = text.get(9..12).and_then(|code| code.parse().ok());
    Ok(Head {
        status: status.ok_or_else(|| Error::other(format!("a reply without status: {text}")))?,
        length: field("content-length:").and_then(|value| value.parse().ok()),
        is_chunked: field("transfer-encoding:") == Some("chunked"),
        closes: field("connection:") == Some("close"),
    })
}

/// Appends the next chunk; false after the last one.
fn read_chunk(stream: &mut impl BufRead, body: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let length = usize::from_str_radix(line.trim(), 16).map_err(Error::other)?;
    let start = body.len();
    body.resize(start + length + 2, 0);
    stream.read_exact(&mut body[start..])?;
    body.truncate(start + length);
    Ok(length > 0)
}

/// The lines of a reply that does not end, such as the feed's, from the moment at which its status is known.
pub(crate) fn lines(
    address: SocketAddr,
    target: &str,
) -> std::io::Result<(u16, impl Iterator<Item = std::io::Result<String>>)> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(REPLY_LIMIT))?;
    let mut stream = BufReader::new(stream);
    write!(stream.get_mut(), "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let head = read_head(&mut stream)?;
    let (mut kept, mut is_over) = (Vec::new(), !head.is_chunked);
    let next = move || loop {
        if let Some(end) = kept.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = kept.drain(..=end).collect();
            return Some(Ok(String::from_utf8_lossy(&line).trim_end().to_owned()));
        }
        if is_over {
            return None;
        }
        match read_chunk(&mut stream, &mut kept) {
            Ok(true) => {}
            Ok(false) => is_over = true,
            Err(error) => {
                is_over = true;
                return Some(Err(error));
            }
        }
    };
    Ok((head.status, std::iter::from_fn(next)))
}
