//! `POST /_/collections/NAME/bulk`: one document a line in, one line out for each that failed.
//!
//! Each line is a transaction of its own, submitted in order, some in each turn of the loop ([`crate::held`]); all of them share
//! the group's syncs. The reply leaves when the last one is durable or refused. Until then the whole request counts as writes that
//! wait, lines and failures included: a body of short lines takes far more as operations and messages than as text. It
//! stands alone among the requests of its connection.

use super::{collection, fail};
use crate::failure::{ErrorRules, Failure, Kind};
use crate::held::Bulk;
use crate::in_flight::{InFlight, Taken};
use crate::large;
use crate::refusal;
use crate::rows::NDJSON;
use crate::service::{Local, Service};
use crate::writing;
use docs::{Done, Session, Submission, WriteError, Written};
use http::{LateReply, Params, Reply, Request, Status};
use std::sync::{Arc, Mutex, PoisonError};

/// Most lines of one request.
const LINES_MAX: usize = 10_000;

/// What the lines of one request share; the last one to end answers.
struct Batch {
    state: Mutex<State>,
    replies: InFlight,
}

struct State {
    waiting: usize,
    failed: Vec<(usize, String)>,
    late: Option<LateReply>,
    /// Given back when the last line has ended, before it is answered.
    taken: Option<Taken>,
}

impl Batch {
    /// One line ended (or, with `line` 0, the reading of the request).
    fn end(&self, line: usize, failure: Option<String>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failed.extend(failure.map(|text| (line, text)));
        state.waiting -= 1;
        if state.waiting > 0 {
            return;
        }
        let Some(late) = state.late.take() else { return };
        let mut failed = std::mem::take(&mut state.failed);
        state.taken = None;
        drop(state);
        failed.sort_by_key(|(line, _)| *line);
        let body: String = failed.into_iter().map(|(_, text)| text + "\n").collect();
        large::send_late(&self.replies, &ErrorRules::default(), late, Status(200), NDJSON, body.into_bytes());
    }
}

pub(super) fn load(
    service: &Service,
    local: &mut Local,
    request: &Request<'_>,
    params: &Params<'_, '_>,
    reply: Reply<'_>,
) {
    let id = match collection(service, params, &mut local.text) {
        Ok((id, _)) => id,
        Err(failure) => return fail(&failure, reply),
    };
    let taken = match admit(service, request.body()) {
        Ok(taken) => taken,
        Err(failure) => return fail(&failure, reply),
    };
    let mut to_write: Vec<_> = lines(request.body()).map(|(place, line)| (place + 1, line.into())).collect();
    to_write.reverse();
    let waiting = to_write.len() + 1;
    let late = reply.later_watched();
    let over = Some(writing::question(service, &late));
    let state = State { waiting, failed: Vec::new(), late: Some(late), taken: Some(taken) };
    let batch = Arc::new(Batch { state: Mutex::new(state), replies: service.replies.clone() });
    let shared = Arc::clone(&batch);
    let done = move |number| -> Done {
        let shared = Arc::clone(&shared);
        Box::new(move |outcome: Result<Written, WriteError>| {
            shared.end(number, outcome.err().map(|error| describe(number, &error)));
        })
    };
    let (database, shared) = (service.database.clone(), Arc::clone(&service.shared));
    let large_of = database.clone();
    let take_large = move |session: &Session, submission: Submission| {
        let is_large = writing::is_large(&large_of, session, &submission.write);
        // A short one is written in less time than it takes to ask: all that came is written, though its client has ended its side.
        let submission = Submission { over: submission.over.filter(|_| is_large), ..submission };
        shared.take_large(&large_of, submission, is_large)
    };
    local.held.bulk(Bulk {
        database,
        collection: id,
        take_large: Box::new(take_large),
        lines: to_write,
        over,
        done: Box::new(done),
    });
    batch.end(0, None);
}

/// The lines that hold anything, with their places.
fn lines(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let all = body.split(|byte| *byte == b'\n').enumerate();
    all.filter(|(_, line)| !line.trim_ascii().is_empty())
}

fn admit(service: &Service, body: &[u8]) -> Result<Taken, Failure> {
    let (count, bytes) = lines(body).fold((0, 0), |(count, bytes), (_, line)| (count + 1, bytes + line.len()));
    if count > LINES_MAX {
        return Err(Failure::new(Kind::TooLarge, format!("{count} lines; allowed: {LINES_MAX} a request")));
    }
    let (bytes, bytes_max) = (bytes + count * writing::WAITING_BYTES, service.writes.bytes_max());
    if bytes > bytes_max {
        let what = format!("{count} lines take {bytes} bytes while they wait; the memory setting leaves {bytes_max}");
        return Err(Failure::new(Kind::TooLarge, format!("{what}: send fewer at once")));
    }
    let taken = service.writes.take(bytes);
    taken.ok_or_else(|| refusal::of_write(&WriteError::Busy))
}

fn describe(line: usize, error: &WriteError) -> String {
    let failure = refusal::of_write(error);
    let status = ErrorRules::default().status(failure.kind).0;
    serde_json::json!({ "line": line, "status": status, "detail": failure.detail }).to_string()
}
