//! The interface between the reactor and a protocol: bytes in, bytes out, timers, messages. Never a socket.

use std::any::Any;

use crate::Io;
use crate::address::ConnectFailure;

/// Why a connection ended, passed to [`Protocol::closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The protocol asked for it, and the kernel took all output.
    Finished,
    /// The peer closed or reset the connection.
    Peer,
    /// An error of the connection's transport; of an accepted connection also a TLS handshake that failed or took too long.
    Transport,
    /// The loop's drain deadline passed.
    Drained,
    /// The protocol called [`Io::abort`].
    Aborted,
    /// A call of the protocol panicked.
    Panicked,
    /// The peer was behind the minimum rate of receiving for [`crate::Traffic::send_behind_max`].
    Stalled,
    /// A part of the memory was short, and this connection was among its largest holders.
    Hoarded,
    /// An outgoing connection that could not be made.
    Unconnected(ConnectFailure),
}

/// Parts of the memory that connections hold between their turns. Each has a bound over all connections of a loop; if it is
/// exceeded, the largest holders are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum MemoryPart {
    /// Unread input, unsent output, and replies that the protocol keeps: [`crate::ReactorSettings::held_bytes_max`].
    Buffers,
    /// Arriving messages that the protocol gathers: [`crate::ReactorSettings::arriving_bytes_max`].
    Arriving,
}

impl MemoryPart {
    pub(crate) const COUNT: usize = 2;
    pub(crate) const ALL: [MemoryPart; MemoryPart::COUNT] = [MemoryPart::Buffers, MemoryPart::Arriving];
}

/// A generational id of one connection, valid on every thread. A stale id refers to no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Which loop owns the connection.
    pub loop_index: u16,
    /// Its slot in that loop's slab.
    pub slot: u32,
    /// Raised each time the slot is reused; never zero.
    pub generation: u32,
}

/// A message from another thread or connection to a connection, through its loop's mailbox.
#[derive(Debug)]
pub struct Message {
    /// A number with a meaning of the protocol's own (for HTTP: which reply of the connection).
    pub tag: u64,
    /// Any value.
    pub payload: Box<dyn Any + Send>,
}

/// One connection's protocol. Lives and dies on one loop thread; need not be `Send`.
///
/// A panic in any of these calls closes this connection with [`Closed::Panicked`] and touches no other.
pub trait Protocol {
    /// The first call for an accepted connection, before any byte was read: sets the first deadline, or speaks first.
    /// [`Protocol::input`] may follow in the same turn. An outgoing connection gets [`Protocol::writable`] instead.
    fn opened(&mut self, _io: &mut Io<'_>) {}
    /// Bytes arrived, or the peer's half of the stream ended (`io.input_ended()`), or a turn that ran out of budget continues.
    /// The protocol reads `io.input()`, calls `io.consume(n)`, appends to `io.output()`, and calls `io.spend(1)` for each
    /// request. Once that returns `false`, it leaves the rest for the next tick (the loop calls again by itself).
    fn input(&mut self, io: &mut Io<'_>);
    /// `input` is in the connection's buffer, and [`Protocol::input`] will be called for it after other connections' calls: the
    /// time to prefetch memory that it will touch. A hint without effect on the result, called only for a part of the inputs.
    fn foresee(&mut self, _input: &[u8]) {}
    /// All protocols of a batch, this one included, have looked ahead; calls of their `input` follow.
    fn prepare(&mut self) {}
    /// The write queue fell to its low-water mark after having been above the high-water mark, or `io.notify_writable()` was
    /// called: the protocol may produce more.
    fn writable(&mut self, _io: &mut Io<'_>) {}
    /// A message from the mailbox. Output written for all messages of a tick leaves at the end of the tick, in one write.
    fn message(&mut self, _message: Message, _io: &mut Io<'_>) {}
    /// The connection's timer (one per connection, see [`Io::set_timer`]) ran out.
    fn timer(&mut self, _io: &mut Io<'_>) {}
    /// The connection's precise timer (see [`Io::set_precise_timer`]) ran out.
    fn precise_timer(&mut self, _io: &mut Io<'_>) {}
    /// The loop drains: finish the work at hand, then close. Called once, after [`Protocol::input`] for what had arrived by then.
    fn drain(&mut self, io: &mut Io<'_>) {
        io.finish();
    }
    /// A part of the memory is short, and this connection is among its largest holders. The protocol may send an error and call
    /// [`Io::finish`]. If it still holds any of the part afterwards, it is closed.
    fn hoards(&mut self, _part: MemoryPart, io: &mut Io<'_>) {
        io.abort();
    }
    /// The text of the transport's error that ends this connection: with TLS, why a handshake or a record was refused. `closed`
    /// follows.
    fn failed(&mut self, _error: &std::io::Error) {}
    /// The last call; the connection is gone.
    fn closed(&mut self, _reason: Closed) {}
}
