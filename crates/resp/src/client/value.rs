//! A reply that owns its bytes, for callers that keep it or do not know its type.

use super::error::ServerError;
use crate::codec::ReplyView;

/// Any reply. Its nesting is no deeper than the codec allows
/// ([`DEPTH_MAX`](crate::codec::DEPTH_MAX)).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ReplyValue {
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
    Array(Vec<ReplyValue>),
    /// Keys with values, in the server's order.
    Map(Vec<(ReplyValue, ReplyValue)>),
    /// Values without an order.
    Set(Vec<ReplyValue>),
    /// A message that the server sends unrequested.
    Push(Vec<ReplyValue>),
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

impl From<ReplyView<'_>> for ReplyValue {
    fn from(view: ReplyView<'_>) -> ReplyValue {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match view {
            ReplyView::Null => ReplyValue::Null,
            ReplyView::Simple(bytes) => ReplyValue::Simple(text(bytes)),
            ReplyView::Error(bytes) => ReplyValue::Error(ServerError::of(bytes)),
            ReplyView::Integer(integer) => ReplyValue::Integer(integer),
            ReplyView::Bulk(bytes) => ReplyValue::Bulk(bytes.to_vec()),
            ReplyView::Array(elements) => ReplyValue::Array(elements.map(ReplyValue::from).collect()),
            ReplyView::Set(elements) => ReplyValue::Set(elements.map(ReplyValue::from).collect()),
            ReplyView::Push(elements) => ReplyValue::Push(elements.map(ReplyValue::from).collect()),
            ReplyView::Map(mut elements) => {
                let pair = || Some((ReplyValue::from(elements.next()?), ReplyValue::from(elements.next()?)));
                ReplyValue::Map(std::iter::from_fn(pair).collect())
            }
            ReplyView::Double(double) => ReplyValue::Double(double),
            ReplyView::Boolean(boolean) => ReplyValue::Boolean(boolean),
            ReplyView::BigNumber(digits) => ReplyValue::BigNumber(text(digits)),
            ReplyView::Verbatim { format, text: bytes } => {
                ReplyValue::Verbatim { format: text(format), text: text(bytes) }
            }
        }
    }
}
