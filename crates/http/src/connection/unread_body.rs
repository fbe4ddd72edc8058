//! Bodies that the service takes in pieces ([`crate::parsing::pieces`]), as part of a connection: the request is served with its head
//! alone, and its reply comes when the body has ended, whole or not.

use std::net::SocketAddr;

use reactor::{ConnectionId, Io};

use super::{Connection, Progress, Stop};
use crate::connection::ring::Ring;
use crate::connection::serve::{self, Served};
use crate::connection::shared::Shared;
use crate::limits::ClientLimits;
use crate::method::Method;
use crate::parsing::head::{Framing, Head};
use crate::parsing::pieces::{Dropped, Offered, Pieces};
use crate::parsing::refusal::Refusal;
use crate::reply::composer::Shape;
use crate::reply::late::Ticket;
use crate::request::HttpRequest;
use crate::service::Service;

/// A body that stays unread until its request was served.
pub(super) struct UnreadBody {
    framing: Framing,
    /// The client sends it only after a `100 Continue`.
    is_waited_for: bool,
    /// The connection stays open after it.
    persistent: bool,
    /// The same if the service does not take the body.
    persistent_without: bool,
}

impl UnreadBody {
    pub(super) fn of(head: &Head<'_>, has_begun: bool, draining: bool, limits: &ClientLimits) -> UnreadBody {
        let is_waited_for = head.expects_continue && !has_begun;
        // The body is read and dropped then. A client that waits for `100 Continue` may send its body or not after another
        // status.
        let may_be_dropped = !is_waited_for
            && match head.framing {
                Framing::Length(length) => length <= limits.body_bytes_max as u64,
                Framing::Chunked => false,
            };
        let persistent = head.persistent && !draining;
        UnreadBody {
            framing: head.framing,
            is_waited_for,
            persistent,
            persistent_without: persistent && may_be_dropped,
        }
    }

    #[inline(never)]
    pub(super) fn serve<S: Service>(
        &self,
        shared: &Shared<S>,
        ring: &mut Ring,
        (connection, peer): (ConnectionId, SocketAddr),
        head: &Head<'_>,
        out: &mut Vec<u8>,
    ) -> Served {
        let (http10, head_only) = (head.http10, head.method == Method::Head);
        let shape = Shape { http10, persistent: self.persistent_without, head_only };
        let trusted = &shared.worker.settings.trusted_proxies;
        let request = HttpRequest::new(head, (&[], true), peer, trusted);
        let ticket = Ticket { connection, sequence: ring.next_sequence(), client: request.client() };
        serve::serve(shared, ring, ticket, &request, shape, out)
    }
}

impl<S: Service> Connection<S> {
    /// A request was served whose body is taken in pieces, or not at all.
    #[cold]
    pub(super) fn after_head(
        &mut self,
        io: &mut Io<'_>,
        served: Served,
        (head_bytes, appended): (usize, usize),
        body: &UnreadBody,
    ) -> Progress {
        let Served::InPieces(sink) = served else {
            let progress = self.after_serving(io, served, head_bytes, appended);
            if !self.blocked && !self.last {
                self.reader.begin_pieces(Pieces::new(body.framing, Box::new(Dropped), None, true));
            }
            return progress;
        };
        let sequence = self.ring.next_sequence() - 1;
        if let Some(slot) = self.ring.back_mut() {
            slot.shape.persistent = body.persistent;
        }
        let mut pieces = Pieces::new(body.framing, sink, Some(sequence), body.persistent);
        if self.draining {
            pieces.until_ns = self.drain_until_ns();
        }
        self.reader.begin_pieces(pieces);
        self.clock.begin_again();
        self.take_more(io, head_bytes, body.is_waited_for)
    }

    /// A piece of a body was offered to the sink.
    #[inline(never)]
    pub(super) fn after_offering(&mut self, io: &mut Io<'_>, consumed: usize, offered: Offered) -> Progress {
        io.consume(consumed);
        self.worker().metrics.bytes_in.add(consumed as u64);
        match offered {
            Offered::Starved => Progress::Stopped(Stop::Starved),
            Offered::NoRoom => Progress::Stopped(Stop::Full),
            Offered::Whole => {
                self.end_pieces(io, Ok(()));
                Progress::Served
            }
        }
    }

    /// Ends a body in pieces, whole or not. If it is not whole, the connection closes after the reply.
    pub(super) fn end_pieces(&mut self, io: &mut Io<'_>, end: Result<(), Refusal>) {
        let Some(pieces) = self.reader.end_pieces() else { return };
        io.gather(0, 0);
        self.continue_due = false;
        self.clock.begin_again();
        let is_last = end.is_err() || !pieces.persistent || self.draining;
        self.end_behind(pieces.sequence, is_last);
        let limits = &self.worker().settings.limits;
        pieces.into_sink().end(end.map_err(|refusal| refusal.fault(limits)));
    }

    /// Ends the connection after the reply of this sequence, if it is the last reply.
    pub(super) fn end_behind(&mut self, sequence: Option<u64>, is_last: bool) {
        self.last |= is_last;
        let next = self.ring.next_sequence();
        if let Some(slot) = self.ring.back_mut()
            && is_last
            && sequence.is_some_and(|sequence| sequence + 1 == next)
        {
            slot.shape.persistent = false;
        }
    }

    /// Until when a body in pieces may go on arriving at a server that drains.
    pub(super) fn drain_until_ns(&self) -> u64 {
        let worker = self.worker();
        let grace = u64::try_from(worker.settings.deadlines.drain_grace.as_nanos()).unwrap_or(u64::MAX);
        worker.lp.now_ns().saturating_add(grace)
    }
}
