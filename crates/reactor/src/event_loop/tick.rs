//! The event loop's work: one tick after another, on one thread.
//!
//! A tick does, in this order:
//!
//! 1. wait for events (without sleeping while connections are on a ready list), and read the clock;
//! 2. turns of connections with events, a few of them reading before the first is answered (`batch`);
//! 3. turns of the ready list, then of the list of heavy connections;
//! 4. the loop's states, whose work stands beside connections (`turns_ended`);
//! 5. timers, completions, mail;
//! 6. listeners that have more to accept;
//! 7. the states again (`before_wait`);
//! 8. one write of each connection that mail, neighbours or states have touched.
//!
//! Each part is bounded, so that none delays the others for long. The turns are bounded in time too (`work_time`): the loop then polls
//! the kernel first, and so learns of new events and of peers that are gone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::event_loop::EventLoop;
use crate::event_loop::batch::Batch;
use crate::event_loop::lists::Lists;
use crate::event_loop::turn::Turn;
use crate::fleet::{Mail, Open};
use crate::kernel::{self, Events, Token};
use crate::protocol::{Closed, ConnectionId, Message};
use crate::settings::Outgoing;
use crate::timers::Due;

/// Time limit of reading mail in a tick, and of writing its output.
const MAIL_NS_MAX: u64 = 250_000;
/// Messages between two reads of the clock, unless they are expensive.
const MAIL_LOOK_EVERY: u32 = 4;
/// Messages that take longer each are expensive: the clock is read after each.
const EXPENSIVE_MAIL_NS: u64 = 25_000;

/// Time used by mail in a tick.
struct MailTime {
    until_ns: u64,
    looked_ns: u64,
    pieces: u32,
    are_expensive: bool,
}

impl MailTime {
    fn begin() -> MailTime {
        let now_ns = kernel::now_ns();
        MailTime { until_ns: now_ns + MAIL_NS_MAX, looked_ns: now_ns, pieces: 0, are_expensive: false }
    }

    /// A message was read, or a touched connection written. `true`: the rest waits for the next tick.
    fn is_over(&mut self) -> bool {
        self.pieces += 1;
        if self.pieces < MAIL_LOOK_EVERY && !self.are_expensive {
            return false;
        }
        let (now_ns, pieces) = (kernel::now_ns(), std::mem::take(&mut self.pieces));
        self.are_expensive = now_ns - self.looked_ns > EXPENSIVE_MAIL_NS * u64::from(pieces);
        self.looked_ns = now_ns;
        now_ns >= self.until_ns
    }
}

impl EventLoop {
    /// Runs until drained.
    pub(crate) fn run(mut self) -> std::io::Result<()> {
        let mut events = Events::with_room(self.core.settings.events_per_tick);
        // A connection handed over at the last moment is in the mailbox, which then does not close.
        while !(self.is_drained() && self.unread.is_empty() && self.core.lp.member().mailbox.try_close()) {
            self.wait(&mut events)?;
            self.tick(&events);
        }
        Ok(())
    }

    fn wait(&mut self, events: &mut Events) -> std::io::Result<()> {
        let next_ns = self.core.wheel.next_ns().min(self.core.timers.next_ns());
        self.alarm.wake_by(next_ns, self.core.now_ns)?;
        let polls_again = self.core.lp.member().take_poll_again();
        let has_work = polls_again || !self.unread.is_empty() || self.core.lists.have_some();
        let idle = !has_work && !self.listeners.have_more();
        let sleep = idle && self.core.lp.member().mailbox.may_sleep();
        let waited = self.core.poller.wait(events, sleep);
        if sleep {
            self.core.lp.member().mailbox.awake();
        }
        self.core.now_ns = kernel::now_ns();
        self.core.lp.member().set_now(self.core.now_ns);
        waited
    }

    fn tick(&mut self, events: &Events) {
        self.core.time.begin_tick(self.core.now_ns);
        // Connections listed from here on wait for the next tick: a connection has one turn in a tick.
        let mut going_on = std::mem::replace(&mut self.core.lists.ready, std::mem::take(&mut self.going_on));
        let heavy = std::mem::replace(&mut self.core.lists.heavy, std::mem::take(&mut self.heavy_going_on));
        let mut batch = Batch::default();
        let mut events_count = 0;
        for (token, readiness) in events.iter() {
            events_count += 1;
            if token.generation == 0 {
                self.own_event(token);
            } else if let Some(mut connection) = self.core.connections.lend(token.slot, token.generation) {
                let turn = self.core.event(&mut connection, readiness);
                self.core.connections.take_back(connection);
                if batch.push(token, turn, None) || self.core.time.requests_are_expensive() {
                    self.take_turns(&mut batch);
                }
            }
        }
        self.take_turns(&mut batch);
        let is_pressed = std::mem::take(&mut self.core.is_pressed);
        if is_pressed {
            // Connections with events have had no turn: they are on the ready list.
            let waited = going_on.len();
            going_on.append(&mut self.core.lists.ready);
            self.fairness.order(&mut going_on, waited, &mut self.core.connections, self.core.now_ns);
        }
        self.going_on = self.go_on(going_on, is_pressed, |lists| &mut lists.ready);
        self.core.is_pressed = self.core.time.tick_is_over() && !self.core.lists.ready.is_empty();
        self.heavy_going_on = self.go_on(heavy, is_pressed, |lists| &mut lists.heavy);
        self.call_states(|state, at| state.turns_ended(at));
        self.fire_timers();
        // Before the mail: completions may be answered by mail.
        self.hooks.call_completed(&mut self.core);
        if !self.is_behind && (self.core.lp.member().mailbox.has_mail() || !self.unread.is_empty()) {
            self.read_mail();
        }
        if self.listeners.have_more() {
            self.accept();
        }
        self.call_states(|state, at| state.before_wait(at));
        if !self.core.lists.touched.is_empty() {
            self.end_touched_turns();
        }
        let counters = &self.core.lp.member().counters;
        counters.ticks.add(1);
        counters.events.add(events_count);
        counters.timers.set(self.core.timers.len() as u64);
    }

    /// Handles an event of one of the loop's own descriptors. Events of the waker and the alarm need no more work.
    fn own_event(&mut self, token: Token) {
        if !self.hooks.event(token) {
            self.listeners.event(token);
        }
    }

    /// Runs turns of listed connections: at least one, and until the tick is over. The others are put back first in their list.
    /// Returns the emptied storage. A connection of the heavy list ends its batch, and so does one that only goes on with a long write;
    /// while requests are expensive each has its turn alone.
    fn go_on(
        &mut self,
        mut going_on: Vec<ConnectionId>,
        is_pressed: bool,
        list: fn(&mut Lists) -> &mut Vec<ConnectionId>,
    ) -> Vec<ConnectionId> {
        let (mut batch, mut done) = (Batch::of_list(), 0);
        while let Some(id) = going_on.get(done).copied().filter(|_| done == 0 || !self.core.time.tick_is_over()) {
            done += 1;
            let Some(mut connection) = self.core.connections.lend(id.slot, id.generation) else { continue };
            let is_expensive = connection.link.is_heavy || self.core.time.requests_are_expensive();
            let peer = is_pressed.then(|| connection.link.peer.ip());
            let turn = self.core.go_on(&mut connection.link);
            let ends_batch = is_expensive || turn == Turn::Output && connection.link.has_unsent();
            self.core.connections.take_back(connection);
            if batch.push(Token { slot: id.slot, generation: id.generation }, turn, peer) || ends_batch {
                self.take_turns(&mut batch);
            }
        }
        self.take_turns(&mut batch);
        going_on.splice(..done, self.core.lists.put_off.drain(..));
        if !going_on.is_empty() {
            let list = list(&mut self.core.lists);
            going_on.append(list);
            std::mem::swap(list, &mut going_on);
        }
        going_on
    }

    fn fire_timers(&mut self) {
        if self.core.wheel.next_ns() <= self.core.now_ns {
            let mut due = std::mem::take(&mut self.due);
            self.core.wheel.advance(self.core.now_ns, &mut due);
            for slot in due.drain(..) {
                if let Some(connection) = self.core.connections.at(slot) {
                    let id = connection.link.id;
                    self.turn(id, |core, connection| core.wheel_due(connection));
                }
            }
            self.due = due;
        }
        while let Some(due) = self.core.timers.pop(self.core.now_ns) {
            match due {
                Due::Task(task) => self.run_task(task),
                Due::Connection(id) => self.turn(id, |core, connection| core.precise_due(connection)),
                Due::State(index) => self.hooks.call_timer(index, &mut self.core),
                Due::AcceptAgain => self.listeners.pause_is_over(),
                Due::LookAtPaces => self.look_at_paces(),
                Due::DrainEnd => self.cut_all(),
            }
        }
    }

    /// Reads mail in its order. Mail for which there is no time waits for the next tick, before newer mail.
    fn read_mail(&mut self) {
        if self.unread.is_empty() {
            let mut mail = std::mem::take(&mut self.mail);
            self.core.lp.member().mailbox.take(&mut mail);
            self.core.lp.member().counters.mailbox_messages.add(mail.len() as u64);
            self.unread.extend(mail.drain(..));
            self.mail = mail;
        }
        self.read_unread();
    }

    fn read_unread(&mut self) {
        let mut time = MailTime::begin();
        while let Some(one) = self.unread.pop_front() {
            match one {
                Mail::Message { to, message } => self.deliver(to, message),
                Mail::Task(task) => self.run_task(task),
                Mail::At { at_ns, task } => {
                    self.core.timers.push(at_ns, Due::Task(task));
                }
                Mail::Connect { to, open } => self.connect(&to, open),
                Mail::Accepted { listener, stream, peer } => self.adopt(listener, stream, peer),
                Mail::Drain { deadline_ns } => self.begin_drain(deadline_ns),
            }
            if time.is_over() {
                break;
            }
        }
    }

    /// Ends the turns of the touched connections: each writes once. If there is no time for all, the rest follows in the next
    /// tick, before more mail is read.
    fn end_touched_turns(&mut self) {
        let mut time = MailTime::begin();
        let mut touched = std::mem::take(&mut self.core.lists.touched);
        let mut done = 0;
        while let Some(id) = touched.get(done).copied() {
            self.turn(id, |core, connection| {
                connection.link.touched = false;
                core.end_turn(connection);
            });
            done += 1;
            if time.is_over() {
                break;
            }
        }
        touched.drain(..done);
        self.is_behind = !touched.is_empty();
        touched.append(&mut self.core.lists.touched);
        self.core.lists.touched = touched;
    }

    fn deliver(&mut self, to: ConnectionId, message: Message) {
        let Some(mut connection) = self.core.connections.lend(to.slot, to.generation) else {
            self.core.lp.member().counters.stale_messages.add(1);
            return;
        };
        self.core.deliver(&mut connection, message);
        self.core.lists.touch(&mut connection.link);
        let closed = connection.link.is_closed();
        self.core.connections.take_back(connection);
        self.settle(to.slot, closed);
    }

    fn connect(&mut self, to: &Outgoing, open: Open) {
        let mut open = Some(open);
        let begun = self.core.begin_connect(to, |id, lp| match open.take() {
            Some(open) => open(id, lp),
            None => unreachable!("begin_connect calls it once"),
        });
        if let (Err(failure), Some(open)) = (begun, open) {
            tracing::debug!(to = %to.to, %failure, "outgoing connection not begun");
            let reason = Closed::Unconnected(failure);
            // Its protocol gets the failure as any other; the id was never used.
            let nobody = ConnectionId { loop_index: self.core.lp.index() as u16, slot: u32::MAX, generation: 0 };
            let failed = catch_unwind(AssertUnwindSafe(|| open(nobody, &self.core.lp).closed(reason)));
            self.core.lp.member().counters.count_closed(reason);
            self.core.lp.member().counters.panics.add(u64::from(failed.is_err()));
        }
    }
}
