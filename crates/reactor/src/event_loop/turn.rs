//! One connection's turn in a tick: at most one read, the protocol's calls, one write.
//!
//! After an event the read comes first, and the rest of the turn is returned as a [`Turn`]: the loop lets a few connections read
//! before the first of them is answered, and answers them all before the first is written (see `batch`).
//!
//! A read that comes back short ends the turn: the transport remembers what the kernel may still have (`socket`).
//!
//! A turn ends with [`Core::end_turn`]: the queue is written, the phase advances, lent buffers go back, and a connection that has
//! more to do goes on the ready list. Turns of connections touched by mail, neighbours and states end with the tick.

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::address::ConnectFailure;
use crate::connection::socket::Then;
use crate::connection::{Connection, Link, Phase};
use crate::event_loop::core::Core;
use crate::event_loop::handshake::unshaken;
use crate::event_loop::io::Io;
use crate::fleet::nanoseconds;
use crate::kernel::{Readiness, Token};
use crate::protocol::{Closed, Message, Protocol};
use crate::timers::wheel::TICK_NS;

/// Lingering time of a connection that was idle when the drain began. Its last reply had left before, so a reset could only cost
/// bytes in flight. A peer that keeps such a connection open and never reads it must not hold the process for the whole of
/// [`Traffic::linger_max`](crate::Traffic::linger_max).
const IDLE_LINGER_MAX: Duration = Duration::from_millis(200);

/// A reply of up to this many bytes is written together with the other replies of its batch. A longer reply is written as soon as it is
/// made: waiting, it would take memory and evict the batch's data from the caches.
const WRITTEN_LATER_BYTES_MAX: usize = 16 << 10;

/// The rest of a connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    Over,
    /// The read is done. `is_due`: the protocol is to be called.
    Input {
        is_due: bool,
    },
    /// The protocol's `writable`, then a read.
    Writable,
    /// The write.
    Output,
    Linger,
    Handshake,
}

impl Turn {
    /// Whether a call of the protocol, or a step of the handshake, comes before the write.
    pub(crate) fn has_answer(self) -> bool {
        matches!(self, Turn::Input { .. } | Turn::Writable | Turn::Handshake)
    }
}

impl Core {
    /// Handles an event: does the work before the turn, and returns the rest of the turn.
    pub(crate) fn event(&mut self, connection: &mut Connection, readiness: Readiness) -> Turn {
        let link = &mut connection.link;
        if matches!(link.phase, Phase::Connecting | Phase::Handshaking) {
            self.event_before_open(connection, readiness);
            return Turn::Over;
        }
        if readiness.failed {
            let lingering = matches!(link.phase, Phase::Lingering { .. });
            link.close(if lingering { Closed::Finished } else { Closed::Peer });
            return Turn::Over;
        }
        link.transport.note(readiness);
        if link.listed {
            return Turn::Over; // it is on the ready list: one turn in a tick
        }
        match link.phase {
            Phase::Open if link.transport.is_readable() && link.takes_input() && !link.input_ended => {
                if self.is_pressed || self.time.tick_is_over() {
                    // Others wait, or have used up the tick. Before its turn in the next tick the kernel reports whether this
                    // peer is still there.
                    self.lists.list(link);
                    return Turn::Over;
                }
                self.begin_input(link)
            }
            // An edge of EPOLLOUT comes along with every other event; it matters only to a queue that waits for it.
            Phase::Open | Phase::Finishing if link.has_unsent() => Turn::Output,
            // Our own FIN being acknowledged is an edge too, with nothing to read.
            Phase::Lingering { .. } if link.transport.is_readable() || link.transport.has_pending() => Turn::Linger,
            _ => Turn::Over,
        }
    }

    /// Handles an event of a connection that is not open yet.
    #[cold]
    fn event_before_open(&mut self, connection: &mut Connection, readiness: Readiness) {
        let link = &mut connection.link;
        if link.phase == Phase::Connecting {
            return self.finish_connect(connection, readiness);
        }
        link.transport.note(readiness);
        if readiness.failed {
            link.transport.expect_input(); // the read returns the error
        }
        self.shake_hands_soon(connection);
    }

    /// Runs the rest of the turn.
    pub(crate) fn take_turn(&mut self, connection: &mut Connection, turn: Turn) {
        match turn {
            Turn::Over => {}
            Turn::Input { .. } | Turn::Writable | Turn::Handshake => {
                if self.answer(connection, turn) == Turn::Output {
                    self.end_turn(connection);
                }
            }
            Turn::Output => self.end_turn(connection),
            Turn::Linger => self.linger(&mut connection.link),
        }
    }

    /// Puts the turn off to the next tick: others have used up this one. Input already read is copied into a buffer of its own.
    pub(crate) fn put_off(&mut self, connection: &mut Connection, turn: Turn) {
        connection.link.wants_input |= turn == Turn::Input { is_due: true };
        self.end_turn(connection);
    }

    /// The same for a connection from a ready list: it stays listed, before those whose turns had not begun.
    pub(crate) fn keep_listed(&mut self, connection: &mut Connection, turn: Turn) {
        if !std::mem::replace(&mut connection.link.listed, true) {
            self.lists.put_off.push(connection.link.id);
        }
        if turn != Turn::Handshake {
            self.put_off(connection, turn);
        }
    }

    /// Runs a turn up to its write. Returns the rest: the write, or nothing after a handshake or a long reply.
    pub(crate) fn answer(&mut self, connection: &mut Connection, turn: Turn) -> Turn {
        self.time.begin_turn();
        // Others of the batch may have changed the connection since its turn began.
        let turn = match turn {
            Turn::Handshake => {
                if connection.link.phase == Phase::Handshaking {
                    self.shake_hands(connection);
                }
                return Turn::Over;
            }
            Turn::Writable => self.writable(connection),
            other => other,
        };
        if let Turn::Input { is_due } = turn {
            connection.link.is_heavy = false;
            if is_due && connection.link.takes_input() {
                connection.link.end_reported = connection.link.input_ended;
                self.call(connection, |protocol, io| protocol.input(io));
            } else {
                // A neighbour has paused it since it read, or filled its queue.
                connection.link.wants_input |= is_due;
            }
        }
        if connection.link.output.unsent() > WRITTEN_LATER_BYTES_MAX {
            self.end_turn(connection);
            return Turn::Over;
        }
        Turn::Output
    }

    /// Calls the protocol's `writable` if it is still due, then reads, and returns the rest of the turn.
    fn writable(&mut self, connection: &mut Connection) -> Turn {
        if connection.link.phase == Phase::Open && connection.link.owes_writable() {
            connection.link.wants_writable = false;
            self.call(connection, |protocol, io| protocol.writable(io));
        }
        self.read_if_wanted(&mut connection.link)
    }

    /// Begins the turn of a connection from the ready list, and returns the rest.
    pub(crate) fn go_on(&mut self, link: &mut Link) -> Turn {
        link.listed = false;
        link.is_heavy = false;
        match link.phase {
            Phase::Open if link.owes_writable() => Turn::Writable,
            Phase::Open => self.read_if_wanted(link),
            Phase::Finishing => Turn::Output,
            Phase::Lingering { .. } => Turn::Linger,
            Phase::Handshaking => Turn::Handshake,
            Phase::Connecting | Phase::Closed(_) => Turn::Over,
        }
    }

    fn read_if_wanted(&mut self, link: &mut Link) -> Turn {
        if link.takes_input() && (link.wants_input || link.transport.is_readable() && !link.input_ended) {
            self.begin_input(link)
        } else {
            Turn::Output
        }
    }

    /// The first turn of a newly accepted connection: `opened`, then a read at once.
    ///
    /// On a busy server the request has mostly arrived by now. A connection that is answered and finished in this turn is never
    /// registered with the poller, unless the peer makes it linger: for short connections that saves a tenth of their cost. Later
    /// registration loses nothing: it reports readiness that existed before.
    pub(crate) fn open(&mut self, connection: &mut Connection) {
        self.call(connection, |protocol, io| protocol.opened(io));
        if connection.link.takes_input() {
            connection.link.transport.expect_input();
            self.input_turn(connection);
        } else {
            self.end_turn(connection);
        }
        if !matches!(connection.link.phase, Phase::Lingering { .. }) {
            self.register(&mut connection.link);
        }
    }

    /// The same if others have used up the tick: the first read waits for the next tick.
    pub(crate) fn open_later(&mut self, connection: &mut Connection) {
        self.call(connection, |protocol, io| protocol.opened(io));
        connection.link.transport.expect_input();
        self.end_turn(connection);
        self.register(&mut connection.link);
    }

    pub(crate) fn register(&mut self, link: &mut Link) {
        if link.registered || link.is_closed() {
            return;
        }
        match link.transport.register(&self.poller, Token { slot: link.id.slot, generation: link.id.generation }) {
            Ok(()) => link.registered = true,
            Err(_) => link.close(Closed::Transport),
        }
    }

    /// Passes a message to the protocol. The caller ends the turn, after all mail of the tick.
    pub(crate) fn deliver(&mut self, connection: &mut Connection, message: Message) {
        self.time.begin_turn();
        self.call(connection, |protocol, io| protocol.message(message, io));
    }

    /// Calls the protocol's `drain`, after it has read what had arrived. A connection in its handshake has no request yet and is
    /// closed.
    pub(crate) fn drain(&mut self, connection: &mut Connection) {
        if connection.link.phase == Phase::Handshaking {
            return connection.link.close(Closed::Drained);
        }
        if connection.link.takes_input() && !connection.link.input_ended {
            connection.link.transport.expect_input();
            self.input_turn(connection);
        }
        if matches!(connection.link.phase, Phase::Open | Phase::Connecting) && !connection.link.drain_reported {
            connection.link.drain_reported = true;
            self.call(connection, |protocol, io| protocol.drain(io));
            self.end_turn(connection);
            if matches!(connection.link.phase, Phase::Lingering { .. }) {
                let linger = connection.link.traffic.linger_max.min(IDLE_LINGER_MAX);
                self.set_timer(&mut connection.link, Some(nanoseconds(linger)));
            }
        }
    }

    /// The wheel's entry of this connection fired.
    pub(crate) fn wheel_due(&mut self, connection: &mut Connection) {
        let link = &mut connection.link;
        link.armed_tick = 0;
        if link.deadline_tick == 0 {
            return;
        }
        if link.deadline_tick > self.now_ns / TICK_NS {
            // The deadline was postponed: the wheel gets the new one only now.
            self.wheel.schedule(link.id.slot, link.deadline_tick);
            link.armed_tick = link.deadline_tick;
            return;
        }
        link.deadline_tick = 0;
        match link.phase {
            Phase::Open => {
                self.call(connection, |protocol, io| protocol.timer(io));
                self.end_turn(connection);
            }
            Phase::Connecting => link.close(Closed::Unconnected(ConnectFailure::TimedOut)),
            Phase::Handshaking => {
                self.lp.member().counters.handshakes_failed.add(1);
                link.close(unshaken(link.origin, ConnectFailure::TimedOut));
            }
            Phase::Finishing => {}
            Phase::Lingering { .. } => link.close(Closed::Finished),
            Phase::Closed(_) => {}
        }
    }

    /// The precise timer of this connection expired.
    pub(crate) fn precise_due(&mut self, connection: &mut Connection) {
        connection.link.precise_timer = None;
        if connection.link.phase == Phase::Open {
            self.call(connection, |protocol, io| protocol.precise_timer(io));
            self.end_turn(connection);
        }
    }

    fn finish_connect(&mut self, connection: &mut Connection, readiness: Readiness) {
        let link = &mut connection.link;
        match link.transport.connected() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return link.close(Closed::Unconnected(ConnectFailure::of(&error))),
        }
        link.transport.note(readiness);
        if let Some(within) = link.transport.handshake_max() {
            return self.begin_handshake(connection, within);
        }
        self.be_connected(connection);
    }

    /// An outgoing connection is made, including its handshake if it has one.
    pub(crate) fn be_connected(&mut self, connection: &mut Connection) {
        let link = &mut connection.link;
        link.phase = Phase::Open;
        self.set_timer(link, None);
        // Time spent on making the connection does not count as the peer's delay.
        link.pace.end();
        self.lp.member().counters.connected.add(1);
        self.call(connection, |protocol, io| protocol.writable(io));
        if connection.link.transport.is_readable() && connection.link.takes_input() {
            self.input_turn(connection);
        } else {
            self.end_turn(connection);
        }
    }

    /// Reads once, unless a used-up budget left input behind, and calls the protocol if there is input or an end.
    fn input_turn(&mut self, connection: &mut Connection) {
        let turn = self.begin_input(&mut connection.link);
        self.take_turn(connection, turn);
    }

    /// Reads. If the read brought bytes or the end, the protocol is due.
    fn begin_input(&mut self, link: &mut Link) -> Turn {
        link.requests_left = link.traffic.requests_per_turn;
        let owed = std::mem::take(&mut link.wants_input);
        let left_behind = owed && !link.input.is_empty();
        let news = !left_behind && link.transport.is_readable() && !link.input_ended && self.read(link);
        Turn::Input { is_due: news || owed }
    }

    /// One read. `true`: the protocol is to be called.
    fn read(&mut self, link: &mut Link) -> bool {
        if link.input.has_storage() {
            link.input.make_room(link.traffic.input_bytes_max);
        } else {
            self.buffers.lend_input(link);
        }
        let room = link.input.room();
        let asked = room.len().min(link.traffic.read_bytes_per_turn);
        if asked == 0 {
            return false; // at input_bytes_max: the protocol must consume first
        }
        self.lp.member().counters.reads.add(1);
        match link.transport.read(&mut room[..asked]) {
            Ok(0) => {
                link.input_ended = true;
                true
            }
            Ok(taken) => {
                link.input.fill(taken);
                self.lp.member().counters.bytes_in.add(taken as u64);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => {
                link.fail(error);
                false
            }
        }
    }

    /// Calls the protocol; a panic closes this connection and goes no further.
    pub(crate) fn call(&mut self, connection: &mut Connection, call: impl FnOnce(&mut dyn Protocol, &mut Io<'_>)) {
        let Connection { protocol, link } = connection;
        if link.is_closed() {
            return;
        }
        let mut io = Io { link, core: self };
        // State that a panic may leave half-done belongs to the connection, which is closed, or is a lent buffer, which is
        // cleared when it comes back.
        if catch_unwind(AssertUnwindSafe(|| call(protocol.as_mut(), &mut io))).is_err() {
            self.lp.member().counters.panics.add(1);
            connection.link.close(Closed::Panicked);
        }
    }

    /// Writes the queue, advances the phase, takes lent buffers back, and lists a connection that has more to do.
    pub(crate) fn end_turn(&mut self, connection: &mut Connection) {
        let link = &mut connection.link;
        if !link.is_closed() {
            self.flush(link);
            if !link.has_unsent() {
                link.pace.end();
                self.output_drained(link);
            } else {
                self.watch_pace(link);
            }
        }
        self.buffers.take_back(link);
        self.count_held(link);
        if link.has_more() {
            self.lists.list(link);
        }
    }

    fn flush(&mut self, link: &mut Link) {
        if link.transport.has_pending()
            && let Err(error) = link.transport.send_pending()
        {
            return link.fail(error);
        }
        let queued = link.output.unsent();
        link.congested |= queued > link.traffic.output_high_water;
        if queued > 0 && link.transport.is_writable() && !link.output_ended {
            let last = link.phase == Phase::Finishing || link.end_output;
            let (then, writes) = (if last { Then::End } else { Then::Send }, &self.lp.member().counters.writes);
            match link.output.write_to(&mut link.transport, then, writes) {
                Ok(taken) => {
                    self.lp.member().counters.bytes_out.add(taken as u64);
                    link.sent += taken as u64;
                }
                Err(error) => return link.fail(error),
            }
        }
        if link.congested && link.output.unsent() <= link.traffic.output_low_water {
            link.congested = false;
            link.wants_writable = true;
        }
    }

    /// The queue is empty: shuts the write side, or begins to linger, if that was requested.
    fn output_drained(&mut self, link: &mut Link) {
        if link.phase == Phase::Finishing {
            self.begin_linger(link);
        } else if link.phase == Phase::Open && link.end_output {
            if !link.output_ended {
                link.output_ended = true;
                if let Err(error) = link.transport.end_output() {
                    return link.fail(error);
                }
            }
            // A protocol that has not been called with the end yet may have to pass it on.
            if link.input_ended && link.end_reported && !link.transport.has_pending() {
                link.close(Closed::Finished);
            }
        }
    }

    fn begin_linger(&mut self, link: &mut Link) {
        // Closing a socket that holds unread bytes, or that receives some later, sends a reset, which makes the peer's kernel
        // drop a reply that the peer has not read yet (RFC 9112, 9.6). So the write side is shut, and input is read until the
        // peer ends. If the peer has ended already, no more input can come.
        if link.input_ended {
            link.transport.announce_end();
            return link.close(Closed::Finished);
        }
        if !link.output_ended && link.transport.end_output().is_err() {
            return link.close(Closed::Finished);
        }
        link.output_ended = true;
        link.input.consume(link.input.len());
        link.phase = Phase::Lingering { left: link.traffic.linger_bytes_max };
        self.set_timer(link, Some(nanoseconds(link.traffic.linger_max)));
        if link.transport.fin_waits() {
            self.linger(link);
        }
    }

    /// Reads once and drops what it read.
    fn linger(&mut self, link: &mut Link) {
        let Phase::Lingering { left } = link.phase else { return };
        // Pending bytes can only be a close_notify by now.
        let _ = link.transport.send_pending();
        if !link.input.has_storage() {
            self.buffers.lend_input(link);
        }
        let room = link.input.room();
        let asked = room.len().min(left);
        match link.transport.read(&mut room[..asked]) {
            Ok(taken) if taken > 0 && taken < left => {
                link.phase = Phase::Lingering { left: left - taken };
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.register(link),
            // The peer ended or reset, or sends more than the linger limit.
            Ok(_) | Err(_) => link.close(Closed::Finished),
        }
        self.buffers.take_back(link);
        self.count_held(link);
        if link.has_more() {
            self.lists.list(link);
        }
    }
}
