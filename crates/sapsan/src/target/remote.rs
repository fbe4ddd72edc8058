//! A running server, asked over plain HTTP/1.1: one request on a connection of its own.

use crate::cli::Secret;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Bytes of a reply: the general API's answers to commands are short.
const REPLY_BYTES_MAX: u64 = 1 << 20;
/// Header fields of a reply.
const REPLY_FIELDS_MAX: usize = 64;
const SCHEME: &str = "http://";
const UNIX_SCHEME: &str = "unix:";

/// By what a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Host and port.
    Authority(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Authority(authority) => write!(f, "{SCHEME}{authority}"),
            Place::Unix(path) => write!(f, "{UNIX_SCHEME}{}", path.display()),
        }
    }
}

/// A connection of either kind.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// Where a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    place: Place,
    /// The header field with the token, its end included; empty without one.
    authorization: String,
}

impl Remote {
    /// The server that a text names, if it is an address of one and no folder.
    pub(crate) fn of(text: &str, secret: &Secret) -> Option<Result<Remote, String>> {
        if text.starts_with("https://") {
            return Some(Err(format!(
                "{text}: commands do not speak TLS; ask on the server's own machine, by http:// or by unix:PATH (`[server] admin`)"
            )));
        }
        let place = match text.strip_prefix(UNIX_SCHEME) {
            Some("") => return Some(Err(format!("{text}: unix:PATH is expected"))),
            Some(path) => Place::Unix(path.into()),
            None => {
                let authority = text.strip_prefix(SCHEME)?.trim_end_matches('/');
                if authority.contains('/') || !authority.contains(':') {
                    return Some(Err(format!("{text}: http://ADDRESS:PORT is expected")));
                }
                Place::Authority(authority.to_owned())
            }
        };
        Some(authorization(secret).map(|authorization| Remote { place, authorization }))
    }

    /// Status and body of the answer, for which it waits however long.
    pub(crate) fn ask(&self, method: &str, target: &str, body: &str) -> Result<(u16, String), String> {
        let (status, body) = self.ask_at_most(method, target, body, REPLY_BYTES_MAX)?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// The same for an answer of up to so many bytes.
    pub(crate) fn ask_at_most(
        &self,
        method: &str,
        target: &str,
        body: &str,
        bytes_max: u64,
    ) -> Result<(u16, Vec<u8>), String> {
        let error_of = |error: std::io::Error| format!("{}: {error}", self.place);
        let (mut stream, host): (Box<dyn Stream>, &str) = match &self.place {
            Place::Authority(authority) => {
                (Box::new(TcpStream::connect(authority.as_str()).map_err(error_of)?), authority)
            }
            Place::Unix(path) => (Box::new(UnixStream::connect(path).map_err(error_of)?), "localhost"),
        };
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            host,
            self.authorization,
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).map_err(error_of)?;
        let mut reply = Vec::new();
        stream.take(bytes_max).read_to_end(&mut reply).map_err(error_of)?;
        if reply.len() as u64 == bytes_max {
            return Err(format!("{}: its answer to {method} {target} has {bytes_max} bytes or more", self.place));
        }
        let why =
            if reply.is_empty() { "it closed the connection without an answer" } else { "its answer is no HTTP reply" };
        parse(reply).ok_or_else(|| format!("{}: {why}", self.place))
    }
}

/// The header field that a token is sent in.
fn authorization(secret: &Secret) -> Result<String, String> {
    let Some(token) = secret.token.as_deref().map(str::trim).filter(|token| !token.is_empty()) else {
        return Ok(String::new());
    };
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the token (--token, SAPSAN_TOKEN) has bytes that no token has".to_owned());
    }
    Ok(format!("Authorization: Bearer {token}\r\n"))
}

/// What a refusal says.
pub(crate) fn refusal(status: u16, body: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    format!("the server answers {status}: {}", problem["detail"].as_str().unwrap_or("no reason is given"))
}

/// Status and body; `None` for an answer that is cut off, or is no HTTP.
fn parse(mut reply: Vec<u8>) -> Option<(u16, Vec<u8>)> {
    let mut fields = [httparse::EMPTY_HEADER; REPLY_FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(start) = head.parse(&reply).ok()? else { return None };
    let status = head.code?;
    let length = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = std::str::from_utf8(length.value).ok()?.parse().ok()?;
    let end = start.checked_add(length).filter(|end| *end <= reply.len())?;
    reply.truncate(end);
    Some((status, reply.split_off(start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_from_a_folder() {
        let of = |text| Remote::of(text, &Secret { token: None });
        assert_eq!(of("data"), None);
        assert_eq!(of("/http/data"), None);
        let remote = |place| Some(Ok(Remote { place, authorization: String::new() }));
        assert_eq!(of("http://[::1]:80/"), remote(Place::Authority("[::1]:80".to_owned())));
        assert_eq!(of("unix:/run/sapsan.sock"), remote(Place::Unix("/run/sapsan.sock".into())));
        for refused in ["https://a:1", "http://a", "http://a:1/b", "unix:"] {
            assert!(matches!(of(refused), Some(Err(_))), "{refused}");
        }
    }

    #[test]
    fn a_token_is_one_header_field() {
        let of = |token: &str| authorization(&Secret { token: Some(token.to_owned()) });
        assert_eq!(of("sapsan_1f\n"), Ok("Authorization: Bearer sapsan_1f\r\n".to_owned()));
        assert_eq!(of(""), Ok(String::new()));
        for wrong in ["a\r\nHost: b", "a b", "\u{44f}"] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(parse(whole.to_vec()), Some((200, b"{}".to_vec())));
        for end in 0..whole.len() {
            assert_eq!(parse(whole[..end].to_vec()), None, "{end}");
        }
    }
}
