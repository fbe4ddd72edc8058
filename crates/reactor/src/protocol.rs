//! What a protocol sees of the reactor: bytes in, bytes out, timers, messages. Never a socket.

use std::any::Any;
use std::net::SocketAddr;

use crate::address::ConnectFailure;
use crate::state::Setup;
use crate::{Io, Loop};

/// Why a connection ended, told to [`Protocol::closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The protocol asked for it, and everything it had written was taken by the kernel.
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
    /// The peer was behind the least rate of taking for [`crate::Traffic::send_behind_max`].
    Stalled,
    /// A part of the memory was short, and this connection held most of it.
    Hoarded,
    /// An outgoing connection that could not be made.
    Unconnected(ConnectFailure),
}

/// Parts of what connections hold between their turns. Each has its bound, over all connections of a loop; the connections
/// that hold most of a part beyond it are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Part {
    /// Unread input, unsent output, and what the protocol keeps of replies: [`crate::Settings::held_bytes_max`].
    Buffers,
    /// Messages that arrive and that the protocol gathers: [`crate::Settings::arriving_bytes_max`].
    Arriving,
}

impl Part {
    pub(crate) const COUNT: usize = 2;
    pub(crate) const ALL: [Part; Part::COUNT] = [Part::Buffers, Part::Arriving];
}

/// A generational id of one connection, valid on every thread; a stale id reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Which loop owns the connection.
    pub loop_index: u16,
    /// Its place in that loop's slab.
    pub slot: u32,
    /// Raised each time the slot is reused; never zero.
    pub generation: u32,
}

/// What another thread (or another connection) says to a connection through its loop's mailbox.
#[derive(Debug)]
pub struct Message {
    /// A number of the protocol's own (for HTTP: which reply of the connection).
    pub tag: u64,
    /// Anything.
    pub payload: Box<dyn Any + Send>,
}

/// One connection's protocol. Lives and dies on one loop thread; need not be `Send`.
///
/// A panic in any of these calls closes this connection with [`Closed::Panicked`] and touches no other.
pub trait Protocol {
    /// The first call for an accepted connection, before any byte was read: the place to set the first deadline, or to
    /// speak first. [`Protocol::input`] may follow in the same turn. An outgoing connection gets [`Protocol::writable`] instead.
    fn opened(&mut self, _io: &mut Io<'_>) {}
    /// Bytes arrived, or the peer's half of the stream ended (`io.input_ended()`), or a turn that ran out of budget
    /// goes on. Reads `io.input()`, says `io.consume(n)`, appends to `io.output()`, and calls `io.spend(1)` for each
    /// request; once that returns `false` it leaves the rest for the next tick (the loop calls again by itself).
    fn input(&mut self, io: &mut Io<'_>);
    /// `input` stands in the connection's buffer, and [`Protocol::input`] will be called for it after other connections'
    /// calls: the time to ask for memory that it will touch. A hint; it comes for part of the inputs, and changes nothing.
    fn foresee(&mut self, _input: &[u8]) {}
    /// The protocols of some connections have looked ahead, this one's among them, and their `input` is next.
    fn prepare(&mut self) {}
    /// The write queue fell below its low-water mark after having been above the high-water mark, or
    /// `io.notify_writable()` had been asked for: the protocol may produce more.
    fn writable(&mut self, _io: &mut Io<'_>) {}
    /// A message from the mailbox. What the messages of one tick write leaves at its end, in one write.
    fn message(&mut self, _message: Message, _io: &mut Io<'_>) {}
    /// The connection's timer (one per connection, see [`Io::set_timer`]) ran out.
    fn timer(&mut self, _io: &mut Io<'_>) {}
    /// The connection's precise timer (see [`Io::set_precise_timer`]) ran out.
    fn precise_timer(&mut self, _io: &mut Io<'_>) {}
    /// The loop drains: finish what is in hand, then close; called once. What had arrived by then was given to
    /// [`Protocol::input`] before.
    fn drain(&mut self, io: &mut Io<'_>) {
        io.finish();
    }
    /// This connection holds most of a part that is short. It may say so, and [`Io::finish`]; if it holds anything of the part
    /// afterwards, it is closed.
    fn hoards(&mut self, _part: Part, io: &mut Io<'_>) {
        io.abort();
    }
    /// What the transport says of the error that ends this connection: of TLS, why a handshake or a record was refused. `closed` follows.
    fn failed(&mut self, _error: &std::io::Error) {}
    /// The last call; the connection is gone.
    fn closed(&mut self, _reason: Closed) {}
}

/// Makes protocols for accepted connections; one per loop and listener, living on the loop's thread.
pub trait Accept {
    /// A connection was accepted. `None` refuses it (it is closed at once).
    fn accept(&mut self, peer: SocketAddr, id: ConnectionId, lp: &Loop) -> Option<Box<dyn Protocol>>;
    /// Somebody waits to be accepted, and no connection more may be open: the time to end those that one can do without. What is
    /// said to connections here goes through the mailbox, which is read in the same tick. A panic is counted, and ends nothing.
    fn crowded(&mut self) {}
}

/// Makes the per-loop acceptor of one listener; shared by all loops.
pub trait Factory: Send + Sync {
    /// Called once on each loop's own thread, before its first event. What these protocols share with the loop's hooks is a
    /// state of the loop ([`Setup::add_state`]).
    fn acceptor(&self, setup: &mut Setup<'_>) -> Box<dyn Accept>;
}
