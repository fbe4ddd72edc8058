//! A document as a row, and its values as SQL and indexes see them.

use std::borrow::Cow;

use binjson::{JsonKind, JsonValue};
use schema::integer_of;
pub use schema::{FieldNumbers, NAMES_MAX, Names, Row};

use super::key::KeyType;
use super::order::Scalar;

/// A value as SQL and indexes see it; text may be owned if it had to be unescaped.
#[derive(Clone, Debug)]
pub enum Plain<'d> {
    /// A missing field or null.
    Null,
    /// An integer within 64 bits, or a boolean.
    Integer(i64),
    /// Any other number.
    Real(f64),
    /// Text, or the minified text of an object or array.
    Text(Cow<'d, str>),
}

impl Plain<'_> {
    /// Its beginning, for a message.
    pub(crate) fn shown(&self) -> String {
        match self {
            Plain::Null => "null".to_string(),
            Plain::Integer(integer) => integer.to_string(),
            Plain::Real(real) => real.to_string(),
            Plain::Text(text) => format!("\"{}\"", text.chars().take(40).collect::<String>()),
        }
    }

    /// The borrowed form.
    #[inline]
    pub fn scalar(&self) -> Scalar<'_> {
        match self {
            Plain::Null => Scalar::Null,
            Plain::Integer(integer) => Scalar::Integer(*integer),
            Plain::Real(real) => Scalar::Real(*real),
            Plain::Text(text) => Scalar::Text(text),
        }
    }
}

/// The SQL value of a stored value: a boolean is 1 or 0, an object or array its minified text.
#[inline]
pub fn plain<'d>(value: Option<JsonValue<'d>>) -> Plain<'d> {
    let Some(value) = value else {
        return Plain::Null;
    };
    match value.raw().first() {
        Some(b'"') => value.as_str().map_or(Plain::Null, Plain::Text),
        Some(b'-' | b'0'..=b'9') => match value.as_i64() {
            Some(integer) => Plain::Integer(integer),
            None => value.as_f64().map_or(Plain::Null, Plain::Real),
        },
        _ => match value.kind() {
            JsonKind::Bool => Plain::Integer(i64::from(value.as_bool() == Some(true))),
            JsonKind::Object | JsonKind::Array => {
                Plain::Text(Cow::Borrowed(std::str::from_utf8(value.raw()).unwrap_or_default()))
            }
            _ => Plain::Null,
        },
    }
}

/// The value of a stored field as a key of this type: of a document's own key, and of a reference to one. Booleans are 0 or 1 in
/// queries, but no keys; neither is the text of an object or array, nor a negative zero.
#[inline]
pub(crate) fn key_value(kind: KeyType, value: JsonValue<'_>) -> Option<Plain<'_>> {
    if !matches!(value.raw(), [b'"' | b'0'..=b'9' | b'-', ..]) {
        return None;
    }
    let has_sign = value.raw().first() == Some(&b'-');
    match plain(Some(value)) {
        Plain::Integer(0) if has_sign => None,
        Plain::Real(0.0) if has_sign => None,
        Plain::Real(_) => {
            let integer = integer_of(value)?;
            kind.of_scalar(Scalar::Integer(integer)).is_some().then_some(Plain::Integer(integer))
        }
        found => kind.of_scalar(found.scalar()).is_some().then_some(found),
    }
}
