//! Escapes in strings: conversion from any form that JSON allows to the stored form, and back to characters.
//!
//! Stored strings have characters as raw UTF-8. Only characters that JSON forbids raw stay escaped, in the shortest form: `\"`,
//! `\\`, `\b`, `\t`, `\n`, `\f`, `\r`, and `\u00xx` with lowercase digits for the other control characters. So every string has
//! exactly one stored form, and keys are compared as bytes.

use crate::error::JsonErrorKind;
use std::borrow::Cow;

/// The escape of a byte in a stored string, and its length; `None` if the byte stands for itself, as all from 0x80 do.
#[inline]
pub fn escape_of(byte: u8) -> Option<([u8; 6], usize)> {
    let short = |letter: u8| Some(([b'\\', letter, 0, 0, 0, 0], 2));
    match byte {
        b'"' | b'\\' => short(byte),
        0x08 => short(b'b'),
        b'\t' => short(b't'),
        b'\n' => short(b'n'),
        0x0c => short(b'f'),
        b'\r' => short(b'r'),
        0..=0x1f => {
            let digits = b"0123456789abcdef";
            let (high, low) = (digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]);
            Some(([b'\\', b'u', b'0', b'0', high, low], 6))
        }
        _ => None,
    }
}

/// The stored form of one character: its bytes and their number.
#[inline]
pub(crate) fn stored_form(character: char) -> ([u8; 6], usize) {
    if character.is_ascii()
        && let Some(escaped) = escape_of(character as u8)
    {
        return escaped;
    }
    let mut bytes = [0; 6];
    let len = character.encode_utf8(&mut bytes).len();
    (bytes, len)
}

/// Four hexadecimal digits; `None` if one is not.
#[inline]
fn hex4(digits: &[u8; 4]) -> Option<u32> {
    let [a, b, c, d] = digits.map(|digit| HEX[usize::from(digit)]);
    let value = u32::from(a) << 12 | u32::from(b) << 8 | u32::from(c) << 4 | u32::from(d);
    // A bad digit is 0xFF, so the bitwise OR of all four is at least 16.
    ((a | b | c | d) < 16).then_some(value)
}

const HEX: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut digit = 0;
    while digit < 16 {
        table[b"0123456789abcdef"[digit] as usize] = digit as u8;
        table[b"0123456789ABCDEF"[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

/// The character of the `\uXXXX` escape (or surrogate pair) at `at`, and the end offset.
#[inline]
pub(crate) fn unicode_escape(text: &[u8], at: usize) -> Result<(char, usize), JsonErrorKind> {
    let code = unit(text, at)?;
    if let Some(character) = char::from_u32(code) {
        return if code == 0 { Err(JsonErrorKind::NulCharacter) } else { Ok((character, at + 6)) };
    }
    if code >= 0xdc00 || text.get(at + 6..at + 8) != Some(b"\\u") {
        return Err(JsonErrorKind::LoneSurrogate);
    }
    let low = unit(text, at + 6)?;
    if !(0xdc00..0xe000).contains(&low) {
        return Err(JsonErrorKind::LoneSurrogate);
    }
    let joined = 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    char::from_u32(joined).map(|character| (character, at + 12)).ok_or(JsonErrorKind::LoneSurrogate)
}

#[inline]
fn unit(text: &[u8], at: usize) -> Result<u32, JsonErrorKind> {
    let digits = text.get(at + 2..).and_then(|rest| rest.first_chunk::<4>()).ok_or(JsonErrorKind::BadEscape)?;
    hex4(digits).ok_or(JsonErrorKind::BadEscape)
}

/// A stored string's characters; borrowed if nothing in it is escaped. `None` for damaged bytes.
pub(crate) fn unescape(stored: &[u8]) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', stored).is_none() {
        return std::str::from_utf8(stored).ok().map(Cow::Borrowed);
    }
    let mut bytes = Vec::with_capacity(stored.len());
    let mut rest = stored;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        bytes.extend_from_slice(&rest[..at]);
        let (character, end) = match *rest.get(at + 1)? {
            letter @ (b'"' | b'\\' | b'/') => (char::from(letter), at + 2),
            b'b' => ('\u{8}', at + 2),
            b't' => ('\t', at + 2),
            b'n' => ('\n', at + 2),
            b'f' => ('\u{c}', at + 2),
            b'r' => ('\r', at + 2),
            b'u' => unicode_escape(rest, at).ok()?,
            _ => return None,
        };
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = &rest[end..];
    }
    bytes.extend_from_slice(rest);
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Appends the stored form of a text, without quotes.
pub(crate) fn append_escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    let mut from = 0;
    loop {
        let stop = crate::scan::string_stop(bytes, from);
        out.extend_from_slice(&bytes[from..stop]);
        let Some((escaped, len)) = bytes.get(stop).and_then(|&byte| escape_of(byte)) else { return };
        out.extend_from_slice(&escaped[..len]);
        from = stop + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_below_0x80_comes_back_from_its_stored_form() {
        for code in 1..0x80u8 {
            let mut stored = Vec::new();
            append_escaped(&mut stored, &[code]);
            let (form, len) = stored_form(char::from(code));
            assert_eq!(&stored, &form[..len]);
            assert_eq!(unescape(&stored).unwrap(), char::from(code).to_string());
        }
    }
}
