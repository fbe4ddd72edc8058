//! How bulk builds and checkpoints share the disk: the ranges that they write out, recorded by the disk.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::DiskFile;
use store::{BulkTree, Store, StoreOptions, Tx};

const VALUE: [u8; 1000] = [b'v'; 1000];
/// Forty-eight megabytes of leaves.
const ENTRIES: u64 = 48_000;
/// A build of this size that runs alone writes out fewer ranges, of 4 MB each. Beside commits there are twice as many,
/// of which four may still wait for the writing thread.
const FEW: usize = 14;

/// Lengths of the ranges written out, and the number of writes to the tree file.
#[derive(Default)]
struct Notes(Mutex<Vec<u64>>, AtomicUsize);

impl Hooks for Notes {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.1.fetch_add(usize::from(name == "tree"), Ordering::Relaxed);
        file.write_at(bytes, offset)
    }

    fn sync_range(&self, _name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().push(len);
        file.sync_range(start, len)
    }
}

fn open(directory: &Path) -> (Store, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    let disk = HookedDisk::new(directory, &notes);
    let (store, _) = Store::open_on(Arc::new(disk), StoreOptions::default()).unwrap();
    (store, notes)
}

/// Builds a tree, with `between` called after every megabyte; returns the ranges written out meanwhile.
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

/// Entries of the store that is checkpointed; four share a leaf.
const UPDATED: u64 = 8_000;
/// One of this many entries is updated between two checkpoints: scattered pages are freed, and reused two checkpoints later.
const STEP: u64 = 16;
/// Rounds until most of the reused pages are scattered.
const ROUNDS: u64 = 8;

#[test]
fn a_checkpoint_beside_commits_writes_out_each_of_its_writes_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (store, notes) = open(directory.path());
    let tree = store.tree("updated").unwrap();
    let mut build = store.bulk().unwrap();
    (0..UPDATED).for_each(|number| build.push(&number.to_be_bytes(), &VALUE).unwrap());
    store.attach(vec![(tree, build)], &[]).unwrap();
    notes.0.lock().unwrap().clear();
    notes.1.store(0, Ordering::Relaxed);
    for round in 0..ROUNDS {
        let updates = (round..UPDATED).step_by(STEP as usize);
        let update = |tx: &mut Tx<'_>| {
            updates.clone().for_each(|number| tx.put(tree, &number.to_be_bytes(), &VALUE));
            Ok(())
        };
        store.commit(&mut { update }).unwrap();
        checkpoint_beside_commits(&store);
    }
    let (writes, ranges) = (notes.1.load(Ordering::Relaxed), notes.0.lock().unwrap().len());
    assert!(writes > 1_000, "{writes} writes: too few to say anything");
    // Some are joined if commits pause for a while; with slices of four pages there would be a quarter as many.
    assert!(ranges > writes / 3, "{ranges} ranges for {writes} writes");
}

fn checkpoint_beside_commits(store: &Store) {
    let is_done = AtomicBool::new(false);
    let other = store.tree("other").unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let put = |tx: &mut Tx<'_>| {
                    tx.put(other, b"key", b"value");
                    Ok(())
                };
                store.commit(&mut { put }).unwrap();
            }
        });
        let result = store.checkpoint();
        is_done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}
