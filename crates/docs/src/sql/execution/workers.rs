//! A pool of permits for helper threads of scans, with one limit for all queries.
//!
//! A query that scans much takes all helpers that are free, perhaps none, and always works on its own thread too. So ten
//! concurrent scans use no more helper threads than one, and none of them waits for another.

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

    fn give_back(&self, permits: usize) {
        self.count.fetch_sub(permits, Ordering::AcqRel);
        self.workers.free.fetch_add(permits, Ordering::AcqRel);
    }

    /// Starts up to `threads_max` threads; each returns its permit when it ends. Permits without a thread are returned at once.
    pub(super) fn spawn<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        threads_max: usize,
        work: impl Fn() + Send + Copy + 's,
    ) {
        let (count, mut started) = (self.count(), 0);
        while started < count.min(threads_max) {
            let spawned = Builder::new().name(format!("scan-{started}")).spawn_scoped(scope, move || {
                let _helper = Helper(self);
                if let Some(on_start) = &self.workers.on_start {
                    on_start();
                }
                work();
            });
            if spawned.is_err() {
                break; // The scan is slower with fewer threads.
            }
            started += 1;
        }
        self.give_back(count - started);
    }
}

/// A helper thread's permit.
struct Helper<'t, 'w>(&'t Taken<'w>);

impl Drop for Helper<'_, '_> {
    fn drop(&mut self) {
        self.0.give_back(1);
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

    /// Helper threads that run now or are about to start.
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
        self.give_back(self.count());
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("threads_max", &self.threads_max).field("free", &self.free).finish()
    }
}

/// The handle of the workers that an execution gets.
pub(super) type Helpers = Option<Arc<Workers>>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn permits_without_a_thread_are_free_at_once_and_the_others_when_their_thread_ends() {
        let (workers, barrier) = (Workers::new(4), &Barrier::new(2));
        let taken = workers.take();
        let busy = std::thread::scope(|scope| {
            taken.spawn(scope, 1, move || {
                barrier.wait();
            });
            let busy = workers.busy();
            barrier.wait();
            busy
        });
        assert_eq!((busy, workers.busy(), taken.count()), (1, 0, 0));
    }
}
