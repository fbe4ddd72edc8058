//! A connection that is opened on demand and reopened after a loss.
//!
//! ```text
//!            wanted, and due            made             session open
//!   Idle ───────────────────> Connecting ──> Opening ──────────────────> Open
//!    ^                            │             │                         │
//!    └──── a pause (back-off) ────┴─────────────┴────── lost, or late ────┘
//! ```
//!
//! The two kinds of [`Work`] over a managed connection are commands and messages. The application's code (completions, handlers) is called
//! while the managed connection is not borrowed, so that it may send again. A connection may end where such a call is impossible
//! ([`reactor::Protocol::closed`]): its outcomes are then reported at the end of the tick ([`ManagedConnection::report_ended`]).
//!
//! Invariant: `alarm_ns` is no later than the first moment at which something is due without an event of a connection.

use super::failure::Failure;
use super::loop_settings::LoopSettings;
use crate::client::{Backoff, Lost, ServerError, session_request};
use crate::codec::{ReplyKind, ReplyView};
use reactor::{ConnectFailure, ConnectionId, Io, Loop, Neighbourhood, Outgoing};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The use of a connection.
pub(super) trait Work: Sized + 'static {
    /// Outcomes that are reported to the application at the end of the tick.
    type Ended;

    /// Whether a connection is needed.
    fn wants_connection(&self) -> bool;
    /// Whether the connection may be closed without losing anything.
    fn is_idle(&self) -> bool;
    /// The earliest deadline, on the loop's clock; `u64::MAX`: none.
    fn deadline_ns(&self) -> u64;
    /// The session is open: sends the waiting requests.
    fn opened(managed: &Shared<Self>, id: ConnectionId, at: &mut Neighbourhood<'_>);
    /// A reply, or a push. An error ends the connection.
    fn reply(
        managed: &Shared<Self>,
        kind: ReplyKind,
        reply: ReplyView<'_>,
        at: &mut Neighbourhood<'_>,
    ) -> Result<(), Failure>;
    /// An open connection was lost.
    fn lost(&mut self, failure: &Failure, ended: &mut VecDeque<Self::Ended>);
    /// No connection could be made.
    fn refused(&mut self, failure: &Failure, ended: &mut VecDeque<Self::Ended>);
    /// Ends work whose deadline has passed. `true`: the connection is of no further use.
    fn expire(&mut self, now_ns: u64, ended: &mut VecDeque<Self::Ended>) -> bool;
    /// Reports an outcome to the application.
    fn report(managed: &Shared<Self>, ended: Self::Ended, at: &mut Neighbourhood<'_>);
}

pub(super) type Shared<W> = Rc<RefCell<ManagedConnection<W>>>;

/// See the module.
pub(super) struct ManagedConnection<W: Work> {
    pub(super) settings: LoopSettings,
    pub(super) work: W,
    lp: Loop,
    state: State,
    backoff: Backoff,
    /// Number of attempts so far; the number of the last one identifies its connection.
    attempts: usize,
    /// Earliest moment of the next attempt.
    due_ns: u64,
    alarm_ns: u64,
    /// Whether the open connection has brought a reply other than an error: then the server works.
    has_replied: bool,
    /// Whether the managed connection is ending: it then opens connections only for waiting work, and closes its connection once that is idle.
    is_ending: bool,
    ended: VecDeque<W::Ended>,
}

#[derive(Clone, Debug)]
enum State {
    Idle,
    Connecting(Link),
    Opening { link: Link, replies_left: usize, refusal: Option<ServerError>, until_ns: u64 },
    Open(Link),
}

#[derive(Clone, Copy, Debug)]
struct Link {
    id: ConnectionId,
    attempt: usize,
}

impl State {
    fn link(&self) -> Option<Link> {
        match self {
            State::Idle => None,
            State::Connecting(link) | State::Opening { link, .. } | State::Open(link) => Some(*link),
        }
    }
}

impl<W: Work> ManagedConnection<W> {
    pub(super) fn new(settings: LoopSettings, work: W, lp: &Loop) -> Shared<W> {
        let backoff = Backoff::new(settings.client.backoff_min, settings.client.backoff_max);
        Rc::new(RefCell::new(ManagedConnection {
            settings,
            work,
            lp: lp.clone(),
            state: State::Idle,
            backoff,
            attempts: 0,
            due_ns: 0,
            alarm_ns: u64::MAX,
            has_replied: false,
            is_ending: false,
            ended: VecDeque::new(),
        }))
    }

    /// The connection whose session is open.
    #[inline]
    pub(super) fn open_id(&self) -> Option<ConnectionId> {
        match self.state {
            State::Open(link) => Some(link.id),
            _ => None,
        }
    }

    pub(super) fn alarm_ns(&self) -> u64 {
        self.alarm_ns
    }

    /// Schedules a check of the managed connection for this moment or an earlier one.
    #[inline]
    pub(super) fn look_by(&mut self, at_ns: u64) {
        if at_ns < self.alarm_ns {
            self.alarm_ns = at_ns;
            self.wake_loop();
        }
    }

    /// Makes the loop call its hooks although no event arrives: they set the timer and report outcomes.
    #[cold]
    fn wake_loop(&self) {
        self.lp.run(Box::new(|_| {}));
    }

    pub(super) fn begin_ending(&mut self) {
        self.is_ending = true;
    }

    /// Begins an attempt to connect, if a connection is needed and the attempt is due. Returns its number and its settings; its
    /// outcome is reported to [`ManagedConnection::attempted`].
    pub(super) fn begin_attempt(&mut self) -> Option<(usize, Outgoing)> {
        let is_wanted = self.work.wants_connection() && !(self.is_ending && self.work.is_idle());
        if !matches!(self.state, State::Idle) || !is_wanted {
            return None;
        }
        if self.due_ns > self.lp.precise_now_ns() {
            self.look_by(self.due_ns);
            return None;
        }
        let attempt = self.attempts;
        self.attempts += 1;
        Some((attempt, self.settings.outgoing(attempt).clone()))
    }

    /// The connection of this attempt was begun, or could not be begun.
    pub(super) fn attempted(&mut self, attempt: usize, outcome: Result<ConnectionId, ConnectFailure>) {
        match outcome {
            Ok(id) => self.state = State::Connecting(Link { id, attempt }),
            Err(failure) => self.not_connected(&Failure::of_connect(failure)),
        }
    }

    /// The connection of this attempt is established: begins the session.
    pub(super) fn connected(managed: &Shared<W>, attempt: usize, io: &mut Io<'_>) {
        let opened = managed.borrow_mut().begin_session(attempt, io.output());
        if let Some(id) = opened {
            W::opened(managed, id, &mut io.neighbourhood());
        }
    }

    /// Returns the connection's id if no session is needed, so that it is open at once.
    fn begin_session(&mut self, attempt: usize, output: &mut Vec<u8>) -> Option<ConnectionId> {
        let State::Connecting(link) = self.state else { return None };
        if link.attempt != attempt {
            return None;
        }
        let (request, replies_left) = session_request(&self.settings.client);
        if replies_left == 0 {
            return Some(self.session_opened(link));
        }
        output.extend_from_slice(&request);
        let until_ns = deadline_ns(self.lp.now_ns(), self.settings.client.connect_timeout);
        self.state = State::Opening { link, replies_left, refusal: None, until_ns };
        self.look_by(until_ns);
        None
    }

    fn session_opened(&mut self, link: Link) -> ConnectionId {
        (self.state, self.has_replied) = (State::Open(link), false);
        link.id
    }

    /// Handles a reply on the connection of this attempt.
    ///
    /// # Errors
    /// The connection is of no further use.
    #[inline]
    pub(super) fn take_reply(
        managed: &Shared<W>,
        attempt: usize,
        (kind, reply): (ReplyKind, ReplyView<'_>),
        at: &mut Neighbourhood<'_>,
    ) -> Result<(), Failure> {
        let opened = {
            let this = &mut *managed.borrow_mut();
            match &this.state {
                State::Open(link) if link.attempt == attempt => {
                    this.has_replied |= kind != ReplyKind::Error;
                    None
                }
                State::Opening { link, .. } if link.attempt == attempt => {
                    match this.take_session_reply(kind, reply)? {
                        Some(id) => Some(id),
                        None => return Ok(()),
                    }
                }
                _ => return Err(Lost::Closed.into()),
            }
        };
        match opened {
            Some(id) => W::opened(managed, id, at),
            None => W::reply(managed, kind, reply, at)?,
        }
        Ok(())
    }

    /// Counts a reply to one of the session's commands. Returns the connection's id after the last one.
    fn take_session_reply(&mut self, kind: ReplyKind, reply: ReplyView<'_>) -> Result<Option<ConnectionId>, Failure> {
        let State::Opening { link, replies_left, refusal, .. } = &mut self.state else { return Ok(None) };
        if kind == ReplyKind::Push {
            return Ok(None);
        }
        if let (ReplyView::Error(text), None) = (reply, &refusal) {
            *refusal = Some(ServerError::of(text));
        }
        *replies_left -= 1;
        if *replies_left > 0 {
            return Ok(None);
        }
        let link = *link;
        match refusal.take() {
            Some(refusal) => Err(Failure::Handshake(refusal)),
            None => Ok(Some(self.session_opened(link))),
        }
    }

    /// The connection of this attempt was lost.
    pub(super) fn lost(&mut self, attempt: usize, failure: Failure) {
        if self.state.link().is_none_or(|link| link.attempt != attempt) {
            return;
        }
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Open(_) => {
                self.pause_unless_replied();
                self.work.lost(&failure.after_session(), &mut self.ended);
            }
            _ => self.not_connected(&failure.before_session()),
        }
        self.wake_loop();
    }

    fn not_connected(&mut self, failure: &Failure) {
        self.pause();
        self.work.refused(failure, &mut self.ended);
        self.wake_loop();
    }

    /// A server that accepts connections and closes them again is also retried only after a pause.
    fn pause_unless_replied(&mut self) {
        match self.has_replied {
            true => self.backoff.succeeded(),
            false => self.pause(),
        }
    }

    fn pause(&mut self) {
        let now = Instant::now();
        self.backoff.failed(now);
        let pause = self.backoff.due().map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
        self.due_ns = deadline_ns(self.lp.precise_now_ns(), pause);
    }

    /// The alarm has fired: ends work whose deadline has passed.
    pub(super) fn look(&mut self, at: &mut Neighbourhood<'_>) {
        let now_ns = self.lp.precise_now_ns();
        if let State::Opening { until_ns, .. } = self.state
            && until_ns <= now_ns
        {
            self.drop_connection(at);
            self.not_connected(&Failure::timed_out());
        }
        if self.work.expire(now_ns, &mut self.ended) {
            self.drop_connection(at);
            self.pause_unless_replied();
        }
        let session_ns = if let State::Opening { until_ns, .. } = self.state { until_ns } else { u64::MAX };
        self.alarm_ns = self.work.deadline_ns().min(session_ns);
    }

    fn drop_connection(&mut self, at: &mut Neighbourhood<'_>) {
        let link = std::mem::replace(&mut self.state, State::Idle).link();
        if let Some(mut connection) = link.and_then(|link| at.connection(link.id)) {
            connection.abort();
        }
    }

    /// Reports outcomes to the application.
    pub(super) fn report_ended(managed: &Shared<W>, at: &mut Neighbourhood<'_>) {
        // One at a time: if a call panics, the other outcomes are still reported.
        while let Some(ended) = ManagedConnection::next_ended(managed) {
            W::report(managed, ended, at);
        }
    }

    fn next_ended(managed: &Shared<W>) -> Option<W::Ended> {
        managed.borrow_mut().ended.pop_front()
    }

    /// An ending managed connection closes its connection once its work is idle.
    pub(super) fn end_if_idle(&mut self, at: &mut Neighbourhood<'_>) {
        if !self.is_ending || !self.work.is_idle() {
            return;
        }
        let link = std::mem::replace(&mut self.state, State::Idle).link();
        if let Some(mut connection) = link.and_then(|link| at.connection(link.id)) {
            connection.finish();
        }
    }
}

/// The end of a timeout that begins now, on the loop's clock.
#[inline]
pub(super) fn deadline_ns(now_ns: u64, timeout: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}
