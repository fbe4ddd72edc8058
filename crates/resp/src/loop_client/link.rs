//! The reactor's side of a line: how it connects, the protocol of its connections, and its loop hooks.

use super::failure::Failure;
use super::line::{Line, Shared, Work};
use crate::client::{Lost, reply_limits};
use crate::codec::{ReplyFramer, ReplyKind};
use reactor::{Closed, Io, LoopContext, LoopState, Neighbourhood, Protocol};
use std::io;
use std::rc::{Rc, Weak};

/// Connects, if the line needs a connection and an attempt is due.
pub(super) fn connect_if_wanted<W: Work>(line: &Shared<W>, at: &mut Neighbourhood<'_>) {
    let this = &mut *line.borrow_mut();
    let Some((attempt, outgoing)) = this.begin_attempt() else { return };
    let protocol = LinkProtocol::new(Rc::clone(line), attempt, this.settings.client.reply_bytes_max);
    this.attempted(attempt, at.connect(outgoing, Box::new(protocol)));
}

/// One connection.
struct LinkProtocol<W: Work> {
    line: Shared<W>,
    attempt: usize,
    reply_bytes_max: usize,
    framer: ReplyFramer,
    /// Bytes of the input that the framer has read: the beginning of a reply.
    seen: usize,
    /// Why the connection ends, if known before [`Protocol::closed`].
    failure: Option<Failure>,
}

impl<W: Work> LinkProtocol<W> {
    fn new(line: Shared<W>, attempt: usize, reply_bytes_max: usize) -> LinkProtocol<W> {
        let framer = ReplyFramer::new(reply_limits());
        LinkProtocol { line, attempt, reply_bytes_max, framer, seen: 0, failure: None }
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
            Line::take_reply(&self.line, self.attempt, (kind, self.framer.view(reply)), &mut at)?;
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
        Line::connected(&self.line, self.attempt, io);
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
        // Other connections of the loop may still need replies: the line closes its connection once it is
        // idle.
    }

    fn failed(&mut self, error: &io::Error) {
        self.failure = Some(Failure::of_transport(error));
    }

    fn closed(&mut self, reason: Closed) {
        let failure = self.failure.take().unwrap_or_else(|| Failure::of_closed(reason));
        self.line.borrow_mut().lost(self.attempt, failure);
    }
}

/// The loop hooks.
pub(super) struct Upkeep<W: Work> {
    line: Shared<W>,
    /// Shared with the application's handles.
    handles: Weak<()>,
    armed_ns: u64,
}

impl<W: Work> Upkeep<W> {
    pub(super) fn new(line: &Shared<W>, handles: &Rc<()>) -> Upkeep<W> {
        Upkeep { line: Rc::clone(line), handles: Rc::downgrade(handles), armed_ns: u64::MAX }
    }
}

impl<W: Work> LoopState for Upkeep<W> {
    fn started(&mut self, at: &mut LoopContext<'_>) {
        connect_if_wanted(&self.line, &mut at.neighbourhood());
    }

    fn timer(&mut self, at: &mut LoopContext<'_>) {
        self.armed_ns = u64::MAX;
        self.line.borrow_mut().look(&mut at.neighbourhood());
    }

    fn before_wait(&mut self, at: &mut LoopContext<'_>) {
        if self.handles.strong_count() == 0 {
            self.line.borrow_mut().begin_ending();
        }
        Line::tell_ended(&self.line, &mut at.neighbourhood());
        connect_if_wanted(&self.line, &mut at.neighbourhood());
        self.line.borrow_mut().end_if_idle(&mut at.neighbourhood());
        let alarm_ns = self.line.borrow().alarm_ns();
        if alarm_ns != self.armed_ns {
            self.armed_ns = alarm_ns;
            at.set_timer((alarm_ns < u64::MAX).then_some(alarm_ns));
        }
    }

    fn draining(&mut self, _at: &mut LoopContext<'_>) {
        self.line.borrow_mut().begin_ending();
    }
}
