//! What a pool did and is doing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A reading of a pool's counters. Each is exact; together they are of one moment only when nothing runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Jobs that wait.
    pub queued: u64,
    /// Jobs that run now.
    pub running: u64,
    /// Jobs that ended, those that panicked included.
    pub done: u64,
    /// Jobs given back because the queue was full or the pool draining.
    pub refused: u64,
    /// Jobs that panicked.
    pub panicked: u64,
    /// Jobs dropped unstarted, by a drain whose deadline passed or by dropping the pool.
    pub dropped: u64,
    /// Time that ended jobs took, summed over the threads.
    pub busy: Duration,
}

/// The counters that are not derived from the queue.
#[derive(Default)]
pub(crate) struct Counters {
    done: AtomicU64,
    refused: AtomicU64,
    panicked: AtomicU64,
    dropped: AtomicU64,
    busy_nanoseconds: AtomicU64,
}

impl Counters {
    // Counters order nothing: the queue's lock orders the jobs.
    pub(crate) fn count_done(&self, busy: Duration, panicked: bool) {
        self.panicked.fetch_add(u64::from(panicked), Ordering::Relaxed);
        self.busy_nanoseconds.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self, jobs: usize) {
        self.dropped.fetch_add(jobs as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, queued: usize, running: usize) -> Metrics {
        Metrics {
            queued: queued as u64,
            running: running as u64,
            done: self.done.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            busy: Duration::from_nanos(self.busy_nanoseconds.load(Ordering::Relaxed)),
        }
    }
}
