//! The thread that reads changes from the log for all consumers: once for the consumers in the window, and in turns for those
//! behind it. Without consumers it sleeps and reads nothing.

use super::consumer;
use super::feed_position::FeedPosition;
use super::hub::{Arrival, End, Hub, Orders, PIECE_IDLE, Wanting, refuse};
use super::window::Chunk;
use crate::failure::{Failure, FailureKind, PROBLEM};
use docs::DocumentDatabase;
use docs::changes::Changes;
use docs::engine::{self, Classified, ErrorKind};
use http::LateReply;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least time between two publications under continuous changes: each costs every consumer a system call.
const PACE: Duration = Duration::from_millis(5);
/// Interval of heartbeats.
const BEAT: Duration = Duration::from_secs(10);
/// A publication holds at most about this many bytes.
const ROUND_BYTES: usize = 256 << 10;
/// Transactions read in one turn for a consumer that is behind, since none of them may match its request.
const TURN_TRANSACTIONS: usize = 4096;
/// Interval of attempts to get a seat.
const SEAT_WAIT: Duration = Duration::from_millis(2);
/// Readers of the log for consumers that are behind.
const SEATS_MAX: usize = 4;
/// Pieces after which a seat passes to another waiting consumer. Fewer would be wasteful: opening a reader costs as much as
/// reading a few pieces.
const PIECES_PER_SEAT: u32 = 32;

/// Memory limits of the feed's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// The window.
    pub(crate) window_bytes: usize,
    /// A seat with a piece of small changes. A seat that holds more is counted as what it holds.
    pub(crate) seat_bytes: usize,
}

/// See the module's documentation.
pub(crate) struct Follower {
    hub: Arc<Hub>,
    database: DocumentDatabase,
    sizes: Sizes,
    live: Option<Live>,
    seats: Vec<Seat>,
    next_beat: Instant,
}

/// The reader at the tip.
struct Live {
    changes: Changes,
    /// When the next changes may be published.
    due: Instant,
}

struct Seat {
    member: u64,
    changes: Changes,
    /// Pieces that were made for its consumer, empty ones as well.
    pieces: u32,
}

impl Follower {
    pub(crate) fn new(hub: Arc<Hub>, database: DocumentDatabase, sizes: Sizes) -> Follower {
        Follower { hub, database, sizes, live: None, seats: Vec::new(), next_beat: Instant::now() }
    }

    /// Works until the hub is ended.
    pub(crate) fn run(mut self) {
        let mut until = None;
        loop {
            let orders = self.hub.orders(until);
            if orders.is_ending {
                return;
            }
            until = self.turn(orders);
        }
    }

    /// Does the work that is due. Returns when to continue without a wake-up; `None`: only after a wake-up.
    fn turn(&mut self, orders: Orders) -> Option<Instant> {
        let Orders { arrivals, wanting, seated, has_members, database, .. } = orders;
        // Readers stay open: the collections are the same.
        database.into_iter().for_each(|database| self.database = database);
        self.seats.retain(|seat| seated.contains(&seat.member));
        if !has_members && arrivals.is_empty() {
            self.live = None;
            self.hub.close_window();
            return None;
        }
        let has_arrivals = !arrivals.is_empty();
        arrivals.into_iter().for_each(|arrival| self.admit(arrival));
        let again = self.read_live();
        let mut is_busy = has_arrivals;
        let mut next = self.next_beat;
        // A seat without a reader holds the memory of a piece that its consumer has not taken.
        if !seated.is_empty() {
            let cleared = self.hub.clear_idle_seats(wanting.iter().any(|wanting| !wanting.has_seat));
            self.seats.retain(|seat| !cleared.contains(&seat.member));
        }
        let mut is_short = false;
        for wanting in &wanting {
            match self.serve(wanting) {
                Served::Busy => is_busy = true,
                Served::Done => {}
                Served::NoSeat => is_short = true,
            }
        }
        if is_short {
            self.seats.retain(|seat| {
                let goes_on = seat.pieces < PIECES_PER_SEAT;
                if !goes_on {
                    self.hub.clear_seat(seat.member);
                }
                goes_on
            });
            next = next.min(Instant::now() + SEAT_WAIT);
        }
        let now = Instant::now();
        if !seated.is_empty() || !self.seats.is_empty() {
            next = next.min(now + PIECE_IDLE);
        }
        if now >= self.next_beat {
            self.hub.next_beat();
            self.next_beat = now + BEAT;
        }
        next = next.min(self.next_beat).min(again.unwrap_or(next));
        Some(if is_busy { now } else { next })
    }

    fn admit(&mut self, arrival: Arrival) {
        match self.position(&arrival) {
            Ok(position) => consumer::begin(&self.hub, arrival, position),
            Err(Refusal::Failure(failure)) => refuse(arrival.late, &failure),
            Err(Refusal::Gone { since, oldest }) => say_gone(arrival.late, since, oldest),
        }
    }

    /// The position from which a consumer begins.
    fn position(&mut self, arrival: &Arrival) -> Result<FeedPosition, Refusal> {
        self.begin()?;
        let (after, tip) = self.hub.window().unwrap_or((FeedPosition::after(0), FeedPosition::after(0)));
        let Some(since) = arrival.wanted.since else { return Ok(tip) };
        let newest = self.database.store().stats().version;
        if since.change_number > newest {
            let detail = format!("since is {since}, but the newest change is {newest}");
            return Err(Refusal::Failure(Failure::new(FailureKind::Invalid, detail)));
        }
        if since < after {
            // Opened only to check that the changes are still kept. The consumer's seat may have to wait.
            self.database.changes_since(since.whole()).map_err(|error| refusal(since, &error))?;
        }
        Ok(since)
    }

    /// Opens the window, unless it is open.
    fn begin(&mut self) -> Result<(), Refusal> {
        if self.live.is_some() {
            return Ok(());
        }
        let newest = self.database.store().stats().version;
        let from = |error: engine::StoreError| refusal(FeedPosition::after(newest), &error);
        let mut changes = self.database.changes_since(newest).map_err(from)?;
        let hub = Arc::clone(&self.hub);
        changes.wake_by(move || hub.ring());
        let now = Instant::now();
        self.hub.open_window(newest, self.sizes.window_bytes);
        self.live = Some(Live { changes, due: now });
        self.next_beat = now + BEAT;
        Ok(())
    }

    /// Reads and publishes new changes, if it is time. Returns the time of the next publication, if it is too early or there are
    /// more.
    fn read_live(&mut self) -> Option<Instant> {
        let live = self.live.as_mut()?;
        let now = Instant::now();
        if now < live.due {
            return Some(live.due);
        }
        let catalog = self.database.catalog();
        let (mut chunks, mut chunk, mut bytes) = (Vec::new(), Chunk::default(), 0);
        let outcome = loop {
            let next = live.changes.next(|event| {
                if chunk.is_full() {
                    bytes += chunk.bytes();
                    chunks.push(std::mem::take(&mut chunk));
                }
                chunk.push(catalog, event);
            });
            match next {
                Ok(true) if bytes < ROUND_BYTES => {}
                other => break other,
            }
        };
        if !chunk.is_empty() {
            chunk.shrink();
            chunks.push(chunk);
        }
        if !chunks.is_empty() {
            live.due = now + PACE;
        }
        self.hub.publish(chunks, read_up_to(&live.changes));
        match outcome {
            Ok(true) => {
                live.due = now;
                Some(now)
            }
            Ok(false) => None,
            Err(error) => {
                tracing::error!(%error, "the feed of changes ends");
                self.hub.fail(None, &end_of(&error));
                self.live = None;
                None
            }
        }
    }

    /// Reads the next piece for a consumer that is behind.
    fn serve(&mut self, wanting: &Wanting) -> Served {
        let seat = self.seats.iter().position(|seat| seat.member == wanting.member);
        let Some(seat) = seat.or_else(|| self.sit_down(wanting)) else { return Served::NoSeat };
        let Seat { changes, pieces, .. } = &mut self.seats[seat];
        let (catalog, mut piece) = (self.database.catalog(), Chunk::default());
        for _ in 0..TURN_TRANSACTIONS {
            let next = changes.next(|event| {
                // A seat that was passed on begins again with the transaction inside which the consumer is.
                let is_new = FeedPosition::of(event) > wanting.position;
                if is_new && wanting.wanted.collection.is_none_or(|wanted| wanted == event.collection) {
                    piece.push(catalog, event);
                }
            });
            match next {
                Ok(true) if !piece.is_full() => {}
                Ok(_) => break,
                Err(error) => {
                    self.hub.fail(Some(wanting.member), &end_of(&error));
                    self.seats.swap_remove(seat);
                    return Served::Busy;
                }
            }
        }
        piece.shrink();
        *pieces += 1;
        let (is_empty, known) = (piece.is_empty(), read_up_to(changes).max(wanting.position));
        let goes_on = self.hub.give(wanting.member, piece, known, changes.memory_bytes());
        if !goes_on {
            self.seats.swap_remove(seat);
        }
        // If the seat is free, the next consumer gets it.
        if is_empty || !goes_on { Served::Busy } else { Served::Done }
    }

    /// Opens a reader for a consumer that is behind, if there is a seat.
    fn sit_down(&mut self, wanting: &Wanting) -> Option<usize> {
        if self.seats.len() >= SEATS_MAX {
            return None;
        }
        if !self.hub.seat(wanting.member, self.sizes.seat_bytes) {
            return None;
        }
        match self.database.changes_since(wanting.position.whole()) {
            Ok(changes) => {
                self.seats.push(Seat { member: wanting.member, changes, pieces: 0 });
                Some(self.seats.len() - 1)
            }
            Err(error) => {
                self.hub.fail(Some(wanting.member), &end_of(&error));
                None
            }
        }
    }
}

/// Result of a turn for a consumer that is behind.
enum Served {
    /// There is more work at once.
    Busy,
    Done,
    NoSeat,
}

/// Why a request does not become a consumer.
enum Refusal {
    Failure(Failure),
    Gone { since: FeedPosition, oldest: u64 },
}

fn refusal(since: FeedPosition, error: &engine::StoreError) -> Refusal {
    match error.kind() {
        ErrorKind::ChangesGone { oldest } => Refusal::Gone { since, oldest },
        ErrorKind::Busy => Refusal::Failure(Failure::new(FailureKind::Busy, "too many readers of changes")),
        _ => Refusal::Failure(Failure::new(FailureKind::Unavailable, error.to_string())),
    }
}

fn end_of(error: &engine::StoreError) -> End {
    match error.kind() {
        ErrorKind::ChangesGone { oldest } => End::Gone { oldest },
        ErrorKind::Closed => End::Stopping,
        _ => End::Failed(error.to_string()),
    }
}

/// A problem document that contains where to begin again.
fn say_gone(late: LateReply, since: FeedPosition, oldest: u64) {
    let kind = FailureKind::Gone;
    let detail = format!(
        "changes since {since} are kept no longer: read the collections, and go on from {oldest} or later; \
         [server] changes_kept_bytes keeps more"
    );
    let body =
        serde_json::json!({ "title": kind.title(), "status": kind.status().0, "detail": detail, "oldest": oldest });
    late.send(kind.status(), PROBLEM, body.to_string().into_bytes());
}

/// The position up to which a reader has returned all changes.
fn read_up_to(changes: &Changes) -> FeedPosition {
    match changes.within() {
        Some((change_number, number)) => FeedPosition::within(change_number, number),
        None => FeedPosition::after(changes.version()),
    }
}
