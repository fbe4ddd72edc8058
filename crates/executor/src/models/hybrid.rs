//! Hybrid: event loops for what computes, a fixed pool for what blocks.
//!
//! The way of the document server itself: a loop never sleeps, and a call that cannot be suspended (a file, a lock, a foreign library)
//! is handed to a thread that may. A wait costs two hand-overs between threads, and the pool's threads bound how many may be blocked at a
//! time.

use super::event_loop::{EventLoopSettings, EventLoops};
use crate::coroutine::BoxCoroutine;
use crate::executor::{Drained, Executor, StartError};
use crate::metrics::Metrics;
use crate::queue::Refused;
use std::time::Instant;

/// Loops and the threads that block for them.
pub struct Hybrid {
    loops: EventLoops,
}

impl Hybrid {
    /// `blocking_threads`, 1 to [`THREADS_MAX`](crate::THREADS_MAX), sleep through the waits of the loops' tasks.
    pub fn new(settings: EventLoopSettings, blocking_threads: usize) -> Result<Self, StartError> {
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

    fn metrics(&self) -> Metrics {
        self.loops.metrics()
    }
}
