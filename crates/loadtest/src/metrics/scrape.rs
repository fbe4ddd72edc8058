//! One GET of a metrics page: blocking, with a deadline for the whole exchange and a bound on its size.
//!
//! The request is HTTP/1.1 with `Connection: close`: Sapsan's own server treats HTTP/1.0 as the request of a proxy and refuses
//! it. TLS is not supported: a metrics page is requested from the machine or network of the server.

use crate::reply::ReplyReader;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// From the begin of connecting to the last byte of the page. A slower page is requested again at its next turn.
const DEADLINE: Duration = Duration::from_secs(1);
/// Largest reply in bytes. A page of ten thousand series has about one million.
const REPLY_BYTES_MAX: usize = 8 << 20;
const HTTP_PORT: u16 = 80;

/// A page whose host is resolved, and the request for it.
pub(super) struct Page {
    addresses: Vec<SocketAddr>,
    request: String,
}

/// The parts of a URL.
struct Address {
    host: String,
    port: u16,
    request: String,
}

impl Page {
    /// The page at `url`, requested with further header fields. The host is resolved only here: a resolver has no deadline.
    pub(super) fn new(url: &str, headers: &[String]) -> Result<Page, String> {
        let Address { host, port, request } = Address::parse(url, headers)?;
        let addresses = (host.as_str(), port).to_socket_addrs();
        let addresses = addresses.map_err(|error| format!("cannot resolve `{host}`: {error}"))?;
        Ok(Page { addresses: addresses.collect(), request })
    }

    /// Requests the page and returns its body.
    pub(super) fn get(&self) -> Result<String, String> {
        let until = Instant::now() + DEADLINE;
        let mut stream = self.connect(until)?;
        stream.set_write_timeout(Some(left(until)?)).map_err(|error| error.to_string())?;
        stream.write_all(self.request.as_bytes()).map_err(|error| format!("cannot send: {error}"))?;
        body(&read(&mut stream, until)?)
    }

    fn connect(&self, until: Instant) -> Result<TcpStream, String> {
        let mut refused = "its host has no address".to_owned();
        for address in &self.addresses {
            match TcpStream::connect_timeout(address, left(until)?) {
                Ok(stream) => return Ok(stream),
                Err(error) => refused = format!("cannot connect to {address}: {error}"),
            }
        }
        Err(refused)
    }
}

impl Address {
    fn parse(url: &str, headers: &[String]) -> Result<Address, String> {
        let rest = url.strip_prefix("http://").ok_or("wants an address that begins with `http://`")?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let path = path.split('#').next().unwrap_or_default();
        if authority.contains('@') {
            return Err("its address must have no user name: send it with --metrics-header 'Authorization: …'".into());
        }
        let (host, port) = host_and_port(authority)?;
        let fields: String = headers.iter().map(|field| format!("{}\r\n", field.trim())).collect();
        let mut characters = url.chars().chain(headers.iter().flat_map(|field| field.chars()));
        if characters.any(char::is_control) || url.contains(' ') {
            return Err("its address must have no blanks, and neither it nor header fields control characters".into());
        }
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nAccept: text/plain\r\nConnection: close\r\n{fields}\r\n"
        );
        Ok(Address { host, port, request })
    }
}

/// `[::1]:8080`, `localhost`, `127.0.0.1:80`.
fn host_and_port(authority: &str) -> Result<(String, u16), String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| format!("`{port}` is no port"))?),
        _ => (authority, HTTP_PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() { Err("has no host".into()) } else { Ok((host.to_owned(), port)) }
}

fn left(until: Instant) -> Result<Duration, String> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(format!("took longer than {} s", DEADLINE.as_secs())) } else { Ok(left) }
}

/// Reads until the end of the connection.
fn read(stream: &mut TcpStream, until: Instant) -> Result<Vec<u8>, String> {
    let (mut reply, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        stream.set_read_timeout(Some(left(until)?)).map_err(|error| error.to_string())?;
        let length = match stream.read(&mut piece) {
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return left(until).and(Err(format!("the connection was closed: {error}"))),
        };
        if length == 0 {
            return Ok(reply);
        }
        reply.extend_from_slice(&piece[..length]);
        if reply.len() > REPLY_BYTES_MAX {
            return Err(format!("is larger than {} MB", REPLY_BYTES_MAX >> 20));
        }
    }
}

/// The body of a reply with status 200; `reply` is everything up to the end of the connection.
fn body(reply: &[u8]) -> Result<String, String> {
    let (mut reader, mut body) = (ReplyReader::default(), Vec::new());
    let (_, read) = reader.read(reply, false, &mut body).map_err(|fault| format!("answers no HTTP ({fault:?})"))?;
    let read = read.or_else(|| reader.input_ended()).ok_or("the connection was closed before a whole reply")?;
    match read.status {
        200 => Ok(String::from_utf8_lossy(&body).into_owned()),
        status => Err(format!("answers {status} instead of 200")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_host_port_and_path() {
        for (url, host, port, path) in [
            ("http://127.0.0.1:8080/_/metrics", "127.0.0.1", 8080, "/_/metrics"),
            ("http://localhost", "localhost", 80, "/"),
            ("http://[::1]:9/m?x=1#y", "::1", 9, "/m?x=1"),
            ("http://[::1]?x", "::1", 80, "/?x"),
        ] {
            let page = Address::parse(url, &[]).unwrap();
            assert_eq!((page.host.as_str(), page.port), (host, port), "{url}");
            assert!(page.request.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{}", page.request);
        }
        for url in ["https://a/", "a:80", "http://", "http://a:x/", "http://a/ b", "http://a/\r\nX: y", "http://u:p@a/"]
        {
            assert!(Address::parse(url, &[]).is_err(), "{url}");
        }
        assert!(Address::parse("http://a/", &["X: a\r\nY: b".into()]).is_err());
    }

    #[test]
    fn a_body_is_read_by_its_length_in_chunks_or_until_the_end() {
        for (reply, text) in [
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", Ok("a")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", Ok("ab")),
            ("HTTP/1.0 200 OK\r\n\r\nabc", Ok("abc")),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", Err("before a whole reply")),
            ("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", Err("answers 403")),
            ("SSH-2.0\r\n\r\n", Err("answers no HTTP")),
        ] {
            match (body(reply.as_bytes()), text) {
                (Ok(body), Ok(text)) => assert_eq!(body, text),
                (Err(error), Err(why)) => assert!(error.contains(why), "{error}"),
                (got, wanted) => panic!("{reply:?}: {got:?}, not {wanted:?}"),
            }
        }
    }
}
