//! The users of a scenario on one loop: one for each connection slot, in the closed model.

use super::feed::Fed;
use super::observing::Gathered;
use crate::ammo::Values;
use crate::scenario::{Outcome, Scenario, User, UserReply};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Number of kept texts on values that were not found.
const FAULTS_KEPT_MAX: usize = 10;

/// The number of a user: the slot number of the user's connection.
type SeatNo = u32;

/// Counts of passes through a scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Passes {
    pub(super) complete: u64,
    pub(super) given_up: u64,
    /// The first texts on values that were not found.
    pub(super) faults: Vec<String>,
}

impl Passes {
    pub(super) fn add(&mut self, other: &Passes) {
        self.complete += other.complete;
        self.given_up += other.given_up;
        let room = FAULTS_KEPT_MAX.saturating_sub(self.faults.len());
        self.faults.extend(other.faults.iter().take(room).cloned());
    }
}

/// The users of one loop, and the counts of their passes through the scenario.
pub(super) struct Users {
    scenario: Arc<Scenario>,
    users: Vec<Seat>,
    /// Users that think, by the moments at which they go on.
    thinking: BinaryHeap<Reverse<(u64, SeatNo)>>,
    values: Values,
    random: ChaCha8Rng,
    /// Number of the next pass of this loop's users; passes of all loops are numbered in turn.
    next_pass: u64,
    loops: u64,
    scratch: String,
    pub(super) passes: Passes,
}

/// A user, and when it goes on.
#[derive(Default)]
struct Seat {
    user: User,
    /// Zero: it does not think.
    until_ns: u64,
}

impl Users {
    pub(super) fn new(scenario: Arc<Scenario>, loop_index: usize, loops: usize) -> Users {
        let seed = scenario.seed_of(loop_index);
        Users {
            scenario,
            users: Vec::new(),
            thinking: BinaryHeap::new(),
            values: Values::new(seed),
            random: ChaCha8Rng::seed_from_u64(seed),
            next_pass: loop_index as u64 + 1,
            loops: loops as u64,
            scratch: String::new(),
            passes: Passes::default(),
        }
    }

    fn seat(&mut self, slot: SeatNo) -> &mut Seat {
        let index = slot as usize;
        if self.users.len() <= index {
            self.users.resize_with(index + 1, Seat::default);
        }
        &mut self.users[index]
    }

    /// Appends the next request of the user of this slot, unless the user thinks.
    pub(super) fn append_next(&mut self, slot: SeatNo, now_ns: u64, output: &mut Vec<u8>) -> Fed {
        if self.seat(slot).until_ns > now_ns {
            return Fed::Thinking;
        }
        let seat = &mut self.users[slot as usize];
        seat.until_ns = 0;
        let (next_pass, loops) = (&mut self.next_pass, self.loops);
        let number = || {
            let number = *next_pass;
            *next_pass += loops;
            number
        };
        Fed::One(seat.user.append_request(&self.scenario, number, &mut self.values, &mut self.scratch, output))
    }

    /// The reply to a user's request has arrived. False: a value to take was not in it, so it is wrong.
    pub(super) fn replied(
        &mut self,
        slot: SeatNo,
        is_right: bool,
        status: u16,
        reply: Option<&Gathered>,
        now_ns: u64,
    ) -> bool {
        let (head, body) = reply.map_or((&[][..], &[][..]), Gathered::parts);
        let reply = UserReply { is_right, status, head, body };
        let seat = &mut self.users[slot as usize];
        let random = &mut self.random;
        let outcome = seat.user.replied(&self.scenario, &reply, || random.random());
        let think = match outcome {
            Outcome::GoesOn(think) => think,
            Outcome::Completes(think) => {
                self.passes.complete += 1;
                think
            }
            Outcome::GivesUp(why) => {
                self.passes.given_up += 1;
                let is_whole = why.is_none();
                self.passes.faults.extend(why.filter(|_| self.passes.faults.len() < FAULTS_KEPT_MAX));
                return is_whole;
            }
        };
        if !think.is_zero() {
            seat.until_ns = now_ns.saturating_add(super::nanoseconds(think));
            self.thinking.push(Reverse((seat.until_ns, slot)));
        }
        true
    }

    /// The request of this slot's user had no reply.
    pub(super) fn lost(&mut self, slot: SeatNo) {
        self.passes.given_up += 1;
        self.seat(slot).user.begin_again();
    }

    /// The moment at which the first thinking user goes on.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.thinking.peek().map(|Reverse((until_ns, _))| *until_ns)
    }

    /// A user whose time to think is over.
    pub(super) fn next_rested(&mut self, now_ns: u64) -> Option<SeatNo> {
        self.next_due_ns().filter(|until_ns| *until_ns <= now_ns)?;
        self.thinking.pop().map(|Reverse((_, slot))| slot)
    }
}
