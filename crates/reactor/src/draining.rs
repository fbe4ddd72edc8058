//! Draining: the loop takes what had arrived, lets its connections finish, and ends.
//!
//! 1. Everything in the backlogs is accepted (as far as `connections_max` allows), then the listeners are closed: a
//!    connection that the kernel had completed for us is served, not reset.
//! 2. Each connection is read once more and its protocol is told ([`crate::Protocol::drain`]).
//!    One that had nothing to finish is closed within a moment even if its peer keeps it.
//! 3. The loop ends with its last connection; at the deadline those that are left are cut.
//!
//! A drain that follows another one can only bring the deadline nearer.

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

    /// The deadline has passed.
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
