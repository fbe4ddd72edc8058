//! Results that are sent while they are made: a bounded pipe from the pool's thread to the client's loop.
//!
//! A result up to [`large::WHOLE_BYTES_MAX`] is answered whole, with its length, and its errors with their status. Of a larger
//! result the first piece is sent when it is full, chunked; an error after that cannot change the status any more. The connection
//! is closed then, so that a client cannot take a part for the whole; lines of JSON end with `{"error":…}` instead.
//!
//! Bytes that the client has not received are kept as long as the query's own bound and the part of large replies have room, so a
//! query seldom waits for its client. Beyond that it waits: for room, until its time limit, until the client has gone, or, if
//! others wait for a thread, until the client has received nothing for a time that is the shorter the more of them there are.

use super::large::{self, WHOLE_BYTES_MAX};
use crate::failure::refusal;
use crate::failure::{ErrorRules, Failure, FailureKind};
use crate::threads::in_flight::{Account, InFlight, Taken};
use crate::threads::query_pool::QueryPool;
use docs::Moment;
use docs::sql::{Budget, FieldValue, QueryError, RowSink};
use http::{BodySource, LateReply, More, Nudge, Status};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A piece is sent when it has this many bytes, at the end of a row.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that a pipe may always hold: counted once when it begins. Further pieces are counted one by one.
const OWN_BYTES: usize = 2 * PIECE_BYTES;
/// Interval at which a query that waits for room checks its time limit, and whether others have left room.
const LOOK: Duration = Duration::from_millis(20);
/// How long a query may wait for its client to take a piece while one job waits for a thread. With `n` waiting jobs the time is
/// `2 / (n + 1)` of it, so that all of them soon have a thread.
const PATIENCE: Duration = Duration::from_secs(1);
/// The least such time.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// How long a complete result waits until room has been made for it.
const ROOM_MAX: Duration = Duration::from_millis(200);

/// A sink whose bytes can be taken between two rows.
pub(crate) trait Written: RowSink {
    /// Bytes that were written and not taken.
    fn buffer(&mut self) -> &mut Vec<u8>;
}

impl Written for docs::sql::JsonRows<'_> {
    fn buffer(&mut self) -> &mut Vec<u8> {
        docs::sql::JsonRows::buffer(self)
    }
}

/// The state between the query's thread and the loop.
#[derive(Default)]
struct Pipe {
    state: Mutex<State>,
    /// Notified when pieces were taken, or the client has gone.
    taken: Condvar,
    is_gone: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// The part of `bytes` that is counted with the pipe itself.
    own_bytes: usize,
    end: Option<End>,
    /// The loop has found nothing, and must be nudged for the next piece.
    is_waiting: bool,
    /// When the client last took bytes, or a piece was put into the empty pipe: since then it may have taken nothing.
    went_on: Option<Instant>,
}

struct Piece {
    bytes: Vec<u8>,
    sent: usize,
    /// Its memory reservation, if it is not counted with the pipe.
    taken: Option<Taken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Broken,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The loop's end.
struct Outlet {
    pipe: Arc<Pipe>,
    account: Arc<Account>,
    _own: Taken,
}

impl BodySource for Outlet {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        let mut state = self.pipe.lock();
        let Some(piece) = state.pieces.front_mut() else {
            state.is_waiting = state.end.is_none();
            return match state.end {
                None => More::Wait,
                Some(End::Complete) => More::No,
                Some(End::Broken) => More::Broken,
            };
        };
        let end = piece.bytes.len().min(piece.sent + PIECE_BYTES);
        out.extend_from_slice(&piece.bytes[piece.sent..end]);
        piece.sent = end;
        self.account.went_on();
        state.went_on = Some(Instant::now());
        let Some(piece) = state.pieces.front_mut() else { return More::Broken };
        if end == piece.bytes.len() {
            let (bytes, is_own) = (end, piece.taken.is_none());
            state.pieces.pop_front();
            state.bytes -= bytes;
            state.own_bytes -= if is_own { bytes } else { 0 };
            self.pipe.taken.notify_all();
        }
        if state.pieces.is_empty() && state.end == Some(End::Complete) { More::No } else { More::Yes }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.pipe.is_gone.store(true, Ordering::Release);
        self.pipe.taken.notify_all();
    }
}

/// Why a result ends before its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// The client has disconnected: nothing more is sent.
    Nobody,
    /// The client did not receive in time.
    TooSlow,
    /// The query's time was over before other replies left memory for the next piece: the client had taken everything.
    OutOfTime,
    /// Data that was read was not available.
    Lost,
    /// Other replies hold the memory: for the first byte, or for the next piece while others wait for the thread.
    Busy,
}

/// A reply and its state.
pub(crate) struct Reply<'f> {
    replies: &'f InFlight,
    errors: &'f ErrorRules,
    pool: &'f QueryPool,
    account: Arc<Account>,
    media: &'static str,
    /// An error after the first piece is sent as a last line.
    is_lines: bool,
    /// Limit of the pipe.
    bytes_max: usize,
    late: Option<LateReply>,
    nudge: Nudge,
    pipe: Arc<Pipe>,
    cut: Option<Cut>,
    /// Bytes of the buffer that are whole rows.
    complete: usize,
    has_begun: bool,
}

impl<'f> Reply<'f> {
    pub(crate) fn new(
        late: LateReply,
        (replies, errors, pool): (&'f InFlight, &'f ErrorRules, &'f QueryPool),
        media: &'static str,
        bytes_max: usize,
    ) -> Reply<'f> {
        Reply {
            replies,
            errors,
            pool,
            account: Arc::new(replies.account(late.cutter())),
            media,
            is_lines: media == crate::replies::media::NDJSON,
            bytes_max,
            nudge: late.nudge(),
            late: Some(late),
            pipe: Arc::default(),
            cut: None,
            complete: 0,
            has_begun: false,
        }
    }

    /// Adds a header field, before anything is sent.
    pub(crate) fn header(&mut self, name: &str, value: &str) {
        if let Some(late) = &mut self.late {
            late.header(name, value);
        }
    }

    /// Runs a query within a budget that ends with its client. Rows of the given sink are sent in pieces.
    pub(crate) fn run<R>(&mut self, budget: &Budget<'_>, run: impl FnOnce(&mut Self, &Budget<'_>) -> R) -> R {
        let is_gone = Arc::clone(&self.pipe.is_gone);
        let over = || is_gone.load(Ordering::Acquire) || budget.deadline.is_some_and(|over| over());
        // The sink reports no bytes, so this is the limit of one row: the largest document and its wrapper fit.
        run(self, &Budget { deadline: Some(&over), output_bytes_max: 2 * budget.output_bytes_max, ..*budget })
    }

    /// A sink whose rows are sent when they fill a piece. `now` is the state from which they are read.
    pub(crate) fn sink<'s, S: Written>(
        &'s mut self,
        rows: S,
        now: &'s Moment<'s>,
        budget: &'s Budget<'s>,
    ) -> Flowing<'s, 'f, S> {
        Flowing { rows, now, budget, reply: self }
    }

    /// Sends a piece, unless the client has gone.
    fn send(&mut self, piece: Vec<u8>, budget: &Budget<'_>) {
        // The first piece decides whether there is a reply at all: its memory is taken while there can be another status. Later
        // pieces wait for their turn in the pipe.
        let is_large = piece.len() > OWN_BYTES && self.late.is_some();
        let taken = is_large.then(|| self.take_soon(piece.len())).flatten();
        if is_large && taken.is_none() {
            self.cut = Some(Cut::Busy);
        } else if self.begin() {
            let is_over = || budget.deadline.is_some_and(|over| over());
            self.cut = self.push(piece, taken, is_over).err();
        }
    }

    /// Begins the reply, if it has not begun; `false` if that is impossible.
    fn begin(&mut self) -> bool {
        if let Some(late) = self.late.take() {
            let Some(own) = self.take_soon(OWN_BYTES) else {
                (self.late, self.cut) = (Some(late), Some(Cut::Busy));
                return false;
            };
            self.has_begun = true;
            let outlet = Outlet { pipe: Arc::clone(&self.pipe), account: Arc::clone(&self.account), _own: own };
            late.stream_open(Status(200), self.media, Box::new(outlet));
        }
        true
    }

    fn push(&self, bytes: Vec<u8>, mut taken: Option<Taken>, is_over: impl Fn() -> bool) -> Result<(), Cut> {
        let mut state = self.pipe.lock();
        let taken = loop {
            if self.pipe.is_gone.load(Ordering::Acquire) {
                return Err(Cut::Nobody);
            }
            if taken.is_some() {
                break taken;
            }
            if state.own_bytes + bytes.len() <= OWN_BYTES {
                state.own_bytes += bytes.len();
                break None;
            }
            // A piece larger than the pipe is sent when the pipe is empty.
            if state.bytes + bytes.len() <= self.bytes_max || state.pieces.is_empty() {
                taken = self.account.take(bytes.len());
                if taken.is_some() {
                    break taken;
                }
            }
            let is_over = is_over();
            if is_over || state.went_on.is_some_and(|since| since.elapsed() > self.patience()) {
                return Err(match state.pieces.is_empty() {
                    false => Cut::TooSlow,
                    true if is_over => Cut::OutOfTime,
                    true => Cut::Busy,
                });
            }
            let waited = self.pipe.taken.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        if state.pieces.is_empty() {
            state.went_on = Some(Instant::now());
        }
        state.bytes += bytes.len();
        state.pieces.push_back(Piece { bytes, sent: 0, taken });
        self.wake(state);
        Ok(())
    }

    /// How long the client may receive nothing while this thread waits for it.
    fn patience(&self) -> Duration {
        match self.pool.metrics().queued {
            0 => Duration::MAX,
            waiting => {
                (2 * PATIENCE / (u32::try_from(waiting).unwrap_or(u32::MAX).saturating_add(1))).max(PATIENCE_MIN)
            }
        }
    }

    /// Reserves bytes for this reply; if there is no room, it waits a short time for it.
    fn take_soon(&self, bytes: usize) -> Option<Taken> {
        let until = Instant::now() + ROOM_MAX;
        loop {
            let taken = self.account.take(bytes);
            if taken.is_some() {
                return taken;
            }
            if Instant::now() > until {
                self.replies.report_refusal(bytes);
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        if std::mem::take(&mut state.is_waiting) {
            drop(state);
            self.nudge.send();
        }
    }

    /// The reply, if no byte of it was sent.
    pub(crate) fn give_back(self) -> Option<LateReply> {
        self.late
    }

    /// Answers with the rest, or ends a reply that has begun. `rest` is what the sinks left in their buffer.
    pub(crate) fn end(mut self, mut rest: Vec<u8>, outcome: Result<(), Failure>) {
        let is_refused = matches!(&outcome, Err(failure) if failure.is_of_permission());
        let outcome = match self.cut {
            _ if is_refused => outcome,
            Some(Cut::Busy) => Err(large::busy()),
            Some(Cut::TooSlow) => Err(Failure::new(FailureKind::TooLarge, "the client did not take the rows in time")),
            Some(Cut::OutOfTime) => Err(refusal::of_query(&QueryError::Deadline)),
            Some(Cut::Lost) => Err(Failure::new(FailureKind::Internal, "the data of the query could not be read")),
            Some(Cut::Nobody) | None => outcome,
        };
        if let Some(late) = self.late.take() {
            rest.shrink_to_fit();
            let taken = outcome.is_ok().then(|| self.take_soon(rest.capacity())).flatten();
            return match outcome.and_then(|()| taken.ok_or_else(large::busy)) {
                Ok(taken) => large::send_taken(late, Status(200), self.media, rest, (taken, self.account)),
                Err(failure) => refusal::refuse(self.errors, late, &failure),
            };
        }
        let end = match outcome {
            Ok(()) => End::Complete,
            Err(failure) if self.is_lines && self.cut != Some(Cut::Lost) => {
                rest.truncate(self.complete);
                let error = serde_json::json!({ "error": { "title": failure.kind.title(), "detail": failure.detail } });
                rest.extend_from_slice(format!("\n{error}\n").as_bytes());
                End::Complete
            }
            Err(_) => End::Broken,
        };
        // The last piece does not wait: the query is done, and its bytes are held already.
        let mut state = self.pipe.lock();
        if end == End::Complete && !rest.is_empty() {
            state.bytes += rest.len();
            state.own_bytes += rest.len();
            state.pieces.push_back(Piece { bytes: rest, sent: 0, taken: None });
        }
        state.end = Some(end);
        self.wake(state);
    }
}

/// See [`Reply::sink`].
pub(crate) struct Flowing<'s, 'f, S> {
    rows: S,
    now: &'s Moment<'s>,
    budget: &'s Budget<'s>,
    reply: &'s mut Reply<'f>,
}

impl<S: Written> Flowing<'_, '_, S> {
    #[cold]
    fn flush(&mut self) {
        // Rows are copies; this checks that their source was valid.
        if self.now.check_indexes().is_err() {
            self.reply.cut = Some(Cut::Lost);
            return;
        }
        let piece = std::mem::take(self.rows.buffer());
        self.reply.send(piece, self.budget);
        self.reply.complete = 0;
    }
}

impl<S: Written> RowSink for Flowing<'_, '_, S> {
    fn begin_row(&mut self) {
        self.rows.begin_row();
    }

    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        self.rows.field(column, field);
    }

    fn end_row(&mut self) {
        self.rows.end_row();
        let bytes = self.rows.buffer().len();
        self.reply.complete = bytes;
        if bytes >= if self.reply.has_begun { PIECE_BYTES } else { WHOLE_BYTES_MAX } {
            self.flush();
        }
    }

    /// Reports no bytes, so that the budget limits a single row: see [`Reply::run`].
    fn bytes(&self) -> usize {
        0
    }

    fn is_wanted(&self) -> bool {
        self.reply.cut.is_none()
    }
}
