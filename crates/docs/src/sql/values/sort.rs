//! Rows kept in memory for sorting, and the encoding of keys and fields. One buffer of bytes, limited by the execution.
//!
//! ```text
//!  row:   sort key (bytes that compare as the rows do) | fields
//!  field: tag (0 JSON, 1 NULL, 2 integer, 3 real, 4 text) | 8 bytes, or length (u32) and bytes
//! ```

use super::value::{FieldValue, Value};
use crate::encoding::order;
use crate::sql::limits::{Fault, Meter};

/// Ends each value of a sort key. It is below any byte that may continue an encoding, so that equal numbers stay equal whatever
/// follows, ascending or descending.
const VALUE_END: u8 = 0x01;

/// Rows that are sorted without a check of the deadline: a few milliseconds.
const PIECE_ROWS: usize = 4096;

/// Appends a value so that bytes compare as values do.
pub(crate) fn push_key(value: Value<'_>, falling: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    let start = out.len();
    order::lower(value.scalar().ok_or(Fault::NotUtf8)?, out);
    out.push(VALUE_END);
    if falling {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Appends a field.
pub(crate) fn push_field(field: FieldValue<'_>, out: &mut Vec<u8>) {
    let mut bytes = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    match field {
        FieldValue::Json(json) => bytes(0, json),
        FieldValue::Value(Value::Text(text)) => bytes(4, text),
        FieldValue::Value(Value::Null) => out.push(1),
        FieldValue::Value(Value::Integer(integer)) => {
            out.push(2);
            out.extend_from_slice(&integer.to_le_bytes());
        }
        FieldValue::Value(Value::Real(real)) => {
            out.push(3);
            out.extend_from_slice(&real.to_bits().to_le_bytes());
        }
    }
}

/// Decodes a field from the front. The bytes were always written by [`push_field`].
pub(crate) fn take_field<'a>(bytes: &mut &'a [u8]) -> FieldValue<'a> {
    let Some((&tag, rest)) = bytes.split_first() else { return FieldValue::Value(Value::Null) };
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
            if tag == 0 { FieldValue::Json(text) } else { FieldValue::Value(Value::Text(text)) }
        }
        2 => FieldValue::Value(Value::Integer(word(8).try_into().map_or(0, i64::from_le_bytes))),
        3 => FieldValue::Value(Value::Real(word(8).try_into().map_or(0.0, |b| f64::from_bits(u64::from_le_bytes(b))))),
        _ => FieldValue::Value(Value::Null),
    }
}

/// A key for sorting rows.
pub(in crate::sql) trait SortKey: Ord {
    /// The bytes that a comparison reads.
    fn bytes(&self) -> usize;
}

impl SortKey for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl SortKey for u32 {
    fn bytes(&self) -> usize {
        size_of::<u32>()
    }
}

impl SortKey for u64 {
    fn bytes(&self) -> usize {
        size_of::<u64>()
    }
}

/// Merges two sorted lists; of equal rows those of the left come first.
fn merge<T: Copy, K: SortKey>(
    (mut left, mut right): (&[T], &[T]),
    key: impl Fn(&T) -> K,
    merged: &mut Vec<T>,
    meter: &Meter<'_>,
) -> Result<(), Fault> {
    if let (Some(last), Some(first)) = (left.last(), right.first())
        && key(last) > key(first)
    {
        while let ([one, ones @ ..], [other, others @ ..]) = (left, right) {
            meter.tick(1)?;
            meter.tick_bytes(key(one).bytes().min(key(other).bytes()))?;
            if key(other) < key(one) {
                merged.push(*other);
                right = others;
            } else {
                merged.push(*one);
                left = ones;
            }
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
    Ok(())
}

/// Sorts by keys; rows with equal keys keep their order. Long lists are sorted in pieces that are then merged, because the
/// deadline cannot be checked within a sort.
pub(in crate::sql) fn sort_in_pieces<T: Copy, K: SortKey>(
    rows: &mut [T],
    key: impl Fn(&T) -> K,
    meter: &Meter<'_>,
) -> Result<(), Fault> {
    for piece in rows.chunks_mut(PIECE_ROWS) {
        meter.tick(piece.len() as u64)?;
        piece.sort_by_key(&key);
    }
    let (mut merged, mut length) = (Vec::new(), PIECE_ROWS);
    while length < rows.len() {
        merged.clear();
        merged.reserve_exact(rows.len());
        for pair in rows.chunks(2 * length) {
            let (left, right) = pair.split_at(length.min(pair.len()));
            merge((left, right), &key, &mut merged, meter)?;
        }
        rows.copy_from_slice(&merged);
        length *= 2;
    }
    Ok(())
}

/// Rows to sort.
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

    /// The buffer for the next row's sort key, and after [`Self::end_key`] for its fields.
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

    /// Ends the row. If only `keep` rows are wanted, the others are dropped whenever the buffer has twice as many rows.
    pub(crate) fn end(&mut self, keep: Option<usize>, meter: &Meter<'_>) -> Result<(), Fault> {
        if let Some(row) = self.rows.last_mut() {
            row.end = self.bytes.len();
        }
        self.drop_unwanted(keep, meter)
    }

    /// Adds a row, given as the pieces of its key and of its fields; see [`Self::end`] for `keep`.
    pub(crate) fn push(
        &mut self,
        key: &[&[u8]],
        fields: &[&[u8]],
        keep: Option<usize>,
        meter: &Meter<'_>,
    ) -> Result<(), Fault> {
        self.begin();
        key.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        self.end_key();
        fields.iter().for_each(|piece| self.bytes.extend_from_slice(piece));
        self.end(keep, meter)
    }

    /// Removes the row that was begun last.
    pub(crate) fn cancel(&mut self) {
        if let Some(row) = self.rows.pop() {
            self.bytes.truncate(row.start);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of the rows' keys and fields.
    pub(crate) fn row_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes in memory.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<SortRow>()
    }

    /// Appends another's rows to its own; see [`Self::end`] for `keep`.
    pub(crate) fn append(&mut self, other: SortBuffer, keep: Option<usize>, meter: &Meter<'_>) -> Result<(), Fault> {
        if self.rows.is_empty() {
            *self = other;
            return Ok(());
        }
        let by = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.rows.extend(other.rows.into_iter().map(|row| row.behind(by)));
        self.drop_unwanted(keep, meter)
    }

    fn drop_unwanted(&mut self, keep: Option<usize>, meter: &Meter<'_>) -> Result<(), Fault> {
        match keep {
            Some(keep) if self.rows.len() >= keep.saturating_mul(2).max(64) => self.keep(keep, meter),
            _ => Ok(()),
        }
    }

    fn keep(&mut self, keep: usize, meter: &Meter<'_>) -> Result<(), Fault> {
        self.sort(meter)?;
        self.rows.truncate(keep);
        let mut kept = Vec::with_capacity(self.bytes.len() / 2);
        for row in &mut self.rows {
            let start = kept.len();
            kept.extend_from_slice(&self.bytes[row.start..row.end]);
            *row = SortRow { start, fields: start + (row.fields - row.start), end: kept.len() };
        }
        self.bytes = kept;
        Ok(())
    }

    /// Sorts the rows; those with equal keys keep their order.
    pub(crate) fn sort(&mut self, meter: &Meter<'_>) -> Result<(), Fault> {
        let bytes = &self.bytes;
        sort_in_pieces(&mut self.rows, |row| &bytes[row.start..row.fields], meter)
    }

    /// Releases the memory if it exceeds `bytes_max`, with the rows.
    pub(crate) fn shrink(&mut self, bytes_max: usize) {
        if self.bytes.capacity() + self.rows.capacity() * size_of::<SortRow>() > bytes_max {
            *self = SortBuffer::default();
        }
    }

    /// The rows' keys and fields, in order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.rows.iter().map(|row| (&self.bytes[row.start..row.fields], &self.bytes[row.fields..row.end]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows with these numbers as keys come in the order of a stable sort.
    #[track_caller]
    fn check(keys: impl Iterator<Item = u32>) {
        let (mut buffer, meter, mut expected) = (SortBuffer::default(), Meter::unbounded(), Vec::new());
        for (number, key) in keys.enumerate() {
            assert_eq!(buffer.push(&[&key.to_be_bytes()], &[&number.to_be_bytes()], None, &meter), Ok(()));
            expected.push((key.to_be_bytes(), number.to_be_bytes()));
        }
        assert_eq!(buffer.sort(&meter), Ok(()));
        expected.sort_by_key(|(key, _)| *key);
        let expected = expected.iter().map(|(key, fields)| (&key[..], &fields[..]));
        assert!(buffer.entries().eq(expected), "{} rows", buffer.rows.len());
    }

    #[test]
    fn pieces_are_merged_and_equal_rows_keep_their_order() {
        let piece = PIECE_ROWS as u32;
        for rows in [0, 1, piece - 1, piece, piece + 1, 2 * piece, 5 * piece + 7] {
            check((0..rows).map(|row| row.wrapping_mul(2_654_435_761) % 1_000));
            check(0..rows);
            check((0..rows).rev());
            check((0..rows).map(|_| 7));
        }
    }
}
