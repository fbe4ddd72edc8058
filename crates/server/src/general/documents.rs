//! One document: GET, PUT, PATCH, DELETE under its key; POST to its collection.

use super::{collection, fail};
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::reads::cold::{OnLoop, ReadLimits};
use crate::reads::direct::{self, Direct, Waiting};
use crate::reads::named::{Unread, missing};
use crate::replies::document::{answer, answer_late};
use crate::replies::large;
use crate::replies::media::JSON;
use crate::replies::new_key;
use crate::requests::params::echo;
use crate::requests::preconditions;
use crate::service::cold_read;
use crate::service::write;
use crate::service::{Local, Service};
use docs::catalog::CollectionInfo;
use docs::engine::ErrorKind;
use docs::key::Key;
use docs::{CollectionId, Op, Precondition, ReaderSession, Submission, Write, WriteError, Written};
use http::{HttpRequest, LateReply, Params, Reply, Status};
use std::rc::Rc;
use std::sync::Arc;

/// The document named by the path: its collection, and its key.
fn target<'s, 'k>(
    service: &'s Service,
    text: &'k mut Vec<u8>,
    params: &Params<'_, 'k>,
) -> Result<(CollectionId, &'s CollectionInfo, Key<'k>), Failure> {
    let (id, info) = collection(service, params, text)?;
    let text = params.get("id", text).and_then(Result::ok).unwrap_or_default();
    let key = info.key.kind.of_text(text).ok_or_else(|| {
        Failure::new(
            FailureKind::NotFound,
            format!("`{}` is no key of {}: its keys are {}", echo(text), info.name, info.key.kind.name()),
        )
    })?;
    Ok((id, info, key))
}

pub(super) fn get(
    service: &Service,
    local: &mut Local,
    request: &HttpRequest<'_>,
    params: &Params<'_, '_>,
    reply: Reply<'_>,
) {
    let Local { session, text, cold, direct, .. } = local;
    let found =
        target(service, text, params).and_then(|(id, info, key)| Ok((id, info, key, preconditions::of(request)?)));
    let (id, info, key, precondition) = match found {
        Ok(found) => found,
        Err(failure) => return fail(&failure, reply),
    };
    let unanswered = {
        let _on_loop = OnLoop::new(session, cold.is_asking());
        get_stored(session, direct, (id, info), &key, &precondition, reply)
    };
    let Some((slot, reply)) = unanswered else { return };
    cold_read::count_cold(service, cold);
    let document = Unread { collection: id, kind: info.key.kind, key: key.as_bytes().to_vec() };
    match (slot, direct) {
        (Some(slot), Some(direct)) => {
            direct.wait(
                slot,
                Waiting { late: reply.later(), document, kind: direct::DirectAnswer::General(precondition) },
            );
        }
        _ => read_elsewhere(service, document, precondition, reply.later_watched()),
    }
}

/// Answers, unless the read would have to wait: then it returns the reply, and the queue entry that reads the document, if there is one.
fn get_stored<'r>(
    session: &Rc<ReaderSession>,
    direct: &mut Option<Direct>,
    (id, info): (CollectionId, &CollectionInfo),
    key: &Key<'_>,
    precondition: &Precondition,
    reply: Reply<'r>,
) -> Option<(Option<usize>, Reply<'r>)> {
    let refuse = |failure: &Failure, reply: Reply<'_>| {
        fail(failure, reply);
        None
    };
    let now = session.now();
    let mut slot = None;
    let stored = match direct::get(direct.as_mut(), &now, (id, key), &mut slot) {
        Ok(Some(stored)) => stored,
        Ok(None) => return refuse(&missing(), reply),
        Err(error) if error.engine() == Some(ErrorKind::WouldWait) => return Some((slot, reply)),
        Err(error) => return refuse(&refusal::of_read(&error), reply),
    };
    let (number, text) = match stored.change_number().and_then(|number| Ok((number, stored.text()?))) {
        Ok(read) => read,
        Err(error) => return refuse(&refusal::of_read(&error), reply),
    };
    let send_large = |reply: Reply<'_>| {
        large::send_document(session, id, info.key.kind, key, (number, text.len()), reply);
    };
    answer(&now, (number, text), precondition, reply, send_large, fail);
    None
}

/// The same on a thread that may wait.
#[cold]
pub(crate) fn read_elsewhere(service: &Service, document: Unread, precondition: Precondition, late: LateReply) {
    let (errors, replies) = (Arc::new(ErrorRules::default()), service.replies.clone());
    let read = move |session: &ReaderSession, limits: ReadLimits| document.read(session, limits.bytes_max);
    cold_read::read_late(service, &Arc::clone(&errors), late, read, move |late, found| {
        answer_late(&replies, &errors, late, &precondition, found);
    });
}

/// PUT, PATCH and DELETE: `op` makes the operation of key and body.
pub(super) fn change(
    service: &Service,
    local: &mut Local,
    request: &HttpRequest<'_>,
    params: &Params<'_, '_>,
    reply: Reply<'_>,
    op: fn(Vec<u8>, Vec<u8>) -> Op,
) {
    let found = target(service, &mut local.text, params)
        .and_then(|(id, _, key)| Ok((id, key.as_bytes().to_vec(), preconditions::of(request)?)));
    let (collection, key, precondition) = match found {
        Ok(found) => found,
        Err(failure) => return fail(&failure, reply),
    };
    let write = Write { collection, op: op(key, request.body().to_vec()), precondition };
    let deletes = matches!(write.op, Op::Delete { .. });
    submit(service, local, write, reply, move |late, written| {
        if deletes { late.send(Status(204), "", Vec::new()) } else { accepted(late, written, None) }
    });
}

pub(super) fn insert(
    service: &Service,
    local: &mut Local,
    request: &HttpRequest<'_>,
    params: &Params<'_, '_>,
    reply: Reply<'_>,
) {
    let (collection, info) = match collection(service, params, &mut local.text) {
        Ok(found) => found,
        Err(failure) => return fail(&failure, reply),
    };
    let op = Op::Insert { body: request.body().to_vec() };
    let (name, kind) = (info.name.clone(), info.key.kind);
    let key_field = info.key.generate.map(|_| info.key.field.clone());
    submit(
        service,
        local,
        Write { collection, op, precondition: Precondition::None },
        reply,
        move |mut late, written| {
            let key = kind.of_bytes(&written.key);
            if let Some(key) = &key {
                late.header("Location", &format!("/_/collections/{name}/{}", new_key::in_path(key)));
            }
            let body = key_field.zip(key).map(|(field, key)| new_key::as_object(&field, &key));
            accepted(late, written, body);
        },
    );
}

/// Submits a write; `done` answers once it is durable.
fn submit(
    service: &Service,
    local: &mut Local,
    write: Write,
    reply: Reply<'_>,
    done: impl FnOnce(LateReply, &Written) + Send + 'static,
) {
    let taken = match write::admit(service, &write.op) {
        Ok(taken) => taken,
        Err(failure) => return fail(&failure, reply),
    };
    let (late, over) = write::later(service, local, &write, reply);
    let at_end = move |outcome: Result<Written, WriteError>| {
        drop(taken);
        match outcome {
            Ok(written) => done(late, &written),
            Err(error) => refusal::refuse(&ErrorRules::default(), late, &refusal::of_write(&error)),
        }
    };
    let submission = Submission { write, guard: None, required: None, over, long: None, done: Box::new(at_end) };
    write::hand_over(service, local, submission);
}

/// 201 for a new document, 200 for a changed one; its change number as the tag. The body contains the key if the server made it.
fn accepted(mut late: LateReply, written: &Written, body: Option<Vec<u8>>) {
    late.numbered_tag(written.change_number);
    late.send(Status(if written.created { 201 } else { 200 }), JSON, body.unwrap_or_else(|| b"{}".to_vec()));
}
