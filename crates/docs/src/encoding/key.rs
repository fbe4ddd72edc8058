//! Primary keys: their types, and the bytes under which a document is stored.
//!
//! - `u32` is 4 bytes, big-endian; `i64` is 8, big-endian with the sign bit flipped; a string is its UTF-8 bytes, 1 to
//!   [`KEY_BYTES_MAX`] of them. So the tree's order is the keys' order.
//! - In a path a key has only one spelling: a number has no leading zeros and no `+`, and must be in the type's range. Any other
//!   spelling is no key.
//! - In a document or a query a key is compared as queries compare values: 5, 5.0 and 5e0 are the key 5. A boolean is not a key, and
//!   in a document neither is a number that a real would round, such as 9007199254740993.0.

use std::fmt;

use super::order::Scalar;

/// Longest string key: the store's own limit on keys.
pub const KEY_BYTES_MAX: usize = 1024;

/// The type of a collection's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    /// 0 to 4294967295.
    U32,
    /// 64 bits, signed.
    I64,
    /// Text, not empty, up to [`KEY_BYTES_MAX`] bytes.
    String,
}

/// The names of the key types in the configuration file.
pub const KEY_TYPES: [(&str, KeyType); 3] = [("u32", KeyType::U32), ("i64", KeyType::I64), ("string", KeyType::String)];

/// A key's stored bytes. Made without allocation.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a>(Bytes<'a>);

#[derive(Clone, Copy, Debug)]
enum Bytes<'a> {
    U32([u8; 4]),
    I64([u8; 8]),
    Text(&'a str),
}

impl<'a> Key<'a> {
    /// The bytes under which the document is stored in its tree.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::U32(bytes) => bytes,
            Bytes::I64(bytes) => bytes,
            Bytes::Text(text) => text.as_bytes(),
        }
    }

    /// The key as a value.
    #[inline]
    pub fn scalar(&self) -> Scalar<'a> {
        match self.0 {
            Bytes::U32(bytes) => Scalar::Integer(i64::from(u32::from_be_bytes(bytes))),
            Bytes::I64(bytes) => Scalar::Integer((u64::from_be_bytes(bytes) ^ SIGN) as i64),
            Bytes::Text(text) => Scalar::Text(text),
        }
    }
}

impl fmt::Display for Key<'_> {
    /// The spelling in a path.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scalar() {
            Scalar::Integer(number) => write!(out, "{number}"),
            Scalar::Text(text) => out.write_str(text),
            Scalar::Null | Scalar::Real(_) => Ok(()),
        }
    }
}

const SIGN: u64 = 1 << 63;

impl KeyType {
    /// The type's name in the configuration file.
    pub fn name(self) -> &'static str {
        match self {
            KeyType::U32 => "u32",
            KeyType::I64 => "i64",
            KeyType::String => "string",
        }
    }

    /// The key that equals a value: a number within the type, or text. A real equals the integer of its value.
    #[inline]
    pub fn of_scalar(self, value: Scalar<'_>) -> Option<Key<'_>> {
        match (self, value) {
            (KeyType::U32 | KeyType::I64, Scalar::Real(real)) => self.of_scalar(Scalar::Integer(whole(real)?)),
            (KeyType::U32, Scalar::Integer(number)) => Some(Key(Bytes::U32(u32::try_from(number).ok()?.to_be_bytes()))),
            (KeyType::I64, Scalar::Integer(number)) => Some(Key(Bytes::I64((number as u64 ^ SIGN).to_be_bytes()))),
            (KeyType::String, Scalar::Text(text)) => {
                (1..=KEY_BYTES_MAX).contains(&text.len()).then_some(Key(Bytes::Text(text)))
            }
            _ => None,
        }
    }

    /// The key for a path segment (percent-decoded) or the text of a JSON number; `None` if it is not a key.
    #[inline]
    pub fn of_text(self, text: &str) -> Option<Key<'_>> {
        match self {
            KeyType::String => self.of_scalar(Scalar::Text(text)),
            KeyType::U32 | KeyType::I64 => self.of_scalar(Scalar::Integer(digits(text.as_bytes())?)),
        }
    }

    /// The key with these stored bytes. `None`: damaged.
    #[inline]
    pub fn of_bytes(self, bytes: &[u8]) -> Option<Key<'_>> {
        match self {
            KeyType::U32 => Some(Key(Bytes::U32(bytes.try_into().ok()?))),
            KeyType::I64 => Some(Key(Bytes::I64(bytes.try_into().ok()?))),
            KeyType::String => self.of_scalar(Scalar::Text(std::str::from_utf8(bytes).ok()?)),
        }
    }
}

/// The integer that a real equals, if any.
#[inline]
pub(crate) fn whole(real: f64) -> Option<i64> {
    const END: f64 = 9_223_372_036_854_775_808.0;
    ((-END..END).contains(&real) && real.trunc() == real).then_some(real as i64)
}

/// An integer in its only spelling.
fn digits(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    let first = *digits.first()?;
    if digits.len() > 19 || (first == b'0' && (digits.len() > 1 || negative)) {
        return None;
    }
    let mut magnitude: u64 = 0; // 19 digits stay below 10^19, which 64 bits hold.
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        magnitude = magnitude * 10 + u64::from(digit - b'0');
    }
    if negative { 0i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// A key as shown in a message.
pub(crate) fn shown_key(kind: KeyType, bytes: &[u8]) -> String {
    match kind.of_bytes(bytes) {
        Some(key) => key.to_string(),
        None => format!("{bytes:02x?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(kind: KeyType, text: &str, expected: Option<&[u8]>) {
        assert_eq!(kind.of_text(text).as_ref().map(Key::as_bytes), expected, "{kind:?} {text:?}");
    }

    #[test]
    fn only_the_one_spelling_within_the_type_is_a_key() {
        check(KeyType::U32, "0", Some(&[0, 0, 0, 0]));
        check(KeyType::U32, "4294967295", Some(&[255, 255, 255, 255]));
        let no_key = [
            "",
            "-",
            "-0",
            "-1",
            "+1",
            "01",
            "00",
            "1.0",
            "1e3",
            " 1",
            "1 ",
            "new",
            "4294967296",
            "18446744073709551617",
            "１",
        ];
        for text in no_key {
            check(KeyType::U32, text, None);
        }
        check(KeyType::I64, "-1", Some(&[127, 255, 255, 255, 255, 255, 255, 255]));
        check(KeyType::I64, "-9223372036854775808", Some(&[0; 8]));
        check(KeyType::I64, "9223372036854775808", None);
        check(KeyType::I64, "-9223372036854775809", None);
        check(KeyType::I64, "-0", None);
        check(KeyType::String, "", None);
        check(KeyType::String, "7a", Some(b"7a"));
        check(KeyType::String, &"x".repeat(KEY_BYTES_MAX + 1), None);
        check(KeyType::String, &"x".repeat(KEY_BYTES_MAX), Some("x".repeat(KEY_BYTES_MAX).as_bytes()));
        check(KeyType::I64, "9223372036854775807", Some(&[255; 8]));
    }

    #[test]
    fn a_key_is_spelled_as_it_was_sent() {
        for (kind, text) in [
            (KeyType::U32, "0"),
            (KeyType::U32, "4294967295"),
            (KeyType::I64, "-9223372036854775808"),
            (KeyType::I64, "17"),
            (KeyType::String, "7a"),
        ] {
            let key = kind.of_text(text).unwrap();
            assert_eq!(key.to_string(), text);
            assert_eq!(kind.of_scalar(key.scalar()).map(|key| key.to_string()).as_deref(), Some(text));
            assert_eq!(kind.of_bytes(key.as_bytes()).map(|key| key.to_string()).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_value_outside_the_type_is_no_key() {
        for number in [-1, 1 << 32, i64::MAX, i64::MIN] {
            assert!(KeyType::U32.of_scalar(Scalar::Integer(number)).is_none(), "{number}");
        }
        assert!(KeyType::String.of_scalar(Scalar::Text("")).is_none());
        assert!(KeyType::U32.of_scalar(Scalar::Text("5")).is_none());
        assert!(KeyType::I64.of_scalar(Scalar::Null).is_none());
        for bytes in [&[][..], &[0; 3], &[0; 5]] {
            assert!(KeyType::U32.of_bytes(bytes).is_none() && KeyType::I64.of_bytes(bytes).is_none(), "{bytes:?}");
        }
        assert!(KeyType::String.of_bytes(b"\xff").is_none());
    }

    #[test]
    fn a_real_is_the_key_that_it_equals() {
        let key = |kind: KeyType, real: f64| kind.of_scalar(Scalar::Real(real)).map(|key| key.to_string());
        assert_eq!(key(KeyType::U32, 5.0).as_deref(), Some("5"));
        assert_eq!(key(KeyType::U32, -0.0).as_deref(), Some("0"));
        assert_eq!(key(KeyType::I64, -9_223_372_036_854_775_808.0).as_deref(), Some("-9223372036854775808"));
        assert_eq!(key(KeyType::I64, 9_223_372_036_854_774_784.0).as_deref(), Some("9223372036854774784"));
        for real in [5.5, -1.0, 4_294_967_296.0, 1e300, f64::INFINITY, f64::NAN] {
            assert!(KeyType::U32.of_scalar(Scalar::Real(real)).is_none(), "{real}");
        }
        for real in [9_223_372_036_854_775_808.0, -1e19, 0.1, f64::NEG_INFINITY] {
            assert!(KeyType::I64.of_scalar(Scalar::Real(real)).is_none(), "{real}");
        }
        assert!(KeyType::String.of_scalar(Scalar::Integer(5)).is_none());
        assert!(KeyType::String.of_scalar(Scalar::Real(5.0)).is_none());
    }

    proptest! {
        #[test]
        fn stored_bytes_give_the_key_back_in_order(a in any::<i64>(), b in any::<i64>()) {
            let (left, right) = (a.to_string(), b.to_string());
            let (left, right) = (KeyType::I64.of_text(&left).unwrap(), KeyType::I64.of_text(&right).unwrap());
            prop_assert_eq!(left.as_bytes().cmp(right.as_bytes()), a.cmp(&b));
            prop_assert_eq!(KeyType::I64.of_bytes(left.as_bytes()).unwrap().scalar(), Scalar::Integer(a));
        }
    }
}
