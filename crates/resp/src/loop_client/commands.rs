//! Commands over a managed connection: in flight on the open connection, or waiting for the next one.

use super::append::append;
use super::failure::Failure;
use super::in_flight::{Entry, InFlight, Taker, Then, value_of};
use super::link::connect_if_wanted;
use super::managed_connection::{ManagedConnection, Shared, Work, deadline_ns};
use super::waiting::Waiting;
use crate::client::{Lost, NotSent};
use crate::codec::{ReplyKind, ReplyView};
use reactor::{ConnectionId, Neighbourhood};
use std::collections::VecDeque;
use std::time::Duration;

pub(super) struct Commands {
    in_flight: InFlight,
    waiting: Waiting,
    /// Why the last attempt to connect failed.
    refusal: Option<Failure>,
}

impl Commands {
    pub(super) fn new(queue_bytes_max: usize) -> Commands {
        Commands { in_flight: InFlight::default(), waiting: Waiting::new(queue_bytes_max), refusal: None }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.waiting.bytes()
    }
}

/// A request: its bytes, the number of its replies, and their receiver.
pub(super) struct Order<F> {
    pub(super) write: F,
    pub(super) replies: usize,
    pub(super) then: Then,
    pub(super) timeout: Duration,
}

impl ManagedConnection<Commands> {
    /// Sends on the open connection, or queues.
    ///
    /// # Errors
    /// A bound is reached, or the order is too large; nothing is sent then.
    #[inline]
    pub(super) fn take(
        managed: &Shared<Commands>,
        order: Order<impl FnOnce(&mut Vec<u8>)>,
        at: &mut Neighbourhood<'_>,
    ) -> Result<(), NotSent> {
        let deadline_ns = deadline_ns(at.lp().now_ns(), order.timeout);
        {
            let this = &mut *managed.borrow_mut();
            if let Some(id) = this.open_id() {
                let unsent = at.unsent(id);
                if let Some(output) = at.output(id) {
                    return this.send(order, deadline_ns, (unsent, output));
                }
            }
            this.queue(order, deadline_ns)?;
        }
        connect_if_wanted(managed, at);
        Ok(())
    }

    #[inline]
    fn send(
        &mut self,
        order: Order<impl FnOnce(&mut Vec<u8>)>,
        deadline_ns: u64,
        (unsent, output): (usize, &mut Vec<u8>),
    ) -> Result<(), NotSent> {
        let (settings, work) = (&self.settings, &mut self.work);
        if work.in_flight.len() >= settings.in_flight_max || unsent >= settings.unsent_bytes_max {
            return Err(NotSent::Congested);
        }
        append(output, settings.client.request_bytes_max, order.write)?;
        work.in_flight.push(Entry { then: order.then, replies_left: order.replies, deadline_ns });
        self.look_by(deadline_ns);
        Ok(())
    }

    #[cold]
    fn queue(&mut self, order: Order<impl FnOnce(&mut Vec<u8>)>, deadline_ns: u64) -> Result<(), NotSent> {
        let work = &mut self.work;
        if work.waiting.replies() >= self.settings.in_flight_max {
            return Err(NotSent::QueueFull);
        }
        // Commands without a reply have no waiting caller, hence no deadline.
        let deadline_ns = if order.then.is_nothing() { u64::MAX } else { deadline_ns };
        let entry = Entry { then: order.then, replies_left: order.replies, deadline_ns };
        work.waiting.push(order.write, entry, self.settings.client.request_bytes_max)?;
        self.look_by(deadline_ns);
        Ok(())
    }

    /// Sends the waiting commands.
    fn send_waiting(&mut self, output: &mut Vec<u8>, now_ns: u64) {
        let latest_ns = deadline_ns(now_ns, self.settings.client.timeout);
        for mut entry in self.work.waiting.send(output) {
            if entry.then.is_nothing() {
                entry.deadline_ns = latest_ns;
            }
            self.work.in_flight.push(entry);
        }
        self.look_by(self.work.in_flight.deadline_ns());
    }
}

impl Work for Commands {
    type Ended = (Then, Failure);

    fn wants_connection(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.len() == 0
    }

    fn deadline_ns(&self) -> u64 {
        self.waiting.deadline_ns().min(self.in_flight.deadline_ns())
    }

    fn opened(managed: &Shared<Commands>, id: ConnectionId, at: &mut Neighbourhood<'_>) {
        let now_ns = at.lp().now_ns();
        let this = &mut *managed.borrow_mut();
        // A later outage has a reason of its own.
        this.work.refusal = None;
        if let Some(output) = at.output(id) {
            this.send_waiting(output, now_ns);
        }
    }

    #[inline]
    fn reply(
        managed: &Shared<Commands>,
        kind: ReplyKind,
        reply: ReplyView<'_>,
        at: &mut Neighbourhood<'_>,
    ) -> Result<(), Failure> {
        if kind == ReplyKind::Push {
            return Ok(());
        }
        let taker = managed.borrow_mut().work.in_flight.take_reply(reply);
        // A reply that no command waits for could be taken for that of the next command.
        match taker.ok_or(Failure::Lost(Lost::Closed))? {
            Taker::Nothing => {}
            Taker::One(completion) => completion(value_of(reply), at),
            Taker::End(gather) => gather.end(None, at),
        }
        Ok(())
    }

    fn lost(&mut self, failure: &Failure, ended: &mut VecDeque<(Then, Failure)>) {
        let entries = self.in_flight.take().into_iter();
        ended.extend(entries.filter(|entry| !entry.then.is_nothing()).map(|entry| (entry.then, failure.clone())));
    }

    fn refused(&mut self, failure: &Failure, ended: &mut VecDeque<(Then, Failure)>) {
        self.refusal = Some(failure.clone());
        if failure.is_refusal() {
            let refused = self.waiting.take(|entry| !entry.then.is_nothing());
            ended.extend(refused.into_iter().map(|entry| (entry.then, failure.clone())));
        }
    }

    fn expire(&mut self, now_ns: u64, ended: &mut VecDeque<(Then, Failure)>) -> bool {
        let late = self.waiting.take(|entry| entry.deadline_ns <= now_ns);
        let refusal = self.refusal.clone().unwrap_or_else(Failure::timed_out);
        ended.extend(late.into_iter().map(|entry| (entry.then, refusal.clone())));
        if self.in_flight.deadline_ns() > now_ns {
            return false;
        }
        for entry in self.in_flight.take() {
            let lost = if entry.deadline_ns <= now_ns { Lost::TimedOut } else { Lost::Closed };
            ended.push_back((entry.then, lost.into()));
        }
        true
    }

    fn report(_managed: &Shared<Commands>, (then, failure): (Then, Failure), at: &mut Neighbourhood<'_>) {
        then.fail(&failure, at);
    }
}
