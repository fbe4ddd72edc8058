//! One document as a reply: at once, or late; with its change number as the tag, and judged by the request's preconditions.

use super::large;
use super::media::JSON;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::reads::named::missing;
use crate::requests::preconditions::{self, Verdict};
use crate::threads::in_flight::InFlight;
use docs::{Moment, Precondition, ReadError, Stored};
use http::{LateReply, Reply, Status};

/// Answers with a document as read at a moment, with its change number. A large document is read again for each piece.
///
/// Its text is copied straight into the connection's queue, and checked before it leaves: see [`Moment::check`].
#[inline]
pub(crate) fn answer<'r>(
    now: &Moment<'_>,
    (number, text): (u64, &[u8]),
    precondition: &Precondition,
    mut reply: Reply<'r>,
    send_large: impl FnOnce(Reply<'r>),
    refuse: impl Fn(&Failure, Reply<'r>),
) {
    let verdict = preconditions::judge(precondition, number);
    if verdict == Verdict::Holds && text.len() <= large::WHOLE_BYTES_MAX {
        if let Err((error, reply)) = reply.send_tagged(number, JSON, text, || now.check()) {
            refuse(&refusal::of_read(&error), reply);
        }
        return;
    }
    if let Err(error) = now.check() {
        return refuse(&refusal::of_read(&error), reply);
    }
    reply.numbered_tag(number);
    match verdict {
        Verdict::Holds => send_large(reply),
        Verdict::NotModified => reply.send(Status(304), "", b""),
        Verdict::Failed => refuse(&other_number(), reply),
    }
}

/// Answers with a document's text and change number.
pub(crate) fn answer_late(
    replies: &InFlight,
    errors: &ErrorRules,
    mut late: LateReply,
    precondition: &Precondition,
    found: Result<(u64, Vec<u8>), Failure>,
) {
    let (number, text) = match found {
        Ok(found) => found,
        Err(failure) => return refusal::refuse(errors, late, &failure),
    };
    late.numbered_tag(number);
    match preconditions::judge(precondition, number) {
        Verdict::NotModified => late.send(Status(304), "", Vec::new()),
        Verdict::Failed => refusal::refuse(errors, late, &other_number()),
        Verdict::Holds => large::send_late(replies, errors, late, Status(200), JSON, text),
    }
}

/// Change number and text of the found document, or 404.
pub(crate) fn numbered_text_of(found: Option<Stored<'_>>) -> Result<(u64, Vec<u8>), Failure> {
    let stored = found.ok_or_else(missing)?;
    let read = || -> Result<_, ReadError> { Ok((stored.change_number()?, stored.text()?.to_vec())) };
    read().map_err(|error| refusal::of_read(&error))
}

fn other_number() -> Failure {
    Failure::new(FailureKind::PreconditionFailed, "the document has another change number")
}
