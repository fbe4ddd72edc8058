//! How far a peer is behind the minimum rate of receiving.
//!
//! A time bucket. While output waits, time accrues; each byte that the peer receives subtracts the time that a byte may take at
//! the minimum rate, never more than has accrued. So a peer at that rate or above is never behind, an occasional byte does not
//! restart the time, and fast receiving before is no credit for receiving nothing later.
//!
//! A byte counts as received when the peer's kernel has acknowledged it, not when ours has taken it: otherwise a link of 2 KB/s
//! would seem to stand still for minutes while our socket's buffer empties.

/// State of a peer. Times are nanoseconds of the loop's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The peer is behind by the time since then; 0: no output waits for it.
    since_ns: u64,
    /// Acknowledged bytes at the last check.
    acknowledged: Option<u64>,
}

impl Pace {
    /// Output waits from now on, if it does not already.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        if self.since_ns == 0 {
            *self = Pace { since_ns: now_ns.max(1), acknowledged: None };
        }
    }

    /// No output waits any more.
    pub(crate) fn end(&mut self) {
        self.since_ns = 0;
    }

    /// Records how many bytes the peer has acknowledged since the connection began.
    pub(crate) fn look(&mut self, acknowledged: u64, now_ns: u64, bytes_per_second: u64) {
        let taken = acknowledged.saturating_sub(self.acknowledged.unwrap_or(acknowledged));
        let earned = taken.saturating_mul(1_000_000_000) / bytes_per_second.max(1);
        self.acknowledged = Some(acknowledged);
        // Output queued by a neighbour in this tick: its time begins with the end of the connection's turn.
        if self.since_ns == 0 {
            return;
        }
        self.since_ns = self.since_ns.saturating_add(earned).min(now_ns).max(1);
    }

    /// How long the peer is behind.
    pub(crate) fn behind_ns(&self, now_ns: u64) -> u64 {
        if self.since_ns == 0 { 0 } else { now_ns.saturating_sub(self.since_ns) }
    }
}

/// How many times the paces are checked within the time that a peer may be behind.
const CHECKS: u64 = 8;
/// Shortest time between two checks.
const CHECK_NS_MIN: u64 = 10_000_000;
/// Longest time between two checks.
const CHECK_NS_MAX: u64 = 250_000_000;

/// When a loop checks the paces of its peers next. Each scheduled check has a timer; a later one that an earlier one has replaced
/// still fires, and does nothing.
#[derive(Debug)]
pub(crate) struct PaceChecks {
    /// `u64::MAX`: none is scheduled.
    due_ns: u64,
}

impl PaceChecks {
    pub(crate) fn new() -> PaceChecks {
        PaceChecks { due_ns: u64::MAX }
    }

    /// Schedules a check, soon enough for a peer that may be behind for `behind_max_ns`. Returns its time, for which the caller
    /// sets a timer; `None`: one that is as early is scheduled already.
    pub(crate) fn schedule(&mut self, now_ns: u64, behind_max_ns: u64) -> Option<u64> {
        let due_ns = now_ns.saturating_add((behind_max_ns / CHECKS).clamp(CHECK_NS_MIN, CHECK_NS_MAX));
        if due_ns >= self.due_ns {
            return None;
        }
        self.due_ns = due_ns;
        Some(due_ns)
    }

    /// A timer has fired: whether the paces are to be checked.
    pub(crate) fn begin(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns >= self.due_ns;
        if is_due {
            self.due_ns = u64::MAX;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Milliseconds behind after the given seconds, each with the bytes received in it, at a minimum of 1000 bytes a second.
    fn behind(bytes_by_second: &[u64]) -> u64 {
        let (mut pace, mut acknowledged, mut now) = (Pace::default(), 5_000, 7 * SECOND);
        pace.begin(now);
        pace.look(acknowledged, now, 1_000);
        for bytes in bytes_by_second {
            (acknowledged, now) = (acknowledged + bytes, now + SECOND);
            pace.look(acknowledged, now, 1_000);
        }
        pace.behind_ns(now) / (SECOND / 1_000)
    }

    #[test]
    fn what_was_queued_since_the_last_turn_is_not_late() {
        let mut pace = Pace::default();
        pace.begin(SECOND);
        pace.end();
        pace.look(0, 9_000 * SECOND, 1_000);
        assert_eq!(pace.behind_ns(9_000 * SECOND), 0);
    }

    #[test]
    fn who_takes_at_the_rate_is_not_behind_and_one_byte_gives_a_bytes_time() {
        assert_eq!(behind(&[1_000; 60]), 0);
        assert_eq!(behind(&[1; 60]), 60_000 - 60);
        assert_eq!(behind(&[500; 60]), 30_000);
        assert_eq!(behind(&[0, 0, 2_000]), 1_000);
    }

    #[test]
    fn what_was_taken_fast_is_no_credit() {
        assert_eq!(behind(&[1_000_000_000, 0, 0, 0]), 3_000);
    }

    #[test]
    fn a_queue_that_was_empty_begins_anew() {
        let mut pace = Pace::default();
        pace.begin(SECOND);
        pace.begin(5 * SECOND);
        assert_eq!(pace.behind_ns(9 * SECOND), 8 * SECOND);
        pace.end();
        assert_eq!(pace.behind_ns(9 * SECOND), 0);
        pace.begin(9 * SECOND);
        assert_eq!(pace.behind_ns(10 * SECOND), SECOND);
    }

    #[test]
    fn a_peer_that_may_be_behind_for_a_shorter_time_brings_the_next_check_forward() {
        let mut checks = PaceChecks::new();
        assert!(!checks.begin(9_000 * SECOND), "nothing is scheduled");
        assert_eq!(checks.schedule(SECOND, 1_600_000_000), Some(1_200_000_000));
        // A peer with the same limit, a moment later, needs no timer of its own.
        assert_eq!(checks.schedule(1_010_000_000, 1_600_000_000), None);
        assert_eq!(checks.schedule(1_020_000_000, 800_000_000), Some(1_120_000_000));
        assert!(!checks.begin(1_119_999_999) && checks.begin(1_120_000_000));
        // The timer of the first peer fires later, and checks nothing.
        assert!(!checks.begin(1_200_000_000));
    }

    #[test]
    fn a_check_is_neither_too_soon_nor_too_late() {
        assert_eq!(PaceChecks::new().schedule(SECOND, 0), Some(SECOND + CHECK_NS_MIN));
        assert_eq!(PaceChecks::new().schedule(SECOND, 900 * SECOND), Some(SECOND + CHECK_NS_MAX));
        // An unlimited time.
        assert_eq!(PaceChecks::new().schedule(SECOND, u64::MAX), Some(SECOND + CHECK_NS_MAX));
    }
}
