//! `POST /_/collections/NAME/bulk`: one document a line in, one line out for each failed one.
//!
//! ```text
//!  body in pieces ─► Feed: text, cut into lines ─► Source: admitted one by one ─► store
//!        ▲                     │ no room                  │ no room                 │ done
//!        └──── nudge ──────────┘                          └───── wake the loop ─────┘
//! ```
//!
//! Each line is a transaction of its own, submitted in order, some in each tick of the loop ([`crate::service::held_write`]);
//! lines in flight share the group's syncs. The body may have any length: it is read at the pace at which the store takes its
//! lines, so a faster client waits. A bulk holds one line or [`crate::requests::lines`]' text (an arriving body), the lines in
//! flight (waiting writes, each counted as such), and the reports of failed lines ([`FAILED_BYTES_MAX`]).
//!
//! The reply is sent when the last line is durable or refused. If the body ends early or with an error, the reply names the
//! lines that were taken; likewise if the token of the bulk is revoked or ends. A bulk is [`http::RequestOrder::Alone`] among the
//! requests of its connection.

use super::{collection, fail};
use crate::access::token::Permit;
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::replies::large;
use crate::replies::rows::NDJSON;
use crate::requests::lines::{Line, Lines};
use crate::service::held_write::{Bulk, LineSource, NextLine};
use crate::service::long_write::LongWrites;
use crate::service::write;
use crate::service::{Local, Service};
use crate::threads::in_flight::{InFlight, Taken};
use docs::{DocumentDatabase, ReaderSession, Submission, TakeLong, WriteCallback, WriteError, Written};
use http::{BodyFault, BodySink, HttpRequest, LateReply, Nudge, Params, Reply, Status};
use reactor::Loop;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines in flight of one bulk may hold this part of the limit of waiting writes, and those of all bulks together at most
/// [`bulks_bytes_max`]. The rest is for single writes.
const PARTS_UNDER_WAY: usize = 2;
/// Bytes of lines in flight that make a group of the store large enough.
const UNDER_WAY_BYTES_MAX: usize = 4 << 20;
/// Limit of the reports of failed lines of one bulk, beside that of all ([`crate::service::Shared::bulk_reports`]). Further failures are
/// only counted.
const FAILED_BYTES_MAX: usize = 1 << 20;
/// Step in which memory for the reports is reserved.
const FAILED_STEP_BYTES: usize = 16 << 10;
/// Memory of a report besides its text.
const FAILED_PLACE_BYTES: usize = 64;

/// Limit of waiting bytes for bulks; the rest is left to single writes.
fn bulks_bytes_max(writes: &InFlight) -> usize {
    writes.bytes_max() - writes.bytes_max() / 4
}

/// Received text that is not taken yet.
struct Feed {
    lines: Lines,
    end: Option<Result<(), BodyFault>>,
    /// The connection is not read until it is nudged.
    is_held_back: bool,
}

/// The connection's end of the feed.
struct Body(Rc<RefCell<Feed>>);

impl BodySink for Body {
    fn take(&mut self, piece: &[u8]) -> usize {
        let mut feed = self.0.borrow_mut();
        let taken = feed.lines.take(piece);
        feed.is_held_back |= taken < piece.len();
        taken
    }

    fn held_bytes(&self) -> usize {
        self.0.borrow().lines.held_bytes()
    }

    fn end(self: Box<Self>, end: Result<(), BodyFault>) {
        self.0.borrow_mut().end(end);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let detail = "the client's connection ended";
        self.0.borrow_mut().end(Err(BodyFault { status: Status(400), detail: detail.into() }));
    }
}

impl Feed {
    /// The first end counts. After an abnormal end, the remaining text is dropped.
    fn end(&mut self, end: Result<(), BodyFault>) {
        if self.end.is_some() {
            return;
        }
        if end.is_ok() {
            self.lines.end();
        } else {
            self.lines = Lines::new(0);
        }
        self.end = Some(end);
    }
}

/// The loop's source of lines.
struct Source {
    feed: Rc<RefCell<Feed>>,
    nudge: Nudge,
    batch: Arc<Batch>,
    permit: Permit,
    line_bytes_max: usize,
    /// A line for which there was no room.
    waiting: Option<(usize, Vec<u8>)>,
}

impl LineSource for Source {
    fn next(&mut self, database: &DocumentDatabase) -> NextLine {
        if let Err(refused) = self.permit.check() {
            self.waiting = None;
            let fault = BodyFault { status: refused.kind.status(), detail: refused.detail };
            self.feed.borrow_mut().end(Err(fault.clone()));
            self.batch.close(Err(fault));
            return NextLine::End;
        }
        let Some((number, text)) = self.waiting.take().or_else(|| self.pull()) else {
            let Some(end) = self.feed.borrow_mut().end.clone() else { return NextLine::Wait };
            self.batch.close(end);
            return NextLine::End;
        };
        match self.batch.admit(number, write::WAITING_BYTES + text.len(), database) {
            Ok(under_way) => NextLine::Line { text, done: under_way.done() },
            Err(next) => {
                self.waiting = Some((number, text));
                next
            }
        }
    }
}

impl Source {
    /// The next line to be written.
    fn pull(&mut self) -> Option<(usize, Vec<u8>)> {
        loop {
            let mut feed = self.feed.borrow_mut();
            let line = feed.lines.next();
            if feed.is_held_back && feed.lines.has_room() {
                feed.is_held_back = false;
                self.nudge.send();
            }
            drop(feed);
            match line? {
                (number, Line::Text(text)) => return Some((number, text)),
                (number, Line::TooLong) => {
                    let limit = self.line_bytes_max;
                    let what = format!("the line is longer than {limit} bytes, of `[server] body_bytes_max`");
                    self.batch.refuse(number, &Failure::new(FailureKind::TooLarge, what));
                }
            }
        }
    }
}

/// State shared by the lines of one request; the last one to end answers.
struct Batch {
    state: Mutex<State>,
    writes: InFlight,
    reports: InFlight,
    replies: InFlight,
    lp: Loop,
}

struct State {
    /// Lines in flight, plus one for the body.
    waiting: usize,
    under_way_bytes: usize,
    /// The last line that was taken.
    last: usize,
    failed: Failed,
    /// The loop waits for room.
    is_awaited: bool,
    fault: Option<BodyFault>,
    late: Option<LateReply>,
}

/// Reports of failed lines.
#[derive(Default)]
struct Failed {
    listed: Vec<(usize, String)>,
    bytes: usize,
    /// Reservations for their memory, among the reports and among waiting writes.
    room: Vec<(Taken, Taken)>,
    /// Number of further failures, by status.
    more: BTreeMap<u16, usize>,
    /// The last line of these.
    more_last: usize,
}

impl Failed {
    fn note(&mut self, line: usize, failure: &Failure, (reports, writes): (&InFlight, &InFlight)) {
        let status = ErrorRules::default().status(failure.kind).0;
        let text = serde_json::json!({ "line": line, "status": status, "detail": failure.detail }).to_string();
        let needed = self.bytes + text.len() + FAILED_PLACE_BYTES;
        while needed <= FAILED_BYTES_MAX && needed > self.room.len() * FAILED_STEP_BYTES {
            let Some(room) = reports.take(FAILED_STEP_BYTES).zip(writes.take(FAILED_STEP_BYTES)) else { break };
            self.room.push(room);
        }
        if self.more.is_empty() && needed <= self.room.len() * FAILED_STEP_BYTES {
            self.bytes = needed;
            self.listed.push((line, text));
        } else {
            *self.more.entry(status).or_default() += 1;
            self.more_last = self.more_last.max(line);
        }
    }

    fn count(&self) -> usize {
        self.listed.len() + self.more.values().sum::<usize>()
    }

    /// One line for each report, in order, and one for the failures that are only counted.
    fn into_text(mut self) -> String {
        self.listed.sort_by_key(|(line, _)| *line);
        let mut text = String::with_capacity(self.bytes);
        self.listed.iter().for_each(|(_, line)| text.extend([line, "\n"]));
        if !self.more.is_empty() {
            let more: usize = self.more.values().sum();
            let statuses: serde_json::Map<_, _> =
                self.more.iter().map(|(status, count)| (status.to_string(), (*count).into())).collect();
            let detail = format!(
                "more lines were refused, the last of them line {}: only the first ones are listed",
                self.more_last
            );
            text += &serde_json::json!({ "more": more, "statuses": statuses, "detail": detail }).to_string();
            text.push('\n');
        }
        text
    }
}

/// A line in flight.
struct UnderWay {
    batch: Arc<Batch>,
    number: usize,
    bytes: usize,
    taken: Taken,
}

impl UnderWay {
    fn done(self) -> WriteCallback {
        Box::new(move |outcome: Result<Written, WriteError>| {
            drop(self.taken);
            let failure = outcome.err().map(|error| refusal::of_write(&error));
            self.batch.end(self.bytes, failure.map(|failure| (self.number, failure)));
        })
    }
}

impl Batch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a line as in flight; or returns how to wait.
    fn admit(self: &Arc<Self>, number: usize, bytes: usize, database: &DocumentDatabase) -> Result<UnderWay, NextLine> {
        let (writes, mut state) = (&self.writes, self.lock());
        let under_way_max = UNDER_WAY_BYTES_MAX.min(writes.bytes_max() / PARTS_UNDER_WAY);
        let is_alone = state.under_way_bytes == 0;
        if !is_alone && state.under_way_bytes + bytes > under_way_max {
            state.is_awaited = true;
            return Err(NextLine::Wait);
        }
        // A single line may take everything that is free: otherwise a large one would wait for ever.
        let bytes_max = if is_alone { writes.bytes_max() } else { bulks_bytes_max(writes) };
        let taken = if database.store().has_room() { writes.take_up_to(bytes, bytes_max) } else { None };
        let Some(taken) = taken else {
            state.is_awaited = !is_alone;
            return Err(NextLine::WaitForOthers);
        };
        state.waiting += 1;
        state.under_way_bytes += bytes;
        state.last = number;
        Ok(UnderWay { batch: Arc::clone(self), number, bytes, taken })
    }

    /// Records a line that is refused before it is written.
    fn refuse(&self, number: usize, failure: &Failure) {
        let mut state = self.lock();
        state.last = number;
        state.failed.note(number, failure, (&self.reports, &self.writes));
    }

    /// Ends the body.
    fn close(&self, end: Result<(), BodyFault>) {
        self.lock().fault = end.err();
        self.end(0, None);
    }

    /// A line of this size ended, or the body.
    fn end(&self, bytes: usize, failed: Option<(usize, Failure)>) {
        let mut state = self.lock();
        if let Some((line, failure)) = failed {
            state.failed.note(line, &failure, (&self.reports, &self.writes));
        }
        state.waiting -= 1;
        state.under_way_bytes -= bytes;
        if state.waiting == 0 {
            return self.answer(state);
        }
        let has_room = state.under_way_bytes <= UNDER_WAY_BYTES_MAX.min(self.writes.bytes_max() / PARTS_UNDER_WAY) / 2;
        if state.is_awaited && has_room {
            state.is_awaited = false;
            drop(state);
            // At the end of the tick the loop continues the bulks.
            self.lp.run(Box::new(|_| {}));
        }
    }

    fn answer(&self, mut state: MutexGuard<'_, State>) {
        let Some(late) = state.late.take() else { return };
        let (failed, fault, last) = (std::mem::take(&mut state.failed), state.fault.take(), state.last);
        drop(state);
        let errors = ErrorRules::default();
        match fault {
            Some(fault) => refusal::refuse(&errors, late, &cut_short(&fault, last, &failed)),
            None => {
                let text = failed.into_text();
                large::send_late(&self.replies, &errors, late, Status(200), NDJSON, text.into_bytes());
            }
        }
    }
}

/// The failure of a body that ended early or with an error.
fn cut_short(fault: &BodyFault, last: usize, failed: &Failed) -> Failure {
    let mut detail = match last {
        0 => format!("{}; no line was taken", fault.detail),
        1 => format!("{}; line 1 was taken before", fault.detail),
        last => format!("{}; lines 1 to {last} were taken before", fault.detail),
    };
    if let Some((_, first)) = failed.listed.iter().min_by_key(|(line, _)| *line) {
        detail += &format!(", and {} of them refused, the first: {first}", failed.count());
    } else if failed.count() > 0 {
        detail += &format!(", and {} of them refused", failed.count());
    }
    let kind = match fault.status.0 {
        503 => FailureKind::Busy,
        401 => FailureKind::Unauthorized,
        403 => FailureKind::Forbidden,
        _ => FailureKind::Invalid,
    };
    Failure { status: Some(fault.status.0), ..Failure::new(kind, detail) }
}

pub(super) fn load(
    service: &Service,
    local: &mut Local,
    request: &HttpRequest<'_>,
    params: &Params<'_, '_>,
    (permit, reply): (Permit, Reply<'_>),
) {
    let id = match collection(service, params, &mut local.text) {
        Ok((id, _)) => id,
        Err(failure) => return fail(&failure, reply),
    };
    let line_bytes_max = service.body_bytes_max;
    let (late, feed) = if request.is_in_pieces() {
        let feed = Feed { lines: Lines::new(line_bytes_max), end: None, is_held_back: false };
        let feed = Rc::new(RefCell::new(feed));
        (reply.later_in_pieces(Box::new(Body(Rc::clone(&feed)))), feed)
    } else {
        let lines = Lines::of(request.body(), line_bytes_max);
        (reply.later_watched(), Rc::new(RefCell::new(Feed { lines, end: Some(Ok(())), is_held_back: false })))
    };
    let (over, nudge) = (Some(write::cancel_check(service, &late, &permit)), late.nudge());
    let state = State {
        waiting: 1,
        under_way_bytes: 0,
        last: 0,
        failed: Failed::default(),
        is_awaited: false,
        fault: None,
        late: Some(late),
    };
    let batch = Arc::new(Batch {
        state: Mutex::new(state),
        writes: service.writes.clone(),
        reports: service.bulk_reports.clone(),
        replies: service.replies.clone(),
        lp: local.lp.clone(),
    });
    let shared = Arc::clone(&service.shared);
    // Not the loop's own: the loop submits lines between requests, and would mistake the next request for one whose write was
    // given up.
    let long: Arc<dyn TakeLong> = LongWrites::new(&shared);
    let take_large = move |database: &DocumentDatabase, session: &ReaderSession, submission: Submission| {
        let is_large = write::is_large(database, session, &submission.write);
        // A short line is written so soon that its client is not watched: all received lines are written, even if the client has
        // shut down its sending side.
        let (over, long) = (submission.over.filter(|_| is_large), Some(Arc::clone(&long)));
        let submission = Submission { over, long, ..submission };
        shared.take_large(database, submission, is_large)
    };
    local.held.bulk(Bulk {
        database: service.database.clone(),
        collection: id,
        take_large: Box::new(take_large),
        lines: Box::new(Source { feed, nudge, batch, permit, line_bytes_max, waiting: None }),
        over,
        given_back: None,
    });
}
