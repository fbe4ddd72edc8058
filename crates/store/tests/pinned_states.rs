//! Snapshots that hold the maximum number of old states: an operation that needs a new state gets an error within about a
//! second and has changed nothing; `stats` and closing return meanwhile; everything continues once the snapshots are dropped.
#![cfg(not(feature = "loom"))] // As `published.rs`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use store::readers::RETIRED_MAX;
use store::{Abort, Commit, Reader, RetriableTransaction, Store, StoreError, StoreOptions, Submit, TreeId, Tx};

/// A longer wait counts as a hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// Fills about a tenth of a memtable.
const VALUE_BYTES: usize = 24 << 10;
/// More transactions than any memtable takes.
const MANY: u32 = 60;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 128 << 10;
    options.map_bytes = 1 << 32;
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

/// A store with its acknowledged and refused writes.
struct Bench {
    store: Store,
    tree: TreeId,
    /// Empty, for a build.
    loaded: TreeId,
    acknowledged: Vec<u32>,
    refused: Vec<u32>,
    next: u32,
}

fn value(number: u32, bytes: usize) -> Vec<u8> {
    vec![number as u8; bytes]
}

impl Bench {
    fn open(directory: &Path) -> Bench {
        let (store, _) = Store::open(directory, options()).unwrap();
        let [tree, loaded] = ["t", "loaded"].map(|name| store.tree(name).unwrap());
        store.checkpoint().unwrap();
        Bench { store, tree, loaded, acknowledged: Vec::new(), refused: Vec::new(), next: 0 }
    }

    fn put(&mut self, bytes: usize) -> Result<(), StoreError> {
        let (tree, number) = (self.tree, self.next);
        self.next += 1;
        let put = self.store.commit(&mut |tx| {
            tx.put(tree, &number.to_be_bytes(), &value(number, bytes));
            Ok(())
        });
        if put.is_ok() { &mut self.acknowledged } else { &mut self.refused }.push(number);
        put.map(drop)
    }

    fn attach(&self, tree: TreeId) -> Result<(), StoreError> {
        let mut build = self.store.bulk()?;
        build.push(b"key", b"loaded")?;
        self.store.attach(vec![(tree, build)], &[]).map(drop)
    }

    /// A large transaction with one key.
    fn commit_large(&self) -> Result<(), StoreError> {
        let mut large = self.store.large(1 << 20, &[self.tree])?;
        large.put(self.tree, b"large", b"committed");
        large.commit(self.tree).map(drop)
    }

    /// Checkpoints add two states each; this adds one more.
    fn add_state(&self) {
        // The tree's name is merged first, so that the attachment has nothing to freeze.
        let tree = self.store.tree("one more").unwrap();
        self.store.checkpoint().unwrap();
        self.attach(tree).unwrap();
    }

    /// Commits and freezes until no further state can be kept for the reader, which holds an old and a newer snapshot.
    fn use_up_states(&mut self) {
        for _ in 0..=RETIRED_MAX {
            self.put(100).unwrap();
            match self.store.checkpoint() {
                Ok(()) => {}
                Err(StoreError::Pinned { states }) => {
                    assert_eq!(states, RETIRED_MAX as u64);
                    return;
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("each checkpoint makes two states: {:?}", self.store.stats());
    }

    /// Fills the memtable until no other one is available.
    fn use_up_memtable(&mut self) {
        let refused = (0..MANY).find_map(|_| self.put(VALUE_BYTES).err());
        assert!(matches!(refused, Some(StoreError::Pinned { .. })), "{refused:?}");
    }

    /// A write that needs a memtable; a checkpoint that has not yet noticed that the snapshots are dropped may refuse some.
    fn put_soon(&mut self) {
        let began = Instant::now();
        while let Err(error) = self.put(VALUE_BYTES) {
            assert!(matches!(error, StoreError::Pinned { .. }) && began.elapsed() < PATIENCE, "{error}");
        }
    }

    fn get_loaded(&self) -> Option<Vec<u8>> {
        let reader = self.store.reader().unwrap();
        reader.snapshot().get(self.loaded, b"key").unwrap().map(|found| found.into_owned())
    }

    #[track_caller]
    fn check(&self) {
        let reader = self.store.reader().unwrap();
        let snapshot = reader.snapshot();
        let get = |number: &u32| snapshot.get(self.tree, &number.to_be_bytes()).unwrap();
        for number in &self.acknowledged {
            assert!(
                get(number).is_some_and(|found| found.iter().all(|byte| *byte == *number as u8)),
                "{number} is lost"
            );
        }
        for number in &self.refused {
            assert_eq!(get(number), None, "{number} was refused");
        }
        let stats = self.store.stats();
        assert!(!stats.is_poisoned && !stats.is_stopped_by_damage, "{stats:?}");
    }

    fn reopen(self, directory: &Path) -> Bench {
        drop(self.store);
        let (store, _) = Store::open(directory, options()).unwrap();
        Bench { store, ..self }
    }
}

/// A thread that calls `stats` again and again, until it is dropped.
struct Asking {
    answers: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Asking {
    fn begin(store: &Store) -> Asking {
        let (answers, is_over): (Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let (store, answered, ends) = (store.clone(), Arc::clone(&answers), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Acquire) {
                store.stats();
                answered.fetch_add(1, Ordering::Release);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Asking { answers, is_over, thread: Some(thread) }
    }

    /// Waits for a call that began after this.
    fn check(&self) {
        let wanted = self.answers.load(Ordering::Acquire) + 2;
        let began = Instant::now();
        while self.answers.load(Ordering::Acquire) < wanted {
            assert!(began.elapsed() < PATIENCE, "stats hang");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if !std::thread::panicking() {
            self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
        }
    }
}

/// Fails if `work` hangs.
fn within_patience(work: fn()) {
    let (tell, ended) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _tells_at_its_end: mpsc::Sender<()> = tell;
        work();
    });
    assert!(!matches!(ended.recv_timeout(4 * PATIENCE), Err(mpsc::RecvTimeoutError::Timeout)), "it hangs");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// `is_merge`: a freeze takes the last place, so that the merge finds none; otherwise a merge takes it.
fn check_all_states_pinned(is_merge: bool) {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::open(directory.path());
    bench.put(100).unwrap();
    let reader = bench.store.reader().unwrap();
    let oldest = reader.snapshot();
    bench.put(100).unwrap();
    bench.store.checkpoint().unwrap();
    let newer = reader.snapshot();
    if !is_merge {
        bench.add_state();
    }
    bench.use_up_states();
    let asking = Asking::begin(&bench.store);
    let stats = bench.store.stats();
    assert_eq!((stats.retired_generations, stats.frozen_bytes > 0), (RETIRED_MAX as u64, is_merge), "{stats:?}");
    // There is room in the memtable; then there is none.
    bench.put(100).unwrap();
    bench.use_up_memtable();
    assert!(matches!(bench.put(VALUE_BYTES), Err(StoreError::Pinned { .. })));
    assert!(matches!(bench.store.checkpoint(), Err(StoreError::Pinned { .. })));
    let attached = bench.attach(bench.loaded);
    assert!(matches!(attached, Err(StoreError::Pinned { .. })), "{attached:?}");
    let large = bench.commit_large();
    assert!(matches!(large, Err(StoreError::Pinned { .. })), "{large:?}");
    let to = tempfile::tempdir().unwrap();
    let copied = bench.store.backup(to.path(), &mut |_| std::ops::ControlFlow::Continue(()));
    assert!(matches!(copied, Err(StoreError::Pinned { .. })), "{copied:?}");
    assert!(!Store::is_in(to.path()));
    asking.check();
    drop(asking);
    assert_eq!(bench.get_loaded(), None);
    bench.check();
    // The snapshots show the same as before.
    let seen = |snapshot: &store::StoreSnapshot<'_>, number: u32| {
        snapshot.get(bench.tree, &number.to_be_bytes()).unwrap().is_some()
    };
    assert!(
        [&oldest, &newer].map(|snapshot| (0..3).map(|number| seen(snapshot, number)).collect::<Vec<_>>())
            == [vec![true, false, false], vec![true, true, false]]
    );
    drop((oldest, newer));
    bench.put_soon();
    for _ in 0..MANY {
        bench.put(VALUE_BYTES).unwrap();
    }
    bench.commit_large().unwrap();
    let large =
        bench.store.reader().unwrap().snapshot().get(bench.tree, b"large").unwrap().map(|found| found.into_owned());
    assert_eq!(large.as_deref(), Some(&b"committed"[..]));
    bench.attach(bench.loaded).unwrap();
    bench.store.checkpoint().unwrap();
    bench.check();
    assert_eq!(bench.get_loaded().as_deref(), Some(&b"loaded"[..]));
    assert!(bench.store.stats().retired_generations < 8, "{:?}", bench.store.stats());
    drop(reader);
    let bench = bench.reopen(directory.path());
    bench.check();
    assert_eq!(bench.get_loaded().as_deref(), Some(&b"loaded"[..]));
    let report = bench.store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
}

#[test]
fn a_freeze_that_finds_no_place_for_its_state_is_told_and_changes_nothing() {
    within_patience(|| check_all_states_pinned(false));
}

#[test]
fn a_merge_that_finds_no_place_for_its_state_is_told_and_tried_again() {
    within_patience(|| check_all_states_pinned(true));
}

/// Sends its outcome.
struct Told {
    tree: TreeId,
    number: u32,
    told: mpsc::Sender<(u32, Result<Commit, StoreError>)>,
}

impl RetriableTransaction for Told {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        tx.put(self.tree, &self.number.to_be_bytes(), &value(self.number, VALUE_BYTES));
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.told.send((self.number, outcome)).unwrap();
    }
}

/// Queues so many writes that they would exceed any patience if each of them waited for the readers.
fn queue_many(bench: &Bench, reader: &Reader, told: &mpsc::Sender<(u32, Result<Commit, StoreError>)>) -> u32 {
    for number in bench.next..bench.next + 2 * MANY {
        let transaction = Box::new(Told { tree: bench.tree, number, told: told.clone() });
        assert!(matches!(bench.store.submit(reader, transaction), Submit::Queued));
    }
    2 * MANY
}

fn check_close(is_merge: bool) {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::open(directory.path());
    let (reader, writer) = (bench.store.reader().unwrap(), bench.store.reader().unwrap());
    let oldest = reader.snapshot();
    bench.put(100).unwrap();
    bench.store.checkpoint().unwrap();
    let newer = reader.snapshot();
    if !is_merge {
        bench.add_state();
    }
    bench.use_up_states();
    bench.use_up_memtable();
    let (told, outcomes) = mpsc::channel();
    let queued = queue_many(&bench, &writer, &told);
    let Bench { store, tree, loaded, mut acknowledged, mut refused, next } = bench;
    let (close, closed) = mpsc::channel();
    std::thread::spawn(move || {
        drop(store);
        close.send(()).unwrap();
    });
    closed.recv_timeout(PATIENCE).expect("closing ends while snapshots are held");
    for _ in 0..queued {
        let (number, outcome) = outcomes.try_recv().expect("each is told before the store is closed");
        match outcome {
            Ok(_) => acknowledged.push(number),
            Err(StoreError::Pinned { .. }) => refused.push(number),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(!refused.is_empty());
    drop((oldest, newer));
    drop((reader, writer));
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let bench = Bench { store, tree, loaded, acknowledged, refused, next };
    bench.check();
}

#[test]
fn closing_ends_while_a_freeze_waits_for_readers() {
    within_patience(|| check_close(false));
}

#[test]
fn closing_ends_while_a_merge_waits_for_readers() {
    within_patience(|| check_close(true));
}
