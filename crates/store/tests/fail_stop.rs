//! A thread of the store panics: the store refuses writes and says why, all waiting callers get an error, no unlogged
//! change is visible, and everything acknowledged is found after reopening.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{Access, DiskFile, SystemDisk};
use store::{
    Abort, Commit, CopyProgress, Durability, RetriableTransaction, Store, StoreError, StoreOptions, Submit, TreeId, Tx,
};

/// A longer wait counts as a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Operations that panic, once, after this many of them; negative: never.
struct Panics {
    log_write: AtomicI64,
    log_sync: AtomicI64,
    tree_write: AtomicI64,
    tree_sync: AtomicI64,
    /// Of the thread that writes a build's pages.
    build_write: AtomicI64,
    /// Of a backup's tree file.
    copy_write: AtomicI64,
    new_segment: AtomicI64,
    /// Of the thread that looks at the disk.
    free_bytes: AtomicI64,
    is_room_short: AtomicBool,
}

fn count_down(left: &AtomicI64) {
    if left.load(Ordering::Relaxed) >= 0 && left.fetch_sub(1, Ordering::Relaxed) == 0 {
        panic!("as a test wants it");
    }
}

fn is_log(name: &str) -> bool {
    name.ends_with(".log")
}

impl Hooks for Panics {
    fn open(&self, name: &str, access: Access) -> io::Result<()> {
        if name.starts_with('0') && name.ends_with(".new") {
            count_down(&self.new_segment);
        }
        // So that a batch is written and then synced.
        if access == Access::Direct { Err(io::ErrorKind::InvalidInput.into()) } else { Ok(()) }
    }
    fn free_bytes(&self, _disk: &SystemDisk) -> io::Result<Option<u64>> {
        if std::thread::current().name() == Some("store-space") {
            count_down(&self.free_bytes);
        }
        // With little room every few commits ask for it.
        Ok(Some(if self.is_room_short.load(Ordering::Relaxed) { 64 << 20 } else { 1 << 40 }))
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if is_log(name) {
            count_down(&self.log_write);
        } else if name == "tree" {
            count_down(&self.tree_write);
            if std::thread::current().name() == Some("bulk-write") {
                count_down(&self.build_write);
            }
        } else if name == "tree.part" {
            count_down(&self.copy_write);
        }
        file.write_at(bytes, offset)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        if is_log(name) && std::thread::current().name() != Some("store-log") {
            count_down(&self.log_sync);
        } else if name == "tree" {
            count_down(&self.tree_sync);
        }
        file.sync_data()
    }
}

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 64 * 1024;
    options.map_bytes = 1 << 30;
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

impl Panics {
    /// No panics yet.
    fn new() -> Arc<Panics> {
        let never = || AtomicI64::new(-1);
        Arc::new(Panics {
            log_write: never(),
            log_sync: never(),
            tree_write: never(),
            tree_sync: never(),
            build_write: never(),
            copy_write: never(),
            new_segment: never(),
            free_bytes: never(),
            is_room_short: AtomicBool::new(false),
        })
    }
}

fn open_with(directory: &Path, options: StoreOptions) -> (Store, TreeId, Arc<Panics>) {
    let panics = Panics::new();
    let (store, _) = Store::open_on(Arc::new(HookedDisk::new(directory, &panics)), options).unwrap();
    let tree = store.tree("t").unwrap();
    (store, tree, panics)
}

fn open(directory: &Path) -> (Store, TreeId, Arc<Panics>) {
    open_with(directory, options())
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(20)
}

fn put(store: &Store, tree: TreeId, number: u32) -> Result<Commit, StoreError> {
    store.commit(&mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &value(number));
        Ok(())
    })
}

fn put_all(store: &Store, tree: TreeId, count: u32) {
    for number in 0..count {
        put(store, tree, number).unwrap();
    }
}

fn has(store: &Store, tree: TreeId, number: u32) -> bool {
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let found = snapshot.get(tree, &number.to_be_bytes()).unwrap();
    found.is_some_and(|found| *found == value(number))
}

/// Runs on a thread of its own, so that a hang fails the test.
#[track_caller]
fn in_time<R: Send + 'static>(what: &str, run: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(run()));
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} hangs, or panicked"))
}

/// Commits ascending numbers until one is refused; returns the number and the error.
fn put_until_refused(store: &Store, tree: TreeId, from: u32) -> (u32, StoreError) {
    let store = store.clone();
    in_time("a writer", move || {
        (from..from + 100_000).find_map(|number| Some((number, put(&store, tree, number).err()?))).unwrap()
    })
}

/// The store refuses everything but reads. Acknowledged numbers exist, now and after reopening.
#[track_caller]
fn check_stopped(directory: &Path, store: Store, tree: TreeId, acknowledged: &[u32], others: &[u32]) {
    assert!(store.stats().is_poisoned);
    let writer = store.clone();
    let refused = in_time("a commit", move || put(&writer, tree, u32::MAX));
    assert!(matches!(refused, Err(StoreError::Poisoned)), "{refused:?}");
    let writer = store.clone();
    let refused = in_time("a checkpoint", move || writer.checkpoint());
    assert!(matches!(refused, Err(StoreError::Poisoned)), "{refused:?}");
    let seen: Vec<u32> = others.iter().copied().filter(|number| has(&store, tree, *number)).collect();
    assert!(acknowledged.iter().all(|number| has(&store, tree, *number)), "what was acknowledged is not seen");
    in_time("closing", move || drop(store));
    let (store, tree, _) = open(directory);
    for number in acknowledged.iter().chain(&seen) {
        assert!(has(&store, tree, *number), "{number} was acknowledged or seen, and is not there any more");
    }
    assert!(!has(&store, tree, u32::MAX));
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    put(&store, tree, u32::MAX).unwrap();
    store.checkpoint().unwrap();
}

struct Put {
    tree: TreeId,
    number: u32,
    told: mpsc::Sender<(u32, Result<Commit, StoreError>)>,
}

impl RetriableTransaction for Put {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        tx.put(self.tree, &self.number.to_be_bytes(), &value(self.number));
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        let _ = self.told.send((self.number, outcome));
    }
}

/// Four threads submit while a panic occurs; each transaction gets its outcome.
#[track_caller]
fn check_submitters(arm: impl Fn(&Panics)) {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    put_all(&store, tree, 20);
    arm(&panics);
    let submitters: Vec<_> = (1..5u32)
        .map(|thread| {
            let store = store.clone();
            std::thread::spawn(move || {
                let reader = store.reader().unwrap();
                let (told, outcomes) = mpsc::channel();
                let numbers = thread * 10_000..thread * 10_000 + 300;
                for number in numbers.clone() {
                    let transaction = Box::new(Put { tree, number, told: told.clone() });
                    assert!(matches!(store.submit(&reader, transaction), Submit::Queued));
                }
                drop(told);
                let mut heard = Vec::new();
                for _ in numbers {
                    heard.push(outcomes.recv_timeout(PATIENCE).expect("each transaction is told its outcome"));
                }
                heard
            })
        })
        .collect();
    let heard: Vec<_> = submitters.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let mut acknowledged: Vec<u32> = (0..20).collect();
    let mut others = Vec::new();
    for (number, outcome) in heard {
        match outcome {
            Ok(_) => acknowledged.push(number),
            Err(StoreError::Unknown(_) | StoreError::Poisoned) => others.push(number),
            Err(error) => panic!("{error:?}"),
        }
    }
    assert!(!others.is_empty(), "the panic has come");
    assert!(others.iter().all(|number| !has(&store, tree, *number)), "what was not logged is seen");
    check_stopped(directory.path(), store, tree, &acknowledged, &others);
}

#[test]
fn a_panic_while_a_batch_is_written_is_told_to_all_who_wait_and_shows_nothing_unlogged() {
    (0..4).for_each(|writes| check_submitters(|panics| panics.log_write.store(writes, Ordering::Relaxed)));
}

#[test]
fn a_panic_while_a_batch_is_synced_is_told_to_all_who_wait_and_shows_nothing_unlogged() {
    (0..2).for_each(|syncs| check_submitters(|panics| panics.log_sync.store(syncs, Ordering::Relaxed)));
}

#[test]
fn a_lone_caller_whose_commit_panics_hears_that_nobody_knows() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    put(&store, tree, 1).unwrap();
    panics.log_write.store(0, Ordering::Relaxed);
    let outcome = put(&store, tree, 2);
    assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{outcome:?}");
    assert!(!has(&store, tree, 2));
    check_stopped(directory.path(), store, tree, &[1], &[2]);
}

#[test]
fn a_panic_of_the_checkpointer_stops_writers_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    panics.tree_write.store(3, Ordering::Relaxed);
    let (refused, error) = put_until_refused(&store, tree, 0);
    assert!(matches!(error, StoreError::Poisoned), "{error:?}");
    check_stopped(directory.path(), store, tree, &(0..refused).collect::<Vec<_>>(), &[refused]);
}

#[test]
fn who_waits_for_a_checkpoint_that_panics_hears_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    put_all(&store, tree, 50);
    panics.tree_write.store(0, Ordering::Relaxed);
    let waiting = store.clone();
    let outcome = in_time("the checkpoint", move || waiting.checkpoint());
    assert!(matches!(outcome, Err(StoreError::Poisoned)), "{outcome:?}");
    check_stopped(directory.path(), store, tree, &(0..50).collect::<Vec<_>>(), &[]);
}

#[test]
fn a_panic_of_the_segment_keeper_stops_writers_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    panics.new_segment.store(0, Ordering::Relaxed);
    let (refused, error) = put_until_refused(&store, tree, 0);
    assert!(matches!(error, StoreError::Poisoned), "{error:?}");
    check_stopped(directory.path(), store, tree, &(0..refused).collect::<Vec<_>>(), &[refused]);
}

#[test]
fn a_panic_of_the_thread_that_makes_room_stops_writers_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    panics.is_room_short.store(true, Ordering::Relaxed);
    panics.free_bytes.store(0, Ordering::Relaxed);
    let (refused, error) = put_until_refused(&store, tree, 0);
    assert!(matches!(error, StoreError::Poisoned), "{error:?}");
    check_stopped(directory.path(), store, tree, &(0..refused).collect::<Vec<_>>(), &[refused]);
}

#[test]
fn a_panic_of_the_thread_that_syncs_at_intervals_stops_writers() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options();
    options.durability = Durability::Interval(Duration::from_millis(1));
    let (store, tree, panics) = open_with(directory.path(), options);
    panics.log_sync.store(0, Ordering::Relaxed);
    let (refused, error) = put_until_refused(&store, tree, 0);
    assert!(matches!(error, StoreError::Poisoned), "{error:?}");
    check_stopped(directory.path(), store, tree, &(0..refused).collect::<Vec<_>>(), &[refused]);
}

#[test]
fn a_panic_in_an_attachment_stops_writers_and_hangs_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    put_all(&store, tree, 50);
    let loaded = store.tree("loaded").unwrap();
    let mut build = store.bulk().unwrap();
    (0..100u32).for_each(|key| build.push(&key.to_be_bytes(), b"value").unwrap());
    // The build's own pages come first, in one write.
    panics.tree_write.store(1, Ordering::Relaxed);
    let attached = catch_unwind(AssertUnwindSafe(|| store.attach(vec![(loaded, build)], &[])));
    assert!(!matches!(attached, Ok(Ok(_))));
    check_stopped(directory.path(), store, tree, &(0..50).collect::<Vec<_>>(), &[]);
}

/// Keys that a large transaction puts.
const LARGE: std::ops::Range<u32> = 1_000..1_400;

/// Commits a large transaction of [`LARGE`] over 50 acknowledged puts; returns whether it panicked, and its outcome.
fn commit_large(store: &Store, tree: TreeId, arm: impl FnOnce()) -> std::thread::Result<Result<Commit, StoreError>> {
    put_all(store, tree, 50);
    let mut large = store.large(1 << 20, &[tree]).unwrap();
    for number in LARGE {
        large.put(tree, &number.to_be_bytes(), &value(number));
    }
    arm();
    catch_unwind(AssertUnwindSafe(|| large.commit(tree)))
}

/// Panics at each of these operations by a large transaction's commit; returns their number.
#[track_caller]
fn check_large(which: impl Fn(&Panics) -> &AtomicI64) -> i64 {
    for count in 0.. {
        let directory = tempfile::tempdir().unwrap();
        let (store, tree, panics) = open(directory.path());
        let outcome = commit_large(&store, tree, || which(&panics).store(count, Ordering::Relaxed));
        if which(&panics).swap(-1, Ordering::Relaxed) >= 0 {
            // It finished before.
            assert!(matches!(outcome, Ok(Ok(_))), "{outcome:?}");
            assert!(LARGE.chain(0..50).all(|number| has(&store, tree, number)));
            return count;
        }
        assert!(outcome.is_err(), "{outcome:?}");
        let (acknowledged, others): (Vec<u32>, Vec<u32>) = ((0..50).collect(), LARGE.collect());
        assert!(others.iter().all(|number| !has(&store, tree, *number)), "half of it is seen");
        check_stopped(directory.path(), store, tree, &acknowledged, &[]);
        let (store, tree, _) = open(directory.path());
        let there = others.iter().filter(|number| has(&store, tree, **number)).count();
        assert!(there == 0 || there == others.len(), "{there} of {} after a reopening", others.len());
    }
    unreachable!("a commit that never ends")
}

#[test]
fn a_panic_anywhere_in_the_commit_of_a_large_transaction_stops_writers_and_shows_nothing_of_it() {
    assert!(check_large(|panics| &panics.log_write) >= 2, "a piece, and the record");
}

/// A copy is not part of the store: the store continues, and so does the next copy.
#[track_caller]
fn check_backup(copy_write: i64, watch: &mut dyn FnMut(CopyProgress) -> ControlFlow<()>) {
    let [directory, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let (store, tree, _) = open(directory.path());
    put_all(&store, tree, 50);
    let panics = Panics::new();
    panics.copy_write.store(copy_write, Ordering::Relaxed);
    let copied = catch_unwind(AssertUnwindSafe(|| {
        store.backup_on(&HookedDisk::new(to.path(), &panics), &mut |progress| watch(progress))
    }));
    assert!(copied.is_err(), "{copied:?}");
    assert!(!Store::is_in(to.path()), "half a copy is no store");
    assert!(!store.stats().is_poisoned);
    let writer = store.clone();
    in_time("a commit and a checkpoint", move || put(&writer, tree, 50).and_then(|_| writer.checkpoint())).unwrap();
    store.backup(to.path(), &mut |_| ControlFlow::Continue(())).unwrap();
    let (copy, tree, _) = open(to.path());
    assert!((0..51).all(|number| has(&copy, tree, number)) && copy.verify().is_clean());
}

#[test]
fn a_panic_in_a_backup_leaves_the_store_at_work_and_no_half_copy() {
    check_backup(0, &mut |_| ControlFlow::Continue(()));
    check_backup(1, &mut |_| ControlFlow::Continue(()));
    check_backup(-1, &mut |_| panic!("as a test wants it"));
}

#[test]
fn a_panic_of_the_thread_that_writes_a_builds_pages_is_told_to_the_builder_and_to_nobody_else() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, panics) = open(directory.path());
    put_all(&store, tree, 50);
    let loaded = store.tree("loaded").unwrap();
    let build = move |store: &Store| {
        let mut build = store.bulk()?;
        (0..20_000u32).try_for_each(|key| build.push(&key.to_be_bytes(), &[7; 1000]))?;
        store.attach(vec![(loaded, build)], &[]).map(drop)
    };
    panics.build_write.store(0, Ordering::Relaxed);
    let builder = store.clone();
    let built = in_time("a build", move || build(&builder));
    assert!(matches!(built, Err(StoreError::Io { .. })), "{built:?}");
    assert!(panics.build_write.load(Ordering::Relaxed) < 0, "it has come");
    assert!(!store.stats().is_poisoned);
    let builder = store.clone();
    in_time("the next build", move || build(&builder)).unwrap();
    put(&store, tree, 50).unwrap();
    in_time("closing", move || drop(store));
    let (store, tree, _) = open(directory.path());
    assert!((0..51).all(|number| has(&store, tree, number)));
    assert!(store.verify().is_clean());
}

#[test]
fn callers_whose_own_code_panics_take_nothing_from_others() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, _) = open(directory.path());
    for _ in 0..200 {
        let panicked =
            catch_unwind(AssertUnwindSafe(|| store.commit(&mut |_: &mut Tx<'_>| panic!("as a test wants it"))));
        assert!(panicked.is_err());
    }
    let writer = store.clone();
    in_time("a commit", move || put(&writer, tree, 1)).unwrap();
    assert!(!store.stats().is_poisoned);
}
