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
}
