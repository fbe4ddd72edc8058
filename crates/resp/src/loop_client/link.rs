//! The reactor's side of a managed connection: how it connects, the protocol of its connections, and its loop hooks.

use super::failure::Failure;
use super::managed_connection::{ManagedConnection, Shared, Work};
use crate::client::{Lost, reply_limits};
use crate::codec::{ReplyFramer, ReplyKind};
use reactor::{Closed, Io, LoopContext, LoopState, Neighbourhood, Protocol};
use std::io;
use std::rc::{Rc, Weak};

/// Connects, if the managed connection needs a connection and an attempt is due.
pub(super) fn connect_if_wanted<W: Work>(managed: &Shared<W>, at: &mut Neighbourhood<'_>) {
    let this = &mut *managed.borrow_mut();
    let Some((attempt, outgoing)) = this.begin_attempt() else { return };
    let protocol = LinkProtocol::new(Rc::clone(managed), attempt, this.settings.client.reply_bytes_max);
    this.attempted(attempt, at.connect(outgoing, Box::new(protocol)));
}

/// One connection.
struct LinkProtocol<W: Work> {
    managed: Shared<W>,
    attempt: usize,
    reply_bytes_max: usize,
    framer: ReplyFramer,
    /// Bytes of the input that the framer has read: the beginning of a reply.
    seen: usize,
    /// Why the connection ends, if known before [`Protocol::closed`].
    failure: Option<Failure>,
}

impl<W: Work> LinkProtocol<W> {
    fn new(managed: Shared<W>, attempt: usize, reply_bytes_max: usize) -> LinkProtocol<W> {
        let framer = ReplyFramer::new(reply_limits());
        LinkProtocol { managed, attempt, reply_bytes_max, framer, seen: 0, failure: None }
    }

    /// Handles the complete replies in the input.
    fn take_replies(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        let mut taken = 0;
        loop {
            let (input, mut at) = io.input_and_neighbourhood();
            let advance = self.framer.advance(&input[taken + self.seen..])?;
            self.seen += advance.consumed;
            if !advance.is_complete {
                break;
            }
            let reply = &input[taken..taken + self.seen];
            taken += std::mem::take(&mut self.seen);
            let kind = self.framer.kind().unwrap_or(ReplyKind::Null);
            ManagedConnection::take_reply(&self.managed, self.attempt, (kind, self.framer.view(reply)), &mut at)?;
            if !io.spend(1) {
                break;
            }
        }
        io.consume(taken);
        if self.seen > self.reply_bytes_max { Err(Lost::TooLarge.into()) } else { Ok(()) }
    }
}

impl<W: Work> Protocol for LinkProtocol<W> {
    fn writable(&mut self, io: &mut Io<'_>) {
        ManagedConnection::connected(&self.managed, self.attempt, io);
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let taken = self.take_replies(io);
        let has_more = self.seen < io.input().len();
        if let Err(failure) = taken {
            self.failure = Some(failure);
            io.abort();
        } else if io.input_ended() && !has_more {
            io.abort();
        }
    }

    fn drain(&mut self, _io: &mut Io<'_>) {
        // Other connections of the loop may still need replies: the managed connection closes its connection once it is
        // idle.
    }

    fn failed(&mut self, error: &io::Error) {
        self.failure = Some(Failure::of_transport(error));
    }

    fn closed(&mut self, reason: Closed) {
        let failure = self.failure.take().unwrap_or_else(|| Failure::of_closed(reason));
        self.managed.borrow_mut().lost(self.attempt, failure);
    }
}

/// The loop hooks.
pub(super) struct Upkeep<W: Work> {
    managed: Shared<W>,
    /// Shared with the application's handles.
    handles: Weak<()>,
    armed_ns: u64,
}

impl<W: Work> Upkeep<W> {
    pub(super) fn new(managed: &Shared<W>, handles: &Rc<()>) -> Upkeep<W> {
        Upkeep { managed: Rc::clone(managed), handles: Rc::downgrade(handles), armed_ns: u64::MAX }
    }
}

impl<W: Work> LoopState for Upkeep<W> {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        connect_if_wanted(&self.managed, &mut at.neighbourhood());
    }

    fn timer(&mut self, at: &mut LoopContext<'_>) {
        self.armed_ns = u64::MAX;
        self.managed.borrow_mut().look(&mut at.neighbourhood());
    }

    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        if self.handles.strong_count() == 0 {
            self.managed.borrow_mut().begin_ending();
        }
        ManagedConnection::report_ended(&self.managed, &mut at.neighbourhood());
        connect_if_wanted(&self.managed, &mut at.neighbourhood());
        self.managed.borrow_mut().end_if_idle(&mut at.neighbourhood());
        let alarm_ns = self.managed.borrow().alarm_ns();
        if alarm_ns != self.armed_ns {
            self.armed_ns = alarm_ns;
            at.set_timer((alarm_ns < u64::MAX).then_some(alarm_ns));
        }
    }

    fn draining(&mut self, _at: &mut LoopContext<'_>) {
        self.managed.borrow_mut().begin_ending();
    }
}
