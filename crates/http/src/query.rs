//! Query strings and forms: pairs as sent, and their decoding.
//!
//! Both are `application/x-www-form-urlencoded`: `name=value` joined by `&`, a `+` is a blank, `%41` is a byte. Splitting and
//! decoding are two steps, so that a caller decodes only the values that it needs, and can distinguish a badly escaped value from
//! a missing one. Text without escapes is not copied.

use std::borrow::Cow;
use std::fmt;

use memchr::{memchr, memchr2};

/// Why a part of a query cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A `%` without two hexadecimal digits after it.
    BadEscape,
    /// The decoded bytes are not UTF-8.
    NotUtf8,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DecodeError::BadEscape => "holds a % without two hexadecimal digits after it",
            DecodeError::NotUtf8 => "holds bytes that are not UTF-8",
        })
    }
}

impl std::error::Error for DecodeError {}

/// The pairs of a query or form, in their order, as sent: see [`decode`]. Empty pairs (`a&&b`) are left out; a name
/// without `=` has an empty value.
pub fn pairs(query: &str) -> Pairs<'_> {
    Pairs { rest: query }
}

/// See [`pairs`].
#[derive(Clone, Debug)]
pub struct Pairs<'q> {
    rest: &'q str,
}

impl<'q> Iterator for Pairs<'q> {
    type Item = (&'q str, &'q str);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (pair, rest) = match memchr(b'&', self.rest.as_bytes()) {
                Some(at) => (&self.rest[..at], &self.rest[at + 1..]),
                None => (self.rest, ""),
            };
            self.rest = rest;
            if !pair.is_empty() {
                return Some(match memchr(b'=', pair.as_bytes()) {
                    Some(at) => (&pair[..at], &pair[at + 1..]),
                    None => (pair, ""),
                });
            }
        }
        None
    }
}

/// Decodes a name or value of a query or form: escapes, and `+` as a blank. `scratch` is used only if something is escaped; its
/// old content is lost.
#[inline]
pub fn decode<'a>(raw: &'a str, scratch: &'a mut Vec<u8>) -> Result<&'a str, DecodeError> {
    match memchr2(b'%', b'+', raw.as_bytes()) {
        None => Ok(raw),
        Some(first) => unescape(raw.as_bytes(), first, true, scratch),
    }
}

/// The same for a caller that keeps the text: it is copied only if something is escaped.
#[inline]
pub fn decode_cow(raw: &str) -> Result<Cow<'_, str>, DecodeError> {
    let Some(first) = memchr2(b'%', b'+', raw.as_bytes()) else { return Ok(Cow::Borrowed(raw)) };
    let mut decoded = Vec::with_capacity(raw.len());
    append_unescaped(raw.as_bytes(), first, true, &mut decoded)?;
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| DecodeError::NotUtf8)
}

/// Decodes a segment of a path: escapes only, since `+` is an ordinary byte there.
#[inline]
pub fn decode_path<'a>(raw: &'a str, scratch: &'a mut Vec<u8>) -> Result<&'a str, DecodeError> {
    match memchr(b'%', raw.as_bytes()) {
        None => Ok(raw),
        Some(first) => unescape(raw.as_bytes(), first, false, scratch),
    }
}

fn unescape<'a>(raw: &[u8], first: usize, plus: bool, scratch: &'a mut Vec<u8>) -> Result<&'a str, DecodeError> {
    scratch.clear();
    append_unescaped(raw, first, plus, scratch)?;
    std::str::from_utf8(scratch).map_err(|_| DecodeError::NotUtf8)
}

/// Appends the decoded bytes of `raw`; before `first` nothing is escaped.
fn append_unescaped(raw: &[u8], first: usize, plus: bool, decoded: &mut Vec<u8>) -> Result<(), DecodeError> {
    decoded.extend_from_slice(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let (digits, after) = rest.split_first_chunk::<2>().ok_or(DecodeError::BadEscape)?;
                let [high, low] = digits.map(|digit| (digit as char).to_digit(16));
                let (Some(high), Some(low)) = (high, low) else { return Err(DecodeError::BadEscape) };
                decoded.push((high << 4 | low) as u8);
                rest = after;
            }
            b'+' if plus => decoded.push(b' '),
            _ => decoded.push(byte),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check_pairs(query: &str, expected: &[(&str, &str)]) {
        assert_eq!(pairs(query).collect::<Vec<_>>(), expected);
    }

    #[track_caller]
    fn check_decode(raw: &str, expected: Result<&str, DecodeError>) {
        assert_eq!(decode(raw, &mut b"left over".to_vec()), expected);
        assert_eq!(decode_cow(raw).as_deref(), expected.as_ref().map(|text| *text));
    }

    #[test]
    fn pairs_keep_their_order_and_their_repetitions() {
        check_pairs("", &[]);
        check_pairs("a=1&b=2&a=3", &[("a", "1"), ("b", "2"), ("a", "3")]);
        check_pairs("&&a&=b&c==d&", &[("a", ""), ("", "b"), ("c", "=d")]);
    }

    #[test]
    fn escapes_and_plus_are_decoded() {
        check_decode("plain", Ok("plain"));
        check_decode("a+b%20c%2B", Ok("a b c+"));
        check_decode("%d0%A0%D0%be", Ok("\u{420}\u{43e}"));
        check_decode("\u{44f}%20", Ok("\u{44f} "));
        assert_eq!(decode_path("a+b%20c", &mut Vec::new()), Ok("a+b c"));
    }

    #[test]
    fn bad_escapes_differ_from_bad_utf8() {
        for raw in ["%", "a%2", "%zz", "%+1", "%%41"] {
            check_decode(raw, Err(DecodeError::BadEscape));
        }
        for raw in ["%ff", "%d0", "%ED%A0%80", "%C0%80"] {
            check_decode(raw, Err(DecodeError::NotUtf8));
        }
    }

    #[test]
    fn what_is_not_escaped_is_not_copied() {
        let raw = "plain".to_owned();
        assert_eq!(decode(&raw, &mut Vec::new()).unwrap().as_ptr(), raw.as_ptr());
        assert!(matches!(decode_cow(&raw), Ok(Cow::Borrowed(_))));
    }

    proptest! {
        #[test]
        fn any_text_escaped_comes_back(text in any::<String>()) {
            let raw: String = text.bytes().map(|byte| match byte {
                b' ' => "+".to_owned(),
                b'a'..=b'z' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            }).collect();
            let mut scratch = Vec::new();
            prop_assert_eq!(decode(&raw, &mut scratch), Ok(text.as_str()));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            for (name, value) in pairs(&text) {
                let _ = (decode(name, &mut Vec::new()), decode_path(value, &mut Vec::new()));
            }
        }
    }
}
