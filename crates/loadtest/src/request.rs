//! The single request that a command line describes, as an endless source. It is encoded like those of ammo.

use crate::ammo::{Defaults, Draft, PreparedRequest};
use crate::source::{Described, RequestSource, SourceError};

/// The parts of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'p> {
    /// The method, such as `GET`.
    pub method: &'p str,
    /// Path and query.
    pub path: &'p str,
    /// The field `Host`, unless `headers` has one.
    pub authority: &'p str,
    /// More fields, as (name, value). Fields that frame the body are derived from the body.
    pub headers: &'p [(String, String)],
    /// The body. `None`: the request has none.
    pub body: Option<&'p [u8]>,
}

/// A source that repeats one request endlessly.
#[derive(Clone, Debug)]
pub struct Constant {
    bytes: Vec<u8>,
    described: Described,
}

impl Constant {
    /// A source of this request. The error names the part that cannot be sent.
    pub fn new(parts: &RequestParts<'_>) -> Result<Self, SourceError> {
        let draft = Draft {
            method: parts.method.to_owned(),
            target: parts.path.to_owned(),
            headers: parts.headers.to_vec(),
            body: parts.body.unwrap_or_default().to_vec(),
            ..Draft::default()
        };
        let (defaults, mut request) = (Defaults::new(parts.authority, Vec::new()), PreparedRequest::default());
        draft.encode(&defaults, &mut request).map_err(|problem| SourceError(problem.into()))?;
        let described = Described { is_head: parts.method == "HEAD", closes: request.closes, ..Described::default() };
        Ok(Self { bytes: request.bytes, described })
    }
}

impl RequestSource for Constant {
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

    const GET: RequestParts<'static> =
        RequestParts { method: "GET", path: "/a?b", authority: "host:1", headers: &[], body: None };

    fn written(parts: &RequestParts<'_>) -> (String, Described) {
        let Constant { bytes, described } = Constant::new(parts).unwrap();
        (String::from_utf8(bytes).unwrap(), described)
    }

    #[test]
    fn a_get_has_no_length_and_a_post_always() {
        assert_eq!(written(&GET).0, "GET /a?b HTTP/1.1\r\nHost: host:1\r\n\r\n");
        let post = RequestParts { method: "POST", ..GET };
        assert_eq!(written(&post).0, "POST /a?b HTTP/1.1\r\nHost: host:1\r\nContent-Length: 0\r\n\r\n");
        let put = RequestParts { method: "PUT", body: Some(b"{}"), ..GET };
        assert_eq!(written(&put).0, "PUT /a?b HTTP/1.1\r\nHost: host:1\r\nContent-Length: 2\r\n\r\n{}");
    }

    #[test]
    fn fields_of_the_user_are_sent_and_read() {
        let headers = [("Host".to_owned(), "other".to_owned()), ("connection".to_owned(), "Close".to_owned())];
        let (text, described) = written(&RequestParts { method: "HEAD", headers: &headers, ..GET });
        assert_eq!(text, "HEAD /a?b HTTP/1.1\r\nHost: other\r\nconnection: Close\r\n\r\n");
        assert!(described.is_head && described.closes);
    }

    #[test]
    fn what_would_be_another_request_on_the_wire_is_refused() {
        let field = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for headers in [field("A", "b\r\nC: d"), field("A b", "c"), field("", "c")] {
            assert!(Constant::new(&RequestParts { headers: &headers, ..GET }).is_err(), "{headers:?}");
        }
        for path in ["", "a", "/a b", "/a\r\n"] {
            assert!(Constant::new(&RequestParts { path, ..GET }).is_err(), "{path:?}");
        }
        assert!(Constant::new(&RequestParts { method: "G T", ..GET }).is_err());
    }
}
