//! Power fails at every operation of a backup, a restore and a compaction. The result is the old store, the complete
//! new one, or a folder that no start accepts as a store.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::simulation::content::Files;
use crate::simulation::disk::SimulatedDisk;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use store::disk::Disk;
use store::{Direction, KeyRange, Store, StoreError, StoreOptions, Tx};

/// Time after which no further crash is started; STORE_CRASH_SECONDS sets another, STORE_CRASH_SEED repeats a run.
const SECONDS: u64 = 4;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 64 << 10;
    options.map_bytes = 1 << 30;
    options
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn open(files: &Files) -> Result<Store, StoreError> {
    Store::open_on(Arc::new(SimulatedDisk::powered(files, u64::MAX)), options()).map(|(store, _)| store)
}

fn rows(store: &Store) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let Some(tree) = store.existing_tree("t").unwrap() else { return rows };
    let visit = &mut |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    store.reader().unwrap().snapshot().scan(tree, KeyRange::ALL, Direction::Forward, visit).unwrap();
    rows
}

/// A small store with holes, overflow values, and a log that extends past the last checkpoint.
fn filled() -> Files {
    let disk = Arc::new(SimulatedDisk::powered(&Files::new(), u64::MAX));
    let (store, _) = Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options()).unwrap();
    let tree = store.tree("t").unwrap();
    for round in 0..3u8 {
        for start in (0..600u32).step_by(50) {
            let change = &mut |tx: &mut Tx<'_>| {
                (start..start + 50).for_each(|n| tx.put(tree, &n.to_be_bytes(), &[round; 90]));
                tx.put(tree, b"long", &[round; 9000]);
                (start..start + 40).for_each(|n| tx.delete(tree, &n.to_be_bytes()));
                Ok(())
            };
            store.commit(change).unwrap();
        }
        if round < 2 {
            store.checkpoint().unwrap();
        }
    }
    drop(store);
    disk.after_power_failure(&Files::new(), &mut SmallRng::seed_from_u64(1))
}

/// Runs `work` on a disk whose power fails at one operation after the other; passes the remaining files to `check`, and
/// whether `work` had finished.
#[track_caller]
fn check_crashes(
    start: &Files,
    work: impl Fn(Arc<SimulatedDisk>) -> Result<(), StoreError>,
    check: impl Fn(&Files, bool),
) {
    let seed = setting("STORE_CRASH_SEED").unwrap_or_else(rand::random);
    let until = Instant::now() + Duration::from_secs(setting("STORE_CRASH_SECONDS").unwrap_or(SECONDS));
    let mut rng = SmallRng::seed_from_u64(seed);
    let whole = Arc::new(SimulatedDisk::powered(start, u64::MAX));
    work(Arc::clone(&whole)).unwrap();
    let operations = whole.operations();
    // First spread over the whole work, then in between, as long as there is time.
    for (crashes, left) in (0u64..).zip((0..8).flat_map(|offset| (offset..=operations + 1).step_by(8))) {
        if Instant::now() > until && crashes > operations / 8 {
            break;
        }
        let disk = Arc::new(SimulatedDisk::powered(start, left));
        let is_done = work(Arc::clone(&disk)).is_ok();
        println!("seed {seed}, after {left} operations of {operations}, done {is_done}");
        check(&disk.after_power_failure(start, &mut rng), is_done);
    }
    assert!(operations > 10, "{operations}");
}

#[test]
fn power_that_fails_in_a_compaction_leaves_the_old_file_or_the_new() {
    let start = filled();
    let before = rows(&open(&start).unwrap());
    let work =
        |disk: Arc<SimulatedDisk>| Store::compact_on(disk, options(), &mut |_| ControlFlow::Continue(())).map(drop);
    check_crashes(&start, work, |files, _| {
        let store = open(files).unwrap();
        assert!(rows(&store) == before);
        let report = store.verify();
        assert!(report.is_clean(), "{:?}", report.faults);
    });
}

#[test]
fn power_that_fails_in_a_backup_leaves_a_whole_one_or_none() {
    let start = filled();
    let source = open(&start).unwrap();
    let before = rows(&source);
    let work = |disk: Arc<SimulatedDisk>| source.backup_on(&*disk, &mut |_| ControlFlow::Continue(())).map(drop);
    check_crashes(&Files::new(), work, |files, is_done| check_new(files, is_done, &before));
}

#[test]
fn power_that_fails_in_a_restore_leaves_a_whole_store_or_none() {
    let start = filled();
    let source = SimulatedDisk::powered(&start, u64::MAX);
    let before = rows(&open(&start).unwrap());
    let work =
        |disk: Arc<SimulatedDisk>| Store::restore_on(&source, &*disk, &mut |_| ControlFlow::Continue(())).map(drop);
    check_crashes(&Files::new(), work, |files, is_done| check_new(files, is_done, &before));
}

/// The complete store, or nothing yet, or a folder that is refused.
#[track_caller]
fn check_new(files: &Files, is_done: bool, before: &[(Vec<u8>, Vec<u8>)]) {
    if files.contains_key("tree") {
        let store = open(files).unwrap();
        assert!(rows(&store) == before);
        assert!(store.verify().is_clean());
        return;
    }
    assert!(!is_done, "{:?}", files.keys());
    if files.keys().any(|name| name.starts_with("tree.part")) {
        assert!(matches!(open(files), Err(StoreError::Corrupt { .. })), "{:?}", files.keys());
    } else {
        // Before anything was written, or after it was removed.
        assert!(files.keys().all(|name| name == "lock"), "{:?}", files.keys());
    }
}
