//! Reads past the page cache: right values as of their snapshot, from the disk or not at all; errors affect no other reads.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{DiskFile, MemoryDisk, ReadQueue};
use store::{DirectReads, Got, ReadOutcome, Reader, Store, StoreError, StoreOptions, TreeId, Tx};

const ROWS: u32 = 12_000;
const PLACES: usize = 16;
const PLACE_BYTES: usize = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.read_ahead = Some(false);
    options
}

/// In the leaf, in overflow pages, or longer than a slot's buffer.
fn value(number: u32, edition: u32) -> Vec<u8> {
    let times = match number % 100 {
        7 => 10_000,
        3 | 13 | 23 | 33 => 1000,
        _ => 150,
    };
    (number ^ edition << 20).to_le_bytes().repeat(times)
}

fn put(store: &Store, tree: TreeId, numbers: impl Iterator<Item = u32>, edition: u32) {
    let numbers: Vec<u32> = numbers.collect();
    for part in numbers.chunks(500) {
        let change = &mut |tx: &mut Tx<'_>| {
            part.iter().for_each(|number| tx.put(tree, &number.to_be_bytes(), &value(*number, edition)));
            Ok(())
        };
        store.commit(change).unwrap();
    }
    store.checkpoint().unwrap();
}

fn fill(directory: &Path) {
    let (store, _) = Store::open(directory, options()).unwrap();
    let tree = store.tree("t").unwrap();
    put(&store, tree, 0..ROWS, 0);
}

/// Evicts a file's unmapped pages from the page cache; false if they cannot be evicted.
fn forget(path: &Path) -> bool {
    let dropped = Command::new("dd")
        .args(["if=/dev/null", "oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"])
        .arg(format!("of={}", path.display()))
        .status();
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output();
    dropped.is_ok_and(|status| status.success()) && kind.is_ok_and(|kind| kind.stdout != b"tmpfs\n")
}

/// A store with a reader that must not wait for the disk and one that may.
struct Opened {
    reads: DirectReads,
    asking: Reader,
    waiting: Reader,
    tree: TreeId,
    store: Store,
}

impl Opened {
    /// `None` if the system has no such reads.
    fn new(store: Store) -> Option<Opened> {
        let (tree, asking, waiting) = (store.tree("t").unwrap(), store.reader().unwrap(), store.reader().unwrap());
        asking.ask_before_waiting(true);
        Some(Opened { reads: store.direct_reads(PLACES, PLACE_BYTES)?, asking, waiting, tree, store })
    }

    fn begin(&mut self, number: u32) -> Result<Got<'static>, StoreError> {
        let snapshot = self.asking.snapshot();
        Ok(match snapshot.get_or_begin(&mut self.reads, self.tree, &number.to_be_bytes())? {
            Got::Now(found) => Got::Now(found.map(|found| found.into_owned().into())),
            Got::Later(place) => Got::Later(place),
            Got::Elsewhere => Got::Elsewhere,
        })
    }

    /// Submits the noted reads and waits until `count` have ended: the result of each place, `Err(None)` for `Elsewhere`.
    fn wait(&mut self, count: usize) -> Vec<(usize, Told)> {
        let (mut ended, began) = (Vec::new(), Instant::now());
        while ended.len() < count {
            self.reads.begin();
            self.reads.ended(&mut |place, outcome| {
                let told = match outcome {
                    Ok(ReadOutcome::Found(found)) => Ok(found.map(<[u8]>::to_vec)),
                    Ok(ReadOutcome::Elsewhere) => Err(None),
                    Err(error) => Err(Some(error)),
                };
                ended.push((place, told));
            });
            assert!(began.elapsed() < PATIENCE, "{} of {count} have ended", ended.len());
            std::thread::yield_now();
        }
        ended
    }

    /// Reads one row; `None` if it is not read past the page cache.
    fn read(&mut self, number: u32) -> Option<Result<Option<Vec<u8>>, StoreError>> {
        let Got::Later(place) = self.begin(number).unwrap() else { return None };
        let (told_of, told) = self.wait(1).remove(0);
        assert_eq!(told_of, place);
        match told {
            Ok(found) => Some(Ok(found)),
            Err(error) => error.map(Err),
        }
    }

    fn read_waiting(&self, number: u32) -> Option<Vec<u8>> {
        let snapshot = self.waiting.snapshot();
        snapshot.get(self.tree, &number.to_be_bytes()).unwrap().map(|found| found.into_owned())
    }

    /// Brings the branches above all rows into memory, but neither the rows nor their leaves.
    fn warm_branches(&self) {
        (0..ROWS).step_by(ROWS as usize / 24).for_each(|number| drop(self.read_waiting(number)));
    }
}

type Told = Result<Option<Vec<u8>>, Option<StoreError>>;

/// Plain reads, one after the other, with injected errors, so that these tests need no io_uring.
struct PlainQueue {
    file: Arc<dyn DiskFile>,
    hooks: Arc<Reading>,
    noted: Vec<(usize, u64, usize)>,
    ended: VecDeque<(usize, io::Result<usize>)>,
    buffers: Vec<Vec<u8>>,
}

/// The injected behaviour of reads.
#[derive(Default)]
struct Reading {
    /// The error of each read, 0 for none.
    errno: AtomicI32,
    /// Pages of this kind (their ninth byte) are read with a flipped bit.
    damaged_kind: AtomicU8,
    offsets: Mutex<Vec<u64>>,
}

impl Hooks for Reading {
    fn read_queue(
        &self,
        _name: &str,
        file: &Arc<dyn DiskFile>,
        places: usize,
        place_bytes: usize,
    ) -> io::Result<Box<dyn ReadQueue>> {
        let hooks = HOOKS.with(|hooks| hooks.lock().unwrap().clone()).ok_or(io::ErrorKind::Unsupported)?;
        let buffers = vec![vec![0; place_bytes]; places];
        let (noted, ended) = Default::default();
        Ok(Box::new(PlainQueue { file: Arc::clone(file), hooks, noted, ended, buffers }))
    }
}

thread_local! {
    /// The hooks of this thread's test: a queue is created on the thread that uses it.
    static HOOKS: Mutex<Option<Arc<Reading>>> = const { Mutex::new(None) };
}

impl ReadQueue for PlainQueue {
    fn completions(&self) -> RawFd {
        -1
    }
    fn note(&mut self, place: usize, offset: u64, len: usize) -> bool {
        assert!(len <= self.buffers[place].len() && offset.is_multiple_of(4096) && len.is_multiple_of(4096));
        self.hooks.offsets.lock().unwrap().push(offset);
        self.noted.push((place, offset, len));
        true
    }
    fn begin(&mut self) {
        for (place, offset, len) in self.noted.drain(..) {
            let result = match self.hooks.errno.load(Ordering::Relaxed) {
                0 => self.file.read_at(&mut self.buffers[place][..len], offset),
                errno => Err(io::Error::from_raw_os_error(errno)),
            };
            let page = &mut self.buffers[place];
            if page[8] == self.hooks.damaged_kind.load(Ordering::Relaxed) {
                page[3000] ^= 1;
            }
            self.ended.push_back((place, result));
        }
    }
    fn gather(&mut self) {}
    fn next_ended(&mut self) -> Option<(usize, io::Result<usize>)> {
        self.ended.pop_front()
    }
    fn bytes(&self, place: usize) -> &[u8] {
        &self.buffers[place]
    }
}

/// A filled store, cold, whose reads past the page cache are plain reads.
fn opened(directory: &Path) -> Option<(Opened, Arc<Reading>)> {
    fill(directory);
    reopened(directory)
}

fn reopened(directory: &Path) -> Option<(Opened, Arc<Reading>)> {
    if !forget(&directory.join("tree")) {
        // Bypasses libtest, which captures the output of a passing test: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: the temporary folder lies in memory, or its cache cannot be dropped\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return None;
    }
    let hooks = Arc::new(Reading::default());
    HOOKS.with(|of_thread| *of_thread.lock().unwrap() = Some(Arc::clone(&hooks)));
    let disk = HookedDisk::new(directory, &hooks);
    let opened = Opened::new(Store::open_on(Arc::new(disk), options()).unwrap().0).unwrap();
    opened.warm_branches();
    Some((opened, hooks))
}

/// Reads all rows and some that do not exist, unordered, with as many in flight as possible; returns how many went past
/// the page cache.
#[track_caller]
fn check_all(opened: &mut Opened) -> u32 {
    let mut number_at = [None; PLACES];
    let (mut under_way, mut direct) = (0, 0);
    let key = |turn: u32| turn.wrapping_mul(2_654_435_761) % (ROWS + 50);
    let expected = |number| (number < ROWS).then(|| value(number, 0));
    for turn in 0..3000 {
        let number = key(turn);
        match opened.begin(number).unwrap() {
            Got::Now(found) => assert!(found.as_deref() == expected(number).as_deref(), "row {number}"),
            Got::Later(place) => {
                assert_eq!(number_at[place].replace(number), None, "place {place} is taken");
                under_way += 1;
            }
            Got::Elsewhere => assert!(opened.read_waiting(number) == expected(number), "row {number}"),
        }
        if under_way == PLACES || turn == 2999 {
            for (place, told) in opened.wait(under_way) {
                let number = number_at[place].take().unwrap();
                match told {
                    Ok(found) => {
                        assert!(found == expected(number), "row {number}");
                        direct += 1;
                    }
                    Err(None) => assert!(opened.read_waiting(number) == expected(number), "row {number}"),
                    Err(Some(error)) => panic!("row {number}: {error:?}"),
                }
            }
            under_way = 0;
        }
    }
    direct
}

#[test]
fn what_is_read_past_the_page_cache_is_right_wherever_it_lies() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut plain, _)) = opened(directory.path()) else { return };
    let direct = check_all(&mut plain);
    // Plain reads go through the page cache, and bring more of the file into it.
    assert!(direct > 100, "{direct} rows");
    drop(plain);
    forget(&directory.path().join("tree"));
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let Some(mut real) = Opened::new(store) else {
        // Bypasses libtest, which captures the output of a passing test: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: this system has no io_uring, or this file system no O_DIRECT\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    };
    let direct = check_all(&mut real);
    assert!(direct > 300, "{direct} rows");
}

#[test]
fn what_is_asked_for_again_soon_is_brought_into_memory() {
    let directory = tempfile::tempdir().unwrap();
    fill(directory.path());
    if !forget(&directory.path().join("tree")) {
        return;
    }
    // Plain reads would bring the pages into memory by themselves.
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let Some(mut opened) = Opened::new(store) else { return };
    opened.warm_branches();
    let mut direct = 0;
    for number in (0..ROWS).filter(|number| number % 100 == 50) {
        if opened.read(number).is_none() {
            continue;
        }
        direct += 1;
        assert!(matches!(opened.begin(number), Ok(Got::Elsewhere)), "row {number}");
        drop(opened.read_waiting(number));
        assert!(matches!(opened.begin(number), Ok(Got::Now(Some(_)))), "row {number}");
    }
    assert!(direct > 20, "{direct} rows were read past the page cache");
}

#[test]
fn a_read_tells_what_was_there_when_it_was_asked_for_whatever_was_written_since() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut opened, _)) = opened(directory.path()) else { return };
    let mut asked = Vec::new();
    for number in (0..ROWS).step_by(331) {
        if asked.len() < PLACES
            && let Got::Later(place) = opened.begin(number).unwrap()
        {
            asked.push((place, number));
        }
    }
    assert!(asked.len() > 8, "{} reads", asked.len());
    // Their pages are replaced, and could be reused.
    (1..4).for_each(|edition| put(&opened.store, opened.tree, 0..ROWS, edition));
    for (place, told) in opened.wait(asked.len()) {
        let number = asked.iter().find(|(of, _)| *of == place).unwrap().1;
        match told {
            Ok(found) => assert!(found == Some(value(number, 0)), "row {number}"),
            Err(None) => {}
            Err(Some(error)) => panic!("row {number}: {error:?}"),
        }
    }
}

#[test]
fn a_page_that_the_disk_does_not_give_is_the_error_of_its_read_alone_and_is_counted_once() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut opened, hooks)) = opened(directory.path()) else { return };
    let mut failed = Vec::new();
    hooks.errno.store(libc::EIO, Ordering::Relaxed);
    for number in (0..ROWS).filter(|number| number % 100 == 50) {
        match opened.read(number) {
            None => {}
            Some(Err(StoreError::Io { .. })) => failed.push(number),
            Some(other) => panic!("row {number}: {other:?}"),
        }
    }
    assert!(failed.len() > 20, "{} reads failed", failed.len());
    hooks.errno.store(0, Ordering::Relaxed);
    let lost = opened.store.stats().lost_pages;
    assert!(lost > 20 && lost <= failed.len() as u64, "{lost} pages of {} reads", failed.len());
    for number in &failed {
        assert!(opened.read_waiting(*number) == Some(value(*number, 0)), "row {number}");
    }
    put(&opened.store, opened.tree, 0..100, 1);
    assert_eq!(opened.store.stats().lost_pages, lost, "nothing new is lost");
}

#[test]
fn what_the_file_system_cannot_do_is_read_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut opened, hooks)) = opened(directory.path()) else { return };
    hooks.errno.store(libc::EINVAL, Ordering::Relaxed);
    let mut refused = 0;
    for number in (0..ROWS).filter(|number| number % 100 == 50) {
        if let Got::Later(_) = opened.begin(number).unwrap() {
            assert!(matches!(opened.wait(1).remove(0).1, Err(None)), "row {number}");
            assert!(opened.read_waiting(number) == Some(value(number, 0)), "row {number}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused} reads");
}

#[test]
fn a_damaged_page_is_found_by_its_checksum() {
    let directory = tempfile::tempdir().unwrap();
    let Some((mut opened, hooks)) = opened(directory.path()) else { return };
    // Leaves first, then overflow values.
    for (kind, ending) in [(1, 50), (3, 3)] {
        hooks.damaged_kind.store(kind, Ordering::Relaxed);
        let mut found = 0;
        for number in (0..ROWS).filter(|number| number % 100 == ending) {
            match opened.read(number) {
                None => {}
                Some(Err(StoreError::Corrupt { offset, .. })) => {
                    assert_eq!(Some(&offset), hooks.offsets.lock().unwrap().last(), "row {number}");
                    found += 1;
                }
                Some(other) => panic!("row {number}: {other:?}"),
            }
        }
        assert!(found > 10, "{found} pages of kind {kind}");
    }
}

#[test]
fn there_are_no_such_reads_where_the_data_fits_into_memory_or_the_disk_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let mut fits = options();
    fits.read_ahead = Some(true);
    let (store, _) = Store::open(directory.path(), fits).unwrap();
    assert!(store.direct_reads(PLACES, PLACE_BYTES).is_none());
    let (store, _) = Store::open_on(Arc::new(MemoryDisk::new(64 << 20)), options()).unwrap();
    assert!(store.direct_reads(PLACES, PLACE_BYTES).is_none());
    drop(store);
    let other = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(other.path(), options()).unwrap();
    assert!(store.direct_reads(PLACES, 1000).is_none() && store.direct_reads(0, PLACE_BYTES).is_none());
}
