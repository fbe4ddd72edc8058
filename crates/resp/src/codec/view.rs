//! A reply read in place: strings are slices of the buffer, aggregates are iterators over it.
//!
//! A view exists only over bytes that a [`super::ReplyFramer`] has checked, so reading it cannot fail. First lines of elements
//! are decoded when the iterator reaches them; nothing is allocated. A nested aggregate is skipped, without recursion,
//! when the outer iterator moves past it.

use super::header::{Header, HeaderReader, VERBATIM_FORMAT_BYTES};
use super::limits::FrameLimits;
use super::payload::LINE_END_BYTES;

/// No limits: the framer has applied them.
const CHECKED: FrameLimits = FrameLimits {
    bulk_bytes_max: u64::MAX,
    arguments_max: u64::MAX,
    elements_max: u64::MAX,
    depth_max: usize::MAX,
    line_bytes_max: usize::MAX,
};

/// A value of a reply. Texts are bytes as the server sent them: UTF-8 only where the application says so.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReplyView<'b> {
    /// No value, in any of the three forms that RESP2 and RESP3 have for it.
    Null,
    /// A simple string, as `OK`.
    Simple(&'b [u8]),
    /// An error: its code, a blank, its text.
    Error(&'b [u8]),
    /// A signed 64-bit integer.
    Integer(i64),
    /// A string of bytes.
    Bulk(&'b [u8]),
    /// Values in order.
    Array(Elements<'b>),
    /// Alternating keys and values, twice as many elements as pairs.
    Map(Elements<'b>),
    /// Values without an order.
    Set(Elements<'b>),
    /// A message that the server sends unrequested: its kind, then its values.
    Push(Elements<'b>),
    /// A floating-point number, which may be infinite or not a number.
    Double(f64),
    /// True or false.
    Boolean(bool),
    /// An integer of any size, in decimal digits that are not validated.
    BigNumber(&'b [u8]),
    /// A text with its format in three bytes, as `txt` or `mkd`.
    Verbatim {
        /// Three bytes.
        format: &'b [u8],
        /// The text itself.
        text: &'b [u8],
    },
}

impl<'b> ReplyView<'b> {
    /// The value whose first line is the first `line_bytes` of `bytes`.
    #[inline]
    pub(crate) fn of(header: Header, bytes: &'b [u8], line_bytes: usize) -> ReplyView<'b> {
        let line = || &bytes[1..line_bytes - LINE_END_BYTES as usize];
        let payload = |bytes_max: u64| &bytes[line_bytes..line_bytes + bytes_max as usize];
        let elements = || Elements { bytes: &bytes[line_bytes..], left: header.elements() };
        match header {
            Header::Null => ReplyView::Null,
            Header::Simple => ReplyView::Simple(line()),
            Header::Error => ReplyView::Error(line()),
            Header::BigNumber => ReplyView::BigNumber(line()),
            Header::Integer(integer) => ReplyView::Integer(integer),
            Header::Double(double) => ReplyView::Double(double),
            Header::Boolean(boolean) => ReplyView::Boolean(boolean),
            Header::Bulk(bytes) => ReplyView::Bulk(payload(bytes)),
            Header::BlobError(bytes) => ReplyView::Error(payload(bytes)),
            Header::Verbatim(bytes) => ReplyView::verbatim(payload(bytes)),
            Header::Array(_) => ReplyView::Array(elements()),
            Header::Set(_) => ReplyView::Set(elements()),
            Header::Push(_) => ReplyView::Push(elements()),
            Header::Map(_) | Header::Attribute(_) => ReplyView::Map(elements()),
        }
    }

    /// The header reader has checked that the format is present.
    fn verbatim(payload: &'b [u8]) -> ReplyView<'b> {
        let (format, text) = payload.split_at(VERBATIM_FORMAT_BYTES as usize);
        ReplyView::Verbatim { format: &format[..VERBATIM_FORMAT_BYTES as usize - 1], text }
    }

    /// The bytes of a text of any type; none for a number, a null, an error or an aggregate.
    pub fn text(&self) -> Option<&'b [u8]> {
        match self {
            ReplyView::Simple(text) | ReplyView::Bulk(text) | ReplyView::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The elements of an aggregate of any type.
    pub fn elements(&self) -> Option<Elements<'b>> {
        match self {
            ReplyView::Array(elements)
            | ReplyView::Map(elements)
            | ReplyView::Set(elements)
            | ReplyView::Push(elements) => Some(*elements),
            _ => None,
        }
    }
}

/// The values of an aggregate, in order. Attributes of elements are skipped, unless the caller uses
/// [`Elements::next_described`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Elements<'b> {
    /// From the next element on; other replies may follow the last one.
    bytes: &'b [u8],
    left: u64,
}

impl<'b> Elements<'b> {
    /// The attributes whose line begins here.
    pub(crate) fn attributes(bytes: &'b [u8]) -> Elements<'b> {
        let (header, line_bytes) = first_line(bytes);
        Elements { bytes: &bytes[line_bytes..], left: header.elements() }
    }

    /// Number of remaining elements; maps count keys and values.
    pub fn len(&self) -> usize {
        // Each has at least three bytes in the buffer.
        self.left as usize
    }

    /// Whether no element remains.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The next element, and its attributes: alternating keys and values.
    pub fn next_described(&mut self) -> Option<(Option<Elements<'b>>, ReplyView<'b>)> {
        if self.left == 0 {
            return None;
        }
        let mut attributes = None;
        loop {
            let (header, line_bytes) = first_line(self.bytes);
            let value = self.bytes;
            self.bytes = &value[line_bytes + header.payload_bytes() as usize..];
            if let Header::Attribute(_) = header {
                attributes = Some(Elements { bytes: self.bytes, left: header.elements() });
                self.bytes = behind(self.bytes, header.elements());
                continue;
            }
            self.left -= 1;
            if self.left > 0 {
                self.bytes = behind(self.bytes, header.elements());
            }
            return Some((attributes, ReplyView::of(header, value, line_bytes)));
        }
    }
}

impl<'b> Iterator for Elements<'b> {
    type Item = ReplyView<'b>;

    #[inline]
    fn next(&mut self) -> Option<ReplyView<'b>> {
        self.next_described().map(|(_, value)| value)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Elements<'_> {}

/// The first line of the value that begins here.
#[inline]
fn first_line(bytes: &[u8]) -> (Header, usize) {
    let (line_bytes, header) = HeaderReader::new().advance(bytes, &CHECKED).expect("bytes that a framer has checked");
    (header.expect("a line that a framer found complete"), line_bytes)
}

/// The bytes after this many values.
#[inline]
fn behind(mut bytes: &[u8], values: u64) -> &[u8] {
    let mut left = values;
    while left > 0 {
        let (header, line_bytes) = first_line(bytes);
        bytes = &bytes[line_bytes + header.payload_bytes() as usize..];
        // Values of all nested levels are counted together: the levels do not matter here.
        left = left - u64::from(!matches!(header, Header::Attribute(_))) + header.elements();
    }
    bytes
}
