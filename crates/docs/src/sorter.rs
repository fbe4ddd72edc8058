//! Sorting more entries than memory should hold: sorted runs on disk, merged while they are read.
//!
//! Each thread fills its own [`Sorter`]; [`Sorter::merge`] gives the entries of all of them in order of key, then value.
//! A sorter keeps at most its budget in memory and spills a sorted run when that is full. Runs are files without a name
//! (unlinked as soon as they are made), so that nothing is left behind however the process ends.
//!
//! ```text
//!  run:   key length (u32, little-endian) | value length (u32) | key | value    … to the end of the file
//! ```

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering as Atomic};

/// Buffer of a run that is written or read. A merge holds one for each run.
const RUN_BUFFER_BYTES: usize = 128 << 10;
/// Runs are told apart by this number while they still have a name.
static RUN_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Entries to be sorted.
pub(crate) struct Sorter {
    dir: PathBuf,
    budget: usize,
    arena: Vec<u8>,
    entries: Vec<Entry>,
    runs: Vec<File>,
}

/// One entry in the arena: key, then value. `head` is the key's first bytes, so that most comparisons stay in this array.
#[derive(Clone, Copy)]
struct Entry {
    head: u64,
    at: usize,
    key: u32,
    value: u32,
}

impl Sorter {
    /// A sorter that holds about `budget` bytes and spills into `dir`.
    pub(crate) fn new(dir: &Path, budget: usize) -> Sorter {
        Sorter { dir: dir.to_path_buf(), budget, arena: Vec::new(), entries: Vec::new(), runs: Vec::new() }
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bytes = key.len() + value.len() + size_of::<Entry>();
        if self.held() + bytes > self.budget && !self.entries.is_empty() {
            self.spill()?;
        }
        let entry = Entry { head: head(key), at: self.arena.len(), key: key.len() as u32, value: value.len() as u32 };
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.entries.push(entry);
        Ok(())
    }

    /// The entries of several sorters, in order.
    pub(crate) fn merge(sorters: Vec<Sorter>) -> io::Result<Merge> {
        let mut streams = Vec::new();
        for mut sorter in sorters {
            sorter.sort();
            for file in sorter.runs.drain(..) {
                streams.push(Stream::run(file));
            }
            streams.push(Stream::Memory(sorter, 0));
        }
        Merge::new(streams)
    }

    fn held(&self) -> usize {
        self.arena.len() + self.entries.len() * size_of::<Entry>()
    }

    fn sort(&mut self) {
        let arena = &self.arena;
        self.entries.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| a.slices(arena).cmp(&b.slices(arena))));
    }

    fn spill(&mut self) -> io::Result<()> {
        self.sort();
        let mut run = RunWriter::new(&self.dir)?;
        for entry in &self.entries {
            let (key, value) = entry.slices(&self.arena);
            run.push(key, value)?;
        }
        self.runs.push(run.finish()?);
        self.arena.clear();
        self.entries.clear();
        Ok(())
    }
}

impl Entry {
    fn slices<'a>(&self, arena: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        arena[self.at..self.at + self.key as usize + self.value as usize].split_at(self.key as usize)
    }
}

/// The first 8 bytes of a key as a number of the same order.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = key.len().min(8);
    bytes[..length].copy_from_slice(&key[..length]);
    u64::from_be_bytes(bytes)
}

/// Writes a run whose entries come sorted.
pub(crate) struct RunWriter {
    file: BufWriter<File>,
}

impl RunWriter {
    /// A new run in `dir`.
    pub(crate) fn new(dir: &Path) -> io::Result<RunWriter> {
        let number = RUN_NUMBER.fetch_add(1, Atomic::Relaxed);
        let path = dir.join(format!("sort-{}-{number}.tmp", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(RunWriter { file: BufWriter::with_capacity(RUN_BUFFER_BYTES, file) })
    }

    /// Adds the next entry.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.file.write_all(&(key.len() as u32).to_le_bytes())?;
        self.file.write_all(&(value.len() as u32).to_le_bytes())?;
        self.file.write_all(key)?;
        self.file.write_all(value)
    }

    /// The run as a file.
    pub(crate) fn finish(self) -> io::Result<File> {
        self.file.into_inner().map_err(io::IntoInnerError::into_error)
    }
}

enum Stream {
    Run(BufReader<AtPlace>),
    Memory(Sorter, usize),
}

impl Stream {
    fn run(file: File) -> Stream {
        Stream::Run(BufReader::with_capacity(RUN_BUFFER_BYTES, AtPlace { file, at: 0 }))
    }
}

/// A file read from its beginning whatever others do with its handle's place.
struct AtPlace {
    file: File,
    at: u64,
}

impl Read for AtPlace {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// The front entry of a stream.
struct Front {
    head: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    stream: usize,
}

impl Front {
    fn order(&self, other: &Front) -> Ordering {
        self.head
            .cmp(&other.head)
            .then_with(|| self.key.cmp(&other.key))
            .then_with(|| self.value.cmp(&other.value))
            .then(self.stream.cmp(&other.stream))
    }
}

impl PartialEq for Front {
    fn eq(&self, other: &Front) -> bool {
        self.order(other) == Ordering::Equal
    }
}
impl Eq for Front {}
impl PartialOrd for Front {
    fn partial_cmp(&self, other: &Front) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Front {
    fn cmp(&self, other: &Front) -> Ordering {
        self.order(other)
    }
}

/// Sorted entries, read once.
pub(crate) struct Merge {
    streams: Vec<Stream>,
    fronts: BinaryHeap<Reverse<Front>>,
    /// The entry last given; its buffers take the next one of its stream.
    given: Option<Front>,
}

impl Merge {
    /// Reads one run, which others may be reading too.
    pub(crate) fn of_run(run: &File) -> io::Result<Merge> {
        Merge::new(vec![Stream::run(run.try_clone()?)])
    }

    fn new(streams: Vec<Stream>) -> io::Result<Merge> {
        let mut merge = Merge { fronts: BinaryHeap::with_capacity(streams.len()), streams, given: None };
        for stream in 0..merge.streams.len() {
            merge.refill(Front { head: 0, key: Vec::new(), value: Vec::new(), stream })?;
        }
        Ok(merge)
    }

    /// The next entry.
    pub(crate) fn next(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        if let Some(front) = self.given.take() {
            self.refill(front)?;
        }
        self.given = self.fronts.pop().map(|Reverse(front)| front);
        Ok(self.given.as_ref().map(|front| (front.key.as_slice(), front.value.as_slice())))
    }

    fn refill(&mut self, mut front: Front) -> io::Result<()> {
        front.key.clear();
        front.value.clear();
        let more = match &mut self.streams[front.stream] {
            Stream::Memory(sorter, next) => {
                let entry = sorter.entries.get(*next).copied();
                *next += 1;
                entry.is_some_and(|entry| {
                    let (key, value) = entry.slices(&sorter.arena);
                    front.key.extend_from_slice(key);
                    front.value.extend_from_slice(value);
                    true
                })
            }
            Stream::Run(file) => read_entry(file, &mut front.key, &mut front.value)?,
        };
        if more {
            front.head = head(&front.key);
            self.fronts.push(Reverse(front));
        }
        Ok(())
    }
}

fn read_entry(file: &mut impl Read, key: &mut Vec<u8>, value: &mut Vec<u8>) -> io::Result<bool> {
    let mut lengths = [0; 8];
    match file.read_exact(&mut lengths) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        other => other?,
    }
    let [a, b, c, d, e, f, g, h] = lengths;
    key.resize(u32::from_le_bytes([a, b, c, d]) as usize, 0);
    value.resize(u32::from_le_bytes([e, f, g, h]) as usize, 0);
    file.read_exact(key)?;
    file.read_exact(value)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn several_sorters_with_spilled_runs_give_all_entries_in_order(
            parts in prop::collection::vec(
                prop::collection::vec((prop::collection::vec(any::<u8>(), 0..12), prop::collection::vec(any::<u8>(), 0..5)), 0..60),
                1..4,
            ),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut expected: Vec<_> = parts.iter().flatten().cloned().collect();
            expected.sort();
            let sorters = parts.iter().map(|part| {
                let mut sorter = Sorter::new(dir.path(), 500);
                part.iter().for_each(|(key, value)| sorter.push(key, value).unwrap());
                sorter
            });
            let mut merge = Sorter::merge(sorters.collect()).unwrap();
            let mut found = Vec::new();
            while let Some((key, value)) = merge.next().unwrap() {
                found.push((key.to_vec(), value.to_vec()));
            }
            prop_assert_eq!(found, expected);
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
    }
}
