//! How a bulk build shares the disk: what it asks to be written out, seen through a disk that takes notes.

#![allow(clippy::unwrap_used)]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, SystemDisk};
use store::{BulkTree, Options, Store};

const VALUE: [u8; 1000] = [b'v'; 1000];
/// Twenty-four megabytes of leaves.
const ENTRIES: u64 = 24_000;
/// Ranges that a build of this size asks for alone are fewer.
const FEW: usize = 8;

/// Lengths of the ranges that were written out.
type Notes = Arc<Mutex<Vec<u64>>>;

struct NotingDisk {
    disk: SystemDisk,
    notes: Notes,
}

struct NotingFile {
    file: Arc<dyn DiskFile>,
    notes: Notes,
}

impl Disk for NotingDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, create, access)?;
        Ok(Arc::new(NotingFile { file, notes: Arc::clone(&self.notes) }))
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

impl DiskFile for NotingFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        self.notes.lock().unwrap().push(len);
        self.file.sync_range(start, len)
    }

    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }
}

fn open(directory: &Path) -> (Store, Notes) {
    let notes = Notes::default();
    let disk = NotingDisk { disk: SystemDisk::new(directory).unwrap(), notes: Arc::clone(&notes) };
    let (store, _) = Store::open_on(Arc::new(disk), Options::default()).unwrap();
    (store, notes)
}

/// Builds a tree, with `between` called after every megabyte; the ranges that were written out meanwhile.
fn check_build(between: impl Fn(&Store)) -> Vec<u64> {
    let directory = tempfile::tempdir().unwrap();
    let (store, notes) = open(directory.path());
    let tree = store.tree("built").unwrap();
    notes.lock().unwrap().clear();
    let mut build: BulkTree = store.bulk().unwrap();
    for number in 0..ENTRIES {
        if number.is_multiple_of(1_000) {
            between(&store);
        }
        build.push(&number.to_be_bytes(), &VALUE).unwrap();
    }
    let ranges = notes.lock().unwrap().clone();
    store.attach(vec![(tree, build)], &[]).unwrap();
    let reader = store.reader().unwrap();
    assert!(reader.snapshot().get(tree, &(ENTRIES - 1).to_be_bytes()).unwrap().is_some());
    ranges
}

#[test]
fn a_bulk_build_beside_which_nobody_commits_writes_out_in_few_long_stretches() {
    let ranges = check_build(|_| {});
    assert!(!ranges.is_empty(), "all is left to the last sync");
    assert!(ranges.len() < FEW, "{ranges:?}");
}

#[test]
fn a_bulk_build_beside_commits_writes_out_as_soon_as_there_is_something() {
    let ranges = check_build(|store| {
        let other = store.tree("other").unwrap();
        store
            .commit(&mut |tx| {
                tx.put(other, b"key", b"value");
                Ok(())
            })
            .unwrap();
    });
    assert!(ranges.len() > FEW, "{ranges:?}");
}
