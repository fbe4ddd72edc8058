//! Finds the end of a request whose bytes arrive in any pieces, for servers and proxies.
//!
//! ```text
//! *n CRLF  then n times  $length CRLF bytes CRLF      n arguments; n of 0 or less is no request
//! anything else up to LF                              an inline command; a blank line is no request
//! ```
//!
//! The framer reads each byte once and keeps none: see [`ReplyFramer`](super::ReplyFramer). Arguments are read through
//! [`Arguments`](super::Arguments), even while the rest of the request is still arriving: the command and the key of `SET
//! key value` are known before a value of 512 MB is complete. [`rewrite_inline`](super::rewrite_inline) converts inline
//! commands to the usual form and detects unbalanced quotes.
//!
//! Requests are refused for the same reasons and at the same point as in Redis (`processMultibulkBuffer`), with one
//! exception: CR LF after a bulk string and LF after a length are checked.

use super::advance::Advance;
use super::limits::FrameLimits;
use super::number::Number;
use super::payload::{LINE_END_BYTES, Payload};
use super::protocol_error::ProtocolError;
use super::short_length::short_length;

/// Form of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// An array of bulk strings, perhaps an empty one, which a server ignores without a reply.
    Multibulk,
    /// A line of text.
    Inline,
}

/// What the next byte must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Start,
    /// Behind `*`.
    Count,
    CountLineFeed,
    /// `$` of an argument.
    Bulk,
    /// Behind `$`.
    Length,
    LengthLineFeed,
    Payload,
    Inline,
}

/// Finds the ends of the requests of one connection, one after the other.
#[derive(Clone, Debug)]
pub struct RequestFramer {
    limits: FrameLimits,
    state: State,
    kind: RequestKind,
    number: Number,
    payload: Payload,
    /// Arguments announced.
    arguments: u64,
    arguments_left: u64,
    inline_bytes: usize,
    /// Bytes of this request so far.
    bytes: u64,
    failure: Option<ProtocolError>,
}

impl RequestFramer {
    /// A framer before the first byte of a connection.
    pub fn new(limits: FrameLimits) -> RequestFramer {
        RequestFramer {
            limits,
            state: State::Start,
            kind: RequestKind::Multibulk,
            number: Number::EMPTY,
            payload: Payload::default(),
            arguments: 0,
            arguments_left: 0,
            inline_bytes: 0,
            bytes: 0,
            failure: None,
        }
    }

    /// Consumes the bytes that follow those consumed so far. After a complete request the next call begins the next one.
    ///
    /// # Errors
    /// The bytes are not RESP. Every later call repeats the error.
    #[inline]
    pub fn advance(&mut self, input: &[u8]) -> Result<Advance, ProtocolError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.state == State::Start && !input.is_empty() {
            (self.bytes, self.arguments, self.inline_bytes) = (0, 0, 0);
        }
        let advanced = self.parts(input);
        match advanced {
            Ok(advance) => self.bytes += advance.consumed as u64,
            Err(failure) => self.failure = Some(failure),
        }
        advanced
    }

    #[inline]
    fn parts(&mut self, input: &[u8]) -> Result<Advance, ProtocolError> {
        let mut at = 0;
        while at < input.len() {
            at += self.part(&input[at..])?;
            if self.state == State::Start {
                return Ok(Advance { consumed: at, is_complete: true });
            }
        }
        Ok(Advance { consumed: at, is_complete: false })
    }

    /// Consumes bytes in the current state; the state after the last byte of a request is `Start`.
    #[inline]
    fn part(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        match self.state {
            State::Start => self.start(input),
            State::Count => self.digits(input, State::CountLineFeed, ProtocolError::MultibulkLineTooLong),
            State::Length => self.digits(input, State::LengthLineFeed, ProtocolError::BulkLineTooLong),
            State::CountLineFeed => self.count(input[0]),
            State::LengthLineFeed => self.length(input[0]),
            State::Bulk => self.bulk(input),
            State::Payload => self.payload(input),
            State::Inline => self.inline(input),
        }
    }

    #[inline]
    fn start(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let Some(rest) = input.strip_prefix(b"*") else {
            (self.state, self.kind) = (State::Inline, RequestKind::Inline);
            return Ok(0);
        };
        self.kind = RequestKind::Multibulk;
        if let Some((count, line_bytes)) = short_length(rest) {
            self.begin_arguments(count)?;
            return Ok(1 + line_bytes);
        }
        (self.state, self.number) = (State::Count, Number::EMPTY);
        Ok(1)
    }

    #[inline]
    fn digits(&mut self, input: &[u8], next: State, too_long: ProtocolError) -> Result<usize, ProtocolError> {
        for (at, &byte) in input.iter().enumerate() {
            if byte == b'\r' {
                self.state = next;
                return Ok(at + 1);
            }
            self.number.push(byte);
            if self.number.bytes() > self.limits.line_bytes_max {
                return Err(too_long);
            }
        }
        Ok(input.len())
    }

    fn count(&mut self, byte: u8) -> Result<usize, ProtocolError> {
        let count = self.number.value().ok_or(ProtocolError::MultibulkLength)?;
        self.begin_arguments(u64::try_from(count).unwrap_or(0))?;
        line_feed(byte)
    }

    #[inline]
    fn begin_arguments(&mut self, count: u64) -> Result<(), ProtocolError> {
        if count > self.limits.arguments_max {
            return Err(ProtocolError::MultibulkLength);
        }
        (self.arguments, self.arguments_left) = (count, count);
        self.state = if count == 0 { State::Start } else { State::Bulk };
        Ok(())
    }

    #[inline]
    fn bulk(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let Some(rest) = input.strip_prefix(b"$") else { return Err(ProtocolError::ExpectedBulk(input[0])) };
        if let Some((bytes, line_bytes)) = short_length(rest) {
            self.begin_payload(bytes)?;
            return Ok(1 + line_bytes);
        }
        (self.state, self.number) = (State::Length, Number::EMPTY);
        Ok(1)
    }

    fn length(&mut self, byte: u8) -> Result<usize, ProtocolError> {
        let bytes = self.number.value().and_then(|bytes| u64::try_from(bytes).ok());
        self.begin_payload(bytes.ok_or(ProtocolError::BulkLength)?)?;
        line_feed(byte)
    }

    #[inline]
    fn begin_payload(&mut self, bytes: u64) -> Result<(), ProtocolError> {
        if bytes > self.limits.bulk_bytes_max {
            return Err(ProtocolError::BulkLength);
        }
        self.payload = Payload::of(bytes + LINE_END_BYTES);
        self.state = State::Payload;
        Ok(())
    }

    #[inline]
    fn payload(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let taken = self.payload.advance(input)?;
        if self.payload.bytes_to_come() == 0 {
            self.arguments_left -= 1;
            self.state = if self.arguments_left == 0 { State::Start } else { State::Bulk };
        }
        Ok(taken)
    }

    fn inline(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        let text = memchr::memchr(b'\n', input);
        let taken = text.map_or(input.len(), |line_feed| line_feed + 1);
        self.inline_bytes += text.unwrap_or(taken);
        if self.inline_bytes > self.limits.line_bytes_max {
            return Err(ProtocolError::InlineTooLong);
        }
        if text.is_some() {
            self.state = State::Start;
        }
        Ok(taken)
    }

    /// Form of the current request, or of the one completed last.
    pub fn kind(&self) -> RequestKind {
        self.kind
    }

    /// Number of arguments that the request announced, its command included; 0 for an inline command, and until it is known.
    pub fn arguments(&self) -> u64 {
        self.arguments
    }

    /// Remaining bytes of the current argument, its line end included; 0 elsewhere.
    pub fn bulk_bytes_to_come(&self) -> u64 {
        self.payload.bytes_to_come()
    }

    /// Bytes of the request so far; after its end, its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn line_feed(byte: u8) -> Result<usize, ProtocolError> {
    if byte == b'\n' { Ok(1) } else { Err(ProtocolError::LineEnd) }
}
