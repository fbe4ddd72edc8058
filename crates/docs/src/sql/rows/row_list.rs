//! Rows kept in memory one after the other, each as its fields (`values/sort.rs`).

use bumpalo::Bump;

use super::sink::RowSink;
use crate::sql::limits::{Fault, Meter};
use crate::sql::values::{FieldValue, OwnedValue, sort};

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct RowList {
    bytes: Vec<u8>,
    /// The end of each row.
    ends: Vec<usize>,
}

impl RowSink for RowList {
    fn field(&mut self, _column: usize, field: FieldValue<'_>) {
        sort::push_field(field, &mut self.bytes);
    }
    fn end_row(&mut self) {
        self.ends.push(self.bytes.len());
    }
    fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }
}

impl RowList {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of the rows' fields.
    pub(crate) fn field_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn row(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.ends.get(number).and_then(|&end| self.bytes.get(start..end)).unwrap_or_default()
    }

    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }

    /// The first `columns` columns of the first row; NULL for those that `is_wanted` excludes. `None` if there is no row.
    pub(crate) fn first(
        &self,
        columns: usize,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Result<Option<Vec<OwnedValue>>, Fault> {
        let Some(mut row) = self.rows().next() else { return Ok(None) };
        let arena = Bump::new();
        let values = (0..columns).map(|column| match sort::take_field(&mut row) {
            field if is_wanted(column) => field.decode_kept(&arena).map(|value| OwnedValue::new(&value)),
            _ => Ok(OwnedValue::Null),
        });
        values.collect::<Result<_, Fault>>().map(Some)
    }

    /// Passes the first `rows_max` rows, each of `columns` columns, to a sink.
    pub(crate) fn give(&self, rows_max: usize, columns: usize, sink: &mut dyn RowSink) {
        for mut row in self.rows().take(rows_max) {
            sink.begin_row();
            (0..columns).for_each(|column| sink.field(column, sort::take_field(&mut row)));
            sink.end_row();
        }
    }

    /// Empties it and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Keeps only the first `rows` rows.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Keeps only the rows for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize) -> bool, meter: &Meter<'_>) -> Result<(), Fault> {
        let (mut start, mut kept, mut rows) = (0, 0, 0);
        for number in 0..self.ends.len() {
            let end = self.ends[number];
            meter.tick(1)?;
            if keep(number) {
                meter.tick_bytes(end - start)?;
                self.bytes.copy_within(start..end, kept);
                kept += end - start;
                self.ends[rows] = kept;
                rows += 1;
            }
            start = end;
        }
        self.truncate(rows);
        Ok(())
    }
}
