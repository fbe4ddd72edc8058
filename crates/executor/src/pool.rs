//! The pool: threads, their loop, and how it ends.

use crate::metrics::{Counters, Metrics};
use crate::priority::give_way;
use crate::queue::{Line, Queue, Refused};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// A piece of work.
pub type Job = Box<dyn FnOnce() + Send>;

/// More threads than this are refused: each has a stack, and the memory ceiling counts it.
pub const THREADS_MAX: usize = 1024;

/// How a pool is built.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Threads, 1 to [`THREADS_MAX`]. All start at once and stay.
    pub threads: usize,
    /// Jobs that may wait in the first line, beside those that run.
    pub queue_max: usize,
    /// Jobs that may wait in the second line.
    pub second_max: usize,
    /// Name of the pool in the log and of its threads (the kernel shows the first 15 bytes).
    pub name: String,
}

/// Why a pool could not start.
#[derive(Debug)]
pub enum StartError {
    /// The number of threads is not in 1 to [`THREADS_MAX`].
    Threads(usize),
    /// The system gave no thread.
    Spawn(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(asked) => write!(f, "a pool has 1 to {THREADS_MAX} threads, not {asked}"),
            Self::Spawn(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All that was submitted has ended.
    Finished,
    /// The deadline passed: jobs dropped unstarted, and jobs still running, which nobody can stop.
    Left {
        /// Dropped unstarted.
        queued: usize,
        /// Still running.
        running: usize,
    },
}

struct Shared {
    name: String,
    queue: Queue<Job>,
    counters: Counters,
}

/// Threads that run jobs which may block.
pub struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts the threads.
    pub fn new(settings: Settings) -> Result<Self, StartError> {
        Pool::start(settings, || {})
    }

    /// The same with threads that give way to those of the usual priority ([`give_way`]).
    pub fn giving_way(settings: Settings) -> Result<Self, StartError> {
        Pool::start(settings, give_way)
    }

    fn start(settings: Settings, started: fn()) -> Result<Self, StartError> {
        if !(1..=THREADS_MAX).contains(&settings.threads) {
            return Err(StartError::Threads(settings.threads));
        }
        let queue = Queue::new([settings.queue_max, settings.second_max]);
        let shared = Arc::new(Shared { name: settings.name, queue, counters: Counters::default() });
        // From here on dropping `pool` ends the threads that did start.
        let mut pool = Self { shared, threads: Vec::with_capacity(settings.threads) };
        for index in 0..settings.threads {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("{}-{index}", shared.name));
            pool.threads.push(
                builder
                    .spawn(move || {
                        started();
                        shared.run();
                    })
                    .map_err(StartError::Spawn)?,
            );
        }
        Ok(pool)
    }

    /// Queues a job in the first line, or gives it back at once.
    pub fn try_submit(&self, job: Job) -> Result<(), Refused<Job>> {
        self.try_submit_to(Line::First, job)
    }

    /// Queues a job in a line, or gives it back at once.
    pub fn try_submit_to(&self, line: Line, job: Job) -> Result<(), Refused<Job>> {
        self.shared.queue.push(line, job).inspect_err(|_| self.shared.counters.count_refused())
    }

    /// Takes no more jobs and waits for those queued and running. At `deadline` what has not started is dropped.
    ///
    /// May be called from several threads; called from a job of this pool it waits for itself until the deadline.
    pub fn drain(&self, deadline: Instant) -> Drained {
        self.shared.queue.close();
        if self.shared.queue.wait_idle(deadline) {
            return Drained::Finished;
        }
        let queued = self.shared.drop_waiting();
        match (queued, self.shared.queue.lengths().1) {
            (0, 0) => Drained::Finished,
            (queued, running) => Drained::Left { queued, running },
        }
    }

    /// The counters now.
    pub fn metrics(&self) -> Metrics {
        let (queued, running) = self.shared.queue.lengths();
        self.shared.counters.read(queued, running)
    }
}

impl Drop for Pool {
    /// Drops what is queued and waits for what runs: after this no job of the pool touches anything.
    fn drop(&mut self) {
        self.shared.queue.close();
        self.shared.drop_waiting();
        for thread in self.threads.drain(..) {
            // A job may own the last handle of its own pool; a thread cannot wait for itself.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!(pool = self.shared.name, "a pool thread ended by a panic");
            }
        }
    }
}

impl Shared {
    /// The life of a thread.
    fn run(&self) {
        while let Some(job) = self.queue.take() {
            let start = Instant::now();
            // The job is consumed, and nothing of ours is shared with it, so no broken state can be seen after its panic.
            let result = catch_unwind(AssertUnwindSafe(job));
            self.counters.count_done(start.elapsed(), result.is_err());
            self.queue.ended();
            if let Err(payload) = result {
                self.report_panic(payload);
            }
        }
    }

    fn report_panic(&self, payload: Box<dyn std::any::Any + Send>) {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text");
        tracing::error!(pool = self.name, "a job panicked: {text}");
        // Dropping a payload is foreign code too.
        drop_contained(payload);
    }

    /// Drops the jobs that wait and gives their number.
    fn drop_waiting(&self) -> usize {
        let waiting: [VecDeque<Job>; 2] = self.queue.take_waiting();
        let count = waiting.iter().map(VecDeque::len).sum();
        self.counters.count_dropped(count);
        waiting.into_iter().flatten().for_each(drop_contained);
        count
    }
}

/// Drops a value of foreign type; a panic in its drop goes no further.
fn drop_contained<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // A payload whose own drop panics would end the process; it is forgotten instead.
        std::mem::forget(payload);
    }
}
