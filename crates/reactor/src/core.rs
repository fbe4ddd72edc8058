//! What a loop's connections share: buffers lent for a turn, timers, the list of those that go on next tick.

use std::net::SocketAddr;

use crate::connection::{Connection, Link, Phase};
use crate::connections::Ids;
use crate::input::InputBuffer;
use crate::kernel::{Poller, Token};
use crate::pool::Pool;
use crate::protocol::{Closed, ConnectionId, Part, Protocol};
use crate::timers::Timers;
use crate::transport::Transport;
use crate::wheel::{Wheel, tick_after};
use crate::work_time::WorkTime;
use crate::{Loop, Settings, kernel};

/// Connections that read before the first of them is answered, each with a lent buffer (`batch`).
pub(crate) const BATCH_MAX: usize = 8;

/// An outgoing connection begun inside a protocol's call, to be put into its slot after it.
pub(crate) struct Opening {
    pub(crate) link: Link,
    pub(crate) protocol: Box<dyn Protocol>,
}

/// The part of a loop that a connection's turn works with.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) lp: Loop,
    pub(crate) poller: Poller,
    pub(crate) now_ns: u64,
    pub(crate) wheel: Wheel,
    pub(crate) timers: Timers,
    pub(crate) ids: Ids,
    /// Lent to connections for their turns, [`BATCH_MAX`] at most at a time; the last used goes out first (the warmest).
    pub(crate) inputs_lent: Vec<InputBuffer>,
    /// Without storage while lent.
    pub(crate) output_lent: Vec<u8>,
    pub(crate) input_pool: Pool,
    pub(crate) output_pool: Pool,
    /// What connections hold between their turns.
    pub(crate) held_bytes: [usize; Part::COUNT],
    /// Some part of it is beyond its bound.
    pub(crate) is_short: bool,
    /// Connections with unsent output, whose pace is looked at.
    pub(crate) owing: Vec<ConnectionId>,
    pub(crate) looks_at_paces: bool,
    /// Connections that go on next tick.
    pub(crate) ready: Vec<ConnectionId>,
    /// The tick before did not serve all: those with events wait their turn on the list (`fairness`).
    pub(crate) is_pressed: bool,
    /// Those of them whose last turn was ended by the clock: they go on behind all others.
    pub(crate) heavy: Vec<ConnectionId>,
    pub(crate) time: WorkTime,
    pub(crate) opening: Vec<Opening>,
}

impl Core {
    pub(crate) fn new(settings: Settings, lp: Loop, poller: Poller) -> Self {
        let now_ns = kernel::now_ns();
        Self {
            now_ns,
            wheel: Wheel::new(now_ns),
            timers: Timers::default(),
            ids: Ids::default(),
            inputs_lent: (0..BATCH_MAX).map(|_| InputBuffer::with_storage(settings.read_bytes_per_turn)).collect(),
            output_lent: Vec::new(),
            input_pool: Pool::new(settings.pool_buffers_max, settings.pool_bytes_max),
            output_pool: Pool::new(settings.pool_buffers_max, settings.pool_bytes_max),
            held_bytes: [0; Part::COUNT],
            is_short: false,
            owing: Vec::new(),
            looks_at_paces: false,
            heavy: Vec::new(),
            time: WorkTime::default(),
            ready: Vec::new(),
            is_pressed: false,
            opening: Vec::new(),
            settings,
            lp,
            poller,
        }
    }

    /// Counts what a connection goes on holding after its turn. An idle one holds nothing, and is not counted anew.
    #[inline]
    pub(crate) fn count_held(&mut self, link: &mut Link) {
        let holds = link.input.storage_bytes() + link.output.storage_bytes() + link.kept_bytes;
        if holds != link.held_bytes[Part::Buffers as usize] {
            self.recount(link, Part::Buffers, holds);
        }
    }

    /// What a connection holds of a part has changed.
    pub(crate) fn recount(&mut self, link: &mut Link, part: Part, holds: usize) {
        let (before, all) = (&mut link.held_bytes[part as usize], &mut self.held_bytes[part as usize]);
        *all = *all + holds - *before;
        let counters = &self.lp.member().counters;
        match part {
            Part::Buffers => counters.held_bytes.set(*all as u64),
            Part::Arriving => counters.arriving_bytes.set(*all as u64),
        }
        if part == Part::Buffers && *before == 0 {
            link.held_since_ns = self.now_ns;
        }
        *before = holds;
        self.is_short |= self.held_bytes[part as usize] > self.bound_of(part);
    }

    /// A connection is gone, with all it held.
    pub(crate) fn forget_held(&mut self, link: &mut Link) {
        for part in Part::ALL {
            self.recount(link, part, 0);
        }
    }

    pub(crate) fn bound_of(&self, part: Part) -> usize {
        match part {
            Part::Buffers => self.settings.held_bytes_max,
            Part::Arriving => self.settings.arriving_bytes_max,
        }
    }

    /// Has a connection give up what it holds of a part, or closes it.
    pub(crate) fn let_go(&mut self, connection: &mut Connection, part: Part) {
        self.call(connection, |protocol, io| protocol.hoards(part, io));
        self.end_turn(connection);
        if connection.link.held_bytes[part as usize] > 0 {
            connection.link.close(Closed::Hoarded);
        }
    }

    /// Puts a connection on the ready list, once.
    pub(crate) fn list(&mut self, link: &mut Link) {
        if !link.listed {
            link.listed = true;
            let list = if link.is_heavy { &mut self.heavy } else { &mut self.ready };
            list.push(link.id);
        }
    }

    /// Sets a connection's coarse timer. Where the wheel would look at it earlier anyway, the wheel is not touched: a
    /// deadline pushed out on every request costs two stores.
    pub(crate) fn set_timer(&mut self, link: &mut Link, after_ns: Option<u64>) {
        link.deadline_tick = after_ns.map_or(0, |after| tick_after(self.now_ns.saturating_add(after)));
        if link.deadline_tick != 0 && (link.armed_tick == 0 || link.deadline_tick < link.armed_tick) {
            self.wheel.schedule(link.id.slot, link.deadline_tick);
            link.armed_tick = link.deadline_tick;
        }
    }

    /// Begins an outgoing connection and gives its id; `opening` holds it until the current turn is over.
    pub(crate) fn begin_connect(
        &mut self,
        to: SocketAddr,
        protocol: impl FnOnce(ConnectionId, &Loop) -> Box<dyn Protocol>,
    ) -> std::io::Result<ConnectionId> {
        if !self.lp.fleet().reserve() {
            return Err(std::io::Error::other("connections_max is reached"));
        }
        let id = self.ids.take(self.lp.index() as u16);
        let begun = kernel::connect(to).and_then(|stream| {
            let mut transport = Transport::Plain(stream);
            transport.register(&self.poller, Token { slot: id.slot, generation: id.generation })?;
            Ok(transport)
        });
        match begun {
            Ok(transport) => {
                self.lp.fleet().book(self.lp.index());
                let mut link = Link::new(transport, id, to, Phase::Connecting);
                link.registered = true;
                self.set_timer(&mut link, Some(crate::fleet::nanoseconds(self.settings.connect_max)));
                let protocol = protocol(id, &self.lp);
                self.opening.push(Opening { link, protocol });
                Ok(id)
            }
            Err(error) => {
                self.ids.give_back(id);
                self.lp.fleet().give_back();
                Err(error)
            }
        }
    }
}
