//! An event loop: its parts, and what surrounds each turn of a connection.
//!
//! The order of a loop's work is in `tick`; accepting, batches and draining are in the files of these names.

pub(crate) mod accepting;
pub(crate) mod batch;
pub(crate) mod core;
pub(crate) mod draining;
pub(crate) mod fairness;
pub(crate) mod handshake;
pub(crate) mod hoarders;
pub(crate) mod hooks;
pub(crate) mod io;
pub(crate) mod listeners;
pub(crate) mod lists;
pub(crate) mod neighbour;
pub(crate) mod next_to_go;
pub(crate) mod state;
pub(crate) mod tick;
pub(crate) mod turn;
pub(crate) mod work_time;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::connection::{Connection, Phase};
use crate::event_loop::core::Core;
use crate::event_loop::fairness::Fairness;
use crate::event_loop::hooks::Hooks;
use crate::event_loop::listeners::Listeners;
use crate::event_loop::next_to_go::NextToGo;
use crate::event_loop::state::{LoopContext, LoopState};
use crate::fleet::{Mail, Task};
use crate::kernel::{Alarm, Token};
use crate::protocol::{Closed, ConnectionId, MemoryPart};

/// Tokens of generation 0, by slot.
pub(crate) const WAKER: Token = Token { slot: 0, generation: 0 };
pub(crate) const ALARM: Token = Token { slot: 1, generation: 0 };

/// Whether the loop drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Draining {
    No,
    Until { deadline_ns: u64 },
}

/// One loop, on its thread.
pub(crate) struct EventLoop {
    pub(crate) core: Core,
    pub(crate) listeners: Listeners,
    pub(crate) hooks: Hooks,
    pub(crate) draining: Draining,
    pub(crate) alarm: Alarm,
    /// Emptied every tick; kept for their storage.
    pub(crate) mail: Vec<Mail>,
    /// Mail for which the last tick had no time.
    pub(crate) unread: VecDeque<Mail>,
    pub(crate) due: Vec<u32>,
    pub(crate) going_on: Vec<ConnectionId>,
    pub(crate) heavy_going_on: Vec<ConnectionId>,
    /// The last tick had no time to end the turns of all touched connections.
    pub(crate) is_behind: bool,
    pub(crate) fairness: Fairness,
    pub(crate) next_to_go: [NextToGo; MemoryPart::COUNT],
}

impl EventLoop {
    pub(crate) fn new(core: Core, alarm: Alarm) -> Self {
        Self {
            core,
            listeners: Listeners::default(),
            hooks: Hooks::default(),
            draining: Draining::No,
            alarm,
            mail: Vec::new(),
            unread: VecDeque::new(),
            due: Vec::new(),
            going_on: Vec::new(),
            heavy_going_on: Vec::new(),
            is_behind: false,
            fairness: Fairness::new(),
            next_to_go: Default::default(),
        }
    }

    pub(crate) fn run_task(&mut self, task: Task) {
        if catch_unwind(AssertUnwindSafe(|| task(&self.core.lp))).is_err() {
            self.core.lp.member().counters.panics.add(1);
        }
    }

    /// Runs a turn of a connection, if it still exists.
    #[inline]
    pub(crate) fn turn(&mut self, id: ConnectionId, turn: impl FnOnce(&mut Core, &mut Connection)) {
        self.turn_at(Token { slot: id.slot, generation: id.generation }, turn);
    }

    /// The same with the connection's token.
    #[inline]
    pub(crate) fn turn_at(&mut self, token: Token, turn: impl FnOnce(&mut Core, &mut Connection)) {
        if let Some(mut connection) = self.core.connections.lend(token.slot, token.generation) {
            turn(&mut self.core, &mut connection);
            let closed = connection.link.is_closed();
            self.core.connections.take_back(connection);
            self.settle(token.slot, closed);
        }
    }

    /// After a turn: removes the connection if it has ended.
    #[inline]
    pub(crate) fn settle(&mut self, slot: u32, closed: bool) {
        if closed {
            self.remove(slot);
        }
        if self.core.is_short {
            self.close_hoarders();
        }
    }

    /// Calls a hook of all states.
    #[inline]
    pub(crate) fn call_states(&mut self, hook: fn(&mut dyn LoopState, &mut LoopContext<'_>)) {
        self.hooks.call(&mut self.core, hook);
    }

    #[cold]
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(mut connection) = self.core.connections.remove(slot) else { return };
        let Phase::Closed(reason) = connection.link.phase else { return };
        if matches!(reason, Closed::Stalled | Closed::Hoarded) {
            connection.link.transport.reset_at_close();
        }
        self.core.end_turn(&mut connection); // gives lent buffers back
        self.core.forget_held(&mut connection.link);
        self.core.wheel.cancel(slot);
        if let Some(key) = connection.link.precise_timer.take() {
            self.core.timers.cancel(key);
        }
        self.core.ids.give_back(connection.link.id);
        let origin = connection.link.origin;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            if let Some(error) = &connection.link.failure {
                connection.protocol.failed(error);
            }
            connection.protocol.closed(reason);
            drop(connection);
        }));
        // A connection slot is free only now that the descriptor is closed.
        self.core.lp.fleet().release(self.core.lp.index(), origin);
        let counters = &self.core.lp.member().counters;
        counters.count_closed(reason);
        counters.panics.add(u64::from(outcome.is_err()));
        self.listeners.end_pause();
    }
}
