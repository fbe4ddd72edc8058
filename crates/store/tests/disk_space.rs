//! What the tree file can be given: on disks where a file has holes, or may not grow although there is free space, everything
//! acknowledged reaches the tree, and deletions make room.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{Access, Disk, DiskFile, SystemDisk};
use store::{Durability, Store, StoreError, StoreOptions, TreeId, Tx};

/// Time that the store may take to notice that there is room again.
const PATIENCE: Duration = Duration::from_secs(20);
const PAGE_BYTES: u64 = 4096;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 1 << 20;
    options.durability = Durability::None;
    options.map_bytes = 1 << 30;
    // Checkpoints come from writes alone.
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

fn open<H: Hooks>(directory: &Path, hooks: &Arc<H>, options: StoreOptions) -> (Store, TreeId) {
    let (store, _) = Store::open_on(Arc::new(HookedDisk::new(directory, hooks)), options).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree)
}

fn put(store: &Store, tree: TreeId, key: u32, bytes: usize) -> Result<(), StoreError> {
    let value = vec![key as u8; bytes];
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &key.to_be_bytes(), &value);
        Ok(())
    };
    store.commit(change).map(drop)
}

fn delete(store: &Store, tree: TreeId, key: u32) -> Result<(), StoreError> {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.delete(tree, &key.to_be_bytes());
        Ok(())
    };
    store.commit(change).map(drop)
}

/// Puts values of this size until one is refused; returns how many were accepted.
#[track_caller]
fn put_until_full(store: &Store, tree: TreeId, bytes: usize) -> u32 {
    for key in 0..200_000 {
        match put(store, tree, key, bytes) {
            Ok(()) => {}
            Err(StoreError::Full) => return key,
            Err(error) => panic!("key {key}: {error:?}"),
        }
    }
    panic!("never full")
}

/// Tries again until it is accepted: a segment of the log may be about to be recycled, or a checkpoint to end.
#[track_caller]
fn check_accepted(what: &str, change: impl Fn() -> Result<(), StoreError>) {
    let began = Instant::now();
    while let Err(error) = change() {
        assert!(matches!(error, StoreError::Full) && began.elapsed() < PATIENCE, "{what}: {error:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What was acknowledged reaches the tree; deletions are accepted, and then writes again, without a restart.
#[track_caller]
fn check_full(store: &Store, tree: TreeId, taken: u32, bytes: usize) {
    assert!(store.stats().is_full);
    store.checkpoint().unwrap_or_else(|error| panic!("checkpoint of {taken} values: {error:?}"));
    for key in 0..taken {
        check_accepted(&format!("deletion {key} of {taken}"), || delete(store, tree, key));
    }
    check_accepted("a new value", || put(store, tree, 0, bytes));
    store.checkpoint().unwrap();
    assert!(store.verify().is_clean());
}

/// A file system on which the length of a file may grow by holes, which take space when they are written.
#[derive(Default)]
struct Holes {
    /// Pages of the tree file that have space.
    allocated: Mutex<Vec<bool>>,
    is_full: AtomicBool,
    /// Free bytes of the full disk: those of removed log files that nothing has taken since.
    free: AtomicU64,
    /// How often the store has looked at the full disk.
    looks: AtomicU64,
}

impl Holes {
    /// Gives the pages of a range of the tree file their space.
    fn take(&self, start: u64, end: u64) -> io::Result<()> {
        let mut allocated = self.allocated.lock().unwrap();
        for page in (start / PAGE_BYTES) as usize..end.div_ceil(PAGE_BYTES) as usize {
            if allocated.len() <= page {
                allocated.resize(page + 1, false);
            }
            if !allocated[page] {
                self.spend(PAGE_BYTES)?;
            }
            allocated[page] = true;
        }
        Ok(())
    }

    fn spend(&self, bytes: u64) -> io::Result<()> {
        let full = |_| io::ErrorKind::StorageFull.into();
        if !self.is_full.load(Ordering::Acquire) {
            return Ok(());
        }
        self.free
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| free.checked_sub(bytes))
            .map(drop)
            .map_err(full)
    }

    /// Gives a range of a file its space.
    fn extend(&self, name: &str, file: &dyn DiskFile, start: u64, end: u64) -> io::Result<()> {
        match name {
            "tree" => self.take(start, end),
            _ => self.spend(end.saturating_sub(file.len()?)),
        }
    }
}

impl Hooks for Holes {
    fn free_bytes(&self, disk: &SystemDisk) -> io::Result<Option<u64>> {
        if !self.is_full.load(Ordering::Acquire) {
            return disk.free_bytes();
        }
        if std::thread::current().name() == Some("store-space") {
            self.looks.fetch_add(1, Ordering::AcqRel);
        }
        Ok(Some(self.free.load(Ordering::Acquire)))
    }
    fn remove(&self, disk: &SystemDisk, name: &str) -> io::Result<()> {
        let is_counted = self.is_full.load(Ordering::Acquire) && name.ends_with(".log");
        let len = if is_counted { disk.open(name, false, Access::Buffered)?.len()? } else { 0 };
        disk.remove(name)?;
        self.free.fetch_add(len, Ordering::AcqRel);
        Ok(())
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.extend(name, file, offset, offset + bytes.len() as u64)?;
        file.write_at(bytes, offset)
    }
    fn allocate(&self, name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        self.extend(name, file, start, start + len)?;
        file.allocate(start, len)
    }
}

#[test]
fn pages_that_a_load_left_have_their_space_when_the_disk_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(Holes::default());
    let (store, tree) = open(directory.path(), &hooks, options());
    let loaded = store.tree("loaded").unwrap();
    let mut build = store.bulk().unwrap();
    (0..40_000u32).for_each(|number| build.push(&number.to_be_bytes(), &[3; 200]).unwrap());
    // Others are given up before they write: their free pages stay in the file.
    let mut given_up: Vec<_> = (0..6).map(|_| store.bulk().unwrap()).collect();
    for build in &mut given_up {
        (0..2_000u32).for_each(|number| build.push(&number.to_be_bytes(), &[3; 200]).unwrap());
    }
    drop(given_up);
    store.attach(vec![(loaded, build)], &[]).unwrap();
    hooks.is_full.store(true, Ordering::Release);
    let began = Instant::now();
    // Once it looks again, it has noted what it has seen before.
    while hooks.looks.load(Ordering::Acquire) < 2 {
        assert!(began.elapsed() < PATIENCE, "the store does not look at the disk");
        std::thread::sleep(Duration::from_millis(5));
    }
    let taken = put_until_full(&store, tree, 200);
    assert!(taken > 0);
    check_full(&store, tree, taken, 200);
}

/// A file system with plenty of space on which the tree file may not grow beyond a length.
struct Limited {
    bytes_max: AtomicU64,
    /// Whether the process can ask for that length.
    is_told: bool,
}

impl Hooks for Limited {
    fn free_bytes(&self, _disk: &SystemDisk) -> io::Result<Option<u64>> {
        Ok(Some(1 << 40))
    }
    fn len_max(&self, _name: &str) -> u64 {
        if self.is_told { self.bytes_max.load(Ordering::Relaxed) } else { u64::MAX }
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let left = self.bytes_max.load(Ordering::Relaxed).saturating_sub(offset).min(bytes.len() as u64);
        match name {
            "tree" if left == 0 => Err(io::ErrorKind::FileTooLarge.into()),
            "tree" => file.write_at(&bytes[..left as usize], offset),
            _ => file.write_at(bytes, offset),
        }
    }
}

#[test]
fn a_limit_on_the_size_of_files_refuses_writes_before_their_checkpoint_meets_it() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(Limited { bytes_max: AtomicU64::new(12 << 20), is_told: true });
    let (store, tree) = open(directory.path(), &hooks, options());
    let taken = put_until_full(&store, tree, 20_000);
    assert!(taken > 200, "{taken}");
    check_full(&store, tree, taken, 20_000);
}

#[test]
fn the_end_of_the_map_refuses_writes_before_their_checkpoint_meets_it() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(Limited { bytes_max: AtomicU64::new(u64::MAX), is_told: true });
    let mut options = options();
    options.map_bytes = 12 << 20;
    let (store, tree) = open(directory.path(), &hooks, options);
    let taken = put_until_full(&store, tree, 20_000);
    assert!(taken > 200, "{taken}");
    check_full(&store, tree, taken, 20_000);
}
