//! Gathering the submissions of an event loop before a sleeping committer is woken.
//!
//! A woken committer takes what waits, and each group costs a write to the disk and several thread switches. A loop that is
//! woken by many events submits its transactions one by one over the next ticks. If the first one woke the committer, that
//! group would have one transaction; the next group would have those submitted during the first one's sync, and so on: a
//! loop whose requests take as long as a sync would pay a group for each request.
//!
//! So the committer stays asleep until a tick of the loop brings no submission, until [`QUIET_MAX`] transactions wait, or until
//! the oldest has waited for [`GATHERED_NS_MAX`].

use std::cell::Cell;

/// Number of waiting transactions that wakes a sleeping committer at once.
pub(crate) const QUIET_MAX: usize = 16;
/// Longest time that a transaction waits for others: a fraction of the time that a loop may spend in one tick.
const GATHERED_NS_MAX: u64 = 500_000;

/// The submissions of one reader, which belongs to an event loop.
#[derive(Default)]
pub(crate) struct Gathering {
    is_on: Cell<bool>,
    /// There were submissions since the last tick.
    has_new: Cell<bool>,
    /// The committer sleeps although transactions wait.
    is_asleep: Cell<bool>,
    /// The end of the first tick that found it asleep; 0: no tick has ended since.
    since_ns: Cell<u64>,
}

impl Gathering {
    pub(crate) fn begin(&self) {
        self.is_on.set(true);
    }

    /// Stops. `true`: the committer must be woken.
    pub(crate) fn end(&self) -> bool {
        self.is_on.set(false);
        self.is_asleep.take()
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.get()
    }

    /// Whether the committer sleeps although transactions of this reader wait.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_asleep.get()
    }

    /// A transaction was queued; `is_asleep`: the committer was not woken for it.
    pub(crate) fn note(&self, is_asleep: bool) {
        self.has_new.set(true);
        self.is_asleep.set(is_asleep);
    }

    /// Ends a tick. Returns true if the sleeping committer must be woken now.
    pub(crate) fn tick_ended(&self, now_ns: u64) -> bool {
        if !self.is_asleep.get() {
            self.has_new.set(false);
            self.since_ns.set(0);
            return false;
        }
        let since_ns = match self.since_ns.get() {
            0 => now_ns,
            since_ns => since_ns,
        };
        let is_over = !self.has_new.replace(false) || now_ns.saturating_sub(since_ns) >= GATHERED_NS_MAX;
        self.since_ns.set(if is_over { 0 } else { since_ns });
        if is_over {
            self.is_asleep.set(false);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committer_is_woken_by_a_tick_that_brings_nothing() {
        let gathering = Gathering::default();
        assert!(!gathering.tick_ended(1));
        gathering.note(true);
        assert!(!gathering.tick_ended(2));
        gathering.note(true);
        assert!(!gathering.tick_ended(3) && gathering.is_pending());
        assert!(gathering.tick_ended(4) && !gathering.is_pending());
        assert!(!gathering.tick_ended(5));
    }

    #[test]
    fn the_committer_is_woken_after_a_while_although_each_tick_brings_something() {
        let gathering = Gathering::default();
        let woken = (0..1000).position(|tick| {
            gathering.note(true);
            gathering.tick_ended(1 + tick * GATHERED_NS_MAX / 10)
        });
        assert_eq!(woken, Some(10));
    }

    #[test]
    fn a_committer_that_is_awake_is_not_woken() {
        let gathering = Gathering::default();
        gathering.note(true);
        gathering.note(false);
        assert!(!gathering.tick_ended(1) && !gathering.tick_ended(2));
        assert!(!gathering.end());
    }

    #[test]
    fn the_committer_is_woken_at_the_end() {
        let gathering = Gathering::default();
        gathering.begin();
        gathering.note(true);
        assert!(gathering.is_on() && gathering.end());
        assert!(!gathering.is_on() && !gathering.end());
    }
}
