//! Rows kept in memory: those to be sorted, and the keys of groups. One buffer of bytes, bounded by the execution.
//!
//! ```text
//!  row:   sort key (bytes that compare as the rows do) | fields
//!  field: tag (0 JSON, 1 NULL, 2 integer, 3 real, 4 text) | 8 bytes, or length (u32) and bytes
//! ```

use super::error::Fault;
use super::value::{Field, Value};
use crate::order;

/// Ends each value of a sort key: below any tail that an encoding may go on with, so that equal numbers stay equal
/// whatever follows, rising or falling.
const VALUE_END: u8 = 0x01;

/// Appends a value so that bytes compare as values do.
pub(crate) fn push_key(value: Value<'_>, falling: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    let start = out.len();
    order::lower(value.scalar().ok_or(Fault::Damaged("a text"))?, out);
    out.push(VALUE_END);
    if falling {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Appends a field.
pub(crate) fn push_field(field: Field<'_>, out: &mut Vec<u8>) {
    let mut bytes = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match field {
        Field::Json(json) => bytes(0, json),
        Field::Value(Value::Text(text)) => bytes(4, text),
        Field::Value(Value::Null) => out.push(1),
        Field::Value(Value::Integer(integer)) => {
            out.push(2);
            out.extend_from_slice(&integer.to_le_bytes());
        }
        Field::Value(Value::Real(real)) => {
            out.push(3);
            out.extend_from_slice(&real.to_bits().to_le_bytes());
        }
    }
}

/// Takes a field off the front; these bytes are always our own.
pub(crate) fn take_field<'a>(bytes: &mut &'a [u8]) -> Field<'a> {
    let Some((&tag, rest)) = bytes.split_first() else { return Field::Value(Value::Null) };
    *bytes = rest;
    let mut word = |length: usize| {
        let (word, rest) = bytes.split_at(length.min(bytes.len()));
        *bytes = rest;
        word
    };
    match tag {
        0 | 4 => {
            let length = word(4).try_into().map_or(0, u32::from_le_bytes);
            let text = word(length as usize);
            if tag == 0 { Field::Json(text) } else { Field::Value(Value::Text(text)) }
        }
        2 => Field::Value(Value::Integer(word(8).try_into().map_or(0, i64::from_le_bytes))),
        3 => Field::Value(Value::Real(word(8).try_into().map_or(0.0, |b| f64::from_bits(u64::from_le_bytes(b))))),
        _ => Field::Value(Value::Null),
    }
}

/// Rows to be sorted.
#[derive(Debug, Default)]
pub(crate) struct SortBuffer {
    bytes: Vec<u8>,
    rows: Vec<SortRow>,
}

#[derive(Clone, Copy, Debug)]
struct SortRow {
    start: usize,
    fields: usize,
    end: usize,
}

impl SortRow {
    fn behind(self, by: usize) -> SortRow {
        SortRow { start: self.start + by, fields: self.fields + by, end: self.end + by }
    }
}

impl SortBuffer {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    /// Where the next row's sort key goes, and after it, once [`Self::end_key`] was called, its fields.
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    pub(crate) fn begin(&mut self) {
        let at = self.bytes.len();
        self.rows.push(SortRow { start: at, fields: at, end: at });
    }

    pub(crate) fn end_key(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.fields = self.bytes.len();
        }
    }

    /// Ends the row. Where only `keep` rows are wanted, the others go as soon as they are as many again.
    pub(crate) fn end(&mut self, keep: Option<usize>) {
        if let Some(row) = self.rows.last_mut() {
            row.end = self.bytes.len();
        }
        if let Some(keep) = keep
            && self.rows.len() >= keep.saturating_mul(2).max(64)
        {
            self.keep(keep);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of the rows alone.
    pub(crate) fn row_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<SortRow>()
    }

    /// Puts the rows of another behind its own; see [`Self::end`] for `keep`.
    pub(crate) fn append(&mut self, other: SortBuffer, keep: Option<usize>) {
        if self.rows.is_empty() {
            *self = other;
            return;
        }
        let by = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.rows.extend(other.rows.into_iter().map(|row| row.behind(by)));
        if let Some(keep) = keep
            && self.rows.len() >= keep.saturating_mul(2).max(64)
        {
            self.keep(keep);
        }
    }

    fn keep(&mut self, keep: usize) {
        self.sort();
        self.rows.truncate(keep);
        let mut kept = Vec::with_capacity(self.bytes.len() / 2);
        for row in &mut self.rows {
            let start = kept.len();
            kept.extend_from_slice(&self.bytes[row.start..row.end]);
            *row = SortRow { start, fields: start + (row.fields - row.start), end: kept.len() };
        }
        self.bytes = kept;
    }

    /// Sorts the rows; those with equal keys keep the order in which they came.
    pub(crate) fn sort(&mut self) {
        let bytes = &self.bytes;
        self.rows.sort_by(|a, b| bytes[a.start..a.fields].cmp(&bytes[b.start..b.fields]));
    }

    /// The rows' keys and fields, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|row| (&self.bytes[row.start..row.fields], &self.bytes[row.fields..row.end]))
    }
}
