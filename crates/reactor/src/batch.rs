//! A batch: ready connections whose input is read before the first of them is answered.
//!
//! The data that a request needs is mostly not in the processor's caches, and a request served alone waits for memory. The next
//! requests already wait in the kernel. So a few connections are read first, their protocols look ahead and prefetch what they
//! will need ([`crate::Protocol::foresee`], [`crate::Protocol::prepare`]), and while the first is answered the memory of the
//! others is being loaded.
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
    members: [Option<(Token, Turn)>; BATCH_MAX],
    len: usize,
}

impl Batch {
    /// Adds a connection. `true`: the batch is full.
    pub(crate) fn push(&mut self, token: Token, turn: Turn) -> bool {
        if let Some(place) = self.members.get_mut(self.len) {
            *place = Some((token, turn));
            self.len += 1;
        }
        self.len == BATCH_MAX
    }

    fn members(&self) -> impl Iterator<Item = (Token, Turn)> + '_ {
        self.members.iter().take(self.len).flatten().copied()
    }

    fn due(&self) -> impl Iterator<Item = Token> + '_ {
        self.members().filter(|(_, turn)| *turn == Turn::Input { is_due: true }).map(|(token, _)| token)
    }
}

impl EventLoop {
    /// Runs the turns of the batch's connections, and empties the batch.
    pub(crate) fn take_turns(&mut self, batch: &mut Batch) {
        self.look_ahead(batch);
        for (token, turn) in batch.members() {
            self.turn_at(token, |core, connection| {
                if core.time.tick_is_over() {
                    core.put_off(connection, turn);
                } else {
                    core.take_turn(connection, turn);
                }
            });
        }
        if batch.len > 0 {
            self.core.time.look();
        }
        batch.len = 0;
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
