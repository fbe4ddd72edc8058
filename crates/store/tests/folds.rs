//! Folds: what many transactions add to the same keys is complete, and visible with them and not before, whatever else happens.

use std::io;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::folded_numbers::{self, number, options};
use crate::hooked_disk::{BatchWrites, HookedDisk, Hooks};
use crate::scans::first_of;
use crate::tree_file;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::DiskFile;
use store::{
    Abort, Commit, Direction, Fold, Folded, Further, KeyRange, RetriableTransaction, Store, StoreError, Submit,
};
use store::{TreeId, Tx};

/// Values are numbers. An addition to a key of `counts` also goes to `totals`, always to one key. A count of zero is
/// deleted, a count below zero is refused.
struct Counting {
    counts: TreeId,
    totals: TreeId,
}

/// An operand at which [`Counting`] panics.
const PANIC: i64 = 1_000_000;

impl Fold for Counting {
    fn fold(
        &self,
        tree: TreeId,
        _key: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        further: &mut Further<'_>,
    ) -> Folded {
        let added = number(operand);
        assert!(added != PANIC, "asked to");
        let sum = old.map_or(0, number) + added;
        if tree == self.counts {
            further(self.totals, b"all", operand);
        }
        match sum {
            _ if added == 0 => Folded::Unchanged,
            0 => Folded::Delete,
            ..0 => Folded::Refused("less than nothing"),
            _ => {
                new.extend_from_slice(&sum.to_le_bytes());
                Folded::Put
            }
        }
    }
}

struct Bench {
    store: Store,
    items: TreeId,
    counts: TreeId,
    totals: TreeId,
    directory: tempfile::TempDir,
}

fn bench() -> Bench {
    let directory = tempfile::tempdir().unwrap();
    open(directory)
}

fn open(directory: tempfile::TempDir) -> Bench {
    let counting = |[_, counts, totals]: [TreeId; 3]| Counting { counts, totals };
    let (store, [items, counts, totals]) =
        folded_numbers::open(directory.path(), ["items", "counts", "totals"], counting);
    Bench { store, items, counts, totals, directory }
}

impl Bench {
    /// Adds a number to a count, and puts an item that represents it.
    fn add(&self, item: u32, key: &[u8], by: i64) -> Result<(), StoreError> {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(self.items, &item.to_be_bytes(), &by.to_le_bytes());
            tx.fold(self.counts, key, &by.to_le_bytes());
            Ok(())
        };
        self.store.commit(change).map(drop)
    }

    fn number(&self, tree: TreeId, key: &[u8]) -> Option<i64> {
        let reader = self.store.reader().unwrap();
        let snapshot = reader.snapshot();
        snapshot.get(tree, key).unwrap().map(|value| number(&value))
    }

    /// Sums of the items, the counts and the total, in one snapshot.
    fn sums(&self) -> [i64; 3] {
        let reader = self.store.reader().unwrap();
        let snapshot = reader.snapshot();
        [self.items, self.counts, self.totals].map(|tree| {
            let mut sum = 0;
            let add = &mut |_: &[u8], value: &[u8]| {
                sum += number(value);
                ControlFlow::Continue(())
            };
            snapshot.scan(tree, KeyRange::ALL, Direction::Forward, add).unwrap();
            sum
        })
    }

    #[track_caller]
    fn check_sums(&self, sum: i64) {
        assert_eq!(self.sums(), [sum; 3]);
    }
}

#[test]
fn adders_from_many_threads_lose_no_race_and_every_snapshot_adds_up() {
    let bench = bench();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adders: Vec<_> = (0..6u32)
            .map(|thread| {
                let bench = &bench;
                scope.spawn(move || {
                    for round in 0..1500 {
                        bench.add(thread << 16 | round, &[(round % 3) as u8], i64::from(round % 7)).unwrap();
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let [items, counts, totals] = bench.sums();
                assert!(items == counts && counts == totals, "{items} {counts} {totals}");
            }
        });
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    let sum = 6 * (0..1500).map(|round| round % 7).sum::<i64>();
    bench.check_sums(sum);
    let stats = bench.store.stats();
    assert_eq!(stats.redone, 0, "somebody lost a race: {stats:?}");
    assert!(stats.checkpoints > 0, "no checkpoint ran beside: {stats:?}");
    let Bench { store, directory, .. } = bench;
    drop(store);
    open(directory).check_sums(sum);
}

/// Movers move a count elsewhere while others add to it: nothing may be lost or doubled. If `is_late`, they read it
/// only after a conflict over something else.
fn check_moving(is_late: bool) {
    let bench = bench();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..200 {
                    bench.add(if is_late { 0 } else { thread << 16 | round }, b"k", 1).unwrap();
                }
            });
            scope.spawn(move || {
                for _ in 0..100 {
                    let mut is_first = true;
                    let change = &mut |tx: &mut Tx<'_>| {
                        let _ = tx.get(bench.items, &0u32.to_be_bytes()).unwrap();
                        if is_late && std::mem::take(&mut is_first) {
                            tx.put(bench.items, b"mover", &0i64.to_le_bytes());
                            return Ok(());
                        }
                        let count = tx.get(bench.counts, b"k").unwrap().map_or(0, |value| number(&value));
                        let moved = tx.get(bench.counts, b"moved").unwrap().map_or(0, |value| number(&value));
                        if count > 0 {
                            tx.delete(bench.counts, b"k");
                            tx.put(bench.counts, b"moved", &(moved + count).to_le_bytes());
                        }
                        Ok(())
                    };
                    bench.store.commit(change).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.sums()[1..], [800, 800]);
}

#[test]
fn who_reads_a_count_sees_all_that_was_added_before() {
    check_moving(false);
    check_moving(true);
}

#[test]
fn a_deleted_range_takes_what_was_folded_before_it_and_not_what_comes_after() {
    let bench = bench();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let bench = &bench;
            scope.spawn(move || {
                for round in 0..200 {
                    let key = [thread as u8, round as u8];
                    bench.add(thread << 16 | round, &key, 1).unwrap();
                    let from = Bound::Included(&key[..]);
                    let range = KeyRange { from, to: from };
                    bench
                        .store
                        .commit(&mut |tx| {
                            tx.delete_range(bench.counts, range);
                            Ok(())
                        })
                        .unwrap();
                    assert_eq!(bench.number(bench.counts, &key), None);
                    if round % 2 == 0 {
                        bench.add(thread << 16 | round, &key, 3).unwrap();
                        assert_eq!(bench.number(bench.counts, &key), Some(3));
                    }
                }
            });
        }
    });
    assert_eq!(bench.sums()[1..], [4 * 100 * 3, 4 * (200 + 100 * 3)]);
}

#[test]
fn a_refused_fold_undoes_the_whole_transaction() {
    let bench = bench();
    bench.add(1, b"k", 5).unwrap();
    let check = |folds: &[(&[u8], i64)]| {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(bench.items, b"never", &0i64.to_le_bytes());
            folds.iter().for_each(|(key, by)| tx.fold(bench.counts, key, &by.to_le_bytes()));
            Ok(())
        };
        let error = bench.store.commit(change).unwrap_err();
        assert_eq!(bench.sums(), [5; 3]);
        assert_eq!(bench.number(bench.items, b"never"), None);
        error
    };
    assert!(matches!(check(&[(b"k", 1), (b"other", 2), (b"k", -7)]), StoreError::Refused { why: "less than nothing" }));
    assert!(matches!(check(&[(b"k", 2), (b"other", PANIC)]), StoreError::Aborted));
    assert!(matches!(check(&[(b"k", 2), (&[0; 2000], 1)]), StoreError::Limit { what: "key", .. }));
    let before = bench.store.stats().version;
    bench.add(1, b"k", 0).unwrap();
    assert_eq!(bench.store.stats().version, before + 1, "what stays as it was is put");
    bench.add(1, b"k", -5).unwrap();
    assert_eq!(bench.number(bench.counts, b"k"), None);
}

/// Adds numbers to counts, and puts an item that represents them all.
struct Adding {
    trees: [TreeId; 2],
    item: u32,
    folds: Vec<(u32, i64)>,
    outcome: mpsc::Sender<Result<Commit, StoreError>>,
}

impl RetriableTransaction for Adding {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        let [items, counts] = self.trees;
        let sum: i64 = self.folds.iter().map(|(_, by)| by).sum();
        tx.put(items, &self.item.to_be_bytes(), &sum.to_le_bytes());
        self.folds.iter().for_each(|(key, by)| tx.fold(counts, &key.to_be_bytes(), &by.to_le_bytes()));
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.outcome.send(outcome).unwrap();
    }
}

#[test]
fn a_refused_fold_leaves_the_other_transactions_of_its_batch_alone() {
    const TRANSACTIONS: u32 = 900;
    let bench = bench();
    let (outcome, outcomes) = mpsc::channel();
    let reader = bench.store.reader().unwrap();
    for item in 0..TRANSACTIONS {
        // One shared count, one of its own, and for every third one more than there is.
        let mut folds = vec![(item % 5, 1), (1000 + item, 2)];
        folds.extend((item % 3 == 2).then_some((item % 5, -500_000)));
        let adding = Adding { trees: [bench.items, bench.counts], item, folds, outcome: outcome.clone() };
        assert!(matches!(bench.store.submit(&reader, Box::new(adding)), Submit::Queued));
    }
    let outcomes: Vec<_> = outcomes.iter().take(TRANSACTIONS as usize).collect();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::Refused { .. }))).count();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), TRANSACTIONS as usize - refused);
    assert_eq!(refused, TRANSACTIONS as usize / 3);
    bench.check_sums(3 * i64::from(TRANSACTIONS) * 2 / 3);
}

#[test]
fn a_tree_that_is_folded_into_is_neither_read_nor_changed_otherwise_in_that_transaction() {
    let bench = bench();
    let check = |use_it: &mut (dyn FnMut(&mut Tx<'_>) + Send)| {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.fold(bench.counts, b"k", &1i64.to_le_bytes());
            use_it(tx);
            Ok(())
        };
        bench.store.commit(change)
    };
    let refused = "it reads a tree into which it has folded";
    let read = check(&mut |tx| {
        assert!(matches!(tx.get(bench.counts, b"k"), Err(StoreError::Refused { why }) if why == refused));
        assert!(
            matches!(first_of(|visit| tx.scan(bench.counts, KeyRange::ALL, Direction::Forward, visit)), Err(StoreError::Refused { why }) if why == refused)
        );
    });
    assert!(read.is_ok());
    assert!(matches!(check(&mut |tx| tx.put(bench.counts, b"other", &[0; 8])), Err(StoreError::Refused { .. })));
    assert!(matches!(check(&mut |tx| tx.delete(bench.counts, b"other")), Err(StoreError::Refused { .. })));
    assert!(matches!(check(&mut |tx| tx.delete_range(bench.counts, KeyRange::ALL)), Err(StoreError::Refused { .. })));
    assert_eq!(bench.number(bench.counts, b"k"), Some(1));
}

#[test]
fn nothing_is_folded_before_it_is_said_how() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let tree = store.tree("t").unwrap();
    let refused = store.commit(&mut |tx| {
        tx.fold(tree, b"k", b"operand");
        Ok(())
    });
    assert!(matches!(refused, Err(StoreError::Refused { .. })));
}

/// Makes a value with as many bytes as the operand says, plus the existing ones.
struct Growing;

impl Fold for Growing {
    fn fold(
        &self,
        _: TreeId,
        _: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        _: &mut Further<'_>,
    ) -> Folded {
        new.resize(old.map_or(0, <[u8]>::len) + number(operand) as usize, 7);
        Folded::Put
    }
}

#[test]
fn values_that_grow_past_what_a_transaction_may_have_are_refused_and_the_rest_goes_on() {
    let bench = bench();
    bench.store.set_fold(Arc::new(Growing));
    let mut rng = SmallRng::seed_from_u64(1);
    let mut lengths = [0usize; 4];
    let mut refused = 0;
    for _ in 0..400 {
        let by = rng.random_range(0..9000usize);
        let key = rng.random_range(0..4usize);
        let done = bench.store.commit(&mut |tx| {
            tx.fold(bench.counts, &[key as u8], &(by as i64).to_le_bytes());
            Ok(())
        });
        match done {
            Ok(_) => lengths[key] += by,
            Err(StoreError::Limit { .. }) => {
                refused += 1;
                bench
                    .store
                    .commit(&mut |tx| {
                        tx.delete(bench.counts, &[key as u8]);
                        Ok(())
                    })
                    .unwrap();
                lengths[key] = 0;
            }
            Err(error) => panic!("{error}"),
        }
        let reader = bench.store.reader().unwrap();
        let found = reader.snapshot().get(bench.counts, &[key as u8]).unwrap().map_or(0, |value| value.len());
        assert_eq!(found, lengths[key]);
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn readers_of_changes_get_what_a_batch_comes_to() {
    let bench = bench();
    let from = bench.store.stats().version;
    let mut changes = bench.store.changes_since(store::Version(from)).unwrap();
    for item in 0..20 {
        bench.add(item, b"k", 1).unwrap();
    }
    let mut last = None;
    while let Some(set) = changes.next().unwrap() {
        set.changes().for_each(|change| {
            if let store::Change::Put { tree, key, value } = change
                && tree == bench.counts
            {
                assert_eq!(key, b"k");
                last = Some(number(value));
            }
        });
    }
    assert_eq!(last, Some(20));
}

#[test]
fn one_that_only_folds_is_not_taken_for_a_build_that_is_missing() {
    let bench = bench();
    bench.store.checkpoint().unwrap();
    for _ in 0..3 {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.fold(bench.counts, b"k", &1i64.to_le_bytes());
            Ok(())
        };
        bench.store.commit(change).unwrap();
    }
    let Bench { store, directory, .. } = bench;
    drop(store);
    // The meta page that is not the newest.
    let path = directory.path().join("tree");
    let mut bytes = std::fs::read(&path).unwrap();
    let sequence = |page: usize| u64::from_le_bytes(bytes[page * 4096 + 16..page * 4096 + 24].try_into().unwrap());
    let older = usize::from(sequence(0) > sequence(1));
    bytes[older * 4096 + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(open(directory).number(bench.counts, b"k"), Some(3));
}

/// Puts items with empty values, and counts them.
struct Counted {
    items: TreeId,
    counts: TreeId,
    numbers: std::ops::Range<u32>,
    outcome: mpsc::Sender<Result<Commit, StoreError>>,
}

impl RetriableTransaction for Counted {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        self.numbers.clone().for_each(|number| tx.put(self.items, &number.to_be_bytes(), b""));
        tx.fold(self.counts, b"all", &(self.numbers.len() as i64).to_le_bytes());
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.outcome.send(outcome).unwrap();
    }
}

/// Copies the tree file after each meta page, when all that the page reaches is written.
struct TreeCopies {
    batches: BatchWrites,
    directory: tempfile::TempDir,
    copies: Mutex<Vec<tempfile::TempDir>>,
}

impl Hooks for TreeCopies {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        const META_PAGES_BYTES: u64 = 2 * 4096;
        let written = self.batches.write_at(name, file, bytes, offset)?;
        if name == "tree" && offset < META_PAGES_BYTES {
            let copy = tempfile::tempdir()?;
            std::fs::copy(self.directory.path().join(name), copy.path().join(tree_file::NAME))?;
            self.copies.lock().unwrap().push(copy);
        }
        Ok(written)
    }
}

/// A backup is such a state of the trees, without memtables and log.
#[test]
fn what_a_checkpoint_puts_into_the_tree_file_has_the_folds_of_its_transactions() {
    let (batches, directory) = (BatchWrites::default(), tempfile::tempdir().unwrap());
    let hooks = Arc::new(TreeCopies { batches, directory, copies: Mutex::default() });
    let (store, _) = Store::open_on(Arc::new(HookedDisk::new(hooks.directory.path(), &hooks)), options()).unwrap();
    let [items, counts, totals, other] = ["items", "counts", "totals", "other"].map(|name| store.tree(name).unwrap());
    store.set_fold(Arc::new(Counting { counts, totals }));
    // More than half of the memtable, and less than what makes a checkpoint due.
    for key in [b"1", b"2"] {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(other, key, &[7; 90_000]);
            Ok(())
        };
        store.commit(change).unwrap();
    }
    let reader = store.reader().unwrap();
    let (outcome, outcomes) = mpsc::channel();
    hooks.batches.hold(None);
    // The first one's batch is held. The second begins the next batch, for whose rest the memtable has no room.
    for numbers in [0..1, 1..2, 2..700] {
        let adding = Counted { items, counts, numbers, outcome: outcome.clone() };
        assert!(matches!(store.submit(&reader, Box::new(adding)), Submit::Queued));
        hooks.batches.wait_until_held();
    }
    hooks.batches.release();
    for _ in 0..3 {
        outcomes.recv().unwrap().unwrap();
    }
    // The memtable that was full, and the next one.
    while store.stats().checkpoints == 0 {
        std::thread::yield_now();
    }
    let copies = std::mem::take(&mut *hooks.copies.lock().unwrap());
    let mut item_counts = Vec::new();
    for copy in &copies {
        let trees = tree_file::open(copy).view();
        // Between two pieces of a checkpoint the trees need the log.
        if trees.meta().reaches == trees.meta().version {
            let is_there = |number: &u32| trees.get(items, &number.to_be_bytes()).unwrap().is_some();
            let item_count = (0..700).filter(is_there).count();
            assert_eq!(trees.get(counts, b"all").unwrap().map_or(0, number), item_count as i64);
            item_counts.push(item_count);
        }
    }
    // Opening writes the first one.
    assert_eq!(item_counts, [0, 2, 700]);
}
