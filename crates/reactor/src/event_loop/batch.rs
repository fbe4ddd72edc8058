//! A batch: ready connections that are all read first, then all answered, then all written.
//!
//! The data that a request needs is mostly not in the processor's caches, and a request served alone waits for memory. The next
//! requests already wait in the kernel. So a few connections are read first, their protocols look ahead and prefetch what they
//! will need ([`crate::Protocol::foresee`], [`crate::Protocol::prepare`]), and while the first is answered the memory of the
//! others is being loaded.
//!
//! The code that answers a request leaves the caches too: a write runs the kernel's network stack, which is larger than a first-level
//! cache of instructions. So the replies of a batch are written after the last of them is made, except long ones.
//!
//! The batch is short: a longer one would evict its own data from the first-level cache, and each connection in it holds a lent
//! buffer.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Loop;
use crate::connection::Connection;
use crate::connection::buffers::BATCH_MAX;
use crate::event_loop::EventLoop;
use crate::event_loop::turn::Turn;
use crate::kernel::Token;
use crate::protocol::{Closed, Protocol};

/// A batch of one connection looks ahead only if its input is at least this long: it may hold several requests.
const FORESEEN_ALONE_BYTES: usize = 256;
/// If the answers of a batch have taken longer, they are written before the next is made.
const UNWRITTEN_NS_MAX: u64 = 200_000;

/// Connections whose turn comes next.
#[derive(Default)]
pub(crate) struct Batch {
    members: [Option<Member>; BATCH_MAX],
    len: usize,
    /// They come from a ready list: the first has its turn even if the tick is over, and those that are put off stay listed.
    is_listed: bool,
}

#[derive(Clone, Copy)]
struct Member {
    token: Token,
    turn: Turn,
    /// The peer, if the time of this turn (its read apart) counts as its use of the loop.
    peer: Option<IpAddr>,
    /// Time of the turn so far.
    took_ns: u64,
}

impl Batch {
    /// A batch of connections from a ready list.
    pub(crate) fn of_list() -> Batch {
        Batch { is_listed: true, ..Batch::default() }
    }

    /// Adds a connection with the rest of its turn, and with its peer if the time of the turn counts as use by the peer. `true`: the
    /// batch is full.
    pub(crate) fn push(&mut self, token: Token, turn: Turn, peer: Option<IpAddr>) -> bool {
        if let Some(place) = self.members.get_mut(self.len) {
            *place = Some(Member { token, turn, peer, took_ns: 0 });
            self.len += 1;
        }
        self.len == BATCH_MAX
    }

    fn due(&self) -> impl Iterator<Item = Token> + '_ {
        let members = self.members.iter().take(self.len).flatten();
        members.filter(|member| member.turn == Turn::Input { is_due: true }).map(|member| member.token)
    }
}

impl EventLoop {
    /// Runs the turns of the batch's connections, and empties the batch. The clock is read after each answer.
    pub(crate) fn take_turns(&mut self, batch: &mut Batch) {
        if batch.len == 0 {
            return;
        }
        self.look_ahead(batch);
        self.core.time.look();
        let members = &mut batch.members[..batch.len];
        let (mut unwritten_since_ns, mut written, mut must_run) = (self.core.time.clock_ns(), 0, batch.is_listed);
        for at in 0..members.len() {
            let Some(member) = members[at].as_mut().filter(|member| member.turn.has_answer()) else { continue };
            if !std::mem::take(&mut must_run) && self.core.time.tick_is_over() {
                self.put_off(member, batch.is_listed);
                continue;
            }
            self.answer(member);
            if self.core.time.clock_ns() - unwritten_since_ns > UNWRITTEN_NS_MAX {
                self.write(&members[written..=at]);
                (written, unwritten_since_ns) = (at + 1, self.core.time.clock_ns());
            }
        }
        self.write(&members[written..]);
        batch.len = 0;
    }

    fn answer(&mut self, member: &mut Member) {
        let (before_ns, mut rest) = (self.core.time.clock_ns(), Turn::Over);
        self.turn_at(member.token, |core, connection| rest = core.answer(connection, member.turn));
        member.turn = rest;
        self.core.time.look();
        member.took_ns = self.core.time.clock_ns() - before_ns;
    }

    fn put_off(&mut self, member: &mut Member, is_listed: bool) {
        self.turn_at(member.token, |core, connection| {
            if is_listed {
                core.keep_listed(connection, member.turn);
            } else {
                core.put_off(connection, member.turn);
            }
        });
        (member.turn, member.peer) = (Turn::Over, None);
    }

    /// Ends the turns of members that are answered, or need no answer.
    fn write(&mut self, members: &[Option<Member>]) {
        for Member { token, turn, peer, took_ns } in members.iter().flatten().copied() {
            let before_ns = self.core.time.clock_ns();
            // A connection that has nothing left to do is removed here, if it has ended.
            self.turn_at(token, |core, connection| core.take_turn(connection, turn));
            if let Some(peer) = peer {
                self.core.time.look();
                self.fairness.count(peer, took_ns + self.core.time.clock_ns() - before_ns);
            }
        }
        self.core.time.look();
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
