//! Another connection of the same loop, reached from a connection's own turn or from a loop's state.
//!
//! Connections of one loop run on one thread, one at a time, so they may reach one another's queues directly: bytes go from the
//! read buffer of one into the write queue of the other in one copy, without a lock or a message. Bytes written to several
//! connections, or several times to one, leave at the end of the tick, in one write for each connection.
//!
//! A relay stops on one side at the other side's high-water mark ([`Neighbour::congested`]) and continues with its
//! [`crate::Protocol::writable`]. Protocols may share state of their own, in an `Rc`.
//!
//! A [`Neighbourhood`] is the same for code that is called from turns and from hooks, such as a client between a server's
//! connections and a peer: one type, which includes the connection whose turn it is.

use std::sync::Arc;

use crate::Loop;
use crate::address::ConnectFailure;
use crate::connection::buffers::Buffers;
use crate::connection::output::OutputQueue;
use crate::connection::piece::Piece;
use crate::connection::{Link, Phase};
use crate::event_loop::core::Core;
use crate::event_loop::lists::Lists;
use crate::protocol::{Closed, ConnectionId, Protocol};
use crate::settings::Outgoing;

/// Another open or connecting connection of the same loop.
pub struct Neighbour<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) lists: &'a mut Lists,
}

impl Core {
    /// A connection other than the one whose turn it is.
    pub(crate) fn neighbour(&mut self, id: ConnectionId) -> Option<Neighbour<'_>> {
        if usize::from(id.loop_index) != self.lp.index() {
            return None;
        }
        let connection = self.connections.get(id.slot, id.generation)?;
        Neighbour::of(&mut connection.link, &mut self.buffers, &mut self.lists)
    }
}

impl<'a> Neighbour<'a> {
    /// `None` once nothing more can be queued.
    fn of(link: &'a mut Link, buffers: &'a mut Buffers, lists: &'a mut Lists) -> Option<Self> {
        matches!(link.phase, Phase::Open | Phase::Connecting | Phase::Handshaking).then_some(Self {
            link,
            buffers,
            lists,
        })
    }
}

impl<'a> Neighbour<'a> {
    /// As [`Neighbour::output`], for as long as the loop is borrowed.
    pub fn into_output(self) -> &'a mut Vec<u8> {
        self.lists.touch(self.link);
        self.buffers.lend_output(self.link);
        self.link.output.tail()
    }
}

impl Neighbour<'_> {
    /// Its id.
    pub fn id(&self) -> ConnectionId {
        self.link.id
    }

    /// Its write queue's tail: append only. The bytes leave at the end of the tick, or once the connection is made.
    pub fn output(&mut self) -> &mut Vec<u8> {
        self.lists.touch(self.link);
        self.buffers.lend_output(self.link);
        self.link.output.tail()
    }

    /// Queues bytes that need not be copied, as [`crate::Io::output_shared`].
    pub fn output_shared(&mut self, bytes: Arc<[u8]>) {
        self.lists.touch(self.link);
        self.link.output.push(Piece::Shared(bytes));
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn unsent(&self) -> usize {
        self.link.output.unsent()
    }

    /// Bytes that the kernel has taken since the connection began.
    pub fn sent(&self) -> u64 {
        self.link.sent
    }

    /// True while its write queue is above its high-water mark. Its protocol's `writable` is called once the queue is below
    /// the low-water mark again.
    pub fn congested(&self) -> bool {
        self.link.is_congested()
    }

    /// Requests a call of its protocol's `writable` once its queue is below its low-water mark, in the next tick at the earliest.
    pub fn notify_writable(&mut self) {
        self.link.wants_writable = true;
        self.lists.touch(self.link);
    }

    /// Stops reading from its socket, as [`crate::Io::pause_input`].
    pub fn pause_input(&mut self) {
        self.link.paused = true;
    }

    /// Reads again, and has its protocol's `input` called for buffered bytes in the next tick.
    pub fn resume_input(&mut self) {
        if self.link.resume_input() {
            self.lists.touch(self.link);
        }
    }

    /// Ends a pause if there is one, and has its protocol's `input` called in the next tick in any case.
    pub fn call_input(&mut self) {
        self.link.call_input();
        self.lists.touch(self.link);
    }

    /// Reports how many bytes its protocol keeps, as [`crate::Io::keep`].
    pub fn keep(&mut self, bytes: usize) {
        self.link.kept_bytes = bytes;
        self.lists.touch(self.link);
    }

    /// Shuts its write side once the queue is sent, as [`crate::Io::end_output`].
    pub fn end_output(&mut self) {
        self.link.end_output = true;
        self.lists.touch(self.link);
    }

    /// Closes it once the queue is sent, as [`crate::Io::finish`].
    pub fn finish(&mut self) {
        self.link.finish();
        self.lists.touch(self.link);
    }

    /// Closes it at once; queued bytes may be lost.
    pub fn abort(&mut self) {
        self.link.close(Closed::Aborted);
        self.lists.touch(self.link);
    }
}

/// All connections of a loop, for a connection's turn ([`crate::Io::neighbourhood`]) or a state's hook
/// ([`crate::LoopContext::neighbourhood`]).
pub struct Neighbourhood<'a> {
    core: &'a mut Core,
    /// The connection whose turn it is: it has been taken out of its slot.
    own: Option<(ConnectionId, &'a mut OutputQueue)>,
}

impl<'a> Neighbourhood<'a> {
    pub(crate) fn of_hook(core: &'a mut Core) -> Self {
        Self { core, own: None }
    }

    /// `output` has storage.
    pub(crate) fn of_turn(core: &'a mut Core, id: ConnectionId, output: &'a mut OutputQueue) -> Self {
        Self { core, own: Some((id, output)) }
    }
}

impl Neighbourhood<'_> {
    /// The loop, for its clock and for messages to other loops.
    pub fn lp(&self) -> &Loop {
        &self.core.lp
    }

    /// The tail of the write queue of any connection, the current one included: append only. `None`: the connection is gone, is
    /// closing, or belongs to another loop.
    #[inline]
    pub fn output(&mut self, id: ConnectionId) -> Option<&mut Vec<u8>> {
        match &mut self.own {
            Some((own, output)) if *own == id => Some(output.tail()),
            _ => self.core.neighbour(id).map(Neighbour::into_output),
        }
    }

    /// Bytes queued for a connection and not yet taken by the kernel; 0 if [`Neighbourhood::output`] returns `None`.
    #[inline]
    pub fn unsent(&mut self, id: ConnectionId) -> usize {
        match &self.own {
            Some((own, output)) if *own == id => output.unsent(),
            _ => self.core.neighbour(id).map_or(0, |neighbour| neighbour.unsent()),
        }
    }

    /// A connection other than the one whose turn it is, as [`crate::Io::neighbour`].
    pub fn connection(&mut self, id: ConnectionId) -> Option<Neighbour<'_>> {
        self.core.neighbour(id)
    }

    /// Opens an outgoing connection on this loop, as [`crate::Io::connect`].
    pub fn connect(
        &mut self,
        to: impl Into<Outgoing>,
        protocol: Box<dyn Protocol>,
    ) -> Result<ConnectionId, ConnectFailure> {
        self.core.begin_connect(&to.into(), |_, _| protocol)
    }
}
