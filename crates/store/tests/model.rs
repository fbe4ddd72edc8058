//! Random histories on the store and on a BTreeMap, with held snapshots, checkpoints and reopenings in between; and the
//! same with reader threads beside the writer.
//!
//! Longer ones: `STORE_MODEL_CASES=1000 cargo test -p store --release --test suite model:: -- --include-ignored`.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::scans::beginning_with;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use store::{Direction, KeyRange, Reader, Store, StoreOptions, StoreSnapshot, TreeId, Tx};

type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

const TREES: u32 = 3;
const KEYS: u16 = 300;

/// One operation of a transaction on a tree.
#[derive(Clone, Debug)]
enum Operation {
    Put(u16, u32),
    Delete(u16),
    /// Between two keys, ends included or excluded.
    DeleteRange(Bound<u16>, Bound<u16>),
    DeletePrefix(u16),
    /// Reads what the transaction has changed in the tree so far.
    Look(Bound<u16>, Bound<u16>),
}

#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u32, Operation)>),
    HoldSnapshot,
    Checkpoint,
    Reopen,
}

fn bound() -> impl Strategy<Value = Bound<u16>> {
    prop_oneof![1 => Just(Bound::Unbounded), 4 => (0..KEYS).prop_map(Bound::Included), 4 => (0..KEYS).prop_map(Bound::Excluded)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let len = prop_oneof![20 => 0u32..400, 4 => 400u32..3000, 1 => 10_000u32..40_000];
    prop_oneof![
        60 => (0..KEYS, len).prop_map(|(key, len)| Operation::Put(key, len)),
        20 => (0..KEYS).prop_map(Operation::Delete),
        3 => (bound(), bound()).prop_map(|(from, to)| Operation::DeleteRange(from, to)),
        2 => (0..KEYS).prop_map(Operation::DeletePrefix),
        2 => (bound(), bound()).prop_map(|(from, to)| Operation::Look(from, to)),
    ]
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => proptest::collection::vec((0..TREES, operation()), 1..20).prop_map(Step::Commit),
        3 => Just(Step::HoldSnapshot),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..most)
}

fn small() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 512 * 1024;
    options.map_bytes = 1 << 30;
    options
}

fn key(number: u16) -> Vec<u8> {
    // Different lengths, shared prefixes.
    format!("{}{number}", "prefix/".repeat(usize::from(number % 4))).into_bytes()
}

fn is_inside(key: &[u8], range: KeyRange<'_>) -> bool {
    (match range.from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }) && (match range.to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    })
}

fn range_of(map: &Content, tree: TreeId, range: KeyRange<'_>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found: Vec<_> = map
        .iter()
        .filter(|((of, key), _)| *of == tree.0 && is_inside(key, range))
        .map(|((_, key), value)| (key.clone(), value.clone()))
        .collect();
    if direction == Direction::Backward {
        found.reverse();
    }
    found
}

type Scan<'s> = dyn FnMut(KeyRange<'_>, Direction, &mut store::Visit<'_>) + 's;

#[track_caller]
fn check_range(scan: &mut Scan<'_>, map: &Content, tree: TreeId, range: KeyRange<'_>) {
    for direction in [Direction::Forward, Direction::Backward] {
        let mut found = Vec::new();
        scan(range, direction, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        assert!(found == range_of(map, tree, range, direction), "{tree:?} {range:?} {direction:?}");
    }
}

#[track_caller]
fn check(snapshot: &StoreSnapshot<'_>, trees: &[TreeId], map: &Content) {
    let (low, high) = (key(40), key(222));
    let (mut end, mut other) = (Vec::new(), Vec::new());
    let ranges = [
        KeyRange::ALL,
        KeyRange { from: Bound::Included(&low), to: Bound::Excluded(&high) },
        KeyRange { from: Bound::Excluded(&low), to: Bound::Included(&high) },
        beginning_with(b"prefix/prefix/", &mut end),
        beginning_with(b"1", &mut other),
    ];
    for tree in trees {
        for range in ranges {
            let scan = &mut |range: KeyRange<'_>, direction, visit: &mut store::Visit<'_>| {
                snapshot.scan(*tree, range, direction, visit).unwrap();
            };
            check_range(scan, map, *tree, range);
            let expected = range_of(map, *tree, range, Direction::Forward);
            assert!(snapshot.first(*tree, range).unwrap().as_ref() == expected.first(), "{tree:?} {range:?}");
            assert!(snapshot.last(*tree, range).unwrap().as_ref() == expected.last(), "{tree:?} {range:?}");
        }
        for number in (0..KEYS).step_by(7) {
            let value = snapshot.get(*tree, &key(number)).unwrap();
            assert!(value.as_deref() == map.get(&(tree.0, key(number))).map(Vec::as_slice), "{tree:?} {number}");
        }
    }
}

/// The same transaction on the store and on the map.
fn commit(
    store: &Store,
    trees: &[TreeId],
    operations: &[(u32, Operation)],
    stamp: u8,
    map: &Content,
) -> (u64, Content) {
    let mut after = map.clone();
    let change = &mut |tx: &mut Tx<'_>| {
        after = map.clone();
        for (tree, operation) in operations {
            run_operation(tx, trees[*tree as usize], operation, stamp, &mut after);
        }
        Ok(())
    };
    let version = store.commit(change).unwrap().version.0;
    (version, after)
}

fn run_operation(tx: &mut Tx<'_>, tree: TreeId, operation: &Operation, stamp: u8, map: &mut Content) {
    let mut delete_range = |tx: &mut Tx<'_>, range: KeyRange<'_>| {
        tx.delete_range(tree, range);
        map.retain(|(of, key), _| *of != tree.0 || !is_inside(key, range));
    };
    match operation {
        Operation::Put(number, len) => {
            tx.put(tree, &key(*number), &vec![stamp; *len as usize]);
            map.insert((tree.0, key(*number)), vec![stamp; *len as usize]);
        }
        Operation::Delete(number) => {
            tx.delete(tree, &key(*number));
            map.remove(&(tree.0, key(*number)));
        }
        Operation::DeleteRange(from, to) => {
            let (from, to) = (from.map(key), to.map(key));
            delete_range(tx, KeyRange { from: from.as_ref().map(Vec::as_slice), to: to.as_ref().map(Vec::as_slice) });
        }
        Operation::DeletePrefix(number) => {
            delete_range(tx, beginning_with(&key(*number), &mut Vec::new()));
        }
        Operation::Look(from, to) => {
            let (from, to) = (from.map(key), to.map(key));
            let range = KeyRange { from: from.as_ref().map(Vec::as_slice), to: to.as_ref().map(Vec::as_slice) };
            let scan = &mut |range: KeyRange<'_>, direction, visit: &mut store::Visit<'_>| {
                tx.scan(tree, range, direction, visit).unwrap();
            };
            check_range(scan, map, tree, range);
            for number in (0..KEYS).step_by(31) {
                let value = tx.get(tree, &key(number)).unwrap();
                assert!(value.as_deref() == map.get(&(tree.0, key(number))).map(Vec::as_slice), "{tree:?} {number}");
            }
        }
    }
}

fn trees_of(store: &Store) -> Vec<TreeId> {
    (0..TREES).map(|name| store.tree(&format!("tree {name}")).unwrap()).collect()
}

fn run(steps: &[Step]) {
    let directory = tempfile::tempdir().unwrap();
    let mut map = Content::new();
    let mut stamp = 0u8;
    let mut rest = steps;
    while !rest.is_empty() {
        let (store, _) = Store::open(directory.path(), small()).unwrap();
        let trees = trees_of(&store);
        let end = rest.iter().position(|step| matches!(step, Step::Reopen)).unwrap_or(rest.len() - 1);
        let readers: Vec<Reader> = (0..end + 2).map(|_| store.reader().unwrap()).collect();
        check(&readers[end + 1].snapshot(), &trees, &map);
        let mut held = Vec::new();
        for (step, reader) in rest[..=end].iter().zip(&readers) {
            match step {
                Step::Commit(operations) => {
                    stamp = stamp.wrapping_add(1);
                    map = commit(&store, &trees, operations, stamp, &map).1;
                }
                Step::HoldSnapshot => held.push((reader.snapshot(), map.clone())),
                Step::Checkpoint => store.checkpoint().unwrap(),
                Step::Reopen => {}
            }
            check(&reader.snapshot(), &trees, &map);
        }
        for (snapshot, map) in &held {
            check(snapshot, &trees, map);
        }
        drop(held);
        let report = store.verify();
        assert!(report.is_clean(), "{:?}", report.faults);
        rest = &rest[end + 1..];
    }
}

/// The content of each version, recorded by its writer.
type Versions = Mutex<BTreeMap<u64, Arc<Content>>>;

/// Reads snapshots of all ages until `is_done`: each must show the content of its version as long as it is held.
fn read_beside(store: &Store, trees: &[TreeId], versions: &Versions, is_done: &AtomicBool) {
    let readers: Vec<Reader> = (0..3).map(|_| store.reader().unwrap()).collect();
    let mut rounds = 0;
    while !is_done.load(Ordering::Relaxed) || rounds == 0 {
        rounds += 1;
        let snapshots: Vec<StoreSnapshot<'_>> = readers.iter().map(Reader::snapshot).collect();
        for snapshot in &snapshots {
            let version = snapshot.version().0;
            // A commit is visible before its writer has recorded it here.
            let map = loop {
                if let Some(map) = versions.lock().unwrap().get(&version).cloned() {
                    break map;
                }
                std::thread::yield_now();
            };
            check(snapshot, trees, &map);
        }
    }
}

fn run_beside_readers(steps: &[Step]) {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), small()).unwrap();
    let trees = trees_of(&store);
    let versions = Versions::new(BTreeMap::from([(store.stats().version, Arc::default())]));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read_beside(&store, &trees, &versions, &is_done));
        }
        let mut map = Content::new();
        for (step, stamp) in steps.iter().zip((0..=u8::MAX).cycle()) {
            match step {
                Step::Commit(operations) => {
                    let (version, after) = commit(&store, &trees, operations, stamp, &map);
                    map = after;
                    versions.lock().unwrap().insert(version, Arc::new(map.clone()));
                }
                Step::Checkpoint => store.checkpoint().unwrap(),
                Step::HoldSnapshot | Step::Reopen => {}
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
}

/// Number of histories: an environment variable for long runs.
fn cases(few: u32) -> u32 {
    std::env::var("STORE_MODEL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(few)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(24), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_snapshot_shows_what_the_map_held_when_it_was_taken(steps in steps(60)) {
        run(&steps);
    }

    #[test]
    #[ignore = "long: on demand"]
    fn long_histories_hold_too(steps in steps(2000)) {
        run(&steps);
    }
}

#[test]
fn readers_beside_the_writer_see_whole_versions_only() {
    for seed in 0..cases(6) {
        // Printed if the test fails.
        println!("history {seed}");
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 8].concat());
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        let steps = steps(120).new_tree(&mut runner).unwrap().current();
        run_beside_readers(&steps);
    }
}
