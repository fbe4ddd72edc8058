//! The one trait of all execution models, and what starting and draining one may report.

use crate::coroutine::BoxCoroutine;
use crate::metrics::Metrics;
use crate::queue::Refused;
use std::fmt;
use std::time::Instant;

/// More threads than this are refused: each has a stack, and the memory ceiling counts it.
pub const THREADS_MAX: usize = 1024;

/// An execution model: takes tasks, at most so many at a time, and runs each once.
///
/// What every model promises: a task that panics is counted and named in the log, and takes nothing else down. After
/// [`drain`](Executor::drain) began nothing more is taken. Dropping an executor drops the tasks that have not begun and waits
/// for those that run, except on a thread of its own.
pub trait Executor: Send + Sync {
    /// Takes a task, or gives it back at once: the executor is full or draining. Only the inline model runs the task before
    /// it returns.
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>>;

    /// Takes a task, and waits for room where there is none (back-pressure). Gives it back only when draining. A task must not
    /// submit to its own executor like this: it could wait for its own end.
    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>>;

    /// Takes no more tasks and waits for those taken. At `deadline` the tasks that have not begun, and those that an event loop
    /// has suspended, are dropped.
    fn drain(&self, deadline: Instant) -> Drained;

    /// The counters now.
    fn metrics(&self) -> Metrics;
}

/// Why an executor could not start.
#[derive(Debug)]
pub enum StartError {
    /// The number of threads is not in 1 to [`THREADS_MAX`].
    Threads(usize),
    /// More threads may run than there are.
    Running {
        /// Threads that may run at a time.
        running: usize,
        /// Threads in all.
        threads: usize,
    },
    /// The system gave no thread.
    Spawn(std::io::Error),
}

impl fmt::Display for StartError {
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

impl std::error::Error for StartError {}

/// Refuses a number of threads out of bounds.
pub(crate) fn check_threads(threads: usize) -> Result<(), StartError> {
    if (1..=THREADS_MAX).contains(&threads) { Ok(()) } else { Err(StartError::Threads(threads)) }
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// All that was submitted has ended.
    Finished,
    /// The deadline passed: jobs dropped unstarted, and jobs still running, which nobody can stop.
    Left {
        /// Dropped unstarted, or while suspended.
        queued: usize,
        /// Still running.
        running: usize,
    },
}
