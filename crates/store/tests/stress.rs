//! All activities of a store at once, for a bounded time: waiting and asynchronous commits, deleted ranges, loads,
//! checkpoints, backups, readers that hold and drop snapshots, readers of changes, state queries.
//!
//! Every answer is checked against a model afterwards. Committed changes are recorded with their version and replayed
//! in version order, and each state that any thread saw must be the state of its version. So a reader that saw a reused
//! page, half a transaction, or one too many has seen a state that never existed.
//!
//! Also made for the sanitizers: `cargo xtask sanitize thread store --test suite stress::`. On the in-memory disk they
//! also see what a checkpoint writes into pages that a reader may still use.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::{Disk, MemoryDisk, SystemDisk};
use store::{
    Abort, Change, ChangeReader, Commit, Direction, KeyRange, RetriableTransaction, Store, StoreError, StoreOptions,
    StoreSnapshot, Submit, TreeId, Tx, Version,
};

/// Duration; under Miri, where time means nothing, the number of commits ends it.
const TIME: Duration = Duration::from_secs(if cfg!(miri) { 3600 } else { 3 });
const COMMITS_MAX: u64 = if cfg!(miri) { 60 } else { 40_000 };
const TREES: u32 = if cfg!(miri) { 2 } else { 3 };
const KEYS: u32 = if cfg!(miri) { 30 } else { 900 };
/// Rows of a load, whose tree is emptied by a deleted range some time later.
const LOADED: u32 = if cfg!(miri) { 20 } else { 700 };
const WRITERS: u64 = if cfg!(miri) { 1 } else { 3 };
const READERS: u64 = if cfg!(miri) { 1 } else { 3 };
/// Snapshots that one reader thread holds at once.
const HELD: usize = 4;
/// Transactions in flight of one asynchronous thread.
const IN_FLIGHT: u64 = 64;
/// States recorded by one thread: each is compared with the model at its version.
const SEEN_MAX: usize = if cfg!(miri) { 20 } else { 150 };

type Row = (u32, Vec<u8>);
type Content = BTreeMap<Row, Vec<u8>>;

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    DeleteRange(u32, Vec<u8>, Option<Vec<u8>>),
    Put(u32, Vec<u8>, Vec<u8>),
    Delete(u32, Vec<u8>),
    /// The tree's whole content was bulk-loaded.
    Reset(u32),
}

fn apply(content: &mut Content, step: &Step) {
    match step {
        Step::Put(tree, key, value) => drop(content.insert((*tree, key.clone()), value.clone())),
        Step::Delete(tree, key) => drop(content.remove(&(*tree, key.clone()))),
        Step::DeleteRange(tree, from, to) => {
            let end =
                to.as_ref().map_or(Bound::Excluded((tree + 1, Vec::new())), |to| Bound::Excluded((*tree, to.clone())));
            let gone: Vec<Row> =
                content.range((Bound::Included((*tree, from.clone())), end)).map(|(row, _)| row.clone()).collect();
            gone.iter().for_each(|row| drop(content.remove(row)));
        }
        Step::Reset(_) => {}
    }
}

/// Summary of a state: for each tree with rows their number, and a digest.
type Digest = BTreeMap<u32, (u64, u64)>;

fn digest<'c>(rows: impl Iterator<Item = (u32, &'c [u8], &'c [u8])>) -> Digest {
    let mut digest = Digest::new();
    for (tree, key, value) in rows {
        let (count, hash) = digest.entry(tree).or_default();
        let mut hasher = DefaultHasher::new();
        (*hash, key, value).hash(&mut hasher);
        (*count, *hash) = (*count + 1, hasher.finish());
    }
    digest
}

fn digest_of(content: &Content) -> Digest {
    digest(content.iter().map(|((tree, key), value)| (*tree, key.as_slice(), value.as_slice())))
}

/// The actions and observations of all threads.
struct History {
    started: Instant,
    is_over: AtomicBool,
    commits: AtomicU64,
    /// Steps by version.
    done: Mutex<BTreeMap<u64, Vec<Step>>>,
    /// Rows of a load, by its version: the log says only that there was a load.
    loaded: Mutex<BTreeMap<u64, Vec<Step>>>,
    /// Version, digest, and the observer.
    seen: Mutex<Vec<(u64, Digest, &'static str)>>,
}

impl History {
    fn new() -> History {
        History {
            started: Instant::now(),
            is_over: AtomicBool::new(false),
            commits: AtomicU64::new(0),
            done: Mutex::default(),
            loaded: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    fn goes_on(&self) -> bool {
        if self.started.elapsed() > TIME || self.commits.load(Ordering::Relaxed) > COMMITS_MAX {
            self.is_over.store(true, Ordering::Release);
        }
        !self.is_over.load(Ordering::Acquire)
    }

    fn did(&self, version: Version, steps: Vec<Step>) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        assert_eq!(
            self.done.lock().unwrap().insert(version.0, steps),
            None,
            "version {} is given out twice",
            version.0
        );
    }

    fn saw(&self, version: u64, digest: Digest, who: &'static str) {
        self.seen.lock().unwrap().push((version, digest, who));
    }

    /// Replays everything, and compares each observed state.
    fn check(self, trees_made: u64) {
        let (done, loaded) = (self.done.into_inner().unwrap(), self.loaded.into_inner().unwrap());
        let mut seen = self.seen.into_inner().unwrap();
        seen.sort_unstable();
        let (mut content, mut seen) = (Content::new(), seen.into_iter().peekable());
        for (expected, (version, steps)) in (trees_made + 1..).zip(&done) {
            while let Some((at, found, who)) = seen.next_if(|(at, ..)| at < version) {
                assert_eq!(found, digest_of(&content), "{who} saw what version {at} is not");
            }
            assert_eq!(*version, expected, "a version that nobody has");
            steps.iter().chain(loaded.get(version).into_iter().flatten()).for_each(|step| apply(&mut content, step));
        }
        for (at, found, who) in seen {
            assert_eq!(found, digest_of(&content), "{who} saw what version {at} is not");
        }
    }
}

fn key(number: u32) -> Vec<u8> {
    // Some share long prefixes, some are short.
    format!("{}{:03}", "a long prefix/".repeat((number % 3) as usize), number).into_bytes()
}

fn value(random: &mut SmallRng) -> Vec<u8> {
    let len = match random.random_range(0..40u32) {
        0 => random.random_range(4000..12_000),
        1..4 => random.random_range(600..2500),
        _ => random.random_range(0..200),
    };
    vec![random.random::<u8>(); len]
}

/// A transaction's steps; one in some dozens deletes a range.
fn steps(random: &mut SmallRng) -> Vec<Step> {
    let tree = |random: &mut SmallRng| random.random_range(1..=TREES);
    let mut steps = Vec::new();
    if random.random_range(0..30u32) == 0 {
        let (from, to) = (key(random.random_range(0..KEYS)), key(random.random_range(0..KEYS)));
        let to = (random.random_range(0..8u32) > 0).then_some(to);
        if to.as_ref().is_none_or(|to| from < *to) {
            steps.push(Step::DeleteRange(tree(random), from, to));
        }
    }
    // Each key once, so that the log has the same steps.
    let mut rows = BTreeMap::new();
    for _ in 0..random.random_range(1..8u32) {
        rows.insert((tree(random), key(random.random_range(0..KEYS))), random.random_range(0..5u32) > 0);
    }
    let change =
        |((tree, key), is_put)| if is_put { Step::Put(tree, key, value(random)) } else { Step::Delete(tree, key) };
    steps.extend(rows.into_iter().map(change));
    steps
}

fn run(tx: &mut Tx<'_>, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Put(tree, key, value) => tx.put(TreeId(*tree), key, value),
            Step::Delete(tree, key) => tx.delete(TreeId(*tree), key),
            Step::DeleteRange(tree, from, to) => {
                let to = to.as_ref().map_or(Bound::Unbounded, |to| Bound::Excluded(to.as_slice()));
                tx.delete_range(TreeId(*tree), KeyRange { from: Bound::Included(from), to });
            }
            Step::Reset(_) => {}
        }
    }
}

/// Commits and waits. Every other transaction also counts: it reads what another may be changing.
fn write(store: &Store, history: &History, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    while history.goes_on() {
        let plain = steps(&mut random);
        let is_counting = random.random_range(0..2u32) == 0;
        let mut all = Vec::new();
        let change = &mut |tx: &mut Tx<'_>| {
            all = plain.clone();
            run(tx, &plain);
            if is_counting {
                let before = tx.get(TreeId(1), b"count").map_err(|_| Abort)?;
                let before = before.map_or(0, |count| u64::from_be_bytes(count.as_ref().try_into().unwrap()));
                let step = Step::Put(1, b"count".to_vec(), (before + 1).to_be_bytes().to_vec());
                run(tx, std::slice::from_ref(&step));
                all.push(step);
            }
            Ok(())
        };
        let commit = store.commit(change).unwrap();
        history.did(commit.version, all);
    }
}

/// A transaction that records itself in the history.
struct Told {
    steps: Vec<Step>,
    history: Arc<History>,
    in_flight: Arc<AtomicU64>,
}

impl RetriableTransaction for Told {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        run(tx, &self.steps);
        Ok(())
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.history.did(outcome.unwrap().version, self.steps);
        self.in_flight.fetch_sub(1, Ordering::Release);
    }
}

/// Submits without waiting, unless too many of its own are in flight.
fn submit(store: &Store, history: &Arc<History>, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let reader = store.reader().unwrap();
    let in_flight = Arc::new(AtomicU64::new(0));
    let wait_for = |most| {
        while in_flight.load(Ordering::Acquire) > most {
            std::thread::yield_now();
        }
    };
    while history.goes_on() {
        wait_for(IN_FLIGHT);
        in_flight.fetch_add(1, Ordering::Relaxed);
        let (history, in_flight) = (Arc::clone(history), Arc::clone(&in_flight));
        let mut told: Box<dyn RetriableTransaction> = Box::new(Told { steps: steps(&mut random), history, in_flight });
        while let Submit::Busy(back) = store.submit(&reader, told) {
            told = back;
            std::thread::yield_now();
        }
    }
    wait_for(0);
}

/// A digest of everything that a snapshot shows, read in one direction, with lookups in between.
#[track_caller]
fn look(snapshot: &StoreSnapshot<'_>, trees: u32, direction: Direction, random: &mut SmallRng) -> Digest {
    let mut rows: Vec<(u32, Vec<u8>, Vec<u8>)> = Vec::new();
    for tree in 1..=trees {
        let first = rows.len();
        let visit = &mut |key: &[u8], value: &[u8]| {
            rows.push((tree, key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        snapshot.scan(TreeId(tree), KeyRange::ALL, direction, visit).unwrap();
        if direction == Direction::Backward {
            rows[first..].reverse();
        }
        for _ in 0..4 {
            let wanted = key(random.random_range(0..KEYS));
            let scanned = rows[first..].iter().find(|(_, key, _)| *key == wanted).map(|(.., value)| value.as_slice());
            assert!(snapshot.get(TreeId(tree), &wanted).unwrap().as_deref() == scanned, "tree {tree}");
        }
    }
    digest(rows.iter().map(|(tree, key, value)| (*tree, key.as_slice(), value.as_slice())))
}

/// Takes snapshots, holds some, and reads each at least twice: its content must never change.
fn read(store: &Store, history: &History, trees: u32, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let readers: Vec<_> = (0..HELD).map(|_| store.reader().unwrap()).collect();
    let mut held: Vec<Option<(StoreSnapshot<'_>, Digest)>> = (0..HELD).map(|_| None).collect();
    let (mut newest, mut noted) = (0, 0);
    while history.goes_on() {
        let place = random.random_range(0..HELD);
        let direction = if random.random() { Direction::Forward } else { Direction::Backward };
        let next = match held[place].take() {
            None => {
                let snapshot = readers[place].snapshot();
                assert!(snapshot.version().0 >= newest, "nobody goes back in time");
                newest = snapshot.version().0;
                let digest = look(&snapshot, trees, direction, &mut random);
                if noted < SEEN_MAX {
                    noted += 1;
                    history.saw(newest, digest.clone(), "a reader");
                }
                Some((snapshot, digest))
            }
            Some((snapshot, before)) => {
                let again = look(&snapshot, trees, direction, &mut random);
                assert!(again == before, "version {} has changed under a reader", snapshot.version().0);
                (random.random_range(0..3u32) > 0).then_some((snapshot, before))
            }
        };
        held[place] = next;
    }
}

/// Loads a tree, waits, empties it by a range, and repeats.
fn load(store: &Store, history: &History, tree: u32, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    while history.goes_on() {
        let mut rows: Vec<Step> = (0..LOADED).map(|number| Step::Put(tree, key(number), value(&mut random))).collect();
        rows.sort();
        let mut build = store.bulk().unwrap();
        for row in &rows {
            if let Step::Put(_, key, value) = row {
                build.push(key, value).unwrap();
            }
        }
        // A thread that reads the history after the load must find its rows, but the version is not known before.
        let mut loaded = history.loaded.lock().unwrap();
        let commit = store.attach(vec![(TreeId(tree), build)], &[]).unwrap();
        loaded.insert(commit.version.0, rows);
        drop(loaded);
        history.did(commit.version, vec![Step::Reset(tree)]);
        std::thread::sleep(Duration::from_millis(random.random_range(0..30)));
        let empty = [Step::DeleteRange(tree, Vec::new(), None)];
        let emptied = store.commit(&mut |tx: &mut Tx<'_>| {
            run(tx, &empty);
            Ok(())
        });
        history.did(emptied.unwrap().version, empty.to_vec());
    }
}

/// The changes received by a reader of changes.
struct Followed {
    reader: ChangeReader,
    changes: BTreeMap<u64, Vec<Step>>,
}

impl Followed {
    fn since(store: &Store, version: u64) -> Followed {
        Followed { reader: store.changes_since(Version(version)).unwrap(), changes: BTreeMap::new() }
    }

    fn take_all(&mut self) {
        while let Some(changeset) = self.reader.next().unwrap() {
            let steps = changeset.changes().map(|change| match change {
                Change::Put { tree, key, value } => Step::Put(tree.0, key.to_vec(), value.to_vec()),
                Change::Delete { tree, key } => Step::Delete(tree.0, key.to_vec()),
                Change::DeleteRange { tree, from, to } => {
                    Step::DeleteRange(tree.0, from.to_vec(), to.map(<[u8]>::to_vec))
                }
                Change::Reset { tree } => Step::Reset(tree.0),
                other => panic!("{other:?}"),
            });
            assert_eq!(self.changes.insert(changeset.version().0, steps.collect()), None);
        }
    }

    /// Checks that each transaction came once, with all its steps.
    fn check(mut self, done: &BTreeMap<u64, Vec<Step>>) {
        self.take_all();
        assert_eq!(self.changes.len(), done.len());
        let sorted = |steps: &[Step]| {
            let mut steps = steps.to_vec();
            steps.sort();
            steps
        };
        for ((version, told), (expected, steps)) in self.changes.iter().zip(done) {
            assert!(
                version == expected && sorted(told) == sorted(steps),
                "the log tells of version {version} otherwise"
            );
        }
    }
}

/// Reads changes as they come.
fn follow(followed: &mut Followed, history: &History) {
    while history.goes_on() {
        followed.take_all();
        followed.reader.wait(Duration::from_millis(5)).unwrap();
    }
}

/// Copies the store again and again; each copy is one version, and sound.
fn back_up(store: &Store, history: &History, trees: u32, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut count = 0;
    while history.goes_on() && count < SEEN_MAX {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(MAP_BYTES / 4));
        let copied = store.backup_on(&*disk, &mut |_| ControlFlow::Continue(())).unwrap();
        let (copy, _) = Store::open_on(disk, options()).unwrap();
        assert!(copy.verify().is_clean());
        let digest = look(&copy.reader().unwrap().snapshot(), trees, Direction::Forward, &mut random);
        history.saw(copied.version.0, digest, "a backup");
        count += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Requests checkpoints, verification and statistics.
fn look_after(store: &Store, history: &History) {
    while history.goes_on() {
        store.checkpoint().unwrap();
        let report = store.verify();
        assert!(report.is_clean(), "{:?}", report.faults);
        assert_eq!(store.stats().checkpoint_failures, 0);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Maximum size of the tree file on the in-memory disk.
const MAP_BYTES: usize = if cfg!(miri) { 2 << 20 } else { 64 << 20 };

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = if cfg!(miri) { 256 << 10 } else { 1 << 20 };
    options.log_segment_bytes = if cfg!(miri) { 64 << 10 } else { 512 << 10 };
    options.changes_kept_bytes = 4 << 30;
    options.map_bytes = 1 << 30;
    options.read_ahead = Some(true);
    // Its memory comes from the kernel, which Miri cannot check.
    options.places_bytes = if cfg!(miri) { 0 } else { 64 << 10 };
    options
}

/// Runs everything at once, then checks again after reopening.
fn check(disk: &Arc<dyn Disk>) {
    let (store, _) = Store::open_on(Arc::clone(disk), options()).unwrap();
    for tree in 1..=TREES + 1 {
        assert_eq!(store.tree(&format!("tree {tree}")).unwrap(), TreeId(tree));
    }
    let (trees, since) = (TREES + 1, store.stats().version);
    let history = Arc::new(History::new());
    let mut followed = Followed::since(&store, since);
    std::thread::scope(|scope| {
        let (store, history) = (&store, &history);
        for seed in 0..WRITERS {
            scope.spawn(move || write(store, history, seed));
        }
        scope.spawn(move || submit(store, history, 101));
        for seed in 200..200 + READERS {
            scope.spawn(move || read(store, history, trees, seed));
        }
        let changes = &mut followed;
        scope.spawn(move || follow(changes, history));
        scope.spawn(move || load(store, history, trees, 301));
        scope.spawn(move || back_up(store, history, trees, 401));
        scope.spawn(move || look_after(store, history));
    });
    let told_meanwhile = followed.changes.len();
    followed.check(&history.done.lock().unwrap());
    drop(store);
    let (store, _) = Store::open_on(Arc::clone(disk), options()).unwrap();
    let reader = store.reader().unwrap();
    let (snapshot, random) = (reader.snapshot(), &mut SmallRng::seed_from_u64(0));
    history.saw(snapshot.version().0, look(&snapshot, trees, Direction::Forward, random), "who opens it again");
    assert!(store.verify().is_clean());
    let (commits, seen) = (history.commits.load(Ordering::Relaxed), history.seen.lock().unwrap().len());
    println!("{commits} commits, of {told_meanwhile} of which a reader of changes heard meanwhile, {seen} states seen");
    Arc::into_inner(history).unwrap().check(since);
}

#[test]
fn whatever_happens_at_once_every_state_seen_is_that_of_its_version() {
    if cfg!(miri) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk::new(directory.path()).unwrap());
    check(&disk);
}

#[test]
fn and_in_memory_where_tools_see_who_writes_what_others_read() {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new(MAP_BYTES));
    check(&disk);
}
