//! Execution models for work that blocks: files, DNS, imports, scans, anything that must not hold an event loop.
//!
//! One trait, [`Executor`], and a model in each file of `models`:
//!
//! | model | threads | a task that waits holds |
//! |---|---|---|
//! | [`Inline`] | the submitter's | the submitter |
//! | [`ThreadPerTask`] | one for each task, up to a limit (a semaphore) | its thread |
//! | [`Waves`] | one for each task, all of a wave end before the next starts | its thread, and the next wave |
//! | [`Pool`] | fixed | one of the pool's threads |
//! | [`IoAwarePool`] | fixed, few of them run at a time | a thread, but not the permit to run |
//! | [`WorkStealing`] | fixed, each with a deque | one of the pool's threads |
//! | [`EventLoops`] | one for each loop | a timer |
//! | [`Hybrid`] | loops, and threads for waits | a thread for waits |
//!
//! A task is a [`Coroutine`]: it says where it waits, and the model decides what that costs. A closure is a coroutine of one piece
//! ([`once`]); it announces a blocking call by [`blocking()`]. [`Model`] starts any of them by name.
//!
//! What holds for all of them:
//!
//! - At most so many tasks are inside. Past that, [`Executor::try_submit`] gives the task back ([`Refused::Full`]), so that the caller
//!   decides between answering "busy" and trying later; [`Executor::submit`] waits (back-pressure).
//! - A task that panics is counted and named in the log; its thread lives on.
//! - After a drain began nothing more is taken ([`Refused::Draining`]); what was taken is finished, or, past the deadline, dropped and
//!   counted. Dropping the executor drops what has not begun and waits for what runs.
//!
//! The server uses [`Pool`] with its two lines ([`Line`]). Jobs of one line start in the order of submission. Where jobs wait in
//! both, the lines take turns: a long one delays no job of the other by more than its own place there.
//!
//! Mutexes and condition variables carry it all: tasks here last from microseconds up, and a queue is touched twice for each, so a
//! lock-free queue would gain nothing that could be measured.

mod admission;
mod blocking;
mod containment;
mod coroutine;
mod executor;
mod metrics;
mod model;
mod models;
mod priority;
mod queue;

pub use blocking::blocking;
pub use coroutine::{BoxCoroutine, Coroutine, Job, Progress, once, run_to_end};
pub use executor::{Drained, Executor, StartError, THREADS_MAX};
pub use metrics::Metrics;
pub use model::Model;
pub use models::event_loop::{EventLoopSettings, EventLoops};
pub use models::hybrid::Hybrid;
pub use models::inline::Inline;
pub use models::io_aware::{IoAwarePool, IoAwareSettings};
pub use models::pool::{Pool, Settings};
pub use models::thread_per_task::{TASK_THREADS_MAX, ThreadPerTask};
pub use models::waves::Waves;
pub use models::work_stealing::WorkStealing;
pub use priority::{GivingUp, give_way, let_others};
pub use queue::{Line, Refused};
