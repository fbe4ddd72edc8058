//! Counters of an executor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A snapshot of an executor's counters. Each is exact; together they describe a single moment only if nothing
/// runs. Event loops count ended tasks in batches, at the latest at the end of a turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExecutorMetrics {
    /// Tasks that were taken and have not begun.
    pub queued: u64,
    /// Tasks that have begun and not ended, except blocked ones.
    pub running: u64,
    /// Tasks that have begun and wait: their thread has announced a blocking call, or an event loop has suspended
    /// them.
    pub blocked: u64,
    /// Tasks that have ended, including those that panicked.
    pub done: u64,
    /// Tasks refused because the queue was full or the executor draining.
    pub refused: u64,
    /// Tasks that panicked.
    pub panicked: u64,
    /// Tasks dropped before their start or while suspended, by a drain whose deadline passed or by dropping the
    /// executor.
    pub dropped: u64,
    /// Time between a task's begin and end, summed over ended tasks; in event loops without the waits.
    pub busy: Duration,
    /// Time between taking a task and its begin, summed.
    pub waited: Duration,
    /// Current number of threads.
    pub threads: u64,
    /// Largest number of threads at the same time.
    pub threads_peak: u64,
}

/// The end of a task on a thread.
pub(crate) struct Ended {
    at: Instant,
    busy: Duration,
    has_panicked: bool,
}

impl Ended {
    /// A task that began at `began` ends now.
    pub(crate) fn now(began: Instant, has_panicked: bool) -> Self {
        let at = Instant::now();
        Self { at, busy: at.saturating_duration_since(began), has_panicked }
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }
}

/// Counts of tasks that a thread keeps for itself, or a queue under its lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tasks that have ended.
    pub(crate) done: u64,
    /// Tasks that panicked; `done` includes them.
    pub(crate) panicked: u64,
    busy_nanoseconds: u64,
    waited_nanoseconds: u64,
}

impl Tally {
    pub(crate) fn count_ended(&mut self, ended: &Ended) {
        self.done += 1;
        self.panicked += u64::from(ended.has_panicked);
        self.count_busy(ended.busy);
    }

    pub(crate) fn count_busy(&mut self, busy: Duration) {
        self.busy_nanoseconds += nanoseconds(busy);
    }

    /// A task was submitted and begins.
    pub(crate) fn count_waited(&mut self, submitted: Instant, began: Instant) {
        self.waited_nanoseconds += nanoseconds(began.saturating_duration_since(submitted));
    }
}

/// The counters that are not derived from a queue. All threads of an executor change them: a model whose threads take a lock for
/// each task, or run many tasks in a row, counts in a [`Tally`] first.
#[derive(Default)]
pub(crate) struct Counters {
    /// Tasks that have begun and not ended, including blocked ones. Not used by models whose queue counts them.
    begun: AtomicU64,
    blocked: AtomicU64,
    done: AtomicU64,
    refused: AtomicU64,
    panicked: AtomicU64,
    dropped: AtomicU64,
    busy_nanoseconds: AtomicU64,
    waited_nanoseconds: AtomicU64,
    threads: AtomicU64,
    threads_peak: AtomicU64,
}

// Counters need no ordering: the queues' locks and the word of the admission order the tasks.
impl Counters {
    /// A task leaves the queue at `now`.
    pub(crate) fn count_begun(&self, submitted: Instant, now: Instant) {
        let waited = now.saturating_duration_since(submitted);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.waited_nanoseconds.fetch_add(nanoseconds(waited), Ordering::Relaxed);
    }

    /// Several tasks leave the queue; the tally has their waiting time.
    pub(crate) fn count_all_begun(&self, tasks: usize) {
        self.begun.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    /// A task that was counted as begun has ended.
    pub(crate) fn count_ended(&self, ended: &Ended) {
        let mut tally = Tally::default();
        tally.count_ended(ended);
        self.count_all_ended(&tally);
    }

    /// Adds the counts of tasks that were counted as begun.
    pub(crate) fn count_all_ended(&self, tally: &Tally) {
        let Tally { done, panicked, busy_nanoseconds, waited_nanoseconds } = *tally;
        self.begun.fetch_sub(done, Ordering::Relaxed);
        self.done.fetch_add(done, Ordering::Relaxed);
        self.busy_nanoseconds.fetch_add(busy_nanoseconds, Ordering::Relaxed);
        // Both are often zero, and an atomic operation costs as much as some tens of instructions.
        if panicked > 0 {
            self.panicked.fetch_add(panicked, Ordering::Relaxed);
        }
        if waited_nanoseconds > 0 {
            self.waited_nanoseconds.fetch_add(waited_nanoseconds, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_blocked(&self) {
        self.blocked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_unblocked(&self) {
        self.blocked.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self, tasks: usize) {
        self.dropped.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    /// A task that had begun is dropped.
    pub(crate) fn count_begun_dropped(&self) {
        self.begun.fetch_sub(1, Ordering::Relaxed);
        self.count_dropped(1);
    }

    pub(crate) fn count_threads(&self, started: u64) {
        let threads = self.threads.fetch_add(started, Ordering::Relaxed) + started;
        self.threads_peak.fetch_max(threads, Ordering::Relaxed);
    }

    pub(crate) fn count_thread_ended(&self) {
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Tasks that have begun and not ended.
    pub(crate) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed) as usize
    }

    /// The metrics of a model in which `inside` tasks were taken and have not ended.
    pub(crate) fn read_inside(&self, inside: usize) -> ExecutorMetrics {
        let begun = self.begun();
        self.read(inside.saturating_sub(begun), begun, &Tally::default())
    }

    /// The metrics, given the numbers of a queue and its own counts. `begun` includes blocked tasks.
    pub(crate) fn read(&self, queued: usize, begun: usize, tally: &Tally) -> ExecutorMetrics {
        let nanoseconds = |counter: &AtomicU64, more: u64| Duration::from_nanos(counter.load(Ordering::Relaxed) + more);
        let blocked = self.blocked.load(Ordering::Relaxed);
        ExecutorMetrics {
            queued: queued as u64,
            running: (begun as u64).saturating_sub(blocked),
            blocked,
            done: self.done.load(Ordering::Relaxed) + tally.done,
            refused: self.refused.load(Ordering::Relaxed),
            panicked: self.panicked.load(Ordering::Relaxed) + tally.panicked,
            dropped: self.dropped.load(Ordering::Relaxed),
            busy: nanoseconds(&self.busy_nanoseconds, tally.busy_nanoseconds),
            waited: nanoseconds(&self.waited_nanoseconds, tally.waited_nanoseconds),
            threads: self.threads.load(Ordering::Relaxed),
            threads_peak: self.threads_peak.load(Ordering::Relaxed),
        }
    }
}

/// For models that only count announcements.
impl crate::blocking::Announce for Counters {
    fn blocks(&self) {
        self.count_blocked();
    }

    fn unblocks(&self) {
        self.count_unblocked();
    }
}

/// 2⁶⁴ nanoseconds are 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
