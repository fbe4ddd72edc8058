//! From a write's outcome to its reply, on whatever thread the outcome is told.

use crate::failure::Failure;
use crate::in_flight::Taken;
use crate::keys::KeyTold;
use crate::media::JSON;
use crate::refusal;
use crate::service::{Local, Service};
use docs::{Op, Required, Submission, Write, WriteError, Written};
use http::{Reply, Status};
use std::sync::Arc;

/// The reply to a write that was done.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) body: Arc<[u8]>,
    /// The key of a new document is told: in the body, unless that is declared.
    pub(crate) key: Option<Arc<KeyTold>>,
    pub(crate) is_declared: bool,
}

/// Hands a write over; it is answered when it is durable or refused. What is required must be there then: else 404.
pub(crate) fn submit(
    service: &Service,
    local: &mut Local,
    (write, required): (Write, Option<Required>),
    answer: &Answer,
    reply: Reply<'_>,
) {
    let taken = match admit(service, &write.op) {
        Ok(taken) => taken,
        Err(failure) => return service.fail(&failure, reply),
    };
    let (errors, answer, late) = (Arc::clone(&service.errors), answer.clone(), reply.later());
    let done = move |outcome: Result<Written, WriteError>| {
        drop(taken);
        match outcome {
            Ok(written) => match &answer.key {
                None => late.send(answer.status, JSON, answer.body.to_vec()),
                Some(told) => {
                    let body = answer.is_declared.then(|| answer.body.to_vec());
                    told.send(late, answer.status, body, &written.key);
                }
            },
            Err(error) => refusal::refuse(&errors, late, &refusal::of_write(&error)),
        }
    };
    let submission = Submission { write, required, done: Box::new(done) };
    local.held.write(&service.database, &local.session, submission);
}

/// What a write takes while it waits, apart from its body: the operation, its place in the queue, its reply.
pub(crate) const WAITING_BYTES: usize = 768;

/// Counts a write as waiting until what this gives is dropped; refused while too much waits already.
pub(crate) fn admit(service: &Service, op: &Op) -> Result<Taken, Failure> {
    service.writes.take(WAITING_BYTES + body_bytes(op)).ok_or_else(|| refusal::of_write(&WriteError::Busy))
}

fn body_bytes(op: &Op) -> usize {
    match op {
        Op::Insert { body } | Op::Replace { body, .. } | Op::Put { body, .. } => body.len(),
        Op::Update { patch, .. } | Op::Patch { patch, .. } => patch.len(),
        Op::Delete { .. } => 0,
    }
}
