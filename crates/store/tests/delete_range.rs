//! Deleting ranges through the public interface: one operation, whatever the range contains.

use std::ops::{Bound, ControlFlow};
use std::path::Path;

use crate::scans::first_of;
use store::{Abort, Direction, KeyRange, Reader, Store, StoreError, StoreOptions, TreeId, Tx};

fn open(path: &Path) -> Store {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 1 << 20;
    options.map_bytes = 1 << 30;
    Store::open(path, options).unwrap().0
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

fn fill(store: &Store, tree: TreeId, numbers: std::ops::Range<u32>) {
    for start in numbers.clone().step_by(500) {
        let put = &mut |tx: &mut Tx<'_>| {
            (start..numbers.end.min(start + 500)).for_each(|number| tx.put(tree, &key(number), &[number as u8; 50]));
            Ok(())
        };
        store.commit(put).unwrap();
    }
}

fn delete(store: &Store, tree: TreeId, from: u32, to: u32) {
    let range = (key(from), key(to));
    let range = KeyRange { from: Bound::Included(&range.0), to: Bound::Excluded(&range.1) };
    store
        .commit(&mut |tx| {
            tx.delete_range(tree, range);
            Ok(())
        })
        .unwrap();
}

fn numbers(reader: &Reader, tree: TreeId) -> Vec<u32> {
    let mut found = Vec::new();
    let number = |key: &[u8]| std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
    reader
        .snapshot()
        .scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, _| {
            found.push(number(key));
            ControlFlow::Continue(())
        })
        .unwrap();
    found
}

#[track_caller]
fn check(reader: &Reader, tree: TreeId, expected: impl Iterator<Item = u32>) {
    let expected: Vec<u32> = expected.collect();
    assert_eq!(numbers(reader, tree), expected);
    for number in (0..8000).step_by(13) {
        let value = reader.snapshot().get(tree, &key(number)).unwrap().map(|value| value.into_owned());
        assert_eq!(value.is_some(), expected.contains(&number), "{number}");
    }
}

#[test]
fn a_range_over_tree_frozen_and_active_memtable_is_gone_at_once_and_stays_so() {
    let directory = tempfile::tempdir().unwrap();
    let left = || (0..500).chain(6500..7000);
    {
        let store = open(directory.path());
        let tree = store.tree("t").unwrap();
        let reader = store.reader().unwrap();
        fill(&store, tree, 0..5000);
        store.checkpoint().unwrap();
        fill(&store, tree, 5000..7000);
        let before = store.stats().log_bytes_written;
        delete(&store, tree, 500, 6500);
        assert!(store.stats().log_bytes_written - before <= 4096, "one record");
        check(&reader, tree, left());
    }
    // Replayed from the log, then merged into the tree.
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let reader = store.reader().unwrap();
    check(&reader, tree, left());
    store.checkpoint().unwrap();
    check(&reader, tree, left());
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    let stat = report.trees.iter().find(|stat| stat.info.tree == tree).unwrap();
    assert_eq!(stat.info.entries, 1000);
    assert!(stat.leaf_pages < 30, "{}", stat.leaf_pages);
}

#[test]
fn older_snapshots_keep_what_a_range_deletes_and_later_puts_live() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let (old, new) = (store.reader().unwrap(), store.reader().unwrap());
    fill(&store, tree, 0..1000);
    let snapshot = old.snapshot();
    delete(&store, tree, 0, 1000);
    fill(&store, tree, 300..310);
    check(&new, tree, 300..310);
    store.checkpoint().unwrap();
    check(&new, tree, 300..310);
    let mut count = 0;
    snapshot
        .scan(tree, KeyRange::ALL, Direction::Backward, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(count, 1000);
    assert!(snapshot.get(tree, &key(7)).unwrap().is_some());
}

#[test]
fn within_a_transaction_the_order_of_operations_holds() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let reader = store.reader().unwrap();
    fill(&store, tree, 0..10);
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &key(20), b"before");
        tx.put(tree, &key(30), b"outside");
        let (from, to) = (key(3), key(25));
        tx.delete_range(tree, KeyRange { from: Bound::Excluded(&from), to: Bound::Included(&to) });
        tx.put(tree, &key(5), b"after");
        tx.put(tree, &key(25), b"after");
        tx.delete(tree, &key(25));
        assert_eq!(tx.get(tree, &key(20)).unwrap(), None);
        assert_eq!(tx.get(tree, &key(4)).unwrap(), None);
        assert_eq!(tx.get(tree, &key(5)).unwrap().as_deref(), Some(&b"after"[..]));
        for direction in [Direction::Forward, Direction::Backward] {
            let mut seen = Vec::new();
            tx.scan(tree, KeyRange::ALL, direction, &mut |key, _| {
                seen.push(key.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
            let mut expected = [0, 1, 2, 3, 5, 30].map(key);
            if direction == Direction::Backward {
                expected.reverse();
            }
            assert_eq!(seen, expected);
        }
        assert_eq!(
            first_of(|visit| tx.scan(
                tree,
                KeyRange { from: Bound::Excluded(&from), to: Bound::Unbounded },
                Direction::Forward,
                visit
            ))
            .unwrap()
            .unwrap()
            .0,
            key(5)
        );
        assert_eq!(
            first_of(|visit| tx.scan(
                tree,
                KeyRange { from: Bound::Unbounded, to: Bound::Excluded(&to) },
                Direction::Backward,
                visit
            ))
            .unwrap()
            .unwrap()
            .0,
            key(5)
        );
        Ok(())
    };
    store.commit(change).unwrap();
    check(&reader, tree, [0, 1, 2, 3, 5, 30].into_iter());
    drop(reader);
    drop(store);
    let store = open(directory.path());
    check(&store.reader().unwrap(), tree, [0, 1, 2, 3, 5, 30].into_iter());
}

/// Runs a transaction that reads, and deletes a range in another one before it commits; checks whether it was redone.
#[track_caller]
fn check_conflict(read: impl Fn(&mut Tx<'_>, TreeId) + Sync, deleted: (u32, u32), is_redone: bool) {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (tree, other) = (store.tree("t").unwrap(), store.tree("other").unwrap());
    fill(&store, tree, 0..100);
    let mut runs = 0;
    let change = &mut |tx: &mut Tx<'_>| {
        runs += 1;
        read(tx, tree);
        if runs == 1 {
            delete(&store, tree, deleted.0, deleted.1);
        }
        tx.put(other, b"k", b"v");
        Ok::<(), Abort>(())
    };
    store.commit(change).unwrap();
    assert_eq!(runs > 1, is_redone);
}

#[test]
fn a_transaction_that_read_what_a_range_deletes_is_done_again() {
    let get = |number: u32| move |tx: &mut Tx<'_>, tree| drop(tx.get(tree, &key(number)).unwrap());
    check_conflict(get(15), (10, 20), true);
    check_conflict(get(20), (10, 20), false);
    check_conflict(get(9), (10, 20), false);
    // Also for a key that does not exist: it could have been put.
    check_conflict(get(500), (10, 600), true);
    let scan = |from: u32, to: u32| {
        move |tx: &mut Tx<'_>, tree| {
            let (from, to) = (key(from), key(to));
            let range = KeyRange { from: Bound::Included(&from), to: Bound::Included(&to) };
            tx.scan(tree, range, Direction::Forward, &mut |_, _| ControlFlow::Continue(())).unwrap();
        }
    };
    check_conflict(scan(0, 9), (10, 20), false);
    check_conflict(scan(0, 10), (10, 20), true);
    check_conflict(scan(12, 13), (10, 20), true);
    check_conflict(scan(20, 30), (10, 20), false);
}

#[test]
fn many_ranges_make_checkpoints_and_lose_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let reader = store.reader().unwrap();
    fill(&store, tree, 0..8000);
    for number in 0..2500 {
        delete(&store, tree, number * 3, number * 3 + 1);
    }
    check(&reader, tree, (0..8000).filter(|number| *number >= 7500 || number % 3 != 0));
    assert!(store.stats().checkpoints >= 1);
}

#[test]
fn what_cannot_be_deleted_at_once_is_refused_with_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let commit = |change: &(dyn Fn(&mut Tx<'_>) + Sync)| {
        let result = store.commit(&mut |tx| {
            change(tx);
            Ok(())
        });
        match result {
            Err(StoreError::Limit { what, limit }) => Some((what, limit)),
            Err(error) => panic!("{error}"),
            Ok(_) => None,
        }
    };
    let many = |tx: &mut Tx<'_>, count: u32| {
        (0..count).for_each(|number| {
            let ends = (key(2 * number), key(2 * number + 1));
            tx.delete_range(tree, KeyRange { from: Bound::Included(&ends.0), to: Bound::Excluded(&ends.1) });
        });
    };
    assert_eq!(commit(&|tx| many(tx, 64)), None);
    assert_eq!(commit(&|tx| many(tx, 65)), Some(("deleted ranges of a transaction", 64)));
    let longest = [7; 1024];
    let too_long = [7; 1025];
    let range = |to| KeyRange { from: Bound::Excluded(&longest[..]), to };
    assert_eq!(commit(&|tx| tx.delete_range(tree, range(Bound::Unbounded))), None);
    assert_eq!(
        commit(&|tx| tx.delete_range(tree, KeyRange { from: Bound::Unbounded, to: Bound::Included(&longest) })),
        None
    );
    assert_eq!(commit(&|tx| tx.delete_range(tree, range(Bound::Included(&too_long)))), Some(("key", 1024)));
    // An empty range changes nothing.
    let version = store.stats().version;
    let (low, high) = (key(1), key(2));
    assert_eq!(
        commit(&|tx| tx.delete_range(tree, KeyRange { from: Bound::Included(&high), to: Bound::Excluded(&low) })),
        None
    );
    assert_eq!(store.stats().version, version);
}

#[test]
fn a_reader_that_remembers_places_does_not_find_deleted_keys_there() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let tree = store.tree("t").unwrap();
    let reader = store.reader().unwrap();
    store
        .commit(&mut |tx| {
            (0..100u8).for_each(|key| tx.put(tree, &[key], &[key]));
            Ok(())
        })
        .unwrap();
    store.checkpoint().unwrap();
    let is_there = |key: u8| {
        let snapshot = reader.snapshot();
        reader.foresee(tree, &[key]);
        reader.fetch();
        snapshot.get(tree, &[key]).unwrap().is_some()
    };
    assert!((0..100).all(is_there));
    store
        .commit(&mut |tx| {
            tx.delete_range(tree, KeyRange { from: Bound::Included(&[10]), to: Bound::Excluded(&[20]) });
            Ok(())
        })
        .unwrap();
    for _ in 0..2 {
        assert!((0..100).all(|key| is_there(key) != (10..20).contains(&key)));
        store.checkpoint().unwrap();
    }
}

#[test]
fn keys_are_counted_as_a_scan_finds_them() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let (tree, other) = (store.tree("t").unwrap(), store.tree("other").unwrap());
    let reader = store.reader().unwrap();
    let check = |what: &str| {
        let snapshot = reader.snapshot();
        assert_eq!(snapshot.count(tree).unwrap(), numbers(&reader, tree).len() as u64, "{what}");
        snapshot.count(tree).unwrap()
    };
    assert_eq!(check("nothing"), 0);
    fill(&store, tree, 0..3000);
    fill(&store, other, 0..500);
    assert_eq!(check("in the memtable alone"), 3000);
    store.checkpoint().unwrap();
    assert_eq!(check("in the tree file alone"), 3000);
    // New keys, rewritten ones, deleted ones, and deletions of keys that do not exist.
    fill(&store, tree, 2900..3100);
    let change = &mut |tx: &mut Tx<'_>| {
        (0..200).chain(3050..3060).chain(7000..7010).for_each(|number| tx.delete(tree, &key(number)));
        (100..110).for_each(|number| tx.put(tree, &key(number), b"again"));
        Ok(())
    };
    store.commit(change).unwrap();
    assert_eq!(check("changes above the tree file"), 2900);
    delete(&store, other, 0, 400);
    assert_eq!(check("a range of another tree"), 2900);
    delete(&store, tree, 1000, 2000);
    assert_eq!(check("a range"), 1900);
    store.checkpoint().unwrap();
    assert_eq!(check("merged"), 1900);
}
