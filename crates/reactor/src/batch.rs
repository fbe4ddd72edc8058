//! A batch: ready connections that are all read first, then all answered, then all written.
//!
//! The data that a request needs is mostly not in the processor's caches, and a request served alone waits for memory. The next
//! requests already wait in the kernel. So a few connections are read first, their protocols look ahead and prefetch what they
//! will need ([`crate::Protocol::foresee`], [`crate::Protocol::prepare`]), and while the first is answered the memory of the
//! others is being loaded.
//!
//! The code that answers a request leaves the caches too: a write runs the kernel's network stack, which is larger than a first-level
//! cache of instructions. So the replies of a batch are written after the last of them is made.
//!
//! The batch is short: a longer one would evict its own data from the first-level cache, and each connection in it holds a lent
//! buffer.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Loop;
use crate::buffers::BATCH_MAX;
use crate::connection::Connection;
use crate::event_loop::EventLoop;
use crate::kernel::Token;
use crate::protocol::{Closed, Protocol};
use crate::turn::Turn;

/// A batch of one connection looks ahead only if its input is at least this long: it may hold several requests.
const FORESEEN_ALONE_BYTES: usize = 256;

/// Connections whose turn comes next.
#[derive(Default)]
pub(crate) struct Batch {
    members: [Option<Member>; BATCH_MAX],
    len: usize,
}

#[derive(Clone, Copy)]
struct Member {
    token: Token,
    turn: Turn,
    /// Time of its turn so far, where it is counted.
    took_ns: u64,
}

impl Batch {
    /// Adds a connection with the rest of its turn. `true`: the batch is full.
    pub(crate) fn push(&mut self, token: Token, turn: Turn) -> bool {
        if let Some(place) = self.members.get_mut(self.len) {
            *place = Some(Member { token, turn, took_ns: 0 });
            self.len += 1;
        }
        self.len == BATCH_MAX
    }

    fn members(&mut self) -> impl Iterator<Item = &mut Member> {
        self.members.iter_mut().take(self.len).flatten()
    }

    fn due(&self) -> impl Iterator<Item = Token> + '_ {
        let members = self.members.iter().take(self.len).flatten();
        members.filter(|member| member.turn == Turn::Input { is_due: true }).map(|member| member.token)
    }
}

impl EventLoop {
    /// Runs the turns of the batch's connections, and empties the batch. `counts`: each one's time counts as use by its peer.
    pub(crate) fn take_turns(&mut self, batch: &mut Batch, counts: bool) {
        if batch.len == 0 {
            return;
        }
        self.look_ahead(batch);
        for member in batch.members().filter(|member| member.turn.has_answer()) {
            let mut rest = Turn::Over;
            self.turn_at(member.token, |core, connection| rest = core.answer_or_put_off(connection, member.turn));
            (member.turn, member.took_ns) = (rest, if counts { self.lap() } else { 0 });
        }
        for Member { token, turn, took_ns } in batch.members() {
            let mut peer = None;
            // A connection that has nothing left to do is removed here, if it has ended.
            self.turn_at(*token, |core, connection| {
                peer = (counts && *turn != Turn::Over).then(|| connection.link.peer.ip());
                core.take_turn(connection, *turn);
            });
            if let Some(peer) = peer {
                let took_ns = *took_ns + self.lap();
                self.fairness.count(peer, took_ns);
            }
        }
        self.core.time.look();
        batch.len = 0;
    }

    /// Time since the clock was read last.
    fn lap(&mut self) -> u64 {
        let before_ns = self.core.time.clock_ns();
        self.core.time.look();
        self.core.time.clock_ns() - before_ns
    }

    fn look_ahead(&mut self, batch: &Batch) {
        let least = if batch.len > 1 { 0 } else { FORESEEN_ALONE_BYTES };
        let mut some = false;
        for token in batch.due() {
            if let Some(connection) = self.core.connections.get(token.slot, token.generation)
                && connection.link.input.len() >= least
            {
                look(connection, &self.core.lp, |protocol, input| protocol.foresee(input));
                some = true;
            }
        }
        for token in batch.due().take_while(|_| some) {
            if let Some(connection) = self.core.connections.get(token.slot, token.generation) {
                look(connection, &self.core.lp, |protocol, _| protocol.prepare());
            }
        }
    }
}

/// Calls a protocol's look-ahead; a panic closes its connection and goes no further.
fn look(connection: &mut Connection, lp: &Loop, look: impl FnOnce(&mut dyn Protocol, &[u8])) {
    let Connection { protocol, link } = connection;
    if link.is_closed() {
        return;
    }
    if catch_unwind(AssertUnwindSafe(|| look(protocol.as_mut(), link.input.filled()))).is_err() {
        lp.member().counters.panics.add(1);
        link.close(Closed::Panicked);
    }
}
