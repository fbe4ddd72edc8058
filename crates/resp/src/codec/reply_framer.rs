//! Finds the end and the kind of a reply whose bytes arrive in any pieces.
//!
//! The framer reads each byte once: the caller never passes again what [`ReplyFramer::advance`] has consumed. Payloads of bulk
//! strings are skipped without reading them. The framer keeps one counter for each level of nesting and no bytes, so a proxy
//! can forward a reply of any size while it arrives. A reply that is complete in one buffer is read through [`ReplyView`].
//!
//! Attributes belong to the value after them: `|1 +a +b :1` is one reply of kind integer.

use super::advance::Advance;
use super::header::{Header, HeaderReader};
use super::limits::FrameLimits;
use super::payload::{LINE_END_BYTES, Payload};
use super::protocol_error::ProtocolError;
use super::short_length::short_length;
use super::view::{Elements, ReplyView};

/// Type of a reply, of RESP2 or RESP3. Both forms of null are [`ReplyKind::Null`], both forms of error [`ReplyKind::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyKind {
    /// `+OK`
    Simple,
    /// `-ERR …`, or `!` with a length
    Error,
    /// `:1`
    Integer,
    /// `$` with a length
    Bulk,
    /// `_`, `$-1` or `*-1`
    Null,
    /// `*`
    Array,
    /// `%`
    Map,
    /// `~`
    Set,
    /// `>`: not a reply, but a message that the server sends unrequested
    Push,
    /// `,`
    Double,
    /// `#`
    Boolean,
    /// `(`
    BigNumber,
    /// `=`
    Verbatim,
}

impl ReplyKind {
    fn of(header: Header) -> ReplyKind {
        match header {
            Header::Simple => ReplyKind::Simple,
            Header::Error | Header::BlobError(_) => ReplyKind::Error,
            Header::Integer(_) => ReplyKind::Integer,
            Header::Bulk(_) => ReplyKind::Bulk,
            Header::Null => ReplyKind::Null,
            Header::Array(_) => ReplyKind::Array,
            // Attributes describe a value and are never one (`ReplyFramer::begin`).
            Header::Map(_) | Header::Attribute(_) => ReplyKind::Map,
            Header::Set(_) => ReplyKind::Set,
            Header::Push(_) => ReplyKind::Push,
            Header::Double(_) => ReplyKind::Double,
            Header::Boolean(_) => ReplyKind::Boolean,
            Header::BigNumber => ReplyKind::BigNumber,
            Header::Verbatim(_) => ReplyKind::Verbatim,
        }
    }
}

/// Position of the first line of the reply's own value, after its attributes.
#[derive(Clone, Copy, Debug)]
struct Top {
    header: Header,
    start: u64,
    end: u64,
}

/// Finds the ends of the replies of one connection, one after the other.
#[derive(Clone, Debug)]
pub struct ReplyFramer {
    limits: FrameLimits,
    header: HeaderReader,
    /// Start of the current line, as an offset in the reply.
    header_start: u64,
    payload: Payload,
    /// Values that have not begun in the innermost aggregate.
    left: u64,
    /// The same for the enclosing aggregates; at most `FrameLimits::depth_max` of them.
    around: Vec<u64>,
    /// Bytes of this reply so far.
    bytes: u64,
    top: Option<Top>,
    failure: Option<ProtocolError>,
}

impl ReplyFramer {
    /// A framer before the first byte of a connection.
    pub fn new(limits: FrameLimits) -> ReplyFramer {
        ReplyFramer {
            limits,
            header: HeaderReader::new(),
            header_start: 0,
            payload: Payload::default(),
            left: 0,
            around: Vec::new(),
            bytes: 0,
            top: None,
            failure: None,
        }
    }

    /// Consumes the bytes that follow those consumed so far. After a complete reply the next call begins the next one.
    ///
    /// # Errors
    /// The bytes are not RESP. Every later call repeats the error.
    #[inline]
    pub fn advance(&mut self, input: &[u8]) -> Result<Advance, ProtocolError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        if self.is_between_replies() && !input.is_empty() {
            if let Some(advance) = self.whole_bulk(input) {
                return Ok(advance);
            }
            (self.left, self.bytes, self.top) = (1, 0, None);
        }
        let advanced = self.values(input);
        if let Err(failure) = advanced {
            self.failure = Some(failure);
        }
        advanced
    }

    /// Fast path for the usual reply, a bulk string that is complete at the beginning of the input: three fifths of the
    /// instructions. None leaves the input to the general path, which also detects its errors.
    #[inline]
    fn whole_bulk(&mut self, input: &[u8]) -> Option<Advance> {
        let (length, length_bytes) = short_length(input.strip_prefix(b"$")?)?;
        let line_bytes = 1 + length_bytes;
        let end = line_bytes + usize::try_from(length).ok()?;
        let [b'\r', b'\n', ..] = input.get(end..)? else { return None };
        if length > self.limits.bulk_bytes_max {
            return None;
        }
        let consumed = end + LINE_END_BYTES as usize;
        self.bytes = consumed as u64;
        self.top = Some(Top { header: Header::Bulk(length), start: 0, end: line_bytes as u64 });
        Some(Advance { consumed, is_complete: true })
    }

    #[inline]
    fn values(&mut self, input: &[u8]) -> Result<Advance, ProtocolError> {
        let mut at = 0;
        while at < input.len() {
            let taken = match self.payload.bytes_to_come() {
                0 => self.line(&input[at..])?,
                _ => self.payload.advance(&input[at..])?,
            };
            at += taken;
            self.bytes += taken as u64;
            if self.is_between_values() {
                self.leave_complete_aggregates();
                if self.is_between_replies() {
                    return Ok(Advance { consumed: at, is_complete: true });
                }
            }
        }
        Ok(Advance { consumed: at, is_complete: false })
    }

    #[inline]
    fn line(&mut self, input: &[u8]) -> Result<usize, ProtocolError> {
        if self.header.is_empty() {
            self.header_start = self.bytes;
        }
        let (taken, header) = self.header.advance(input, &self.limits)?;
        if let Some(header) = header {
            self.begin(header, self.bytes + taken as u64)?;
        }
        Ok(taken)
    }

    /// Counts a value whose first line ends at this offset in the reply.
    #[inline]
    fn begin(&mut self, header: Header, end: u64) -> Result<(), ProtocolError> {
        // Attributes are not an element of the enclosing aggregate.
        if !matches!(header, Header::Attribute(_)) {
            if self.around.is_empty() {
                self.top = Some(Top { header, start: self.header_start, end });
            }
            self.left -= 1;
        }
        match header.elements() {
            0 => self.payload = Payload::of(header.payload_bytes()),
            elements => self.enter(elements)?,
        }
        Ok(())
    }

    fn enter(&mut self, elements: u64) -> Result<(), ProtocolError> {
        if self.around.len() >= self.limits.depth_max {
            return Err(ProtocolError::Depth);
        }
        self.around.push(self.left);
        self.left = elements;
        Ok(())
    }

    #[inline]
    fn is_between_values(&self) -> bool {
        self.payload.bytes_to_come() == 0 && self.header.is_empty()
    }

    #[inline]
    fn is_between_replies(&self) -> bool {
        self.left == 0 && self.is_between_values()
    }

    #[inline]
    fn leave_complete_aggregates(&mut self) {
        while self.left == 0
            && let Some(left) = self.around.pop()
        {
            self.left = left;
        }
    }

    /// Type of the current reply, or of the one completed last; none while its first line is incomplete.
    pub fn kind(&self) -> Option<ReplyKind> {
        self.top.map(|top| ReplyKind::of(top.header))
    }

    /// Remaining bytes of the current bulk string, its line end included; 0 elsewhere.
    pub fn bulk_bytes_to_come(&self) -> u64 {
        self.payload.bytes_to_come()
    }

    /// Bytes of the reply so far; after its end, its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Attributes of the reply completed last: alternating keys and values. `reply` as for [`ReplyFramer::view`].
    ///
    /// # Panics
    /// As [`ReplyFramer::view`].
    pub fn attributes<'b>(&self, reply: &'b [u8]) -> Option<Elements<'b>> {
        (self.complete(reply).start > 0).then(|| Elements::attributes(reply))
    }

    /// The reply completed last, read in place, without its attributes.
    ///
    /// `reply` must be exactly its bytes. Its first line is not decoded again, so this is cheaper than [`ReplyView::parse`].
    ///
    /// # Panics
    /// No reply is complete, or `reply` has another length.
    #[inline]
    pub fn view<'b>(&self, reply: &'b [u8]) -> ReplyView<'b> {
        let top = self.complete(reply);
        ReplyView::of(top.header, &reply[top.start as usize..], (top.end - top.start) as usize)
    }

    #[inline]
    fn complete(&self, reply: &[u8]) -> Top {
        let top = self.top.filter(|_| self.is_between_replies()).expect("a complete reply");
        assert_eq!(reply.len() as u64, self.bytes, "the bytes of the reply");
        top
    }
}

impl<'b> ReplyView<'b> {
    /// Reads the first reply in `bytes` and returns it with its size in bytes. None while it is incomplete.
    ///
    /// # Errors
    /// The bytes are not RESP.
    pub fn parse(bytes: &'b [u8], limits: FrameLimits) -> Result<Option<(ReplyView<'b>, usize)>, ProtocolError> {
        let mut framer = ReplyFramer::new(limits);
        let advance = framer.advance(bytes)?;
        Ok(advance.is_complete.then(|| (framer.view(&bytes[..advance.consumed]), advance.consumed)))
    }
}
