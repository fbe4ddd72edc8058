//! The first line of each value of a reply: its type, and its content or its length.
//!
//! ```text
//! +text  -text  (digits        the line is the value
//! :int  ,double  #t  _         the line is the value
//! $n  !n  =n                   n bytes and CR LF follow; $-1 is null
//! *n  ~n  >n                   n values follow; *-1 is null
//! %n  |n                       n pairs of values follow; behind |n (attributes) comes the value that they describe
//! ```
//!
//! The reader takes a line in any pieces and reads each byte once. Texts (`+`, `-`, `(`) are skipped: they stay in the
//! caller's buffer, or are forwarded.

use super::limits::FrameLimits;
use super::number::Number;
use super::payload::LINE_END_BYTES;
use super::protocol_error::ProtocolError;
use super::short_length::short_length;

/// Largest size of a double, a boolean or a null. Redis prints doubles with 17 digits.
const SHORT_TEXT_BYTES_MAX: usize = 64;
/// Format of a verbatim string and the colon behind it.
pub(crate) const VERBATIM_FORMAT_BYTES: u64 = 4;

/// A decoded first line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Header {
    Simple,
    Error,
    BigNumber,
    Integer(i64),
    Double(f64),
    Boolean(bool),
    Null,
    /// Bytes of the payload.
    Bulk(u64),
    BlobError(u64),
    /// Bytes of the payload, its format included.
    Verbatim(u64),
    /// Elements.
    Array(u64),
    Set(u64),
    Push(u64),
    /// Pairs.
    Map(u64),
    Attribute(u64),
}

impl Header {
    /// Bytes after the line, line end included; 0 if the line is the whole value or elements follow.
    #[inline]
    pub(crate) fn payload_bytes(self) -> u64 {
        match self {
            Header::Bulk(bytes) | Header::BlobError(bytes) | Header::Verbatim(bytes) => bytes + LINE_END_BYTES,
            _ => 0,
        }
    }

    /// Number of values that follow as elements.
    #[inline]
    pub(crate) fn elements(self) -> u64 {
        match self {
            Header::Array(elements) | Header::Set(elements) | Header::Push(elements) => elements,
            // Pairs are bounded by `FrameLimits::elements_max`, which is far below half of a u64.
            Header::Map(pairs) | Header::Attribute(pairs) => pairs.saturating_mul(2),
            _ => 0,
        }
    }
}

/// Fast path: the header of a bulk string or an array whose length line is complete in the input, as nearly all are, with
/// the number of bytes after its type. None leaves the line to [`HeaderReader`].
#[inline]
fn usual(kind: u8, rest: &[u8], limits: &FrameLimits) -> Option<(Header, usize)> {
    if kind != b'$' && kind != b'*' {
        return None;
    }
    let (length, length_bytes) = short_length(rest)?;
    match kind {
        b'$' if length <= limits.bulk_bytes_max => Some((Header::Bulk(length), length_bytes)),
        b'*' if length <= limits.elements_max => Some((Header::Array(length), length_bytes)),
        _ => None,
    }
}

/// Reads one first line at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderReader {
    /// The type byte; 0 until it has arrived.
    kind: u8,
    awaits_line_feed: bool,
    number: Number,
    /// Bytes of the line after the type.
    text_bytes: usize,
    /// A double, a boolean or a null.
    short_text: [u8; SHORT_TEXT_BYTES_MAX],
}

impl HeaderReader {
    pub(crate) const fn new() -> HeaderReader {
        HeaderReader {
            kind: 0,
            awaits_line_feed: false,
            number: Number::EMPTY,
            text_bytes: 0,
            short_text: [0; SHORT_TEXT_BYTES_MAX],
        }
    }

    /// Whether no byte of a line has arrived.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.kind == 0
    }

    /// Consumes the available bytes of the line. Returns the number of bytes that belong to it, and the header if the line
    /// is complete. The reader is then ready for the next line.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        input: &[u8],
        limits: &FrameLimits,
    ) -> Result<(usize, Option<Header>), ProtocolError> {
        let mut at = 0;
        if self.kind == 0 {
            let Some((&kind, rest)) = input.split_first() else { return Ok((0, None)) };
            if let Some((header, length_bytes)) = usual(kind, rest, limits) {
                return Ok((1 + length_bytes, Some(header)));
            }
            self.begin(kind)?;
            at = 1;
        }
        if !self.awaits_line_feed {
            at += self.text(&input[at..], limits)?;
        }
        match input.get(at) {
            None => Ok((at, None)),
            Some(b'\n') => {
                let header = self.header(limits)?;
                self.kind = 0;
                Ok((at + 1, Some(header)))
            }
            Some(_) => Err(ProtocolError::LineEnd),
        }
    }

    fn begin(&mut self, kind: u8) -> Result<(), ProtocolError> {
        match kind {
            b'+' | b'-' | b'(' | b':' | b',' | b'#' | b'_' | b'$' | b'!' | b'=' | b'*' | b'~' | b'>' | b'%' | b'|' => {
                self.kind = kind;
                self.awaits_line_feed = false;
                self.number = Number::EMPTY;
                self.text_bytes = 0;
                Ok(())
            }
            b';' | b'.' => Err(ProtocolError::Streamed),
            _ => Err(ProtocolError::ReplyType(kind)),
        }
    }

    /// Consumes the text of the line and its CR.
    #[inline]
    fn text(&mut self, input: &[u8], limits: &FrameLimits) -> Result<usize, ProtocolError> {
        let text = match self.kind {
            b'+' | b'-' | b'(' => memchr::memchr(b'\r', input).unwrap_or(input.len()),
            b',' | b'#' | b'_' => self.short_text(input)?,
            _ => self.digits(input),
        };
        self.text_bytes += text;
        if self.text_bytes > limits.line_bytes_max {
            return Err(ProtocolError::LineTooLong);
        }
        self.awaits_line_feed = text < input.len();
        Ok(text + usize::from(self.awaits_line_feed))
    }

    #[inline]
    fn digits(&mut self, input: &[u8]) -> usize {
        for (at, &byte) in input.iter().enumerate() {
            if byte == b'\r' {
                return at;
            }
            self.number.push(byte);
        }
        input.len()
    }

    fn short_text(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let text = memchr::memchr(b'\r', input).unwrap_or(input.len());
        let end = self.text_bytes + text;
        let room = self.short_text.get_mut(self.text_bytes..end).ok_or(ProtocolError::LineTooLong)?;
        room.copy_from_slice(&input[..text]);
        Ok(text)
    }

    /// Decodes the complete line.
    #[inline]
    fn header(&self, limits: &FrameLimits) -> Result<Header, ProtocolError> {
        Ok(match self.kind {
            b'+' => Header::Simple,
            b'-' => Header::Error,
            b'(' => Header::BigNumber,
            b':' => Header::Integer(self.number.value().ok_or(ProtocolError::Integer)?),
            b',' => Header::Double(self.double()?),
            b'#' => Header::Boolean(self.boolean()?),
            b'_' if self.text_bytes == 0 => Header::Null,
            b'_' => return Err(ProtocolError::Null),
            b'$' => self.bulk_bytes(limits, true)?.map_or(Header::Null, Header::Bulk),
            b'!' => self.bulk_bytes(limits, false)?.map_or(Header::Null, Header::BlobError),
            b'=' => match self.bulk_bytes(limits, false)? {
                Some(bytes) if bytes >= VERBATIM_FORMAT_BYTES => Header::Verbatim(bytes),
                _ => return Err(ProtocolError::BulkLength),
            },
            b'*' if self.number.value() == Some(-1) => Header::Null,
            b'*' => Header::Array(self.elements(limits)?),
            b'~' => Header::Set(self.elements(limits)?),
            b'>' => Header::Push(self.elements(limits)?),
            b'%' => Header::Map(self.elements(limits)?),
            _ => Header::Attribute(self.elements(limits)?),
        })
    }

    fn short(&self) -> &[u8] {
        &self.short_text[..self.text_bytes]
    }

    /// Rust's parser accepts `inf`, `-inf`, `nan` and exponents; the doubles of RESP3 are a subset of its grammar.
    fn double(&self) -> Result<f64, ProtocolError> {
        std::str::from_utf8(self.short()).ok().and_then(|text| text.parse().ok()).ok_or(ProtocolError::Double)
    }

    fn boolean(&self) -> Result<bool, ProtocolError> {
        match self.short() {
            b"t" => Ok(true),
            b"f" => Ok(false),
            _ => Err(ProtocolError::Boolean),
        }
    }

    /// Bytes of the payload; none for the null of RESP2, if the type has one.
    fn bulk_bytes(&self, limits: &FrameLimits, has_null: bool) -> Result<Option<u64>, ProtocolError> {
        match self.number.value() {
            Some(-1) if has_null => Ok(None),
            Some(bytes) => match u64::try_from(bytes) {
                Ok(bytes) if bytes <= limits.bulk_bytes_max => Ok(Some(bytes)),
                _ => Err(ProtocolError::BulkLength),
            },
            None => Err(self.malformed_length(ProtocolError::BulkLength)),
        }
    }

    fn elements(&self, limits: &FrameLimits) -> Result<u64, ProtocolError> {
        let elements = self.number.value().ok_or_else(|| self.malformed_length(ProtocolError::AggregateLength))?;
        match u64::try_from(elements) {
            Ok(elements) if elements <= limits.elements_max => Ok(elements),
            _ => Err(ProtocolError::AggregateLength),
        }
    }

    fn malformed_length(&self, otherwise: ProtocolError) -> ProtocolError {
        if self.number.is_question_mark() { ProtocolError::Streamed } else { otherwise }
    }
}
