//! The common trait of all execution models, and the results of starting and draining one.

use crate::back_pressure::Refused;
use crate::coroutine::BoxCoroutine;
use crate::metrics::ExecutorMetrics;
use std::fmt;
use std::time::Instant;

/// Largest number of threads: each has a stack, which counts towards the memory limit.
pub const THREADS_MAX: usize = 1024;

/// An execution model: takes a bounded number of tasks, and runs each once.
///
/// Guarantees of every model: a task that panics is counted and logged, and affects nothing else. After
/// [`drain`](Executor::drain) has begun, no task is taken. Dropping an executor drops the tasks that have not begun and waits
/// for the running ones, except when it is dropped on one of its own threads.
pub trait Executor: Send + Sync {
    /// Takes a task, or returns it at once because the executor is full or draining. Only the inline model runs the task before
    /// it returns.
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>>;

    /// Takes a task, and waits for room if there is none (back-pressure). Returns it only when draining. A task must not submit
    /// to its own executor in this way: it could wait for its own end.
    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>>;

    /// Takes no more tasks and waits for those taken. At `deadline`, tasks that have not begun, and those that an event loop
    /// has suspended, are dropped.
    fn drain(&self, deadline: Instant) -> Drained;

    /// The current counters.
    fn metrics(&self) -> ExecutorMetrics;
}

/// Why an executor cannot start.
#[derive(Debug)]
pub enum ExecutorStartError {
    /// The number of threads is outside 1 to [`THREADS_MAX`].
    Threads(usize),
    /// More threads may run than exist.
    Running {
        /// Number of threads that may run at the same time.
        running: usize,
        /// Number of all threads.
        threads: usize,
    },
    /// The system cannot start a thread.
    Spawn(std::io::Error),
}

impl fmt::Display for ExecutorStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(asked) => write!(f, "a pool has 1 to {THREADS_MAX} threads, not {asked}"),
            Self::Running { running, threads } => {
                write!(f, "of {threads} threads 1 to {threads} may run at a time, not {running}")
            }
            Self::Spawn(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for ExecutorStartError {}

/// Refuses a number of threads that is out of bounds.
pub(crate) fn check_threads(threads: usize) -> Result<(), ExecutorStartError> {
    if (1..=THREADS_MAX).contains(&threads) { Ok(()) } else { Err(ExecutorStartError::Threads(threads)) }
}

/// Result of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All submitted tasks have ended.
    Finished,
    /// The deadline passed: some jobs were dropped, and some are still running, which cannot be stopped.
    Left {
        /// Jobs dropped before their start, or while suspended.
        queued: usize,
        /// Jobs still running.
        running: usize,
    },
}
