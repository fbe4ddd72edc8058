//! Work-stealing pool: rayon's threads, each with its own deque, behind a bound.
//!
//! Rayon's own queue is unbounded, and dropping its pool does not wait for spawned tasks; both are added here. Tasks from outside
//! the pool pass through rayon's single injector queue: stealing pays for tasks that spawn tasks, which requests do not. A
//! blocked thread is unavailable to other tasks, as in the fixed pool.

use crate::admission::Admission;
use crate::back_pressure::Refused;
use crate::blocking::{Announce, register};
use crate::containment::{drop_contained, run_contained};
use crate::coroutine::{BoxCoroutine, run_to_end};
use crate::executor::{Drained, Executor, ExecutorStartError, check_threads};
use crate::metrics::{Counters, Ended, ExecutorMetrics};
use std::sync::Arc;
use std::time::Instant;

/// A bounded rayon pool.
pub struct WorkStealing {
    // Dropped first: rayon's threads end after the spawned tasks, for which `drop` has waited.
    pool: rayon_core::ThreadPool,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    /// Bounds waiting and running tasks.
    admission: Admission,
    counters: Arc<Counters>,
}

impl WorkStealing {
    /// `threads` that steal from one another, and at most `queue_max` waiting tasks.
    pub fn new(name: String, threads: usize, queue_max: usize) -> Result<Self, ExecutorStartError> {
        check_threads(threads)?;
        let admission = Admission::of_memory(queue_max.saturating_add(threads));
        let shared = Arc::new(Shared { name, admission, counters: Arc::default() });
        let thread_name = shared.name.clone();
        let builder = rayon_core::ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder.thread_name(move |index| format!("{thread_name}-{index}")).build();
        let pool = pool.map_err(|error| ExecutorStartError::Spawn(std::io::Error::other(error)))?;
        shared.counters.count_threads(threads as u64);
        Ok(Self { pool, shared })
    }

    fn spawn(&self, task: BoxCoroutine) {
        let (shared, submitted) = (Arc::clone(&self.shared), Instant::now());
        self.pool.spawn(move || shared.run(task, submitted));
    }
}

impl Shared {
    fn run(&self, mut task: BoxCoroutine, submitted: Instant) {
        if self.admission.is_abandoned() {
            self.counters.count_dropped(1);
            drop_contained(task);
        } else {
            let _registered = register(Arc::clone(&self.counters) as Arc<dyn Announce>);
            let began = Instant::now();
            self.counters.count_begun(submitted, began);
            let is_whole = self.admission.mark(|| run_contained(&self.name, move || run_to_end(&mut *task)));
            self.counters.count_ended(&Ended::now(began, !is_whole));
        }
        self.admission.leave(1);
    }
}

impl Executor for WorkStealing {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let admitted = self.shared.admission.try_enter(task);
        self.spawn(admitted.inspect_err(|_| self.shared.counters.count_refused())?);
        Ok(())
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let admitted = self.shared.admission.enter(task);
        self.spawn(admitted.inspect_err(|_| self.shared.counters.count_refused())?);
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Drained {
        let admission = &self.shared.admission;
        admission.close();
        if admission.wait_empty_until(deadline) {
            return Drained::Finished;
        }
        admission.abandon();
        let running = self.shared.counters.begun();
        match admission.inside() {
            0 => Drained::Finished,
            inside => Drained::Left { queued: inside.saturating_sub(running), running },
        }
    }

    fn metrics(&self) -> ExecutorMetrics {
        self.shared.counters.read_inside(self.shared.admission.inside())
    }
}

impl Drop for WorkStealing {
    fn drop(&mut self) {
        self.shared.admission.close();
        self.shared.admission.abandon();
        self.shared.admission.wait_empty();
    }
}
