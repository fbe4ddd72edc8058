//! State of a loop beside its connections: created and dropped on the loop's thread, so it may hold `Rc`.
//!
//! States are added when the loop is set up ([`crate::Setup`]). A program without a listener may have states too.

use std::os::fd::RawFd;

use crate::Loop;
use crate::address::ConnectFailure;
use crate::event_loop::core::Core;
use crate::event_loop::neighbour::{Neighbour, Neighbourhood};
use crate::protocol::{ConnectionId, Protocol};
use crate::settings::Outgoing;
use crate::timers::{Due, TimerKey};

/// Work of a loop beside its connections. Every hook is called on the loop's thread; a panic in one is counted and has no other
/// effect.
pub trait LoopState {
    /// The loop is set up, and its first wait is next: outgoing connections may be opened here.
    fn started(&mut self, _at: &mut LoopContext<'_>) {}
    /// The connections with events have had their turns; timers and mail are next.
    fn turns_ended(&mut self, _at: &mut LoopContext<'_>) {}
    /// A tick is over except for its writes, and the loop may sleep next: hand over what the tick has gathered. Output queued for
    /// connections here leaves before the wait.
    fn before_wait(&mut self, _at: &mut LoopContext<'_>) {}
    /// The state's timer ([`LoopContext::set_timer`]) expired.
    fn timer(&mut self, _at: &mut LoopContext<'_>) {}
    /// A descriptor that the kernel makes readable when work started elsewhere has ended: reads of a file, say. Queried once,
    /// before the first event; it must stay open as long as this state lives.
    fn completions(&self) -> Option<RawFd> {
        None
    }
    /// The descriptor became readable, or did so again. It is edge-triggered, so it need not be read. Messages sent here are read
    /// in the same tick.
    fn completed(&mut self, _at: &mut LoopContext<'_>) {}
    /// The loop drains: called once, after `drain` of its connections.
    fn draining(&mut self, _at: &mut LoopContext<'_>) {}
}

/// A loop, as passed to the hooks of its states.
pub struct LoopContext<'a> {
    pub(crate) core: &'a mut Core,
    /// The state's index and its timer.
    pub(crate) index: u32,
    pub(crate) timer: &'a mut Option<TimerKey>,
}

impl LoopContext<'_> {
    /// The loop, for timers and for messages to other loops.
    pub fn lp(&self) -> &Loop {
        &self.core.lp
    }

    /// Sets (or replaces) the state's one timer: [`LoopState::timer`] is called at that moment of [`Loop::now_ns`]'s clock, to
    /// the microsecond; `None` clears it. For work without a connection, such as the next attempt to connect to a peer that is
    /// down.
    pub fn set_timer(&mut self, at_ns: Option<u64>) {
        self.core.timers.set(self.timer, at_ns, Due::State(self.index));
    }

    /// A connection of this loop. `None`: it is gone, is closing, or belongs to another loop.
    pub fn connection(&mut self, id: ConnectionId) -> Option<Neighbour<'_>> {
        self.core.neighbour(id)
    }

    /// All connections of the loop, for code that is called from turns as well.
    pub fn neighbourhood(&mut self) -> Neighbourhood<'_> {
        Neighbourhood::of_hook(self.core)
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
