//! Ranges and prefixes, in both directions, over tree, frozen and active memtable.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use crate::scans::{beginning_with, first_of};
use store::{Direction, KeyRange, Store, StoreOptions, TreeId, Tx};

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys that are prefixes and neighbours of one another, up to the largest that a prefix can have.
fn keys() -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    for first in [0, 1, b'a', b'b', 0xfe, 0xff] {
        keys.push(vec![first]);
        for second in [0, b'a', 0xff] {
            keys.push(vec![first, second]);
            keys.extend([0, b'z', 0xff].map(|third| vec![first, second, third]));
        }
    }
    keys.push(vec![0xff; 1024]);
    keys
}

fn collect(scan: impl FnOnce(&mut store::Visit<'_>)) -> Entries {
    let mut found = Vec::new();
    scan(&mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    });
    found
}

/// One range in both directions, with first and last entry: the results of the snapshot and of the transaction.
#[track_caller]
fn check(store: &Store, tree: TreeId, range: KeyRange<'_>, expected: &Entries) {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let mut backward = expected.clone();
    backward.reverse();
    assert_eq!(collect(|visit| snapshot.scan(tree, range, Direction::Forward, visit).unwrap()), *expected, "{range:?}");
    assert_eq!(collect(|visit| snapshot.scan(tree, range, Direction::Backward, visit).unwrap()), backward, "{range:?}");
    assert_eq!(snapshot.first(tree, range).unwrap().as_ref(), expected.first(), "{range:?}");
    assert_eq!(snapshot.last(tree, range).unwrap().as_ref(), expected.last(), "{range:?}");
    let look = &mut |tx: &mut Tx<'_>| {
        assert_eq!(collect(|visit| tx.scan(tree, range, Direction::Forward, visit).unwrap()), *expected, "{range:?}");
        assert_eq!(
            first_of(|visit| tx.scan(tree, range, Direction::Forward, visit)).unwrap().as_ref(),
            expected.first(),
            "{range:?}"
        );
        assert_eq!(
            first_of(|visit| tx.scan(tree, range, Direction::Backward, visit)).unwrap().as_ref(),
            expected.last(),
            "{range:?}"
        );
        Ok(())
    };
    store.commit(look).unwrap();
}

fn check_all(store: &Store, tree: TreeId, map: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let expected = |holds: &dyn Fn(&[u8]) -> bool| -> Entries {
        map.iter().filter(|(key, _)| holds(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut end = Vec::new();
    for prefix in keys().iter().filter(|key| key.len() < 4) {
        check(store, tree, beginning_with(prefix, &mut end), &expected(&|key| key.starts_with(prefix)));
    }
    let places: Vec<_> = keys().into_iter().step_by(7).chain([b"ab".to_vec(), vec![0xff; 5]]).collect();
    let bounds = |key| [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)];
    for (from, to) in places.iter().flat_map(|from| places.iter().map(move |to| (from, to))) {
        for (from, to) in bounds(from).into_iter().flat_map(|from| bounds(to).map(|to| (from, to))) {
            let is_above = |key: &[u8]| match from {
                Bound::Unbounded => true,
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
            };
            let is_below = |key: &[u8]| match to {
                Bound::Unbounded => true,
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
            };
            let range = KeyRange { from: from.map(Vec::as_slice), to: to.map(Vec::as_slice) };
            // Also with crossed bounds: such a range is empty.
            check(store, tree, range, &expected(&|key| is_above(key) && is_below(key)));
        }
    }
}

fn open(path: &std::path::Path) -> (Store, TreeId) {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 1 << 20;
    options.map_bytes = 1 << 30;
    let (store, _) = Store::open(path, options).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree)
}

#[test]
fn every_kind_of_range_is_read_both_ways_in_tree_and_memtable() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = open(directory.path());
    let mut map = BTreeMap::new();
    check_all(&store, tree, &map);
    let put = |map: &mut BTreeMap<_, _>, nth: usize, value: u8| {
        let chosen: Vec<_> =
            keys().into_iter().enumerate().filter(|(at, _)| at % 3 == nth).map(|(_, key)| key).collect();
        store
            .commit(&mut |tx| {
                chosen.iter().for_each(|key| tx.put(tree, key, &[value]));
                Ok(())
            })
            .unwrap();
        map.extend(chosen.into_iter().map(|key| (key, vec![value])));
    };
    put(&mut map, 0, 1);
    put(&mut map, 1, 2);
    check_all(&store, tree, &map);
    store.checkpoint().unwrap();
    check_all(&store, tree, &map);
    put(&mut map, 1, 3);
    put(&mut map, 2, 4);
    // Deletions in the memtable of keys in the tree, one by one and as ranges.
    let gone: Vec<_> = keys().into_iter().step_by(5).collect();
    let (from, to) = (vec![b'a', 0, 0xff], vec![b'b', b'a']);
    store
        .commit(&mut |tx| {
            gone.iter().for_each(|key| tx.delete(tree, key));
            tx.delete_range(tree, KeyRange { from: Bound::Included(&from), to: Bound::Excluded(&to) });
            tx.delete_range(tree, beginning_with(&[0xff, 0xff], &mut Vec::new()));
            Ok(())
        })
        .unwrap();
    let is_gone = |key: &Vec<u8>| (&from..&to).contains(&key) || key.starts_with(&[0xff, 0xff]) || gone.contains(key);
    map.retain(|key, _| !is_gone(key));
    check_all(&store, tree, &map);
    put(&mut map, 0, 5);
    check_all(&store, tree, &map);
    store.checkpoint().unwrap();
    check_all(&store, tree, &map);
}
