//! Thread per task: each task has its own thread; the number of threads is bounded.
//!
//! With a large limit this is the plain thread-per-request model. With a small one the limit is a counting semaphore: a task
//! that ends lets the next one start. Starting a thread costs 10 to 20 µs.

use crate::admission::Admission;
use crate::back_pressure::Refused;
use crate::blocking::{Announce, register};
use crate::containment::run_contained;
use crate::coroutine::{BoxCoroutine, run_to_end};
use crate::executor::{Drained, Executor};
use crate::metrics::{Counters, Ended, ExecutorMetrics};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

/// Largest number of threads if no smaller limit is set: the default of Linux (`pid_max`).
pub const TASK_THREADS_MAX: usize = 32_768;

/// Stack of a thread that runs one task. The kernel allocates memory only for the pages that are used.
const STACK_BYTES: usize = 256 << 10;

/// Starts a thread for each task.
pub struct ThreadPerTask {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    admission: Admission,
    counters: Arc<Counters>,
}

/// A task on its way to a thread that may not start: it can then be taken back.
type Handover = Arc<Mutex<Option<BoxCoroutine>>>;

impl ThreadPerTask {
    /// At most `threads_max` tasks at the same time, and never more than [`TASK_THREADS_MAX`].
    pub fn new(name: String, threads_max: usize) -> Self {
        let admission = Admission::of_places(threads_max.clamp(1, TASK_THREADS_MAX));
        Self { shared: Arc::new(Shared { name, admission, counters: Arc::default() }) }
    }

    /// Waits until all threads have ended.
    pub(super) fn wait_empty(&self) {
        self.shared.admission.wait_empty();
    }

    /// Refuses a task, as full or as draining.
    pub(super) fn refuse(&self, task: BoxCoroutine) -> Refused<BoxCoroutine> {
        self.shared.counters.count_refused();
        if self.shared.admission.is_closed() { Refused::Draining(task) } else { Refused::Full(task) }
    }

    /// Number of running tasks.
    pub(super) fn inside(&self) -> usize {
        self.shared.admission.inside()
    }

    /// Starts the thread of an admitted task; returns the task if the system cannot start a thread.
    fn start(&self, task: BoxCoroutine) -> Result<(), BoxCoroutine> {
        let handover: Handover = Arc::new(Mutex::new(Some(task)));
        let (shared, taken) = (Arc::clone(&self.shared), Arc::clone(&handover));
        let submitted = Instant::now();
        self.shared.counters.count_threads(1);
        let builder = thread::Builder::new().name(self.shared.name.clone()).stack_size(STACK_BYTES);
        let spawned = builder.spawn(move || {
            if let Some(task) = take(&taken) {
                shared.run(task, submitted);
                // Before the place is freed, so that the peak never counts both an ending thread and its successor.
                shared.counters.count_thread_ended();
                shared.admission.leave(1);
            }
        });
        if spawned.is_ok() {
            return Ok(());
        }
        self.shared.counters.count_thread_ended();
        take(&handover).map_or(Ok(()), Err)
    }
}

/// The lock is held only for the take.
fn take(handover: &Handover) -> Option<BoxCoroutine> {
    handover.lock().unwrap_or_else(PoisonError::into_inner).take()
}

impl Shared {
    fn run(&self, mut task: BoxCoroutine, submitted: Instant) {
        let _registered = register(Arc::clone(&self.counters) as Arc<dyn Announce>);
        let began = Instant::now();
        self.counters.count_begun(submitted, began);
        let is_whole = self.admission.mark(|| run_contained(&self.name, move || run_to_end(&mut *task)));
        self.counters.count_ended(&Ended::now(began, !is_whole));
    }
}

impl Executor for ThreadPerTask {
    /// If the system cannot start a thread, the task is returned as by a full executor.
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let shared = &self.shared;
        let task = shared.admission.try_enter(task).inspect_err(|_| shared.counters.count_refused())?;
        self.start(task).map_err(|task| {
            shared.admission.leave(1);
            shared.counters.count_refused();
            Refused::Full(task)
        })
    }

    /// If the system cannot start a thread, the submitter runs the task: it cannot start another one meanwhile.
    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        let shared = &self.shared;
        let task = shared.admission.enter(task).inspect_err(|_| shared.counters.count_refused())?;
        if let Err(task) = self.start(task) {
            shared.run(task, Instant::now());
            shared.admission.leave(1);
        }
        Ok(())
    }

    fn drain(&self, deadline: Instant) -> Drained {
        let admission = &self.shared.admission;
        admission.close();
        if admission.wait_empty_until(deadline) {
            return Drained::Finished;
        }
        match admission.inside() {
            0 => Drained::Finished,
            running => Drained::Left { queued: 0, running },
        }
    }

    fn metrics(&self) -> ExecutorMetrics {
        self.shared.counters.read_inside(self.shared.admission.inside())
    }
}

impl Drop for ThreadPerTask {
    fn drop(&mut self) {
        self.shared.admission.close();
        self.shared.admission.wait_empty();
    }
}
