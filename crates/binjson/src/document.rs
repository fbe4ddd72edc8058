//! A stored document: its header, its text and its tables. `lookup.rs` finds fields in it.

use crate::error::Damaged;
use crate::limits::TEXT_BYTES_MAX;
use crate::table::{FieldTable, NestedTables, body_bytes, number_at};
use crate::tag::{FORMAT_VERSION, MARK_BYTES, TAG_MARK, TAG_NESTED, TAG_OBJECT};
use crate::value::JsonValue;

/// Longer bytes are not a stored document. The tables of the longest text take less than twice its size.
const STORED_BYTES_MAX: usize = 4 * TEXT_BYTES_MAX;

/// A view of a stored document. It is cheap to make and to copy, because nothing is decoded in advance.
#[derive(Clone, Copy)]
pub struct StoredDocument<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) width: u8,
    is_object: bool,
    /// Fields of the root object.
    pub(crate) count: u32,
    /// Offsets of the root's table, the nested tables and the text.
    pub(crate) table_at: u32,
    nested_at: u32,
    pub(crate) text_at: u32,
}

impl<'a> StoredDocument<'a> {
    /// A view of the stored document in `bytes`, which must contain nothing else. Checks the header only.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Damaged> {
        Self::read_header(bytes).ok_or(Damaged)
    }

    /// The text of the stored document in `bytes`, without the rest of its header.
    #[inline]
    pub fn text_of(bytes: &'a [u8]) -> Result<&'a [u8], Damaged> {
        match Self::read_header(bytes) {
            Some(Self { text_at, .. }) => Ok(&bytes[text_at as usize..]),
            None => Err(Damaged),
        }
    }

    // Inlined, so that the header stays in registers; a call would return it through memory.
    #[inline(always)]
    fn read_header(bytes: &'a [u8]) -> Option<Self> {
        const WIDTH_1: u8 = FORMAT_VERSION << 4;
        const WIDTH_2: u8 = WIDTH_1 | 1;
        const WIDTH_4: u8 = WIDTH_1 | 2;
        let tag = *bytes.first()?;
        match tag & !(TAG_OBJECT | TAG_NESTED) {
            WIDTH_1 => Self::read_header_of::<1>(bytes, tag, 1),
            WIDTH_2 => Self::read_header_of::<2>(bytes, tag, 1),
            WIDTH_4 => Self::read_header_of::<4>(bytes, tag, 1),
            _ => Self::read_marked(bytes, tag),
        }
    }

    /// The header of a document with a mark. A separate function, so that documents without a mark are not slowed down.
    #[inline(never)]
    fn read_marked(bytes: &'a [u8], tag: u8) -> Option<Self> {
        let at = 1 + MARK_BYTES;
        match tag & !(TAG_OBJECT | TAG_NESTED) ^ (TAG_MARK | FORMAT_VERSION << 4) {
            0 => Self::read_header_of::<1>(bytes, tag, at),
            1 => Self::read_header_of::<2>(bytes, tag, at),
            2 => Self::read_header_of::<4>(bytes, tag, at),
            _ => None,
        }
    }

    #[inline(always)]
    fn read_header_of<const W: usize>(bytes: &'a [u8], tag: u8, mut at: usize) -> Option<Self> {
        let is_object = tag & TAG_OBJECT != 0;
        let (mut count, mut nested_len) = (0, 0);
        if is_object {
            count = number_at::<W>(bytes, at)?;
            at += W;
        }
        if tag & TAG_NESTED != 0 {
            nested_len = number_at::<W>(bytes, at)?;
            at += W;
        }
        // Both numbers are below 2^32, so nothing here overflows.
        let nested_at = at + body_bytes(count, W);
        let text_at = nested_at + nested_len;
        if (*bytes.get(text_at)? == b'{') != is_object || bytes.len() > STORED_BYTES_MAX {
            return None;
        }
        Some(Self {
            bytes,
            width: W as u8,
            is_object,
            count: count as u32,
            table_at: at as u32,
            nested_at: nested_at as u32,
            text_at: text_at as u32,
        })
    }

    /// The stored bytes.
    #[inline]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The minified JSON text.
    #[inline]
    pub fn text(&self) -> &'a [u8] {
        &self.bytes[self.text_at as usize..]
    }

    /// The whole document as a value.
    #[inline]
    pub fn root(&self) -> JsonValue<'a> {
        self.value(0, self.text().len())
    }

    /// Whether the document is an object.
    #[inline]
    pub fn is_object(&self) -> bool {
        self.is_object
    }

    /// Number of fields of the root object; 0 for any other root.
    #[inline]
    pub fn field_count(&self) -> usize {
        self.count as usize
    }

    /// The value at `start..end` of the text.
    #[inline]
    pub(crate) fn value(&self, start: usize, end: usize) -> JsonValue<'a> {
        JsonValue::new(self.bytes, self.text_at as usize + start, self.text_at as usize + end)
    }

    /// Converts an offset in the stored bytes to an offset in the text.
    #[inline]
    pub(crate) fn place(&self, at: usize) -> usize {
        at - self.text_at as usize
    }

    #[inline]
    pub(crate) fn root_table(&self) -> Option<FieldTable<'a>> {
        let body = self.bytes.get(self.table_at as usize..)?;
        self.is_object.then(|| FieldTable::new(body, self.count as usize, usize::from(self.width), self.text().len()))
    }

    #[inline]
    pub(crate) fn nested_tables(&self) -> NestedTables<'a> {
        let bytes = self.bytes.get(self.nested_at as usize..self.text_at as usize).unwrap_or_default();
        NestedTables { bytes, width: usize::from(self.width) }
    }
}
