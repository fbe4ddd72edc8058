//! Access to the members of an object or array: through a table if there is one, else by scanning.

use crate::document::StoredDocument;
use crate::escape;
use crate::key::FieldName;
use crate::lookup;
use crate::scan::string_stop;
use crate::table::{ElementTable, FieldTable, INNER_TEXT_MIN};
use crate::value::JsonValue;
use crate::walk::{Fields, Items};

impl<'a> JsonValue<'a> {
    /// The document and this value's range in its text, if it begins with `bracket`.
    #[inline]
    fn open(&self, bracket: u8) -> Option<(StoredDocument<'a>, usize, usize)> {
        if self.raw().first() != Some(&bracket) {
            return None;
        }
        let document = StoredDocument::from_bytes(self.bytes).ok()?;
        Some((document, document.place(self.start as usize), document.place(self.end as usize)))
    }

    /// The value of field `name`, if this is an object that has it.
    #[inline]
    pub fn field(&self, name: &str) -> Option<JsonValue<'a>> {
        let (document, start, end) = self.open(b'{')?;
        if let Some(table) = field_table(&document, start, end) {
            let found = lookup::find(document.text(), &table, name)?;
            return Some(document.value(found.start, found.end));
        }
        let fields = Fields::new(document, None, start, end);
        if string_stop(name.as_bytes(), 0) == name.len() {
            return fields.find(name.as_bytes());
        }
        let mut stored = Vec::with_capacity(name.len() + 8);
        escape::append_escaped(&mut stored, name.as_bytes());
        fields.find(&stored)
    }

    /// The same for a prepared name.
    #[inline]
    pub fn field_named(&self, name: &FieldName) -> Option<JsonValue<'a>> {
        let (document, start, end) = self.open(b'{')?;
        match field_table(&document, start, end) {
            Some(table) => table.find(document.text(), &name.key()).map(|found| document.value(found.start, found.end)),
            None => Fields::new(document, None, start, end).find(name.stored()),
        }
    }

    /// An object's fields in the order sent; none for any other value.
    pub fn fields(&self) -> Fields<'a> {
        match self.open(b'{') {
            Some((document, start, end)) => Fields::new(document, field_table(&document, start, end), start, end),
            None => Fields::empty(),
        }
    }

    /// An array's element `index`, from 0.
    pub fn element(&self, index: usize) -> Option<JsonValue<'a>> {
        let (document, start, end) = self.open(b'[')?;
        let first = (0, start + 1);
        let (known, at) = match element_table(&document, start, end) {
            Some(table) if index >= table.count => return None,
            Some(table) => table.nearest(index).unwrap_or(first),
            None => first,
        };
        Items::new(document, at, end).nth(index - known)
    }

    /// An array's elements; none for any other value.
    pub fn elements(&self) -> Items<'a> {
        self.open(b'[').map_or_else(Items::empty, |(document, start, end)| Items::new(document, start + 1, end))
    }

    /// Number of elements of an array, or of fields of an object; 0 for any other value.
    pub fn len(&self) -> usize {
        if let Some((document, start, end)) = self.open(b'{') {
            return field_table(&document, start, end).map_or_else(|| self.fields().count(), |table| table.count);
        }
        let Some((document, start, end)) = self.open(b'[') else { return 0 };
        element_table(&document, start, end).map_or_else(|| self.elements().count(), |table| table.count)
    }

    /// Whether [`len`](Self::len) is 0.
    pub fn is_empty(&self) -> bool {
        self.fields().next().is_none() && self.elements().next().is_none()
    }
}

/// The table of the object at `start..end` of the text, if it has one.
#[inline]
fn field_table<'a>(document: &StoredDocument<'a>, start: usize, end: usize) -> Option<FieldTable<'a>> {
    match start {
        0 => document.root_table(),
        _ if end - start < INNER_TEXT_MIN => None,
        _ => document.nested_tables().object(start, end),
    }
}

/// The table of the array at `start..end` of the text, if it has one.
#[inline]
fn element_table<'a>(document: &StoredDocument<'a>, start: usize, end: usize) -> Option<ElementTable<'a>> {
    if end - start < INNER_TEXT_MIN { None } else { document.nested_tables().array(start) }
}
