//! Hybrid: event loops for computing, a fixed pool for blocking calls.
//!
//! The document server works in this way: a loop never sleeps, and a call that cannot be suspended (a file, a lock, a foreign
//! library) is passed to a thread that may block. A wait costs two transfers between threads, and the number of the pool's
//! threads bounds the number of blocked tasks.

use super::event_loop::{EventLoopSettings, EventLoops};
use crate::back_pressure::Refused;
use crate::coroutine::BoxCoroutine;
use crate::executor::{Drained, Executor, ExecutorStartError};
use crate::metrics::ExecutorMetrics;
use std::time::Instant;

/// Event loops, and the threads that block for them.
pub struct Hybrid {
    loops: EventLoops,
}

impl Hybrid {
    /// `blocking_threads`, 1 to [`THREADS_MAX`](crate::THREADS_MAX), sleep during the waits of the loops' tasks.
    pub fn new(settings: EventLoopSettings, blocking_threads: usize) -> Result<Self, ExecutorStartError> {
        Ok(Self { loops: EventLoops::with_threads(settings, blocking_threads)? })
    }
}

impl Executor for Hybrid {
    fn try_submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        self.loops.try_submit(task)
    }

    fn submit(&self, task: BoxCoroutine) -> Result<(), Refused<BoxCoroutine>> {
        self.loops.submit(task)
    }

    fn drain(&self, deadline: Instant) -> Drained {
        self.loops.drain(deadline)
    }

    fn metrics(&self) -> ExecutorMetrics {
        self.loops.metrics()
    }
}
