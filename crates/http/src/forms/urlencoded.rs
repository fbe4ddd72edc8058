//! Fields of `application/x-www-form-urlencoded` (WHATWG URL standard, section 5.1), decoded and bounded.
//!
//! [`crate::query`] splits and decodes; this module adds limits, and errors that name the field and the byte. The standard never
//! fails: it keeps a malformed escape literally and replaces bytes that are not UTF-8. Here both are errors, since no browser
//! sends them, and a value that was damaged in transit should not be stored.

use std::borrow::Cow;
use std::fmt;

use super::shown;
use crate::query::{DecodeError, Pairs, decode_cow, pairs};

/// Limits of a form. Its total bytes are limited by the server ([`crate::ClientLimits::body_bytes_max`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLimits {
    /// Fields.
    pub fields_max: usize,
    /// Bytes of a field's name, as sent.
    pub name_bytes_max: usize,
    /// Bytes of a field's value, as sent.
    pub value_bytes_max: usize,
}

impl Default for FieldLimits {
    fn default() -> FieldLimits {
        FieldLimits { fields_max: 256, name_bytes_max: 256, value_bytes_max: 1 << 20 }
    }
}

/// A field of a form. Both texts are borrowed from the body if nothing in them is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormField<'f> {
    /// Its name; may be empty.
    pub name: Cow<'f, str>,
    /// Its value; empty if there is no `=`.
    pub value: Cow<'f, str>,
}

/// Why a form is refused: the fault, the field, and the byte of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// What is wrong.
    pub fault: FieldFault,
    /// The name as sent, shortened. Empty for [`FieldFault::TooMany`].
    pub field: String,
    /// The byte of the body, from 0.
    pub at: usize,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldFault {
    /// The form has more fields than this many.
    TooMany(usize),
    /// Its name has more bytes than this many.
    NameTooLong(usize),
    /// Its value has more bytes than this many.
    ValueTooLong(usize),
    /// Its name or value cannot be decoded.
    Decode(DecodeError),
}

impl FieldError {
    /// Whether a limit was exceeded: 413. Otherwise the form is malformed: 400.
    pub fn is_too_large(&self) -> bool {
        !matches!(self.fault, FieldFault::Decode(_))
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FieldError { fault, field, at } = self;
        match fault {
            FieldFault::TooMany(max) => write!(f, "the form has more than {max} fields"),
            FieldFault::NameTooLong(max) => write!(f, "the name of the field \"{field}\" is longer than {max} bytes"),
            FieldFault::ValueTooLong(max) => write!(f, "the value of the field \"{field}\" is longer than {max} bytes"),
            FieldFault::Decode(error) => write!(f, "the field \"{field}\" {error}"),
        }?;
        write!(f, " (byte {at} of the form)")
    }
}

impl std::error::Error for FieldError {}

/// The fields of a body, in their order. Ends after the first error.
///
/// # Errors
///
/// The body contains unescaped bytes that are not UTF-8.
pub fn fields<'f>(body: &'f [u8], limits: &FieldLimits) -> Result<FormFields<'f>, FieldError> {
    match std::str::from_utf8(body) {
        Ok(text) => Ok(FormFields::of(text, limits)),
        Err(error) => Err(bytes_not_utf8(body, error.valid_up_to())),
    }
}

#[cold]
fn bytes_not_utf8(body: &[u8], at: usize) -> FieldError {
    let begin = body[..at].iter().rposition(|&byte| byte == b'&').map_or(0, |ampersand| ampersand + 1);
    let pair = String::from_utf8_lossy(&body[begin..at]);
    let name = pair.split('=').next().unwrap_or_default();
    FieldError { fault: FieldFault::Decode(DecodeError::NotUtf8), field: shown(name), at }
}

/// See [`fields`].
#[derive(Clone, Debug)]
pub struct FormFields<'f> {
    text: &'f str,
    pairs: Pairs<'f>,
    limits: FieldLimits,
    count: usize,
    is_over: bool,
}

impl<'f> FormFields<'f> {
    /// The fields of a query or of a body that is known to be UTF-8.
    #[inline]
    pub fn of(text: &'f str, limits: &FieldLimits) -> FormFields<'f> {
        FormFields { text, pairs: pairs(text), limits: *limits, count: 0, is_over: false }
    }

    #[inline]
    fn read(&self, name: &'f str, value: &'f str) -> Result<FormField<'f>, FieldError> {
        let FieldLimits { fields_max, name_bytes_max, value_bytes_max } = self.limits;
        if self.count > fields_max {
            return Err(self.error(FieldFault::TooMany(fields_max), "", name, 0));
        }
        if name.len() > name_bytes_max {
            return Err(self.error(FieldFault::NameTooLong(name_bytes_max), name, name, 0));
        }
        if value.len() > value_bytes_max {
            return Err(self.error(FieldFault::ValueTooLong(value_bytes_max), name, value, 0));
        }
        let decode = |raw: &'f str| {
            decode_cow(raw).map_err(|error| self.error(FieldFault::Decode(error), name, raw, fault_at(raw, error)))
        };
        Ok(FormField { name: decode(name)?, value: decode(value)? })
    }

    /// An error at a byte of `part`, which is a slice of the text.
    #[cold]
    fn error(&self, fault: FieldFault, name: &str, part: &str, at: usize) -> FieldError {
        let begin = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        FieldError { fault, field: shown(name), at: begin + at }
    }
}

impl<'f> Iterator for FormFields<'f> {
    type Item = Result<FormField<'f>, FieldError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let (name, value) = self.pairs.next()?;
        self.count += 1;
        let field = self.read(name, value);
        self.is_over = field.is_err();
        Some(field)
    }
}

/// The byte of a name or value at which its decoding fails.
#[cold]
fn fault_at(raw: &str, error: DecodeError) -> usize {
    let (mut decoded, mut places, mut at) = (Vec::new(), Vec::new(), 0);
    while let Some(&byte) = raw.as_bytes().get(at) {
        places.push(at);
        let escape = raw.as_bytes().get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value =
            escape.filter(|digits| !digits.starts_with('+')).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, value) {
            (b'%', Some(value)) => {
                decoded.push(value);
                at += 3;
            }
            (b'%', None) => return at,
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    match (error, std::str::from_utf8(&decoded)) {
        (DecodeError::NotUtf8, Err(error)) => places.get(error.valid_up_to()).copied().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &[u8], limits: &FieldLimits) -> Result<Vec<(String, String)>, FieldError> {
        fields(body, limits)?.map(|field| field.map(|FormField { name, value }| (name.into(), value.into()))).collect()
    }

    #[track_caller]
    fn check(body: &str, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(read(body.as_bytes(), &FieldLimits::default()), Ok(expected));
    }

    #[track_caller]
    fn check_error(body: &[u8], text: &str) {
        let limits = FieldLimits { fields_max: 3, name_bytes_max: 70, value_bytes_max: 80 };
        assert_eq!(read(body, &limits).expect_err("a wrong form").to_string(), text);
    }

    #[test]
    fn names_and_values_are_decoded_in_their_order() {
        check("", &[]);
        check("a=1&b=two+words&a=%2B%3d", &[("a", "1"), ("b", "two words"), ("a", "+=")]);
        check("na%C3%AFve=%E2%82%AC&&x&=y", &[("na\u{ef}ve", "\u{20ac}"), ("x", ""), ("", "y")]);
        check("raw=\u{44f}", &[("raw", "\u{44f}")]);
    }

    #[test]
    fn what_is_not_escaped_is_borrowed() {
        let field = fields(b"plain=text", &FieldLimits::default()).unwrap().next().unwrap().unwrap();
        assert!(matches!((field.name, field.value), (Cow::Borrowed("plain"), Cow::Borrowed("text"))));
    }

    #[test]
    fn an_error_names_the_field_and_the_byte() {
        const ESCAPE: &str = "holds a % without two hexadecimal digits after it";
        check_error(b"a=1&age=4%x", &format!("the field \"age\" {ESCAPE} (byte 9 of the form)"));
        check_error(b"a%=1", &format!("the field \"a%\" {ESCAPE} (byte 1 of the form)"));
        check_error(b"a=%41%+1", &format!("the field \"a\" {ESCAPE} (byte 5 of the form)"));
        check_error(b"a=ok%20%d0&b=1", "the field \"a\" holds bytes that are not UTF-8 (byte 7 of the form)");
        check_error(b"a=1&b=\xff", "the field \"b\" holds bytes that are not UTF-8 (byte 6 of the form)");
        let long = format!("{}=%", "n".repeat(70));
        check_error(long.as_bytes(), &format!("the field \"{}…\" {ESCAPE} (byte 71 of the form)", "n".repeat(64)));
    }

    #[test]
    fn numbers_and_lengths_have_limits() {
        check_error(b"a&b&c&d", "the form has more than 3 fields (byte 6 of the form)");
        let (name, value) = ("n".repeat(71), "v".repeat(81));
        let shown = "n".repeat(64);
        check_error(
            format!("{name}=1").as_bytes(),
            &format!("the name of the field \"{shown}…\" is longer than 70 bytes (byte 0 of the form)"),
        );
        check_error(
            format!("a={value}").as_bytes(),
            "the value of the field \"a\" is longer than 80 bytes (byte 2 of the form)",
        );
        for (form, is_too_large) in [(&b"a&b&c&d"[..], true), (b"a=%", false)] {
            let limits = FieldLimits { fields_max: 3, ..FieldLimits::default() };
            assert_eq!(read(form, &limits).unwrap_err().is_too_large(), is_too_large);
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        let mut fields = fields(b"a=%&b=1", &FieldLimits::default()).unwrap();
        assert!(fields.next().unwrap().is_err() && fields.next().is_none());
    }

    proptest! {
        #[test]
        fn any_fields_come_back(written in proptest::collection::vec((any::<String>(), any::<String>()), 0..9)) {
            let escape = |text: &str| text.bytes().map(|byte| match byte {
                b' ' => "+".to_owned(),
                b'a'..=b'z' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            }).collect::<String>();
            let body: Vec<_> = written.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
            // Random names reach the usual limit: a few dozen characters of four bytes, three each when escaped.
            let limits = FieldLimits { name_bytes_max: 1 << 16, ..FieldLimits::default() };
            prop_assert_eq!(read(body.join("&").as_bytes(), &limits), Ok(written));
        }

        #[test]
        fn an_error_is_inside_the_form(body in "[a%+&=\u{44f}0-9]{0,30}", byte in proptest::option::of(any::<u8>())) {
            let body: Vec<u8> = body.bytes().chain(byte).collect();
            if let Err(error) = read(&body, &FieldLimits { fields_max: 2, name_bytes_max: 4, value_bytes_max: 9 }) {
                prop_assert!(error.at < body.len(), "{error:?}");
            }
        }
    }
}
