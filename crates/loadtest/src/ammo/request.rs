//! A request as an ammo format describes it, and its encoding in HTTP/1.1.
//!
//! A [`Draft`] holds method, target, header fields and body. [`Draft::encode`] checks them and writes the request. The encoder
//! writes `Host` and `Content-Length` itself, so that a request's framing is right whatever the ammo says. Formats whose records
//! are ready to send (phantom) need no draft.

use crate::source::REQUEST_BYTES_MAX;
use std::borrow::Cow;
use std::fmt;

/// Largest number of header fields of a request: no client sends more, and servers refuse them.
pub(crate) const HEADERS_MAX: usize = 128;

/// A request that is ready to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedRequest {
    /// Head and body, in HTTP/1.1.
    pub bytes: Vec<u8>,
    /// The name under which the request is counted: the ammo's tag, or else method and shape of the path.
    pub tag: String,
    /// Whether the request asks for the connection to be closed after the reply.
    pub closes: bool,
}

impl PreparedRequest {
    /// Method and target of the request line. Both are empty if the bytes have no request line.
    pub fn method_and_target(&self) -> (&str, &str) {
        method_and_target(&self.bytes).unwrap_or_default()
    }
}

/// Method and target of the request line with which `bytes` begin.
pub(crate) fn method_and_target(bytes: &[u8]) -> Option<(&str, &str)> {
    let end = memchr::memchr2(b'\r', b'\n', bytes)?;
    let mut words = std::str::from_utf8(bytes.get(..end)?).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let whole = is_token(method) && !target.is_empty() && version.starts_with("HTTP/1.") && words.next().is_none();
    whole.then_some((method, target))
}

/// Appends the shape of the request at the beginning of `bytes`.
pub(crate) fn append_shape_of(bytes: &[u8], out: &mut String) {
    if let Some((method, target)) = method_and_target(bytes) {
        super::tag::append_shape(method, target, out);
    }
}

/// Fields that all requests of a run receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// `Host` of requests whose ammo names none.
    pub host: String,
    /// Header fields of the command line. A field of the ammo takes precedence over one of the same name here.
    pub headers: Vec<(String, String)>,
}

/// A request before its encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) method: String,
    /// Path and query. The part after `#` is for the client only and is not sent.
    pub(crate) target: String,
    /// The host that the ammo names.
    pub(crate) host: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// The type of the body, if the ammo's header fields name none.
    pub(crate) body_type: Option<&'static str>,
    /// The tag, if the ammo names one.
    pub(crate) tag: Option<String>,
}

/// Why a draft cannot be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsendable(String);

impl fmt::Display for Unsendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Unsendable> for String {
    fn from(problem: Unsendable) -> String {
        problem.0
    }
}

impl Defaults {
    /// Defaults for a target of this host and port; a field `Host` among `headers` takes precedence.
    pub fn new(authority: &str, headers: Vec<(String, String)>) -> Defaults {
        let named = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
        let host = named.map_or(authority, |(_, host)| host).to_owned();
        Defaults { host, headers }
    }
}

impl Draft {
    /// A request of `method` for a URL: `http://HOST/PATH`, `https://HOST/PATH`, or a path.
    pub(crate) fn of_url(method: &str, url: &str) -> Draft {
        let (host, target) = split_url(url);
        Draft {
            method: method.to_owned(),
            target: target.into_owned(),
            host: host.map(str::to_owned),
            ..Draft::default()
        }
    }

    /// Encodes the request, replacing `request`.
    pub(crate) fn encode(&self, defaults: &Defaults, request: &mut PreparedRequest) -> Result<(), Unsendable> {
        self.check()?;
        let out = &mut request.bytes;
        out.clear();
        out.extend_from_slice(self.method.as_bytes());
        out.push(b' ');
        append_target(&self.target, out);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        self.append_headers(defaults, out);
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        if out.len() > REQUEST_BYTES_MAX {
            return Err(Unsendable(format!("the request is longer than {REQUEST_BYTES_MAX} bytes")));
        }
        request.closes = self.closes(defaults);
        request.tag.clear();
        match &self.tag {
            Some(tag) => request.tag.push_str(super::tag::cut(tag)),
            None => super::tag::append_shape(&self.method, &self.target, &mut request.tag),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Unsendable> {
        if !is_token(&self.method) {
            return Err(Unsendable(format!("{:?} is no method: GET, POST and the like", shown(&self.method))));
        }
        let blank = |c: char| c.is_ascii_control() || c == ' ';
        if !(self.target.starts_with('/') || self.target == "*") || self.target.contains(blank) {
            let target = shown(&self.target);
            return Err(Unsendable(format!("{target:?} is no path: it begins with / and has no spaces")));
        }
        if self.headers.len() > HEADERS_MAX {
            return Err(Unsendable(format!("more than {HEADERS_MAX} header fields")));
        }
        let host = self.host.iter().map(|host| ("Host", host.as_str()));
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        headers.chain(host).try_for_each(|(name, value)| check_header(name, value))
    }

    fn closes(&self, defaults: &Defaults) -> bool {
        let is_connection = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("connection");
        let own = self.headers.iter().find(is_connection);
        own.or(defaults.headers.iter().find(is_connection)).is_some_and(|(_, value)| says_close(value.as_bytes()))
    }

    fn append_headers(&self, defaults: &Defaults, out: &mut Vec<u8>) {
        let own = |name: &str| self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        let named_host = own("host").map(|(_, host)| host.as_str());
        append_header("Host", named_host.or(self.host.as_deref()).unwrap_or(&defaults.host), out);
        let given = defaults.headers.iter().filter(|(name, _)| own(name).is_none());
        for (name, value) in self.headers.iter().chain(given).filter(|(name, _)| !is_framing(name)) {
            append_header(name, value, out);
        }
        if let Some(body_type) = self.body_type.filter(|_| own("content-type").is_none()) {
            append_header("Content-Type", body_type, out);
        }
        // RFC 9110, section 8.6: a method whose body has a meaning states that there is none.
        if !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            append_header("Content-Length", &self.body.len().to_string(), out);
        }
    }
}

/// Checks a header field of the ammo or the command line.
pub(crate) fn check_header(name: &str, value: &str) -> Result<(), Unsendable> {
    if !is_token(name) {
        return Err(Unsendable(format!("{:?} is no name of a header field", shown(name))));
    }
    match value.contains(|c: char| c.is_ascii_control() && c != '\t') {
        true => Err(Unsendable(format!("the header field {name} has a control character in its value"))),
        false => Ok(()),
    }
}

/// Fields that the encoder writes itself. HTTP/2's pseudo-fields (`:path`) are no tokens; formats leave them out.
fn is_framing(name: &str) -> bool {
    ["host", "content-length", "transfer-encoding"].iter().any(|framing| name.eq_ignore_ascii_case(framing))
}

/// Whether a value of `Connection` contains the option `close` (RFC 9112, section 9.6).
pub(crate) fn says_close(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(token)
}

fn append_header(name: &str, value: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Writes a target; bytes outside ASCII are percent-encoded, as browsers do (RFC 3986, section 2.1).
fn append_target(target: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let end = target.find('#').unwrap_or(target.len());
    for byte in target.bytes().take(end) {
        match byte.is_ascii() {
            true => out.push(byte),
            false => out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// Host and target of a URL; a URL without a scheme is a target. A URL without a path means `/`.
fn split_url(url: &str) -> (Option<&str>, Cow<'_, str>) {
    let Some(rest) = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) else {
        return (None, url.into());
    };
    let (host, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match target.as_bytes().first() {
        Some(b'/') => (Some(host), target.into()),
        Some(b'?') => (Some(host), format!("/{target}").into()),
        _ => (Some(host), "/".into()),
    }
}

/// The URL standard's encoding of forms (application/x-www-form-urlencoded).
pub(crate) fn form_encoded(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}

/// The beginning of a text, for an error message.
pub(crate) fn shown(text: &str) -> &str {
    const SHOWN_BYTES_MAX: usize = 80;
    &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)]
}

#[cfg(test)]
mod encoding {
    use super::{Defaults, Draft, PreparedRequest, method_and_target};
    use crate::source::REQUEST_BYTES_MAX;
    use proptest::prelude::*;

    fn defaults() -> Defaults {
        Defaults { host: "target:80".to_owned(), headers: vec![("X-Run".to_owned(), "1".to_owned())] }
    }

    fn encoded(draft: &Draft) -> Result<String, String> {
        let mut request = PreparedRequest::default();
        draft.encode(&defaults(), &mut request).map_err(String::from)?;
        Ok(String::from_utf8(request.bytes).expect("UTF-8"))
    }

    #[test]
    fn a_path_gets_the_targets_host() {
        let text = encoded(&Draft::of_url("GET", "/users/1?a=b#top"));
        assert_eq!(text.as_deref(), Ok("GET /users/1?a=b HTTP/1.1\r\nHost: target:80\r\nX-Run: 1\r\n\r\n"));
    }

    #[test]
    fn a_url_gets_its_own_host_and_text_outside_ascii_is_percent_encoded() {
        let text = encoded(&Draft::of_url("GET", "http://a.example:8080/пт"));
        let expected = "GET /%D0%BF%D1%82 HTTP/1.1\r\nHost: a.example:8080\r\nX-Run: 1\r\n\r\n";
        assert_eq!(text.as_deref(), Ok(expected));
        let text = encoded(&Draft::of_url("GET", "https://a.example")).expect("a root");
        assert!(text.starts_with("GET / HTTP/1.1\r\nHost: a.example\r\n"), "{text}");
        for (url, target) in [("http://a.example?x=1#y", "/?x=1"), ("http://a.example#y?", "/")] {
            let text = encoded(&Draft::of_url("GET", url)).expect("a root");
            assert!(text.starts_with(&format!("GET {target} HTTP/1.1\r\nHost: a.example\r\n")), "{text}");
        }
    }

    #[test]
    fn framing_is_the_encoders_and_the_ammos_fields_go_before_the_command_lines() {
        let mut draft = Draft::of_url("POST", "/a");
        let fields = [("content-length", "7"), ("Transfer-Encoding", "chunked"), ("x-run", "2"), ("HOST", "b.example")];
        draft.headers = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        draft.body = b"{}".to_vec();
        draft.body_type = Some("application/json");
        let expected = "POST /a HTTP/1.1\r\nHost: b.example\r\nx-run: 2\r\nContent-Type: application/json\r\n\
                        Content-Length: 2\r\n\r\n{}";
        assert_eq!(encoded(&draft).as_deref(), Ok(expected));
    }

    #[test]
    fn a_host_of_the_command_line_goes_before_the_targets_and_behind_the_ammos() {
        let defaults = Defaults::new("target:80", vec![("host".to_owned(), "named".to_owned())]);
        for (url, host) in [("/", "named"), ("http://a.example/", "a.example")] {
            let mut request = PreparedRequest::default();
            Draft::of_url("GET", url).encode(&defaults, &mut request).expect("sendable");
            assert_eq!(String::from_utf8_lossy(&request.bytes), format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        }
    }

    #[test]
    fn a_connection_closes_where_the_ammo_or_the_command_line_says_so() {
        let closes = |own: Option<&str>, default: &str| {
            let mut draft = Draft::of_url("GET", "/");
            draft.headers.extend(own.map(|value| ("connection".to_owned(), value.to_owned())));
            let defaults = Defaults { headers: vec![("Connection".to_owned(), default.to_owned())], ..defaults() };
            let mut request = PreparedRequest::default();
            draft.encode(&defaults, &mut request).expect("sendable");
            request.closes
        };
        assert!(closes(None, "Close") && closes(Some("x, close"), "keep-alive"));
        assert!(!closes(Some("keep-alive"), "close"));
    }

    #[test]
    fn what_would_break_the_framing_is_refused() {
        let header = |name: &str, value: &str| {
            let mut draft = Draft::of_url("GET", "/");
            draft.headers.push((name.to_owned(), value.to_owned()));
            draft
        };
        let mut long = Draft::of_url("POST", "/");
        long.body = vec![b'x'; REQUEST_BYTES_MAX];
        let bad_host = Draft::of_url("GET", "http://a\r\nb/");
        let refused = [Draft::of_url("GE T", "/"), Draft::of_url("GET", "users"), Draft::of_url("GET", "/a b")];
        for draft in refused.into_iter().chain([header("a b", "c"), header("a", "b\r\nc: d"), long, bad_host]) {
            assert!(encoded(&draft).is_err(), "{draft:?}");
        }
    }

    proptest! {
        /// Whatever a draft holds, the encoded bytes are one request: its body follows the head and has the stated length.
        #[test]
        fn an_encoded_request_has_one_head_and_the_length_of_its_body(
            method in "[A-Z]{1,8}|.{0,4}", target in "/[ -~]{0,20}|.{0,10}",
            name in "[a-zA-Z-]{1,8}|.{0,4}", value in ".{0,12}", body in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut draft = Draft::of_url(&method, &target);
            draft.headers.push((name, value));
            draft.body = body.clone();
            let mut request = PreparedRequest::default();
            if draft.encode(&defaults(), &mut request).is_ok() {
                let head = memchr::memmem::find(&request.bytes, b"\r\n\r\n").expect("a head") + 4;
                prop_assert_eq!(&request.bytes[head..], &body);
                let mut fields = [httparse::EMPTY_HEADER; 8];
                let mut parsed = httparse::Request::new(&mut fields);
                prop_assert_eq!(parsed.parse(&request.bytes), Ok(httparse::Status::Complete(head)));
                let lengths: Vec<_> = parsed.headers.iter().filter(|field| field.name == "Content-Length").collect();
                prop_assert!(lengths.len() == 1 || body.is_empty());
                let length = lengths.first().map_or("0".to_owned(), |field| String::from_utf8_lossy(field.value).into_owned());
                prop_assert_eq!(length, body.len().to_string());
                prop_assert_eq!(method_and_target(&request.bytes).map(|(method, _)| method), Some(method.as_str()));
            }
        }
    }
}
