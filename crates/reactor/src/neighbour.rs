//! Another connection of the same loop, reached from a connection's own turn or from a loop's state.
//!
//! Connections of one loop run on one thread, one at a time, so they may reach one another's queues directly: bytes go from
//! the read buffer of one into the write queue of the other in one copy, without a lock and without a message. What is
//! written to several connections, or several times to one, leaves at the end of the tick, in one write for each.
//!
//! A relay is stopped on the one side by the other's high-water mark ([`Neighbour::congested`]) and goes on with its
//! [`crate::Protocol::writable`]. The protocols' own state is theirs to share, in an `Rc`.

use std::sync::Arc;

use crate::buffers::Buffers;
use crate::connection::{Link, Phase};
use crate::lists::Lists;
use crate::protocol::{Closed, ConnectionId};

/// Another open connection of the same loop, or one that is being made.
pub struct Neighbour<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) lists: &'a mut Lists,
}

impl<'a> Neighbour<'a> {
    /// `None` once nothing more can be queued.
    pub(crate) fn of(link: &'a mut Link, buffers: &'a mut Buffers, lists: &'a mut Lists) -> Option<Self> {
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
        self.link.output.push_shared(bytes);
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn unsent(&self) -> usize {
        self.link.output.unsent()
    }

    /// True while its write queue is above its high-water mark. Its protocol's `writable` is called once the queue is below
    /// the low-water mark again.
    pub fn congested(&self) -> bool {
        self.link.is_congested()
    }

    /// Has its protocol's `writable` called once its queue is below its low-water mark, next tick at the earliest.
    pub fn notify_writable(&mut self) {
        self.link.wants_writable = true;
        self.lists.touch(self.link);
    }

    /// Stops reading from its socket, as [`crate::Io::pause_input`].
    pub fn pause_input(&mut self) {
        self.link.paused = true;
    }

    /// Reads again, and has its protocol's `input` called for what is buffered, next tick.
    pub fn resume_input(&mut self) {
        if self.link.resume_input() {
            self.lists.touch(self.link);
        }
    }

    /// Shuts its write side once all that is queued was sent, as [`crate::Io::end_output`].
    pub fn end_output(&mut self) {
        self.link.end_output = true;
        self.lists.touch(self.link);
    }

    /// Closes it once all that is queued was sent, as [`crate::Io::finish`].
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
