//! A request head: request line and fields, and their meaning for framing and persistence.
//!
//! [`parse`] takes a whole head that passed the strict scan. httparse splits it into slices; this file interprets them by RFC
//! 9112, strictly: a head that two servers could interpret in two ways is refused. Most heads are plain and do not come here:
//! see `plain`, which uses the same interpretation of fields.
//!
//! Few fields matter. They are found in one pass, by length and first byte before any comparison.

use std::mem::MaybeUninit;

use httparse::Header;

use crate::limits::{ClientLimits, FIELDS_MAX};
use crate::method::Method;
use crate::parsing::chunked::is_token;
use crate::parsing::refusal::Refusal;

/// Field lines that were checked. They are split into names and values only on demand: few services ask for a field, and slices
/// of all fields would have to be kept for each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldLines<'i>(&'i [u8]);

impl<'i> FieldLines<'i> {
    /// `lines` are whole lines, each a name, a colon, a value, and CR LF.
    #[inline]
    pub(crate) fn checked(lines: &'i [u8]) -> Self {
        FieldLines(lines)
    }

    /// Names and values, in their order.
    pub(crate) fn iter(self) -> impl DoubleEndedIterator<Item = (&'i str, &'i [u8])> + Clone {
        self.0.split_inclusive(|&byte| byte == b'\n').filter_map(|line| {
            let colon = memchr::memchr(b':', line)?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            Some((name, line[colon + 1..].trim_ascii()))
        })
    }

    /// Values of the fields of one name (ASCII case folded), in their order. A line is compared only if its colon is where this
    /// name's would be.
    #[inline]
    pub(crate) fn named(self, name: &str) -> impl Iterator<Item = &'i [u8]> {
        self.lines().filter_map(move |line| value_if_named(line, name))
    }

    /// The same in reverse order.
    pub(crate) fn named_from_last(self, name: &str) -> impl Iterator<Item = &'i [u8]> {
        let mut rest = self.0;
        let lines = std::iter::from_fn(move || {
            let content = rest.strip_suffix(b"\n")?;
            let (others, line) = rest.split_at(memchr::memrchr(b'\n', content).map_or(0, |end| end + 1));
            rest = others;
            Some(line)
        });
        lines.filter_map(move |line| value_if_named(line, name))
    }

    #[inline]
    fn lines(self) -> impl Iterator<Item = &'i [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (line, others) = rest.split_at(memchr::memchr(b'\n', rest)? + 1);
            rest = others;
            Some(line)
        })
    }
}

/// The value of a field line, if the field has this name.
#[inline]
fn value_if_named<'i>(line: &'i [u8], name: &str) -> Option<&'i [u8]> {
    let (field, [b':', value @ ..]) = line.split_at_checked(name.len())? else { return None };
    field.eq_ignore_ascii_case(name.as_bytes()).then(|| value.trim_ascii())
}

/// How the body's end is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By its length; zero if the head has none.
    Length(u64),
    /// By the last chunk.
    Chunked,
}

/// A parsed head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'i> {
    pub(crate) method: Method,
    pub(crate) path: &'i str,
    pub(crate) query: &'i str,
    /// Authority of a target in absolute form; otherwise empty.
    pub(crate) authority: &'i str,
    pub(crate) fields: FieldLines<'i>,
    pub(crate) http10: bool,
    /// Whether the client may send more on this connection.
    pub(crate) persistent: bool,
    pub(crate) framing: Framing,
    /// The client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    pub(crate) facts: Facts,
}

/// Answers about the fields that a service needs at every request, found while the fields are read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// An Accept field is other than exactly `*/*` or `application/json`.
    pub(crate) names_media: bool,
    /// The head has If-Match or If-None-Match.
    pub(crate) is_conditional: bool,
    /// The head has Origin.
    pub(crate) has_origin: bool,
    /// The head has Content-Encoding.
    pub(crate) has_coding: bool,
}

/// Parses a head that [`crate::parsing::scan::HeadScan`] found complete. Not inlined, so that the fast path does not pay for its stack.
#[inline(never)]
pub(crate) fn parse<'i>(bytes: &'i [u8], limits: &ClientLimits) -> Result<Head<'i>, Refusal> {
    // Room for the slices of the fields: never fully initialised.
    let mut fields = [const { MaybeUninit::<Header<'i>>::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let room = &mut fields[..limits.fields_max.min(FIELDS_MAX)];
    match request.parse_with_uninit_headers(bytes, room) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err(Refusal::RequestLine),
        Err(error) => return Err(refusal_of(error, bytes)),
    }
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Err(Refusal::RequestLine);
    };
    let method = Method::from_name(method).ok_or(Refusal::MethodUnknown)?;
    if target.len() > limits.target_bytes_max {
        return Err(Refusal::TargetTooLong);
    }
    let Parts { authority, path, query } = split_target(target, method)?;
    let http10 = version == 0;
    let meaning = Meaning::of(request.headers)?;
    meaning.check_host(http10)?;
    Ok(Head {
        method,
        path,
        query,
        authority,
        fields: FieldLines::checked(field_lines(bytes)),
        http10,
        persistent: if http10 { meaning.keep_alive && !meaning.close } else { !meaning.close },
        framing: meaning.framing(http10)?,
        expects_continue: meaning.expects_continue(http10)?,
        facts: meaning.facts,
    })
}

/// The field lines of a whole head: between the request line and the blank line.
fn field_lines(bytes: &[u8]) -> &[u8] {
    let line_bytes = memchr::memchr(b'\n', bytes).map_or(0, |at| at + 1);
    bytes.get(line_bytes..bytes.len() - 2).unwrap_or_default()
}

fn refusal_of(error: httparse::Error, bytes: &[u8]) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => Refusal::TooManyFields,
        httparse::Error::HeaderName | httparse::Error::HeaderValue => Refusal::FieldLine,
        httparse::Error::Version if names_other_version(bytes) => Refusal::Version,
        // httparse returns NewLine for garbage after the version as well as for a field without a name.
        _ => Refusal::RequestLine,
    }
}

/// Whether the request line is well-formed except for an unsupported version.
fn names_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let [_, _, version, None] = [words.next(), words.next(), words.next(), words.next()] else { return false };
    matches!(version, Some([b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']))
}

/// A target's parts.
struct Parts<'i> {
    authority: &'i str,
    path: &'i str,
    query: &'i str,
}

/// The parts of a target in origin form, absolute form, or the asterisk of OPTIONS.
#[inline]
fn split_target(target: &str, method: Method) -> Result<Parts<'_>, Refusal> {
    let bytes = target.as_bytes();
    // One pass without early exit, so that the compiler can vectorise it. httparse accepts any byte over 0x7f.
    let odd = bytes.iter().fold(false, |odd, &byte| odd | !(0x21..=0x7e).contains(&byte) | (byte == b'#'));
    if odd {
        return Err(Refusal::Target);
    }
    match bytes.first() {
        Some(b'/') => {
            let (path, query) = split_query(target);
            Ok(Parts { authority: "", path, query })
        }
        Some(b'*') if target.len() == 1 && method == Method::Options => {
            Ok(Parts { authority: "", path: target, query: "" })
        }
        _ => split_absolute(target),
    }
}

fn split_query(target: &str) -> (&str, &str) {
    match memchr::memchr(b'?', target.as_bytes()) {
        Some(at) => (&target[..at], &target[at + 1..]),
        None => (target, ""),
    }
}

/// RFC 9112 section 3.2.2: a server must accept the absolute form, and its authority takes precedence over Host.
fn split_absolute(target: &str) -> Result<Parts<'_>, Refusal> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let (head, rest) = target.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let rest = rest.ok_or(Refusal::Target)?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let authority = &rest[..end];
    if authority.is_empty() || !is_host(authority.as_bytes()) {
        return Err(Refusal::Target);
    }
    let (path, query) = split_query(&rest[end..]);
    Ok(Parts { authority, path: if path.is_empty() { "/" } else { path }, query })
}

/// Meaning of the fields that matter.
#[derive(Default)]
pub(crate) struct Meaning<'i> {
    host: Option<&'i [u8]>,
    length: Option<&'i [u8]>,
    coding: Option<&'i [u8]>,
    expect: Option<&'i [u8]>,
    close: bool,
    keep_alive: bool,
    host_is_checked: bool,
    pub(crate) facts: Facts,
}

impl<'i> Meaning<'i> {
    fn of(fields: &[Header<'i>]) -> Result<Self, Refusal> {
        let mut meaning = Meaning::default();
        for field in fields {
            meaning.add(field.name.as_bytes(), field.value)?;
        }
        Ok(meaning)
    }

    /// Interprets one field.
    #[inline]
    pub(crate) fn add(&mut self, name: &[u8], value: &'i [u8]) -> Result<(), Refusal> {
        match (name.len(), name.first().map_or(0, |byte| byte | 0x20)) {
            (4, b'h') if name.eq_ignore_ascii_case(b"host") => {
                set_once(&mut self.host, value, Refusal::HostRepeated)?;
            }
            (10, b'c') if name.eq_ignore_ascii_case(b"connection") => self.add_connection(value),
            (14, b'c') if name.eq_ignore_ascii_case(b"content-length") => {
                set_once(&mut self.length, value, Refusal::LengthRepeated)?;
            }
            (17, b't') if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                set_once(&mut self.coding, value, Refusal::CodingRepeated)?;
            }
            (6, b'a') if name.eq_ignore_ascii_case(b"accept") => {
                self.facts.names_media |= !matches!(value, b"*/*" | b"application/json");
            }
            (8, b'i') if name.eq_ignore_ascii_case(b"if-match") => self.facts.is_conditional = true,
            (13, b'i') if name.eq_ignore_ascii_case(b"if-none-match") => self.facts.is_conditional = true,
            (6, b'o') if name.eq_ignore_ascii_case(b"origin") => self.facts.has_origin = true,
            (16, b'c') if name.eq_ignore_ascii_case(b"content-encoding") => self.facts.has_coding = true,
            (6, b'e') if name.eq_ignore_ascii_case(b"expect") => self.expect = Some(value),
            _ => {}
        }
        Ok(())
    }

    /// Records the value of Host; all its bytes have passed [`is_host_byte`].
    #[inline]
    pub(crate) fn add_checked_host(&mut self, value: &'i [u8]) -> Result<(), Refusal> {
        self.host_is_checked = true;
        set_once(&mut self.host, value, Refusal::HostRepeated)
    }

    /// Whether the client asked to close the connection.
    #[inline]
    pub(crate) fn closes(&self) -> bool {
        self.close
    }

    fn add_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    #[inline]
    pub(crate) fn check_host(&self, http10: bool) -> Result<(), Refusal> {
        match self.host {
            // RFC 9112 section 3.2: a client whose target has no authority sends an empty value.
            Some(host) if self.host_is_checked || is_host(host) => Ok(()),
            Some(_) => Err(Refusal::HostValue),
            None if http10 => Ok(()),
            None => Err(Refusal::HostMissing),
        }
    }

    #[inline]
    pub(crate) fn framing(&self, http10: bool) -> Result<Framing, Refusal> {
        match (self.length, self.coding) {
            (None, None) => Ok(Framing::Length(0)),
            (Some(_), Some(_)) => Err(Refusal::BothFramings),
            (Some(length), None) => Ok(Framing::Length(parse_length(length)?)),
            (None, Some(_)) if http10 => Err(Refusal::CodingInHttp10),
            (None, Some(coding)) => check_coding(coding).map(|()| Framing::Chunked),
        }
    }

    #[inline]
    pub(crate) fn expects_continue(&self, http10: bool) -> Result<bool, Refusal> {
        match self.expect {
            // RFC 9110 section 10.1.1: in an HTTP/1.0 request the expectation must be ignored.
            None => Ok(false),
            Some(_) if http10 => Ok(false),
            Some(value) if value.trim_ascii().eq_ignore_ascii_case(b"100-continue") => Ok(true),
            Some(_) => Err(Refusal::Expectation),
        }
    }
}

fn set_once<'i>(place: &mut Option<&'i [u8]>, value: &'i [u8], repeated: Refusal) -> Result<(), Refusal> {
    // RFC 9112 section 6.3 would allow equal lengths to be merged; another server on the path may not merge them, so this is
    // refused.
    if place.replace(value).is_some() { Err(repeated) } else { Ok(()) }
}

fn parse_length(value: &[u8]) -> Result<u64, Refusal> {
    let digits = value.trim_ascii();
    if digits.is_empty() {
        return Err(Refusal::LengthValue);
    }
    digits.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0')).ok_or(Refusal::LengthValue)?;
        length.checked_mul(10).and_then(|tens| tens.checked_add(digit)).ok_or(Refusal::LengthValue)
    })
}

/// The only supported coding is `chunked`, alone. One other token is an unknown coding: 501.
fn check_coding(value: &[u8]) -> Result<(), Refusal> {
    let coding = value.trim_ascii();
    if coding.eq_ignore_ascii_case(b"chunked") {
        Ok(())
    } else if !coding.is_empty() && coding.iter().all(|&byte| is_token(byte)) {
        Err(Refusal::CodingUnknown)
    } else {
        Err(Refusal::CodingRepeated)
    }
}

/// Bytes of `uri-host [":" port]` (RFC 3986 section 3.2.2); the digits of escapes are not checked further.
const HOST_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"-._~!$&'()*+;=%:[]";
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};

/// Whether a value of Host may hold this byte.
#[inline]
pub(crate) fn is_host_byte(byte: u8) -> bool {
    HOST_BYTES[usize::from(byte)]
}

fn is_host(value: &[u8]) -> bool {
    value.iter().all(|&byte| is_host_byte(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parsing::scan::HeadScan;
    use proptest::prelude::*;

    /// Path, query, keep-alive and framing of a head in one line.
    fn describe(head: &[u8]) -> Result<String, Refusal> {
        let head = parse(head, &ClientLimits::default())?;
        let keep = if head.persistent { "keep" } else { "close" };
        Ok(format!("{} {}?{} {keep} {:?}", head.method.name(), head.path, head.query, head.framing))
    }

    #[track_caller]
    fn check(head: &str, expected: Result<&str, Refusal>) {
        let whole = format!("{head}\r\n\r\n");
        assert_eq!(HeadScan::default().scan(whole.as_bytes()), Ok(Some(whole.len())), "the scan passes it");
        assert_eq!(describe(whole.as_bytes()), expected.map(str::to_owned));
    }

    #[track_caller]
    fn check_fields(fields: &str, expected: Result<&str, Refusal>) {
        check(&format!("POST /p HTTP/1.1\r\nHost: h\r\n{fields}"), expected);
    }

    #[test]
    fn request_lines_are_cut_into_method_path_and_query() {
        check("GET /a%20b?x=1&y HTTP/1.1\r\nHost: h", Ok("GET /a%20b?x=1&y keep Length(0)"));
        check("OPTIONS * HTTP/1.1\r\nHost: h", Ok("OPTIONS *? keep Length(0)"));
        check("GET http://h:80/a?b HTTP/1.1\r\nHost: other", Ok("GET /a?b keep Length(0)"));
        check("GET HTTP://h?b HTTP/1.1\r\nHost: h", Ok("GET /?b keep Length(0)"));
    }

    #[test]
    fn malformed_request_lines_are_refused() {
        for line in
            ["GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET /a b HTTP/1.1", " GET / HTTP/1.1", "GET\t/\tHTTP/1.1"]
        {
            check(&format!("{line}\r\nHost: h"), Err(Refusal::RequestLine));
        }
        for target in ["a", "*", "ftp://h/", "http:///a", "http://a@b/", "/a#b", "/\u{44f}"] {
            check(&format!("GET {target} HTTP/1.1\r\nHost: h"), Err(Refusal::Target));
        }
        check("GET / HTTP/2.0\r\nHost: h", Err(Refusal::Version));
        check("GET / HTTP/1.2\r\nHost: h", Err(Refusal::Version));
        check("GET / http/1.1\r\nHost: h", Err(Refusal::RequestLine));
        check("get / HTTP/1.1\r\nHost: h", Err(Refusal::MethodUnknown));
    }

    #[test]
    fn field_lines_are_strict() {
        for line in ["a : b", " a: b", ": b", "no colon", "a\tb: c", "a: \u{1}", "a: \u{7f}"] {
            check_fields(line, Err(Refusal::FieldLine));
        }
        check_fields("a: b\r\n folded", Err(Refusal::FieldLine));
    }

    #[test]
    fn a_body_has_one_framing() {
        check_fields("Content-Length:  7 ", Ok("POST /p? keep Length(7)"));
        check_fields("transfer-encoding: Chunked", Ok("POST /p? keep Chunked"));
        check_fields("Content-Length: 5\r\nTransfer-Encoding: chunked", Err(Refusal::BothFramings));
        check_fields("Content-Length: 5\r\ncontent-length: 5", Err(Refusal::LengthRepeated));
        for length in ["", "5, 5", "+5", "-5", "0x5", "5 5", "five", "18446744073709551616"] {
            check_fields(&format!("Content-Length: {length}"), Err(Refusal::LengthValue));
        }
        check_fields("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", Err(Refusal::CodingRepeated));
        for coding in ["", "gzip, chunked", "chunked, chunked", "chunked;q=1", ", chunked", "\"chunked\""] {
            check_fields(&format!("Transfer-Encoding: {coding}"), Err(Refusal::CodingRepeated));
        }
        check_fields("Transfer-Encoding: gzip", Err(Refusal::CodingUnknown));
        check_fields("Transfer-Encoding: xchunked", Err(Refusal::CodingUnknown));
        check("POST / HTTP/1.0\r\nTransfer-Encoding: chunked", Err(Refusal::CodingInHttp10));
    }

    #[test]
    fn one_host_is_wanted_of_http_1_1() {
        check("GET / HTTP/1.1", Err(Refusal::HostMissing));
        check("GET / HTTP/1.0", Ok("GET /? close Length(0)"));
        check("GET / HTTP/1.1\r\nHost: a\r\nhost: a", Err(Refusal::HostRepeated));
        for host in ["a b", "a,b", "a/b", "a@b", "\u{44f}"] {
            check(&format!("GET / HTTP/1.1\r\nHost: {host}"), Err(Refusal::HostValue));
        }
        check("GET / HTTP/1.1\r\nHost:", Ok("GET /? keep Length(0)"));
        check("GET / HTTP/1.1\r\nHost: [::1]:80", Ok("GET /? keep Length(0)"));
    }

    #[test]
    fn persistence_follows_version_and_connection() {
        check_fields("Connection: close", Ok("POST /p? close Length(0)"));
        check_fields("Connection: keep-alive, Close", Ok("POST /p? close Length(0)"));
        check_fields("Connection: a\r\nConnection: close", Ok("POST /p? close Length(0)"));
        check_fields("Connection: closer", Ok("POST /p? keep Length(0)"));
        check("GET / HTTP/1.0\r\nConnection: Keep-Alive", Ok("GET /? keep Length(0)"));
    }

    #[test]
    fn field_lines_are_cut_where_they_are_asked_for() {
        let head = b"GET / HTTP/1.1\r\nHost: h\r\nA:b: c\r\nEmpty:\r\nB: \t x y \t \r\n\r\n";
        let fields: Vec<_> = parse(head, &ClientLimits::default()).unwrap().fields.iter().collect();
        let expected: [(&str, &[u8]); 4] = [("Host", b"h"), ("A", b"b: c"), ("Empty", b""), ("B", b"x y")];
        assert_eq!(fields, expected);
        let named =
            |name: &str| -> Vec<&[u8]> { parse(head, &ClientLimits::default()).unwrap().fields.named(name).collect() };
        assert_eq!(named("a"), [b"b: c"]);
        assert_eq!(named("EMPTY"), [b""]);
        for name in ["Hos", "Hosts", "", "x", &"B".repeat(100)] {
            assert!(named(name).is_empty(), "{name}");
        }
        assert_eq!(parse(b"GET / HTTP/1.0\r\n\r\n", &ClientLimits::default()).unwrap().fields.iter().count(), 0);
    }

    #[test]
    fn values_of_a_name_are_read_from_either_end() {
        let head = b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nAb: 2\r\na:3\r\nB: 4\r\nA: \r\n\r\n";
        let fields = parse(head, &ClientLimits::default()).unwrap().fields;
        for (name, expected) in [("a", vec!["1", "3", ""]), ("HOST", vec!["h"]), ("b", vec!["4"]), ("c", vec![])] {
            let mut values: Vec<_> = fields.named_from_last(name).collect();
            values.reverse();
            assert_eq!(values, fields.named(name).collect::<Vec<_>>());
            assert_eq!(values, expected.into_iter().map(str::as_bytes).collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn only_one_expectation_is_known() {
        check_fields("Expect: 100-Continue", Ok("POST /p? keep Length(0)"));
        check_fields("Expect: tea", Err(Refusal::Expectation));
        check("GET / HTTP/1.0\r\nExpect: tea", Ok("GET /? close Length(0)"));
    }

    #[test]
    fn targets_and_fields_have_limits() {
        let target = "/".repeat(ClientLimits::default().target_bytes_max + 1);
        check(&format!("GET {target} HTTP/1.1\r\nHost: h"), Err(Refusal::TargetTooLong));
        let fields = vec!["a: b"; ClientLimits::default().fields_max].join("\r\n");
        check_fields(&fields, Err(Refusal::TooManyFields));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = describe(&bytes);
        }

        /// Mutations of a valid head: what we accept, a plain and slow reading of the grammar accepts too.
        #[test]
        fn an_accepted_head_is_lines_of_name_colon_value(
            at in 0usize..70, byte in prop_oneof![Just(b' '), Just(b'\r'), Just(b'\n'), Just(b':'), Just(0u8), any::<u8>()],
        ) {
            let mut bytes = b"POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX-Y: z\r\n\r\n".to_vec();
            let at = at % bytes.len();
            bytes.insert(at, byte);
            let Ok(Some(end)) = HeadScan::default().scan(&bytes) else { return Ok(()) };
            if end == 2 || describe(&bytes[..end]).is_err() { return Ok(()) }
            let text: String = bytes[..end].iter().map(|&b| char::from(b)).collect();
            let mut lines = text.strip_suffix("\r\n\r\n").unwrap().split("\r\n");
            prop_assert_eq!(lines.next().unwrap().split(' ').count(), 3);
            for line in lines {
                let (name, value) = line.split_once(':').unwrap();
                prop_assert!(!name.is_empty() && name.bytes().all(is_token), "{}", line);
                prop_assert!(!value.contains(['\r', '\n', '\0']));
            }
        }
    }
}
