//! From a write to its reply, on whichever thread the outcome is known.
//!
//! A write is prepared on its loop, unless that takes milliseconds: a large body, a long document that is checked by a JSON
//! Schema that is not plain, or a write that turns out to take as long ([`super::long_write`]). Such a write is prepared on
//! another thread ([`super::large_write`]), and is alone among the writing requests of its connection (`routing::routes`), so
//! that none overtakes it.

use super::{Local, Service, Shared};
use crate::access::token::Permit;
use crate::failure::Failure;
use crate::failure::refusal;
use crate::replies::media::JSON;
use crate::replies::new_key::KeyTold;
use crate::statements::guard::DeclaredGuard;
use crate::threads::client::ClientWatch;
use crate::threads::in_flight::Taken;
use docs::statements::Guard;
use docs::{
    CancelCheck, DocumentDatabase, LARGE_BYTES, Op, ReaderSession, Required, Submission, TakeLong, Write, WriteError,
    Written,
};
use http::{LateReply, Reply, Status};
use reactor::Loop;
use std::sync::Arc;
use std::time::Instant;

/// The reply to a successful write.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: Status,
    pub(crate) body: Arc<[u8]>,
    /// The key of a new document is reported: in the body, unless that is declared.
    pub(crate) key: Option<Arc<KeyTold>>,
    pub(crate) is_declared: bool,
    /// The document exists afterwards, and its tag is sent.
    pub(crate) has_tag: bool,
}

/// A guard with its arguments.
pub(crate) type BoundGuard = (Arc<DeclaredGuard>, Guard);

/// Submits a write; it is answered when it is durable or refused. The required document must exist then, otherwise 404.
pub(crate) fn submit(
    service: &Service,
    local: &mut Local,
    (write, required, guard): (Write, Option<Required>, Option<BoundGuard>),
    answer: &Answer,
    reply: Reply<'_>,
) {
    let taken = match admit(service, &write.op) {
        Ok(taken) => taken,
        Err(failure) => return service.fail(&failure, reply),
    };
    let (mut late, over) = later(service, local, &write, reply);
    let (errors, answer) = (Arc::clone(&service.errors), answer.clone());
    let (declared, guard) = guard.unzip();
    let done = move |outcome: Result<Written, WriteError>| {
        drop(taken);
        if let Ok(written) = &outcome
            && answer.has_tag
        {
            late.numbered_tag(written.change_number);
        }
        match outcome {
            Ok(written) => match &answer.key {
                None => late.send(answer.status, JSON, answer.body.to_vec()),
                Some(told) => {
                    let body = answer.is_declared.then(|| answer.body.to_vec());
                    told.send(late, answer.status, body, &written.key);
                }
            },
            Err(error) => {
                let guard = declared.filter(|_| error == WriteError::Unguarded);
                let failure = guard.map_or_else(|| refusal::of_write(&error), |guard| guard.refused());
                refusal::refuse(&errors, late, &failure);
            }
        }
    };
    hand_over(service, local, Submission { write, guard, required, over, long: None, done: Box::new(done) });
}

/// The late reply to a write, and the cancellation check of a long check: whether its client has left or the server has stopped. Only the
/// client of a write that is not for a loop is watched.
pub(crate) fn later(
    service: &Service,
    local: &Local,
    write: &Write,
    reply: Reply<'_>,
) -> (LateReply, Option<CancelCheck>) {
    if !is_large(&service.database, &local.session, write) {
        return (reply.later(), None);
    }
    let late = reply.later_watched();
    // A single write is short, and whether it was permitted is decided when it arrives.
    let over = cancel_check(service, &late, &Permit::default());
    (late, Some(over))
}

/// Whether the client of a watched reply has left or lost its permission, or the server has stopped. The caller yields to the loops first.
pub(crate) fn cancel_check(shared: &Shared, late: &LateReply, permit: &Permit) -> CancelCheck {
    let (client, queries, loops) =
        (ClientWatch::elsewhere(late, permit), Arc::clone(&shared.queries), Arc::clone(&shared.loops));
    Arc::new(move || {
        let now = Instant::now();
        executor::let_others(now, || loops.iter().any(Loop::waits));
        queries.is_stopped() || client.is_over(now)
    })
}

/// Whether a write is prepared off its loop.
pub(crate) fn is_large(database: &DocumentDatabase, session: &ReaderSession, write: &Write) -> bool {
    write.op.bytes() >= LARGE_BYTES || database.has_long_check(session, write)
}

/// Passes a write to where it is prepared.
pub(crate) fn hand_over(service: &Service, local: &mut Local, submission: Submission) {
    let Local { session, held, long_writes, .. } = local;
    let is_large = submission.over.is_some();
    let long = || Arc::clone(long_writes) as Arc<dyn TakeLong>;
    let long = service.database.may_be_long(&submission.write).then(long);
    let submission = Submission { long, ..submission };
    if let Some(submission) = service.take_large(&service.database, submission, is_large) {
        held.write(&service.database, session, submission);
    }
}

/// Memory of a waiting write besides its body: the operation, its queue entry, its reply.
pub(crate) const WAITING_BYTES: usize = 768;

/// Counts a write as waiting until the returned value is dropped; refused if too many bytes wait already.
pub(crate) fn admit(service: &Service, op: &Op) -> Result<Taken, Failure> {
    service.writes.take(WAITING_BYTES + op.bytes()).ok_or_else(|| refusal::of_write(&WriteError::Busy))
}
