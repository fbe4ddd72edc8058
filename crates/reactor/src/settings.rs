//! The reactor's limits, each with its default and its reason: of all loops, of a listener, of one connection's traffic.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::tls::{TlsClient, TlsServer};

/// How a [`crate::Reactor`] is sized. Every queue and buffer of the crate is bounded by one of these or by [`Traffic`].
#[derive(Clone, Debug)]
pub struct ReactorSettings {
    /// Event loops, one thread each. Default: the cores this process may use.
    pub loops: usize,
    /// Pins loop `i` to CPU `pin[i % pin.len()]`; empty: the kernel decides. Default: empty.
    pub pin: Vec<usize>,
    /// Time slice that each loop asks the scheduler for, 0.1 to 100 ms (since Linux 6.12). With a short one, a loop that wakes up
    /// interrupts threads that have longer ones, and is interrupted more often itself while it has work. Default: `None`, the
    /// system's.
    pub time_slice: Option<Duration>,
    /// Accepted connections open at once, over all loops. At the limit others wait in the kernel's backlog.
    pub connections_max: usize,
    /// Outgoing connections open at once, over all loops. At the limit more are refused
    /// ([`crate::ConnectFailure::LimitReached`]).
    pub outgoing_max: usize,
    /// Connections accepted by one loop in one tick, so that a storm of them does not delay open connections.
    pub accepts_per_tick: usize,
    /// Events taken from the kernel by one `epoll_wait`.
    pub events_per_tick: usize,
    /// Limits of each connection whose listener or [`Outgoing`] sets none of its own. Its `read_bytes_per_turn` is the size of
    /// the buffers that a loop lends.
    pub traffic: Traffic,
    /// Bytes that all connections of a loop hold between their turns: unread input, unsent output, and what protocols keep beside
    /// ([`crate::Io::keep`]). Above it the largest holders are closed.
    pub held_bytes_max: usize,
    /// The same for arriving messages ([`crate::Io::gather`]).
    pub arriving_bytes_max: usize,
    /// Time limit for making an outgoing connection, if its [`Outgoing`] sets no other.
    pub connect_max: Duration,
    /// Buffers kept by a loop for reuse, for input and for output each. Buffers above that are freed.
    pub pool_buffers_max: usize,
    /// Bytes of these buffers, for input and for output each.
    pub pool_bytes_max: usize,
    /// Pause before accepting is tried again after the process ran out of file descriptors, or of `connections_max` (a connection
    /// closed by the same loop ends the pause).
    pub accept_pause: Duration,
}

impl Default for ReactorSettings {
    fn default() -> Self {
        Self {
            loops: std::thread::available_parallelism().map_or(1, usize::from),
            pin: Vec::new(),
            time_slice: None,
            connections_max: 60_000,
            outgoing_max: 60_000,
            accepts_per_tick: 64,
            events_per_tick: 256,
            traffic: Traffic::default(),
            held_bytes_max: 256 << 20,
            arriving_bytes_max: 64 << 20,
            connect_max: Duration::from_secs(10),
            pool_buffers_max: 128,
            pool_bytes_max: 8 * 1024 * 1024,
            accept_pause: Duration::from_millis(100),
        }
    }
}

impl ReactorSettings {
    /// Raises values with which the loop could make no progress to the smallest that works.
    pub(crate) fn checked(mut self) -> Self {
        self.loops = self.loops.clamp(1, usize::from(u16::MAX));
        self.connections_max = self.connections_max.clamp(1, u32::MAX as usize / 4);
        self.outgoing_max = self.outgoing_max.min(u32::MAX as usize / 4);
        self.accepts_per_tick = self.accepts_per_tick.max(1);
        self.events_per_tick = self.events_per_tick.max(1);
        self.traffic = self.traffic.checked();
        self
    }
}

/// Limits of one connection's input and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Budget of [`crate::Io::spend`] for a connection in one tick; at least 2, so that every turn makes progress.
    pub requests_per_turn: u32,
    /// Most bytes that are read from a connection in one tick. A listener or an [`Outgoing`] sets no more than
    /// [`ReactorSettings::traffic`] does, whose value is the size of the buffers that a loop lends.
    pub read_bytes_per_turn: usize,
    /// Bytes a connection may hold unconsumed; at this limit it is not read until its protocol consumes. A protocol that needs
    /// whole messages must keep their size below this.
    pub input_bytes_max: usize,
    /// A write queue above this stops its connection's input and output production.
    pub output_high_water: usize,
    /// A write queue that passed the high-water mark may be filled again below this.
    pub output_low_water: usize,
    /// Bytes read and dropped after [`crate::Io::finish`] before the connection is closed anyway.
    pub linger_bytes_max: usize,
    /// Time limit of the same.
    pub linger_max: Duration,
    /// Minimum rate in bytes a second at which a peer must receive while output waits.
    pub send_rate_min: u64,
    /// How long a peer may be behind that rate before its connection is closed. Each byte that it receives makes up for the time
    /// of one byte at the rate, and no more.
    pub send_behind_max: Duration,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            requests_per_turn: 64,
            read_bytes_per_turn: 64 * 1024,
            input_bytes_max: 2 * 1024 * 1024,
            output_high_water: 256 * 1024,
            output_low_water: 64 * 1024,
            linger_bytes_max: 256 * 1024,
            linger_max: Duration::from_secs(2),
            send_rate_min: 1024,
            send_behind_max: Duration::from_secs(30),
        }
    }
}

impl Traffic {
    /// Raises values with which a connection could make no progress to the smallest that works.
    pub(crate) fn checked(mut self) -> Self {
        self.requests_per_turn = self.requests_per_turn.max(2);
        self.read_bytes_per_turn = self.read_bytes_per_turn.max(512);
        self.input_bytes_max = self.input_bytes_max.max(self.read_bytes_per_turn);
        self.output_low_water = self.output_low_water.min(self.output_high_water);
        self
    }
}

/// Settings of one listener.
#[derive(Clone, Debug)]
pub struct ListenerSettings {
    /// Length of each listening socket's backlog (the kernel caps it at net.core.somaxconn).
    pub backlog: u32,
    /// Limits of its connections; `None`: [`ReactorSettings::traffic`].
    pub traffic: Option<Traffic>,
    /// Its certificate; `None`: no TLS.
    pub tls: Option<TlsServer>,
    /// Connections that it may accept beyond [`ReactorSettings::connections_max`], which counts those of all listeners.
    pub connections_beyond: usize,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        Self { backlog: 4096, traffic: None, tls: None, connections_beyond: 0 }
    }
}

/// An outgoing connection to be made: its address, and settings of its own.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The peer.
    pub to: Address,
    /// Time limit for making it; `None`: [`ReactorSettings::connect_max`].
    pub connect_max: Option<Duration>,
    /// Its limits; `None`: [`ReactorSettings::traffic`]. May be shared by several connections.
    pub traffic: Option<Arc<Traffic>>,
    /// The certificates that it trusts; `None`: no TLS. With TLS the connection counts as made once the handshake is done.
    pub tls: Option<TlsClient>,
}

impl Outgoing {
    /// With the reactor's settings.
    pub fn to(address: impl Into<Address>) -> Self {
        Self { to: address.into(), connect_max: None, traffic: None, tls: None }
    }
}

impl From<Address> for Outgoing {
    fn from(address: Address) -> Self {
        Self::to(address)
    }
}

impl From<std::net::SocketAddr> for Outgoing {
    fn from(address: std::net::SocketAddr) -> Self {
        Self::to(address)
    }
}

impl From<PathBuf> for Outgoing {
    fn from(path: PathBuf) -> Self {
        Self::to(path)
    }
}
