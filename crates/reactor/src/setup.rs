//! A loop before its first event: its states, and the acceptors of its listeners.
//!
//! Each loop is set up by the closures given to [`crate::Reactor::set_up`] and by the factories of its listeners. A [`Setup`] takes
//! states, whose hooks the loop calls, and an acceptor for each listener; both may share data.

use std::net::SocketAddr;

use crate::Loop;
use crate::event_loop::state::LoopState;
use crate::protocol::{ConnectionId, Protocol};

/// Makes protocols for accepted connections; one per loop and listener, living on the loop's thread.
pub trait Accept {
    /// A connection was accepted. `None` refuses it (it is closed at once).
    fn accept(&mut self, peer: SocketAddr, id: ConnectionId, lp: &Loop) -> Option<Box<dyn Protocol>>;
    /// A connection waits in the backlog and no more may be open: close connections that can be spared. Messages sent to
    /// connections here go through the mailbox, which is read in the same tick. A panic is counted and has no other effect.
    fn crowded(&mut self) {}
}

/// Makes the per-loop acceptor of one listener; shared by all loops.
pub trait Factory: Send + Sync {
    /// Called once on each loop's own thread, before its first event. State that these protocols share with the loop's hooks is a
    /// state of the loop ([`Setup::add_state`]).
    fn acceptor(&self, setup: &mut Setup<'_>) -> Box<dyn Accept>;
}

/// A reactor's listener: the `n`-th that was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub(crate) u16);

/// A loop before its first event, on its own thread.
pub struct Setup<'a> {
    lp: &'a Loop,
    pub(crate) states: Vec<Box<dyn LoopState>>,
    pub(crate) acceptors: Vec<Option<Box<dyn Accept>>>,
}

impl<'a> Setup<'a> {
    pub(crate) fn new(lp: &'a Loop, listeners: usize) -> Self {
        Self { lp, states: Vec::new(), acceptors: (0..listeners).map(|_| None).collect() }
    }

    /// The loop that is set up.
    pub fn lp(&self) -> &Loop {
        self.lp
    }

    /// Adds a state, whose hooks are called in the order in which states were added.
    pub fn add_state(&mut self, state: Box<dyn LoopState>) {
        self.states.push(state);
    }

    /// Sets the acceptor that makes the protocols of a listener's connections on this loop.
    pub fn accept(&mut self, listener: ListenerId, acceptor: Box<dyn Accept>) {
        self.acceptors[usize::from(listener.0)] = Some(acceptor);
    }
}
