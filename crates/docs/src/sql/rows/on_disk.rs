//! Rows kept for a join on disk: all of them in sequence, and for each hash a copy sorted by its key.
//!
//! A sorted run is looked up through marks in memory: the key and the place of an entry at intervals. If the marks take too
//! much memory, every second one is dropped, and a lookup reads twice as far. The rows of a key come in the order in which they
//! were kept, as from a hash in memory; a lookup reads about [`MARK_BYTES`].

use super::runs::Runs;
use super::sorter::Sorter;
use crate::sql::limits::{Budget, QueryError};

/// Divisor of the execution's memory: the share for rows that wait to be written, and for rows that are being sorted.
const WAITING_PARTS: usize = 2;
/// Divisor of the execution's memory: the share for the marks of a sorted run.
const MARKS_PARTS: usize = 8;
/// Bytes of entries between two marks, if there is memory for so many marks.
const MARK_BYTES: u64 = 16 << 10;
/// Estimate of a mark's bytes besides its key.
const MARK_OVERHEAD_BYTES: usize = 48;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct OnDisk {
    rows: Runs,
    len: usize,
    sorted: Vec<Sorted>,
}

/// Rows sorted by a key.
#[derive(Debug, Default)]
struct Sorted {
    run: Runs,
    marks: Vec<(Box<[u8]>, u64)>,
    marks_bytes: usize,
}

/// Most bytes of rows in memory, beyond which they are spilled.
pub(super) fn waiting_max(budget: &Budget<'_>) -> usize {
    budget.memory_bytes_max / WAITING_PARTS
}

impl OnDisk {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes in memory.
    pub(super) fn size(&self) -> usize {
        self.sorted.iter().map(|sorted| sorted.marks_bytes).sum()
    }

    /// Appends rows.
    pub(super) fn write<'r>(
        &mut self,
        mut rows: impl ExactSizeIterator<Item = &'r [u8]>,
        budget: &Budget<'_>,
    ) -> Result<(), QueryError> {
        self.len += rows.len();
        let mut run = self.rows.begin(budget)?;
        rows.try_for_each(|row| run.push(&[], row))?;
        run.end()
    }

    /// Visits all rows in their order. `block` is the read buffer.
    pub(in crate::sql) fn each<E: From<QueryError>>(
        &self,
        block: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rows.readers().try_for_each(|mut reader| {
            reader.read_into(block);
            let mut all = || {
                while reader.advance()? {
                    visit(reader.payload())?;
                }
                Ok(())
            };
            let visited = all();
            *block = reader.into_block();
            visited
        })
    }

    /// Visits the rows with a key in one of the sorted runs.
    pub(in crate::sql) fn each_with<E: From<QueryError>>(
        &self,
        (way, key): (usize, &[u8]),
        block: &mut Vec<u8>,
        mut visit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(sorted) = self.sorted.get(way) else { return Err(QueryError::Plan.into()) };
        // The first entry with the key may precede the first mark with it.
        let mark = sorted.marks.partition_point(|(marked, _)| **marked < *key).saturating_sub(1);
        let place = sorted.marks.get(mark).map_or(0, |(_, place)| *place);
        let Some(mut reader) = sorted.run.readers().next() else { return Ok(()) };
        reader.begin_at(place);
        reader.read_into(block);
        let mut all = || {
            while reader.advance()? && reader.key() <= key {
                if reader.key() == key {
                    visit(reader.payload())?;
                }
            }
            Ok(())
        };
        let visited = all();
        *block = reader.into_block();
        visited
    }

    /// Adds rows sorted by a key, as one run.
    pub(super) fn add(&mut self, mut rows: Sorter, budget: &Budget<'_>) -> Result<(), QueryError> {
        let marks_max = budget.memory_bytes_max / MARKS_PARTS;
        let mut sorted = Sorted::default();
        let mut run = sorted.run.begin(budget)?;
        let (mut step, mut marked) = (MARK_BYTES, 0);
        rows.each(None, budget, |key, row| {
            let place = run.place();
            if sorted.marks.is_empty() || place - marked >= step {
                sorted.marks_bytes += key.len() + MARK_OVERHEAD_BYTES;
                sorted.marks.push((key.into(), place));
                marked = place;
            }
            if sorted.marks_bytes > marks_max && sorted.marks.len() > 1 {
                let mut number = 0;
                sorted.marks.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                sorted.marks_bytes = sorted.marks.iter().map(|(key, _)| key.len() + MARK_OVERHEAD_BYTES).sum();
                step *= 2;
            }
            run.push(key, row)
        })?;
        run.end()?;
        self.sorted.push(sorted);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sql::limits::{Meter, SpillSpace};

    /// Checks that the rows of each key are found, in their order, with however little memory for marks; returns the marks'
    /// bytes.
    fn check(keys: u32, rows: u32, memory: usize) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let space = Arc::new(SpillSpace::new(folder.path(), 1 << 30));
        let budget = Budget { memory_bytes_max: memory, spill: Some(&space), ..Budget::default() };
        let (mut disk, mut sorting, mut block) = (OnDisk::default(), Sorter::default(), Vec::new());
        let row = |number: u32| [&number.to_be_bytes()[..], &[7; 60]].concat();
        let all: Vec<Vec<u8>> = (0..rows).map(row).collect();
        all.chunks(100).try_for_each(|rows| disk.write(rows.iter().map(Vec::as_slice), &budget)).unwrap();
        for (number, row) in (0..rows).zip(&all) {
            let key = (number * 7_919 % keys * 2).to_be_bytes();
            sorting.buffer().push(&[&key], &[row], None, &Meter::unbounded()).unwrap();
            sorting.make_room(waiting_max(&budget), &budget).unwrap();
        }
        disk.add(sorting, &budget).unwrap();
        let mut found = Vec::new();
        let visited = disk.each(&mut block, |row| -> Result<(), QueryError> {
            found.push(row.to_vec());
            Ok(())
        });
        visited.unwrap();
        assert!(found == all && disk.len() == all.len(), "{} of {} rows", found.len(), all.len());
        // No rows are found between two keys, below the first and above the last.
        for key in 0..2 * keys + 1 {
            let (mut found, sought) = (Vec::new(), key.to_be_bytes());
            let visited = disk.each_with((0, &sought), &mut block, |row| -> Result<(), QueryError> {
                found.push(row.to_vec());
                Ok(())
            });
            visited.unwrap();
            let expected = (0..rows).filter(|number| number * 7_919 % keys * 2 == key).map(row);
            assert!(found.into_iter().eq(expected), "key {key}");
        }
        disk.size()
    }

    #[test]
    fn rows_are_found_by_their_keys_with_as_many_marks_as_there_is_room_for() {
        let many = check(97, 5_000, 1 << 20);
        assert!(many > 10 * MARK_OVERHEAD_BYTES, "{many} bytes of marks");
        let few = check(97, 5_000, 2_000);
        assert!(few <= 2_000 / MARKS_PARTS, "{few} bytes of marks");
        check(1, 2_000, 10_000);
        check(1_000, 1_000, 0);
    }
}
