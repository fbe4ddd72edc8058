//! Sorted runs on disk, and their merge: external sorting for sorts and groups.
//!
//! ```text
//!  run:   entries sorted by their keys, one after the other in a file without a name (limits/spill.rs)
//!  entry: length of the key (u32) | length of the payload (u32) | key | payload
//! ```
//!
//! A merge returns entries sorted by key. Entries with equal keys come in the order in which their runs were written, and
//! within a run in their order there. So runs that are written in the order of the rows are merged as one stable sort.
//!
//! A merge takes as many runs at once as have room for their blocks in memory. If there are more, adjacent runs are first
//! merged into longer ones. An entry larger than a block counts with its whole length.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::sql::limits::{Budget, Meter, QueryError, SPILLED, SpillFile};
use crate::sql::values::SortBuffer;

/// Bytes of one read, and of one write.
const BLOCK_BYTES: usize = 16 << 10;
const WRITE_BYTES: usize = 64 << 10;
/// Most runs that are merged at once: beyond this the heap costs more than another pass.
const FAN_IN_MAX: usize = 256;
const FAN_IN_MIN: usize = 2;
/// Divisor of an execution's memory for the blocks.
const PARTS_FOR_BLOCKS: usize = 4;
const HEAD_BYTES: usize = 8;

/// One run: its place, and the size of its largest entry.
#[derive(Clone, Debug)]
struct Extent {
    file: Arc<SpillFile>,
    start: u64,
    end: u64,
    largest: usize,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(in crate::sql) struct Runs {
    /// The file for new runs.
    file: Option<Arc<SpillFile>>,
    extents: Vec<Extent>,
}

impl Runs {
    pub(in crate::sql) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Takes the runs; later ones are written to the same file.
    pub(in crate::sql) fn take(&mut self) -> Runs {
        Runs { file: None, extents: std::mem::take(&mut self.extents) }
    }

    /// Appends another's runs to its own.
    pub(in crate::sql) fn append(&mut self, other: Runs) {
        self.extents.extend(other.extents);
    }

    /// Begins a run.
    pub(in crate::sql) fn begin<'r>(&'r mut self, budget: &'r Budget<'_>) -> Result<RunWriter<'r>, QueryError> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => {
                let space = budget.spill.ok_or(QueryError::Limit { what: SPILLED, limit: 0 })?;
                Arc::clone(self.file.insert(Arc::new(space.file()?)))
            }
        };
        let start = file.end();
        let extent = Extent { file, start, end: start, largest: 0 };
        Ok(RunWriter { extent, waiting: Vec::new(), extents: &mut self.extents, budget })
    }

    /// Writes rows as a sorted run, and empties their buffer. With `keep`, writes only the first `keep` rows.
    pub(in crate::sql) fn write(
        &mut self,
        rows: &mut SortBuffer,
        keep: Option<usize>,
        budget: &Budget<'_>,
    ) -> Result<(), QueryError> {
        if rows.is_empty() {
            return Ok(());
        }
        rows.sort(&Meter::new(budget))?;
        let mut run = self.begin(budget)?;
        rows.entries().take(keep.unwrap_or(usize::MAX)).try_for_each(|(key, fields)| run.push(key, fields))?;
        run.end()?;
        rows.clear();
        Ok(())
    }

    /// A reader for each run, in the order in which they were written.
    pub(super) fn readers(&self) -> impl Iterator<Item = Reader> {
        self.extents.iter().cloned().map(Reader::new)
    }

    /// Merges all entries. With `keep`, only the first `keep` entries are wanted.
    pub(in crate::sql) fn merge<'b>(
        self,
        keep: Option<usize>,
        budget: &'b Budget<'_>,
    ) -> Result<Merge<'b>, QueryError> {
        let mut extents = self.extents;
        loop {
            let together = fan_in(&extents, budget);
            if together == extents.len() {
                return Merge::new(extents, budget);
            }
            let mut longer = Runs::default();
            while !extents.is_empty() {
                let group = extents.drain(..fan_in(&extents, budget)).collect();
                let mut merge = Merge::new(group, budget)?;
                let (mut run, mut left) = (longer.begin(budget)?, keep.unwrap_or(usize::MAX));
                while left > 0 && merge.advance()? {
                    run.push(merge.key(), merge.payload())?;
                    left -= 1;
                }
                run.end()?;
            }
            extents = longer.extents;
        }
    }
}

/// How many runs, beginning with the first, are merged at once.
fn fan_in(extents: &[Extent], budget: &Budget<'_>) -> usize {
    let mut room = budget.memory_bytes_max / PARTS_FOR_BLOCKS;
    let fits = extents.iter().take(FAN_IN_MAX).take_while(|extent| {
        let block = extent.block();
        let fits = block <= room;
        room = room.saturating_sub(block);
        fits
    });
    fits.count().max(FAN_IN_MIN).min(extents.len())
}

impl Extent {
    fn block(&self) -> usize {
        self.largest.max(BLOCK_BYTES)
    }
}

/// A run that is being written.
pub(in crate::sql) struct RunWriter<'r> {
    extents: &'r mut Vec<Extent>,
    extent: Extent,
    waiting: Vec<u8>,
    budget: &'r Budget<'r>,
}

impl RunWriter<'_> {
    /// Adds an entry, whose key must not be less than the previous one.
    pub(in crate::sql) fn push(&mut self, key: &[u8], payload: &[u8]) -> Result<(), QueryError> {
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map(u32::to_le_bytes);
        let (Ok(key_length), Ok(payload_length)) = (length(key), length(payload)) else {
            return Err(QueryError::Limit { what: "bytes of one row", limit: u64::from(u32::MAX) });
        };
        let before = self.waiting.len();
        for bytes in [&key_length[..], &payload_length, key, payload] {
            self.waiting.extend_from_slice(bytes);
        }
        self.extent.largest = self.extent.largest.max(self.waiting.len() - before);
        if self.waiting.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// The place of the next entry, for [`Reader::begin_at`].
    pub(super) fn place(&self) -> u64 {
        self.extent.file.end() - self.extent.start + self.waiting.len() as u64
    }

    fn flush(&mut self) -> Result<(), QueryError> {
        check_deadline(self.budget)?;
        self.extent.file.append(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }

    /// Completes the run.
    pub(in crate::sql) fn end(mut self) -> Result<(), QueryError> {
        self.flush()?;
        self.extent.end = self.extent.file.end();
        if self.extent.end > self.extent.start {
            self.extents.push(self.extent);
        }
        Ok(())
    }
}

fn check_deadline(budget: &Budget<'_>) -> Result<(), QueryError> {
    if budget.deadline.is_some_and(|over| over()) { Err(QueryError::Deadline) } else { Ok(()) }
}

/// Reads one run.
pub(super) struct Reader {
    extent: Extent,
    block: Vec<u8>,
    /// The current entry in the block: its key's start, its key's end, and its end.
    at: usize,
    key: usize,
    end: usize,
}

impl Reader {
    fn new(extent: Extent) -> Reader {
        Reader { extent, block: Vec::new(), at: 0, key: 0, end: 0 }
    }

    /// Starts at a place inside the run.
    pub(super) fn begin_at(&mut self, place: u64) {
        self.extent.start = self.extent.end.min(self.extent.start + place);
    }

    /// Uses existing memory as the block.
    pub(super) fn read_into(&mut self, block: &mut Vec<u8>) {
        self.block = std::mem::take(block);
        self.block.clear();
    }

    /// Returns the block's memory.
    pub(super) fn into_block(self) -> Vec<u8> {
        self.block
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.block[self.at..self.key]
    }

    /// The payload of the entry.
    pub(super) fn payload(&self) -> &[u8] {
        &self.block[self.key..self.end]
    }

    /// Advances to the next entry; false at the end.
    pub(super) fn advance(&mut self) -> Result<bool, QueryError> {
        self.at = self.end;
        if !self.has(HEAD_BYTES)? {
            return Ok(false);
        }
        let word = |at: usize| self.block[at..at + 4].try_into().map_or(0, u32::from_le_bytes) as usize;
        let (key, payload) = (word(self.at), word(self.at + 4));
        if !self.has(HEAD_BYTES + key + payload)? {
            return Err(QueryError::Damaged("a sorted run"));
        }
        self.at += HEAD_BYTES;
        self.key = self.at + key;
        self.end = self.key + payload;
        Ok(true)
    }

    /// Whether `bytes` bytes are left; if so, they are in the block.
    fn has(&mut self, bytes: usize) -> Result<bool, QueryError> {
        let held = self.block.len() - self.at;
        if held >= bytes {
            return Ok(true);
        }
        let left = usize::try_from(self.extent.end - self.extent.start).unwrap_or(usize::MAX);
        if held.saturating_add(left) < bytes {
            return Ok(false);
        }
        self.block.copy_within(self.at.., 0);
        self.at = 0;
        let length = (held + left).min(self.extent.block().max(bytes));
        self.block.resize(length, 0);
        self.extent.file.read(self.extent.start, &mut self.block[held..])?;
        self.extent.start += (length - held) as u64;
        Ok(true)
    }
}

/// The sorted entries of several runs.
pub(in crate::sql) struct Merge<'b> {
    readers: Vec<Reader>,
    /// A heap of readers that have an entry, the least on top.
    heap: Vec<usize>,
    budget: &'b Budget<'b>,
    /// The entry of the reader on top was returned already.
    is_given: bool,
    given: u32,
}

/// Entries between two checks of the deadline.
const DEADLINE_ENTRIES: u32 = 1024;

impl<'b> Merge<'b> {
    fn new(extents: Vec<Extent>, budget: &'b Budget<'b>) -> Result<Merge<'b>, QueryError> {
        let readers: Vec<Reader> = extents.into_iter().map(Reader::new).collect();
        let mut merge = Merge { readers, heap: Vec::new(), budget, is_given: false, given: 0 };
        for number in 0..merge.readers.len() {
            if merge.readers[number].advance()? {
                merge.heap.push(number);
            }
        }
        (0..merge.heap.len() / 2).rev().for_each(|place| merge.sift_down(place));
        Ok(merge)
    }

    /// Advances to the next entry; false at the end.
    pub(in crate::sql) fn advance(&mut self) -> Result<bool, QueryError> {
        self.given = self.given.wrapping_add(1);
        if self.given.is_multiple_of(DEADLINE_ENTRIES) {
            check_deadline(self.budget)?;
        }
        if self.is_given
            && let Some(&top) = self.heap.first()
        {
            if !self.readers[top].advance()? {
                self.heap.swap_remove(0);
            }
            self.sift_down(0);
        }
        self.is_given = true;
        Ok(!self.heap.is_empty())
    }

    /// The entry's key.
    pub(in crate::sql) fn key(&self) -> &[u8] {
        self.heap.first().map_or(&[], |&top| self.readers[top].key())
    }

    /// The entry's payload.
    pub(in crate::sql) fn payload(&self) -> &[u8] {
        self.heap.first().map_or(&[], |&top| self.readers[top].payload())
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        self.readers[a].key().cmp(self.readers[b].key()).then(a.cmp(&b))
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = 2 * place + 1..(2 * place + 3).min(self.heap.len());
            let Some(least) = children.min_by(|a, b| self.compare(self.heap[*a], self.heap[*b])) else { return };
            if self.compare(self.heap[place], self.heap[least]) == Ordering::Less {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sql::limits::SpillSpace;

    /// Entries come back sorted; equal ones in their original order.
    fn check(rows: &[(Vec<u8>, Vec<u8>)], rows_of_a_run: usize, memory: usize, keep: Option<usize>) {
        let folder = tempfile::tempdir().unwrap();
        let space = Arc::new(SpillSpace::new(folder.path(), 1 << 30));
        let budget = Budget { memory_bytes_max: memory, spill: Some(&space), ..Budget::default() };
        let mut runs = Runs::default();
        for part in rows.chunks(rows_of_a_run) {
            let mut buffer = SortBuffer::default();
            for (key, fields) in part {
                buffer.push(&[key], &[fields], keep, &Meter::unbounded()).unwrap();
            }
            runs.write(&mut buffer, keep, &budget).unwrap();
        }
        let mut expected = rows.to_vec();
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        expected.truncate(keep.unwrap_or(usize::MAX));
        let (mut merge, mut found) = (runs.merge(keep, &budget).unwrap(), Vec::new());
        while found.len() < expected.len() && merge.advance().unwrap() {
            found.push((merge.key().to_vec(), merge.payload().to_vec()));
        }
        assert_eq!(found, expected);
        assert!(keep.is_some() || !merge.advance().unwrap());
        drop(merge);
        assert_eq!(space.used(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn entries_of_runs_come_in_order_and_equal_ones_as_they_came(
            keys in proptest::collection::vec(proptest::collection::vec(0u8..3, 0..4), 0..300),
            rows_of_a_run in 1usize..40, memory in 0usize..200_000, keep in proptest::option::of(0usize..30),
        ) {
            let rows = keys.into_iter().zip(0u32..).map(|(key, number)| (key, number.to_le_bytes().to_vec()));
            check(&rows.collect::<Vec<_>>(), rows_of_a_run, memory, keep);
        }
    }

    #[test]
    fn entries_larger_than_blocks_come_whole() {
        let rows: Vec<_> = (0..40u8).map(|n| (vec![n % 7; 10], vec![n; usize::from(n) * 3_000])).collect();
        check(&rows, 3, 100_000, None);
        check(&rows, 1, 1_000_000, Some(9));
    }
}
