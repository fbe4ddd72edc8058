//! Loads of commits: threads that each wait for theirs, and many in flight from one thread.
//!
//! The store has a queue and a group commit of its own. Before a peer an application would put one writer that gathers
//! what waits and commits it together: [`Grouped`] is that, and a peer's figure is the better of both ways.

use crate::data::scramble;
use crate::engine::{Engine, Outcome};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Records that [`Grouped`] commits together at most.
const GROUP_MAX: usize = 1024;
/// The clock is looked at once for so many records.
const CLOCK_STRIDE: u64 = 16;
/// Records handed over from one thread between two looks at what came back.
const STRIDE: u64 = 32;

/// Which records are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// Those below this number, in random order.
    Update(u64),
    /// New ones from this number on; their keys are in random order.
    Insert(u64),
}

/// Gives out records until a count or a time is reached, or somebody says stop.
pub(crate) struct Picks {
    which: Which,
    /// Differs from run to run, so that a run does not repeat what the one before wrote.
    seed: u64,
    given: AtomicU64,
    count_max: u64,
    until: Instant,
    stopped: AtomicBool,
}

/// Runs so far, for seeds.
static RUNS: AtomicU64 = AtomicU64::new(1);

impl Picks {
    /// As many as fit into the time.
    pub(crate) fn for_time(which: Which, time: Duration) -> Picks {
        Picks::new(which, u64::MAX, time)
    }

    /// So many, in this time at most.
    pub(crate) fn new(which: Which, count_max: u64, time: Duration) -> Picks {
        let seed = RUNS.fetch_add(1, Ordering::Relaxed) << 32;
        let until = Instant::now() + time;
        Picks { which, seed, given: AtomicU64::new(0), count_max, until, stopped: AtomicBool::new(false) }
    }

    /// Gives no more.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether it was stopped, or count or time are reached.
    pub(crate) fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// How many were given.
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed).min(self.count_max)
    }

    /// A record and a revision that it never had.
    pub(crate) fn next(&self) -> Option<(u64, u64)> {
        if self.is_over() {
            return None;
        }
        let index = self.given.fetch_add(1, Ordering::Relaxed);
        if index >= self.count_max || (index.is_multiple_of(CLOCK_STRIDE) && Instant::now() >= self.until) {
            self.stop();
            return None;
        }
        let revision = self.seed + index + 1;
        Some(match self.which {
            Which::Update(records) => (scramble(revision) % records, revision),
            Which::Insert(first) => (first + index, revision),
        })
    }
}

/// How commits are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// So many threads, each with the engine's own commit.
    Threads(usize),
    /// So many threads, each waiting for one writer that commits for all.
    GroupedThreads(usize),
    /// So many in flight, no thread each: by the store's queue, or to one writer that commits for all.
    InFlight(u64),
}

/// Commits records, one a transaction, until `picks` has no more; how many.
pub(crate) fn run(engine: &dyn Engine, way: Way, picks: &Picks) -> Outcome<u64> {
    match way {
        Way::Threads(count) => by_threads(count, || {
            let mut writer = engine.writer()?;
            let mut done = 0;
            while let Some((number, revision)) = picks.next() {
                writer.commit(&[number], revision).inspect_err(|_| picks.stop())?;
                done += 1;
            }
            Ok(done)
        }),
        Way::GroupedThreads(count) => {
            Grouped::new().serve(engine, |grouped| by_threads(count, || grouped.commit_each(picks)))
        }
        Way::InFlight(in_flight) => match engine.as_store() {
            Some(store) => store.submit_all(in_flight, &mut || picks.next()),
            None => Grouped::new().serve(engine, |grouped| grouped.commit_all(in_flight, picks)),
        },
    }
}

/// The same as commits a second.
pub(crate) fn rate(engine: &dyn Engine, way: Way, picks: &Picks) -> Outcome<f64> {
    let started = Instant::now();
    let count = run(engine, way, picks)?;
    Ok(count as f64 / started.elapsed().as_secs_f64())
}

/// Runs `work` on so many threads and adds up.
fn by_threads(count: usize, work: impl Fn() -> Outcome<u64> + Sync) -> Outcome<u64> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    })
}

/// One writer for many callers.
struct Grouped {
    state: Mutex<State>,
    filled: Condvar,
    /// Something came back.
    more: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Request>,
    returned: u64,
    is_closed: bool,
    has_failed: bool,
}

struct Request {
    number: u64,
    revision: u64,
    /// Who sleeps until it is done; nobody where many are in flight.
    caller: Option<Arc<Caller>>,
}

struct Caller {
    thread: Thread,
    is_done: AtomicBool,
}

impl Grouped {
    fn new() -> Grouped {
        Grouped { state: Mutex::default(), filled: Condvar::new(), more: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the writer as long as `work` runs.
    fn serve(&self, engine: &dyn Engine, work: impl FnOnce(&Grouped) -> Outcome<u64>) -> Outcome<u64> {
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| self.write(engine));
            let count = work(self);
            self.state().is_closed = true;
            self.filled.notify_all();
            writer.join().map_err(|_| "the writer panicked")??;
            count
        })
    }

    fn write(&self, engine: &dyn Engine) -> Outcome<()> {
        let result = self.write_until_closed(engine);
        if result.is_err() {
            let mut state = self.state();
            state.has_failed = true;
            state.waiting.drain(..).for_each(Request::tell);
            self.more.notify_all();
        }
        result
    }

    fn write_until_closed(&self, engine: &dyn Engine) -> Outcome<()> {
        let mut writer = engine.writer()?;
        let mut numbers = Vec::with_capacity(GROUP_MAX);
        loop {
            let mut state = self.state();
            while state.waiting.is_empty() {
                if state.is_closed {
                    return Ok(());
                }
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let count = state.waiting.len().min(GROUP_MAX);
            let group: Vec<Request> = state.waiting.drain(..count).collect();
            drop(state);
            numbers.clear();
            numbers.extend(group.iter().map(|request| request.number));
            let result = writer.commit(&numbers, group[0].revision);
            group.into_iter().for_each(Request::tell);
            result?;
            self.state().returned += count as u64;
            self.more.notify_one();
        }
    }

    /// One caller's life: a record, wait, the next.
    fn commit_each(&self, picks: &Picks) -> Outcome<u64> {
        let mut done = 0;
        while let Some((number, revision)) = picks.next() {
            let caller = Arc::new(Caller { thread: std::thread::current(), is_done: AtomicBool::new(false) });
            let mut state = self.state();
            if state.has_failed {
                break;
            }
            state.waiting.push(Request { number, revision, caller: Some(Arc::clone(&caller)) });
            drop(state);
            self.filled.notify_one();
            while !caller.is_done.load(Ordering::Acquire) {
                std::thread::park();
            }
            done += 1;
        }
        Ok(done)
    }

    /// Keeps so many in flight from this thread.
    fn commit_all(&self, in_flight: u64, picks: &Picks) -> Outcome<u64> {
        let mut sent = 0;
        loop {
            let mut batch = Vec::with_capacity(STRIDE as usize);
            batch.extend((0..STRIDE).map_while(|_| picks.next()));
            let is_last = batch.len() < STRIDE as usize;
            let mut state = self.state();
            while sent + STRIDE > state.returned + in_flight && !state.has_failed {
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            sent += batch.len() as u64;
            state.waiting.extend(batch.into_iter().map(|(number, revision)| Request {
                number,
                revision,
                caller: None,
            }));
            if is_last || state.has_failed {
                return Ok(sent);
            }
            drop(state);
            self.filled.notify_one();
        }
    }
}

impl Request {
    fn tell(self) {
        if let Some(caller) = self.caller {
            caller.is_done.store(true, Ordering::Release);
            caller.thread.unpark();
        }
    }
}
