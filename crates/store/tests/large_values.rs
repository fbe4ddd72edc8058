//! The largest values, from the commit to the tree and back, and the errors if the settings do not allow them.

use std::ops::ControlFlow;
use std::path::Path;

use store::{Direction, KeyRange, Store, StoreError, StoreOptions, TreeId, Tx};

const LARGEST: usize = 64 << 20;

fn options(memtable: usize, segment: u64) -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = memtable;
    options.log_segment_bytes = segment;
    options.map_bytes = 4 << 30;
    options
}

fn open(path: &Path) -> Store {
    Store::open(path, options(129 << 20, 65 << 20)).unwrap().0
}

/// Different in each page, so that a page in the wrong place is noticed.
fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096 * 7) as u8 ^ at as u8 ^ seed).collect()
}

fn put(store: &Store, tree: TreeId, key: &[u8], value: &[u8]) -> Result<store::Commit, StoreError> {
    store.commit(&mut |tx: &mut Tx<'_>| {
        tx.put(tree, key, value);
        Ok(())
    })
}

#[track_caller]
fn check(store: &Store, tree: TreeId, key: &[u8], expected: Option<&[u8]>) {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    assert!(snapshot.get(tree, key).unwrap().as_deref() == expected);
    let all = snapshot.last(tree, store::KeyRange::ALL).unwrap();
    assert!(all.as_ref().map(|(_, value)| value.as_slice()) == expected);
}

#[test]
fn a_value_of_64_mb_survives_recovery_checkpoints_updates_and_goes() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (value(LARGEST, 1), value(LARGEST, 2));
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    put(&store, tree, b"k", &first).unwrap();
    check(&store, tree, b"k", Some(&first));
    drop(store);
    let store = open(directory.path());
    check(&store, tree, b"k", Some(&first));
    store.checkpoint().unwrap();
    check(&store, tree, b"k", Some(&first));
    let held = store.reader().unwrap();
    let snapshot = held.snapshot();
    put(&store, tree, b"k", &second).unwrap();
    store.checkpoint().unwrap();
    check(&store, tree, b"k", Some(&second));
    assert!(snapshot.get(tree, b"k").unwrap().as_deref() == Some(&first));
    drop(snapshot);
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.trees.iter().map(|stat| stat.overflow_pages).sum::<u64>(), LARGEST as u64 / 4096 + 1);
    store
        .commit(&mut |tx| {
            tx.delete(tree, b"k");
            Ok(())
        })
        .unwrap();
    check(&store, tree, b"k", None);
    store.checkpoint().unwrap();
    check(&store, tree, b"k", None);
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    assert_eq!(report.trees.iter().map(|stat| stat.overflow_pages).sum::<u64>(), 0);
}

#[track_caller]
fn check_refused(options: StoreOptions, len: usize, what: &str, limit: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options).unwrap();
    let tree = store.tree("t").unwrap();
    match put(&store, tree, b"k", &vec![1; len]) {
        Err(error @ StoreError::Limit { .. }) => {
            assert_eq!(error.to_string(), format!("{what} over the limit of {limit}"))
        }
        outcome => panic!("{outcome:?}"),
    }
    check(&store, tree, b"k", None);
    put(&store, tree, b"k", b"small").unwrap();
}

#[test]
fn a_value_that_the_settings_do_not_allow_is_refused_by_the_setting() {
    check_refused(options(4 << 20, 8 << 20), 3 << 20, "transaction, by half of memtable_bytes,", 2 << 20);
    check_refused(options(8 << 20, 1 << 20), 3 << 20, "transaction, by log_segment_bytes,", (1 << 20) - (16 << 10));
    let mut own = options(8 << 20, 8 << 20);
    own.transaction_bytes_max = 1 << 20;
    check_refused(own, 3 << 20, "transaction, by transaction_bytes_max,", 1 << 20);
    check_refused(options(4 << 20, 4 << 20), LARGEST + 1, "value", LARGEST as u64);
}

/// A reader that must not compute a long checksum is refused until another reader has read the value; other reads are not.
#[test]
fn a_reader_that_leaves_long_checksums_to_others_is_refused_a_long_value_until_it_was_read() {
    let directory = tempfile::tempdir().unwrap();
    let long = |number: u8| value(if number < 2 { 2 << 20 } else { 1 << 20 }, number);
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    for number in 0..4 {
        put(&store, tree, &[number], &long(number)).unwrap();
    }
    store.checkpoint().unwrap();
    drop(store);
    let store = open(directory.path());
    let (tree, loops, other) = (store.tree("t").unwrap(), store.reader().unwrap(), store.reader().unwrap());
    loops.check_at_most(1 << 20);
    let is_refused = |number: u8| match loops.snapshot().get(tree, &[number]) {
        Ok(found) => {
            assert!(found.as_deref() == Some(&long(number)), "{number}");
            false
        }
        Err(error) => {
            assert!(matches!(error, StoreError::NotInMemory), "{error:?}");
            true
        }
    };
    let scan = |reader: &store::Reader| {
        let mut entries = 0;
        let visit = &mut |_: &[u8], _: &[u8]| {
            entries += 1;
            ControlFlow::Continue(())
        };
        let scanned = reader.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, visit);
        (entries, matches!(scanned, Err(StoreError::NotInMemory)))
    };
    let scan_leaves = || {
        let mut refused = 0;
        let visit = &mut |entries: &store::Entries<'_>| {
            refused +=
                (0..entries.len()).filter(|at| matches!(entries.value(*at), Err(StoreError::NotInMemory))).count();
            ControlFlow::Continue(())
        };
        assert!(loops.snapshot().scan_leaves(tree, KeyRange::ALL, Direction::Forward, visit).unwrap());
        refused
    };
    assert_eq!([0, 1, 2, 3].map(is_refused), [true, true, false, false]);
    assert_eq!((scan(&loops), scan_leaves()), ((0, true), 2));
    assert!(other.snapshot().get(tree, &[0]).unwrap().as_deref() == Some(&long(0)));
    assert_eq!([0, 1].map(is_refused), [false, true]);
    assert_eq!((scan(&loops), scan_leaves()), ((1, true), 1));
    assert_eq!(scan(&other), (4, false));
    assert_eq!(([0, 1].map(is_refused), scan(&loops), scan_leaves()), ([false; 2], (4, false), 0));
}
