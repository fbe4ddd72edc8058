//! Large transactions: all or nothing, beside writers, readers, crashes and full memtables.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::folded_numbers::number;
use crate::simulation::content::Files;
use crate::simulation::disk::SimulatedDisk;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::{Disk, MemoryDisk};
use store::{
    Abort, Changed, Direction, Fold, Folded, Further, KeyRange, LargeTx, Operand, Reader, Revise, Store, StoreError,
    StoreOptions, TreeId, Tx,
};

/// Rows that a large transaction changes.
const ROWS: u32 = 3000;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 512 << 10;
    options.map_bytes = 1 << 30;
    options
}

/// A row: how often writers have added to it, how many large transactions have passed, and the adds seen by the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Row {
    adds: u32,
    passes: u32,
    seen: u32,
}

impl Row {
    fn bytes(self) -> Vec<u8> {
        [self.adds, self.passes, self.seen].iter().flat_map(|number| number.to_be_bytes()).chain([7; 60]).collect()
    }

    fn of(bytes: &[u8]) -> Row {
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        Row { adds: number(0), passes: number(4), seen: number(8) }
    }
}

#[derive(Clone, Copy)]
struct Trees {
    rows: TreeId,
    /// Entries `seen | key`.
    by_seen: TreeId,
}

impl Trees {
    fn of(store: &Store) -> Trees {
        Trees { rows: store.tree("rows").unwrap(), by_seen: store.tree("by seen").unwrap() }
    }
}

fn seen_key(seen: u32, key: &[u8]) -> Vec<u8> {
    [&seen.to_be_bytes(), key].concat()
}

fn fill(store: &Store, trees: Trees) {
    for start in (0..ROWS).step_by(200) {
        let change = &mut |tx: &mut Tx<'_>| {
            for key in (start..ROWS.min(start + 200)).map(u32::to_be_bytes) {
                tx.put(trees.rows, &key, &Row::default().bytes());
                tx.put(trees.by_seen, &seen_key(0, &key), b"");
            }
            Ok(())
        };
        store.commit(change).unwrap();
    }
}

/// Adds one to a row.
fn add(store: &Store, trees: Trees, key: u32) {
    let change = &mut |tx: &mut Tx<'_>| {
        let key = key.to_be_bytes();
        let mut row = Row::of(&tx.get(trees.rows, &key).unwrap().unwrap());
        row.adds += 1;
        tx.put(trees.rows, &key, &row.bytes());
        Ok(())
    };
    store.commit(change).unwrap();
}

/// A pass over all rows: increments each row's passes and records its adds.
struct Pass<'s> {
    reader: &'s Reader,
    trees: Trees,
    /// Calls, and rows that were revised.
    rounds: usize,
    revised: usize,
}

impl<'s> Pass<'s> {
    fn new(reader: &'s Reader, trees: Trees) -> Pass<'s> {
        Pass { reader, trees, rounds: 0, revised: 0 }
    }

    fn one(&self, tx: &mut LargeTx, key: &[u8], row: Row) -> Result<(), StoreError> {
        // Its earlier version of the row is undone.
        if let Some(Some(own)) = tx.get(self.trees.rows, key) {
            let own = Row::of(own);
            tx.delete(self.trees.by_seen, &seen_key(own.seen, key))?;
        }
        let new = Row { passes: row.passes + 1, seen: row.adds, ..row };
        tx.put(self.trees.rows, key, &new.bytes())?;
        tx.delete(self.trees.by_seen, &seen_key(row.seen, key))?;
        tx.put(self.trees.by_seen, &seen_key(new.seen, key), b"")
    }

    fn all(&self, tx: &mut LargeTx) -> Result<(), StoreError> {
        let snapshot = self.reader.snapshot();
        let mut failure = None;
        snapshot.scan(self.trees.rows, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            failure = self.one(tx, key, Row::of(value)).err();
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        failure.map_or(Ok(()), Err)
    }
}

impl Revise for Pass<'_> {
    fn revise(&mut self, tx: &mut LargeTx, changed: &[Changed], writers_wait: bool) -> Result<bool, Abort> {
        self.rounds += 1;
        self.revised += changed.len();
        let snapshot = self.reader.snapshot();
        for Changed { tree, key } in changed {
            assert_eq!(*tree, self.trees.rows);
            let row = Row::of(&snapshot.get(self.trees.rows, key).unwrap().unwrap());
            self.one(tx, key, row).map_err(|_| Abort)?;
        }
        // Now and then it has taken too long.
        Ok(!writers_wait || !self.rounds.is_multiple_of(3))
    }

    fn folds(&mut self) -> Vec<Operand> {
        Vec::new()
    }
}

fn pass(store: &Store, trees: Trees) -> Result<usize, StoreError> {
    let reader = store.reader().unwrap();
    let mut tx = store.large(64 << 20, &[trees.rows])?;
    let mut pass = Pass::new(&reader, trees);
    pass.all(&mut tx)?;
    tx.commit(&mut pass)?;
    Ok(pass.revised)
}

/// All rows are whole: each has the given passes and its index entry, and nothing else exists. Returns the adds.
#[track_caller]
fn check(store: &Store, trees: Trees, passes: u32) -> u64 {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let (mut rows, mut adds) = (BTreeMap::new(), 0);
    snapshot
        .scan(trees.rows, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            rows.insert(key.to_vec(), Row::of(value));
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(rows.len(), ROWS as usize);
    let mut entries = 0;
    snapshot
        .scan(trees.by_seen, KeyRange::ALL, Direction::Forward, &mut |key, _| {
            entries += 1;
            let seen = u32::from_be_bytes(key[..4].try_into().unwrap());
            assert_eq!(rows[&key[4..]].seen, seen);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(entries, ROWS);
    for (key, row) in &rows {
        assert!(row.passes == passes && row.seen <= row.adds, "{key:?}: {row:?}, of {passes} passes");
        adds += u64::from(row.adds);
    }
    adds
}

#[test]
fn a_large_transaction_is_there_whole_and_after_a_start() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(256 << 20));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    assert_eq!(pass(&store, trees).unwrap(), 0);
    add(&store, trees, 5);
    pass(&store, trees).unwrap();
    add(&store, trees, 6);
    assert_eq!(check(&store, trees, 2), 2);
    drop(store);
    let (store, _) = Store::open_on(disk, options()).unwrap();
    assert_eq!(check(&store, trees, 2), 2);
    assert!(store.verify().is_clean());
}

#[test]
fn what_others_write_meanwhile_is_neither_lost_nor_passed_over() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1 << 30));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let (is_over, added) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut passes, mut revised) = (0, 0);
    std::thread::scope(|scope| {
        let (store, is_over, added) = (&store, &is_over, &added);
        for seed in 0..2 {
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                while !is_over.load(Ordering::Acquire) {
                    add(store, trees, rng.random_range(0..ROWS));
                    added.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // A reader sees all of a pass or nothing of it.
        scope.spawn(move || {
            let reader = store.reader().unwrap();
            while !is_over.load(Ordering::Acquire) {
                let (snapshot, mut passes) = (reader.snapshot(), Vec::new());
                snapshot
                    .scan(trees.rows, KeyRange::ALL, Direction::Forward, &mut |_, value| {
                        passes.push(Row::of(value).passes);
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                passes.dedup();
                assert_eq!(passes.len(), 1, "{passes:?}");
            }
        });
        let until = Instant::now() + Duration::from_secs(30);
        while (passes < 12 || revised == 0) && Instant::now() < until {
            match pass(store, trees) {
                Ok(again) => (passes, revised) = (passes + 1, revised + again),
                Err(StoreError::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Release);
    });
    assert!(passes >= 12 && revised > 0, "{passes} passes, {revised} rows revised");
    assert_eq!(check(&store, trees, passes), added.load(Ordering::Relaxed));
    drop(store);
    let (store, _) = Store::open_on(disk, options()).unwrap();
    assert_eq!(check(&store, trees, passes), added.load(Ordering::Relaxed));
    assert!(store.verify().is_clean());
}

/// Changes something of its own at certain calls, or aborts.
struct Meddling<'s, F: FnMut(&mut LargeTx) -> Result<(), Abort>> {
    pass: Pass<'s>,
    meddle: F,
    operands: Vec<Operand>,
}

impl<F: FnMut(&mut LargeTx) -> Result<(), Abort>> Revise for Meddling<'_, F> {
    fn revise(&mut self, tx: &mut LargeTx, changed: &[Changed], writers_wait: bool) -> Result<bool, Abort> {
        (self.meddle)(tx)?;
        self.pass.revise(tx, changed, writers_wait)
    }
    fn folds(&mut self) -> Vec<Operand> {
        std::mem::take(&mut self.operands)
    }
}

#[test]
fn one_that_refuses_itself_leaves_nothing_and_the_next_one_works() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(256 << 20));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let reader = store.reader().unwrap();
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    assert!(matches!(store.large(1 << 20, &[]), Err(StoreError::Busy)), "one at a time");
    let pass_of = Pass::new(&reader, trees);
    pass_of.all(&mut tx).unwrap();
    add(&store, trees, 9);
    let mut meddling = Meddling { pass: pass_of, meddle: |_: &mut LargeTx| Err(Abort), operands: Vec::new() };
    assert!(matches!(tx.commit(&mut meddling), Err(StoreError::Aborted)));
    assert_eq!(check(&store, trees, 0), 1);
    // One that is too large reports it, and one whose ranges others delete gives up.
    let mut tx = store.large(1 << 20, &[]).unwrap();
    let too_large = (0..ROWS).find_map(|key| tx.put(trees.rows, &key.to_be_bytes(), &[1; 1000]).err());
    assert!(matches!(too_large, Some(StoreError::Limit { limit: 1_048_576, .. })), "{too_large:?}");
    drop(tx);
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    Pass::new(&reader, trees).all(&mut tx).unwrap();
    let other = store.tree("other").unwrap();
    store
        .commit(&mut |tx: &mut Tx<'_>| {
            tx.delete_range(other, KeyRange::ALL);
            Ok(())
        })
        .unwrap();
    assert!(matches!(tx.commit(&mut Pass::new(&reader, trees)), Err(StoreError::Busy)));
    store.checkpoint().unwrap();
    pass(&store, trees).unwrap();
    assert_eq!(check(&store, trees, 1), 1);
    assert!(store.verify().is_clean());
}

/// Sums up.
struct Sums;

impl Fold for Sums {
    fn fold(
        &self,
        _: TreeId,
        _: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        _: &mut Further<'_>,
    ) -> Folded {
        new.extend_from_slice(&(old.map_or(0, number) + number(operand)).to_le_bytes());
        Folded::Put
    }
}

#[test]
fn what_it_folds_is_there_with_it() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(256 << 20));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    store.set_fold(Arc::new(Sums));
    let (trees, sums) = (Trees::of(&store), store.tree("sums").unwrap());
    fill(&store, trees);
    let fold = |by: i64| {
        store
            .commit(&mut |tx: &mut Tx<'_>| {
                tx.fold(sums, b"all", &by.to_le_bytes());
                Ok(())
            })
            .unwrap();
    };
    fold(5);
    let reader = store.reader().unwrap();
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    Pass::new(&reader, trees).all(&mut tx).unwrap();
    fold(30);
    let operands = vec![(sums, b"all".to_vec(), 100i64.to_le_bytes().to_vec())];
    let meddle = |_: &mut LargeTx| Ok(());
    tx.commit(&mut Meddling { pass: Pass::new(&reader, trees), meddle, operands }).unwrap();
    fold(400);
    let sum = || reader.snapshot().get(sums, b"all").unwrap().map(|sum| number(&sum));
    assert_eq!(sum(), Some(535));
    check(&store, trees, 1);
}

#[test]
fn a_scan_of_it_sees_its_own_changes_over_the_snapshot() {
    let (store, _) = Store::open_on(Arc::new(MemoryDisk::new(64 << 20)), options()).unwrap();
    let tree = store.tree("t").unwrap();
    let mut rng = SmallRng::seed_from_u64(7);
    for _ in 0..200 {
        let mut model: BTreeMap<u8, u8> = BTreeMap::new();
        let base: Vec<u8> = (0..30).filter(|_| rng.random_bool(0.5)).collect();
        let change = &mut |tx: &mut Tx<'_>| {
            tx.delete_range(tree, KeyRange::ALL);
            base.iter().for_each(|key| tx.put(tree, &[*key], &[1]));
            Ok(())
        };
        store.commit(change).unwrap();
        model.extend(base.iter().map(|key| (*key, 1)));
        let reader = store.reader().unwrap();
        let snapshot = reader.snapshot();
        let mut tx = store.large(1 << 20, &[]).unwrap();
        for _ in 0..rng.random_range(0..20) {
            let key = rng.random_range(0..30u8);
            if rng.random_bool(0.4) {
                tx.delete(tree, &[key]).unwrap();
                model.remove(&key);
                assert_eq!(tx.get(tree, &[key]), Some(None));
            } else {
                tx.put(tree, &[key], &[2]).unwrap();
                model.insert(key, 2);
                assert_eq!(tx.get(tree, &[key]), Some(Some(&[2u8][..])));
            }
        }
        let (from, to) = (rng.random_range(0..30u8), rng.random_range(0..31u8));
        let (from, to) = (from.min(to), from.max(to));
        let range = KeyRange {
            from: std::ops::Bound::Included(std::slice::from_ref(&from)),
            to: std::ops::Bound::Excluded(std::slice::from_ref(&to)),
        };
        let most = rng.random_range(1..30);
        for direction in [Direction::Forward, Direction::Backward] {
            let mut found = Vec::new();
            tx.scan(&snapshot, tree, range, direction, &mut |key, value| {
                found.push((key[0], value[0]));
                if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
            let mut expected: Vec<_> = model.range(from..to).map(|(key, value)| (*key, *value)).collect();
            if direction == Direction::Backward {
                expected.reverse();
            }
            expected.truncate(most);
            assert_eq!(found, expected, "{from}..{to} {direction:?}");
        }
    }
}

/// Power fails at each operation: a large transaction exists whole or not at all, as does everything acknowledged before and after.
#[test]
fn power_that_fails_leaves_all_of_it_or_nothing() {
    let start = {
        let disk = Arc::new(SimulatedDisk::powered(&Files::new(), u64::MAX));
        let (store, _) = Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
        let trees = Trees::of(&store);
        fill(&store, trees);
        drop(store);
        disk.after_power_failure(&Files::new(), &mut SmallRng::seed_from_u64(1))
    };
    // Acknowledged adds, started passes, and acknowledged passes.
    let work = |disk: Arc<SimulatedDisk>| {
        let (mut adds, mut begun, mut passes) = (0, 0, 0);
        let result = (|| -> Result<(), StoreError> {
            let (store, _) = Store::open_on(disk, options())?;
            let trees = Trees { rows: store.tree("rows")?, by_seen: store.tree("by seen")? };
            let reader = store.reader()?;
            for round in 0..2 {
                let mut tx = store.large(16 << 20, &[trees.rows])?;
                Pass::new(&reader, trees).all(&mut tx)?;
                for key in [round * 7, round * 7 + 1] {
                    let change = &mut |tx: &mut Tx<'_>| {
                        let key = u32::to_be_bytes(key);
                        let read = tx.get(trees.rows, &key).map_err(|_| Abort)?;
                        let mut row = Row::of(&read.ok_or(Abort)?);
                        row.adds += 1;
                        tx.put(trees.rows, &key, &row.bytes());
                        Ok(())
                    };
                    store.commit(change)?;
                    adds += 1;
                }
                begun += 1;
                tx.commit(&mut Pass::new(&reader, trees))?;
                passes += 1;
            }
            Ok(())
        })();
        (adds, begun, passes, result.is_ok())
    };
    let whole = Arc::new(SimulatedDisk::powered(&start, u64::MAX));
    assert_eq!(work(Arc::clone(&whole)), (4, 2, 2, true));
    let operations = whole.operations();
    let until = Instant::now() + Duration::from_secs(5);
    let mut rng = SmallRng::seed_from_u64(rand::random());
    let (mut crashes, mut with, mut without) = (0, 0, 0);
    for left in (0..5).flat_map(|offset| (offset..operations).step_by(5)) {
        if Instant::now() > until && crashes > operations / 5 {
            break;
        }
        crashes += 1;
        let disk = Arc::new(SimulatedDisk::powered(&start, left));
        let (adds, begun, passes, _) = work(Arc::clone(&disk));
        let files = disk.after_power_failure(&start, &mut rng);
        let (store, _) = Store::open_on(Arc::new(SimulatedDisk::powered(&files, u64::MAX)), options()).unwrap();
        let trees = Trees::of(&store);
        let reader = store.reader().unwrap();
        let found = Row::of(&reader.snapshot().get(trees.rows, &9u32.to_be_bytes()).unwrap().unwrap()).passes;
        assert!((passes..=begun).contains(&found), "{found} passes after {left} operations, of {passes} to {begun}");
        let kept = check(&store, trees, found);
        assert!((adds..=adds + 1).contains(&kept), "{kept} adds after {left} operations, {adds} acknowledged");
        assert!(store.verify().is_clean());
        (with, without) = (with + u32::from(found > 0), without + u32::from(found < 2));
    }
    assert!(crashes > 10 && with > 0 && without > 0, "{crashes} crashes, {with} with a pass, {without} without one");
}
