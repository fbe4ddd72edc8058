//! State shared by the follower's thread and the consumers on the loops: the window, the consumers, and their waits.
//!
//! A consumer is in one of three states:
//!
//! - Live: it copies from the window, and waits at its tip until the follower nudges it. A consumer that falls out of the window
//!   is disconnected, and may resume from its position.
//! - Behind: its next events lie before the window. It has a seat, or waits for one: a reader of the log, which makes one piece
//!   after the other. It becomes live when a piece reaches the window. While others wait, a seat is passed on after some pieces,
//!   and at once if its consumer does not take its piece or request the next; the consumer whose last piece is oldest comes
//!   first. Even if nobody waits, a consumer that stands still loses its seat soon: a seat holds memory, and a consumer that
//!   continues gets another one. If memory is short, the ledger of large replies withdraws a seat ([`SeatCutter`]).
//! - Ended.
//!
//! The lock is held only for look-ups and hand-overs: nothing is read, encoded or sent under it.

use super::consumer_request::ConsumerRequest;
use super::feed_position::FeedPosition;
use super::window::{Chunk, Window};
use crate::access::token::Permit;
use crate::failure::{Failure, FailureKind};
use crate::threads::in_flight::{Account, Cut, InFlight, Taken};
use docs::DocumentDatabase;
use http::{LateReply, Nudge};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limit of consumers.
pub(crate) const CONSUMERS_MAX: usize = 1024;
/// A consumer that does not take a part of its piece within this time loses its seat, and gets one again when it continues. Loops
/// are seldom busy for so long.
pub(super) const PIECE_IDLE: Duration = Duration::from_millis(100);
/// Time after which a consumer loses its seat to another one that waits, if it began to take its piece and does not continue, or
/// does not request the next: its client does not read, or reads more slowly. A consumer that reads continues in the same tick of
/// its loop.
const SEAT_IDLE: Duration = Duration::from_millis(2);

/// Why a consumer gets no more events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    TooSlow,
    Gone {
        oldest: u64,
    },
    Stopping,
    /// The token of its request is revoked or has ended.
    Refused(String),
    Failed(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::TooSlow => {
                out.write_str("too slow: this connection fell behind the changes kept for it; go on from `since`")
            }
            End::Gone { oldest } => {
                write!(out, "these changes are kept no longer: read the collections, and go on from {oldest}")
            }
            End::Stopping => out.write_str("the server stops, or has read its file again; go on from `since`"),
            End::Refused(why) => out.write_str(why),
            End::Failed(why) => write!(out, "the changes cannot be read: {why}"),
        }
    }
}

/// Next step of a consumer.
pub(crate) enum NextStep {
    Chunk(u64, Arc<Chunk>),
    /// Events before the window.
    Piece(Arc<Chunk>),
    /// A heartbeat is due; with the tip if the consumer waits at it.
    Beat(u64, Option<FeedPosition>),
    Nothing,
    End(End),
}

/// A request for the feed.
pub(crate) struct Arrival {
    pub(crate) late: LateReply,
    pub(crate) wanted: ConsumerRequest,
    pub(crate) permit: Permit,
}

/// A consumer that requests its next piece.
pub(crate) struct Wanting {
    pub(crate) member: u64,
    pub(crate) position: FeedPosition,
    pub(crate) wanted: ConsumerRequest,
    pub(crate) has_seat: bool,
    /// When it joined, or was given its last piece.
    pub(crate) since: Instant,
}

/// Work for the follower.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) wanting: Vec<Wanting>,
    /// Consumers that have a seat.
    pub(crate) seated: Vec<u64>,
    pub(crate) has_members: bool,
    pub(crate) is_ending: bool,
    /// A database that has taken over.
    pub(crate) database: Option<DocumentDatabase>,
}

struct Member {
    nudge: Nudge,
    permit: Permit,
    /// The client's address.
    host: IpAddr,
    wanted: ConsumerRequest,
    waits: bool,
    behind: Option<Behind>,
    end: Option<End>,
    /// Everything up to here was read for this consumer, even if nothing in it changed a document.
    known: FeedPosition,
}

struct Behind {
    position: FeedPosition,
    wants: bool,
    piece: Option<Arc<Chunk>>,
    /// After its piece, everything up to here is known.
    known: FeedPosition,
    is_last: bool,
    /// When it joined, or was given its last piece.
    since: Instant,
    /// When it last took a part of that piece.
    pulled: Option<Instant>,
    seat: Option<SeatMemory>,
}

/// The memory of a seat: of a reader and its piece.
struct SeatMemory {
    taken: Taken,
    account: Account,
    is_withdrawn: Arc<AtomicBool>,
}

/// Withdraws a seat.
struct SeatCutter {
    host: IpAddr,
    is_withdrawn: Arc<AtomicBool>,
    bell: Arc<Bell>,
}

impl Cut for SeatCutter {
    fn cut(&self) {
        // The follower clears the seat: the hub's lock is never taken under the ledger's.
        self.is_withdrawn.store(true, Ordering::Relaxed);
        self.bell.ring();
    }

    fn host(&self) -> IpAddr {
        self.host
    }
}

/// Wakes the follower.
#[derive(Default)]
struct Bell {
    /// Whether a wake-up is pending. Apart from the state, because commits wake the follower too and must not wait.
    has_rung: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rung.notify_one();
    }

    /// Waits for a wake-up or until the time is over.
    fn wait(&self, until: Option<Instant>) {
        let mut has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_rung {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            has_rung = match left {
                None => self.rung.wait(has_rung).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => self.rung.wait_timeout(has_rung, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        *has_rung = false;
    }
}

impl Behind {
    fn at(position: FeedPosition) -> Behind {
        let since = Instant::now();
        Behind { position, wants: true, piece: None, known: position, is_last: false, since, pulled: None, seat: None }
    }

    /// Takes a piece, after which everything up to `known` was read. Whether the piece holds anything.
    fn give(&mut self, piece: Chunk, known: FeedPosition, is_last: bool) -> bool {
        (self.known, self.is_last) = (known, is_last);
        let holds_events = !piece.is_empty();
        if holds_events {
            self.piece = Some(Arc::new(piece));
            (self.wants, self.since, self.pulled) = (false, Instant::now(), None);
        } else {
            // Another reader, after the seat was withdrawn, begins here.
            self.position = known;
        }
        holds_events
    }
}

#[derive(Default)]
struct State {
    window: Option<Window>,
    members: HashMap<u64, Member>,
    arrivals: Vec<Arrival>,
    next_member: u64,
    beat: u64,
    is_ending: bool,
    database: Option<DocumentDatabase>,
}

/// See the module's documentation.
pub(crate) struct Hub {
    state: Mutex<State>,
    bell: Arc<Bell>,
    /// Counts the feed's memory among the large replies.
    replies: InFlight,
    cut_off: AtomicU64,
}

/// Values of the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FeedNumbers {
    pub(crate) consumers: u64,
    pub(crate) behind: u64,
    pub(crate) window_bytes: u64,
    pub(crate) cut_off: u64,
}

impl Hub {
    pub(crate) fn new(replies: InFlight) -> Hub {
        Hub { state: Mutex::default(), bell: Arc::default(), replies, cut_off: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn numbers(&self) -> FeedNumbers {
        let state = self.lock();
        FeedNumbers {
            consumers: state.members.len() as u64,
            behind: state.members.values().filter(|member| member.behind.is_some()).count() as u64,
            window_bytes: state.window.as_ref().map_or(0, Window::bytes) as u64,
            cut_off: self.cut_off.load(Ordering::Relaxed),
        }
    }

    // The loops' side.

    /// Passes a request to the follower, unless there are too many.
    pub(crate) fn arrive(&self, arrival: impl FnOnce() -> Option<Arrival>) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.is_ending {
            return Err(Failure::new(
                FailureKind::Unavailable,
                "the server stops, or its feed of changes has ended by a fault",
            ));
        }
        if state.members.len() + state.arrivals.len() >= CONSUMERS_MAX {
            let detail = format!("{CONSUMERS_MAX} consumers of changes are connected");
            return Err(Failure::new(FailureKind::Busy, detail));
        }
        state.arrivals.extend(arrival());
        drop(state);
        self.ring();
        Ok(())
    }

    /// Next step of a consumer. `chunk`: its chunk of the window; `beat`: the last heartbeat that it sent.
    pub(crate) fn next(&self, number: u64, position: FeedPosition, chunk: Option<u64>, beat: Option<u64>) -> NextStep {
        let mut state = self.lock();
        let State { window, members, beat: now, is_ending, .. } = &mut *state;
        let (Some(member), Some(window)) = (members.get_mut(&number), window) else {
            return NextStep::End(End::Stopping);
        };
        if *is_ending {
            return NextStep::End(End::Stopping);
        }
        if let Some(end) = &member.end {
            return NextStep::End(end.clone());
        }
        if let Err(refused) = member.permit.check() {
            return NextStep::End(End::Refused(refused.detail.into_owned()));
        }
        let position = position.max(member.known);
        let is_out = match chunk {
            None => position < window.after(),
            Some(chunk) => !window.holds(chunk),
        };
        if member.behind.is_none() && is_out {
            if chunk.is_some() {
                self.cut_off.fetch_add(1, Ordering::Relaxed);
                return NextStep::End(End::TooSlow);
            }
            // It has just left its seat, and the window has moved on meanwhile.
            member.behind = Some(Behind::at(position));
        }
        let (next, tip) = match &mut member.behind {
            Some(behind) => {
                let piece = behind.piece.clone();
                if piece.is_some() {
                    behind.pulled = Some(Instant::now());
                    behind.seat.iter().for_each(|seat| seat.account.went_on());
                }
                if piece.is_none() && !behind.wants {
                    (behind.wants, behind.position) = (true, position);
                }
                (piece.map(NextStep::Piece), None)
            }
            None => {
                let chunk = chunk.unwrap_or_else(|| window.find(position));
                (window.chunk(chunk).map(|found| NextStep::Chunk(chunk, Arc::clone(found))), Some(window.tip()))
            }
        };
        if beat.is_none() {
            return NextStep::Beat(*now, None);
        }
        match next {
            Some(next) => next,
            None if beat != Some(*now) => NextStep::Beat(*now, tip),
            None => {
                member.waits = true;
                let wants = member.behind.is_some();
                drop(state);
                if wants {
                    self.ring();
                }
                NextStep::Nothing
            }
        }
    }

    /// A consumer has copied its piece.
    pub(crate) fn taken(&self, number: u64) {
        let mut state = self.lock();
        let Some(member) = state.members.get_mut(&number) else { return };
        let Some(behind) = &mut member.behind else { return };
        if behind.piece.take().is_none() {
            // The piece was withdrawn meanwhile, and is read again from the consumer's position.
            return;
        }
        member.known = behind.known;
        if behind.is_last {
            member.behind = None;
            drop(state);
            // Its memory is free for a consumer that waits for a seat.
            self.ring();
        }
    }

    /// A consumer is gone.
    pub(crate) fn leave(&self, number: u64) {
        let member = self.lock().members.remove(&number);
        drop(member);
        self.ring();
    }

    /// Ends all consumers: the server stops.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_ending = true;
        // If they were dropped without an answer, they would answer with an internal error.
        let arrivals = std::mem::take(&mut state.arrivals);
        let nudges = nudges(&mut state, |_| true);
        drop(state);
        for arrival in arrivals {
            refuse(arrival.late, &Failure::new(FailureKind::Unavailable, "the server stops"));
        }
        nudges.iter().for_each(Nudge::send);
        self.ring();
    }

    /// Makes the follower continue with a database that has taken over, and all consumers check their permits.
    pub(crate) fn move_on(&self, database: DocumentDatabase) {
        let mut state = self.lock();
        let before = state.database.replace(database);
        let nudges = nudges(&mut state, |_| true);
        drop(state);
        drop(before);
        nudges.iter().for_each(Nudge::send);
        self.ring();
    }

    // The follower's side.

    /// Wakes the follower.
    pub(crate) fn ring(&self) {
        self.bell.ring();
    }

    /// Waits for a wake-up or until the time is over, and returns the work.
    pub(crate) fn orders(&self, until: Option<Instant>) -> Orders {
        self.bell.wait(until);
        let mut state = self.lock();
        let wanting = |(number, member): (&u64, &Member)| {
            let behind = member.behind.as_ref().filter(|behind| behind.wants && member.end.is_none())?;
            let (member, wanted) = (*number, member.wanted);
            let has_seat = behind.seat.is_some();
            Some(Wanting { member, position: behind.position, wanted, has_seat, since: behind.since })
        };
        let seated = |(number, member): (&u64, &Member)| {
            member.behind.as_ref().is_some_and(|behind| behind.seat.is_some()).then_some(*number)
        };
        let mut wanting: Vec<Wanting> = state.members.iter().filter_map(wanting).collect();
        wanting.sort_unstable_by_key(|wanting| wanting.since);
        Orders {
            wanting,
            seated: state.members.iter().filter_map(seated).collect(),
            has_members: !state.members.is_empty(),
            is_ending: state.is_ending,
            arrivals: std::mem::take(&mut state.arrivals),
            database: state.database.take(),
        }
    }

    /// The window's limits, if there is a window.
    pub(crate) fn window(&self) -> Option<(FeedPosition, FeedPosition)> {
        self.lock().window.as_ref().map(|window| (window.after(), window.tip()))
    }

    /// Opens a window after a transaction.
    pub(crate) fn open_window(&self, change_number: u64, bytes_max: usize) {
        self.set_window(Some(Window::new(change_number, bytes_max, self.replies.clone())));
    }

    /// Closes the window.
    pub(crate) fn close_window(&self) {
        self.set_window(None);
    }

    fn set_window(&self, window: Option<Window>) {
        let before = std::mem::replace(&mut self.lock().window, window);
        drop(before);
    }

    /// The number of a new consumer; `None` if the server stops.
    pub(crate) fn join(
        &self,
        (late, permit): (&LateReply, Permit),
        wanted: ConsumerRequest,
        position: FeedPosition,
    ) -> Option<u64> {
        let mut state = self.lock();
        if state.is_ending {
            return None;
        }
        let number = state.next_member;
        state.next_member += 1;
        let is_behind = state.window.as_ref().is_none_or(|window| position < window.after());
        let behind = is_behind.then(|| Behind::at(position));
        let (nudge, host) = (late.nudge(), late.host());
        let member = Member { nudge, permit, host, wanted, waits: false, behind, end: None, known: position };
        state.members.insert(number, member);
        Some(number)
    }

    /// Adds changes, and nudges the consumers that wait for them.
    pub(crate) fn publish(&self, chunks: Vec<Chunk>, tip: FeedPosition) {
        let is_news = !chunks.is_empty();
        let mut state = self.lock();
        let Some(window) = &mut state.window else { return };
        window.push(Chunk::default(), tip);
        for chunk in chunks {
            window.push(chunk, tip);
        }
        let nudges = if is_news { nudges(&mut state, |member| member.behind.is_none()) } else { Vec::new() };
        drop(state);
        nudges.iter().for_each(Nudge::send);
    }

    /// Makes all consumers send a heartbeat.
    pub(crate) fn next_beat(&self) {
        let mut state = self.lock();
        state.beat += 1;
        let nudges = nudges(&mut state, |_| true);
        drop(state);
        nudges.iter().for_each(Nudge::send);
    }

    /// Gives a seat, which holds this many bytes at first, to a consumer that is behind and has none; `false` if there is no memory.
    pub(crate) fn seat(&self, number: u64, bytes: usize) -> bool {
        let mut state = self.lock();
        let Some(member) = state.members.get_mut(&number) else { return true };
        let (host, Some(behind)) = (member.host, &mut member.behind) else { return true };
        if behind.seat.is_some() {
            return true;
        }
        let is_withdrawn = Arc::<AtomicBool>::default();
        let cutter = SeatCutter { host, is_withdrawn: Arc::clone(&is_withdrawn), bell: Arc::clone(&self.bell) };
        let account = self.replies.account(cutter);
        let taken = account.take(bytes);
        behind.seat = taken.map(|taken| SeatMemory { taken, account, is_withdrawn });
        behind.seat.is_some()
    }

    /// Withdraws the seats of consumers that do not continue with their piece, or do not request the next, and those whose memory
    /// is needed. Returns their numbers.
    pub(crate) fn clear_idle_seats(&self, others_wait: bool) -> Vec<u64> {
        let mut state = self.lock();
        let mut cleared = Vec::new();
        for (number, member) in &mut state.members {
            let Some(behind) = &mut member.behind else { continue };
            let stands = match behind.pulled {
                Some(pulled) => pulled.elapsed() > if others_wait { SEAT_IDLE } else { PIECE_IDLE },
                None => behind.since.elapsed() > PIECE_IDLE,
            };
            let Some(seat) = &behind.seat else { continue };
            if seat.is_withdrawn.load(Ordering::Relaxed) || !behind.wants && stands {
                // Its position is that of the piece; nothing after that is known.
                drop((behind.piece.take(), behind.seat.take()));
                cleared.push(*number);
            }
        }
        cleared
    }

    /// Withdraws the seat of a consumer that requests its next piece: others wait.
    pub(crate) fn clear_seat(&self, number: u64) {
        let mut state = self.lock();
        if let Some(behind) = state.members.get_mut(&number).and_then(|member| member.behind.as_mut())
            && behind.piece.is_none()
        {
            drop(behind.seat.take());
        }
    }

    /// Gives a consumer its next piece, after which everything up to `known` was read. Its reader holds `reader_bytes`. Returns
    /// whether the reader continues.
    pub(crate) fn give(&self, number: u64, piece: Chunk, known: FeedPosition, reader_bytes: usize) -> bool {
        let mut state = self.lock();
        let State { window, members, .. } = &mut *state;
        let (Some(member), Some(window)) = (members.get_mut(&number), window) else { return false };
        let Some(behind) = &mut member.behind else { return false };
        let goes_on = known < window.after();
        let held = piece.bytes() + if goes_on { reader_bytes } else { 0 };
        behind.seat.iter_mut().for_each(|seat| seat.taken.correct(held));
        if !behind.give(piece, known, !goes_on) {
            member.known = known;
            if !goes_on {
                member.behind = None;
            }
        }
        let nudge = std::mem::take(&mut member.waits).then(|| member.nudge.clone());
        drop(state);
        nudge.iter().for_each(Nudge::send);
        goes_on
    }

    /// Ends one consumer, or all.
    pub(crate) fn fail(&self, number: Option<u64>, end: &End) {
        let mut state = self.lock();
        let concerned = state.members.iter_mut().filter(|(known, _)| number.is_none_or(|number| number == **known));
        concerned.for_each(|(_, member)| member.end = Some(end.clone()));
        let nudges = nudges(&mut state, |member| member.end.is_some());
        drop(state);
        nudges.iter().for_each(Nudge::send);
    }
}

/// Nudges of consumers that wait; they are marked as no longer waiting.
fn nudges(state: &mut State, whom: impl Fn(&Member) -> bool) -> Vec<Nudge> {
    let waiting = state.members.values_mut().filter(|member| member.waits && whom(member));
    let nudges = waiting.map(|member| {
        member.waits = false;
        member.nudge.clone()
    });
    nudges.collect()
}

/// Answers a request that does not become a consumer.
pub(crate) fn refuse(late: LateReply, failure: &Failure) {
    let status = failure.kind.status();
    late.send(status, crate::failure::PROBLEM, crate::failure::problem(status, failure));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_for_a_consumer_without_an_event_is_not_read_again() {
        let mut behind = Behind::at(FeedPosition::after(5));
        assert!(!behind.give(Chunk::default(), FeedPosition::after(900), false));
        assert!(behind.wants && behind.piece.is_none());
        assert_eq!(behind.position, FeedPosition::after(900));
    }
}
