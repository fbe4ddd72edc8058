//! Properties that hold for any bytes from a client; used by the tests here and by the targets of `fuzz/`.

#![allow(dead_code, clippy::unwrap_used)] // Each driver takes its part; a failed step is a failed test.

mod plain;

use http::cookies::{SetCookie, pairs as cookie_pairs};
use http::forms::{Boundary, MultipartFault, MultipartLimits, MultipartParser, PartEvent};
use http::fuzzing::{ParseResult, decode_chunks, read_requests};
use http::query::{DecodeError, decode, decode_path, pairs};
use http::{ClientLimits, RouteLookup, Router};

pub(crate) const BODY_MAX: usize = 300;

pub(crate) fn limits() -> ClientLimits {
    ClientLimits { head_bytes_max: 512, target_bytes_max: 100, body_bytes_max: BODY_MAX, ..ClientLimits::default() }
}

/// Requests as a list that is independent of the cut. The status of a refusal and a `100 Continue` may depend on it.
fn without_timing(seen: Vec<ParseResult>) -> Vec<ParseResult> {
    let kept = seen.into_iter().filter(|one| *one != ParseResult::Continue);
    kept.map(|one| if matches!(one, ParseResult::Refused(_)) { ParseResult::Refused(0) } else { one }).collect()
}

/// A connection's bytes give the same requests however they are cut into reads, and the same as a plain parser.
pub(crate) fn check_stream(stream: &[u8], reads: &[usize]) {
    let whole = without_timing(read_requests(stream, &[usize::MAX], &limits()));
    assert_eq!(without_timing(read_requests(stream, reads, &limits())), whole, "in reads of {reads:?}");
    let mut at = 0;
    for one in whole {
        let ParseResult::Request { method, path, query, body, .. } = one else { return };
        let plain = plain::request(&stream[at..]).expect("a request that a plain reading takes");
        at += plain.end;
        assert_eq!((method, body), (plain.method.as_str(), plain.body));
        // A question mark with nothing after it leaves no trace in the parts.
        let mark = if plain.target.contains('?') { "?" } else { "" };
        let target = format!("{path}{mark}{query}");
        assert!(plain.target.ends_with(target.strip_prefix('/').unwrap_or(&target)), "{target} of {}", plain.target);
    }
}

/// A chunked body: the same in any pieces, and the same as by a plain parser.
pub(crate) fn check_chunks(input: &[u8], piece: usize) {
    let whole = decode_chunks(input, input.len(), BODY_MAX);
    assert_eq!(decode_chunks(input, piece, BODY_MAX), whole, "in pieces of {piece}");
    let plain = plain::chunks(input, 0);
    match whole {
        Ok(Some((body, used))) => {
            assert!(body.len() <= BODY_MAX);
            assert_eq!(plain, Some((body, used)));
        }
        // Within all limits, and without extensions and trailers, bodies that the plain parser accepts must be accepted too.
        _ if input.len() < BODY_MAX && !input.iter().any(|byte| b"; \t:".contains(byte)) => {
            let digits_max = input.split(|byte| !byte.is_ascii_hexdigit()).map(<[u8]>::len).max();
            assert!(plain.is_none() || digits_max > Some(16), "refused: {plain:?}");
        }
        _ => {}
    }
}

/// The boundary of [`check_multipart`].
pub(crate) const BOUNDARY: &str = "XX";

/// The data of each part of a multipart form that is pushed in pieces of this size, or the error.
fn parts(body: &[u8], piece: usize) -> Result<Vec<Vec<u8>>, MultipartFault> {
    let limits =
        MultipartLimits { parts_max: 4, head_bytes_max: 200, field_bytes_max: 100, ..MultipartLimits::default() };
    let boundary = Boundary::of(format!("multipart/form-data; boundary={BOUNDARY}").as_bytes()).unwrap();
    let mut parser = MultipartParser::new(&boundary, &limits);
    let (mut parts, mut ended) = (Vec::new(), 0);
    for piece in body.chunks(piece.max(1)) {
        let pushed = parser.push(piece, &mut |event| match event {
            PartEvent::Begin(head) => {
                assert!(!head.file_name.is_some_and(|name| name.contains(['/', '\\'])), "a file name is no path");
                assert_eq!(ended, parts.len());
                parts.push(Vec::new());
            }
            PartEvent::Data(data) => {
                assert!(!data.is_empty() && ended + 1 == parts.len());
                parts.last_mut().unwrap().extend_from_slice(data);
            }
            PartEvent::End => ended += 1,
        });
        assert!(parser.held_bytes() <= 2 * limits.head_bytes_max);
        pushed.map_err(|error| error.fault)?;
    }
    parser.finish().map_err(|error| error.fault)?;
    assert_eq!(parts.len(), ended);
    Ok(parts)
}

/// A multipart form: the same parts in any pieces, and the same as by a plain split.
pub(crate) fn check_multipart(body: &[u8], piece: usize) {
    let whole = parts(body, body.len());
    assert_eq!(parts(body, piece), whole, "in pieces of {piece}");
    if let Ok(parts) = whole {
        assert_eq!(plain::multipart(body, BOUNDARY), Some(parts));
    }
}

fn decoded_plainly(raw: &str, plus: bool) -> Result<String, DecodeError> {
    let (mut bytes, mut out, mut at) = (raw.as_bytes().to_vec(), Vec::new(), 0);
    bytes.extend_from_slice(b"--");
    while at < raw.len() {
        if bytes[at] == b'%' {
            let digits = &bytes[at + 1..at + 3];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return Err(DecodeError::BadEscape);
            }
            out.push(u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap());
            at += 3;
        } else {
            out.push(if plus && bytes[at] == b'+' { b' ' } else { bytes[at] });
            at += 1;
        }
    }
    String::from_utf8(out).map_err(|_| DecodeError::NotUtf8)
}

/// A query: its pairs are those of a plain split, and each is decoded like a plain decoder does.
pub(crate) fn check_query(query: &str) {
    let split = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    assert!(pairs(query).eq(split));
    let mut scratch = b"left over".to_vec();
    for raw in pairs(query).flat_map(|(name, value)| [name, value]).chain([query]) {
        assert_eq!(decode(raw, &mut scratch).map(str::to_owned), decoded_plainly(raw, true));
        assert_eq!(decode_path(raw, &mut scratch).map(str::to_owned), decoded_plainly(raw, false));
    }
}

/// The cookies of a field by a plain split, one character for each byte.
fn cookies_plainly(field: &str) -> Vec<(String, String)> {
    let mut cookies = Vec::new();
    for piece in field.split(';') {
        let Some((name, value)) = piece.split_once('=') else { continue };
        let (name, value) = (name.trim_matches([' ', '\t']), value.trim_matches([' ', '\t']));
        let is_quoted = value.len() >= 2 && value.starts_with('"') && value.ends_with('"');
        let value = if is_quoted { &value[1..value.len() - 1] } else { value };
        let is_token = |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
        if !name.is_empty() && name.chars().all(is_token) && !value.contains(|char: char| char.is_ascii_control()) {
            cookies.push((name.to_owned(), value.to_owned()));
        }
    }
    cookies
}

/// A `Cookie` field: its cookies are those of a plain split, and each valid one is sent back unchanged.
pub(crate) fn check_cookies(field: &[u8]) {
    let latin = |bytes: &[u8]| -> String { bytes.iter().map(|&byte| char::from(byte)).collect() };
    let found: Vec<_> = cookie_pairs(field).map(|cookie| (cookie.name.to_owned(), latin(cookie.value))).collect();
    assert_eq!(found, cookies_plainly(&latin(field)));
    for cookie in cookie_pairs(field) {
        let Ok(value) = std::str::from_utf8(cookie.value) else { continue };
        let Ok(set) = SetCookie::new(cookie.name, value).secure().path("/").field() else { continue };
        let sent = set.strip_suffix("; Path=/; Secure").unwrap();
        assert!(cookie_pairs(sent.as_bytes()).eq([cookie]), "{set}");
    }
}

/// How well a pattern matches a path, segment by segment: fixed text before a parameter before the rest; `None`: no match.
fn rank(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let mut ranks = Vec::new();
    let mut segments = path.split('/');
    for part in pattern.split('/') {
        if part.starts_with("{*") {
            let rest: Vec<&str> = segments.by_ref().collect();
            ranks.push(2);
            return (!rest.concat().is_empty() || rest.len() > 1).then_some(ranks);
        }
        let segment = segments.next()?;
        match part.starts_with('{') {
            true if segment.is_empty() => return None,
            true => ranks.push(1),
            false if part != segment => return None,
            false => ranks.push(0),
        }
    }
    segments.next().is_none().then_some(ranks)
}

/// Routes, without those that are refused, and a path: the router finds the same route as a search through all routes.
pub(crate) fn check_routes(routes: &[(http::Method, String)], method: http::Method, path: &str) {
    let mut router = Router::new();
    let mut taken: Vec<&(http::Method, String)> = Vec::new();
    for (number, route) in routes.iter().enumerate() {
        if router.route(route.0, &route.1, number).is_ok() {
            taken.push(route);
        }
    }
    let best = |method: http::Method| {
        let ranked =
            taken.iter().filter(|route| route.0 == method).filter_map(|route| Some((rank(&route.1, path)?, &route.1)));
        ranked.min().map(|(_, pattern)| pattern.clone())
    };
    let expected = best(method).or_else(|| best(http::Method::Get).filter(|_| method == http::Method::Head));
    let methods = || taken.iter().filter(|route| rank(&route.1, path).is_some()).map(|route| route.0.name());
    match router.find(method, path) {
        RouteLookup::Found { value, params } => {
            assert_eq!(Some(&routes[*value].1), expected.as_ref(), "{path}");
            for (_, raw) in params.iter() {
                assert!(!raw.is_empty() && path.contains(raw));
            }
        }
        RouteLookup::NotFound => assert_eq!((expected, methods().next()), (None, None), "{path}"),
        RouteLookup::MethodNotAllowed { allow } | RouteLookup::Options { allow } => {
            assert_eq!(expected, None, "{path}");
            assert!(methods().all(|name| allow.split(", ").any(|allowed| allowed == name)), "{allow}");
        }
    }
}
