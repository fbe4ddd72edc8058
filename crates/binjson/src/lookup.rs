//! Finding a field of a document's root object, by name or at its last known index.

use crate::document::StoredDocument;
use crate::escape;
use crate::hash::key_hash;
use crate::key::{FieldName, Key};
use crate::scan::string_stop;
use crate::table::{FieldTable, Found, LINEAR_FIELDS_MAX, number_at};
use crate::value::JsonValue;
use crate::walk::Fields;

/// Remembers a field's index in earlier documents. If documents have the same shape, the next lookup is one comparison. The key
/// is compared each time, so a document of another shape, or another name, costs a search but never gives a wrong result.
///
/// There are four slots, chosen by the number of fields: if some fields are missing occasionally, documents with the same
/// number of fields mostly agree about the others' indexes. A fingerprint of the names would choose better, but cost more to
/// compute than the search that it saves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FieldCache {
    indexes: [u16; FIELD_CACHE_SLOTS],
}

const FIELD_CACHE_SLOTS: usize = 4;

impl FieldCache {
    /// The field's index in the last document with the same slot.
    #[inline(always)]
    fn index(&self, count: u32) -> usize {
        usize::from(self.indexes[count as usize % FIELD_CACHE_SLOTS])
    }

    /// Stores an index. One that does not fit becomes 0, which costs nothing: fields of such large objects are found through
    /// buckets.
    #[inline]
    fn remember(&mut self, count: u32, index: usize) {
        self.indexes[count as usize % FIELD_CACHE_SLOTS] = u16::try_from(index).unwrap_or_default();
    }
}

/// A fingerprint of the names and the order of a root object's fields. Documents of one shape have equal fingerprints; equal
/// fingerprints are only a hint, as names may collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape(u64);

impl<'a> StoredDocument<'a> {
    /// The value of the root object's field `name`.
    #[inline]
    pub fn field(&self, name: &str) -> Option<JsonValue<'a>> {
        match find(self.text(), &self.root_table()?, name) {
            Some(found) => Some(self.value(found.start, found.end)),
            None => self.mark_named(name),
        }
    }

    /// The same; tries the index in `cache` first.
    #[inline]
    pub fn field_cached(&self, name: &str, cache: &mut FieldCache) -> Option<JsonValue<'a>> {
        let (table, key) = (self.root_table()?, Key::new(name.as_bytes()));
        match table.find_at(cache.index(self.count), self.text(), &key) {
            Some(found) if key.is_plain_where_found() => Some(self.value(found.start, found.end)),
            _ => field_searched(self.bytes, name, cache),
        }
    }

    /// The same for a prepared name: the fastest way to read one field of many documents.
    #[inline]
    pub fn field_named(&self, name: &FieldName, cache: &mut FieldCache) -> Option<JsonValue<'a>> {
        let table = self.root_table()?;
        match table.find_at(cache.index(self.count), self.text(), &name.key()) {
            Some(found) => Some(self.value(found.start, found.end)),
            None => named_field_searched(self.bytes, name, cache),
        }
    }

    /// The JSON text of the root object's field `name`; empty if there is none. Does not build a view of the table for small
    /// documents of one shape. For queries, which read one or two fields of many documents.
    #[inline(always)]
    pub fn raw_named(&self, name: &FieldName, cache: &mut FieldCache) -> &'a [u8] {
        let found = match self.width {
            1 => self.raw_at::<1>(name, cache.index(self.count)),
            2 => self.raw_at::<2>(name, cache.index(self.count)),
            _ => None,
        };
        found.unwrap_or_else(|| raw_searched(self.bytes, name, cache))
    }

    /// The text of the field at `index` of a table in order, if it has this name. A root that is not an object has no field.
    #[inline(always)]
    fn raw_at<const W: usize>(&self, name: &FieldName, index: usize) -> Option<&'a [u8]> {
        let count = self.count as usize;
        if index >= count || count > LINEAR_FIELDS_MAX {
            return None;
        }
        let place = self.table_at as usize + count + index * W;
        let position = number_at::<W>(self.bytes, place)?;
        let text = self.bytes.get(self.text_at as usize..)?;
        let key = name.key();
        if !key.begins(text.get(position..)?) {
            return None;
        }
        let next = if index + 1 < count { number_at::<W>(self.bytes, place + W)? } else { text.len() };
        text.get(position + key.len() + 3..next.checked_sub(1)?).filter(|value| !value.is_empty())
    }

    /// The root object's fields in the order sent; none for any other root.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        match self.root_table() {
            Some(table) => Fields::new(*self, Some(table), 0, self.text().len()),
            None => Fields::empty(),
        }
    }

    /// The fingerprint of the fields' names and order.
    pub fn shape(&self) -> Shape {
        let bytes = self.root_table().map(|table| table.fingerprint_bytes()).unwrap_or_default();
        Shape(u64::from(self.count) << 32 | u64::from(key_hash(bytes)))
    }
}

/// The text of a field that was not at the expected index.
#[cold]
#[inline(never)]
fn raw_searched<'a>(bytes: &'a [u8], name: &FieldName, cache: &mut FieldCache) -> &'a [u8] {
    let document = StoredDocument::from_bytes(bytes).ok();
    document.and_then(|document| document.field_named(name, cache)).map_or(&[], |value| value.raw())
}

/// Looks `name` up in the root and caches its index. A separate function that gets only the bytes: with a reference to the
/// document, the cached lookup would have to write the document to memory.
#[cold]
#[inline(never)]
fn field_searched<'a>(bytes: &'a [u8], name: &str, cache: &mut FieldCache) -> Option<JsonValue<'a>> {
    let document = StoredDocument::from_bytes(bytes).ok()?;
    let Some(found) = find(document.text(), &document.root_table()?, name) else { return document.mark_named(name) };
    cache.remember(document.count, found.index);
    Some(document.value(found.start, found.end))
}

/// The same for a prepared name.
#[cold]
#[inline(never)]
fn named_field_searched<'a>(bytes: &'a [u8], name: &FieldName, cache: &mut FieldCache) -> Option<JsonValue<'a>> {
    let document = StoredDocument::from_bytes(bytes).ok()?;
    let Some(found) = document.root_table()?.find(document.text(), &name.key()) else {
        return document.mark_prepared(name);
    };
    cache.remember(document.count, found.index);
    Some(document.value(found.start, found.end))
}

/// Looks `name` up in an object's table.
#[inline]
pub(crate) fn find(text: &[u8], table: &FieldTable<'_>, name: &str) -> Option<Found> {
    let key = Key::new(name.as_bytes());
    match table.find(text, &key) {
        Some(found) if key.is_plain_where_found() => Some(found),
        _ if string_stop(name.as_bytes(), 0) == name.len() => None,
        _ => find_escaped(text, table, name),
    }
}

#[cold]
#[inline(never)]
fn find_escaped(text: &[u8], table: &FieldTable<'_>, name: &str) -> Option<Found> {
    let mut stored = Vec::with_capacity(name.len() + 8);
    escape::append_escaped(&mut stored, name.as_bytes());
    table.find(text, &Key::new(&stored))
}
