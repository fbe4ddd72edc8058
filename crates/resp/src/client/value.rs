//! A reply that owns its bytes, for callers that keep it or do not know its type.

use super::error::ServerError;
use crate::codec::View;

/// Any reply. Its nesting is no deeper than the codec allows
/// ([`DEPTH_MAX`](crate::codec::DEPTH_MAX)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value.
    Null,
    /// A simple string, as `OK`.
    Simple(String),
    /// An error inside an aggregate, such as that of a command in a transaction.
    Error(ServerError),
    /// A 64-bit integer.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Values in order.
    Array(Vec<Value>),
    /// Keys with values, in the server's order.
    Map(Vec<(Value, Value)>),
    /// Values without an order.
    Set(Vec<Value>),
    /// A message that the server sends unrequested.
    Push(Vec<Value>),
    /// A floating-point number.
    Double(f64),
    /// True or false.
    Boolean(bool),
    /// Decimal digits of an integer of any size.
    BigNumber(String),
    /// A text with its format, as `txt` or `mkd`.
    Verbatim {
        /// Three bytes.
        format: String,
        /// The text.
        text: String,
    },
}

impl From<View<'_>> for Value {
    fn from(view: View<'_>) -> Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match view {
            View::Null => Value::Null,
            View::Simple(bytes) => Value::Simple(text(bytes)),
            View::Error(bytes) => Value::Error(ServerError::of(bytes)),
            View::Integer(integer) => Value::Integer(integer),
            View::Bulk(bytes) => Value::Bulk(bytes.to_vec()),
            View::Array(elements) => Value::Array(elements.map(Value::from).collect()),
            View::Set(elements) => Value::Set(elements.map(Value::from).collect()),
            View::Push(elements) => Value::Push(elements.map(Value::from).collect()),
            View::Map(mut elements) => {
                let pair = || Some((Value::from(elements.next()?), Value::from(elements.next()?)));
                Value::Map(std::iter::from_fn(pair).collect())
            }
            View::Double(double) => Value::Double(double),
            View::Boolean(boolean) => Value::Boolean(boolean),
            View::BigNumber(digits) => Value::BigNumber(text(digits)),
            View::Verbatim { format, text: bytes } => Value::Verbatim { format: text(format), text: text(bytes) },
        }
    }
}
