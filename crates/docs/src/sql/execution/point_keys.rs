//! The encoded values of points, and an iteration over their combinations.
//!
//! Values are pushed field by field. [`PointKeys::end_field`] sorts the values of the field and removes duplicates. The
//! iteration returns all combinations in the order of an index over these fields, forwards or backwards.

use crate::engine::Direction;
use crate::sql::limits::{Fault, Meter};
use crate::sql::values::sort::sort_in_pieces;

/// Larger memory is released before the next execution.
const BYTES_KEPT_MAX: usize = 64 << 10;

/// See the module documentation. Small memory is kept for the next execution.
#[derive(Default)]
pub(super) struct PointKeys {
    bytes: Vec<u8>,
    /// The place of each value in `bytes`; those of a field are sorted.
    values: Vec<(usize, usize)>,
    /// The end of each field's values.
    fields: Vec<usize>,
    /// The current value of each field.
    at: Vec<usize>,
    /// Suffixes for the lower and the upper end, from the bounds of the next field.
    pub(super) low: Vec<u8>,
    pub(super) high: Vec<u8>,
}

impl PointKeys {
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() + self.values.capacity() * size_of::<(usize, usize)>() > BYTES_KEPT_MAX {
            *self = PointKeys::default();
        }
        self.bytes.clear();
        self.values.clear();
        self.fields.clear();
        self.at.clear();
        self.low.clear();
        self.high.clear();
    }

    /// Adds the value that `encode` appends, unless it returns false.
    pub(super) fn push<E>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> Result<bool, E>) -> Result<(), E> {
        let start = self.bytes.len();
        if encode(&mut self.bytes)? {
            self.values.push((start, self.bytes.len()));
        }
        Ok(())
    }

    /// Completes a field. Returns whether it has values.
    pub(super) fn end_field(&mut self, meter: &Meter<'_>) -> Result<bool, Fault> {
        let start = self.fields.last().copied().unwrap_or(0);
        let bytes = &self.bytes;
        let value = |place: &(usize, usize)| &bytes[place.0..place.1];
        sort_in_pieces(&mut self.values[start..], value, meter)?;
        let mut kept = start;
        for place in start..self.values.len() {
            if place == start || value(&self.values[place]) != value(&self.values[kept - 1]) {
                self.values[kept] = self.values[place];
                kept += 1;
            }
        }
        self.values.truncate(kept);
        self.fields.push(kept);
        Ok(kept > start)
    }

    /// Their bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.values.len() * size_of::<(usize, usize)>()
    }

    fn ends(&self, field: usize) -> (usize, usize) {
        let start = field.checked_sub(1).map_or(0, |before| self.fields[before]);
        (start, self.fields[field] - 1)
    }

    /// Advances to the next combination; the first call goes to the first one. Returns whether there is one.
    pub(super) fn advance(&mut self, direction: Direction) -> bool {
        let forward = direction == Direction::Forward;
        let first = |(low, high): (usize, usize)| if forward { low } else { high };
        if self.at.is_empty() {
            let starts = (0..self.fields.len()).map(|field| first(self.ends(field)));
            self.at = starts.collect();
            return !self.at.is_empty();
        }
        for field in (0..self.fields.len()).rev() {
            let (low, high) = self.ends(field);
            let last = if forward { high } else { low };
            if self.at[field] != last {
                self.at[field] = if forward { self.at[field] + 1 } else { self.at[field] - 1 };
                return true;
            }
            self.at[field] = first((low, high));
        }
        false
    }

    /// Appends the values of the current combination.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        for place in &self.at {
            let (start, end) = self.values[*place];
            out.extend_from_slice(&self.bytes[start..end]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: &[&[&str]], direction: Direction, expected: &[&str]) {
        let mut keys = PointKeys::default();
        // Twice: leftovers of one iteration must not affect the next.
        for _ in 0..2 {
            keys.clear();
            let some = fields.iter().all(|values| {
                values.iter().for_each(|value| {
                    let pushed = keys.push(|out| {
                        out.extend_from_slice(value.as_bytes());
                        Ok::<bool, ()>(*value != "none")
                    });
                    assert!(pushed.is_ok());
                });
                keys.end_field(&Meter::unbounded()).unwrap_or(false)
            });
            let mut found = Vec::new();
            while some && keys.advance(direction) {
                let mut out = Vec::new();
                keys.append(&mut out);
                found.push(String::from_utf8(out).expect("text"));
            }
            assert_eq!(found, expected, "{fields:?}");
        }
    }

    #[test]
    fn combinations_come_in_order_and_none_twice() {
        check(&[&["b", "a", "b", "none", "a"]], Direction::Forward, &["a", "b"]);
        check(
            &[&["b", "a"], &["x"], &["2", "1", "3"]],
            Direction::Forward,
            &["ax1", "ax2", "ax3", "bx1", "bx2", "bx3"],
        );
        check(&[&["b", "a"], &["x", "y"]], Direction::Backward, &["by", "bx", "ay", "ax"]);
        check(&[&["a"], &["none"]], Direction::Forward, &[]);
        check(&[&["a"], &[]], Direction::Forward, &[]);
    }
}
