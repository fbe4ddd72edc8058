//! One connection of the load client.

use crate::replies::{Reply, next_reply};
use crate::requests::Requests;
use crate::tally::Tally;
use reactor::{Closed, Io, Protocol};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Requests of one connection that wait for their replies at most; what is due beyond it counts as failed.
const WAITING_MAX: usize = 4096;

/// When a connection sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) first_ns: u64,
    pub(crate) interval_ns: f64,
    pub(crate) end_ns: u64,
}

pub(crate) struct Client {
    plan: Plan,
    requests: Requests,
    /// Requests planned so far.
    planned: u64,
    /// Planned moments of the requests that are under way, in order.
    waiting: VecDeque<u64>,
    own: Tally,
    shared: Arc<Mutex<Tally>>,
}

impl Client {
    pub(crate) fn new(plan: Plan, requests: Requests, shared: Arc<Mutex<Tally>>) -> Client {
        Client { plan, requests, planned: 0, waiting: VecDeque::new(), own: Tally::new(), shared }
    }

    fn next_ns(&self) -> u64 {
        self.plan.first_ns + (self.planned as f64 * self.plan.interval_ns) as u64
    }

    /// Sends what is due and sets the timer for what is next.
    fn send_due(&mut self, io: &mut Io<'_>) {
        let now_ns = io.lp().precise_now_ns();
        while self.next_ns() <= now_ns && self.next_ns() < self.plan.end_ns {
            let due_ns = self.next_ns();
            self.planned += 1;
            if self.waiting.len() == WAITING_MAX {
                self.own.failed += 1;
                continue;
            }
            self.own.note_lateness(now_ns - due_ns);
            self.requests.append(io.output());
            self.waiting.push_back(due_ns);
        }
        let next_ns = self.next_ns();
        io.set_precise_timer((next_ns < self.plan.end_ns).then_some(next_ns));
    }
}

impl Protocol for Client {
    fn writable(&mut self, io: &mut Io<'_>) {
        self.send_due(io);
    }

    fn precise_timer(&mut self, io: &mut Io<'_>) {
        self.send_due(io);
    }

    fn input(&mut self, io: &mut Io<'_>) {
        let now_ns = io.lp().precise_now_ns();
        let mut consumed = 0;
        while let Reply::Whole { bytes, status } = next_reply(&io.input()[consumed..]) {
            consumed += bytes;
            match self.waiting.pop_front() {
                Some(due_ns) if (200..300).contains(&status) => self.own.note_latency(now_ns.saturating_sub(due_ns)),
                _ => self.own.failed += 1,
            }
        }
        io.consume(consumed);
        if io.input_ended() {
            io.abort();
        }
    }

    fn drain(&mut self, io: &mut Io<'_>) {
        io.abort();
    }

    fn closed(&mut self, _reason: Closed) {
        self.own.failed += self.waiting.len() as u64;
        if let Ok(mut shared) = self.shared.lock() {
            shared.add(&self.own);
        }
    }
}
