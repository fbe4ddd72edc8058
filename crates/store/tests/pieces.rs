//! Checkpoints in pieces: the state after a part of them, and the disk space that they take.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::hooked_disk::{HookedDisk, Hooks};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::{DiskFile, SystemDisk};
use store::{Direction, Durability, KeyRange, Store, StoreError, StoreOptions, TreeId, Tx};

const ROWS: u32 = 3200;
/// Rows changed before a checkpoint: most of a memtable, from all parts of the tree.
const CHANGES: u32 = 400;
/// Syncs of one piece.
const SYNCS: i64 = 2;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options.map_bytes = 1 << 30;
    options.durability = Durability::None;
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

/// Injected events of the tree file.
#[derive(Default)]
struct Plan {
    /// Syncs that succeed; later ones fail. Negative: all succeed.
    syncs: AtomicI64,
    /// The same for writes, which fail with a full disk.
    writes: AtomicI64,
    seen_syncs: AtomicI64,
    /// Milliseconds that each sync takes.
    sync_time: AtomicU64,
    /// Receives the number of each sync, which then waits for an answer.
    stops: Mutex<Option<(SyncSender<i64>, Receiver<()>)>>,
}

impl Plan {
    /// Counts down; returns whether it is over.
    fn fails(left: &AtomicI64) -> bool {
        left.load(Ordering::Relaxed) >= 0 && left.fetch_sub(1, Ordering::Relaxed) == 0 && {
            left.store(0, Ordering::Relaxed);
            true
        }
    }
}

impl Hooks for Plan {
    fn free_bytes(&self, _disk: &SystemDisk) -> io::Result<Option<u64>> {
        // More than enough: no room is reserved.
        Ok(Some(1 << 40))
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if name == "tree" && Plan::fails(&self.writes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write_at(bytes, offset)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        if name != "tree" {
            return file.sync_data();
        }
        let number = self.seen_syncs.fetch_add(1, Ordering::Relaxed);
        if let Some((tell, answer)) = &*self.stops.lock().unwrap() {
            // Without a listener it continues.
            let _ = tell.send(number);
            let _ = answer.recv();
        }
        std::thread::sleep(Duration::from_millis(self.sync_time.load(Ordering::Relaxed)));
        if Plan::fails(&self.syncs) { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }
    fn sync_range(&self, _name: &str, _file: &dyn DiskFile, _start: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

fn open(directory: &Path) -> (Store, TreeId, Arc<Plan>) {
    let plan = Arc::new(Plan { syncs: AtomicI64::new(-1), writes: AtomicI64::new(-1), ..Plan::default() });
    let disk = HookedDisk::new(directory, &plan);
    let (store, _) = Store::open_on(Arc::new(disk), options()).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree, plan)
}

fn row(number: u32, revision: u32) -> Vec<u8> {
    [number, revision].map(u32::to_le_bytes).concat().repeat(50)
}

/// A store with rows of revision 0, all in the tree.
fn load(directory: &Path) {
    let (store, tree, _) = open(directory);
    let mut build = store.bulk().unwrap();
    for number in 0..ROWS {
        build.push(&number.to_be_bytes(), &row(number, 0)).unwrap();
    }
    store.attach(vec![(tree, build)], &[]).unwrap();
}

/// Changes rows all over the tree; one is deleted.
fn change(store: &Store, tree: TreeId, revision: u32) {
    for number in (0..CHANGES).map(|index| index * (ROWS / CHANGES)) {
        let change = &mut |tx: &mut Tx<'_>| {
            if number == 0 {
                tx.delete(tree, &number.to_be_bytes());
            } else {
                tx.put(tree, &number.to_be_bytes(), &row(number, revision));
            }
            Ok(())
        };
        store.commit(change).unwrap();
    }
}

fn check(snapshot: &store::StoreSnapshot<'_>, tree: TreeId, revision: u32, context: &str) {
    let mut next = u32::from(revision > 0);
    let mut visit = |key: &[u8], value: &[u8]| {
        assert_eq!(key, next.to_be_bytes(), "{context}");
        let is_changed = next.is_multiple_of(ROWS / CHANGES);
        assert!(value == row(next, if is_changed { revision } else { 0 }), "{context}: row {next}");
        next += 1;
        std::ops::ControlFlow::Continue(())
    };
    snapshot.scan(tree, KeyRange::ALL, Direction::Forward, &mut visit).unwrap();
    assert_eq!(next, ROWS, "{context}");
}

fn check_store(store: &Store, tree: TreeId, revision: u32, context: &str) {
    check(&store.reader().unwrap().snapshot(), tree, revision, context);
    let report = store.verify();
    assert!(report.is_clean(), "{context}: {:?}", report.faults);
}

#[test]
fn a_checkpoint_whose_sync_fails_after_some_pieces_loses_nothing() {
    let mut syncs = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        load(directory.path());
        let (store, tree, plan) = open(directory.path());
        change(&store, tree, 1);
        plan.syncs.store(syncs, Ordering::Relaxed);
        let outcome = store.checkpoint();
        let context = format!("sync {syncs}");
        check_store(&store, tree, 1, &context);
        drop(store);
        let (store, tree, _) = open(directory.path());
        check_store(&store, tree, 1, &context);
        change(&store, tree, 2);
        store.checkpoint().unwrap();
        check_store(&store, tree, 2, &context);
        if outcome.is_ok() {
            break;
        }
        syncs += 1;
    }
    assert!(syncs >= 3 * SYNCS, "{syncs} syncs are too few for pieces");
}

#[test]
fn a_checkpoint_that_meets_a_full_disk_goes_on_from_the_last_piece() {
    let mut writes = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        load(directory.path());
        let (store, tree, plan) = open(directory.path());
        change(&store, tree, 1);
        plan.writes.store(writes, Ordering::Relaxed);
        let outcome = store.checkpoint();
        plan.writes.store(-1, Ordering::Relaxed);
        let context = format!("write {writes}");
        match outcome {
            Ok(()) => {
                assert!(writes > 50, "{writes} writes are too few for pieces");
                return;
            }
            // The meta page's write counts as a sync: what reached the disk is unknown.
            Err(StoreError::Io { .. } | StoreError::Poisoned) => {
                drop(store);
                let (store, tree, _) = open(directory.path());
                store.checkpoint().unwrap();
                check_store(&store, tree, 1, &context);
            }
            Err(StoreError::Full) => {
                check_store(&store, tree, 1, &context);
                let before = plan.seen_syncs.load(Ordering::Relaxed);
                store.checkpoint().unwrap();
                check_store(&store, tree, 1, &context);
                assert!(plan.seen_syncs.load(Ordering::Relaxed) > before, "{context}");
                change(&store, tree, 2);
                store.checkpoint().unwrap();
                check_store(&store, tree, 2, &context);
            }
            Err(error) => panic!("{context}: {error}"),
        }
        // A prime, so that over the pieces all kinds of writes are hit.
        writes += 7;
    }
}

#[test]
fn a_reader_that_comes_between_two_pieces_sees_one_state_for_as_long_as_it_stays() {
    let directory = tempfile::tempdir().unwrap();
    load(directory.path());
    let (store, tree, plan) = open(directory.path());
    change(&store, tree, 1);
    let readers: Vec<_> = (0..40).map(|_| store.reader().unwrap()).collect();
    let mut held = Vec::new();
    let (tell, told) = sync_channel(0);
    let (answer, answered) = sync_channel(0);
    *plan.stops.lock().unwrap() = Some((tell, answered));
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        while !checkpoint.is_finished() {
            let Ok(number) = told.recv_timeout(Duration::from_millis(20)) else { continue };
            let snapshot = readers[held.len()].snapshot();
            check(&snapshot, tree, 1, &format!("at sync {number}"));
            held.push(snapshot);
            answer.send(()).unwrap();
        }
        checkpoint.join().unwrap().unwrap();
    });
    drop((told, answer));
    *plan.stops.lock().unwrap() = None;
    assert!(held.len() as i64 >= 3 * SYNCS, "{} syncs are too few for pieces", held.len());
    for revision in 2..6 {
        change(&store, tree, revision);
        store.checkpoint().unwrap();
    }
    for (number, snapshot) in held.iter().enumerate() {
        check(snapshot, tree, 1, &format!("kept since sync {number}"));
    }
    check_store(&store, tree, 5, "newest");
}

/// Copies a store's files in their current state.
fn copy_files(from: &Path, to: &Path) {
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Tears the last batch of the log.
fn tear_last_batch(directory: &Path) {
    const BLOCK: usize = 4096;
    const SEQUENCE_AT: usize = 8;
    const BODY_AT: usize = 64;
    let logs = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let batches = logs.filter(|path| path.extension().is_some_and(|ending| ending == "log")).flat_map(|path| {
        let bytes = std::fs::read(&path).unwrap();
        let starts = (BLOCK..bytes.len()).step_by(BLOCK).filter(|at| bytes[*at..].starts_with(b"SLOG"));
        let sequence = |at: usize| u64::from_le_bytes(*bytes[at + SEQUENCE_AT..].first_chunk().unwrap());
        starts.map(|at| (sequence(at), path.clone(), at)).collect::<Vec<_>>()
    });
    let (_, path, at) = batches.max().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at + BODY_AT] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_log_that_ends_before_what_a_piece_has_taken_is_damage_and_shows_no_part_of_a_transaction() {
    let directory = tempfile::tempdir().unwrap();
    load(directory.path());
    let (store, tree, plan) = open(directory.path());
    change(&store, tree, 1);
    // The last transaction, and the last batch: its first row is in the first piece, its last row in the last one.
    let ends = [1u32, ROWS - 1];
    let last = &mut |tx: &mut Tx<'_>| {
        ends.iter().for_each(|number| tx.put(tree, &number.to_be_bytes(), &row(*number, 2)));
        Ok(())
    };
    store.commit(last).unwrap();
    let (tell, told) = sync_channel(0);
    let (answer, answered) = sync_channel(0);
    *plan.stops.lock().unwrap() = Some((tell, answered));
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        while !checkpoint.is_finished() {
            let Ok(number) = told.recv_timeout(Duration::from_millis(20)) else { continue };
            let copy = tempfile::tempdir().unwrap();
            copy_files(directory.path(), copy.path());
            copies.push((number, copy));
            answer.send(()).unwrap();
        }
        checkpoint.join().unwrap().unwrap();
    });
    drop((told, answer));
    let shown = |store: &Store| {
        let reader = store.reader().unwrap();
        let snapshot = reader.snapshot();
        ends.map(|number| *snapshot.get(tree, &number.to_be_bytes()).unwrap().unwrap() == row(number, 2))
    };
    let mut refused = 0;
    for (number, copy) in &copies {
        let torn = tempfile::tempdir().unwrap();
        copy_files(copy.path(), torn.path());
        tear_last_batch(torn.path());
        let examined = Store::examine(torn.path()).unwrap();
        match Store::open_on(Arc::new(SystemDisk::new(torn.path()).unwrap()), options()) {
            Ok((store, _)) => {
                let [first, last] = shown(&store);
                assert_eq!(first, last, "sync {number}: a part of a transaction is shown");
                assert!(examined.is_clean(), "sync {number}: {examined}");
            }
            Err(StoreError::Corrupt { file, what, .. }) => {
                assert!(file.ends_with(".log") && what.starts_with("the log ends before"), "{file}: {what}");
                assert!(examined.log_fault.is_some(), "sync {number}: {examined}");
                refused += 1;
            }
            Err(error) => panic!("sync {number}: {error}"),
        }
        // With its last batch the same state is complete.
        let (store, _) = Store::open_on(Arc::new(SystemDisk::new(copy.path()).unwrap()), options()).unwrap();
        assert_eq!(shown(&store), [true, true], "sync {number}");
        store.checkpoint().unwrap();
    }
    assert!(refused >= 2 * SYNCS, "{refused} of {} are between two pieces", copies.len());
}

#[test]
fn random_updates_take_little_more_of_the_disk_than_the_data() {
    let directory = tempfile::tempdir().unwrap();
    load(directory.path());
    let (store, tree, plan) = open(directory.path());
    plan.sync_time.store(2, Ordering::Relaxed);
    let loaded = store.stats().tree_pages;
    let mut rng = SmallRng::seed_from_u64(1);
    for revision in 0..20_000 {
        let number = rng.random_range(0..ROWS);
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, &number.to_be_bytes(), &row(number, revision));
            Ok(())
        };
        store.commit(change).unwrap();
    }
    store.checkpoint().unwrap();
    // Each checkpoint rewrites nearly all of so small a tree: in one piece the file would be three times as large. On a
    // busy machine writers and checkpoint interleave differently: 1.4 to 1.85 times were measured.
    let pages = store.stats().tree_pages;
    assert!(pages < loaded * 2, "{pages} pages, {loaded} after the load");
}
