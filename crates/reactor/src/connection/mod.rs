//! One connection: its protocol, and the link through which [`crate::Io`] lets the protocol act.

pub(crate) mod buffers;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod pace;
pub(crate) mod piece;
pub(crate) mod pool;
pub(crate) mod slab;
pub(crate) mod socket;
pub(crate) mod transport;

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::connection::input::InputBuffer;
use crate::connection::output::OutputQueue;
use crate::connection::pace::Pace;
use crate::connection::transport::Transport;
use crate::fleet::Origin;
use crate::protocol::{Closed, ConnectionId, MemoryPart, Protocol};
use crate::settings::Traffic;
use crate::timers::TimerKey;

/// Phase of a connection.
///
/// ```text
///  Connecting --> Handshaking --> Open --> Finishing --> Lingering --> Closed
///      |               |           |          |                         ^
///      +---------------+-----------+----------+-------------------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Outgoing, not made yet.
    Connecting,
    /// Accepted or made, and its TLS handshake is not done.
    Handshaking,
    Open,
    /// `finish` was called: the queue is being sent, and no input is read.
    Finishing,
    /// The queue was sent and the write side shut. Input that still arrives is read and dropped, for `left` bytes more.
    Lingering {
        left: usize,
    },
    /// Removed at the end of the turn.
    Closed(Closed),
}

/// A connection in its slot.
pub(crate) struct Connection {
    pub(crate) protocol: Box<dyn Protocol>,
    pub(crate) link: Link,
}

/// A connection without its protocol.
pub(crate) struct Link {
    pub(crate) transport: Transport,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) origin: Origin,
    pub(crate) id: ConnectionId,
    pub(crate) phase: Phase,
    /// Known to the poller.
    pub(crate) registered: bool,
    pub(crate) input_ended: bool,
    /// The protocol has been called since.
    pub(crate) end_reported: bool,
    /// The protocol asked to shut the write side once the queue is empty.
    pub(crate) end_output: bool,
    /// The write side has been shut.
    pub(crate) output_ended: bool,
    /// The protocol paused its input.
    pub(crate) paused: bool,
    /// The write queue passed its high-water mark and has not fallen to the low-water mark since.
    pub(crate) congested: bool,
    /// `writable` is to be called once the queue is below its low-water mark.
    pub(crate) wants_writable: bool,
    /// `input` is to be called without new bytes: its budget ran out, or its pause ended.
    pub(crate) wants_input: bool,
    /// On one of the loop's ready lists.
    pub(crate) listed: bool,
    /// The time limit ended its last turn.
    pub(crate) is_heavy: bool,
    /// In the loop's list of connections whose turn ends with the tick.
    pub(crate) touched: bool,
    /// `drain` was called.
    pub(crate) drain_reported: bool,
    pub(crate) requests_left: u32,
    pub(crate) input: InputBuffer,
    /// The storage of `input` is lent by the loop.
    pub(crate) input_is_lent: bool,
    pub(crate) output: OutputQueue,
    /// This connection's share of `Core::held_bytes`.
    pub(crate) held_bytes: [usize; MemoryPart::COUNT],
    /// What the protocol keeps beside `input` and `output`.
    pub(crate) kept_bytes: usize,
    /// Since when it holds memory of `MemoryPart::Buffers` without consuming input; 0: it holds none.
    pub(crate) held_since_ns: u64,
    /// The same for `MemoryPart::Arriving`, as reported by the protocol.
    pub(crate) arriving_since_ns: u64,
    /// Bytes taken by the kernel since the connection began.
    pub(crate) sent: u64,
    pub(crate) pace: Pace,
    /// On the loop's list of connections whose pace is checked.
    pub(crate) pace_watched: bool,
    /// Tick of the connection's timer; 0: none.
    pub(crate) deadline_tick: u64,
    /// Tick at which the wheel fires for this connection; 0: never. At most `deadline_tick` while that is set.
    pub(crate) armed_tick: u64,
    /// The precise timer, while it is set.
    pub(crate) precise_timer: Option<TimerKey>,
    pub(crate) peer: SocketAddr,
    /// The transport's error that ended the connection.
    pub(crate) failure: Option<Error>,
}

impl Link {
    pub(crate) fn new(
        transport: Transport,
        id: ConnectionId,
        peer: SocketAddr,
        (phase, origin): (Phase, Origin),
        traffic: Arc<Traffic>,
    ) -> Self {
        Self {
            transport,
            traffic,
            origin,
            id,
            phase,
            registered: false,
            input_ended: false,
            end_reported: false,
            end_output: false,
            output_ended: false,
            paused: false,
            congested: false,
            wants_writable: false,
            wants_input: false,
            listed: false,
            is_heavy: false,
            touched: false,
            drain_reported: false,
            requests_left: 0,
            input: InputBuffer::default(),
            input_is_lent: false,
            output: OutputQueue::default(),
            held_bytes: [0; MemoryPart::COUNT],
            kept_bytes: 0,
            held_since_ns: 0,
            arriving_since_ns: 0,
            sent: 0,
            pace: Pace::default(),
            pace_watched: false,
            deadline_tick: 0,
            armed_tick: 0,
            precise_timer: None,
            peer,
            failure: None,
        }
    }

    /// Ends the connection. If it has ended already, the first reason stands.
    pub(crate) fn close(&mut self, reason: Closed) {
        if !self.is_closed() {
            self.phase = Phase::Closed(reason);
        }
    }

    /// Ends the connection with an error of its transport. The protocol gets the error's text when the connection is removed.
    #[cold]
    pub(crate) fn fail(&mut self, error: Error) {
        let reason = match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => Closed::Peer,
            // The peer's TCP connection ended without a close_notify.
            ErrorKind::UnexpectedEof => Closed::Peer,
            _ => Closed::Transport,
        };
        self.close(reason);
        self.failure = Some(error);
    }

    /// Sends the queue, then closes: see [`crate::Io::finish`].
    pub(crate) fn finish(&mut self) {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Finishing;
                // From here on only the peer's pace is watched.
                self.deadline_tick = 0;
            }
            Phase::Connecting | Phase::Handshaking => self.close(Closed::Finished),
            Phase::Finishing | Phase::Lingering { .. } | Phase::Closed(_) => {}
        }
    }

    /// Ends a pause. `true`: input was paused, and `input` is to be called.
    pub(crate) fn resume_input(&mut self) -> bool {
        let was_paused = std::mem::take(&mut self.paused);
        self.wants_input |= was_paused;
        was_paused
    }

    /// Ends a pause if there is one; `input` is to be called in any case.
    pub(crate) fn call_input(&mut self) {
        self.paused = false;
        self.wants_input = true;
    }

    /// Whether the protocol must stop producing.
    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        self.congested || self.output.unsent() > self.traffic.output_high_water
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    /// For how long the connection has held memory of a part without progress.
    pub(crate) fn held_for_ns(&self, part: MemoryPart, now_ns: u64) -> u64 {
        match part {
            MemoryPart::Buffers if self.has_unsent() => self.pace.behind_ns(now_ns),
            MemoryPart::Buffers => now_ns.saturating_sub(self.held_since_ns),
            MemoryPart::Arriving => now_ns.saturating_sub(self.arriving_since_ns),
        }
    }

    /// Whether bytes wait to be sent: in the write queue, or in the transport.
    #[inline]
    pub(crate) fn has_unsent(&self) -> bool {
        !self.output.is_empty() || self.transport.has_pending()
    }

    /// Whether the protocol may be called with input now.
    #[inline]
    pub(crate) fn takes_input(&self) -> bool {
        self.phase == Phase::Open && !self.paused && !self.congested
    }

    /// Whether the protocol's `writable` call is due.
    #[inline]
    pub(crate) fn owes_writable(&self) -> bool {
        self.wants_writable && !self.congested && self.output.unsent() <= self.traffic.output_low_water
    }

    /// Whether a read may bring bytes, and the buffer has room for them.
    #[inline]
    fn may_read(&self) -> bool {
        self.transport.is_readable() && !self.input_ended && self.input.len() < self.traffic.input_bytes_max
    }

    /// Whether a write would send bytes: the turn before stopped at its limit of file bytes.
    #[inline]
    fn may_write(&self) -> bool {
        !self.output.is_empty() && !self.output_ended && self.transport.is_writable()
    }

    /// Whether this connection has work for the next tick without an event.
    #[inline(always)] // once a turn
    pub(crate) fn has_more(&self) -> bool {
        match self.phase {
            Phase::Open => {
                self.owes_writable() || self.may_write() || self.takes_input() && (self.wants_input || self.may_read())
            }
            Phase::Finishing => self.may_write(),
            Phase::Lingering { .. } => self.transport.is_readable() || !self.registered,
            Phase::Handshaking => self.transport.is_readable(),
            _ => false,
        }
    }
}
