//! One connection: turns bytes into calls of the service, and replies into bytes, in order.
//!
//! ```text
//!  input, message, writable ─► turn ─► read requests until starved, blocked, full or out of budget
//!                                  └─► flush what the ring's front allows
//!                                  └─► end: close? which deadline?
//! ```
//!
//! A turn stops reading when
//! - the bytes hold no whole request (starved),
//! - a request that reads is behind an unanswered one that may change something (blocked),
//! - the ring is full, a stream is being sent, the sink of a body in pieces has no room, the write queue is congested, or the
//!   last request was read (full).
//!
//! Unread bytes stay in the read buffer, which the reactor bounds, so the peer gets back-pressure.

pub(crate) mod crowd;
pub(crate) mod deadline;
mod flush;
pub(crate) mod ring;
pub(crate) mod serve;
pub(crate) mod shared;
mod time_limit;
mod unread_body;
pub(crate) mod worker;

use std::net::SocketAddr;
use std::rc::Rc;

use reactor::{Closed, ConnectionId, Io, MemoryPart, Message, Protocol};

use crate::addresses::{Admission, PlaceIsFree};
use crate::connection::crowd::Leave;
use crate::connection::deadline::{DeadlineClock, Wait};
use crate::connection::ring::Ring;
use crate::connection::serve::Served;
use crate::connection::shared::Shared;
use crate::connection::worker::Worker;
use crate::method::Method;
use crate::parsing::head::{Framing, Head};
use crate::parsing::plain;
use crate::parsing::reader::{RequestReader, Step};
use crate::parsing::refusal::Refusal;
use crate::parsing::visible::Target;
use crate::reply::composer::Shape;
use crate::reply::late::{Answer, CutOff, Nudged, Ticket};
use crate::reply::part;
use crate::request::HttpRequest;
use crate::service::Service;
use unread_body::UnreadBody;

/// Unread bytes above which the socket is not read while the connection may not continue.
const UNREAD_BYTES_MAX: usize = 64 << 10;
/// Requests of a connection that the look-ahead covers.
const FORESEEN_MAX: usize = 16;
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Why a turn stopped reading requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Starved,
    Blocked,
    Full,
    /// The tick's budget is spent; the loop calls again.
    Spent,
}

/// Result of one step of a turn.
enum Progress {
    Served,
    Moved,
    Stopped(Stop),
}

/// One connection of a server.
pub(crate) struct Connection<S: Service> {
    shared: Rc<Shared<S>>,
    id: ConnectionId,
    peer: SocketAddr,
    reader: RequestReader,
    ring: Ring,
    clock: DeadlineClock,
    /// The service must answer a write before the next request is read.
    blocked: bool,
    /// No more requests are read: the client asked for a close, or its bytes were refused.
    last: bool,
    draining: bool,
    /// A `100 Continue` waits for the replies before it.
    continue_due: bool,
    paused: bool,
    finished: bool,
    admission: Admission,
    /// When it was asked to leave since its last request; 0: it was not.
    asked_ns: u64,
}

impl<S: Service> Connection<S> {
    pub(crate) fn new(shared: Rc<Shared<S>>, id: ConnectionId, peer: SocketAddr, admission: Admission) -> Self {
        let clock = DeadlineClock::new(shared.worker.lp.now_ns());
        Connection {
            shared,
            id,
            peer,
            reader: RequestReader::default(),
            ring: Ring::default(),
            clock,
            blocked: false,
            last: false,
            draining: false,
            continue_due: false,
            paused: false,
            finished: false,
            admission,
            asked_ns: 0,
        }
    }

    fn worker(&self) -> &Worker {
        &self.shared.worker
    }

    fn turn(&mut self, io: &mut Io<'_>) {
        loop {
            let stop = self.read_requests(io);
            let waiting = self.ring.len();
            if waiting > 0 {
                self.flush(io);
            }
            // Replies that left may have made room for the next request.
            if stop != Stop::Full || self.ring.len() == waiting || self.finished {
                return self.end_turn(io, stop);
            }
        }
    }

    #[inline]
    fn read_requests(&mut self, io: &mut Io<'_>) -> Stop {
        loop {
            if self.blocked {
                return Stop::Blocked;
            }
            if self.is_full() || self.last || self.finished || io.congested() {
                return Stop::Full;
            }
            match self.step(io) {
                Progress::Served => {
                    if !io.spend(1) {
                        return Stop::Spent;
                    }
                }
                Progress::Moved => {}
                Progress::Stopped(stop) => return stop,
            }
        }
    }

    #[inline]
    fn is_full(&self) -> bool {
        let limits = &self.worker().settings.limits;
        let room = self.ring.len() < limits.pipelined_max && self.ring.held_bytes() <= limits.held_bytes_max;
        // A body taken in pieces belongs to the last request that was read.
        (!room || self.ring.ends_reading()) && !self.reader.is_in_pieces()
    }

    #[inline]
    fn step(&mut self, io: &mut Io<'_>) -> Progress {
        if io.input().is_empty() && !self.reader.in_body() {
            return Progress::Stopped(Stop::Starved);
        }
        let Connection { shared, reader, ring, admission, .. } = self;
        let worker = &shared.worker;
        let (input, out) = io.split();
        let mut seen = worker.seen.borrow_mut();
        let in_pieces = |head: &Head<'_>| {
            let trusted = &worker.settings.trusted_proxies;
            let request = HttpRequest::new(head, (&[], true), self.peer, trusted);
            shared.service.takes_pieces(&mut shared.local.borrow_mut(), &request)
        };
        let step = reader.next(input, &worker.settings.limits, &mut seen, in_pieces, || worker.take_gathering());
        drop(seen);
        match step {
            Step::InPieces { .. } if admission.is_reserved() && !admission.take_place(&worker.lp, self.id) => {
                self.refuse(io, Refusal::NoPlace);
                Progress::Moved
            }
            Step::InPieces { ref head, head_bytes } => {
                let (id, peer, draining) = (self.id, self.peer, self.draining);
                let body = UnreadBody::of(head, input.len() > head_bytes, draining, &worker.settings.limits);
                let before = out.len();
                let served = body.serve(shared, ring, (id, peer), head, out);
                let appended = out.len() - before;
                self.after_head(io, served, (head_bytes, appended), &body)
            }
            Step::Offered { consumed, offered } => self.after_offering(io, consumed, offered),
            Step::More { consumed, say_continue } => self.take_more(io, consumed, say_continue),
            Step::Refused(refusal) => {
                self.refuse(io, refusal);
                Progress::Moved
            }
            // By reference: a move of so many bytes right after they were written waits for the stores.
            Step::Request { ref head, body, consumed } => {
                let trusted = &worker.settings.trusted_proxies;
                let request = HttpRequest::new(head, (body, false), self.peer, trusted);
                if admission.is_reserved()
                    && !shared.service.is_vital(&request)
                    && !admission.take_place(&worker.lp, self.id)
                {
                    return Progress::Stopped(Stop::Blocked);
                }
                let shape = Shape {
                    http10: head.http10,
                    persistent: head.persistent && !self.draining && !admission.is_reserved(),
                    head_only: head.method == Method::Head,
                };
                let ticket = Ticket { connection: self.id, sequence: ring.next_sequence(), client: request.client() };
                let before = out.len();
                let served = serve::serve(shared, ring, ticket, &request, shape, out);
                let appended = out.len() - before;
                self.after_serving(io, served, consumed, appended)
            }
        }
    }

    #[inline]
    fn after_serving(&mut self, io: &mut Io<'_>, served: Served, consumed: usize, appended: usize) -> Progress {
        let Served::Done { persistent, is_spliced } = served else {
            self.blocked = true;
            return Progress::Stopped(Stop::Blocked);
        };
        if consumed > 0 {
            io.consume(consumed);
            self.worker().metrics.bytes_in.add(consumed as u64);
        }
        self.count_appended(appended);
        if is_spliced {
            let mut pieces = self.worker().splices.borrow_mut();
            self.count_appended(part::bytes_of(&pieces));
            io.output_pieces(&mut pieces);
        }
        self.end_request(io);
        self.clock.begin_again();
        self.asked_ns = 0;
        self.last |= !persistent;
        Progress::Served
    }

    #[inline(never)]
    fn take_more(&mut self, io: &mut Io<'_>, consumed: usize, say_continue: bool) -> Progress {
        io.consume(consumed);
        self.worker().metrics.bytes_in.add(consumed as u64);
        self.continue_due |= say_continue;
        if consumed > 0 { Progress::Moved } else { Progress::Stopped(Stop::Starved) }
    }

    /// Prepares the reader for the next request.
    #[inline]
    fn end_request(&mut self, io: &mut Io<'_>) {
        if let Some(gathering) = self.reader.done() {
            io.gather(0, 0);
            self.worker().give_gathering(gathering);
        }
    }

    #[cold]
    fn refuse(&mut self, io: &mut Io<'_>, refusal: Refusal) {
        if self.reader.is_in_pieces() {
            self.worker().metrics.refusals.add(1);
            return self.end_pieces(io, Err(refusal));
        }
        let before = io.output().len();
        let head_only = self.reader.is_head(io.input());
        serve::refuse(&self.shared.worker, &mut self.ring, refusal, head_only, io.output());
        self.count_appended(io.output().len() - before);
        self.end_request(io);
        self.continue_due = false;
        self.last = true;
    }

    #[inline]
    fn count_appended(&self, bytes: usize) {
        self.worker().metrics.bytes_out.add(bytes as u64);
    }

    #[inline(never)]
    fn end_turn(&mut self, io: &mut Io<'_>, stop: Stop) {
        self.worker().count_turn();
        io.keep(self.ring.memory_bytes());
        if self.finished {
            return;
        }
        if self.ring.is_watched() && io.input_ended() {
            self.ring.client_ended();
        }
        self.say_continue(io);
        let begun = self.reader.in_body() || !io.input().is_empty();
        if stop == Stop::Starved {
            if io.input_ended() && begun {
                self.refuse(io, Refusal::Cut);
            }
            // On a draining loop a new connection still has a short time for its first request: see `drain`.
            self.last |= io.input_ended() || self.draining && !begun && self.clock.wait() != Wait::First;
        }
        if self.last && self.ring.is_empty() {
            return self.finish(io);
        }
        self.hold_input(io, stop);
        self.note_wait(io, stop, begun);
    }

    fn say_continue(&mut self, io: &mut Io<'_>) {
        // The reply of a body in pieces has its slot already.
        let is_next = self.ring.len() == usize::from(self.reader.is_in_pieces());
        if self.continue_due && is_next {
            self.continue_due = false;
            if self.reader.in_body() && self.reader.body_bytes() == 0 {
                io.output().extend_from_slice(CONTINUE);
                self.count_appended(CONTINUE.len());
            }
        }
    }

    /// Stops reading the socket while many bytes are unread and may not be served yet.
    fn hold_input(&mut self, io: &mut Io<'_>, stop: Stop) {
        let may_not_go_on = matches!(stop, Stop::Blocked | Stop::Full) && !io.congested();
        // A socket that is not read does not report that its client has ended.
        let is_done = self.last && !self.ring.is_watched();
        let hold = is_done || may_not_go_on && io.input().len() > UNREAD_BYTES_MAX;
        if hold != self.paused {
            self.paused = hold;
            if hold { io.pause_input() } else { io.resume_input() }
        }
    }

    fn finish(&mut self, io: &mut Io<'_>) {
        self.finished = true;
        io.finish();
    }

    fn abort(&mut self, io: &mut Io<'_>) {
        self.finished = true;
        io.abort();
    }
}

impl<S: Service> Protocol for Connection<S> {
    fn opened(&mut self, io: &mut Io<'_>) {
        let now_ns = self.worker().lp.now_ns();
        let due_ns = self.due_ns();
        self.arm(io, due_ns, now_ns);
    }

    fn input(&mut self, io: &mut Io<'_>) {
        self.worker().tick();
        self.turn(io);
    }

    fn foresee(&mut self, input: &[u8]) {
        if self.blocked || self.last || self.reader.in_body() {
            return;
        }
        let Shared { worker, service, local } = &*self.shared;
        let (mut seen, mut local) = (worker.seen.borrow_mut(), local.borrow_mut());
        let mut rest = input;
        for _ in 0..FORESEEN_MAX {
            if let Some((Target { path, query, .. }, after)) = plain::likely_target(rest, &seen) {
                service.foresee(&mut local, Method::Get, path, query);
                if after.is_empty() {
                    return;
                }
                rest = after;
                continue;
            }
            let Some((head, head_bytes)) = plain::read(rest, &worker.settings.limits, &mut seen) else { return };
            if head.framing != Framing::Length(0) {
                return;
            }
            service.foresee(&mut local, head.method, head.path, head.query);
            rest = rest.get(head_bytes..).unwrap_or_default();
        }
    }

    fn prepare(&mut self) {
        self.shared.service.prepare(&mut self.shared.local.borrow_mut());
    }

    fn writable(&mut self, io: &mut Io<'_>) {
        self.worker().tick();
        self.flush(io);
        self.turn(io);
    }

    fn message(&mut self, message: Message, io: &mut Io<'_>) {
        let is_news = match message.payload.downcast::<Answer>() {
            Ok(answer) => {
                let is_news = self.ring.answer(message.tag, answer);
                if is_news && self.reader.pieces().is_some_and(|pieces| pieces.sequence == Some(message.tag)) {
                    // Answered before the body was complete: the start of the next request cannot be known.
                    self.reader.end_pieces();
                    io.gather(0, 0);
                    self.end_behind(Some(message.tag), true);
                }
                is_news
            }
            Err(other) if other.is::<PlaceIsFree>() => self.admission.is_reserved(),
            Err(other) if other.is::<Leave>() => {
                let is_full = other.downcast_ref::<Leave>().is_some_and(|leave| leave.is_full);
                return self.leave(io, is_full);
            }
            Err(other) if other.is::<CutOff>() && self.ring.holds(message.tag) => {
                self.finished = true;
                return io.cut();
            }
            Err(other) => other.is::<Nudged>() && (self.ring.has_stream() || self.reader.is_in_pieces()),
        };
        if !is_news {
            return;
        }
        self.worker().tick();
        self.blocked &= self.ring.has_unanswered_write();
        // Before the next request is read: with an empty ring its reply goes straight to the write queue.
        self.flush(io);
        if io.has_to_wait() {
            // A batch of answers would otherwise run as many requests at once, however expensive.
            return self.end_turn(io, Stop::Spent);
        }
        self.turn(io);
    }

    fn timer(&mut self, io: &mut Io<'_>) {
        self.check_deadline(io);
    }

    fn drain(&mut self, io: &mut Io<'_>) {
        self.begin_drain(io);
    }

    /// Closes the connection with an error reply if the client can still get one, otherwise without.
    fn hoards(&mut self, part: MemoryPart, io: &mut Io<'_>) {
        self.worker().tick();
        if part == MemoryPart::Arriving && self.reader.in_body() {
            self.refuse(io, Refusal::TooManyBodies);
        } else if part == MemoryPart::Buffers && io.unsent() == 0 && self.ring.is_empty() && !self.finished {
            io.consume(io.input().len());
            self.refuse(io, Refusal::NoBuffers);
        } else {
            return;
        }
        self.worker().metrics.hoarders.add(1);
        self.end_turn(io, Stop::Full);
    }

    fn closed(&mut self, reason: Closed) {
        let metrics = &self.worker().metrics;
        metrics.timed_out.add(u64::from(reason == Closed::Stalled));
        metrics.hoarders.add(u64::from(reason == Closed::Hoarded));
        metrics.closed.add(1);
        self.finished = true;
    }
}

impl<S: Service> Drop for Connection<S> {
    fn drop(&mut self) {
        self.worker().crowd.borrow_mut().leave(self.id);
        self.admission.give_up(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl Service for Nothing {
        type Local = ();
        fn local(&self, _: &reactor::Loop) {}
        fn call(&self, (): &mut (), _: &HttpRequest<'_>, _: crate::Reply<'_>) {}
    }

    /// An idle connection may cost 2 KB of process memory, including the reactor's part.
    #[test]
    fn a_connection_is_small() {
        assert!(size_of::<Connection<Nothing>>() <= 320, "{} bytes", size_of::<Connection<Nothing>>());
    }
}
