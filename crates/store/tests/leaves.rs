//! Entries passed a leaf at a time, and values looked up together, agree with a scan and single lookups.

use std::ops::{Bound, ControlFlow};

use store::{Direction, KeyRange, Store, StoreOptions, StoreSnapshot, TreeId};

const KEYS: u32 = 2_000;

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// Keys with long shared prefixes; two of three numbers between them are free.
fn key(number: u32) -> Vec<u8> {
    let mut key = b"a common start, ".to_vec();
    key.extend_from_slice(&(number * 3).to_be_bytes());
    key
}

/// Short values; every 97th is in overflow.
fn value(number: u32) -> Vec<u8> {
    format!("{number} ").repeat(if number.is_multiple_of(97) { 900 } else { 1 + number as usize % 9 }).into_bytes()
}

fn filled(places_bytes: usize) -> (tempfile::TempDir, Store, TreeId) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = StoreOptions::default();
    options.places_bytes = places_bytes;
    let (store, _) = Store::open(dir.path(), options).expect("opened");
    let tree = store.tree("one").expect("a tree");
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(250) {
        let commit = store.commit(&mut |tx| {
            chunk.iter().for_each(|number| tx.put(tree, &key(*number), &value(*number)));
            chunk.iter().for_each(|number| tx.put(tree, &number.to_be_bytes(), &value(*number)));
            Ok(())
        });
        commit.expect("committed");
    }
    store.checkpoint().expect("a checkpoint");
    (dir, store, tree)
}

fn scanned(
    snapshot: &StoreSnapshot<'_>,
    tree: TreeId,
    range: KeyRange<'_>,
    direction: Direction,
    limit: usize,
) -> Pairs {
    let mut pairs = Pairs::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        pairs.push((key.to_vec(), value.to_vec()));
        if pairs.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    snapshot.scan(tree, range, direction, visit).expect("scanned");
    pairs
}

/// The same by leaves, if the range allows it.
fn by_leaves(
    snapshot: &StoreSnapshot<'_>,
    tree: TreeId,
    range: KeyRange<'_>,
    direction: Direction,
    limit: usize,
) -> Option<Pairs> {
    let (mut pairs, mut key) = (Pairs::new(), Vec::new());
    let done = snapshot.scan_leaves(tree, range, direction, &mut |entries| {
        assert_ne!(entries.len(), 0);
        for number in 0..entries.len() {
            entries.key_into(number, &mut key).expect("a key");
            pairs.push((key.clone(), entries.value(number).expect("a value").to_vec()));
            if pairs.len() == limit {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    });
    let done = done.expect("scanned");
    assert!(done || pairs.is_empty(), "what is refused is not visited");
    done.then_some(pairs)
}

#[track_caller]
fn check(snapshot: &StoreSnapshot<'_>, tree: TreeId, from: Bound<&[u8]>, to: Bound<&[u8]>) {
    for direction in [Direction::Forward, Direction::Backward] {
        for limit in [usize::MAX, 1, 40] {
            let range = KeyRange { from, to };
            let leaves = by_leaves(snapshot, tree, range, direction, limit);
            assert_eq!(
                leaves,
                Some(scanned(snapshot, tree, range, direction, limit)),
                "{range:?} {direction:?} {limit}"
            );
        }
    }
}

#[test]
fn a_range_has_the_same_entries_leaf_by_leaf() {
    let (_dir, store, tree) = filled(0);
    let reader = store.reader().expect("a reader");
    let snapshot = reader.snapshot();
    check(&snapshot, tree, Bound::Unbounded, Bound::Unbounded);
    for step in 0..200 {
        // Some keys exist, some are between two, some pairs are in the wrong order.
        let [low, high] = [step * 37 % KEYS * 3 + step % 3, (step * 37 + step * step % 150) % KEYS * 3 + step % 2];
        let [low, high] = [low, high].map(|number| [b"a common start, ".as_slice(), &number.to_be_bytes()].concat());
        check(&snapshot, tree, Bound::Included(&low), Bound::Excluded(&high));
        check(&snapshot, tree, Bound::Excluded(&low), Bound::Included(&high));
        check(&snapshot, tree, Bound::Included(&low), Bound::Unbounded);
        check(&snapshot, tree, Bound::Unbounded, Bound::Excluded(&high));
    }
    check(&snapshot, TreeId(tree.0 + 1), Bound::Unbounded, Bound::Unbounded);
}

#[test]
fn a_range_with_changes_is_merged_with_them() {
    let (_dir, store, tree) = filled(1 << 20);
    let reader = store.reader().expect("a reader");
    let before = reader.snapshot();
    let commit = store.commit(&mut |tx| {
        tx.delete(tree, &key(500));
        tx.put(tree, &key(510), b"replaced");
        tx.put(tree, &[&key(520)[..], &[0]].concat(), b"inserted");
        // Before the first leaf, after the last one, and many between two.
        tx.put(tree, b"", b"first");
        tx.put(tree, &[0xff; 20], b"last");
        (0..200u32).for_each(|number| tx.put(tree, &[&key(700)[..], &number.to_be_bytes()].concat(), b"between"));
        // A whole leaf and more.
        (900..1200).for_each(|number| tx.delete(tree, &key(number)));
        (1300..1600).for_each(|number| tx.put(tree, &key(number), b"all replaced"));
        Ok(())
    });
    commit.expect("committed");
    let after = reader.snapshot();
    let counted = |snapshot: &StoreSnapshot<'_>, low: u32, high: u32| {
        let (low, high) = (key(low), key(high));
        let range = KeyRange { from: Bound::Included(&low), to: Bound::Excluded(&high) };
        by_leaves(snapshot, tree, range, Direction::Forward, usize::MAX).map(|pairs| pairs.len())
    };
    assert_eq!((counted(&before, 400, 600), counted(&after, 400, 600)), (Some(200), Some(200)));
    assert_eq!((counted(&before, 699, 702), counted(&after, 699, 702)), (Some(3), Some(203)));
    assert_eq!((counted(&before, 890, 1210), counted(&after, 890, 1210)), (Some(320), Some(20)));
    for snapshot in [&before, &after] {
        check(snapshot, tree, Bound::Unbounded, Bound::Unbounded);
        for step in 0..100 {
            let [low, high] = [step * 37 % KEYS, (step * 37 + step * step % 450) % KEYS].map(key);
            check(snapshot, tree, Bound::Included(&low), Bound::Excluded(&high));
            check(snapshot, tree, Bound::Excluded(&low), Bound::Included(&high));
            check(snapshot, tree, Bound::Included(&low), Bound::Unbounded);
            check(snapshot, tree, Bound::Unbounded, Bound::Excluded(&high));
        }
    }
    let all = |snapshot: &StoreSnapshot<'_>| by_leaves(snapshot, tree, KeyRange::ALL, Direction::Backward, usize::MAX);
    let (old, new) = (all(&before), all(&after));
    // Both snapshots keep their leaves while a checkpoint splits, empties and replaces them.
    store.checkpoint().expect("a checkpoint");
    assert_eq!((all(&before), all(&after)), (old, new.clone()));
    assert_eq!(all(&reader.snapshot()), new);
}

#[test]
fn a_range_with_deleted_ranges_is_merged_too() {
    let (_dir, store, tree) = filled(0);
    let reader = store.reader().expect("a reader");
    let commit = store.commit(&mut |tx| {
        let (low, high) = (key(450), key(550));
        tx.delete_range(tree, KeyRange { from: Bound::Included(&low), to: Bound::Excluded(&high) });
        tx.put(tree, &key(500), b"alone");
        Ok(())
    });
    commit.expect("committed");
    let (low, high) = (key(400), key(600));
    let range = KeyRange { from: Bound::Included(&low), to: Bound::Excluded(&high) };
    let snapshot = reader.snapshot();
    let pairs = by_leaves(&snapshot, tree, range, Direction::Forward, usize::MAX);
    assert_eq!(pairs.map(|pairs| pairs.len()), Some(101));
    check(&snapshot, tree, Bound::Included(&low), Bound::Excluded(&high));
}

#[test]
fn values_looked_up_together_are_those_looked_up_alone() {
    for places_bytes in [0, 64, 1 << 20] {
        let (_dir, store, tree) = filled(places_bytes);
        let reader = store.reader().expect("a reader");
        for round in 0..3 {
            let snapshot = reader.snapshot();
            // More than are fetched together, some twice, some that do not exist.
            let numbers = (0..KEYS + 300).step_by(7).chain(0..150).chain([5, 5, u32::MAX]);
            let keys: Vec<[u8; 4]> = numbers.map(u32::to_be_bytes).collect();
            // Earlier contents are overwritten.
            let mut values = vec![Some(&b"left over"[..]); keys.len()];
            assert_eq!(snapshot.get_all(tree, &keys, &mut values).ok(), Some(true));
            for (key, value) in keys.iter().zip(values) {
                let alone = snapshot.get(tree, key).expect("read");
                assert_eq!(value, alone.as_deref(), "{key:?} in round {round}");
            }
            store
                .commit(&mut |tx| {
                    (0..100u32).for_each(|number| tx.delete(tree, &(number * 5 + round).to_be_bytes()));
                    (0..100u32).for_each(|number| tx.put(tree, &(number * 9 + round).to_be_bytes(), b"new"));
                    Ok(())
                })
                .expect("committed");
            if round == 1 {
                store.checkpoint().expect("a checkpoint");
            }
        }
    }
}

#[test]
fn who_asks_before_waiting_is_sent_to_single_reads() {
    let (_dir, store, tree) = filled(1 << 20);
    let reader = store.reader().expect("a reader");
    reader.ask_before_waiting(true);
    let snapshot = reader.snapshot();
    assert_eq!(by_leaves(&snapshot, tree, KeyRange::ALL, Direction::Forward, usize::MAX), None);
    assert_eq!(snapshot.get_all(tree, &[[0; 4]], &mut [None]).ok(), Some(false));
}

/// Groups of keys with the same first eight bytes, which a leaf compares first.
fn grouped() -> Vec<Vec<u8>> {
    let group = |number: u64| (0..=number as u8 % 30).map(move |tail| [&number.to_be_bytes()[..], &[tail; 3]].concat());
    (0..60).flat_map(group).collect()
}

#[test]
fn the_end_of_a_range_is_found_near_its_beginning_and_far_from_it() {
    let (dir, keys) = (tempfile::tempdir().expect("a folder"), grouped());
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).expect("opened");
    let tree = store.tree("one").expect("a tree");
    let commit = store.commit(&mut |tx| {
        keys.iter().for_each(|key| tx.put(tree, key, b"value"));
        Ok(())
    });
    commit.expect("committed");
    store.checkpoint().expect("a checkpoint");
    let reader = store.reader().expect("a reader");
    let snapshot = reader.snapshot();
    for start in (0..keys.len()).step_by(11) {
        for length in [0, 1, 2, 5, 14, 15, 16, 17, 18, 31, 33, 200] {
            let end = (start + length).min(keys.len() - 1);
            let beside = [&keys[end][..], &[1]].concat();
            let ends = [
                (Bound::Included(&keys[end]), end + 1),
                (Bound::Excluded(&keys[end]), end),
                (Bound::Excluded(&beside), end + 1),
            ];
            for (from, first) in [(Bound::Included(&keys[start]), start), (Bound::Excluded(&keys[start]), start + 1)] {
                for (to, end) in ends {
                    let range = KeyRange { from: from.map(Vec::as_slice), to: to.map(Vec::as_slice) };
                    let mut expected: Vec<&Vec<u8>> = keys.get(first..end).unwrap_or_default().iter().collect();
                    for direction in [Direction::Forward, Direction::Backward] {
                        // Twice: the second time the beginning is known.
                        for _ in 0..2 {
                            let found = by_leaves(&snapshot, tree, range, direction, usize::MAX).expect("leaves");
                            assert!(found.iter().map(|(key, _)| key).eq(expected.iter().copied()), "{range:?}");
                        }
                        expected.reverse();
                    }
                }
            }
        }
    }
}
