//! Cookies that a client sent: pairs of name and value, borrowed from the request.
//!
//! A `Cookie` field is `a=1; b="2"`. Clients and proxies deviate from the grammar, so reading is lenient: blanks around
//! names and values are dropped, one pair of double quotes around a value is dropped, and a piece that is not a cookie is
//! skipped: one without `=`, with a name that is not a token, or with control bytes in its value. A semicolon ends a
//! value even between quotes, as in browsers.
//!
//! The order is that of arrival. Of two cookies with one name the first counts ([`find`]): browsers send the one with
//! the longest path first (RFC 6265bis, section 5.8.3).

use memchr::memchr;

use crate::parsing::chunked::is_token;
use crate::request::HttpRequest;

/// The field's name.
const COOKIE: &str = "Cookie";

/// A cookie that a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie<'r> {
    /// A token: never empty, ASCII.
    pub name: &'r str,
    /// Without quotes around it; may be empty. Bytes over 0x7f are passed on as they came.
    pub value: &'r [u8],
}

/// The cookies of a request's `Cookie` fields, in their order.
pub fn of_request<'r>(request: &HttpRequest<'r>) -> impl Iterator<Item = Cookie<'r>> + use<'r> {
    request.fields_named(COOKIE).flat_map(pairs)
}

/// The value of the first cookie of this name, byte for byte; `None` if there is none.
///
/// ```
/// # fn handler(request: &http::HttpRequest<'_>) {
/// let theme = http::cookies::find(request, "theme").unwrap_or(b"light");
/// # }
/// ```
#[inline]
pub fn find<'r>(request: &HttpRequest<'r>, name: &str) -> Option<&'r [u8]> {
    of_request(request).find(|cookie| cookie.name == name).map(|cookie| cookie.value)
}

/// The cookies of one field's value.
///
/// ```
/// let names: Vec<&str> = http::cookies::pairs(b"a=1; b=\"2\"; c").map(|cookie| cookie.name).collect();
/// assert_eq!(names, ["a", "b"]);
/// ```
#[inline]
pub fn pairs(field: &[u8]) -> Cookies<'_> {
    Cookies { rest: field }
}

/// See [`pairs`].
#[derive(Clone, Debug)]
pub struct Cookies<'r> {
    rest: &'r [u8],
}

impl<'r> Iterator for Cookies<'r> {
    type Item = Cookie<'r>;

    #[inline]
    fn next(&mut self) -> Option<Cookie<'r>> {
        while !self.rest.is_empty() {
            let (piece, rest) = match memchr(b';', self.rest) {
                Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            if let Some(cookie) = cookie_of(piece) {
                return Some(cookie);
            }
        }
        None
    }
}

/// The cookie between two semicolons.
fn cookie_of(piece: &[u8]) -> Option<Cookie<'_>> {
    let equals = memchr(b'=', piece)?;
    let (name, value) = (trim(&piece[..equals]), unquote(trim(&piece[equals + 1..])));
    let is_cookie = !name.is_empty() && name.iter().all(|&byte| is_token(byte)) && !has_control(value);
    is_cookie.then_some(Cookie { name: std::str::from_utf8(name).ok()?, value })
}

/// Whether a value has a byte that is not allowed in a cookie. One pass without early exit, so that the compiler can vectorise
/// it.
fn has_control(value: &[u8]) -> bool {
    value.iter().fold(false, |found, &byte| found | (byte < b' ') | (byte == 0x7f))
}

/// Trims blanks and tabs only: other white space is a control byte.
fn trim(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

fn unquote(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inside @ .., b'"'] => inside,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(field: &[u8], expected: &[(&str, &[u8])]) {
        let found: Vec<(&str, &[u8])> = pairs(field).map(|cookie| (cookie.name, cookie.value)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn pairs_keep_their_order_and_their_repetitions() {
        check(b"a=1; b=2; a=3", &[("a", b"1"), ("b", b"2"), ("a", b"3")]);
        check(b"", &[]);
    }

    #[test]
    fn odd_spacing_and_quotes_are_dropped() {
        check(b"a=1;b=2 ;\t c = \"3 4\" ;", &[("a", b"1"), ("b", b"2"), ("c", b"3 4")]);
        check(b"a=\"\"; b=\"; c=\"\"x\"\"", &[("a", b""), ("b", b"\""), ("c", b"\"x\"")]);
    }

    #[test]
    fn the_first_equals_sign_ends_the_name() {
        check(b"a==1=; b=", &[("a", b"=1="), ("b", b"")]);
    }

    #[test]
    fn pieces_that_are_no_cookies_are_skipped() {
        check(b"; ;nothing; =1; a b=2; \"a\"=3; a\x01=4; b=\x07; b=\x7f; c=5", &[("c", b"5")]);
        check(b"a=\tx\ty; b=1", &[("b", b"1")]);
    }

    #[test]
    fn bytes_that_are_not_ascii_are_passed_on_in_values_alone() {
        check("a=я; я=1".as_bytes(), &[("a", "я".as_bytes())]);
        check(b"a=\xff", &[("a", b"\xff")]);
    }
}
