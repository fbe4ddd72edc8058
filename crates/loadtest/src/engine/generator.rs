//! The generator of one loop: its plan, its connections, its requests in flight. `driver` and `client` carry out its decisions.
//!
//! ```text
//!            connect                  made                   reply, and none may follow
//!  Vacant -----------> Connecting ----------> Ready <---+ -----------------------------> Ending --> Vacant
//!     ^                    |                    |       |                                             ^
//!     +---- not made ------+                    +-------+ request, reply                              |
//!     +------------------------------------ the connection ended -------------------------------------+
//! ```
//!
//! Open model: a request that is due takes the connection that has been free for the longest time. If none is free, the request
//! waits (as a number in the plan), and more connections are made: one for each waiting request, up to the bound. After a reply,
//! the connection takes the first waiting request. A request that has waited for the timeout is dropped as unsent, because its
//! reply could only be late.
//!
//! Closed model: each connection sends its next request after a reply, and is reopened after it has ended. In a scenario the
//! connection belongs to a user, and the next request is sent after the user's think time.
//!
//! With a new connection for each request, a due request opens one, and takes it once it is established.

use super::ended::{Ended, Judged, Lost};
use super::feed::{Fed, Feed};
use super::ledger::{Answered, Ledger, SliceNo};
use super::observing::{Gathered, Observing};
use super::plan::Plan;
use super::users::{Passes, Users};
use crate::reply::ReceivedReply;
use crate::source::Described;
use crate::statuses::StatusSet;
use reactor::{ConnectionId, Loop};
use std::collections::VecDeque;

/// Largest number of connections that a loop opens at the same time: more would overflow a server's backlog.
const CONNECTING_MAX: usize = 256;
/// Pause in the closed model after a connection could not be made.
const CONNECT_PAUSE_NS: u64 = 100_000_000;

/// A connection of a loop, by its slot.
pub(super) type SlotNo = u32;

/// Settings that all loops share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) timeout_ns: u64,
    /// Largest number of requests in flight on a connection.
    pub(super) pipeline: usize,
    /// Whether each request uses a new connection.
    pub(super) connects_anew: bool,
    /// Largest number of connections of this loop.
    pub(super) connections_max: usize,
    /// Number of connections that are made before the start.
    pub(super) connections_at_start: usize,
    /// Expected statuses of requests that name none.
    pub(super) expected: StatusSet,
}

/// The schedule of requests.
#[derive(Debug)]
pub(super) enum Pace {
    /// At planned moments.
    Open(Plan),
    /// Whenever a connection has room, until the end.
    Closed { end_ns: u64 },
    /// Not started.
    Opening,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Vacant,
    Connecting,
    Ready,
    /// Open, but takes no more requests.
    Ending,
}

/// A request that was sent and not answered.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    planned_ns: u64,
    sent_ns: u64,
    slice: SliceNo,
    described: Described,
}

#[derive(Debug)]
struct Slot {
    phase: Phase,
    id: Option<ConnectionId>,
    in_flight: VecDeque<InFlight>,
    /// Whether it is in the list of free connections.
    is_listed: bool,
    /// When connecting began.
    begun_ns: u64,
    /// Why the generator closes it.
    cause: Option<Lost>,
    /// Received bytes of the current reply.
    reply_bytes: u64,
}

/// The part of replies that somebody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathers {
    Nothing,
    Body,
    HeadAndBody,
}

/// The next action on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    /// Close it.
    Close,
    /// Wait for the server, which has announced a close: the waiting time of the port (TIME_WAIT) is then on its side.
    AwaitEnd,
}

/// See the module.
pub(super) struct Generator {
    terms: Terms,
    pace: Pace,
    lp: Loop,
    feed: Feed,
    /// Makes the requests instead of the feed.
    users: Option<Users>,
    pub(super) ledger: Ledger,
    pub(super) observing: Option<Observing>,
    slots: Vec<Slot>,
    /// Connections that can take a request, ordered by the time since they became free.
    free: VecDeque<SlotNo>,
    vacant: Vec<SlotNo>,
    /// Vacant slots that are retried later, in the order of their times.
    resting: VecDeque<(u64, SlotNo)>,
    connecting: usize,
    in_flight: u64,
    /// Whether the source was behind when a request had to be sent.
    is_starving: bool,
    /// Connections on which bytes arrived although no request was in flight.
    pub(super) unasked: u64,
}

impl Generator {
    pub(super) fn new(
        terms: Terms,
        lp: Loop,
        feed: Feed,
        users: Option<Users>,
        ledger: Ledger,
        observing: Option<Observing>,
    ) -> Self {
        Self {
            terms,
            pace: Pace::Opening,
            lp,
            feed,
            users,
            ledger,
            observing,
            slots: Vec::new(),
            free: VecDeque::new(),
            vacant: Vec::new(),
            resting: VecDeque::new(),
            connecting: 0,
            in_flight: 0,
            is_starving: false,
            unasked: 0,
        }
    }

    /// Begins the run.
    pub(super) fn begin(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Plans no further requests.
    pub(super) fn end(&mut self) {
        match &mut self.pace {
            Pace::Open(plan) => plan.end(),
            Pace::Closed { end_ns } => *end_ns = 0,
            Pace::Opening => self.pace = Pace::Closed { end_ns: 0 },
        }
    }

    /// Whether nothing is planned any more and nothing is in flight.
    pub(super) fn is_over(&self) -> bool {
        let is_planned = match &self.pace {
            Pace::Open(plan) => !plan.is_over(),
            Pace::Closed { end_ns } => self.lp.now_ns() < *end_ns,
            Pace::Opening => true,
        };
        !is_planned && self.in_flight == 0
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn is_starving(&self) -> bool {
        self.is_starving
    }

    /// The part of replies that the observer or the users of a scenario read.
    pub(super) fn gathers(&self) -> Gathers {
        match &self.observing {
            _ if self.users.is_some() => Gathers::HeadAndBody,
            Some(observing) if observing.has_observer => Gathers::Body,
            _ => Gathers::Nothing,
        }
    }

    /// The passes of a scenario's users, at the end.
    pub(super) fn take_passes(&mut self) -> Option<Passes> {
        self.users.as_mut().map(|users| std::mem::take(&mut users.passes))
    }

    /// The moment at which the next request is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        match &self.pace {
            Pace::Open(plan) => plan.next_due_ns(),
            _ => self.users.as_ref().and_then(Users::next_due_ns),
        }
    }

    /// The connection of a user whose time to think is over.
    pub(super) fn next_rested(&mut self, now_ns: u64) -> Option<(SlotNo, ConnectionId)> {
        let users = self.users.as_mut()?;
        // A connection that has ended meanwhile is opened again, and then sends.
        while let Some(slot) = users.next_rested(now_ns) {
            if let Some(id) = self.slots[slot as usize].id {
                return Some((slot, id));
            }
        }
        None
    }

    // Connections.

    /// A connection to open, if one is needed.
    pub(super) fn begin_connection(&mut self, now_ns: u64) -> Option<SlotNo> {
        let is_wanted = match &self.pace {
            Pace::Opening => self.slots.len() < self.terms.connections_at_start,
            Pace::Open(plan) => plan.waiting() > self.connecting as u64,
            Pace::Closed { end_ns } => now_ns < *end_ns,
        };
        if !is_wanted || self.connecting >= CONNECTING_MAX {
            return None;
        }
        let slot = self.vacant_slot(now_ns)?;
        self.connecting += 1;
        let connection = &mut self.slots[slot as usize];
        (connection.phase, connection.begun_ns, connection.cause, connection.reply_bytes) =
            (Phase::Connecting, now_ns, None, 0);
        Some(slot)
    }

    fn vacant_slot(&mut self, now_ns: u64) -> Option<SlotNo> {
        if let Some(slot) = self.vacant.pop() {
            return Some(slot);
        }
        if let Some((_, slot)) = self.resting.pop_front_if(|(until_ns, _)| *until_ns <= now_ns) {
            return Some(slot);
        }
        if self.slots.len() == self.terms.connections_max {
            return None;
        }
        let in_flight = VecDeque::with_capacity(self.terms.pipeline);
        let (id, cause) = (None, None);
        self.slots.push(Slot {
            phase: Phase::Vacant,
            id,
            in_flight,
            is_listed: false,
            begun_ns: 0,
            cause,
            reply_bytes: 0,
        });
        Some(self.slots.len() as SlotNo - 1)
    }

    /// Whether all connections of the start are established or have failed.
    pub(super) fn has_opened(&self) -> bool {
        self.connecting == 0 && self.slots.len() >= self.terms.connections_at_start
    }

    /// Records the connection's id in the loop.
    pub(super) fn name_connection(&mut self, slot: SlotNo, id: ConnectionId) {
        self.slots[slot as usize].id = Some(id);
    }

    /// The connection is established: appends the requests to send at once.
    pub(super) fn connected(&mut self, slot: SlotNo, now_ns: u64, output: &mut Vec<u8>) -> Then {
        self.connecting -= 1;
        self.slots[slot as usize].phase = Phase::Ready;
        let begun_ns = self.slots[slot as usize].begun_ns;
        let planned_ns = if self.terms.connects_anew { begun_ns } else { now_ns };
        self.fill(slot, planned_ns, now_ns, output);
        let has_work = self.slots[slot as usize].in_flight.front().is_some();
        if self.terms.connects_anew && !has_work { Then::Close } else { Then::GoOn }
    }

    /// The connection has ended, or (`not_made`) could not be made.
    pub(super) fn connection_ended(&mut self, slot: SlotNo, not_made: Option<String>) {
        let now_ns = self.lp.precise_now_ns();
        let connection = &mut self.slots[slot as usize];
        connection.id = None;
        let before = std::mem::replace(&mut connection.phase, Phase::Vacant);
        let cause = connection.cause.take().unwrap_or(Lost::Closed);
        if before == Phase::Connecting {
            self.connecting -= 1;
            return self.not_made(slot, not_made.unwrap_or_else(|| "the connection ended".to_owned()), now_ns);
        }
        while let Some(lost) = self.slots[slot as usize].in_flight.pop_front() {
            self.in_flight -= 1;
            if let Some(users) = &mut self.users {
                users.lost(slot);
            }
            let is_overdue = now_ns.saturating_sub(lost.sent_ns) >= self.terms.timeout_ns;
            // Requests after one that timed out are lost with its connection.
            let cause = if cause == Lost::Timeout && !is_overdue { &Lost::Closed } else { &cause };
            self.lose(lost.slice, lost.planned_ns, Some(lost.described), cause, now_ns);
        }
        self.vacant.push(slot);
    }

    fn not_made(&mut self, slot: SlotNo, reason: String, now_ns: u64) {
        match &mut self.pace {
            Pace::Open(plan) => {
                // Each attempt costs a waiting request, so attempts are no more frequent than requests.
                self.vacant.push(slot);
                if let Some((planned_ns, part)) = plan.take() {
                    self.lose_unsent(planned_ns, part, &Lost::Connect(reason), now_ns);
                }
            }
            Pace::Closed { end_ns } => {
                let counts = now_ns < *end_ns;
                self.resting.push_back((now_ns + CONNECT_PAUSE_NS, slot));
                if counts {
                    let begun_ns = self.slots[slot as usize].begun_ns;
                    self.lose_unsent(begun_ns, 0, &Lost::Connect(reason), now_ns);
                }
            }
            Pace::Opening => self.resting.push_back((now_ns + CONNECT_PAUSE_NS, slot)),
        }
    }

    /// Finds the connections whose first request in flight has timed out; each must be closed.
    pub(super) fn overdue(&mut self, now_ns: u64, found: &mut Vec<ConnectionId>) {
        let Some(sent_before_ns) = now_ns.checked_sub(self.terms.timeout_ns) else { return };
        for slot in &mut self.slots {
            if slot.in_flight.front().is_some_and(|first| first.sent_ns <= sent_before_ns) {
                slot.cause = Some(Lost::Timeout);
                slot.phase = Phase::Ending;
                found.extend(slot.id);
            }
        }
    }

    /// The bytes on the connection are not a reply, or more than was asked for.
    pub(super) fn refuse(&mut self, slot: SlotNo, cause: Lost) {
        let slot = &mut self.slots[slot as usize];
        self.unasked += u64::from(slot.in_flight.is_empty());
        (slot.cause, slot.phase) = (Some(cause), Phase::Ending);
    }

    // Sending.

    /// Moves the requests that are due to the waiting ones, and drops those that have waited for the timeout. Does nothing in the
    /// closed model. If each request opens its own connection and none waits, records how late each is.
    pub(super) fn come_due(&mut self, now_ns: u64) {
        let Pace::Open(plan) = &mut self.pace else { return };
        let had_free = plan.waiting() == 0 || self.is_starving;
        if !had_free {
            self.drop_overdue(now_ns);
        }
        let Pace::Open(plan) = &mut self.pace else { return };
        // The connection is opened in this tick: that is the generator's part of the sending.
        let begins = had_free && self.terms.connects_anew;
        while let Some(due_ns) = plan.come_due(now_ns) {
            if begins {
                self.ledger.note_sending_error(now_ns.saturating_sub(due_ns));
            }
        }
    }

    fn drop_overdue(&mut self, now_ns: u64) {
        let timeout_ns = self.terms.timeout_ns;
        while let Pace::Open(plan) = &mut self.pace {
            let is_overdue = plan.first_waiting_ns().is_some_and(|planned_ns| planned_ns + timeout_ns <= now_ns);
            let Some((planned_ns, part)) = is_overdue.then(|| plan.take()).flatten() else { return };
            self.lose_unsent(planned_ns, part, &Lost::Unsent, now_ns);
        }
    }

    /// The free connection that takes the first waiting request. `None`: no request waits, or no connection is free.
    pub(super) fn next_free(&mut self) -> Option<(SlotNo, ConnectionId)> {
        if !matches!(&self.pace, Pace::Open(plan) if plan.waiting() > 0) || self.is_starving {
            return None;
        }
        while let Some(slot) = self.free.pop_front() {
            let connection = &mut self.slots[slot as usize];
            connection.is_listed = false;
            let has_room = connection.phase == Phase::Ready && connection.in_flight.len() < self.terms.pipeline;
            if let Some(id) = connection.id.filter(|_| has_room) {
                return Some((slot, id));
            }
        }
        None
    }

    /// Sends the first waiting request on a connection that was free when the request became due.
    pub(super) fn send_due(&mut self, slot: SlotNo, now_ns: u64, output: &mut Vec<u8>) {
        let planned_ns = match &self.pace {
            Pace::Open(plan) => plan.first_waiting_ns(),
            _ => None,
        };
        if self.send_one(slot, 0, now_ns, output)
            && let Some(planned_ns) = planned_ns
        {
            self.ledger.note_sending_error(now_ns.saturating_sub(planned_ns));
        }
        self.list(slot);
    }

    /// Allows asking the source again after it was behind.
    pub(super) fn ask_again(&mut self) {
        self.is_starving = false;
    }

    /// Connections that are ready, at the start of a closed run.
    pub(super) fn ready(&self) -> impl Iterator<Item = (SlotNo, ConnectionId)> + '_ {
        let ready = self.slots.iter().enumerate().filter(|(_, slot)| slot.phase == Phase::Ready);
        ready.filter_map(|(index, slot)| slot.id.map(|id| (index as SlotNo, id)))
    }

    /// Sends on a connection: in the closed model as many requests as fit, in the open one the waiting ones.
    pub(super) fn fill(&mut self, slot: SlotNo, planned_ns: u64, now_ns: u64, output: &mut Vec<u8>) {
        while self.send_one(slot, planned_ns, now_ns, output) {}
        self.list(slot);
    }

    /// Adds the connection to the free ones, if it has room.
    fn list(&mut self, slot: SlotNo) {
        if self.terms.connects_anew || matches!(self.pace, Pace::Closed { .. }) {
            return;
        }
        let connection = &mut self.slots[slot as usize];
        let has_room = connection.phase == Phase::Ready && connection.in_flight.len() < self.terms.pipeline;
        if has_room && !std::mem::replace(&mut connection.is_listed, true) {
            self.free.push_back(slot);
        }
    }

    /// Sends one request, if one is available and the connection has room. `closed_ns`: its planned moment in the closed model.
    #[inline]
    fn send_one(&mut self, slot: SlotNo, closed_ns: u64, now_ns: u64, output: &mut Vec<u8>) -> bool {
        let connection = &mut self.slots[slot as usize];
        let room = if self.terms.connects_anew { 1 } else { self.terms.pipeline };
        if connection.phase != Phase::Ready || connection.in_flight.len() >= room {
            return false;
        }
        let is_planned = match &self.pace {
            Pace::Open(plan) => plan.waiting() > 0,
            Pace::Closed { end_ns } => now_ns < *end_ns,
            Pace::Opening => false,
        };
        if !is_planned {
            return false;
        }
        let before = output.len();
        let fed = match &mut self.users {
            None => self.feed.append_next(output),
            Some(users) => users.append_next(slot, now_ns, output),
        };
        let described = match fed {
            Fed::One(described) => described,
            Fed::Thinking => return false,
            Fed::NotYet => {
                self.is_starving = true;
                return false;
            }
            Fed::Ended => {
                self.end();
                return false;
            }
        };
        let taken = match &mut self.pace {
            Pace::Open(plan) => plan.take(),
            _ => Some((closed_ns, 0)),
        };
        let (planned_ns, part) = taken.unwrap_or((now_ns, 0));
        let slice = self.ledger.plan(planned_ns, part);
        self.ledger.sent(slice, (output.len() - before) as u64);
        connection.in_flight.push_back(InFlight { planned_ns, sent_ns: now_ns, slice, described });
        if described.closes || self.terms.connects_anew {
            connection.phase = Phase::Ending;
        }
        self.in_flight += 1;
        true
    }

    // Replies.

    /// Whether the connection's next reply answers a HEAD. `None`: no reply is expected.
    #[inline]
    pub(super) fn expected(&self, slot: SlotNo) -> Option<bool> {
        self.slots[slot as usize].in_flight.front().map(|first| first.described.is_head)
    }

    /// Number of requests in flight on the connection.
    #[inline]
    pub(super) fn in_flight_on(&self, slot: SlotNo) -> usize {
        self.slots[slot as usize].in_flight.len()
    }

    /// Counts received bytes of the expected reply.
    #[inline]
    pub(super) fn received(&mut self, slot: SlotNo, bytes: usize) {
        self.slots[slot as usize].reply_bytes += bytes as u64;
    }

    /// The expected reply is complete. Appends the requests that follow on the connection.
    #[inline]
    pub(super) fn replied(
        &mut self,
        slot: SlotNo,
        reply: ReceivedReply,
        body: Option<&Gathered>,
        now_ns: u64,
        output: &mut Vec<u8>,
    ) {
        let connection = &mut self.slots[slot as usize];
        let Some(request) = connection.in_flight.pop_front() else { return };
        self.in_flight -= 1;
        let received_bytes = std::mem::take(&mut connection.reply_bytes);
        if !reply.is_reusable {
            connection.phase = Phase::Ending;
        }
        let latency_ns = now_ns.saturating_sub(request.planned_ns);
        let is_expected = match request.described.expected_status {
            0 => self.terms.expected.contains(reply.status),
            expected => reply.status == expected,
        };
        let is_expected = match &mut self.users {
            None => is_expected,
            Some(users) => users.replied(slot, is_expected, reply.status, body, now_ns) && is_expected,
        };
        let judged = match (latency_ns > self.terms.timeout_ns, is_expected) {
            (true, _) => Judged::Late,
            (false, true) => Judged::Right,
            (false, false) => Judged::Wrong,
        };
        let service_ns = now_ns.saturating_sub(request.sent_ns);
        let tag = request.described.tag;
        let answered = Answered { latency_ns, service_ns, status: reply.status, received_bytes, judged, tag };
        self.ledger.answered(request.slice, answered, now_ns);
        if let Some(observing) = &mut self.observing {
            let ended = Ended {
                described: Some(request.described),
                place: self.ledger.place(request.slice),
                planned_ns: self.ledger.since_start(request.planned_ns),
                latency_ns,
                service_ns,
                received_bytes,
                reply: Some((reply.status, judged)),
                cause: "",
            };
            observing.note(ended, body);
        }
        self.fill(slot, now_ns, now_ns, output);
    }

    /// The next action on the connection after its input was read. `input_ended`: the server has ended its direction.
    pub(super) fn after_input(&self, slot: SlotNo, input_ended: bool, last: Option<ReceivedReply>) -> Then {
        let connection = &self.slots[slot as usize];
        if input_ended || connection.cause.is_some() {
            return Then::Close;
        }
        match last {
            Some(reply) if connection.phase == Phase::Ending && connection.in_flight.is_empty() => {
                if reply.is_reusable { Then::Close } else { Then::AwaitEnd }
            }
            _ => Then::GoOn,
        }
    }

    /// A request that was never sent is lost, and its bytes are skipped.
    fn lose_unsent(&mut self, planned_ns: u64, part: u32, lost: &Lost, now_ns: u64) {
        let slice = self.ledger.plan(planned_ns, part);
        // In the closed model no request was chosen yet.
        let is_open = matches!(self.pace, Pace::Open(_));
        let described = if is_open { self.feed.skip() } else { None };
        self.lose(slice, planned_ns, described, lost, now_ns);
    }

    fn lose(&mut self, slice: SliceNo, planned_ns: u64, described: Option<Described>, lost: &Lost, now_ns: u64) {
        let waited_ns = now_ns.saturating_sub(planned_ns);
        if let Some(observing) = &mut self.observing {
            let ended = Ended {
                described,
                place: self.ledger.place(slice),
                planned_ns: self.ledger.since_start(planned_ns),
                latency_ns: waited_ns,
                service_ns: 0,
                received_bytes: 0,
                reply: None,
                cause: lost.name(),
            };
            observing.note(ended, None);
        }
        self.ledger.lost(slice, described.map(|described| described.tag), waited_ns, lost);
    }
}
