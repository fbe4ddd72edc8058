//! How a bulk build shares the disk: what it asks to be written out, seen through a disk that takes notes.

#![allow(clippy::unwrap_used)]

mod hooked_disk;

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hooked_disk::{HookedDisk, Hooks};
use store::disk::DiskFile;
use store::{BulkTree, Options, Store};

const VALUE: [u8; 1000] = [b'v'; 1000];
/// Forty-eight megabytes of leaves.
const ENTRIES: u64 = 48_000;
/// Ranges that a build of this size asks for alone are fewer: they are of 4 MB. Beside commits there are twice as many, of
/// which four may still wait for the thread that writes them.
const FEW: usize = 14;

/// Lengths of the ranges that were written out.
#[derive(Default)]
struct Notes(Mutex<Vec<u64>>);

impl Hooks for Notes {
    fn sync_range(&self, _name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().push(len);
        file.sync_range(start, len)
    }
}

fn open(directory: &Path) -> (Store, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let disk = HookedDisk::new(directory, &notes);
    let (store, _) = Store::open_on(Arc::new(disk), Options::default()).unwrap();
    (store, notes)
}

/// Builds a tree, with `between` called after every megabyte; the ranges that were written out meanwhile.
fn check_build(between: impl Fn(&Store)) -> Vec<u64> {
    let directory = tempfile::tempdir().unwrap();
    let (store, notes) = open(directory.path());
    let tree = store.tree("built").unwrap();
    notes.0.lock().unwrap().clear();
    let mut build: BulkTree = store.bulk().unwrap();
    for number in 0..ENTRIES {
        if number.is_multiple_of(1_000) {
            between(&store);
        }
        build.push(&number.to_be_bytes(), &VALUE).unwrap();
    }
    let ranges = notes.0.lock().unwrap().clone();
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
