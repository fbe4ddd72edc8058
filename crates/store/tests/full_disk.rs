//! A full disk: writes are refused clearly and resume by themselves when there is room. Everything acknowledged still
//! reaches the tree, and the store can be closed and opened any number of times without additional space.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::faulty_disk::{Faults, faulty};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{Direction, Durability, KeyRange, Store, StoreError, StoreOptions, TreeId, Tx};

/// Steps in which the room is varied: a few pages, so that growth fails everywhere.
const ROOM_STEP: i64 = 150_000;
const ROOMS: i64 = 16;
/// They wait for syncs most of the time.
const THREADS: i64 = 8;
/// Initial rows.
const ROWS: u32 = 5000;
/// Time that the store may take to notice that there is room again.
const PATIENCE: Duration = Duration::from_secs(20);

type Model = BTreeMap<u32, Vec<u8>>;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    // A memtable touches more pages than are granted ahead, so that an underestimated need shows.
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 1 << 20;
    // Nothing here depends on syncs of the log, and thousands of commits are made.
    options.durability = Durability::None;
    options.map_bytes = 1 << 30;
    options
}

fn open(directory: &Path, room: i64) -> (Store, TreeId, Arc<Faults>) {
    let (disk, faults) = faulty(directory);
    faults.room.store(room, Ordering::Relaxed);
    let (store, _) = Store::open_on(Arc::new(disk), options()).unwrap_or_else(|error| panic!("room {room}: {error}"));
    let tree = store.tree("t").unwrap_or_else(|error| panic!("room {room}: {error}"));
    (store, tree, faults)
}

/// Inserts, updates that grow, deletions; now and then an overflow value.
fn change(store: &Store, tree: TreeId, model: &mut Model, rng: &mut SmallRng) -> Result<(), StoreError> {
    let key = rng.random_range(0..2 * (ROWS + model.len() as u32));
    let value = match rng.random_range(0..10) {
        0 => None,
        1 => Some(vec![key as u8; rng.random_range(1100..20_000)]),
        _ => Some(vec![key as u8; rng.random_range(0..700)]),
    };
    store.commit(&mut |tx: &mut Tx<'_>| {
        match &value {
            Some(value) => tx.put(tree, &key.to_be_bytes(), value),
            None => tx.delete(tree, &key.to_be_bytes()),
        }
        Ok(())
    })?;
    match value {
        Some(value) => model.insert(key, value),
        None => model.remove(&key),
    };
    Ok(())
}

#[track_caller]
fn check(store: &Store, tree: TreeId, model: &Model, context: &str) {
    let reader = store.reader().unwrap();
    let mut found = Model::new();
    reader
        .snapshot()
        .scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            found.insert(u32::from_be_bytes(key.try_into().unwrap()), value.to_vec());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert!(found == *model, "{context}: {} rows, {} expected", found.len(), model.len());
    let report = store.verify();
    assert!(report.is_clean(), "{context}: {:?}", report.faults);
}

/// Writes until the disk is full, and until some more writes are refused.
fn fill(store: &Store, tree: TreeId, model: &mut Model, rng: &mut SmallRng, context: &str) {
    let mut refused = 0;
    for _ in 0..100_000 {
        match change(store, tree, model, rng) {
            Ok(()) => {}
            Err(StoreError::Full) => refused += 1,
            Err(other) => panic!("{context}: {other:?}"),
        }
        // One value that finds no stretch of free pages does not mean a full disk.
        if refused >= 5 && store.stats().is_full {
            return;
        }
    }
    panic!("{context}: never full");
}

/// Retries a write until it is accepted.
#[track_caller]
fn check_writes_go_on(store: &Store, tree: TreeId, model: &mut Model, rng: &mut SmallRng, context: &str) {
    let began = Instant::now();
    while let Err(error) = change(store, tree, model, rng) {
        assert!(matches!(error, StoreError::Full), "{context}: {error:?}");
        assert!(began.elapsed() < PATIENCE, "{context}: still refused");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// With this much room left: fills it, then closes and opens on the full disk, with a checkpoint before or without one.
fn check_room(room: i64) {
    let directory = tempfile::tempdir().unwrap();
    let mut rng = SmallRng::seed_from_u64(room as u64);
    let mut model = Model::new();
    let (mut store, mut tree, mut faults) = open(directory.path(), i64::MAX / 2);
    (0..ROWS).for_each(|_| change(&store, tree, &mut model, &mut rng).unwrap());
    faults.room.store(room, Ordering::Relaxed);
    for round in 0..2 {
        let context = format!("room {room}, round {round}");
        fill(&store, tree, &mut model, &mut rng, &context);
        assert!(store.stats().is_full, "{context}");
        check(&store, tree, &model, &context);
        if (room / ROOM_STEP + round) % 2 == 0 {
            store
                .checkpoint()
                .unwrap_or_else(|error| panic!("{context}: checkpoint of what was acknowledged: {error}"));
        }
        let left = faults.room.load(Ordering::Relaxed);
        drop(store);
        (store, tree, faults) = open(directory.path(), left);
        check(&store, tree, &model, &context);
        store.checkpoint().unwrap_or_else(|error| panic!("{context}: checkpoint after opening: {error}"));
        check(&store, tree, &model, &context);
    }
    faults.room.store(1 << 30, Ordering::Relaxed);
    check_writes_go_on(&store, tree, &mut model, &mut rng, &format!("room {room}"));
    store.checkpoint().unwrap();
    check(&store, tree, &model, &format!("room {room}, at the end"));
}

#[test]
fn a_disk_that_is_full_at_any_step_keeps_no_checkpoint_and_no_start_from_what_was_acknowledged() {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let rooms = (thread..ROOMS).step_by(THREADS as usize);
            scope.spawn(move || rooms.for_each(|step| check_room(step * ROOM_STEP)));
        }
    });
}

#[test]
fn small_changes_all_over_a_large_tree_are_taken_only_as_far_as_their_leaves_find_room() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path(), i64::MAX / 2);
    let put = |key: u32, value: &[u8]| {
        store.commit(&mut |tx: &mut Tx<'_>| {
            tx.put(tree, &key.to_be_bytes(), value);
            Ok(())
        })
    };
    for key in 0..20_000 {
        put(key, &[1; 600]).unwrap();
    }
    store.checkpoint().unwrap();
    faults.room.store(0, Ordering::Relaxed);
    // One in nearly each leaf: a page for each of them, and next to nothing in the memtable.
    let taken = (0..20_000).step_by(5).take_while(|key| put(*key, &[2; 600]).is_ok()).count();
    store.checkpoint().unwrap_or_else(|error| panic!("checkpoint of {taken} changes: {error}"));
    assert!(store.verify().is_clean());
}

#[test]
fn a_full_store_says_so_and_takes_writes_by_itself_when_there_is_room() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path(), i64::MAX / 2);
    let (mut model, mut rng) = (Model::new(), SmallRng::seed_from_u64(7));
    for round in 0..4 {
        assert!(!store.stats().is_full, "round {round}");
        faults.room.store(round * 700_000, Ordering::Relaxed);
        fill(&store, tree, &mut model, &mut rng, "filling");
        assert!(store.stats().is_full, "round {round}");
        faults.room.store(6 << 20, Ordering::Relaxed);
        let began = Instant::now();
        // Nobody writes meanwhile.
        while store.stats().is_full {
            assert!(began.elapsed() < PATIENCE, "round {round}: still full");
            std::thread::sleep(Duration::from_millis(5));
        }
        change(&store, tree, &mut model, &mut rng).unwrap();
        check(&store, tree, &model, "after there was room");
    }
    assert!(!store.stats().is_poisoned);
}

#[test]
fn opening_again_and_again_on_a_full_disk_takes_no_space() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults) = open(directory.path(), i64::MAX / 2);
    let (mut model, mut rng) = (Model::new(), SmallRng::seed_from_u64(9));
    faults.room.store(500_000, Ordering::Relaxed);
    fill(&store, tree, &mut model, &mut rng, "filling");
    drop(store);
    // More often than a segment has room for the batches that each opening and each close write.
    for start in 0..20 {
        let (store, tree, _) = open(directory.path(), 0);
        check(&store, tree, &model, &format!("start {start}"));
    }
}

#[test]
fn a_store_that_is_opened_on_a_full_disk_says_so_before_the_first_write_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _, _, taken) = full_of_pages(directory.path());
    drop(store);
    let (disk, faults) = faulty(directory.path());
    faults.room.store(0, Ordering::Relaxed);
    faults.tells_room.store(true, Ordering::Relaxed);
    let (store, _) = Store::open_on(Arc::new(disk), options()).unwrap();
    let began = Instant::now();
    while !store.stats().is_full {
        assert!(began.elapsed() < PATIENCE, "not told");
        std::thread::sleep(Duration::from_millis(5));
    }
    let tree = store.existing_tree("t").unwrap().unwrap();
    assert!(matches!(put(&store, tree, taken, 9000), Err(StoreError::Full)));
    assert!(store.stats().is_full);
}

/// Puts values of this size from this key on until one is refused; returns how many were accepted.
fn put_until_full(store: &Store, tree: TreeId, first: u32, bytes: usize) -> u32 {
    for key in first.. {
        if !put_in_the_end(store, tree, key, bytes) {
            return key - first;
        }
        assert!(key < first + 100_000, "never full");
    }
    0
}

fn put(store: &Store, tree: TreeId, key: u32, bytes: usize) -> Result<(), StoreError> {
    let value = vec![key as u8; bytes];
    let put = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &key.to_be_bytes(), &value);
        Ok(())
    };
    store.commit(put).map(drop)
}

/// Whether a value is accepted, now or after a while: a refusal means to try again, and a checkpoint may be running.
fn put_in_the_end(store: &Store, tree: TreeId, key: u32, bytes: usize) -> bool {
    let began = Instant::now();
    while let Err(error) = put(store, tree, key, bytes) {
        assert!(matches!(error, StoreError::Full), "key {key}: {error:?}");
        if began.elapsed() > Duration::from_secs(1) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn delete(store: &Store, tree: TreeId, key: u32) -> Result<(), StoreError> {
    let delete = &mut |tx: &mut Tx<'_>| {
        tx.delete(tree, &key.to_be_bytes());
        Ok(())
    };
    store.commit(delete).map(drop)
}

/// A store of values with a page each, on a full disk. Returns their number.
fn full_of_pages(directory: &Path) -> (Store, TreeId, Arc<Faults>, u32) {
    let (store, tree, faults) = open(directory, i64::MAX / 2);
    faults.room.store(12 << 20, Ordering::Relaxed);
    let taken = put_until_full(&store, tree, 0, 2000);
    assert!(taken > 1000, "{taken}");
    (store, tree, faults, taken)
}

#[test]
fn what_deletions_free_of_a_full_disk_other_values_take_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let (mut store, mut tree, mut faults, before) = full_of_pages(directory.path());
    for round in 0..3 {
        // All but every twelfth one, so that live pages are everywhere, at the end of the file too.
        let gone: Vec<u32> = (0..before).filter(|key| key % 12 != round).collect();
        gone.iter().for_each(|key| delete(&store, tree, *key).unwrap_or_else(|error| panic!("{round} {key}: {error}")));
        if round == 1 {
            let left = faults.room.load(Ordering::Relaxed);
            drop(store);
            (store, tree, faults) = open(directory.path(), left);
        }
        let taken = gone.iter().take_while(|key| put_in_the_end(&store, tree, **key, 2000)).count();
        // The reserve for deletions, and what a checkpoint may need, are less than a third of it.
        assert!(taken > gone.len() * 2 / 3, "round {round}: {taken} of {}", gone.len());
        store.checkpoint().unwrap();
        assert!(store.verify().is_clean());
    }
}

#[test]
fn values_of_several_pages_find_their_place_between_others_of_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, _, before) = full_of_pages(directory.path());
    // Stretches of some forty pages, with live ones between them.
    (0..before).filter(|key| key % 50 > 8).for_each(|key| delete(&store, tree, key).unwrap());
    store.checkpoint().unwrap();
    let taken = put_until_full(&store, tree, before, 60_000);
    assert!(taken >= before / 50 / 3, "{taken} of {} stretches", before / 50);
    store.checkpoint().unwrap_or_else(|error| panic!("{taken} values: {error}"));
    assert!(store.verify().is_clean());
}

#[test]
fn a_value_that_finds_no_stretch_is_refused_and_others_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, _, before) = full_of_pages(directory.path());
    (0..before).step_by(2).for_each(|key| delete(&store, tree, key).unwrap());
    let began = Instant::now();
    // Writes resume by themselves.
    while store.stats().is_full || put(&store, tree, 0, 2000).is_err() {
        assert!(began.elapsed() < PATIENCE, "still full");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The pages reserved for deletions are in one stretch.
    let mut next = before + put_until_full(&store, tree, before, 100_000);
    let mut round = 0;
    while round < 20 {
        match put(&store, tree, next, 100_000) {
            // A checkpoint has ended since, and freed a stretch.
            Ok(()) => next += 1,
            Err(StoreError::Full) => {
                assert!(!store.stats().is_full, "round {round}: one value is not the disk");
                put(&store, tree, 2 * round, 2000).unwrap_or_else(|error| panic!("round {round}: {error}"));
                round += 1;
            }
            Err(other) => panic!("round {round}: {other:?}"),
        }
        assert!(next < before + 120, "more than the disk has room for");
    }
    store.checkpoint().unwrap();
    assert!(store.verify().is_clean());
}

#[test]
fn a_full_disk_can_be_emptied_by_deletions_alone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, _, before) = full_of_pages(directory.path());
    // Small values take what the large ones left.
    let small = put_until_full(&store, tree, before, 10);
    for key in (0..before + small).rev() {
        delete(&store, tree, key).unwrap_or_else(|error| panic!("key {key} of {}: {error}", before + small));
    }
    store.checkpoint().unwrap();
    check(&store, tree, &Model::new(), "empty");
    let began = Instant::now();
    while let Err(error) = put(&store, tree, 0, 2000) {
        assert!(matches!(error, StoreError::Full) && began.elapsed() < PATIENCE, "{error:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(put_until_full(&store, tree, 1, 2000) > before * 3 / 4);
}

#[test]
fn health_does_not_go_to_and_fro_while_a_full_disk_is_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, _, before) = full_of_pages(directory.path());
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(300) {
        let _ = put(&store, tree, before, 2000);
        let _ = put(&store, tree, before + 1, 10);
        let _ = put(&store, tree, before + 2, 30_000);
        assert!(store.stats().is_full);
    }
}

#[test]
fn a_full_disk_is_compacted_in_the_room_of_log_segments_that_hold_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, faults, before) = full_of_pages(directory.path());
    let kept = |key: &u32| key.is_multiple_of(20);
    (0..before).filter(|key| !kept(key)).for_each(|key| delete(&store, tree, key).unwrap());
    drop(store);
    let left = faults.room.load(Ordering::Relaxed);
    let tree_bytes = std::fs::metadata(directory.path().join("tree")).unwrap().len();
    let (disk, faults) = faulty(directory.path());
    faults.room.store(left.min(100_000), Ordering::Relaxed);
    let copied = Store::compact_on(Arc::new(disk), options(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert!(copied.bytes_anew < tree_bytes / 4, "{copied:?} of {tree_bytes}");
    let (store, tree, _) = open(directory.path(), i64::MAX / 2);
    let model = (0..before).filter(kept).map(|key| (key, vec![key as u8; 2000])).collect();
    check(&store, tree, &model, "compacted");
}
