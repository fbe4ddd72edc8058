//! The call of the service: one request in, its reply to the write queue or into the ring.
//!
//! If the ring is empty, the reply is composed straight into the write queue. Behind an unanswered request it is composed into a
//! buffer of its own, which waits in the ring.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::access_log::Entry;
use crate::body::BodySink;
use crate::connection::ring::{Held, Ring, Slot};
use crate::connection::shared::Shared;
use crate::connection::worker::Worker;
use crate::method::RequestOrder;
use crate::metrics::latency::Series;
use crate::parsing::refusal::Refusal;
use crate::reply::composer::{HeaderFields, Length, Shape};
use crate::reply::late::Ticket;
use crate::reply::part;
use crate::reply::{Outcome, Reply};
use crate::request::HttpRequest;
use crate::service::Service;
use crate::status::Status;

/// Result of serving a request.
pub(crate) enum Served {
    /// It must wait for an earlier request; the service was not called.
    Blocked,
    /// It was served, and its body is taken in pieces.
    InPieces(Box<dyn BodySink>),
    /// It was served.
    Done {
        /// The connection stays open after it.
        persistent: bool,
        /// The worker has pieces that go between the composed bytes.
        is_spliced: bool,
    },
}

/// Passes a request to the service. `out` is the connection's write queue.
#[inline]
pub(crate) fn serve<S: Service>(
    shared: &Shared<S>,
    ring: &mut Ring,
    ticket: Ticket,
    request: &HttpRequest<'_>,
    mut shape: Shape,
    out: &mut Vec<u8>,
) -> Served {
    let worker = &shared.worker;
    let log = worker.settings.access_log.as_ref().map(|_| {
        // Allocates, as the line itself will: the cost of a log that is on.
        Box::new(Entry::new(request))
    });
    worker.fields.borrow_mut().clear();
    // A panic between a reply's head and its pieces leaves pieces behind.
    worker.splices.borrow_mut().clear();
    worker.series.set(Series::OTHER);
    let direct = ring.is_empty();
    let mut buffer = if direct { Vec::new() } else { worker.take_buffer() };
    let target = if direct { out } else { &mut buffer };
    let before = target.len();
    let mut outcome = Outcome::Unanswered;
    let reply = Reply { worker, out: target, shape: &mut shape, ticket, outcome: &mut outcome };
    let order = call(shared, ring, request, reply);
    let Some(order) = order else {
        worker.give_buffer(buffer);
        return Served::Blocked;
    };
    let measure = worker.measure(Some(request.head.method), worker.series.get());
    if matches!(outcome, Outcome::Unanswered) {
        // A panic may have left a part of a reply.
        target.truncate(before);
        compose_problem(worker, target, shape, Status(500), "the request was not answered");
        outcome = Outcome::Sent(Status(500));
    }
    if direct && let Outcome::Sent(status) = outcome {
        worker.count_with_turn(status, measure);
        worker.log(status, target.len() - before, log);
        // It owns nothing: not dropping it saves the usual reply a call.
        std::mem::forget(outcome);
        return Served::Done { persistent: shape.persistent, is_spliced: false };
    }
    if direct && let Outcome::Spliced(status) = outcome {
        let bytes = target.len() - before + part::bytes_of(&worker.splices.borrow());
        worker.count_with_turn(status, measure);
        worker.log(status, bytes, log);
        return Served::Done { persistent: shape.persistent, is_spliced: true };
    }
    let head_bytes = if direct { target.len() - before } else { 0 };
    place(
        worker,
        ring,
        Slot { shape, order, held: Held::Nothing, measure, log, watched: None },
        outcome,
        (buffer, head_bytes),
    )
}

/// Returns the request's order; `None` if it has to wait. After a panic the outcome stays as it was: unanswered, if no reply was
/// sent.
#[inline]
fn call<S: Service>(
    shared: &Shared<S>,
    ring: &Ring,
    request: &HttpRequest<'_>,
    reply: Reply<'_>,
) -> Option<RequestOrder> {
    let mut order = RequestOrder::Write;
    let called = catch_unwind(AssertUnwindSafe(|| {
        if request.head.path == "*" {
            answer_asterisk(reply);
            return true;
        }
        let local = &mut *shared.local.borrow_mut();
        order = shared.service.order(local, request);
        let waits = match order {
            RequestOrder::Write => ring.stands_alone(),
            RequestOrder::Read | RequestOrder::Alone => ring.has_unanswered_write(),
        };
        if waits {
            return false;
        }
        shared.service.call(local, request, reply);
        if order == RequestOrder::Write && shared.service.became_alone(local) {
            order = RequestOrder::Alone;
        }
        true
    }));
    match called {
        Ok(false) => None,
        Ok(true) => Some(order),
        Err(_) => {
            shared.worker.metrics.panics.add(1);
            Some(order)
        }
    }
}

/// `OPTIONS *` concerns the server, not a resource (RFC 9110 section 9.3.7).
#[cold]
fn answer_asterisk(mut reply: Reply<'_>) {
    reply.header("Allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    reply.send(Status(204), "", b"");
}

/// Handles all but the usual case: a reply that is late, in pieces, not copied, or behind another one. `head_bytes`: those of a
/// stream's head that are in the write queue already.
#[inline(never)]
fn place(
    worker: &Worker,
    ring: &mut Ring,
    mut slot: Slot,
    outcome: Outcome,
    (buffer, head_bytes): (Vec<u8>, usize),
) -> Served {
    let persistent = slot.shape.persistent;
    slot.held = match outcome {
        Outcome::Spliced(status) => {
            let pieces = std::mem::take(&mut *worker.splices.borrow_mut());
            Held::Spliced(status, buffer, Box::new(pieces))
        }
        Outcome::Stream(status, mut stream) => {
            stream.sent = head_bytes;
            Held::Stream(status, buffer, stream)
        }
        Outcome::Sent(status) => Held::Bytes(status, buffer),
        Outcome::Later | Outcome::Unanswered => {
            worker.give_buffer(buffer);
            Held::Nothing
        }
        Outcome::Watched(watched) => {
            worker.give_buffer(buffer);
            slot.watched = Some(watched);
            Held::Nothing
        }
        Outcome::InPieces(watched, sink) => {
            worker.give_buffer(buffer);
            slot.watched = Some(watched);
            ring.push(slot);
            return Served::InPieces(sink);
        }
    };
    ring.push(slot);
    Served::Done { persistent, is_spliced: false }
}

/// Answers a refused request; the connection is closed after it. `head_only`: the reply has no content (RFC 9110, section
/// 9.3.2).
pub(crate) fn refuse(worker: &Worker, ring: &mut Ring, refusal: Refusal, head_only: bool, out: &mut Vec<u8>) {
    let status = refusal.status_and_detail().0;
    let detail = refusal.detail(&worker.settings.limits);
    let shape = Shape { http10: false, persistent: false, head_only };
    worker.metrics.refusals.add(1);
    let measure = worker.measure(None, Series::OTHER);
    if ring.is_empty() {
        compose_problem(worker, out, shape, status, &detail);
        worker.count(status, measure, None);
    } else {
        let mut buffer = worker.take_buffer();
        compose_problem(worker, &mut buffer, shape, status, &detail);
        let held = Held::Bytes(status, buffer);
        ring.push(Slot { shape, order: RequestOrder::Read, held, measure, log: None, watched: None });
    }
}

/// The server's own reply, as a problem document (RFC 9457). `detail` needs no escaping: its texts are constants.
#[cold]
fn compose_problem(worker: &Worker, out: &mut Vec<u8>, shape: Shape, status: Status, detail: &str) {
    let body = format!("{{\"title\":\"{}\",\"status\":{},\"detail\":\"{detail}\"}}", status.reason(), status.0);
    let length = Length::Known(body.len() as u64);
    worker.composer.borrow().head(out, shape, status, "application/problem+json", HeaderFields::default(), length);
    if !shape.head_only {
        out.extend_from_slice(body.as_bytes());
    }
}
