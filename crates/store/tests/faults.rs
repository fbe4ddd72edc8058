//! A disk that fails: what is refused, what is still there, and that reading goes on.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, SystemDisk};
use store::{Error, Options, Store, TreeId, Tx};

/// What goes wrong, switched on and off while the store runs.
#[derive(Default)]
struct Faults {
    log_writes_fail: AtomicBool,
    log_syncs_fail: AtomicBool,
    tree_syncs_fail: AtomicBool,
    /// Bytes by which files may still grow; below zero the disk is full.
    room: AtomicI64,
    /// Every other write is short, every fourth interrupted.
    is_stuttering: AtomicBool,
    writes: AtomicU64,
}

struct FaultyDisk {
    disk: SystemDisk,
    faults: Arc<Faults>,
}

struct FaultyFile {
    file: Arc<dyn DiskFile>,
    is_log: bool,
    faults: Arc<Faults>,
}

impl Disk for FaultyDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        if access == Access::Direct {
            // As a file system without it; so the buffered way is under test here, the direct one elsewhere.
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file = self.disk.open(name, create, access)?;
        let is_log = name.ends_with(".log") || name.ends_with(".new") && name.starts_with('0');
        Ok(Arc::new(FaultyFile { file, is_log, faults: Arc::clone(&self.faults) }))
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }
    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        self.disk.lock(name)
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl FaultyFile {
    fn grow(&self, to: u64) -> io::Result<()> {
        let growth = to.saturating_sub(self.file.len()?) as i64;
        if growth > 0 && self.faults.room.fetch_sub(growth, Ordering::Relaxed) < growth {
            self.faults.room.fetch_add(growth, Ordering::Relaxed);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl DiskFile for FaultyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let count = self.faults.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_log && self.faults.log_writes_fail.load(Ordering::Relaxed) {
            return Err(eio());
        }
        self.grow(offset + bytes.len() as u64)?;
        let is_stuttering = self.faults.is_stuttering.load(Ordering::Relaxed);
        match count % 4 {
            0 if is_stuttering => Err(io::ErrorKind::Interrupted.into()),
            1 | 3 if is_stuttering => self.file.write_at(&bytes[..bytes.len().div_ceil(3)], offset),
            _ => self.file.write_at(bytes, offset),
        }
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.grow(len)?;
        self.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        let fails = if self.is_log { &self.faults.log_syncs_fail } else { &self.faults.tree_syncs_fail };
        if fails.load(Ordering::Relaxed) { Err(eio()) } else { self.file.sync_data() }
    }
    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        self.file.sync_range(start, len)
    }
    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options.map_bytes = 1 << 30;
    options
}

fn open(directory: &Path) -> (Store, TreeId, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    faults.room.store(i64::MAX / 2, Ordering::Relaxed);
    let disk = FaultyDisk { disk: SystemDisk::new(directory).unwrap(), faults: Arc::clone(&faults) };
    let (store, _) = Store::open_on(Arc::new(disk), options()).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree, faults)
}

fn put(store: &Store, tree: TreeId, number: u32) -> Result<(), Error> {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &number.to_le_bytes().repeat(100));
        Ok(())
    };
    store.commit(change).map(|_| ())
}

fn has(store: &Store, tree: TreeId, number: u32) -> bool {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    match snapshot.get(tree, &number.to_be_bytes()).unwrap() {
        None => false,
        Some(value) => {
            assert_eq!(*value, number.to_le_bytes().repeat(100));
            true
        }
    }
}

/// After `fail`, one commit has an unknown outcome, all others are refused, reads go on; opened again all is there.
fn check_poisoned(fail: impl Fn(&Faults) -> &AtomicBool) {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path());
    (1..=20).for_each(|number| put(&store, tree, number).unwrap());
    fail(&faults).store(true, Ordering::Relaxed);
    assert!(matches!(put(&store, tree, 21), Err(Error::Unknown(_))));
    fail(&faults).store(false, Ordering::Relaxed);
    for number in 22..30 {
        assert!(matches!(put(&store, tree, number), Err(Error::Poisoned)));
    }
    assert!((1..=20).all(|number| has(&store, tree, number)));
    assert!((21..30).all(|number| !has(&store, tree, number)));
    assert!(matches!(store.checkpoint(), Err(Error::Poisoned)));
    assert!(store.stats().is_poisoned);
    drop(store);
    let (store, tree, _) = open(directory.path());
    assert!((1..=20).all(|number| has(&store, tree, number)));
    assert!((22..30).all(|number| !has(&store, tree, number)));
    put(&store, tree, 31).unwrap();
}

#[test]
fn a_failed_write_of_the_log_stops_writes_and_not_reads() {
    check_poisoned(|faults| &faults.log_writes_fail);
}

#[test]
fn a_failed_sync_of_the_log_stops_writes_and_not_reads() {
    check_poisoned(|faults| &faults.log_syncs_fail);
}

#[test]
fn a_failed_sync_of_the_tree_stops_writes_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path());
    (1..=50).for_each(|number| put(&store, tree, number).unwrap());
    faults.tree_syncs_fail.store(true, Ordering::Relaxed);
    assert!(store.checkpoint().is_err());
    faults.tree_syncs_fail.store(false, Ordering::Relaxed);
    assert!(matches!(put(&store, tree, 51), Err(Error::Poisoned)));
    assert!((1..=50).all(|number| has(&store, tree, number)));
    drop(store);
    let (store, tree, _) = open(directory.path());
    assert!((1..=50).all(|number| has(&store, tree, number)));
    put(&store, tree, 51).unwrap();
    store.checkpoint().unwrap();
}

#[test]
fn a_full_disk_refuses_writes_clearly_and_takes_them_again_when_there_is_room() {
    for room in [0, 300_000, 700_000] {
        let directory = tempfile::tempdir().unwrap();
        let (store, tree, faults) = open(directory.path());
        faults.room.store(room, Ordering::Relaxed);
        let mut done = Vec::new();
        let mut refused = 0;
        let mut number = 0;
        while refused < 3 {
            number += 1;
            match put(&store, tree, number) {
                Ok(()) => done.push(number),
                Err(Error::Full) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
            assert!(number < 100_000, "never full");
        }
        assert_eq!((1..=number).filter(|number| has(&store, tree, *number)).collect::<Vec<_>>(), done);
        faults.room.store(1 << 30, Ordering::Relaxed);
        let mut tries = 0;
        while let Err(error) = put(&store, tree, number + 1) {
            assert!(matches!(error, Error::Full), "{error:?}");
            tries += 1;
            assert!(tries < 100, "still refused");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        done.push(number + 1);
        store.checkpoint().unwrap();
        drop(store);
        let (store, tree, _) = open(directory.path());
        assert_eq!((1..=number + 1).filter(|number| has(&store, tree, *number)).collect::<Vec<_>>(), done);
    }
}

#[test]
fn short_and_interrupted_writes_are_gone_on_with() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path());
    faults.is_stuttering.store(true, Ordering::Relaxed);
    (1..=1500).for_each(|number| put(&store, tree, number).unwrap());
    store.checkpoint().unwrap();
    drop(store);
    let (store, tree, _) = open(directory.path());
    assert!((1..=1500).all(|number| has(&store, tree, number)));
}
