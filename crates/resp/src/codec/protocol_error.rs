//! Errors for bytes that are not RESP, with Redis's own texts if Redis has one (`networking.c`).

use std::fmt;

/// Why a peer's bytes are refused. The connection is then unusable: the start of the next message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Request: the number behind `*` is malformed or above the limit.
    MultibulkLength,
    /// Request: the line behind `*` does not end.
    MultibulkLineTooLong,
    /// Request: this byte is found where an argument must begin.
    ExpectedBulk(u8),
    /// The number behind `$` is malformed, negative or above the limit.
    BulkLength,
    /// Request: the line behind `$` does not end.
    BulkLineTooLong,
    /// Request: an inline command without an end.
    InlineTooLong,
    /// Request: an inline command whose quotes do not match, or with text right behind a closing quote.
    UnbalancedQuotes,
    /// CR LF is missing after a line or a bulk string. Redis does not check these two bytes.
    LineEnd,
    /// Reply: no type of RESP2 or RESP3 begins with this byte.
    ReplyType(u8),
    /// Reply: a simple string, an error or a number without an end.
    LineTooLong,
    /// Reply: malformed integer.
    Integer,
    /// Reply: malformed double.
    Double,
    /// Reply: a boolean other than `t` and `f`.
    Boolean,
    /// Reply: text behind the null's `_`.
    Null,
    /// Reply: the number of elements of an aggregate is malformed or above the limit.
    AggregateLength,
    /// Reply: aggregates are nested too deeply.
    Depth,
    /// Reply: a streamed string or aggregate of RESP3 (length `?`), which no released server sends.
    Streamed,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            ProtocolError::MultibulkLength => "invalid multibulk length",
            ProtocolError::MultibulkLineTooLong => "too big mbulk count string",
            ProtocolError::ExpectedBulk(byte) => return write_byte(formatter, "expected '$', got", *byte),
            ProtocolError::BulkLength => "invalid bulk length",
            ProtocolError::BulkLineTooLong => "too big bulk count string",
            ProtocolError::InlineTooLong => "too big inline request",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::LineEnd => "expected CR LF",
            ProtocolError::ReplyType(byte) => return write_byte(formatter, "unknown reply type", *byte),
            ProtocolError::LineTooLong => "too big line in reply",
            ProtocolError::Integer => "invalid integer",
            ProtocolError::Double => "invalid double",
            ProtocolError::Boolean => "invalid boolean",
            ProtocolError::Null => "invalid null",
            ProtocolError::AggregateLength => "invalid aggregate length",
            ProtocolError::Depth => "too many nested aggregates",
            ProtocolError::Streamed => "streamed replies are not supported",
        };
        write!(formatter, "Protocol error: {text}")
    }
}

fn write_byte(formatter: &mut fmt::Formatter<'_>, text: &str, byte: u8) -> fmt::Result {
    write!(formatter, "Protocol error: {text} '{}'", byte.escape_ascii())
}

impl std::error::Error for ProtocolError {}
