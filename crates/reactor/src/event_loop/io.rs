//! One connection's buffers and switches, passed to each call of its protocol.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::Loop;
use crate::address::ConnectFailure;
use crate::connection::piece::Piece;
use crate::connection::{Link, Phase};
use crate::event_loop::core::Core;
use crate::event_loop::neighbour::{Neighbour, Neighbourhood};
use crate::fleet::nanoseconds;
use crate::protocol::{Closed, ConnectionId, Protocol};
use crate::settings::Outgoing;
use crate::timers::Due;

/// One connection's buffers and switches, passed to each [`Protocol`] call.
pub struct Io<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) core: &'a mut Core,
}

impl Io<'_> {
    /// The bytes received and not consumed yet, contiguous.
    pub fn input(&self) -> &[u8] {
        self.link.input.filled()
    }

    /// Drops the first `n` bytes of the input.
    pub fn consume(&mut self, n: usize) {
        self.link.input.consume(n);
        self.link.held_since_ns = self.core.now_ns;
    }

    /// The peer sends no more (half-closed); the input may still hold bytes.
    pub fn input_ended(&self) -> bool {
        self.link.input_ended
    }

    /// Input and output at once, so that a reply can be written from slices of the request.
    pub fn split(&mut self) -> (&[u8], &mut Vec<u8>) {
        self.core.buffers.lend_output(self.link);
        (self.link.input.filled(), self.link.output.tail())
    }

    /// The write queue's tail. Appended bytes leave in one write at the end of this connection's turn. Append only: the bytes
    /// before belong to earlier replies.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.core.buffers.lend_output(self.link);
        self.link.output.tail()
    }

    /// Queues bytes without a copy (static files, large fixed bodies), after the bytes appended so far.
    pub fn output_shared(&mut self, bytes: Arc<[u8]>) {
        self.output_piece(Piece::Shared(bytes));
    }

    /// Queues a piece without a copy, after the bytes appended so far.
    pub fn output_piece(&mut self, piece: Piece) {
        self.link.output.push(piece);
    }

    /// Queues pieces between bytes that were appended to [`Io::output`] since the last piece: each piece goes out before the byte
    /// at its index. The indices ascend. Empties `pieces`.
    pub fn output_pieces(&mut self, pieces: &mut Vec<(usize, Piece)>) {
        for (at, piece) in pieces.drain(..) {
            self.link.output.splice(at, piece);
        }
    }

    /// Reports how many bytes the protocol keeps between its turns beside this connection's input and output: replies that wait
    /// for earlier replies, say. They count against [`crate::ReactorSettings::held_bytes_max`].
    #[inline]
    pub fn keep(&mut self, bytes: usize) {
        self.link.kept_bytes = bytes;
    }

    /// Reports how many bytes of an arriving message the protocol holds, and since when, by the loop's clock, the peer has been
    /// below the minimum rate: see [`crate::ReactorSettings::arriving_bytes_max`].
    pub fn gather(&mut self, bytes: usize, since_ns: u64) {
        self.link.arriving_since_ns = since_ns;
        self.core.recount(self.link, crate::MemoryPart::Arriving, bytes);
    }

    /// How long the peer has been behind the minimum rate of receiving.
    pub fn behind(&self) -> Duration {
        Duration::from_nanos(self.link.pace.behind_ns(self.core.now_ns))
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn unsent(&self) -> usize {
        self.link.output.unsent()
    }

    /// True while the write queue is above its high-water mark: produce no more until [`Protocol::writable`].
    pub fn congested(&self) -> bool {
        self.link.is_congested()
    }

    /// Asks for one [`Protocol::writable`] call once the queue is below its low-water mark, in a later tick.
    pub fn notify_writable(&mut self) {
        self.link.wants_writable = true;
    }

    /// Stops reading from the socket (back-pressure to the peer) until `resume_input`.
    pub fn pause_input(&mut self) {
        self.link.paused = true;
    }

    /// Reads again, and calls [`Protocol::input`] for what is buffered (in the next tick).
    pub fn resume_input(&mut self) {
        self.link.resume_input();
    }

    /// Ends a pause if there is one, and has [`Protocol::input`] called in the next tick in any case.
    pub fn call_input(&mut self) {
        self.link.call_input();
    }

    /// Charges requests against this connection's budget for the tick, and reads the clock at every few requests. `false`: the
    /// charged requests may still be served, the rest waits for the next tick. Also `false` while [`Io::congested`].
    #[inline]
    pub fn spend(&mut self, requests: u32) -> bool {
        self.link.requests_left = self.link.requests_left.saturating_sub(requests);
        let is_heavy = self.core.time.turn_is_over();
        self.link.is_heavy |= is_heavy;
        let may_go_on = self.link.requests_left > 0 && !is_heavy && !self.congested();
        self.link.wants_input |= !may_go_on;
        may_go_on
    }

    /// For a call other than [`Protocol::input`] that would continue with the input. `true`: the tick is over and the input must
    /// wait; [`Protocol::input`] is called in the next tick.
    pub fn has_to_wait(&mut self) -> bool {
        let is_over = self.core.time.tick_is_over();
        self.link.wants_input |= is_over;
        is_over
    }

    /// Sets (or replaces) the connection's one timer, on the loop's wheel (resolution 10 ms); `None` clears it. No effect before
    /// an outgoing connection is made and after [`Io::finish`]: the loop uses the timer then.
    pub fn set_timer(&mut self, after: Option<Duration>) {
        if self.link.phase == Phase::Open {
            self.core.set_timer(self.link, after.map(nanoseconds));
        }
    }

    /// Sets (or replaces) the connection's precise timer: [`Protocol::precise_timer`] is called at that moment of
    /// [`Loop::now_ns`]'s clock, to the microsecond; `None` clears it. Costs more than `set_timer`: an entry in a heap. The entry
    /// is moved or removed in place, so a timer for each request in flight leaves nothing behind.
    pub fn set_precise_timer(&mut self, at_ns: Option<u64>) {
        let due = Due::Connection(self.link.id);
        self.core.timers.set(&mut self.link.precise_timer, at_ns, due);
    }

    /// Shuts the write side once all that is queued was sent; input goes on. The connection ends with
    /// [`Closed::Finished`] when both sides have ended and [`Protocol::input`] has been called with the peer's end.
    pub fn end_output(&mut self) {
        self.link.end_output = true;
    }

    /// Closes without losing a reply: sends the queue, shuts the write side, reads and drops a bounded number of bytes for a
    /// bounded time, closes. The protocol gets no further call but `closed`.
    pub fn finish(&mut self) {
        self.link.finish();
    }

    /// Closes at once; queued bytes may be lost.
    pub fn abort(&mut self) {
        self.link.close(Closed::Aborted);
    }

    /// Closes at once, by a reset, because the connection holds memory without progress: [`Closed::Hoarded`].
    pub fn cut(&mut self) {
        self.link.close(Closed::Hoarded);
    }

    /// This connection's id.
    pub fn id(&self) -> ConnectionId {
        self.link.id
    }

    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.link.peer
    }

    /// The loop, for messages to other connections and for opening outgoing ones.
    pub fn lp(&self) -> &Loop {
        &self.core.lp
    }

    /// Opens an outgoing connection on this loop, as accepted connections are served: to an address, or with settings of its own.
    /// Its protocol's first call is `writable` once connected, or `closed(Unconnected)`. Bytes queued for it before
    /// ([`Io::neighbour`]) leave then.
    pub fn connect(
        &mut self,
        to: impl Into<Outgoing>,
        protocol: Box<dyn Protocol>,
    ) -> Result<ConnectionId, ConnectFailure> {
        self.core.begin_connect(&to.into(), |_, _| protocol)
    }

    /// Another connection of this loop. `None`: it is gone, is closing, belongs to another loop, or is this one.
    pub fn neighbour(&mut self, id: ConnectionId) -> Option<Neighbour<'_>> {
        self.core.neighbour(id)
    }

    /// This connection's input and another connection at once, so that input is copied once into the other's output.
    pub fn input_and_neighbour(&mut self, id: ConnectionId) -> Option<(&[u8], Neighbour<'_>)> {
        Some((self.link.input.filled(), self.core.neighbour(id)?))
    }

    /// All connections of the loop, this one included.
    pub fn neighbourhood(&mut self) -> Neighbourhood<'_> {
        self.input_and_neighbourhood().1
    }

    /// This connection's input and all connections of the loop at once, so that code that parses the input in place can write to
    /// the others.
    pub fn input_and_neighbourhood(&mut self) -> (&[u8], Neighbourhood<'_>) {
        self.core.buffers.lend_output(self.link);
        let Link { id, input, output, .. } = &mut *self.link;
        (input.filled(), Neighbourhood::of_turn(self.core, *id, output))
    }
}
