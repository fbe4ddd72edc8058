//! Random histories on the store and on a BTreeMap, with snapshots held open, checkpoints and reopenings in between.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use proptest::prelude::*;
use store::{Direction, KeyRange, Options, Reader, Snapshot, Store, TreeId};

type Content = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

#[derive(Clone, Debug)]
enum Step {
    /// Changes of one transaction: tree, key, value length or deletion.
    Commit(Vec<(u32, u16, Option<u16>)>),
    HoldSnapshot,
    Checkpoint,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let change = (0u32..3, 0u16..300, proptest::option::weighted(0.7, 0u16..2000));
    let step = prop_oneof![
        20 => proptest::collection::vec(change, 1..30).prop_map(Step::Commit),
        3 => Just(Step::HoldSnapshot),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..60)
}

fn small() -> Options {
    let mut options = Options::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 128 * 1024;
    options.map_bytes = 1 << 30;
    options
}

fn key(number: u16) -> Vec<u8> {
    // Different lengths, shared prefixes.
    format!("{}{number}", "prefix/".repeat(usize::from(number % 4))).into_bytes()
}

fn range_of(map: &Content, tree: TreeId, range: KeyRange<'_>, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &[u8]| {
        (match range.from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        }) && (match range.to {
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
            Bound::Unbounded => true,
        })
    };
    let mut found: Vec<_> = map
        .iter()
        .filter(|((of, key), _)| *of == tree.0 && inside(key))
        .map(|((_, key), value)| (key.clone(), value.clone()))
        .collect();
    if direction == Direction::Backward {
        found.reverse();
    }
    found
}

#[track_caller]
fn check(snapshot: &Snapshot<'_>, trees: &[TreeId], map: &Content) {
    let (low, high) = (key(40), key(222));
    let ranges = [
        KeyRange::ALL,
        KeyRange { from: Bound::Included(&low), to: Bound::Excluded(&high) },
        KeyRange { from: Bound::Excluded(&low), to: Bound::Included(&high) },
    ];
    for tree in trees {
        for range in ranges {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut found = Vec::new();
                let visit = &mut |key: &[u8], value: &[u8]| {
                    found.push((key.to_vec(), value.to_vec()));
                    ControlFlow::Continue(())
                };
                snapshot.scan(*tree, range, direction, visit).unwrap();
                assert!(found == range_of(map, *tree, range, direction), "{tree:?} {range:?} {direction:?}");
            }
        }
        for number in (0..300).step_by(7) {
            let value = snapshot.get(*tree, &key(number)).unwrap();
            assert_eq!(value.as_deref(), map.get(&(tree.0, key(number))).map(Vec::as_slice));
        }
    }
}

fn run(steps: &[Step]) {
    let directory = tempfile::tempdir().unwrap();
    let mut map = Content::new();
    let mut stamp = 0u8;
    let mut rest = steps;
    while !rest.is_empty() {
        let (store, _) = Store::open(directory.path(), small()).unwrap();
        let trees: Vec<TreeId> = (0..3).map(|name| store.tree(&format!("tree {name}")).unwrap()).collect();
        let end = rest.iter().position(|step| matches!(step, Step::Reopen)).unwrap_or(rest.len() - 1);
        let readers: Vec<Reader> = (0..end + 2).map(|_| store.reader().unwrap()).collect();
        check(&readers[end + 1].snapshot(), &trees, &map);
        let mut held = Vec::new();
        for (step, reader) in rest[..=end].iter().zip(&readers) {
            match step {
                Step::Commit(changes) => {
                    stamp = stamp.wrapping_add(1);
                    let put = &mut |tx: &mut store::Tx<'_>| {
                        for (tree, number, value) in changes {
                            let tree = trees[*tree as usize];
                            match value {
                                Some(len) => tx.put(tree, &key(*number), &vec![stamp; usize::from(*len)]),
                                None => tx.delete(tree, &key(*number)),
                            }
                        }
                        Ok(())
                    };
                    store.commit(put).unwrap();
                    for (tree, number, value) in changes {
                        let place = (trees[*tree as usize].0, key(*number));
                        match value {
                            Some(len) => map.insert(place, vec![stamp; usize::from(*len)]),
                            None => map.remove(&place),
                        };
                    }
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
        rest = &rest[end + 1..];
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_snapshot_shows_what_the_map_held_when_it_was_taken(steps in steps()) {
        run(&steps);
    }
}
