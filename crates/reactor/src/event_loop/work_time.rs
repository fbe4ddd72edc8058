//! Time limits of a turn and of a tick: how long the loop has worked since it last polled the kernel.
//!
//! A limit on the number of requests bounds a turn only if requests are cheap. Sixty requests of 20 ms each from thirty
//! connections would delay all others for half a minute, and all requests of a connection that was reset meanwhile would still
//! run. So time is limited too. The clock is read at every sixteenth request while requests are cheap, at every fourth usually,
//! and at every request after expensive ones; in any case after each connection's answer (`batch`). Reading the clock
//! costs about a 30th of the cheapest request.

use crate::kernel;

/// Requests, of any connection, between two reads of the clock.
const LOOK_EVERY: u32 = 4;
/// The same after requests that took at most [`CHEAP_NS`] each.
const LOOK_EVERY_CHEAP: u32 = 16;
const CHEAP_NS: u64 = 4_000;
/// After requests that took longer than this each, the clock is read at every request.
const EXPENSIVE_NS: u64 = 250_000;
/// A turn that takes longer is over: the rest of its requests wait for the next tick.
const TURN_NS_MAX: u64 = 1_000_000;
/// A tick that takes longer is over: connections that had no turn wait for the next tick, which begins by polling the kernel.
const TICK_NS_MAX: u64 = 10_000_000;
/// The same for a tick whose requests took more than [`SLOW_NS`] each: other clients' requests must not wait for them.
const SLOW_TICK_NS_MAX: u64 = 500_000;
const SLOW_NS: u64 = 10_000;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct WorkTime {
    requests: u32,
    /// The clock is read when so many requests have been served since its last read.
    look_after: u32,
    /// The clock at its last read.
    clock_ns: u64,
    turn_ns: u64,
    tick_ns: u64,
    tick_requests: u64,
    tick_is_over: bool,
}

impl WorkTime {
    /// A tick begins now.
    pub(crate) fn begin_tick(&mut self, now_ns: u64) {
        (self.clock_ns, self.turn_ns, self.tick_ns) = (now_ns, now_ns, now_ns);
        // Requests that mail or timers brought took their time before.
        (self.requests, self.tick_requests, self.tick_is_over) = (0, 0, false);
    }

    /// A turn begins at about the last clock reading: the clock is not read for it.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.turn_ns = self.clock_ns;
    }

    /// Counts a served request. `true`: the turn is over.
    #[inline]
    pub(crate) fn turn_is_over(&mut self) -> bool {
        self.requests += 1;
        if self.requests < self.look_after {
            return false;
        }
        self.look();
        self.tick_is_over || self.clock_ns.saturating_sub(self.turn_ns) > TURN_NS_MAX
    }

    /// Reads the clock. Turns that serve no request call it too, since they take time as well.
    pub(crate) fn look(&mut self) {
        let before_ns = std::mem::replace(&mut self.clock_ns, kernel::now_ns());
        let requests = u64::from(std::mem::take(&mut self.requests));
        if let Some(each_ns) = self.clock_ns.saturating_sub(before_ns).checked_div(requests) {
            self.look_after = look_after(each_ns);
        }
        self.tick_requests += requests;
        let slow_ns = SLOW_TICK_NS_MAX.max(SLOW_NS * self.tick_requests);
        self.tick_is_over |= self.clock_ns.saturating_sub(self.tick_ns) > TICK_NS_MAX.min(slow_ns);
    }

    /// The clock at its last read.
    pub(crate) fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Whether the last requests took so long that the clock is read after each.
    #[inline]
    pub(crate) fn requests_are_expensive(&self) -> bool {
        self.look_after == 1
    }

    /// Whether the tick is over.
    #[inline]
    pub(crate) fn tick_is_over(&self) -> bool {
        self.tick_is_over
    }
}

/// Requests until the next read of the clock, after requests that took this long each.
fn look_after(each_ns: u64) -> u32 {
    if each_ns > EXPENSIVE_NS {
        1
    } else if each_ns > CHEAP_NS {
        LOOK_EVERY
    } else {
        LOOK_EVERY_CHEAP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_more_often_after_expensive_requests() {
        assert_eq!([0, CHEAP_NS, CHEAP_NS + 1, EXPENSIVE_NS, EXPENSIVE_NS + 1].map(look_after), [16, 16, 4, 4, 1]);
    }

    #[test]
    fn requests_before_a_tick_do_not_count_for_it() {
        let mut time = WorkTime { look_after: 100, ..WorkTime::default() };
        (0..50).for_each(|_| assert!(!time.turn_is_over()));
        time.begin_tick(kernel::now_ns());
        time.look();
        assert_eq!((time.tick_requests, time.look_after), (0, 100));
    }
}
