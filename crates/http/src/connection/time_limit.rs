//! What a connection waits for, and how it ends when its client is late, when others need its place, and when the loop drains.
//! The moments are computed in `deadline`.

use reactor::Io;

use super::{Connection, Stop};
use crate::connection::deadline::Wait;
use crate::connection::ring::Held;
use crate::parsing::refusal::Refusal;
use crate::service::Service;

/// How long a connection has a reserved place for certain: to send its request, or until a place is free.
const RESERVED_NS: u64 = 100_000_000;

impl<S: Service> Connection<S> {
    #[inline]
    pub(super) fn note_wait(&mut self, io: &mut Io<'_>, stop: Stop, begun: bool) {
        let wait = if stop == Stop::Blocked && self.admission.is_reserved() && !self.last {
            // The time for a head counts from accept, and so does the time for which the request waits for a place.
            Wait::Head
        } else if self.last || stop != Stop::Starved {
            Wait::Nothing
        } else if self.reader.in_body() {
            Wait::Body
        } else if begun {
            Wait::Head
        } else if !self.ring.is_empty() {
            Wait::Nothing
        } else if self.clock.wait() == Wait::First {
            Wait::First
        } else {
            Wait::Idle
        };
        let now_ns = self.worker().lp.now_ns();
        let deadlines = &self.shared.worker.settings.deadlines;
        self.clock.note(wait, self.reader.body_bytes(), deadlines, now_ns);
        if wait == Wait::Body {
            io.gather(self.reader.gathered_bytes(), self.clock.since_ns());
        } else if self.reader.is_in_pieces() {
            // The sink has no room: that is not the client's delay.
            io.gather(self.reader.gathered_bytes(), now_ns);
        }
        let due_ns = self.due_ns();
        self.arm(io, due_ns, now_ns);
    }

    /// When the connection's current wait ends.
    #[inline]
    pub(super) fn due_ns(&mut self) -> u64 {
        let until_ns =
            if self.draining { self.reader.pieces().map_or(u64::MAX, |pieces| pieces.until_ns) } else { u64::MAX };
        let deadlines = &self.shared.worker.settings.deadlines;
        let due_ns = self.clock.due_ns(deadlines).min(until_ns);
        if self.admission.is_reserved() { due_ns.min(self.clock.leave_ns(deadlines)) } else { due_ns }
    }

    #[inline]
    pub(super) fn arm(&mut self, io: &mut Io<'_>, due_ns: u64, now_ns: u64) {
        if due_ns != u64::MAX
            && let Some(after) = self.clock.arm(due_ns, now_ns)
        {
            io.set_timer(Some(after));
        }
    }

    /// The client has exceeded its deadline.
    fn overdue(&mut self, io: &mut Io<'_>) {
        self.worker().metrics.timed_out.add(1);
        self.give_up(io);
    }

    /// Stops waiting for the client.
    fn give_up(&mut self, io: &mut Io<'_>) {
        match self.clock.wait() {
            Wait::Head | Wait::Body if self.admission.is_reserved() => self.refuse(io, Refusal::NoPlace),
            Wait::Head => self.refuse(io, Refusal::HeadDeadline),
            Wait::Body => self.refuse(io, Refusal::BodyDeadline),
            Wait::First | Wait::Idle | Wait::Nothing => self.last = true,
        }
        self.end_turn(io, Stop::Full);
    }

    /// Other clients wait for a connection slot: this connection is closed if it has waited for its client long enough, or if its
    /// address has more than its share. `is_full`: no other client can even connect.
    pub(super) fn leave(&mut self, io: &mut Io<'_>, is_full: bool) {
        if self.admission.is_reserved() {
            let waits_ns = self.worker().lp.now_ns().saturating_sub(self.clock.since_ns());
            if is_full && !self.finished && !self.last && waits_ns >= RESERVED_NS {
                self.make_place(io);
            }
            return;
        }
        if self.admission.has_to_leave() {
            return self.leave_for_others(io);
        }
        let (worker, deadlines) = (&self.shared.worker, &self.shared.worker.settings.deadlines);
        if io.unsent() > 0 {
            if io.behind() > deadlines.crowded {
                worker.metrics.made_room.add(1);
                self.abort(io);
            }
            return;
        }
        if !self.finished && !self.last && worker.lp.now_ns() >= self.clock.leave_ns(deadlines) {
            self.make_place(io);
        }
    }

    /// Its address has more than its share. A connection that works for its client has a second for that: another one of the
    /// address may be idle.
    fn leave_for_others(&mut self, io: &mut Io<'_>) {
        let (worker, now_ns) = (&self.shared.worker, self.shared.worker.lp.now_ns());
        match self.clock.wait() {
            Wait::Head | Wait::Body if io.unsent() == 0 && self.ring.is_empty() => return self.make_place(io),
            Wait::First | Wait::Idle if io.unsent() == 0 => {
                worker.metrics.made_room.add(1);
                return self.abort(io);
            }
            _ => {}
        }
        let crowded_ns = u64::try_from(worker.settings.deadlines.crowded.as_nanos()).unwrap_or(u64::MAX);
        if self.asked_ns == 0 {
            self.asked_ns = now_ns;
        }
        if now_ns.saturating_sub(self.asked_ns) < crowded_ns {
            return self.admission.stays();
        }
        worker.metrics.made_room.add(1);
        self.abort(io);
    }

    fn make_place(&mut self, io: &mut Io<'_>) {
        let worker = &self.shared.worker;
        worker.metrics.made_room.add(1);
        worker.tick();
        self.give_up(io);
    }

    /// The timer has expired: the client is late, or the timer waits for the rest of its time.
    pub(super) fn check_deadline(&mut self, io: &mut Io<'_>) {
        self.clock.ran_out();
        self.worker().tick();
        let now_ns = self.worker().lp.now_ns();
        if self.draining && self.reader.pieces().is_some_and(|pieces| now_ns >= pieces.until_ns) {
            self.refuse(io, Refusal::Stopping);
            return self.end_turn(io, Stop::Full);
        }
        let due_ns = self.due_ns();
        let deadlines = &self.shared.worker.settings.deadlines;
        // A client that is still receiving its reply is not idle; the reactor checks its pace.
        let taking = io.unsent() > 0 && !matches!(self.clock.wait(), Wait::Head | Wait::Body);
        if now_ns >= due_ns && !taking {
            return self.overdue(io);
        }
        let due_ns = if taking {
            self.clock.restart(now_ns, deadlines);
            self.due_ns()
        } else {
            due_ns
        };
        self.arm(io, due_ns, now_ns);
    }

    /// The loop drains: the connection ends with what has arrived, or gets a short time for its first request.
    pub(super) fn begin_drain(&mut self, io: &mut Io<'_>) {
        self.draining = true;
        let now_ns = self.worker().lp.now_ns();
        let begun = self.reader.in_body() || !io.input().is_empty();
        if begun {
            let until_ns = self.drain_until_ns();
            if let Some(pieces) = self.reader.pieces() {
                // The body may have any length. It gets its time to end; after that the client is answered.
                pieces.until_ns = until_ns;
                self.arm(io, until_ns, now_ns);
            }
            return;
        }
        if self.clock.wait() == Wait::First {
            // Accepted just now, perhaps with its request in flight: closing would lose a reply.
            let deadlines = &self.shared.worker.settings.deadlines;
            self.clock.shorten(now_ns, deadlines.drain_grace, deadlines);
            return self.note_wait(io, Stop::Starved, false);
        }
        if let Some(slot) = self.ring.back_mut() {
            slot.shape.persistent &= !matches!(slot.held, Held::Nothing | Held::Answer(_));
        }
        self.last = true;
        self.turn(io);
    }
}
