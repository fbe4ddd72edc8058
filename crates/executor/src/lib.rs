//! A bounded pool for work that blocks: files, DNS, imports, scans, anything that must not hold an event loop.
//!
//! A [`Pool`] has a fixed number of threads and two queues ([`Line`]) of at most so many jobs each. What holds:
//!
//! - Submitting never blocks: a full queue gives the job back ([`Refused::Full`]), so that the caller decides between
//!   answering "busy" and trying later.
//! - Jobs of one line start in the order of submission. Where jobs wait in both, the lines take turns: a long one delays no job of the
//!   other by more than its own place there.
//! - A job that panics is counted and named in the log; its thread lives on.
//! - After [`Pool::drain`] began nothing more is taken ([`Refused::Draining`]); what was queued is finished, or, past the
//!   deadline, dropped and counted. Dropping the pool drops what is queued and waits for what runs.
//!
//! A mutex and a condition variable carry it: jobs here last from tens of microseconds up, and the queue is touched twice
//! for each, so a lock-free queue would gain nothing that could be measured.

mod metrics;
mod pool;
mod priority;
mod queue;

pub use metrics::Metrics;
pub use pool::{Drained, Job, Pool, Settings, StartError, THREADS_MAX};
pub use priority::{GivingUp, give_way, let_others};
pub use queue::{Line, Refused};
