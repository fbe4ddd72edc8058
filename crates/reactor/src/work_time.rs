//! How long the loop has worked since it last asked the kernel who wants something: the bound of a turn and of a tick in time.
//!
//! Counting requests bounds a turn only where requests are cheap. Sixty requests of twenty milliseconds each, of thirty connections,
//! would keep everybody else waiting for half a minute, and a connection that was reset meanwhile would have all its requests
//! run. So time counts too. The clock is read at every fourth request only, which costs the cheap ones nothing that can be measured,
//! and at every one behind dear ones.

use crate::kernel;

/// Requests, of whatever connection, between two looks at the clock.
const LOOK_EVERY: u32 = 4;
/// Behind requests that took longer each, there is a look after every one.
const HEAVY_NS: u64 = 250_000;
/// A turn that took longer is over: the rest of its requests wait for the next tick.
const TURN_NS_MAX: u64 = 1_000_000;
/// A tick that took longer is over: connections that had no turn wait for the next one, which begins by asking the kernel.
const TICK_NS_MAX: u64 = 10_000_000;
/// The same of a tick whose requests took more than [`DEAR_NS`] each: those of others are not to wait for them.
const DEAR_TICK_NS_MAX: u64 = 500_000;
const DEAR_NS: u64 = 10_000;

/// See the module's text.
#[derive(Default)]
pub(crate) struct WorkTime {
    requests: u32,
    is_heavy: bool,
    /// The last look at the clock.
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
        (self.tick_requests, self.tick_is_over) = (0, false);
    }

    /// A turn begins: about now, for the clock is not read for it.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.turn_ns = self.clock_ns;
    }

    /// A request was served. `true`: the turn has lasted long enough.
    #[inline]
    pub(crate) fn turn_is_over(&mut self) -> bool {
        self.requests += 1;
        if self.requests < LOOK_EVERY && !self.is_heavy {
            return false;
        }
        let (requests, before_ns) = (self.requests, self.clock_ns);
        self.look();
        self.is_heavy = self.clock_ns.saturating_sub(before_ns) > HEAVY_NS * u64::from(requests);
        self.tick_is_over || self.clock_ns.saturating_sub(self.turn_ns) > TURN_NS_MAX
    }

    /// Looks at the clock: some turns serve no request and take their time all the same.
    pub(crate) fn look(&mut self) {
        self.clock_ns = kernel::now_ns();
        self.tick_requests += u64::from(std::mem::take(&mut self.requests));
        let dear_ns = DEAR_TICK_NS_MAX.max(DEAR_NS * self.tick_requests);
        self.tick_is_over |= self.clock_ns.saturating_sub(self.tick_ns) > TICK_NS_MAX.min(dear_ns);
    }

    /// What the clock said at the last look.
    pub(crate) fn clock_ns(&self) -> u64 {
        self.clock_ns
    }

    /// Whether the tick has lasted long enough.
    #[inline]
    pub(crate) fn tick_is_over(&self) -> bool {
        self.tick_is_over
    }
}
