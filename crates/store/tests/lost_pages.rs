//! The disk does not deliver pages of the tree file: reads of missing pages are errors, all others are right, and other
//! requests are not affected. The file is truncated under an open store, and its length is told as before, because the store
//! refuses writes if it notices.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

mod hooked_disk;

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hooked_disk::{HookedDisk, Hooks};
use store::disk::DiskFile;
use store::{Direction, KeyRange, Reader, Store, StoreError, StoreOptions, TreeId, Tx};

const ROWS: u32 = 3000;

/// Every tenth value has overflow pages.
fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(if number.is_multiple_of(10) { 5000 } else { 100 })
}

fn put(store: &Store, tree: TreeId, number: u32) -> Result<(), StoreError> {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &value(number));
        Ok(())
    };
    store.commit(change).map(drop)
}

/// Tells the greatest length that the tree file had.
#[derive(Default)]
struct FullLength(AtomicU64);

impl Hooks for FullLength {
    fn len(&self, name: &str, file: &dyn DiskFile) -> io::Result<u64> {
        let len = file.len()?;
        Ok(if name == "tree" { self.0.fetch_max(len, Ordering::Relaxed).max(len) } else { len })
    }
}

/// A store whose rows are all in its tree file.
fn filled(directory: &Path) -> (Store, TreeId) {
    let disk = HookedDisk::new(directory, &Arc::new(FullLength::default()));
    let (store, _) = Store::open_on(Arc::new(disk), StoreOptions::default()).unwrap();
    let tree = store.tree("t").unwrap();
    (0..ROWS).for_each(|number| put(&store, tree, number).unwrap());
    store.checkpoint().unwrap();
    (store, tree)
}

/// Truncates the file to a percentage of its pages.
fn cut(directory: &Path, hundredths: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(directory.join("tree")).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    file.set_len(pages * hundredths / 100 * 4096).unwrap();
}

/// Reads a row: a checked copy, or the error.
fn read(reader: &Reader, tree: TreeId, number: u32) -> Result<Option<Vec<u8>>, StoreError> {
    let snapshot = reader.snapshot();
    let found = snapshot.get(tree, &number.to_be_bytes())?.map(|value| value.to_vec());
    snapshot.check()?;
    Ok(found)
}

/// Reads all rows twice; returns the number of errors. All other reads must be right.
#[track_caller]
fn check_reads(reader: &Reader, tree: TreeId) -> u32 {
    let mut failed = 0;
    for number in (0..ROWS).chain((0..ROWS).rev()) {
        match read(reader, tree, number) {
            Ok(found) => assert!(found == Some(value(number)), "row {number} is wrong"),
            Err(StoreError::Io { .. } | StoreError::Corrupt { .. }) => failed += 1,
            Err(other) => panic!("row {number}: {other:?}"),
        }
    }
    failed
}

/// A scan returns all rows, each right, or an error.
#[track_caller]
fn check_scan(reader: &Reader, tree: TreeId, direction: Direction) -> bool {
    let mut rows = Vec::new();
    let snapshot = reader.snapshot();
    let scanned = snapshot.scan(tree, KeyRange::ALL, direction, &mut |key, value| {
        rows.push((u32::from_be_bytes(key.try_into().unwrap()), value.to_vec()));
        ControlFlow::Continue(())
    });
    if scanned.and_then(|()| snapshot.check()).is_err() {
        return false;
    }
    assert!(rows.len() == ROWS as usize && rows.iter().all(|(number, found)| *found == value(*number)));
    true
}

#[test]
fn reads_of_a_file_that_was_cut_are_errors_or_right() {
    for hundredths in [95, 60, 30, 0] {
        for is_warm in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let (store, tree) = filled(directory.path());
            let reader = store.reader().unwrap();
            if is_warm {
                assert_eq!(check_reads(&reader, tree), 0);
            }
            cut(directory.path(), hundredths);
            assert!(check_reads(&reader, tree) > 0, "cut to {hundredths}");
            assert!(!check_scan(&reader, tree, Direction::Forward));
            assert!(!check_scan(&reader, tree, Direction::Backward));
            assert!(store.stats().lost_pages > 0);
            assert!(!store.verify().is_clean());
        }
    }
}

#[test]
fn writes_that_touch_nothing_lost_go_on_and_a_checkpoint_copies_no_zeros() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = filled(directory.path());
    // The checkpoint needs its leaf, which will be lost. Further writes go on until the store notices that the file is shorter, which may
    // be before the first of them.
    put(&store, tree, ROWS + 1).unwrap();
    cut(directory.path(), 50);
    let rewritten = (0..ROWS).step_by(7).take_while(|number| put(&store, tree, *number).is_ok());
    let taken: Vec<u32> = std::iter::once(ROWS + 1).chain(rewritten).collect();
    assert!(store.checkpoint().is_err());
    let reader = store.reader().unwrap();
    check_reads(&reader, tree);
    assert!(taken.iter().all(|number| read(&reader, tree, *number).unwrap() == Some(value(*number))));
}

#[test]
fn threads_that_read_while_the_file_is_cut_never_take_zeros_for_data() {
    for round in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let (store, tree) = filled(directory.path());
        let (is_cut, failed) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let reader = store.reader().unwrap();
                let (is_cut, failed) = (&is_cut, &failed);
                scope.spawn(move || {
                    while !is_cut.load(Ordering::Acquire) {
                        check_reads(&reader, tree);
                    }
                    failed.fetch_add(check_reads(&reader, tree).into(), Ordering::Relaxed);
                });
            }
            std::thread::sleep(std::time::Duration::from_millis(5 + round));
            cut(directory.path(), 10 * round);
            is_cut.store(true, Ordering::Release);
        });
        assert!(failed.into_inner() > 0);
    }
}
