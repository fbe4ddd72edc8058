//! Whether a loop waits for a processor. Threads that compute for long ask this, and yield their processor if it does.
//!
//! A loop has work while it is awake, or from the moment at which the kernel has an event for it; it makes progress with each
//! tick. A loop that has work and makes no progress for [`WAITS_NS`] most likely waits for a processor: the kernel lets a
//! computing thread run to the end of its time slice, some milliseconds, although another thread was woken. The loop may also be
//! in the middle of a long tick; then the asking thread yields its processor in vain, which costs little.
//!
//! The check is one system call for a loop that sleeps. The loop itself does nothing for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A loop without progress for this time counts as waiting.
const WAITS_NS: u64 = 40_000;
/// The last check found no work.
const IDLE: u64 = u64::MAX;

/// Result of the last check of one loop, by any thread. If two checks overlap, one of them may be wrong.
pub(crate) struct Lag {
    ticks: AtomicU64,
    since_ns: AtomicU64,
}

impl Default for Lag {
    fn default() -> Self {
        Self { ticks: AtomicU64::new(0), since_ns: AtomicU64::new(IDLE) }
    }
}

impl Lag {
    /// Records a check, with whether the loop has work and how many ticks it has done. Returns whether it waits.
    pub(crate) fn note(&self, has_work: bool, ticks: u64, now_ns: u64) -> bool {
        if !has_work {
            self.since_ns.store(IDLE, Ordering::Relaxed);
            return false;
        }
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        if since_ns == IDLE || ticks != self.ticks.load(Ordering::Relaxed) {
            self.ticks.store(ticks, Ordering::Relaxed);
            self.since_ns.store(now_ns, Ordering::Relaxed);
            return false;
        }
        now_ns.saturating_sub(since_ns) >= WAITS_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_waits_that_has_work_and_does_not_get_on() {
        let lag = Lag::default();
        let now = |looks: u64| 1_000_000 + looks * WAITS_NS;
        assert!(!lag.note(false, 7, now(0)));
        assert!(!lag.note(true, 7, now(100)), "the work may be new");
        assert!(!lag.note(true, 7, now(100) + 1), "too little time has passed");
        assert!(lag.note(true, 7, now(101)));
        assert!(lag.note(true, 7, now(102)));
        assert!(!lag.note(true, 8, now(103)), "it makes progress");
        assert!(!lag.note(false, 8, now(104)), "it sleeps and has no work");
        assert!(!lag.note(true, 8, now(105)));
        assert!(lag.note(true, 8, now(106)));
        assert!(!lag.note(true, 9, now(50)), "the clock of another processor may be behind");
    }
}
