//! A pool of permits for helper threads of scans, with one limit for all queries.
//!
//! A query that scans much takes all helpers that are free, perhaps none, and always works on its own thread too. So ten
//! concurrent scans use no more threads than one, and none of them waits for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope};

/// Default: a scan of fewer entries is not worth starting a thread.
const ENTRIES_MIN: u64 = 20_000;

/// A pool of permits for helper threads of scans. Its limit holds for all executions that share it
/// ([`crate::sql::Scratch::with_workers`]).
pub struct Workers {
    free: AtomicUsize,
    threads_max: usize,
    entries_min: u64,
    on_start: Option<Box<dyn Fn() + Send + Sync>>,
}

/// Permits taken; returned when dropped.
pub(super) struct Taken<'w> {
    workers: &'w Workers,
    count: AtomicUsize,
}

impl Taken<'_> {
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Starts up to `threads_max` threads; each returns its permit when it ends.
    pub(super) fn spawn<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        threads_max: usize,
        work: impl Fn() + Send + Copy + 's,
    ) {
        for number in 0..self.count().min(threads_max) {
            let spawned = Builder::new().name(format!("scan-{number}")).spawn_scoped(scope, move || {
                let _helper = Helper(self);
                if let Some(on_start) = &self.workers.on_start {
                    on_start();
                }
                work();
            });
            if spawned.is_err() {
                break; // The scan is slower with fewer threads.
            }
        }
    }
}

/// A helper thread's permit.
struct Helper<'t, 'w>(&'t Taken<'w>);

impl Drop for Helper<'_, '_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::AcqRel);
        self.0.workers.free.fetch_add(1, Ordering::AcqRel);
    }
}

impl Workers {
    /// At most `threads_max` helper threads at a time, besides the executing ones.
    pub fn new(threads_max: usize) -> Workers {
        Workers { free: AtomicUsize::new(threads_max), threads_max, entries_min: ENTRIES_MIN, on_start: None }
    }

    /// Calls `on_start` on each helper thread when it starts, for example to lower its priority.
    pub fn on_start(self, on_start: impl Fn() + Send + Sync + 'static) -> Workers {
        Workers { on_start: Some(Box::new(on_start)), ..self }
    }

    /// Only scans of at least `entries_min` entries are shared with helpers.
    pub fn from_entries(self, entries_min: u64) -> Workers {
        Workers { entries_min, ..self }
    }

    /// Helper threads that run now.
    pub fn busy(&self) -> usize {
        self.threads_max.saturating_sub(self.free.load(Ordering::Relaxed))
    }

    pub(in crate::sql) fn threads_max(&self) -> usize {
        self.threads_max
    }

    pub(in crate::sql) fn entries_min(&self) -> u64 {
        self.entries_min
    }

    pub(super) fn take(&self) -> Taken<'_> {
        let count = self.free.swap(0, Ordering::AcqRel);
        Taken { workers: self, count: AtomicUsize::new(count) }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.workers.free.fetch_add(self.count(), Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("threads_max", &self.threads_max).field("free", &self.free).finish()
    }
}

/// The handle of the workers that an execution gets.
pub(super) type Helpers = Option<Arc<Workers>>;
