//! How far a peer is behind the least rate at which it has to take what waits for it.
//!
//! It is a bucket of time. While something waits, time runs; each byte that the peer takes gives back what a byte may take
//! at the least rate, and never more than what has run. So a peer at that rate or above is never behind, one byte now and
//! then does not begin its time anew, and what was taken fast before is no credit for taking nothing later.
//!
//! Taken is what the peer's kernel has acknowledged, not what ours holds for it: a link of 2 KB/s would else look as if it
//! stood still for minutes, while our socket's buffer empties.

/// Where a peer stands. Times are nanoseconds of the loop's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// The peer is behind by the time since then; 0: nothing waits for it.
    since_ns: u64,
    /// Bytes that it had acknowledged when somebody last looked.
    acknowledged: Option<u64>,
}

impl Pace {
    /// Something waits from now on, if it does not already.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        if self.since_ns == 0 {
            *self = Pace { since_ns: now_ns.max(1), acknowledged: None };
        }
    }

    /// Nothing waits any more.
    pub(crate) fn end(&mut self) {
        self.since_ns = 0;
    }

    /// Notes how many bytes the peer has acknowledged since the connection began.
    pub(crate) fn look(&mut self, acknowledged: u64, now_ns: u64, bytes_per_second: u64) {
        let taken = acknowledged.saturating_sub(self.acknowledged.unwrap_or(acknowledged));
        let earned = taken.saturating_mul(1_000_000_000) / bytes_per_second.max(1);
        self.acknowledged = Some(acknowledged);
        // What a neighbour has queued in this tick has no time yet: it begins with the end of the connection's turn.
        if self.since_ns == 0 {
            return;
        }
        self.since_ns = self.since_ns.saturating_add(earned).min(now_ns).max(1);
    }

    /// How long it is behind.
    pub(crate) fn behind_ns(&self, now_ns: u64) -> u64 {
        if self.since_ns == 0 { 0 } else { now_ns.saturating_sub(self.since_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Behind after so many seconds of which each brings some bytes, at 1000 a second.
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
