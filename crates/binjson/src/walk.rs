//! Walking over JSON text: skipping values, and going through the members of an object or array.
//!
//! Whitespace between tokens is allowed, because texts as sent are walked too (`split.rs`). Nothing recurses: what is
//! skipped is only counted, so damaged bytes cost at most one pass over the text.

use crate::document::Document;
use crate::scan::{string_stop, structure_stop};
use crate::table::FieldTable;
use crate::value::{Str, Value};

/// The place behind the string whose opening quote is at `at`.
#[inline]
pub(crate) fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut stop = string_stop(text, at + 1);
    loop {
        match text.get(stop)? {
            b'"' => return Some(stop + 1),
            b'\\' => stop = string_stop(text, stop + 2),
            _ => return None,
        }
    }
}

/// The place behind the value that begins at `at`.
#[inline]
pub(crate) fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => container_end(text, at),
        _ => {
            let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b':' | b'"' | b' ' | b'\t' | b'\n' | b'\r');
            let len = text[at..].iter().position(ends).unwrap_or(text.len() - at);
            (len > 0).then_some(at + len)
        }
    }
}

fn container_end(text: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = open;
    loop {
        at = structure_stop(text, at)?;
        match text[at] {
            b'"' => at = string_end(text, at)?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            _ => {
                depth -= 1;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
    }
}

/// The place of the first byte at or behind `at` that is no whitespace.
#[inline]
pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The fields of an object, in the order sent.
#[derive(Clone)]
pub struct Fields<'a> {
    document: Document<'a>,
    /// With a table in order, values need not be skipped: the next field's position ends them.
    table: Option<FieldTable<'a>>,
    index: usize,
    at: usize,
    end: usize,
}

impl<'a> Fields<'a> {
    /// Over the object that takes `start..end` of the text.
    #[inline]
    pub(crate) fn new(document: Document<'a>, table: Option<FieldTable<'a>>, start: usize, end: usize) -> Self {
        Self { document, table: table.filter(FieldTable::is_in_order), index: 0, at: start + 1, end }
    }

    /// The next key and the range of its value.
    #[inline]
    pub(crate) fn next_range(&mut self) -> Option<(&'a [u8], usize, usize)> {
        let text = self.document.text().get(..self.end)?;
        if *text.get(self.at)? != b'"' {
            return None;
        }
        let key_end = string_end(text, self.at)?;
        let key = &text[self.at + 1..key_end - 1];
        let value = key_end + 1;
        let value_end = match &self.table {
            Some(table) => table.position(self.index + 1).unwrap_or(self.end).checked_sub(1)?,
            None => value_end(text, value)?,
        };
        text.get(value..value_end)?;
        self.index += 1;
        self.at = value_end + 1;
        Some((key, value, value_end))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (Str<'a>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (key, start, end) = self.next_range()?;
        Some((Str::new(key), Value::new(self.document, start, end)))
    }
}

/// The elements of an array.
#[derive(Clone)]
pub struct Items<'a> {
    document: Document<'a>,
    at: usize,
    end: usize,
}

impl<'a> Items<'a> {
    /// Over the array that takes `start..end` of the text, from the element at `at` on.
    pub(crate) fn new(document: Document<'a>, at: usize, end: usize) -> Self {
        Self { document, at, end }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        // Without the closing bracket: behind the last element the text ends.
        let text = self.document.text().get(..self.end.checked_sub(1)?)?;
        let start = self.at;
        let end = value_end(text, start)?;
        self.at = end + 1;
        Some(Value::new(self.document, start, end))
    }
}
