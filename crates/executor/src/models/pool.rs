//! Fixed pool: a constant number of threads behind a bounded queue.
//!
//! While a job blocks, its thread is unavailable to other jobs. A pool that is large enough for many blocked threads has too
//! many threads for the cores when none blocks.

use crate::back_pressure::Refused;
use crate::blocking::{Announce, register};
use crate::containment::{drop_contained, run_contained};
use crate::coroutine::{BoxCoroutine, Job, Work};
use crate::executor::{Drained, Executor, ExecutorStartError, check_threads};
use crate::metrics::{Counters, Ended, ExecutorMetrics};
use crate::queue::Queue;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Settings of a pool.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Number of threads, 1 to [`THREADS_MAX`](crate::THREADS_MAX). All are started at once and stay.
    pub threads: usize,
    /// Largest number of jobs that wait, in addition to the running ones.
    pub queue_max: usize,
    /// Name of the pool in the log and in the names of its threads (the kernel shows the first 15 bytes).
    pub name: String,
}

struct Shared {
    name: String,
    queue: Queue<Work>,
    counters: Arc<Counters>,
}

/// Threads for jobs that may block.
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl ThreadPool {
    /// Starts the threads.
    pub fn new(settings: PoolSettings) -> Result<Self, ExecutorStartError> {
        check_threads(settings.threads)?;
        let queue = Queue::new(settings.queue_max);
        let shared = Arc::new(Shared { name: settings.name, queue, counters: Arc::default() });
        // From here on, dropping `pool` ends the threads that have started.
        let mut pool = Self { shared, threads: Vec::with_capacity(settings.threads) };
        for index in 0..settings.threads {
            let shared = Arc::clone(&pool.shared);
            let builder = thread::Builder::new().name(format!("{}-{index}", shared.name));
            pool.threads.push(builder.spawn(move || shared.run()).map_err(ExecutorStartError::Spawn)?);
            pool.shared.counters.count_threads(1);
        }
        Ok(pool)
    }

    /// Queues a job, or returns it at once.
    pub fn try_submit(&self, job: Job) -> Result<(), Refused<Job>> {
        self.shared.queue.push(job, Work::Job).inspect_err(|_| self.shared.counters.count_refused())
    }

    /// Takes no more jobs and waits for those queued and running. At `deadline`, jobs that have not started are dropped.
    ///
    /// May be called from several threads. If it is called from a job of this pool, it waits for itself until the deadline.
    pub fn drain(&self, deadline: Instant) -> Drained {
        self.shared.queue.close();
        if self.shared.queue.wait_idle(deadline) {
            return Drained::Finished;
        }
        let queued = self.shared.drop_waiting();
        match (queued, self.shared.queue.running()) {
            (0, 0) => Drained::Finished,
            (queued, running) => Drained::Left { queued, running },
        }
    }

    /// The current counters.
    pub fn metrics(&self) -> ExecutorMetrics {
        let (queued, running, tally) = self.shared.queue.counts();
        self.shared.counters.read(queued, running, &tally)
    }
}

impl Executor for ThreadPool {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let pushed = self.shared.queue.push(task, Work::Coroutine);
        pushed.inspect_err(|_| self.shared.counters.count_refused())
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let pushed = self.shared.queue.push_waiting(task, Work::Coroutine);
        pushed.inspect_err(|_| self.shared.counters.count_refused())
    }

    fn drain(&self, deadline: Instant) -> Drained {
        ThreadPool::drain(self, deadline)
    }

    fn metrics(&self) -> ExecutorMetrics {
        ThreadPool::metrics(self)
    }
}

impl Drop for ThreadPool {
    /// Drops the queued jobs and waits for the running ones: after this no job of the pool accesses anything.
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
    /// The main function of a thread.
    fn run(&self) {
        let _registered = register(Arc::clone(&self.counters) as Arc<dyn Announce>);
        let mut ended = None;
        while let Some((work, began)) = self.queue.take(ended) {
            let is_whole = run_contained(&self.name, || work.run());
            ended = Some(Ended::now(began, !is_whole));
        }
        self.counters.count_thread_ended();
    }

    /// Drops the waiting jobs and returns their number.
    fn drop_waiting(&self) -> usize {
        let waiting = self.queue.take_waiting();
        let count = waiting.len();
        self.counters.count_dropped(count);
        waiting.into_iter().for_each(drop_contained);
        count
    }
}
