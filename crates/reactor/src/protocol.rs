//! What a protocol sees of the reactor: bytes in, bytes out, timers, messages. Never a socket.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Why a connection ended, told to [`Protocol::closed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The protocol asked for it, and everything it had written was taken by the kernel.
    Finished,
    /// The peer closed or reset the connection.
    Peer,
    /// A transport error.
    Transport,
    /// The loop's drain deadline passed.
    Drained,
}

/// A generational id of one connection, valid on every thread; a stale id reaches nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Which loop owns the connection.
    pub loop_index: u16,
    /// Its place in that loop's slab, and the place's generation.
    pub slot: u32,
    /// Raised each time the slot is reused.
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
pub trait Protocol {
    /// Bytes arrived, or the peer's half of the stream ended (`io.input_ended()`), or a turn that ran out of budget
    /// goes on. Reads `io.input()`, says `io.consume(n)`, appends to `io.output()`, and calls `io.spend(1)` for each
    /// request; once that returns `false` it leaves the rest for the next tick (the loop calls again by itself).
    fn input(&mut self, io: &mut Io<'_>);
    /// The write queue fell below its low-water mark after having been above the high-water mark, or
    /// `io.notify_writable()` had been asked for: the protocol may produce more.
    fn writable(&mut self, _io: &mut Io<'_>) {}
    /// A message from the mailbox.
    fn message(&mut self, _message: Message, _io: &mut Io<'_>) {}
    /// The connection's timer (one per connection, see [`Io::set_timer`]) ran out.
    fn timer(&mut self, _io: &mut Io<'_>) {}
    /// The loop drains: finish what is in hand, then close; called once.
    fn drain(&mut self, io: &mut Io<'_>) {
        io.finish();
    }
    /// The last call; the connection is gone.
    fn closed(&mut self, _reason: Closed) {}
}

/// Makes protocols for accepted connections; one per loop and listener, living on the loop's thread.
pub trait Accept {
    /// A connection was accepted. `None` refuses it (it is closed at once).
    fn accept(&mut self, peer: SocketAddr, id: ConnectionId, lp: &Loop) -> Option<Box<dyn Protocol>>;
}

/// Makes the per-loop acceptor of one listener; shared by all loops.
pub trait Factory: Send + Sync {
    /// Called once on each loop's own thread, before its first event.
    fn acceptor(&self, lp: &Loop) -> Box<dyn Accept>;
}

/// A loop as seen from its own thread and from others: cheap to clone, `Send + Sync`.
#[derive(Clone)]
pub struct Loop {
    _todo: Arc<()>,
}

impl Loop {
    /// Which loop of the reactor this is.
    pub fn index(&self) -> usize {
        unimplemented!()
    }
    /// Sends a message to a connection of this loop, from any thread. One wake-up for a sleeping loop, none for a
    /// running one. A stale id drops the message (its payload's `Drop` runs on the loop's thread).
    pub fn send(&self, _to: ConnectionId, _message: Message) {
        unimplemented!()
    }
    /// Runs a closure on the loop's thread.
    pub fn run(&self, _task: Box<dyn FnOnce(&Loop) + Send>) {
        unimplemented!()
    }
    /// The loop's coarse clock: nanoseconds of CLOCK_MONOTONIC, read once a tick.
    pub fn now_ns(&self) -> u64 {
        unimplemented!()
    }
}

/// One connection's buffers and switches, handed to each [`Protocol`] call.
pub struct Io<'a> {
    _todo: &'a mut (),
}

impl Io<'_> {
    /// The bytes received and not consumed yet, contiguous.
    pub fn input(&self) -> &[u8] {
        unimplemented!()
    }
    /// Drops the first `n` bytes of the input.
    pub fn consume(&mut self, _n: usize) {
        unimplemented!()
    }
    /// The peer sends no more (half-closed); the input may still hold bytes.
    pub fn input_ended(&self) -> bool {
        unimplemented!()
    }
    /// Input and output at once, so that a reply can be written from slices of the request.
    pub fn split(&mut self) -> (&[u8], &mut Vec<u8>) {
        unimplemented!()
    }
    /// The write queue's tail: appended bytes leave in one write at the end of this connection's turn.
    pub fn output(&mut self) -> &mut Vec<u8> {
        unimplemented!()
    }
    /// Queues bytes that need not be copied (static files, large fixed bodies), after what was appended so far.
    pub fn output_shared(&mut self, _bytes: Arc<[u8]>) {
        unimplemented!()
    }
    /// Bytes queued and not yet taken by the kernel.
    pub fn unsent(&self) -> usize {
        unimplemented!()
    }
    /// True while the write queue is above its high-water mark: produce no more until [`Protocol::writable`].
    pub fn congested(&self) -> bool {
        unimplemented!()
    }
    /// Asks for one [`Protocol::writable`] call once the queue is below its low-water mark.
    pub fn notify_writable(&mut self) {
        unimplemented!()
    }
    /// Stops reading from the socket (back-pressure to the peer) until `resume_input`.
    pub fn pause_input(&mut self) {
        unimplemented!()
    }
    /// Reads again, and calls [`Protocol::input`] for what is buffered.
    pub fn resume_input(&mut self) {
        unimplemented!()
    }
    /// Counts requests against the tick's budget of this connection; `false`: leave the rest for the next tick.
    pub fn spend(&mut self, _requests: u32) -> bool {
        unimplemented!()
    }
    /// Sets (or replaces) the connection's one timer, on the loop's wheel (resolution 10 ms); `None` clears it.
    pub fn set_timer(&mut self, _after: Option<Duration>) {
        unimplemented!()
    }
    /// Closes in the way that loses no reply: sends all that is queued, shuts down writing, reads and drops at most
    /// a bounded number of bytes for a bounded time, closes. The protocol is called no more except `closed`.
    pub fn finish(&mut self) {
        unimplemented!()
    }
    /// Closes at once; queued bytes may be lost.
    pub fn abort(&mut self) {
        unimplemented!()
    }
    /// This connection's id.
    pub fn id(&self) -> ConnectionId {
        unimplemented!()
    }
    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        unimplemented!()
    }
    /// The loop, for messages to other connections and for opening outgoing ones.
    pub fn lp(&self) -> &Loop {
        unimplemented!()
    }
    /// Opens an outgoing connection on this loop, on the same footing as accepted ones. Its protocol's first call is
    /// `writable` once connected, or `closed(Transport)`.
    pub fn connect(&mut self, _to: SocketAddr, _protocol: Box<dyn Protocol>) -> std::io::Result<ConnectionId> {
        unimplemented!()
    }
}
