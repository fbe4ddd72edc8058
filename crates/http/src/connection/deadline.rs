//! Deadlines of one connection on its one timer.
//!
//! Moving a timer for each request would cost more than the request's parsing. So the timer is only ever moved to an earlier
//! moment: a turn records what the connection waits for and since when. When the timer expires, it checks whether that wait is
//! overdue, or arms itself for the remaining time.
//!
//! A body has a time limit and a minimum rate: each received byte moves the deadline by the time that it may take at that rate,
//! but never beyond now plus the limit. So an occasional byte does not restart the time, and a fast start is no credit for a pause. The pace at which a
//! client receives its replies is checked by the reactor.

use std::time::Duration;

use crate::limits::Deadlines;

/// An arriving body may pause longer than a head: the request is already known.
const BODY_TIMES: u32 = 4;

/// What the connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The first byte, since accept.
    First,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The next request.
    Idle,
    /// Nothing: the service has to answer first.
    Nothing,
}

/// The clock of one connection. Times are nanoseconds of the loop's clock.
#[derive(Debug)]
pub(crate) struct DeadlineClock {
    wait: Wait,
    since_ns: u64,
    /// When the timer will expire; `u64::MAX` while it is not set.
    armed_ns: u64,
    /// Bytes of the body at the last check.
    body_bytes: usize,
}

impl DeadlineClock {
    pub(crate) fn new(now_ns: u64) -> Self {
        DeadlineClock { wait: Wait::First, since_ns: now_ns, armed_ns: u64::MAX, body_bytes: 0 }
    }

    pub(crate) fn wait(&self) -> Wait {
        self.wait
    }

    /// A request was answered or handed over: the next wait begins now.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        self.wait = Wait::Nothing;
    }

    /// Since when the connection waits, minus the time that a body's bytes made up for.
    pub(crate) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// Records at the end of a turn what the connection waits for. `body_bytes` have arrived so far.
    #[inline]
    pub(crate) fn note(&mut self, wait: Wait, body_bytes: usize, deadlines: &Deadlines, now_ns: u64) {
        // The time for the first head of a new connection counts from accept.
        if wait != self.wait && !(self.wait == Wait::First && wait == Wait::Head) {
            self.since_ns = now_ns;
        } else if wait == Wait::Body {
            let come = body_bytes.saturating_sub(self.body_bytes) as u64;
            let earned = come.saturating_mul(1_000_000_000) / deadlines.body_rate_min.max(1);
            self.since_ns = self.since_ns.saturating_add(earned).min(now_ns);
        }
        (self.wait, self.body_bytes) = (wait, body_bytes);
    }

    /// When the client's deadline is.
    pub(crate) fn due_ns(&self, deadlines: &Deadlines) -> u64 {
        let allowed = match self.wait {
            Wait::First | Wait::Head => deadlines.head,
            Wait::Body => deadlines.body,
            Wait::Idle => deadlines.idle,
            Wait::Nothing => return u64::MAX,
        };
        self.since_ns.saturating_add(nanoseconds(allowed))
    }

    /// Until when a client may keep its connection if others wait for one.
    pub(crate) fn leave_ns(&self, deadlines: &Deadlines) -> u64 {
        let allowed = match self.wait {
            Wait::First | Wait::Head | Wait::Idle => deadlines.crowded,
            Wait::Body => deadlines.crowded * BODY_TIMES,
            Wait::Nothing => return u64::MAX,
        };
        self.since_ns.saturating_add(nanoseconds(allowed))
    }

    /// The wait begins now: until now the client was receiving its reply. Returns the new deadline.
    pub(crate) fn restart(&mut self, now_ns: u64, deadlines: &Deadlines) -> u64 {
        self.since_ns = now_ns;
        self.due_ns(deadlines)
    }

    /// Shortens the rest of the wait to `left` from now.
    pub(crate) fn shorten(&mut self, now_ns: u64, left: Duration, deadlines: &Deadlines) {
        let since_ns = now_ns.saturating_add(nanoseconds(left)).saturating_sub(nanoseconds(deadlines.head));
        self.since_ns = self.since_ns.min(since_ns);
    }

    /// The delay to set the timer to, if it must fire earlier.
    #[inline]
    pub(crate) fn arm(&mut self, due_ns: u64, now_ns: u64) -> Option<Duration> {
        if due_ns >= self.armed_ns {
            return None;
        }
        self.armed_ns = due_ns;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    /// The timer expired.
    pub(crate) fn ran_out(&mut self) {
        self.armed_ns = u64::MAX;
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn deadlines() -> Deadlines {
        let seconds = Duration::from_secs;
        let deadlines = Deadlines { head: seconds(10), body: seconds(20), body_rate_min: 100, ..Deadlines::default() };
        Deadlines { idle: seconds(60), crowded: seconds(2), ..deadlines }
    }

    impl DeadlineClock {
        fn waits(&mut self, wait: Wait, body_bytes: usize, seconds: u64) {
            self.note(wait, body_bytes, &deadlines(), seconds * SECOND);
        }

        fn due(&self) -> u64 {
            self.due_ns(&deadlines()) / SECOND
        }
    }

    #[test]
    fn a_head_counts_from_accept_and_a_later_one_from_its_first_byte() {
        let mut clock = DeadlineClock::new(SECOND);
        clock.waits(Wait::Head, 0, 3);
        assert_eq!(clock.due(), 11);
        clock.begin_again();
        clock.waits(Wait::Idle, 0, 4);
        assert_eq!(clock.due(), 64);
        clock.waits(Wait::Head, 0, 9);
        clock.waits(Wait::Head, 0, 12);
        assert_eq!(clock.due(), 19);
    }

    #[test]
    fn a_client_that_was_still_taking_its_reply_is_idle_from_then_on() {
        let mut clock = DeadlineClock::new(0);
        clock.waits(Wait::Idle, 0, 1);
        assert_eq!(clock.restart(50 * SECOND, &deadlines()), 110 * SECOND);
    }

    #[test]
    fn a_body_earns_time_with_its_bytes_and_no_credit() {
        let mut clock = DeadlineClock::new(0);
        clock.waits(Wait::Body, 0, 1);
        assert_eq!(clock.due(), 21);
        clock.waits(Wait::Body, 500, 11);
        assert_eq!(clock.due(), 26);
        // One byte makes up for the time of one byte.
        clock.waits(Wait::Body, 501, 12);
        assert_eq!(clock.due(), 26);
        // However many bytes arrive, there is never more time left than the whole limit.
        clock.waits(Wait::Body, 1_000_000, 13);
        assert_eq!(clock.due(), 33);
        // The next body starts from zero.
        clock.begin_again();
        clock.waits(Wait::Body, 7, 100);
        assert_eq!(clock.due(), 120);
    }

    #[test]
    fn among_many_a_client_may_wait_less_and_a_service_as_long_as_it_wants() {
        let mut clock = DeadlineClock::new(SECOND);
        assert_eq!(clock.leave_ns(&deadlines()), 3 * SECOND);
        clock.waits(Wait::Head, 0, 2);
        assert_eq!(clock.leave_ns(&deadlines()), 3 * SECOND);
        clock.waits(Wait::Body, 0, 4);
        clock.waits(Wait::Body, 200, 7);
        assert_eq!(clock.leave_ns(&deadlines()), 14 * SECOND);
        clock.begin_again();
        assert_eq!(clock.leave_ns(&deadlines()), u64::MAX);
        clock.waits(Wait::Idle, 0, 20);
        assert_eq!(clock.leave_ns(&deadlines()), 22 * SECOND);
    }

    #[test]
    fn the_timer_only_moves_nearer() {
        let mut clock = DeadlineClock::new(0);
        assert_eq!(clock.arm(60 * SECOND, SECOND), Some(Duration::from_secs(59)));
        assert_eq!(clock.arm(70 * SECOND, SECOND), None);
        assert_eq!(clock.arm(10 * SECOND, SECOND), Some(Duration::from_secs(9)));
        clock.ran_out();
        assert_eq!(clock.arm(70 * SECOND, 10 * SECOND), Some(Duration::from_secs(60)));
    }
}
