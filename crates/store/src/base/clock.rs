//! The clock by which the age of kept changes is measured.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::sync::Instant;
use super::sync::atomic::{AtomicU64, Ordering};

/// The machine's monotonic clock, or one that a test sets. It counts from the store's opening; no time is stored on
/// disk.
#[derive(Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Clone)]
enum Source {
    Since(Instant),
    Seconds(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that shows this number of seconds, which a test may change.
    pub fn shows(seconds: Arc<AtomicU64>) -> Clock {
        Clock { source: Source::Seconds(seconds) }
    }

    /// Time on this clock.
    pub(crate) fn now(&self) -> Duration {
        match &self.source {
            Source::Since(start) => start.elapsed(),
            Source::Seconds(seconds) => Duration::from_secs(seconds.load(Ordering::Acquire)),
        }
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { source: Source::Since(Instant::now()) }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Clock({:?})", self.now())
    }
}
