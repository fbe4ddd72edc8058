//! A snapshot's estimates of a tree's size, and reading it on other threads.

use std::ops::{Bound, ControlFlow};

use store::{Across, Direction, KeyRange, Store, StoreOptions, TreeId, Tx};

const ROWS: u32 = 30_000;

fn filled(directory: &std::path::Path) -> (Store, TreeId) {
    let (store, _) = Store::open(directory, StoreOptions::default()).unwrap();
    let tree = store.tree("t").unwrap();
    for start in (0..ROWS).step_by(500) {
        let change = &mut |tx: &mut Tx<'_>| {
            (start..start + 500).for_each(|number| tx.put(tree, &number.to_be_bytes(), &[7; 90]));
            Ok(())
        };
        store.commit(change).unwrap();
    }
    store.checkpoint().unwrap();
    (store, tree)
}

fn range<'k>(from: &'k [u8; 4], to: &'k [u8; 4]) -> KeyRange<'k> {
    KeyRange { from: Bound::Included(from), to: Bound::Excluded(to) }
}

fn count(across: &Across<'_>, tree: TreeId, range: KeyRange<'_>) -> u64 {
    let mut count = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        ControlFlow::Continue(())
    };
    across.scan(tree, range, Direction::Forward, visit).unwrap();
    count
}

#[track_caller]
fn check_cuts(from: u32, to: u32, parts: usize) {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = filled(directory.path());
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let (low, high) = (from.to_be_bytes(), to.to_be_bytes());
    let cuts = snapshot.cuts(tree, range(&low, &high), parts).unwrap();
    assert_eq!(cuts.len() + 1, parts);
    assert!(cuts.is_sorted() && cuts[0][..] > low[..] && cuts[parts - 2][..] < high[..], "{cuts:?}");
    let across = snapshot.across().unwrap();
    let ends = cuts.iter().map(Vec::as_slice).chain([&high[..]]);
    let starts = std::iter::once(&low[..]).chain(cuts.iter().map(Vec::as_slice));
    let sizes: Vec<u64> = std::thread::scope(|scope| {
        let part = |(from, to)| {
            let range = KeyRange { from: Bound::Included(from), to: Bound::Excluded(to) };
            let across = &across;
            scope.spawn(move || count(across, tree, range))
        };
        let threads: Vec<_> = starts.zip(ends).map(part).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let all = u64::from(to - from);
    assert_eq!(sizes.iter().sum::<u64>(), all);
    assert!(sizes.iter().all(|&size| size < 3 * all / parts as u64), "{sizes:?}");
}

#[test]
fn cuts_make_parts_of_about_one_size_that_many_threads_read() {
    check_cuts(0, ROWS, 16);
    check_cuts(0, ROWS, 3);
    check_cuts(1_000, 29_000, 64);
    check_cuts(7_000, 9_000, 4);
}

#[test]
fn a_small_tree_is_not_cut() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let tree = store.tree("small").unwrap();
    let reader = store.reader().unwrap();
    assert!(reader.snapshot().cuts(tree, KeyRange::ALL, 16).unwrap().is_empty());
    assert_eq!(reader.snapshot().entries_about(tree, KeyRange::ALL).unwrap(), 0);
    store
        .commit(&mut |tx| {
            tx.put(tree, b"k", b"v");
            Ok(())
        })
        .unwrap();
    store.checkpoint().unwrap();
    assert!(reader.snapshot().cuts(tree, KeyRange::ALL, 16).unwrap().is_empty());
    assert_eq!(reader.snapshot().entries_about(tree, KeyRange::ALL).unwrap(), 1);
}

#[test]
fn entries_of_a_range_are_about_as_many_as_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = filled(directory.path());
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let about =
        |from: u32, to: u32| snapshot.entries_about(tree, range(&from.to_be_bytes(), &to.to_be_bytes())).unwrap();
    assert_eq!(snapshot.entries_about(tree, KeyRange::ALL).unwrap(), u64::from(ROWS));
    for (from, to) in [(0, 15_000), (100, 29_000), (12_345, 14_345)] {
        let (told, there) = (about(from, to) as f64, f64::from(to - from));
        assert!((told - there).abs() < there * 0.4 + 100.0, "{from}..{to}: {told}");
    }
    assert!(about(5_000, 5_003) <= 60 && about(9, 9) == 0 && about(20, 10) == 0, "{}", about(5_000, 5_003));
}
