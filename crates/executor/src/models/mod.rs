//! The execution models, one per file.

pub(crate) mod event_loop;
pub(crate) mod hybrid;
pub(crate) mod inline;
pub(crate) mod io_aware;
pub(crate) mod pool;
pub(crate) mod thread_per_task;
mod timers;
pub(crate) mod waves;
pub(crate) mod work_stealing;
