//! One request of HTTP/1.1 as bytes: the request line, `Host`, the user's fields, the body with its length.

use crate::source::{Described, REQUEST_BYTES_MAX, Source, SourceError};

/// What a request is made of.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'p> {
    /// The method, such as `GET`.
    pub method: &'p str,
    /// Path and query.
    pub path: &'p str,
    /// The field `Host`, unless `headers` has one.
    pub authority: &'p str,
    /// More fields, as (name, value). `Content-Length` is made here.
    pub headers: &'p [(String, String)],
    /// The body; `None`: the request has none.
    pub body: Option<&'p [u8]>,
}

/// Writes a request. The error says which part cannot be sent.
pub fn write(parts: &Parts<'_>, bytes: &mut Vec<u8>) -> Result<Described, SourceError> {
    check(parts)?;
    let (Parts { method, path, authority, .. }, body) = (*parts, parts.body.unwrap_or_default());
    bytes.extend_from_slice(format!("{method} {path} HTTP/1.1\r\n").as_bytes());
    if !parts.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        bytes.extend_from_slice(format!("Host: {authority}\r\n").as_bytes());
    }
    for (name, value) in parts.headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    // RFC 9110, 8.6: of methods that expect a body, an empty one has a length too.
    if parts.body.is_some() || ["POST", "PUT", "PATCH"].contains(&method) {
        bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    let says_close = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("connection") && value.to_ascii_lowercase().contains("close")
    };
    let closes = parts.headers.iter().any(says_close);
    Ok(Described { is_head: method == "HEAD", closes, ..Described::default() })
}

fn check(parts: &Parts<'_>) -> Result<(), SourceError> {
    let fail = |what: String| Err(SourceError(what));
    if parts.method.is_empty() || !parts.method.bytes().all(|byte| byte.is_ascii_graphic()) {
        return fail(format!("`{}` is no method", parts.method));
    }
    if !parts.path.starts_with(['/', '*']) || parts.path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return fail(format!("`{}` is no path: it begins with / and has no blanks", parts.path));
    }
    for (name, value) in parts.headers {
        if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding") {
            return fail(format!("the field `{name}` is made of the body"));
        }
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        if !is_name || value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
            return fail(format!("`{name}: {value}` is no header field: write NAME: VALUE"));
        }
    }
    if parts.body.unwrap_or_default().len() > REQUEST_BYTES_MAX / 2 {
        return fail(format!("the body is longer than {} bytes", REQUEST_BYTES_MAX / 2));
    }
    Ok(())
}

/// A source of one request, for ever the same.
#[derive(Clone, Debug)]
pub struct Constant {
    bytes: Vec<u8>,
    described: Described,
}

impl Constant {
    /// Of these parts.
    pub fn new(parts: &Parts<'_>) -> Result<Self, SourceError> {
        let mut bytes = Vec::new();
        let described = write(parts, &mut bytes)?;
        Ok(Self { bytes, described })
    }
}

impl Source for Constant {
    fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Described>, SourceError> {
        bytes.extend_from_slice(&self.bytes);
        Ok(Some(self.described))
    }

    fn constant(&self) -> Option<(Vec<u8>, Described)> {
        Some((self.bytes.clone(), self.described))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Parts<'static> = Parts { method: "GET", path: "/a?b", authority: "host:1", headers: &[], body: None };

    fn written(parts: &Parts<'_>) -> (String, Described) {
        let mut bytes = Vec::new();
        let described = write(parts, &mut bytes).unwrap();
        (String::from_utf8(bytes).unwrap(), described)
    }

    #[test]
    fn a_get_has_no_length_and_a_post_always() {
        assert_eq!(written(&GET).0, "GET /a?b HTTP/1.1\r\nHost: host:1\r\n\r\n");
        let post = Parts { method: "POST", ..GET };
        assert_eq!(written(&post).0, "POST /a?b HTTP/1.1\r\nHost: host:1\r\nContent-Length: 0\r\n\r\n");
        let put = Parts { method: "PUT", body: Some(b"{}"), ..GET };
        assert_eq!(written(&put).0, "PUT /a?b HTTP/1.1\r\nHost: host:1\r\nContent-Length: 2\r\n\r\n{}");
    }

    #[test]
    fn fields_of_the_user_are_sent_and_read() {
        let headers = [("Host".to_owned(), "other".to_owned()), ("connection".to_owned(), "Close".to_owned())];
        let (text, described) = written(&Parts { method: "HEAD", headers: &headers, ..GET });
        assert_eq!(text, "HEAD /a?b HTTP/1.1\r\nHost: other\r\nconnection: Close\r\n\r\n");
        assert!(described.is_head && described.closes);
    }

    #[test]
    fn what_would_be_another_request_on_the_wire_is_refused() {
        let field = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for headers in [field("A", "b\r\nC: d"), field("A b", "c"), field("", "c"), field("Content-Length", "5")] {
            assert!(write(&Parts { headers: &headers, ..GET }, &mut Vec::new()).is_err(), "{headers:?}");
        }
        for path in ["", "a", "/a b", "/a\r\n"] {
            assert!(write(&Parts { path, ..GET }, &mut Vec::new()).is_err(), "{path:?}");
        }
        assert!(write(&Parts { method: "G T", ..GET }, &mut Vec::new()).is_err());
    }
}
