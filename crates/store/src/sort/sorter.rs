//! External sort with bounded memory, for bulk builds from unsorted entries.
//!
//! Entries are collected in a part of the memory. A second thread sorts a full part while the next one fills. At least
//! half of the memory is for parts that stay in memory until they are read; once it is full, further parts are written
//! as runs. At the end all are merged while they are read. Entries that fit into the memory never touch the disk.
//!
//! ```text
//!  in parts:        | kept | kept | kept | kept | filling | sorted and written | sorted and written | blocks |
//!  of less memory:  | filling                                            | blocks                           |
//! ```
//!
//! More memory means more kept parts, not longer ones: the caller does not wait while a part is sorted and the next one
//! fills, only for the last part. A part is kept as a sorted copy, so that the single-threaded merge reads memory
//! sequentially, and the memory that the caller fills is soon reused and needs no new pages.
//!
//! Little memory is not divided into parts: sorting them would take less time than starting a thread, and their runs
//! would be short.
//!
//! Entries are returned in order of key and then of value: the reader decides what equal keys mean.

use std::io;
use std::sync::Arc;

use super::merge::SortedEntries;
use super::part::Part;
use super::run::{BLOCK_BYTES, SUFFIX, SortedRun, SortedRunWriter};
use crate::base::error::StoreError;
use crate::base::limits::check_limits;
use crate::base::sync::thread;
use crate::base::sync::thread::JoinHandle;
use crate::disk::Disk;

/// Minimum number of parts of the memory.
const PARTS: usize = 8;
/// Number of parts whose memory is not for kept parts: one fills, two are sorted or written, and one is blocks.
const PARTS_IN_WORK: usize = PARTS / 2;
/// Maximum bytes of a part.
const PART_BYTES_MAX: usize = 16 << 20;
/// Number of parts that are sorted and written at the same time.
const JOBS_MAX: usize = 2;
/// Less memory makes runs too short to merge well; with more, a part could not be addressed by 32 bits.
const MEMORY_MIN: usize = 1 << 20;
const MEMORY_MAX: usize = 1 << 33;
/// Memory from which on it is divided into parts.
const PARTED_MIN: usize = 32 << 20;
/// Runs merged at once: each needs an open file and a block in memory, for which a third of the memory may be used.
const FAN_IN_MIN: usize = 16;
const FAN_IN_MAX: usize = 128;
const _: () = assert!(FAN_IN_MIN * BLOCK_BYTES <= MEMORY_MIN);

/// A part being sorted: yields what remains to be merged, and the memory to be reused.
type Job = JoinHandle<Result<Done, StoreError>>;

enum Done {
    Kept(Part, Part),
    Written(SortedRun, Part),
}

/// See the module's text.
pub struct Sorter {
    disk: Arc<dyn Disk>,
    /// Beginning of the names of its temporary files, and their number so far.
    name: String,
    files: u64,
    part_bytes: usize,
    /// Maximum number of parts kept in memory; 0 if the memory is not divided.
    kept_max: usize,
    fan_in: usize,
    filling: Part,
    kept: Vec<Part>,
    /// Number of parts passed to a thread to be kept.
    kept_count: usize,
    runs: Vec<SortedRun>,
    /// Oldest first.
    jobs: Vec<Job>,
    /// Memory of parts that were written or copied.
    spare: Vec<Part>,
}

impl Sorter {
    /// A sorter that uses about `memory_bytes`, or one entry more, and temporary files whose names begin with `name`.
    pub fn new(disk: Arc<dyn Disk>, name: &str, memory_bytes: usize) -> Sorter {
        let memory_bytes = memory_bytes.clamp(MEMORY_MIN, MEMORY_MAX);
        let is_parted = memory_bytes >= PARTED_MIN;
        let part_bytes = (memory_bytes / PARTS).min(PART_BYTES_MAX);
        Sorter {
            disk,
            name: name.to_string(),
            files: 0,
            part_bytes: if is_parted { part_bytes } else { memory_bytes / 3 * 2 },
            kept_max: if is_parted { memory_bytes / part_bytes - PARTS_IN_WORK } else { 0 },
            fan_in: (memory_bytes / 3 / BLOCK_BYTES).clamp(FAN_IN_MIN, FAN_IN_MAX),
            filling: Part::default(),
            kept: Vec::new(),
            kept_count: 0,
            runs: Vec::new(),
            jobs: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Removes the files of sorters of a process that died. Only while no sorter exists.
    pub fn remove_leftovers(disk: &dyn Disk) -> Result<(), StoreError> {
        let context = |error| StoreError::io("remove temporary files", error);
        for name in disk.list().map_err(context)?.iter().filter(|name| name.ends_with(SUFFIX)) {
            disk.remove(name).map_err(context)?;
        }
        Ok(())
    }

    /// Adds an entry. A disk error may be returned by a later call.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_limits(key, value)?;
        if self.filling.used() + Part::bytes_of(key, value) > self.part_bytes && !self.filling.is_empty() {
            self.give_away()?;
        }
        self.filling.push(key, value, self.part_bytes);
        Ok(())
    }

    /// All entries in order.
    pub fn finish(self) -> Result<SortedEntries, StoreError> {
        Sorter::merge(vec![self])
    }

    /// All entries of several sorters in order.
    pub fn merge(sorters: Vec<Sorter>) -> Result<SortedEntries, StoreError> {
        let (mut parts, mut runs) = (Vec::new(), Vec::new());
        for mut sorter in sorters {
            sorter.wait_for_jobs(0)?;
            // The last part need not be written: no further one fills.
            sorter.filling.sort();
            parts.append(&mut sorter.kept);
            parts.push(std::mem::take(&mut sorter.filling));
            runs.append(&mut sorter.runs);
        }
        SortedEntries::merge(parts, &runs)
    }

    /// Passes the filling part to be sorted, and written unless it is kept.
    fn give_away(&mut self) -> Result<(), StoreError> {
        let is_kept = self.kept_count < self.kept_max;
        self.kept_count += usize::from(is_kept);
        let run = if is_kept { None } else { Some(self.new_run()?) };
        self.wait_for_jobs(JOBS_MAX - 1)?;
        let part = std::mem::take(&mut self.filling);
        if self.kept_max == 0 {
            self.take(sort_and_write(part, run)?);
        } else {
            let job = thread::Builder::new().name("sort".to_string()).spawn(move || sort_and_write(part, run));
            self.jobs.push(job.map_err(|error| StoreError::io("start a thread that sorts", error))?);
        }
        if self.runs.len() >= self.fan_in {
            self.merge_runs()?;
        }
        self.filling = self.spare.pop().unwrap_or_default();
        Ok(())
    }

    fn new_run(&mut self) -> Result<SortedRunWriter, StoreError> {
        self.files += 1;
        SortedRunWriter::new(&*self.disk, &format!("{}.{}", self.name, self.files))
    }

    /// Waits until at most `count` jobs are running.
    fn wait_for_jobs(&mut self, count: usize) -> Result<(), StoreError> {
        while self.jobs.len() > count {
            let panicked = |_| Err(StoreError::io("sort", io::Error::other("a thread that sorts panicked")));
            let done = self.jobs.remove(0).join().unwrap_or_else(panicked)?;
            self.take(done);
        }
        Ok(())
    }

    fn take(&mut self, done: Done) {
        let mut part = match done {
            Done::Kept(kept, part) => {
                self.kept.push(kept);
                part
            }
            Done::Written(run, part) => {
                self.runs.push(run);
                part
            }
        };
        part.clear();
        self.spare.push(part);
    }

    /// Writes every entry of the runs again. That is rare, since a run is longer than all blocks of a merge.
    fn merge_runs(&mut self) -> Result<(), StoreError> {
        let mut merged = self.new_run()?;
        let mut merge = SortedEntries::merge(Vec::new(), &std::mem::take(&mut self.runs))?;
        while let Some(record) = merge.next_record()? {
            merged.push_record(record)?;
        }
        self.runs.push(merged.finish()?);
        Ok(())
    }
}

impl Drop for Sorter {
    /// No sorting thread outlives its sorter.
    fn drop(&mut self) {
        for job in self.jobs.drain(..) {
            // Its entries are no longer needed.
            let _ = job.join();
        }
    }
}

fn sort_and_write(mut part: Part, run: Option<SortedRunWriter>) -> Result<Done, StoreError> {
    part.sort();
    let Some(mut run) = run else { return Ok(Done::Kept(part.in_order(), part)) };
    for index in 0.. {
        let Some(record) = part.get(index) else { break };
        part.fetch_ahead(index);
        run.push_record(record)?;
    }
    Ok(Done::Written(run.finish()?, part))
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::disk::SystemDisk;

    struct Case {
        entries: usize,
        memory: usize,
        sorters: usize,
        prefix: &'static [u8],
        spills: bool,
    }

    #[track_caller]
    fn check_sorted(seed: u64, case: &Case) {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new(directory.path()).unwrap());
        let mut rng = SmallRng::seed_from_u64(seed);
        let new = |number| Sorter::new(disk.clone(), &format!("index-{number}"), case.memory);
        let mut sorters: Vec<Sorter> = (0..case.sorters).map(new).collect();
        let mut expected = Vec::new();
        for _ in 0..case.entries {
            let mut key = case.prefix.to_vec();
            key.extend((0..rng.random_range(0..20)).map(|_| rng.random_range(0..3u8)));
            let mut value = rng.random_range(0..1000u32).to_le_bytes().to_vec();
            value.resize(4 + rng.random_range(0..100), 7);
            sorters[rng.random_range(0..case.sorters)].push(&key, &value).unwrap();
            expected.push((key, value));
        }
        expected.sort();
        let mut sorted = Sorter::merge(sorters).unwrap();
        assert_eq!(sorted.has_runs(), case.spills);
        for (key, value) in &expected {
            assert_eq!(sorted.next().unwrap(), Some((key.as_slice(), value.as_slice())));
        }
        assert_eq!(sorted.next().unwrap(), None);
        drop(sorted);
        assert!(disk.list().unwrap().is_empty(), "temporary files stay behind");
    }

    #[test]
    fn entries_that_fit_the_memory_come_out_in_order_without_files() {
        check_sorted(1, &Case { entries: 5000, memory: 0, sorters: 1, prefix: b"", spills: false });
        check_sorted(2, &Case { entries: 0, memory: 0, sorters: 1, prefix: b"", spills: false });
        check_sorted(3, &Case { entries: 100, memory: 0, sorters: 3, prefix: b"x", spills: false });
    }

    #[test]
    fn entries_of_many_runs_come_out_in_order_of_key_and_value() {
        let prefix = b"a common start/";
        check_sorted(4, &Case { entries: 200_000, memory: 0, sorters: 1, prefix, spills: true });
        check_sorted(5, &Case { entries: 100_000, memory: 0, sorters: 3, prefix, spills: true });
    }

    #[test]
    fn parts_that_threads_sort_come_out_in_order() {
        check_sorted(6, &Case { entries: 500_000, memory: PARTED_MIN, sorters: 1, prefix: b"", spills: true });
    }

    #[test]
    fn what_fills_most_of_the_memory_is_kept_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new(directory.path()).unwrap());
        let sorter = |memory| Sorter::new(disk.clone(), "index", memory);
        for memory in [PARTED_MIN, 3 * PARTED_MIN, 512 << 20, MEMORY_MAX] {
            let sorter = sorter(memory);
            let in_use = (sorter.kept_max + PARTS_IN_WORK) * sorter.part_bytes;
            assert!(in_use <= memory && in_use + sorter.part_bytes > memory, "{memory}");
        }
        assert!(sorter(512 << 20).kept_max * PART_BYTES_MAX >= (512 * 7 / 8) << 20);
    }

    #[test]
    fn a_sorter_that_is_dropped_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new(directory.path()).unwrap());
        let mut sorter = Sorter::new(disk.clone(), "index", PARTED_MIN);
        for number in 0..100_000u32 {
            sorter.push(&number.to_le_bytes(), &[0; 600]).unwrap();
        }
        drop(sorter);
        assert!(disk.list().unwrap().is_empty());
    }
}
