//! Deadlines of one connection on its one timer.
//!
//! Moving a timer for each request would cost more than the request's parsing. So the timer is only ever moved nearer:
//! a turn notes what the connection waits for and since when, and the timer, when it runs out, looks whether that is
//! overdue or arms itself for what is left.

use std::time::Duration;

use crate::limits::Deadlines;

/// A body that arrives may pause for longer than a head: the request has shown what it is.
const BODY_TIMES: u32 = 4;

/// What a connection waits for from its client.
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
    /// When the timer will run out; `u64::MAX` while it is not set.
    armed_ns: u64,
    /// Bytes that the peer had taken when we last looked while some were left, and when that was.
    taken_seen: Option<(u64, u64)>,
}

impl DeadlineClock {
    pub(crate) fn new(now_ns: u64) -> Self {
        DeadlineClock { wait: Wait::First, since_ns: now_ns, armed_ns: u64::MAX, taken_seen: None }
    }

    pub(crate) fn wait(&self) -> Wait {
        self.wait
    }

    /// A request was answered or handed over: whatever comes next begins now.
    #[inline]
    pub(crate) fn begin_again(&mut self) {
        self.wait = Wait::Nothing;
    }

    /// Notes at the end of a turn what the connection waits for.
    #[inline]
    pub(crate) fn note(&mut self, wait: Wait, now_ns: u64) {
        // The head that begins on a fresh connection has its time from accept on.
        if wait != self.wait && !(self.wait == Wait::First && wait == Wait::Head) {
            self.since_ns = now_ns;
        }
        self.wait = wait;
    }

    /// When the client's time is over. `body_bytes` have come so far.
    pub(crate) fn due_ns(&self, deadlines: &Deadlines, body_bytes: usize) -> u64 {
        let allowed = match self.wait {
            Wait::First | Wait::Head => deadlines.head,
            Wait::Body => deadlines.body + earned(body_bytes, deadlines.body_rate_min),
            Wait::Idle => deadlines.idle,
            Wait::Nothing => return u64::MAX,
        };
        self.since_ns.saturating_add(nanoseconds(allowed))
    }

    /// When a client has waited long enough with its place, where others wait for one. `body_bytes` have come so far.
    pub(crate) fn leave_ns(&self, deadlines: &Deadlines, body_bytes: usize) -> u64 {
        let allowed = match self.wait {
            Wait::First | Wait::Head | Wait::Idle => deadlines.crowded,
            Wait::Body => deadlines.crowded * BODY_TIMES + earned(body_bytes, deadlines.body_rate_min),
            Wait::Nothing => return u64::MAX,
        };
        self.since_ns.saturating_add(nanoseconds(allowed))
    }

    /// The wait begins now: so far the client was busy with taking its reply. Gives the new due time.
    pub(crate) fn restart(&mut self, now_ns: u64, deadlines: &Deadlines) -> u64 {
        self.since_ns = now_ns;
        self.due_ns(deadlines, 0)
    }

    /// Shortens what is left of the wait to `left` from now.
    pub(crate) fn shorten(&mut self, now_ns: u64, left: Duration, deadlines: &Deadlines) {
        let since_ns = now_ns.saturating_add(nanoseconds(left)).saturating_sub(nanoseconds(deadlines.head));
        self.since_ns = self.since_ns.min(since_ns);
    }

    /// The time until which to set the timer, if it has to be moved nearer.
    #[inline]
    pub(crate) fn arm(&mut self, due_ns: u64, now_ns: u64) -> Option<Duration> {
        if due_ns >= self.armed_ns {
            return None;
        }
        self.armed_ns = due_ns;
        Some(Duration::from_nanos(due_ns.saturating_sub(now_ns)))
    }

    /// The timer ran out.
    pub(crate) fn ran_out(&mut self) {
        self.armed_ns = u64::MAX;
    }

    /// When the peer's time to take something is over; `u64::MAX` where nothing waits for it.
    pub(crate) fn stall_due_ns(&mut self, unsent: usize, taken: u64, now_ns: u64, deadlines: &Deadlines) -> u64 {
        if unsent == 0 {
            self.taken_seen = None;
            return u64::MAX;
        }
        let since_ns = match self.taken_seen {
            Some((seen, since_ns)) if seen == taken => since_ns,
            _ => now_ns,
        };
        self.taken_seen = Some((taken, since_ns));
        since_ns.saturating_add(nanoseconds(deadlines.write))
    }
}

fn earned(bytes: usize, bytes_per_second: u64) -> Duration {
    Duration::from_micros((bytes as u64).saturating_mul(1_000_000) / bytes_per_second.max(1))
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
        Deadlines { idle: seconds(60), write: seconds(30), crowded: seconds(2), ..deadlines }
    }

    #[test]
    fn a_head_counts_from_accept_and_a_later_one_from_its_first_byte() {
        let mut clock = DeadlineClock::new(SECOND);
        clock.note(Wait::Head, 3 * SECOND);
        assert_eq!(clock.due_ns(&deadlines(), 0), 11 * SECOND);
        clock.begin_again();
        clock.note(Wait::Idle, 4 * SECOND);
        assert_eq!(clock.due_ns(&deadlines(), 0), 64 * SECOND);
        clock.note(Wait::Head, 9 * SECOND);
        clock.note(Wait::Head, 12 * SECOND);
        assert_eq!(clock.due_ns(&deadlines(), 0), 19 * SECOND);
    }

    #[test]
    fn a_client_that_was_still_taking_its_reply_is_idle_from_then_on() {
        let mut clock = DeadlineClock::new(0);
        clock.note(Wait::Idle, SECOND);
        assert_eq!(clock.restart(50 * SECOND, &deadlines()), 110 * SECOND);
    }

    #[test]
    fn a_body_earns_time_with_its_bytes() {
        let mut clock = DeadlineClock::new(0);
        clock.note(Wait::Body, SECOND);
        assert_eq!(clock.due_ns(&deadlines(), 0), 21 * SECOND);
        assert_eq!(clock.due_ns(&deadlines(), 500), 26 * SECOND);
    }

    #[test]
    fn among_many_a_client_may_wait_less_and_a_service_as_long_as_it_wants() {
        let mut clock = DeadlineClock::new(SECOND);
        assert_eq!(clock.leave_ns(&deadlines(), 0), 3 * SECOND);
        clock.note(Wait::Head, 2 * SECOND);
        assert_eq!(clock.leave_ns(&deadlines(), 0), 3 * SECOND);
        clock.note(Wait::Body, 4 * SECOND);
        assert_eq!(clock.leave_ns(&deadlines(), 500), 17 * SECOND);
        clock.begin_again();
        assert_eq!(clock.leave_ns(&deadlines(), 0), u64::MAX);
        clock.note(Wait::Idle, 20 * SECOND);
        assert_eq!(clock.leave_ns(&deadlines(), 0), 22 * SECOND);
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

    #[test]
    fn a_peer_that_takes_something_has_its_time_again() {
        let mut clock = DeadlineClock::new(0);
        assert_eq!(clock.stall_due_ns(5, 100, SECOND, &deadlines()), 31 * SECOND);
        assert_eq!(clock.stall_due_ns(5, 100, 9 * SECOND, &deadlines()), 31 * SECOND);
        assert_eq!(clock.stall_due_ns(5, 101, 9 * SECOND, &deadlines()), 39 * SECOND);
        assert_eq!(clock.stall_due_ns(0, 106, 9 * SECOND, &deadlines()), u64::MAX);
    }
}
