//! A stored document, read in place.

use crate::encoder::{FORMAT_VERSION, TAG_NESTED, TAG_OBJECT};
use crate::error::Damaged;
use crate::escape;
use crate::hash::key_hash;
use crate::table::{FieldTable, NestedTables, read_number};
use crate::value::Value;
use crate::walk::{Fields, value_end};

/// A view of a stored document. Cheap to make and to copy; nothing is decoded until asked for.
#[derive(Clone, Copy)]
pub struct Document<'a> {
    bytes: &'a [u8],
    width: u8,
    is_object: bool,
    /// Fields of the root object.
    count: u32,
    /// Where the root's table, the nested tables and the text begin.
    table_at: u32,
    nested_at: u32,
    text_at: u32,
}

/// Remembers where a field stood in the last document: where documents have one shape, the next lookup is one comparison.
/// The key is compared each time, so a document of another shape, or another name, costs a search and never a wrong answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldCache {
    index: u32,
}

/// A fingerprint of the names and the order of a root object's fields. Documents of one shape have equal ones; equal
/// fingerprints are a hint only, for names may collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape(u64);

impl<'a> Document<'a> {
    /// A view of the stored document that `bytes` are, neither more nor less. Checks the header only.
    #[inline]
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, Damaged> {
        Self::read_header(bytes).ok_or(Damaged)
    }

    #[inline]
    fn read_header(bytes: &'a [u8]) -> Option<Self> {
        let tag = *bytes.first()?;
        if tag >> 4 != FORMAT_VERSION || tag & 3 == 3 || bytes.len() > u32::MAX as usize {
            return None;
        }
        let width = 1usize << (tag & 3);
        let is_object = tag & TAG_OBJECT != 0;
        let (mut at, mut count, mut nested_len) = (1, 0, 0);
        if is_object {
            count = read_number(bytes, at, width)?;
            at += width;
        }
        if tag & TAG_NESTED != 0 {
            nested_len = read_number(bytes, at, width)?;
            at += width;
        }
        if count > bytes.len() {
            return None;
        }
        let nested_at = at + crate::table::body_bytes(count, width);
        let text_at = nested_at + nested_len;
        if text_at >= bytes.len() || (bytes[text_at] == b'{') != is_object {
            return None;
        }
        Some(Self {
            bytes,
            width: width as u8,
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
    pub fn root(&self) -> Value<'a> {
        Value::new(*self, 0, self.bytes.len() - self.text_at as usize)
    }

    /// Whether the document is an object.
    #[inline]
    pub fn is_object(&self) -> bool {
        self.is_object
    }

    /// The value of the root object's field `name`.
    #[inline]
    pub fn field(&self, name: &str) -> Option<Value<'a>> {
        find(*self, self.root_table()?, name, 0, self.text().len()).map(|(_, value)| value)
    }

    /// The same; asks first where `cache` saw the field last.
    #[inline]
    pub fn field_cached(&self, name: &str, cache: &mut FieldCache) -> Option<Value<'a>> {
        let table = self.root_table()?;
        let index = cache.index as usize;
        let text = self.text();
        if let Some(start) = table.value_of(index, text, name.as_bytes())
            && is_plain(name.as_bytes())
        {
            return value_at(*self, &table, index, start, text.len());
        }
        let (index, value) = find(*self, table, name, 0, text.len())?;
        cache.index = index as u32;
        Some(value)
    }

    /// How many fields the root object has; 0 for any other root.
    #[inline]
    pub fn field_count(&self) -> usize {
        self.count as usize
    }

    /// The root object's fields in the order sent; none for any other root.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        let text_len = self.text().len();
        Fields::new(*self, self.root_table(), 0, if self.is_object { text_len } else { 0 })
    }

    /// What documents with the same fields in the same order have in common.
    pub fn shape(&self) -> Shape {
        let bytes = self.root_table().map(|table| table.fingerprint_bytes()).unwrap_or_default();
        Shape(u64::from(self.count) << 32 | u64::from(key_hash(bytes)))
    }

    #[inline]
    pub(crate) fn root_table(&self) -> Option<FieldTable<'a>> {
        let body = self.bytes.get(self.table_at as usize..)?;
        self.is_object.then(|| FieldTable::new(body, self.count as usize, usize::from(self.width)))
    }

    #[inline]
    pub(crate) fn nested_tables(&self) -> NestedTables<'a> {
        let bytes = self.bytes.get(self.nested_at as usize..self.text_at as usize).unwrap_or_default();
        NestedTables { bytes, width: usize::from(self.width) }
    }
}

/// Whether a name is stored as it is. Control characters need no look: no key in a text holds one raw.
#[inline]
pub(crate) fn is_plain(name: &[u8]) -> bool {
    !name.iter().fold(false, |special, &byte| special | (byte == b'"') | (byte == b'\\'))
}

/// Looks `name` up in the table of the object that ends at `end`.
#[inline]
pub(crate) fn find<'a>(
    document: Document<'a>,
    table: FieldTable<'a>,
    name: &str,
    _start: usize,
    end: usize,
) -> Option<(usize, Value<'a>)> {
    let text = document.text();
    let (index, start) = match table.find(text, name.as_bytes()) {
        Some(found) if is_plain(name.as_bytes()) => found,
        _ if crate::scan::string_stop(name.as_bytes(), 0) == name.len() => return None,
        _ => find_escaped(text, table, name)?,
    };
    Some((index, value_at(document, &table, index, start, end)?))
}

#[cold]
fn find_escaped(text: &[u8], table: FieldTable<'_>, name: &str) -> Option<(usize, usize)> {
    let mut stored = Vec::with_capacity(name.len() + 8);
    escape::append_escaped(&mut stored, name);
    table.find(text, &stored)
}

/// The value that begins at `start` and belongs to the field at `index` of the object that ends at `end`.
#[inline]
fn value_at<'a>(
    document: Document<'a>,
    table: &FieldTable<'a>,
    index: usize,
    start: usize,
    end: usize,
) -> Option<Value<'a>> {
    let value_end = if table.is_in_order() {
        table.position(index + 1).unwrap_or(end).checked_sub(1)?
    } else {
        value_end(document.text(), start)?
    };
    (start < value_end && value_end < document.text().len()).then(|| Value::new(document, start, value_end))
}
