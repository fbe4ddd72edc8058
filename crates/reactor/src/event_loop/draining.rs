//! Draining: the loop accepts and serves what has arrived, lets its connections finish, and ends.
//!
//! 1. Everything in the backlogs is accepted (within `connections_max`), then the listeners are closed: a connection that the
//!    kernel had completed is served, not reset.
//! 2. Each connection is read once more, then its protocol is called ([`crate::Protocol::drain`]). A connection that was idle is
//!    closed after a short time even if its peer keeps it open.
//! 3. The loop ends with its last connection; at the deadline the remaining connections are closed.
//!
//! A later drain can only make the deadline earlier.

use crate::connection::Phase;
use crate::event_loop::{Draining, EventLoop};
use crate::protocol::Closed;
use crate::timers::Due;

impl EventLoop {
    pub(crate) fn begin_drain(&mut self, deadline_ns: u64) {
        let first = match self.draining {
            Draining::No => true,
            Draining::Until { deadline_ns: set } if deadline_ns < set => false,
            Draining::Until { .. } => return,
        };
        self.draining = Draining::Until { deadline_ns };
        self.core.timers.push(deadline_ns, Due::DrainEnd);
        if !first {
            return;
        }
        tracing::info!(loop_index = self.core.lp.index(), open = self.core.connections.len(), "draining");
        self.listeners.end_pause();
        self.listeners.look_again();
        while self.accept() {}
        self.listeners.close();
        for slot in 0..self.core.connections.slots() {
            self.drain_slot(slot);
        }
        self.call_states(|state, at| state.draining(at));
    }

    fn drain_slot(&mut self, slot: u32) {
        if let Some(connection) = self.core.connections.at(slot) {
            let id = connection.link.id;
            self.turn(id, |core, connection| core.drain(connection));
        }
    }

    /// The deadline has passed: closes all connections.
    pub(crate) fn cut_all(&mut self) {
        for slot in 0..self.core.connections.slots() {
            if let Some(connection) = self.core.connections.at(slot) {
                let sent_all = matches!(connection.link.phase, Phase::Lingering { .. });
                connection.link.close(if sent_all { Closed::Finished } else { Closed::Drained });
                self.settle(slot, true);
            }
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.draining != Draining::No && self.core.connections.len() == 0
    }
}
