//! Execution models for blocking work: files, DNS, imports, scans, and other work that must not block an event loop.
//!
//! One trait, [`Executor`], and one model per file of `models`:
//!
//! | model | threads | a waiting task occupies |
//! |---|---|---|
//! | [`Inline`] | the submitter's | the submitter |
//! | [`ThreadPerTask`] | one for each task, up to a limit (a semaphore) | its thread |
//! | [`Waves`] | one for each task; all tasks of a wave end before the next wave starts | its thread, and the next wave |
//! | [`ThreadPool`] | fixed | one of the pool's threads |
//! | [`IoAwarePool`] | fixed, few of them run at a time | a thread, but not the permit to run |
//! | [`WorkStealing`] | fixed, each with a deque | one of the pool's threads |
//! | [`EventLoops`] | one for each loop | a timer |
//! | [`Hybrid`] | loops, and threads for waits | a thread for waits |
//!
//! A task is a [`Coroutine`]: it declares its waits, and the model decides what a wait costs. A closure is a coroutine of one
//! piece ([`once`]); it announces a blocking call by [`blocking()`]. [`Model`] starts any of them by name.
//!
//! Guarantees of all models:
//!
//! - The number of tasks inside is bounded. Beyond the bound, [`Executor::try_submit`] returns the task ([`Refused::Full`]), so
//!   that the caller can answer "busy" or try later; [`Executor::submit`] waits (back-pressure).
//! - A task that panics is counted and logged; its thread continues.
//! - After a drain has begun no task is taken ([`Refused::Draining`]). Tasks taken before are finished or, after the deadline,
//!   dropped and counted. Dropping the executor drops the tasks that have not begun and waits for the running ones.
//!
//! [`TwoLines`] puts two lines of jobs in front of an executor, which it serves in turn: the server's queries wait in them.
//!
//! Queues are built on mutexes and condition variables. Tasks last microseconds or more, and a queue is accessed twice for each,
//! so a lock-free queue would bring no measurable gain. What a task costs is cache lines that several cores write, signals and clock
//! readings. Therefore counters are updated under the queue's lock or once for a batch of tasks, a sleeping thread is signalled once,
//! and models without a queue count their tasks in one atomic word.

mod admission;
mod back_pressure;
mod blocking;
mod containment;
mod coroutine;
mod executor;
mod metrics;
mod model_name;
mod models;
mod priority;
mod queue;
mod two_lines;

pub use back_pressure::Refused;
pub use blocking::blocking;
pub use coroutine::{BoxCoroutine, Coroutine, CoroutineProgress, Job, once, run_to_end};
pub use executor::{Drained, Executor, ExecutorStartError, THREADS_MAX};
pub use metrics::ExecutorMetrics;
pub use model_name::Model;
pub use models::event_loop::{EventLoopSettings, EventLoops};
pub use models::hybrid::Hybrid;
pub use models::inline::Inline;
pub use models::io_aware::{IoAwarePool, IoAwareSettings};
pub use models::pool::{PoolSettings, ThreadPool};
pub use models::thread_per_task::{TASK_THREADS_MAX, ThreadPerTask};
pub use models::waves::Waves;
pub use models::work_stealing::WorkStealing;
pub use priority::{GivingUp, give_way, let_others};
pub use two_lines::{Line, TwoLines};
