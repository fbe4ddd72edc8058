//! What the follower's thread and the consumers on the loops share: the window, who consumes, and who waits for what.
//!
//! A consumer is one of three:
//!
//! - It follows: it copies from the window, and waits at its tip until the follower nudges it. One that falls out of the window is cut
//!   off, and may come again from where it was.
//! - It is behind: what it wants lies before the window. It has a seat, or waits for one: a reader of the log, which makes one
//!   piece after the other. It follows when a piece reaches the window. While others wait, a seat goes on after some pieces, and at once
//!   where its consumer does not take its piece or ask for the next; those whose last piece is longest ago come first.
//! - It has ended.
//!
//! The lock is held for look-ups and hand-overs alone: nothing is read, encoded or sent under it.

use super::place::Place;
use super::wanted::Wanted;
use super::window::{Chunk, Window};
use crate::failure::{Failure, Kind};
use crate::in_flight::{InFlight, Taken};
use docs::Database;
use http::{LateReply, Nudge};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Consumers at once.
pub(crate) const CONSUMERS_MAX: usize = 1024;
/// A consumer that does not begin with its piece for longer gives up its seat where others wait for one, and takes one again when it
/// goes on: so busy is a loop seldom.
const PIECE_IDLE: Duration = Duration::from_millis(100);
/// The same of one that began with its piece and does not go on, or does not ask for the next: its client does not read, or not as
/// fast. One that reads goes on in the same turn of its loop.
const SEAT_IDLE: Duration = Duration::from_millis(2);

/// Why a consumer hears nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    TooSlow,
    Gone { oldest: u64 },
    Stopping,
    Failed(String),
}

impl std::fmt::Display for End {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::TooSlow => out.write_str("too slow: more came than is kept for this connection; go on from `since`"),
            End::Gone { oldest } => {
                write!(out, "these changes are kept no longer: read the collections, and go on from {oldest}")
            }
            End::Stopping => out.write_str("the server stops; go on from `since`"),
            End::Failed(why) => write!(out, "the changes cannot be read: {why}"),
        }
    }
}

/// What a consumer does next.
pub(crate) enum Next {
    Chunk(u64, Arc<Chunk>),
    /// What comes before the window.
    Piece(Arc<Chunk>),
    /// It is time to say something; with the tip where the consumer waits at it.
    Beat(u64, Option<Place>),
    Nothing,
    End(End),
}

/// A request for the feed.
pub(crate) struct Arrival {
    pub(crate) late: LateReply,
    pub(crate) wanted: Wanted,
}

/// A consumer that wants its next piece.
pub(crate) struct Wanting {
    pub(crate) member: u64,
    pub(crate) place: Place,
    pub(crate) wanted: Wanted,
    pub(crate) has_seat: bool,
    /// When it came, or was given its last piece.
    pub(crate) since: Instant,
}

/// What the follower is to do.
#[derive(Default)]
pub(crate) struct Orders {
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) wanting: Vec<Wanting>,
    /// Who has a seat.
    pub(crate) seated: Vec<u64>,
    pub(crate) has_members: bool,
    pub(crate) is_ending: bool,
    /// One that has taken over.
    pub(crate) database: Option<Database>,
}

struct Member {
    nudge: Nudge,
    wanted: Wanted,
    waits: bool,
    behind: Option<Behind>,
    end: Option<End>,
    /// All up to it was read for this member, also where nothing in it changed a document.
    known: Place,
}

struct Behind {
    place: Place,
    wants: bool,
    piece: Option<Arc<Chunk>>,
    /// After its piece all up to it is known.
    known: Place,
    is_last: bool,
    /// When it came, or was given its last piece.
    since: Instant,
    /// When it last took some of that piece.
    pulled: Option<Instant>,
    /// The memory of its reader and its piece.
    seat: Option<Taken>,
}

impl Behind {
    fn at(place: Place) -> Behind {
        let since = Instant::now();
        Behind { place, wants: true, piece: None, known: place, is_last: false, since, pulled: None, seat: None }
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
    database: Option<Database>,
}

/// See the module's text.
pub(crate) struct Hub {
    state: Mutex<State>,
    /// Whether somebody rang. Apart from the state, for commits ring it too and may not wait.
    has_rung: Mutex<bool>,
    bell: Condvar,
    /// Counts what the feed holds among the large replies.
    replies: InFlight,
    cut_off: AtomicU64,
}

/// Numbers for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) consumers: u64,
    pub(crate) behind: u64,
    pub(crate) window_bytes: u64,
    pub(crate) cut_off: u64,
}

impl Hub {
    pub(crate) fn new(replies: InFlight) -> Hub {
        Hub {
            state: Mutex::default(),
            has_rung: Mutex::default(),
            bell: Condvar::new(),
            replies,
            cut_off: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts memory; none where it is used up.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        self.replies.take(bytes)
    }

    pub(crate) fn numbers(&self) -> Numbers {
        let state = self.lock();
        Numbers {
            consumers: state.members.len() as u64,
            behind: state.members.values().filter(|member| member.behind.is_some()).count() as u64,
            window_bytes: state.window.as_ref().map_or(0, Window::bytes) as u64,
            cut_off: self.cut_off.load(Ordering::Relaxed),
        }
    }

    // The loops' side.

    /// Hands a request to the follower, unless there are too many.
    pub(crate) fn arrive(&self, arrival: impl FnOnce() -> Option<Arrival>) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.is_ending {
            return Err(Failure::new(
                Kind::Unavailable,
                "the server stops, or its feed of changes has ended by a fault",
            ));
        }
        if state.members.len() + state.arrivals.len() >= CONSUMERS_MAX {
            let detail = format!("{CONSUMERS_MAX} consumers of changes are connected");
            return Err(Failure::new(Kind::Busy, detail));
        }
        state.arrivals.extend(arrival());
        drop(state);
        self.ring();
        Ok(())
    }

    /// What a consumer does next. `chunk`: the one of the window that it is at; `beat`: the one that it heard last.
    pub(crate) fn next(&self, number: u64, place: Place, chunk: Option<u64>, beat: Option<u64>) -> Next {
        let mut state = self.lock();
        let State { window, members, beat: now, is_ending, .. } = &mut *state;
        let (Some(member), Some(window)) = (members.get_mut(&number), window) else { return Next::End(End::Stopping) };
        if *is_ending {
            return Next::End(End::Stopping);
        }
        if let Some(end) = &member.end {
            return Next::End(end.clone());
        }
        let place = place.max(member.known);
        let is_out = match chunk {
            None => place < window.after(),
            Some(chunk) => !window.holds(chunk),
        };
        if member.behind.is_none() && is_out {
            if chunk.is_some() {
                self.cut_off.fetch_add(1, Ordering::Relaxed);
                return Next::End(End::TooSlow);
            }
            // It has just come from behind, and the window went on meanwhile.
            member.behind = Some(Behind::at(place));
        }
        let (next, tip) = match &mut member.behind {
            Some(behind) => {
                let piece = behind.piece.clone();
                if piece.is_some() {
                    behind.pulled = Some(Instant::now());
                }
                if piece.is_none() && !behind.wants {
                    (behind.wants, behind.place) = (true, place);
                }
                (piece.map(Next::Piece), None)
            }
            None => {
                let chunk = chunk.unwrap_or_else(|| window.find(place));
                (window.chunk(chunk).map(|found| Next::Chunk(chunk, Arc::clone(found))), Some(window.tip()))
            }
        };
        if beat.is_none() {
            return Next::Beat(*now, None);
        }
        match next {
            Some(next) => next,
            None if beat != Some(*now) => Next::Beat(*now, tip),
            None => {
                member.waits = true;
                let wants = member.behind.is_some();
                drop(state);
                if wants {
                    self.ring();
                }
                Next::Nothing
            }
        }
    }

    /// A consumer has copied its piece.
    pub(crate) fn taken(&self, number: u64) {
        let mut state = self.lock();
        let Some(member) = state.members.get_mut(&number) else { return };
        let Some(behind) = &mut member.behind else { return };
        if behind.piece.take().is_none() {
            // It was taken away meanwhile, and is read again from where the consumer is.
            return;
        }
        member.known = behind.known;
        if behind.is_last {
            member.behind = None;
            drop(state);
            // Its memory is free for who waits for a seat.
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
        // Dropped unanswered they would be told of a fault.
        let arrivals = std::mem::take(&mut state.arrivals);
        let nudges = nudges(&mut state, |_| true);
        drop(state);
        for arrival in arrivals {
            refuse(arrival.late, &Failure::new(Kind::Unavailable, "the server stops"));
        }
        nudges.iter().for_each(Nudge::send);
        self.ring();
    }

    /// Has the follower go on with a database that has taken over.
    pub(crate) fn move_on(&self, database: Database) {
        let before = self.lock().database.replace(database);
        drop(before);
        self.ring();
    }

    // The follower's side.

    /// Wakes the follower.
    pub(crate) fn ring(&self) {
        *self.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_one();
    }

    /// Waits until somebody rings or the time is over, and gives what is to be done.
    pub(crate) fn orders(&self, until: Option<Instant>) -> Orders {
        let mut has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_rung {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            has_rung = match left {
                None => self.bell.wait(has_rung).unwrap_or_else(PoisonError::into_inner),
                Some(left) if left.is_zero() => break,
                Some(left) => self.bell.wait_timeout(has_rung, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        *has_rung = false;
        drop(has_rung);
        let mut state = self.lock();
        let wanting = |(number, member): (&u64, &Member)| {
            let behind = member.behind.as_ref().filter(|behind| behind.wants && member.end.is_none())?;
            let (member, wanted) = (*number, member.wanted);
            let has_seat = behind.seat.is_some();
            Some(Wanting { member, place: behind.place, wanted, has_seat, since: behind.since })
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

    /// The window's ends, where there is one.
    pub(crate) fn window(&self) -> Option<(Place, Place)> {
        self.lock().window.as_ref().map(|window| (window.after(), window.tip()))
    }

    /// Begins to follow, or ends: nobody consumes.
    pub(crate) fn set_window(&self, window: Option<Window>) {
        let before = std::mem::replace(&mut self.lock().window, window);
        drop(before);
    }

    /// A new consumer's number; none where the server stops.
    pub(crate) fn join(&self, nudge: Nudge, wanted: Wanted, place: Place) -> Option<u64> {
        let mut state = self.lock();
        if state.is_ending {
            return None;
        }
        let number = state.next_member;
        state.next_member += 1;
        let is_behind = state.window.as_ref().is_none_or(|window| place < window.after());
        let behind = is_behind.then(|| Behind::at(place));
        state.members.insert(number, Member { nudge, wanted, waits: false, behind, end: None, known: place });
        Some(number)
    }

    /// Adds what has changed, and tells those who wait for it.
    pub(crate) fn publish(&self, chunks: Vec<Chunk>, tip: Place) {
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

    /// Has all consumers say something.
    pub(crate) fn next_beat(&self) {
        let mut state = self.lock();
        state.beat += 1;
        let nudges = nudges(&mut state, |_| true);
        drop(state);
        nudges.iter().for_each(Nudge::send);
    }

    /// Gives a consumer that is behind a seat.
    pub(crate) fn seat(&self, number: u64, memory: Taken) {
        if let Some(behind) = self.lock().members.get_mut(&number).and_then(|member| member.behind.as_mut()) {
            behind.seat = Some(memory);
        }
    }

    /// Takes the seats of those that do not go on with their piece, or do not ask for the next; gives whose.
    pub(crate) fn clear_idle_seats(&self) -> Vec<u64> {
        let mut state = self.lock();
        let mut cleared = Vec::new();
        for (number, member) in &mut state.members {
            let Some(behind) = &mut member.behind else { continue };
            let stands = match behind.pulled {
                Some(pulled) => pulled.elapsed() > SEAT_IDLE,
                None => behind.since.elapsed() > PIECE_IDLE,
            };
            if behind.seat.is_some() && !behind.wants && stands {
                // Its place is where it is in the piece; nothing after that is known.
                drop((behind.piece.take(), behind.seat.take()));
                cleared.push(*number);
            }
        }
        cleared
    }

    /// Takes the seat of one that wants its next piece: others wait.
    pub(crate) fn clear_seat(&self, number: u64) {
        let mut state = self.lock();
        if let Some(behind) = state.members.get_mut(&number).and_then(|member| member.behind.as_mut())
            && behind.piece.is_none()
        {
            drop(behind.seat.take());
        }
    }

    /// Gives a consumer its next piece, after which all up to `known` was read; whether the reader goes on.
    pub(crate) fn give(&self, number: u64, piece: Chunk, known: Place) -> bool {
        let mut state = self.lock();
        let State { window, members, .. } = &mut *state;
        let (Some(member), Some(window)) = (members.get_mut(&number), window) else { return false };
        let Some(behind) = &mut member.behind else { return false };
        behind.known = known;
        behind.is_last = known >= window.after();
        let goes_on = !behind.is_last;
        if piece.is_empty() {
            member.known = known;
            if behind.is_last {
                member.behind = None;
            }
        } else {
            behind.piece = Some(Arc::new(piece));
            (behind.wants, behind.since, behind.pulled) = (false, Instant::now(), None);
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

/// Those who wait, and wait no more.
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
