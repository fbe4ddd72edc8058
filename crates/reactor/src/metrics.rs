//! Counters of a loop, readable from every thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::address::ConnectFailure;
use crate::protocol::Closed;

/// A number that other threads may read.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For a counter written by one thread: a plain add, without the bus lock of a shared one.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    /// For a gauge written by one thread.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// For counters that several threads write.
    pub(crate) fn add_shared(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters that the loop writes, on cache lines away from those that other threads write.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) ticks: Counter,
    pub(crate) events: Counter,
    pub(crate) reads: Counter,
    pub(crate) writes: Counter,
    pub(crate) held_bytes: Counter,
    pub(crate) arriving_bytes: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) accepted: Counter,
    pub(crate) handed_over: Counter,
    pub(crate) refused: Counter,
    pub(crate) connected: Counter,
    pub(crate) accept_pauses: Counter,
    pub(crate) mailbox_messages: Counter,
    pub(crate) stale_messages: Counter,
    pub(crate) panics: Counter,
    pub(crate) timers: Counter,
    pub(crate) handshakes: Counter,
    pub(crate) handshakes_failed: Counter,
    closed: [Counter; CLOSED_REASONS],
}

const CLOSED_REASONS: usize = 9;

impl Counters {
    pub(crate) fn count_closed(&self, reason: Closed) {
        self.closed[index_of(reason)].add(1);
    }

    pub(crate) fn read(&self, open: usize, wakes: &Counter) -> LoopMetrics {
        let closed = |reason: Closed| self.closed[index_of(reason)].get();
        LoopMetrics {
            open: open as u64,
            ticks: self.ticks.get(),
            events: self.events.get(),
            reads: self.reads.get(),
            writes: self.writes.get(),
            held_bytes: self.held_bytes.get(),
            arriving_bytes: self.arriving_bytes.get(),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            accepted: self.accepted.get(),
            handed_over: self.handed_over.get(),
            refused: self.refused.get(),
            connected: self.connected.get(),
            accept_pauses: self.accept_pauses.get(),
            mailbox_messages: self.mailbox_messages.get(),
            stale_messages: self.stale_messages.get(),
            wakes: wakes.get(),
            panics: self.panics.get(),
            timers: self.timers.get(),
            handshakes: self.handshakes.get(),
            handshakes_failed: self.handshakes_failed.get(),
            closed_finished: closed(Closed::Finished),
            closed_peer: closed(Closed::Peer),
            closed_transport: closed(Closed::Transport),
            closed_drained: closed(Closed::Drained),
            closed_aborted: closed(Closed::Aborted),
            closed_panicked: closed(Closed::Panicked),
            closed_stalled: closed(Closed::Stalled),
            closed_hoarded: closed(Closed::Hoarded),
            closed_unconnected: closed(Closed::Unconnected(ConnectFailure::Refused)),
        }
    }
}

/// Index of the counter of a reason; all reasons of a failed connect share one.
fn index_of(reason: Closed) -> usize {
    match reason {
        Closed::Finished => 0,
        Closed::Peer => 1,
        Closed::Transport => 2,
        Closed::Drained => 3,
        Closed::Aborted => 4,
        Closed::Panicked => 5,
        Closed::Stalled => 6,
        Closed::Hoarded => 7,
        Closed::Unconnected(_) => CLOSED_REASONS - 1,
    }
}

/// Counters of one loop at a moment. All only grow, except `open`, `held_bytes`, `arriving_bytes` and `timers`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoopMetrics {
    /// Connections open now, accepted and outgoing.
    pub open: u64,
    /// Ticks of the loop.
    pub ticks: u64,
    /// Events taken from the kernel.
    pub events: u64,
    /// Reads from connections, without the reads that only drop lingering input.
    pub reads: u64,
    /// Writes to connections.
    pub writes: u64,
    /// Bytes that connections hold between their turns, now: see [`crate::ReactorSettings::held_bytes_max`].
    pub held_bytes: u64,
    /// Bytes of arriving messages, now: see [`crate::ReactorSettings::arriving_bytes_max`].
    pub arriving_bytes: u64,
    /// Bytes read from connections.
    pub bytes_in: u64,
    /// Bytes written to connections.
    pub bytes_out: u64,
    /// Connections accepted by this loop, including those handed over to other loops.
    pub accepted: u64,
    /// Connections that this loop accepted and handed over to another loop.
    pub handed_over: u64,
    /// Connections that the acceptor refused.
    pub refused: u64,
    /// Outgoing connections made.
    pub connected: u64,
    /// Times that accepting paused for lack of descriptors or at `connections_max`.
    pub accept_pauses: u64,
    /// Mail taken: messages, closures, handed-over connections.
    pub mailbox_messages: u64,
    /// Messages whose connection was gone.
    pub stale_messages: u64,
    /// Wake-ups requested from the kernel by senders.
    pub wakes: u64,
    /// Panics caught.
    pub panics: u64,
    /// Precise timers of connections, and delayed closures, that wait now.
    pub timers: u64,
    /// TLS handshakes done, of accepted and of outgoing connections.
    pub handshakes: u64,
    /// TLS handshakes that failed, or took too long.
    pub handshakes_failed: u64,
    /// Connections closed by [`Closed::Finished`].
    pub closed_finished: u64,
    /// Connections closed by [`Closed::Peer`].
    pub closed_peer: u64,
    /// Connections closed by [`Closed::Transport`].
    pub closed_transport: u64,
    /// Connections closed by [`Closed::Drained`].
    pub closed_drained: u64,
    /// Connections closed by [`Closed::Aborted`].
    pub closed_aborted: u64,
    /// Connections closed by [`Closed::Panicked`].
    pub closed_panicked: u64,
    /// Connections closed by [`Closed::Stalled`].
    pub closed_stalled: u64,
    /// Connections closed by [`Closed::Hoarded`].
    pub closed_hoarded: u64,
    /// Outgoing connections that could not be made: [`Closed::Unconnected`].
    pub closed_unconnected: u64,
}

/// The counters of all loops.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReactorMetrics {
    /// One for each loop.
    pub loops: Vec<LoopMetrics>,
}

impl ReactorMetrics {
    /// The sum of one counter over the loops: `metrics.sum(|l| l.accepted)`.
    pub fn sum(&self, counter: impl Fn(&LoopMetrics) -> u64) -> u64 {
        self.loops.iter().map(counter).sum()
    }
}
