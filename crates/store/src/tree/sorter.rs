//! External sort with bounded memory, for bulk builds from unsorted entries.
//!
//! Entries gather in one buffer. When it is full it is sorted and written as a run; at the end the runs are merged while they are
//! read. What never fills the buffer never touches the disk. The sort compares 8 bytes of each key as an integer, taken behind
//! what all keys in the buffer have in common, and looks at the keys themselves only where those are equal.
//!
//! Equal keys come out in the order in which they were put in: the reader decides what they mean.

use std::cmp::Ordering;
use std::sync::Arc;

use super::merge::check_limits;
use super::node::{common_prefix, head};
use super::sort_run::{BLOCK_BYTES, RunReader, RunWriter};
use crate::Error;
use crate::disk::Disk;

/// Ending of the names of temporary files.
const SUFFIX: &str = ".sort";
/// Less memory than this makes runs too short to merge well; more would not be addressed by 32 bits.
const MEMORY_MIN: usize = 8 * BLOCK_BYTES;
const MEMORY_MAX: usize = 1 << 31;
/// Runs merged at once: each needs a block in memory, for which half the memory may be used.
const FAN_IN_MAX: usize = 256;

/// An entry in the buffer: its key, then its value.
#[derive(Clone, Copy)]
struct Slot {
    start: u32,
    key_len: u32,
    value_len: u32,
}

/// See the module's text.
pub struct Sorter {
    disk: Arc<dyn Disk>,
    name: String,
    memory_bytes: usize,
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    /// Length of what all keys in the buffer begin with.
    common: usize,
    runs: Vec<RunReader>,
    runs_made: u64,
}

impl Sorter {
    /// A sorter that uses about `memory_bytes`, and temporary files whose names begin with `name`.
    pub fn new(disk: Arc<dyn Disk>, name: &str, memory_bytes: usize) -> Sorter {
        let memory_bytes = memory_bytes.clamp(MEMORY_MIN, MEMORY_MAX);
        let (bytes, slots) = (Vec::new(), Vec::new());
        Sorter { disk, name: name.to_string(), memory_bytes, bytes, slots, common: 0, runs: Vec::new(), runs_made: 0 }
    }

    /// Removes what sorters of a process that died left behind. Only while no sorter lives.
    pub fn remove_leftovers(disk: &dyn Disk) -> Result<(), Error> {
        let context = |error| Error::io("remove temporary files", error);
        for name in disk.list().map_err(context)?.iter().filter(|name| name.ends_with(SUFFIX)) {
            disk.remove(name).map_err(context)?;
        }
        Ok(())
    }

    /// Adds an entry.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        check_limits(key, value)?;
        // A slot, and 16 bytes for it while sorting.
        let per_entry = size_of::<Slot>() + size_of::<(u64, u32)>();
        let used = self.bytes.len() + (self.slots.len() + 1) * per_entry + key.len() + value.len();
        if used > self.memory_bytes && !self.slots.is_empty() {
            self.spill()?;
        }
        match self.slots.first() {
            None => self.common = key.len(),
            Some(first) => {
                let same = &self.bytes[first.start as usize..][..self.common];
                if !key.starts_with(same) {
                    self.common = common_prefix(same, key);
                }
            }
        }
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.slots.push(Slot { start, key_len: key.len() as u32, value_len: value.len() as u32 });
        Ok(())
    }

    fn entry(&self, slot: Slot) -> (&[u8], &[u8]) {
        let (key, rest) = self.bytes[slot.start as usize..].split_at(slot.key_len as usize);
        (key, &rest[..slot.value_len as usize])
    }

    /// The buffer's entries, as places in `slots` in the order of their keys.
    fn sorted(&self) -> Vec<u32> {
        let suffix = |slot: &Slot| &self.entry(*slot).0[self.common..];
        let mut order: Vec<(u64, u32)> =
            self.slots.iter().enumerate().map(|(index, slot)| (head(suffix(slot)), index as u32)).collect();
        order.sort_unstable_by(|(head_a, a), (head_b, b)| {
            head_a.cmp(head_b).then_with(|| {
                suffix(&self.slots[*a as usize]).cmp(suffix(&self.slots[*b as usize])).then_with(|| a.cmp(b))
            })
        });
        order.into_iter().map(|(_, index)| index).collect()
    }

    fn next_run(&mut self) -> Result<RunWriter, Error> {
        self.runs_made += 1;
        RunWriter::create(self.disk.clone(), format!("{}.{}{SUFFIX}", self.name, self.runs_made))
    }

    /// Writes the buffer as a run.
    fn spill(&mut self) -> Result<(), Error> {
        let mut run = self.next_run()?;
        for index in self.sorted() {
            let (key, value) = self.entry(self.slots[index as usize]);
            run.push(key, value)?;
        }
        self.bytes.clear();
        self.slots.clear();
        self.runs.push(run.finish()?);
        let fan_in = (self.memory_bytes / 2 / BLOCK_BYTES).clamp(2, FAN_IN_MAX);
        if self.runs.len() >= fan_in {
            // Every entry is written once more; at half the memory in blocks that is one pass for each thousandfold of it.
            let mut merged = self.next_run()?;
            let mut merge = RunMerge::new(std::mem::take(&mut self.runs));
            while let Some((key, value)) = merge.next()? {
                merged.push(key, value)?;
            }
            self.runs.push(merged.finish()?);
        }
        Ok(())
    }

    /// All entries in the order of their keys.
    pub fn finish(mut self) -> Result<SortedEntries, Error> {
        if self.runs.is_empty() {
            let order = self.sorted();
            return Ok(SortedEntries { source: Source::Buffer { sorter: self, order, next: 0 } });
        }
        if !self.slots.is_empty() {
            self.spill()?;
        }
        Ok(SortedEntries { source: Source::Runs(RunMerge::new(std::mem::take(&mut self.runs))) })
    }
}

/// Entries in the order of their keys, each read once.
pub struct SortedEntries {
    source: Source,
}

enum Source {
    Buffer { sorter: Sorter, order: Vec<u32>, next: usize },
    Runs(RunMerge),
}

impl SortedEntries {
    /// The next entry, valid until the following call.
    #[expect(clippy::should_implement_trait, reason = "it lends: an iterator could not")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>, Error> {
        match &mut self.source {
            Source::Runs(merge) => merge.next(),
            Source::Buffer { sorter, order, next } => {
                let index = order.get(*next).copied();
                *next += 1;
                Ok(index.map(|index| sorter.entry(sorter.slots[index as usize])))
            }
        }
    }
}

/// The merge of sorted runs: a binary heap of readers, the one with the lowest key on top.
struct RunMerge {
    /// With their age: of equal keys the older run's comes first.
    heap: Vec<(usize, RunReader)>,
    /// The top's record has been handed out.
    is_read: bool,
}

impl RunMerge {
    fn new(runs: Vec<RunReader>) -> RunMerge {
        let mut merge = RunMerge { heap: runs.into_iter().enumerate().collect(), is_read: false };
        for index in (0..merge.heap.len() / 2).rev() {
            merge.sink(index);
        }
        merge
    }

    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>, Error> {
        if let (true, Some((_, top))) = (self.is_read, self.heap.first_mut()) {
            if !top.advance()? {
                self.heap.swap_remove(0);
            }
            self.sink(0);
        }
        self.is_read = true;
        Ok(self.heap.first().map(|(_, run)| (run.key(), run.value())))
    }

    fn sink(&mut self, mut index: usize) {
        loop {
            let child = 2 * index + 1;
            if child >= self.heap.len() {
                return;
            }
            let is_right = child + 1 < self.heap.len() && self.compare(child + 1, child) == Ordering::Less;
            let lowest = child + usize::from(is_right);
            if self.compare(index, lowest) != Ordering::Greater {
                return;
            }
            self.heap.swap(index, lowest);
            index = lowest;
        }
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let ((age_a, a), (age_b, b)) = (&self.heap[a], &self.heap[b]);
        a.key().cmp(b.key()).then_with(|| age_a.cmp(age_b))
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::disk::SystemDisk;

    #[track_caller]
    fn check_sorted(seed: u64, entries: usize, prefix: &[u8], spills: bool) {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new(directory.path()).unwrap());
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut sorter = Sorter::new(disk.clone(), "index", 0);
        let mut expected = Vec::new();
        for number in 0..entries {
            let mut key = prefix.to_vec();
            key.extend((0..rng.random_range(0..20)).map(|_| rng.random_range(0..3u8)));
            let mut value = number.to_le_bytes().to_vec();
            value.resize(8 + rng.random_range(0..100), 7);
            sorter.push(&key, &value).unwrap();
            expected.push((key, value));
        }
        expected.sort_by(|(a, _), (b, _)| a.cmp(b));
        assert_eq!(!disk.list().unwrap().is_empty(), spills);
        let mut sorted = sorter.finish().unwrap();
        for (key, value) in &expected {
            assert_eq!(sorted.next().unwrap(), Some((key.as_slice(), value.as_slice())));
        }
        assert_eq!(sorted.next().unwrap(), None);
        drop(sorted);
        assert!(disk.list().unwrap().is_empty(), "temporary files stay behind");
    }

    #[test]
    fn entries_that_fit_the_memory_come_out_in_order_without_files() {
        check_sorted(1, 5000, b"", false);
        check_sorted(2, 0, b"", false);
    }

    #[test]
    fn entries_of_many_runs_come_out_in_order_and_equal_keys_as_they_came() {
        check_sorted(3, 200_000, b"a common start/", true);
    }
}
