//! From a write's outcome to its reply, on whatever thread the outcome is told.

use crate::failure::{ErrorRules, Failure, Kind};
use crate::in_flight::Taken;
use crate::keys::KeyTold;
use crate::media::JSON;
use crate::querying::of_query;
use crate::service::{Local, Service};
use docs::sql::ModifyError;
use docs::{Op, ReadError, Write, WriteError, Written};
use http::{LateReply, Reply, Status};
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

/// Hands a write over; it is answered when it is durable or refused.
pub(crate) fn submit(service: &Service, local: &mut Local, write: Write, answer: &Answer, reply: Reply<'_>) {
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
            Err(error) => refuse(&errors, late, &of_write(&error)),
        }
    };
    service.database.write(&local.session, write, Box::new(done));
}

/// What a write takes while it waits, apart from its body: the operation, its place in the queue, its reply.
pub(crate) const WAITING_BYTES: usize = 768;

/// Counts a write as waiting until what this gives is dropped; refused while too much waits already.
pub(crate) fn admit(service: &Service, op: &Op) -> Result<Taken, Failure> {
    service.writes.take(WAITING_BYTES + body_bytes(op)).ok_or_else(|| of_write(&WriteError::Busy))
}

fn body_bytes(op: &Op) -> usize {
    match op {
        Op::Insert { body } | Op::Replace { body, .. } | Op::Put { body, .. } => body.len(),
        Op::Update { patch, .. } | Op::Patch { patch, .. } => patch.len(),
        Op::Delete { .. } => 0,
    }
}

/// Answers a failure late.
pub(crate) fn refuse(errors: &ErrorRules, late: LateReply, failure: &Failure) {
    let (status, media, body) = errors.reply(failure);
    late.send(status, media, body.into_owned());
}

/// What a refused or failed write is to the client.
pub(crate) fn of_write(error: &WriteError) -> Failure {
    let kind = match error {
        WriteError::NotFound => Kind::NotFound,
        WriteError::PreconditionFailed => Kind::PreconditionFailed,
        WriteError::Invalid { .. } => Kind::Invalid,
        WriteError::Conflict { .. } => Kind::Conflict,
        WriteError::TooLarge { .. } => Kind::TooLarge,
        WriteError::Busy => Kind::Busy,
        _ => Kind::Unavailable,
    };
    match error {
        WriteError::Invalid { why, pointer } if !pointer.is_empty() => Failure::new(kind, format!("{pointer}: {why}")),
        other => Failure::new(kind, other.to_string()),
    }
}

/// What a statement that changed nothing is to the client.
pub(crate) fn of_modify(error: &ModifyError) -> Failure {
    match error {
        ModifyError::Write(error) => of_write(error),
        ModifyError::Query(error) => of_query(error),
        other => Failure::new(Kind::Internal, other.to_string()),
    }
}

/// What a transaction that the store did not take is to the client.
pub(crate) fn of_store(error: store::Error) -> Failure {
    of_write(&WriteError::from(error))
}

/// What a failed read is to the client.
pub(crate) fn of_read(error: &ReadError) -> Failure {
    if matches!(error, ReadError::Store(store::Error::Busy)) {
        // No reader is free, or the configuration has just changed.
        return Failure::new(Kind::Busy, error.to_string());
    }
    tracing::error!(%error, "a read failed");
    Failure::new(Kind::Internal, error.to_string())
}
