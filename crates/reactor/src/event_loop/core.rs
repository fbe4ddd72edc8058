//! State that the connections of a loop share: the slab, lent buffers, timers, ready lists, memory accounting.

use std::sync::Arc;
use std::time::Duration;

use crate::address::{Address, ConnectFailure};
use crate::connection::buffers::Buffers;
use crate::connection::pace::PaceChecks;
use crate::connection::slab::{Connections, Ids};
use crate::connection::socket::{Socket, Stream};
use crate::connection::transport::Transport;
use crate::connection::{Connection, Link, Phase};
use crate::event_loop::lists::Lists;
use crate::event_loop::work_time::WorkTime;
use crate::fleet::{Origin, nanoseconds};
use crate::kernel::{self, Poller, Token};
use crate::protocol::{Closed, ConnectionId, MemoryPart, Protocol};
use crate::settings::{Outgoing, Traffic};
use crate::timers::Timers;
use crate::timers::wheel::{Wheel, tick_after};
use crate::{Loop, ReactorSettings};

/// The part of a loop that a connection's turn works with. The connection itself is out of its slot meanwhile
/// ([`Connections::lend`]), so that it can reach the others.
pub(crate) struct Core {
    pub(crate) settings: ReactorSettings,
    /// Limits of connections that have none of their own.
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) lp: Loop,
    pub(crate) poller: Poller,
    pub(crate) now_ns: u64,
    pub(crate) wheel: Wheel,
    pub(crate) timers: Timers,
    pub(crate) ids: Ids,
    pub(crate) connections: Connections,
    pub(crate) buffers: Buffers,
    pub(crate) lists: Lists,
    /// Bytes that connections hold between their turns.
    pub(crate) held_bytes: [usize; MemoryPart::COUNT],
    /// A part of these bytes exceeds its bound.
    pub(crate) is_short: bool,
    /// Connections with unsent output: the pace of their peers is checked.
    pub(crate) owing: Vec<ConnectionId>,
    pub(crate) pace_checks: PaceChecks,
    /// The tick before did not serve all connections: connections with events go on the ready list (`fairness`).
    pub(crate) is_pressed: bool,
    pub(crate) time: WorkTime,
}

impl Core {
    pub(crate) fn new(settings: ReactorSettings, lp: Loop, poller: Poller) -> Self {
        let now_ns = kernel::now_ns();
        Self {
            now_ns,
            wheel: Wheel::new(now_ns),
            timers: Timers::default(),
            ids: Ids::default(),
            connections: Connections::default(),
            buffers: Buffers::new(&settings),
            lists: Lists::default(),
            held_bytes: [0; MemoryPart::COUNT],
            is_short: false,
            owing: Vec::new(),
            pace_checks: PaceChecks::new(),
            time: WorkTime::default(),
            is_pressed: false,
            traffic: Arc::new(settings.traffic.clone()),
            settings,
            lp,
            poller,
        }
    }

    /// Updates the bytes that a connection holds after its turn. For an idle connection nothing changes and nothing is counted.
    #[inline]
    pub(crate) fn count_held(&mut self, link: &mut Link) {
        let in_queues = link.input.storage_bytes() + link.output.storage_bytes();
        let holds = in_queues + link.kept_bytes + link.transport.held_bytes();
        if holds != link.held_bytes[MemoryPart::Buffers as usize] {
            self.recount(link, MemoryPart::Buffers, holds);
        }
    }

    /// Sets how much of a part a connection holds.
    pub(crate) fn recount(&mut self, link: &mut Link, part: MemoryPart, holds: usize) {
        let (before, all) = (&mut link.held_bytes[part as usize], &mut self.held_bytes[part as usize]);
        *all = *all + holds - *before;
        let counters = &self.lp.member().counters;
        match part {
            MemoryPart::Buffers => counters.held_bytes.set(*all as u64),
            MemoryPart::Arriving => counters.arriving_bytes.set(*all as u64),
        }
        if part == MemoryPart::Buffers && *before == 0 {
            link.held_since_ns = self.now_ns;
        }
        *before = holds;
        self.is_short |= self.held_bytes[part as usize] > self.bound_of(part);
    }

    /// A connection is gone: subtracts what it held.
    pub(crate) fn forget_held(&mut self, link: &mut Link) {
        for part in MemoryPart::ALL {
            self.recount(link, part, 0);
        }
    }

    pub(crate) fn bound_of(&self, part: MemoryPart) -> usize {
        match part {
            MemoryPart::Buffers => self.settings.held_bytes_max,
            MemoryPart::Arriving => self.settings.arriving_bytes_max,
        }
    }

    /// Asks a connection to release what it holds of a part, and closes it if it does not.
    pub(crate) fn let_go(&mut self, connection: &mut Connection, part: MemoryPart) {
        self.call(connection, |protocol, io| protocol.hoards(part, io));
        self.end_turn(connection);
        if connection.link.held_bytes[part as usize] > 0 {
            connection.link.close(Closed::Hoarded);
        }
    }

    /// Sets a connection's coarse timer. If the wheel fires for the connection earlier anyway, the wheel is not touched:
    /// postponing a deadline on every request costs two stores.
    pub(crate) fn set_timer(&mut self, link: &mut Link, after_ns: Option<u64>) {
        link.deadline_tick = after_ns.map_or(0, |after| tick_after(self.now_ns.saturating_add(after)));
        if link.deadline_tick != 0 && (link.armed_tick == 0 || link.deadline_tick < link.armed_tick) {
            self.wheel.schedule(link.id.slot, link.deadline_tick);
            link.armed_tick = link.deadline_tick;
        }
    }

    /// Begins an outgoing connection and returns its id.
    pub(crate) fn begin_connect(
        &mut self,
        outgoing: &Outgoing,
        protocol: impl FnOnce(ConnectionId, &Loop) -> Box<dyn Protocol>,
    ) -> Result<ConnectionId, ConnectFailure> {
        if !self.lp.fleet().reserve(Origin::Outgoing, 0) {
            return Err(ConnectFailure::LimitReached);
        }
        let id = self.ids.take(self.lp.index() as u16);
        let begun = begin(outgoing).and_then(|mut transport| {
            transport.register(&self.poller, Token { slot: id.slot, generation: id.generation })?;
            Ok(transport)
        });
        let transport = begun.map_err(|error| {
            self.ids.give_back(id);
            self.lp.fleet().give_back(Origin::Outgoing);
            ConnectFailure::of(&error)
        })?;
        self.lp.fleet().book(self.lp.index());
        let traffic = outgoing.traffic.as_ref().unwrap_or(&self.traffic);
        let (peer, within) = (outgoing.to.peer(), outgoing.connect_max.unwrap_or(self.settings.connect_max));
        let mut link = Link::new(transport, id, peer, (Phase::Connecting, Origin::Outgoing), Arc::clone(traffic));
        link.registered = true;
        self.set_timer(&mut link, Some(nanoseconds(within.max(CONNECT_MIN))));
        let protocol = protocol(id, &self.lp);
        self.connections.insert(Box::new(Connection { protocol, link }));
        Ok(id)
    }
}

/// The wheel's resolution: no connection is made in no time.
const CONNECT_MIN: Duration = Duration::from_millis(10);

fn begin(outgoing: &Outgoing) -> std::io::Result<Transport> {
    let stream = match &outgoing.to {
        Address::Tcp(address) => Stream::Tcp(kernel::connect(*address)?),
        Address::Unix(path) => Stream::Unix(kernel::connect_unix(path)?),
    };
    Transport::outgoing(Socket::connecting(stream), outgoing.tls.as_ref())
}
