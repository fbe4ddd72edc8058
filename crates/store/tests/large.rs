//! Large transactions: all or nothing, beside writers, readers, crashes and full memtables.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::folded_numbers::number;
use crate::hooked_disk::{HookedDisk, Hooks};
use crate::simulation::content::Files;
use crate::simulation::disk::SimulatedDisk;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::{Disk, DiskFile, MemoryDisk};
use store::{
    Abort, Change, Direction, Fold, Folded, Further, KeyRange, LargeTx, Store, StoreError, StoreOptions, TreeId, Tx,
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
fn try_add(store: &Store, trees: Trees, key: u32) -> Result<(), StoreError> {
    let change = &mut |tx: &mut Tx<'_>| {
        let key = key.to_be_bytes();
        let read = tx.get(trees.rows, &key).map_err(|_| Abort)?;
        let mut row = Row::of(&read.ok_or(Abort)?);
        row.adds += 1;
        tx.put(trees.rows, &key, &row.bytes());
        Ok(())
    };
    store.commit(change).map(drop)
}

fn add(store: &Store, trees: Trees, key: u32) {
    try_add(store, trees, key).unwrap();
}

/// A pass over all rows: increments each row's passes and records its adds.
fn pass_over(store: &Store, tx: &mut LargeTx, trees: Trees) -> Result<(), StoreError> {
    let reader = store.reader()?;
    reader.snapshot().scan(trees.rows, KeyRange::ALL, Direction::Forward, &mut |key, value| {
        let row = Row::of(value);
        let new = Row { passes: row.passes + 1, seen: row.adds, ..row };
        tx.put(trees.rows, key, &new.bytes());
        tx.delete(trees.by_seen, &seen_key(row.seen, key));
        tx.put(trees.by_seen, &seen_key(new.seen, key), b"");
        ControlFlow::Continue(())
    })
}

fn pass(store: &Store, trees: Trees) -> Result<(), StoreError> {
    let mut tx = store.large(64 << 20, &[trees.rows])?;
    pass_over(store, &mut tx, trees)?;
    tx.commit(trees.rows).map(drop)
}

fn put(store: &Store, tree: TreeId, key: &[u8]) -> Result<(), StoreError> {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, key, b"put");
        Ok(())
    };
    store.commit(change).map(drop)
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
    pass(&store, trees).unwrap();
    add(&store, trees, 5);
    pass(&store, trees).unwrap();
    add(&store, trees, 6);
    assert_eq!(check(&store, trees, 2), 2);
    drop(store);
    let (store, _) = Store::open_on(disk, options()).unwrap();
    assert_eq!(check(&store, trees, 2), 2);
    store.checkpoint().unwrap();
    assert_eq!(check(&store, trees, 2), 2);
    assert!(store.verify().is_clean());
}

#[test]
fn writers_of_the_same_rows_and_passes_come_one_after_the_other() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(1 << 30));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let (is_over, added, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let mut passes = 0;
    std::thread::scope(|scope| {
        let (store, is_over, added, refused) = (&store, &is_over, &added, &refused);
        for seed in 0..2 {
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                while !is_over.load(Ordering::Acquire) {
                    match try_add(store, trees, rng.random_range(0..ROWS)) {
                        Ok(()) => added.fetch_add(1, Ordering::AcqRel),
                        Err(StoreError::Claimed) => refused.fetch_add(1, Ordering::AcqRel),
                        Err(error) => panic!("{error}"),
                    };
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
        // No pass fails, whatever others do. Between two of them, adds come through.
        for _ in 0..12 {
            pass(store, trees).unwrap();
            passes += 1;
            let before = added.load(Ordering::Acquire);
            let until = Instant::now() + Duration::from_secs(60);
            while added.load(Ordering::Acquire) < before + 10 {
                assert!(Instant::now() < until, "no add comes through");
                std::thread::yield_now();
            }
        }
        // While a pass is open, an add is refused.
        let tx = store.large(1 << 20, &[trees.rows]).unwrap();
        let before = refused.load(Ordering::Acquire);
        let until = Instant::now() + Duration::from_secs(60);
        while refused.load(Ordering::Acquire) < before + 2 {
            assert!(Instant::now() < until, "no add is refused");
            std::thread::yield_now();
        }
        drop(tx);
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(check(&store, trees, passes), added.load(Ordering::Relaxed));
    drop(store);
    let (store, _) = Store::open_on(disk, options()).unwrap();
    assert_eq!(check(&store, trees, passes), added.load(Ordering::Relaxed));
    assert!(store.verify().is_clean());
}

#[test]
fn others_may_change_what_it_has_not_read_and_nothing_that_it_has() {
    let (store, _) = Store::open_on(Arc::new(MemoryDisk::new(256 << 20)), options()).unwrap();
    store.set_fold(Arc::new(Sums));
    let [whole, read, sums] = ["whole", "read", "sums"].map(|name| store.tree(name).unwrap());
    put(&store, read, b"k").unwrap();
    let mut tx = store.large(1 << 20, &[whole]).unwrap();
    assert!(matches!(store.large(1 << 20, &[]), Err(StoreError::Busy)), "one at a time");
    let range = |from, to| KeyRange { from: Bound::Included(from), to: Bound::Excluded(to) };
    let refused = |outcome: Result<(), StoreError>| match outcome {
        Ok(()) => false,
        Err(StoreError::Claimed) => true,
        Err(error) => panic!("{error}"),
    };
    let delete_range = |tree, range: KeyRange<'_>| {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.delete_range(tree, range);
            Ok(())
        };
        store.commit(change).map(drop)
    };
    let fold = |key: &[u8]| {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.fold(sums, key, &1i64.to_le_bytes());
            Ok(())
        };
        store.commit(change).map(drop)
    };
    assert!(refused(put(&store, whole, b"anything")) && refused(delete_range(whole, range(b"a", b"b"))));
    assert!(!refused(put(&store, read, b"k")));
    assert_eq!(tx.get(read, b"k").unwrap().as_deref(), Some(&b"put"[..]));
    assert!(refused(put(&store, read, b"k")) && !refused(put(&store, read, b"l")));
    assert!(refused(delete_range(read, KeyRange::ALL)) && !refused(delete_range(read, range(b"l", b"z"))));
    tx.scan(read, range(b"p", b"r"), Direction::Forward, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert!(refused(put(&store, read, b"q")) && !refused(put(&store, read, b"r")));
    assert!(!refused(fold(b"a")));
    tx.fold(sums, b"a", &10i64.to_le_bytes());
    tx.put(read, b"r", b"own");
    // A transaction that only reads what is claimed precedes the large one.
    let copy = &mut |tx: &mut Tx<'_>| {
        let value = tx.get(read, b"k").map_err(|_| Abort)?.map(|value| value.into_owned());
        tx.put(read, b"copy", &value.unwrap_or_default());
        Ok(())
    };
    store.commit(copy).unwrap();
    tx.commit(read).unwrap();
    assert!(!refused(put(&store, read, b"k")) && !refused(put(&store, whole, b"anything")) && !refused(fold(b"a")));
    let reader = store.reader().unwrap();
    let get = |tree, key: &[u8]| reader.snapshot().get(tree, key).unwrap().map(|value| value.into_owned());
    assert_eq!(get(read, b"r").as_deref(), Some(&b"own"[..]));
    assert_eq!(get(sums, b"a").map(|sum| number(&sum)), Some(12));
}

#[test]
fn one_that_is_dropped_or_fails_leaves_nothing_and_the_next_one_works() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(256 << 20));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    pass_over(&store, &mut tx, trees).unwrap();
    drop(tx);
    add(&store, trees, 9);
    assert_eq!(check(&store, trees, 0), 1);
    let mut tx = store.large(1 << 20, &[]).unwrap();
    (0..ROWS).for_each(|key| tx.put(trees.rows, &key.to_be_bytes(), &[1; 1000]));
    let too_large = tx.check();
    assert!(matches!(too_large, Err(StoreError::Limit { limit: 1_048_576, .. })), "{too_large:?}");
    assert!(matches!(tx.commit(trees.rows), Err(StoreError::Limit { .. })));
    // Deleted ranges of others are no obstacle.
    let other = store.tree("other").unwrap();
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    pass_over(&store, &mut tx, trees).unwrap();
    let deletion = &mut |tx: &mut Tx<'_>| {
        tx.delete_range(other, KeyRange::ALL);
        Ok(())
    };
    store.commit(deletion).unwrap();
    tx.commit(trees.rows).unwrap();
    pass(&store, trees).unwrap();
    assert_eq!(check(&store, trees, 2), 1);
    assert!(store.verify().is_clean());
}

#[test]
fn readers_of_changes_get_its_changes_in_parts_of_one_version() {
    let (store, _) = Store::open_on(Arc::new(MemoryDisk::new(256 << 20)), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let other = store.tree("other").unwrap();
    let before = store.reader().unwrap().snapshot().version();
    let mut changes = store.changes_since(before).unwrap();
    put(&store, other, b"before").unwrap();
    pass(&store, trees).unwrap();
    put(&store, other, b"after").unwrap();
    let (mut versions, mut parts, mut keys, mut rows_began) = (Vec::new(), Vec::new(), 0, false);
    while let Some(changeset) = changes.next().unwrap() {
        let version = changeset.version().0 - before.0;
        for change in changeset.changes() {
            let tree = match change {
                Change::Put { tree, .. } | Change::Delete { tree, .. } => tree,
                other => panic!("{other:?}"),
            };
            if version == 2 {
                keys += 1;
                assert!(!rows_began || tree == trees.rows, "the rows come last");
                rows_began |= tree == trees.rows;
            }
        }
        if version == 2 {
            parts.push(changeset.is_last());
        } else {
            assert!(changeset.is_last());
        }
        if changeset.is_last() {
            versions.push(version);
        }
    }
    assert_eq!(versions, [1, 2, 3]);
    assert_eq!(keys, 3 * ROWS - ROWS, "each entry is deleted and put again under the same key");
    assert!(parts.len() > 1 && parts.iter().filter(|is_last| **is_last).count() == 1, "{parts:?}");
    assert_eq!(changes.version().0, before.0 + 3);
}

#[test]
fn a_store_that_is_idle_after_one_takes_a_load_and_its_log_is_examined() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(256 << 20));
    let (store, _) = Store::open_on(Arc::clone(&disk), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let loaded = store.tree("loaded").unwrap();
    pass(&store, trees).unwrap();
    // Its memtable is merged; the one behind it is as large, and empty.
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    let mut build = store.bulk().unwrap();
    build.push(b"key", b"value").unwrap();
    store.attach(vec![(loaded, build)], &[]).unwrap();
    pass(&store, trees).unwrap();
    drop(store);
    let examination = Store::examine_on(disk.as_ref()).unwrap();
    assert!(examination.log_fault.is_none(), "{examination}");
    let (store, _) = Store::open_on(disk, options()).unwrap();
    assert_eq!(check(&store, trees, 2), 0);
}

#[test]
fn one_whose_log_cannot_be_written_is_not_there_nor_is_anything_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(LogFails::default());
    let (store, _) = Store::open_on(Arc::new(HookedDisk::new(directory.path(), &hooks)), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    pass_over(&store, &mut tx, trees).unwrap();
    hooks.is_on.store(true, Ordering::Release);
    assert!(matches!(tx.commit(trees.rows), Err(StoreError::Unknown(_))));
    hooks.is_on.store(false, Ordering::Release);
    assert!(matches!(try_add(&store, trees, 1), Err(StoreError::Poisoned)));
    drop(store);
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    assert_eq!(check(&store, trees, 0), 0);
}

/// Writes of the log fail while this is on.
#[derive(Default)]
struct LogFails {
    is_on: AtomicBool,
}

impl Hooks for LogFails {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        match name.ends_with(".log") && self.is_on.load(Ordering::Acquire) {
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => file.write_at(bytes, offset),
        }
    }
}

/// The tree file's writes wait while this is on.
#[derive(Default)]
struct Stalled {
    is_on: AtomicBool,
    waiting: AtomicU64,
}

impl Hooks for Stalled {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> std::io::Result<usize> {
        if name == "tree" && self.is_on.load(Ordering::Acquire) {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            while self.is_on.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        file.write_at(bytes, offset)
    }
}

#[test]
fn others_commit_while_its_changes_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(Stalled::default());
    let (store, _) = Store::open_on(Arc::new(HookedDisk::new(directory.path(), &hooks)), options()).unwrap();
    let trees = Trees::of(&store);
    fill(&store, trees);
    let other = store.tree("other").unwrap();
    store.checkpoint().unwrap();
    // From here on no merge makes progress.
    let mut tx = store.large(64 << 20, &[trees.rows]).unwrap();
    pass_over(&store, &mut tx, trees).unwrap();
    hooks.is_on.store(true, Ordering::Release);
    tx.commit(trees.rows).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while hooks.waiting.load(Ordering::Acquire) == 0 {
        assert!(Instant::now() < until, "the merge begins");
        std::thread::yield_now();
    }
    // Its memtable is frozen and is being merged. Others have room for more than its half.
    let changes = store.stats().frozen_bytes as usize / 4 / 1000;
    for number in 0..changes as u32 {
        put_value(&store, other, number, &[7; 1000]);
    }
    assert!(hooks.is_on.load(Ordering::Acquire) && store.stats().frozen_bytes > 0);
    hooks.is_on.store(false, Ordering::Release);
    store.checkpoint().unwrap();
    assert_eq!(check(&store, trees, 1), 0);
    let reader = store.reader().unwrap();
    assert_eq!(reader.snapshot().count(other).unwrap(), changes as u64);
    assert!(store.verify().is_clean());
}

fn put_value(store: &Store, tree: TreeId, number: u32, value: &[u8]) {
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), value);
        Ok(())
    };
    store.commit(change).unwrap();
}

#[test]
fn a_page_of_its_file_that_the_disk_loses_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let tree = store.tree("t").unwrap();
    let mut tx = store.large(16 << 20, &[tree]).unwrap();
    (0..20_000u32).for_each(|number| tx.put(tree, &number.to_be_bytes(), &[1; 150]));
    tx.check().unwrap();
    // Its unnamed file, found by the map of it.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = directory.path().to_str().unwrap();
    let mut cut = 0;
    for line in maps.lines().filter(|line| line.ends_with("(deleted)") && line.contains(path)) {
        let range = line.split(' ').next().unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(format!("/proc/self/map_files/{range}"));
        // Some kernels allow that to few processes.
        cut += u32::from(file.and_then(|file| file.set_len(0)).is_ok());
    }
    if cut == 0 {
        return;
    }
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tx.has_changed(tree, &7u32.to_be_bytes())));
    assert!(read.is_err() || tx.check().is_err(), "{read:?}");
    assert!(tx.commit(tree).is_err());
    put(&store, tree, b"another").unwrap();
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
    pass_over(&store, &mut tx, trees).unwrap();
    fold(30);
    tx.fold(sums, b"all", &60i64.to_le_bytes());
    tx.fold(sums, b"all", &40i64.to_le_bytes());
    tx.commit(trees.rows).unwrap();
    fold(400);
    let sum = || reader.snapshot().get(sums, b"all").unwrap().map(|sum| number(&sum));
    assert_eq!(sum(), Some(535));
    check(&store, trees, 1);
}

#[test]
fn one_that_folds_what_no_transaction_may_fold_is_refused() {
    let (store, _) = Store::open_on(Arc::new(MemoryDisk::new(64 << 20)), options()).unwrap();
    store.set_fold(Arc::new(Sums));
    let sums = store.tree("sums").unwrap();
    let mut tx = store.large(1 << 20, &[]).unwrap();
    tx.fold(sums, &[b'k'; 4096], &1i64.to_le_bytes());
    let refused = tx.commit(sums);
    assert!(matches!(refused, Err(StoreError::Limit { .. })), "{refused:?}");
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
        let mut tx = store.large(1 << 20, &[]).unwrap();
        for _ in 0..rng.random_range(0..20) {
            let key = rng.random_range(0..30u8);
            if rng.random_bool(0.4) {
                tx.delete(tree, &[key]);
                model.remove(&key);
                assert_eq!(tx.get(tree, &[key]).unwrap(), None);
            } else {
                tx.put(tree, &[key], &[2]);
                model.insert(key, 2);
                assert_eq!(tx.get(tree, &[key]).unwrap().as_deref(), Some(&[2u8][..]));
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
            tx.scan(tree, range, direction, &mut |key, value| {
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
        let (mut adds, mut notes, mut begun, mut passes) = (0, 0, 0, 0);
        let result = (|| -> Result<(), StoreError> {
            let (store, _) = Store::open_on(disk, options())?;
            let trees = Trees { rows: store.tree("rows")?, by_seen: store.tree("by seen")? };
            let other = store.tree("notes")?;
            for round in 0..2u32 {
                try_add(&store, trees, round * 7)?;
                adds += 1;
                let mut tx = store.large(16 << 20, &[trees.rows])?;
                pass_over(&store, &mut tx, trees)?;
                put(&store, other, &round.to_be_bytes())?;
                notes += 1;
                begun += 1;
                tx.commit(trees.rows)?;
                passes += 1;
                try_add(&store, trees, round * 7 + 1)?;
                adds += 1;
            }
            Ok(())
        })();
        (adds, notes, begun, passes, result.is_ok())
    };
    let whole = Arc::new(SimulatedDisk::powered(&start, u64::MAX));
    assert_eq!(work(Arc::clone(&whole)), (4, 2, 2, 2, true));
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
        let (adds, notes, begun, passes, _) = work(Arc::clone(&disk));
        let files = disk.after_power_failure(&start, &mut rng);
        let (store, _) = Store::open_on(Arc::new(SimulatedDisk::powered(&files, u64::MAX)), options()).unwrap();
        let trees = Trees::of(&store);
        let other = store.tree("notes").unwrap();
        let reader = store.reader().unwrap();
        let found = Row::of(&reader.snapshot().get(trees.rows, &9u32.to_be_bytes()).unwrap().unwrap()).passes;
        assert!((passes..=begun).contains(&found), "{found} passes after {left} operations, of {passes} to {begun}");
        let kept = check(&store, trees, found);
        assert!((adds..=adds + 1).contains(&kept), "{kept} adds after {left} operations, {adds} acknowledged");
        let noted = reader.snapshot().count(other).unwrap();
        assert!((notes..=notes + 1).contains(&noted), "{noted} notes after {left} operations, {notes} acknowledged");
        assert!(store.verify().is_clean());
        (with, without) = (with + u32::from(found > 0), without + u32::from(found < 2));
    }
    assert!(crashes > 10 && with > 0 && without > 0, "{crashes} crashes, {with} with a pass, {without} without one");
}
