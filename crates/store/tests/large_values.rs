//! The largest values, from the commit to the tree and back, and who says no where the settings do not allow them.

use std::path::Path;

use store::{Error, Options, Store, TreeId, Tx};

const LARGEST: usize = 64 << 20;

fn options(memtable: usize, segment: u64) -> Options {
    let mut options = Options::default();
    options.memtable_bytes = memtable;
    options.log_segment_bytes = segment;
    options.map_bytes = 4 << 30;
    options
}

fn open(path: &Path) -> Store {
    Store::open(path, options(129 << 20, 65 << 20)).unwrap().0
}

/// Different in each page, so that a page in the wrong place is seen.
fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 4096 * 7) as u8 ^ at as u8 ^ seed).collect()
}

fn put(store: &Store, tree: TreeId, key: &[u8], value: &[u8]) -> Result<store::Commit, Error> {
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
fn check_refused(options: Options, len: usize, what: &str, limit: u64) {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options).unwrap();
    let tree = store.tree("t").unwrap();
    match put(&store, tree, b"k", &vec![1; len]) {
        Err(error @ Error::Limit { .. }) => assert_eq!(error.to_string(), format!("{what} over the limit of {limit}")),
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
