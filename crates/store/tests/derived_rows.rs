//! Derived rows: their consequences are as if computed from each snapshot's rows, whatever transactions share a batch.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use crate::folded_numbers::{self, number};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{
    Direction, Fold, FoldView, Folded, Further, KeyRange, RowChange, Store, StoreError, StoreSnapshot, TreeId, Tx,
};

/// `values` holds how often a key was added. Its first byte is a group; a group's row is the number of its keys, and its
/// first and last key. `rows` counts the groups of each row, `ends` the rows of each last key, while the count is not zero.
struct Ends {
    values: TreeId,
    rows: TreeId,
    ends: TreeId,
}

/// A group that no transaction may have.
const REFUSED: u8 = 99;

fn scan(view: &dyn FoldView, tree: TreeId, group: u8, direction: Direction, each: &mut dyn FnMut(&[u8])) {
    let (from, to) = ([group], [group + 1]);
    let range = KeyRange { from: Bound::Included(&from), to: Bound::Excluded(&to) };
    let visit = &mut |key: &[u8], _: &[u8]| {
        each(key);
        ControlFlow::Continue(())
    };
    view.scan(tree, range, direction, visit).unwrap();
}

/// The row of a group with these keys.
fn row(keys: &[Vec<u8>]) -> Vec<u8> {
    let Some((first, last)) = keys.first().zip(keys.last()) else { return Vec::new() };
    [&[keys.len() as u8][..], first, last].concat()
}

impl Fold for Ends {
    fn fold(
        &self,
        _: TreeId,
        _: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        _: &mut Further<'_>,
    ) -> Folded {
        match old.map_or(0, number) + number(operand) {
            0 => {
                if old.is_some() {
                    Folded::Delete
                } else {
                    Folded::Unchanged
                }
            }
            sum => {
                new.extend_from_slice(&sum.to_le_bytes());
                Folded::Put
            }
        }
    }

    fn derived<'k>(&self, tree: TreeId, key: &'k [u8]) -> Option<(u32, &'k [u8])> {
        if tree == self.values {
            return Some((1, &key[..1]));
        }
        (tree == self.rows).then_some((2, key))
    }

    fn derive(&self, kind: u32, key: &[u8], now: &dyn FoldView, out: &mut Vec<u8>) -> Result<(), StoreError> {
        if kind == 2 {
            out.extend(now.get(self.rows, key)?.map(|_| key[key.len() - 2..].to_vec()).unwrap_or_default());
            return Ok(());
        }
        let (mut keys, mut backwards) = (Vec::new(), Vec::new());
        scan(now, self.values, key[0], Direction::Forward, &mut |key| keys.push(key.to_vec()));
        scan(now, self.values, key[0], Direction::Backward, &mut |key| backwards.push(key.to_vec()));
        backwards.reverse();
        assert_eq!(keys, backwards);
        out.extend(row(&keys));
        Ok(())
    }

    fn follow(
        &self,
        kind: u32,
        key: &[u8],
        change: RowChange<'_>,
        _: &dyn FoldView,
        further: &mut Further<'_>,
    ) -> Result<(), StoreError> {
        if key == [REFUSED] {
            return Err(StoreError::Refused { why: "not this one" });
        }
        let tree = if kind == 1 { self.rows } else { self.ends };
        for (row, by) in [(change.before, -1i64), (change.after, 1)] {
            if !row.is_empty() {
                further(tree, row, &by.to_le_bytes());
            }
        }
        Ok(())
    }
}

struct Bench {
    store: Store,
    of: [TreeId; 3],
    _directory: tempfile::TempDir,
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    let ends = |[values, rows, ends]: [TreeId; 3]| Ends { values, rows, ends };
    let (store, of) = folded_numbers::open(directory.path(), ["values", "rows", "ends"], ends);
    Bench { store, of, _directory: directory }
}

fn entries(snapshot: &StoreSnapshot<'_>, tree: TreeId) -> BTreeMap<Vec<u8>, i64> {
    let mut entries = BTreeMap::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        entries.insert(key.to_vec(), number(value));
        ControlFlow::Continue(())
    };
    snapshot.scan(tree, KeyRange::ALL, Direction::Forward, visit).unwrap();
    entries
}

fn count(of: impl Iterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, i64> {
    let mut counts = BTreeMap::new();
    of.for_each(|key| *counts.entry(key).or_default() += 1);
    counts
}

/// The derived rows, and the rows derived from them, agree with the values.
#[track_caller]
fn check(bench: &Bench) {
    let reader = bench.store.reader().unwrap();
    let snapshot = reader.snapshot();
    let [values, rows, ends] = bench.of.map(|tree| entries(&snapshot, tree));
    let mut groups: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    values.into_keys().for_each(|key| groups.entry(key[0]).or_default().push(key));
    assert_eq!(rows, count(groups.values().map(|keys| row(keys))));
    assert_eq!(ends, count(rows.keys().map(|row| row[row.len() - 2..].to_vec())));
}

/// A transaction that adds or removes a few keys.
fn change(bench: &Bench, rng: &mut SmallRng, groups: u8) {
    let keys: std::collections::BTreeSet<[u8; 2]> =
        (0..rng.random_range(1..4)).map(|_| [rng.random_range(0..groups), rng.random_range(0..12)]).collect();
    let change = &mut |tx: &mut Tx<'_>| {
        // If others change what is read, the transaction is prepared again.
        let mut is_there = Vec::new();
        for key in &keys {
            is_there.push(tx.get(bench.of[0], key).unwrap().is_some());
        }
        for (key, is_there) in keys.iter().zip(is_there) {
            tx.fold(bench.of[0], key, &if is_there { -1i64 } else { 1 }.to_le_bytes());
        }
        Ok(())
    };
    bench.store.commit(change).unwrap();
}

#[test]
fn rows_of_several_keys_are_followed_to_the_end() {
    let bench = bench();
    let mut rng = SmallRng::seed_from_u64(7);
    for round in 0..400 {
        change(&bench, &mut rng, 3);
        if round % 20 == 0 {
            check(&bench);
        }
    }
    check(&bench);
}

#[test]
fn transactions_that_share_batches_follow_one_another() {
    let bench = bench();
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let bench = &bench;
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(thread);
                for round in 0..300u32 {
                    // Adds only: no reads, so that many are folded before any is put.
                    let key = [rng.random_range(0..3u8), rng.random_range(0..250u8)];
                    bench
                        .store
                        .commit(&mut |tx| {
                            tx.fold(bench.of[0], &key, &1i64.to_le_bytes());
                            Ok(())
                        })
                        .unwrap();
                    if round % 50 == 0 {
                        change(bench, &mut rng, 3);
                    }
                }
            });
        }
    });
    check(&bench);
}

#[test]
fn a_transaction_whose_rows_are_refused_leaves_nothing() {
    let bench = bench();
    let mut rng = SmallRng::seed_from_u64(3);
    (0..20).for_each(|_| change(&bench, &mut rng, 2));
    let before = {
        let reader = bench.store.reader().unwrap();
        let snapshot = reader.snapshot();
        bench.of.map(|tree| entries(&snapshot, tree))
    };
    let refused = bench.store.commit(&mut |tx| {
        tx.fold(bench.of[0], &[0, 200], &1i64.to_le_bytes());
        tx.fold(bench.of[0], &[REFUSED, 1], &1i64.to_le_bytes());
        Ok(())
    });
    assert!(matches!(refused, Err(StoreError::Refused { .. })), "{refused:?}");
    let reader = bench.store.reader().unwrap();
    let snapshot = reader.snapshot();
    assert_eq!(bench.of.map(|tree| entries(&snapshot, tree)), before);
    check(&bench);
}
