//! A failing disk: what is refused, what still exists, and that reads continue.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::faulty_disk::{Faults, faulty};
use store::{Store, StoreError, StoreOptions, TreeId, Tx};

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options.map_bytes = 1 << 30;
    options
}

fn open(directory: &Path) -> (Store, TreeId, Arc<Faults>) {
    let (disk, faults) = faulty(directory);
    let (store, _) = Store::open_on(Arc::new(disk), options()).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree, faults)
}

fn put(store: &Store, tree: TreeId, number: u32) -> Result<(), StoreError> {
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

/// Transactions committed, and batches written.
fn counted(store: &Store) -> (u64, u64) {
    let stats = store.stats();
    (stats.commits, stats.groups)
}

/// After `fail`, one commit has an unknown outcome, all others are refused, reads continue; after reopening everything exists.
fn check_poisoned(fail: impl Fn(&Faults) -> &AtomicBool) {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path());
    (1..=20).for_each(|number| put(&store, tree, number).unwrap());
    let (commits, groups) = counted(&store);
    fail(&faults).store(true, Ordering::Relaxed);
    assert!(matches!(put(&store, tree, 21), Err(StoreError::Unknown(_))));
    fail(&faults).store(false, Ordering::Relaxed);
    for number in 22..30 {
        assert!(matches!(put(&store, tree, number), Err(StoreError::Poisoned)));
    }
    assert_eq!(counted(&store), (commits, groups), "a batch whose write failed has committed nothing");
    assert!((1..=20).all(|number| has(&store, tree, number)));
    assert!((21..30).all(|number| !has(&store, tree, number)));
    assert!(matches!(store.checkpoint(), Err(StoreError::Poisoned)));
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
    assert!(matches!(put(&store, tree, 51), Err(StoreError::Poisoned)));
    assert!((1..=50).all(|number| has(&store, tree, number)));
    drop(store);
    let (store, tree, _) = open(directory.path());
    assert!((1..=50).all(|number| has(&store, tree, number)));
    put(&store, tree, 51).unwrap();
    store.checkpoint().unwrap();
}

#[test]
fn a_sync_that_fails_for_want_of_space_is_a_failed_sync() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path());
    (1..=50).for_each(|number| put(&store, tree, number).unwrap());
    faults.tree_syncs_want_space.store(true, Ordering::Relaxed);
    assert!(store.checkpoint().is_err());
    faults.tree_syncs_want_space.store(false, Ordering::Relaxed);
    assert!(matches!(put(&store, tree, 51), Err(StoreError::Poisoned)));
    assert!(store.stats().is_poisoned);
    drop(store);
    let (store, tree, _) = open(directory.path());
    assert!((1..=50).all(|number| has(&store, tree, number)));
    store.checkpoint().unwrap();
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
