//! Iterating over the members of an object or array.

use crate::document::StoredDocument;
use crate::skip::{string_end, value_end};
use crate::table::FieldTable;
use crate::value::{JsonValue, StoredName};

/// The fields of an object, in the order sent.
#[derive(Clone)]
pub struct Fields<'a> {
    document: Option<StoredDocument<'a>>,
    /// If the table is in order, values need not be scanned, because each ends before the next field's position.
    table: Option<FieldTable<'a>>,
    index: usize,
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// Iterates over the object at `start..end` of the text.
    #[inline]
    pub(crate) fn new(document: StoredDocument<'a>, table: Option<FieldTable<'a>>, start: usize, end: usize) -> Self {
        let table = table.filter(FieldTable::is_in_order);
        Self { document: Some(document), table, index: 0, at: start + 1, end }
    }

    /// No fields.
    pub(crate) fn empty() -> Self {
        Self { document: None, table: None, index: 0, at: 0, end: 0 }
    }

    /// The value of the field whose key's stored form is `key`.
    pub(crate) fn find(mut self, key: &[u8]) -> Option<JsonValue<'a>> {
        loop {
            let (found, value) = self.step()?;
            if found == key {
                return Some(value);
            }
        }
    }

    /// The next key in its stored form, and its value.
    #[inline]
    fn step(&mut self) -> Option<(&'a [u8], JsonValue<'a>)> {
        let document = self.document.as_ref()?;
        let text = document.text().get(..self.end)?;
        if *text.get(self.at)? != b'"' {
            return None;
        }
        let key_end = string_end(text, self.at)?;
        let key = &text[self.at + 1..key_end - 1];
        let start = key_end + 1;
        let end = match &self.table {
            Some(table) => table.position(self.index + 1).unwrap_or(self.end).checked_sub(1)?,
            None => value_end(text, start)?,
        };
        // Prevents an endless loop if a damaged table points backwards.
        text.get(start..end)?;
        self.index += 1;
        self.at = end + 1;
        Some((key, document.value(start, end)))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (StoredName<'a>, JsonValue<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.step().map(|(key, value)| (StoredName::new(key), value))
    }
}

/// The elements of an array.
#[derive(Clone)]
pub struct Items<'a> {
    document: Option<StoredDocument<'a>>,
    at: usize,
    end: usize,
}

impl<'a> Items<'a> {
    /// Iterates over the array that ends at `end` of the text, from the element at `at` on.
    #[inline]
    pub(crate) fn new(document: StoredDocument<'a>, at: usize, end: usize) -> Self {
        Self { document: Some(document), at, end }
    }

    /// No elements.
    pub(crate) fn empty() -> Self {
        Self { document: None, at: 0, end: 0 }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = JsonValue<'a>;

    #[inline]
    fn next(&mut self) -> Option<JsonValue<'a>> {
        let document = self.document.as_ref()?;
        // Without the closing bracket: the text ends after the last element.
        let text = document.text().get(..self.end.checked_sub(1)?)?;
        let start = self.at;
        let end = value_end(text, start)?;
        self.at = end + 1;
        Some(document.value(start, end))
    }
}
