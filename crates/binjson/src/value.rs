//! One JSON value inside a stored document. `inside.rs` has the access to members of objects and arrays.

use crate::escape;
use std::borrow::Cow;
use std::cmp::Ordering;

/// The kind of a value. A number of digits alone is an `Integer` whatever its magnitude, also `-0`; with a fraction or an
/// exponent it is a `Number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JsonKind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Digits, possibly with a minus.
    Integer,
    /// A number with a fraction or an exponent.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

/// A value inside a document: a view, cheap to copy.
#[derive(Clone, Copy)]
pub struct JsonValue<'a> {
    /// The whole stored document: its tables are located again when an inner object or array is entered. Keeping them here
    /// would double the size of every value for the few that need them.
    pub(crate) bytes: &'a [u8],
    /// The value's range in `bytes`.
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl<'a> JsonValue<'a> {
    /// The value at `start..end` of a stored document's bytes.
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], start: usize, end: usize) -> Self {
        Self { bytes, start: start as u32, end: end as u32 }
    }

    /// Its minified JSON text.
    #[inline]
    pub fn raw(&self) -> &'a [u8] {
        self.bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// Its kind. Damaged bytes count as null.
    #[inline]
    pub fn kind(&self) -> JsonKind {
        let raw = self.raw();
        match raw.first() {
            Some(b'"') => JsonKind::String,
            Some(b'{') => JsonKind::Object,
            Some(b'[') => JsonKind::Array,
            Some(b't' | b'f') => JsonKind::Bool,
            Some(b'-' | b'0'..=b'9') if raw[1..].iter().all(u8::is_ascii_digit) => JsonKind::Integer,
            Some(b'-' | b'0'..=b'9') => JsonKind::Number,
            _ => JsonKind::Null,
        }
    }

    /// Whether it is `null`.
    #[inline]
    pub fn is_null(&self) -> bool {
        self.raw().first() == Some(&b'n')
    }

    /// An integer of 64 bits. `None` for larger ones, and for anything with a fraction or exponent.
    #[inline]
    pub fn as_i64(&self) -> Option<i64> {
        let raw = self.raw();
        let (negative, digits) = match raw.split_first()? {
            (b'-', digits) => (true, digits),
            _ => (false, raw),
        };
        // Nineteen digits fit 64 bits without a sign, and JSON has no leading zeros.
        if digits.is_empty() || digits.len() > 19 {
            return None;
        }
        let mut magnitude = 0u64;
        for &digit in digits {
            if !digit.is_ascii_digit() {
                return None;
            }
            magnitude = magnitude * 10 + u64::from(digit - b'0');
        }
        if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
    }

    /// Any number, rounded to the nearest double; infinite beyond the largest.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        let raw = self.raw();
        if !matches!(raw.first(), Some(b'-' | b'0'..=b'9')) {
            return None;
        }
        std::str::from_utf8(raw).ok()?.parse().ok()
    }

    /// `true` or `false`.
    #[inline]
    pub fn as_bool(&self) -> Option<bool> {
        match self.raw() {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => None,
        }
    }

    /// A string's characters; borrowed unless an escape remains in the stored form.
    #[inline]
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        escape::unescape(self.stored_string()?)
    }

    /// A string in its stored form, without the quotes: equal strings are equal bytes here, and UTF-8 is not checked again.
    #[inline]
    pub fn stored_string(&self) -> Option<&'a [u8]> {
        self.raw().strip_prefix(b"\"")?.strip_suffix(b"\"")
    }
}

/// A key, in its stored form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredName<'a> {
    stored: &'a [u8],
}

impl<'a> StoredName<'a> {
    #[inline]
    pub(crate) fn new(stored: &'a [u8]) -> Self {
        Self { stored }
    }

    /// The stored form, without the quotes.
    #[inline]
    pub fn stored(&self) -> &'a [u8] {
        self.stored
    }

    /// The characters; borrowed unless an escape remains. `None` for damaged bytes.
    #[inline]
    pub fn as_str(&self) -> Option<Cow<'a, str>> {
        escape::unescape(self.stored)
    }
}

impl PartialEq<str> for StoredName<'_> {
    fn eq(&self, other: &str) -> bool {
        // An escape is longer than its character, so only a longer stored form may have any.
        match self.stored.len().cmp(&other.len()) {
            Ordering::Less => false,
            Ordering::Equal => self.stored == other.as_bytes() && !self.stored.contains(&b'\\'),
            Ordering::Greater => self.stored.contains(&b'\\') && self.as_str().as_deref() == Some(other),
        }
    }
}

impl PartialEq<&str> for StoredName<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::StoredName;

    /// Compares each stored key with its own characters, and with the characters of each other key.
    #[test]
    fn a_key_equals_its_characters_and_nothing_else() {
        let keys = [
            ("", ""),
            ("mark", "mark"),
            ("f\u{fc}r", "f\u{fc}r"),
            (r"a\nb", "a\nb"),
            (r"a\\b", r"a\b"),
            (r"\u0001", "\u{1}"),
        ];
        for (stored, characters) in keys {
            let key = StoredName::new(stored.as_bytes());
            assert!(key == characters, "{stored}");
            for (other_stored, other) in keys.into_iter().filter(|(other, _)| *other != stored) {
                assert!(key != other, "{stored}, {other_stored}");
            }
            assert_eq!(key == stored, stored == characters, "{stored}");
        }
        assert!(StoredName::new(b"a\\n") != "a\\n" && StoredName::new(b"\xff") != "\u{fffd}");
    }
}
