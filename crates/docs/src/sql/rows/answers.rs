//! Cache of a correlated subquery's results, keyed by the values of the outer row.
//!
//! There are two generations. A result of the older one that is used again moves to the younger. If there is no room, the
//! younger becomes the older, and the previous older one is dropped. If hardly any result is used twice, caching stops.

use std::cell::Cell;
use std::rc::Rc;

use hashbrown::HashMap;

use super::relation::Relation;
use crate::sql::values::{OuterValue, sort};

/// The share of an execution's memory for cached results, as a fraction.
const ANSWERS: (usize, usize) = (1, 4);
/// Estimate of a result's bytes besides its key and its rows.
const ANSWER_OVERHEAD_BYTES: usize = 256;
/// After this many lookups the hit rate is checked.
const TRIAL_QUESTIONS: u64 = 1024;
/// Caching stops if fewer than one in this many lookups is a hit.
const QUESTIONS_OF_A_REPEAT: u64 = 16;

type Generation = HashMap<Box<[u8]>, Rc<Relation>>;

#[derive(Default)]
pub(crate) struct Answers {
    young: Generation,
    old: Generation,
    young_bytes: usize,
    old_bytes: usize,
    asked: u64,
    found: u64,
    /// Caching has stopped.
    is_over: bool,
    key: Vec<u8>,
}

impl Answers {
    /// The numbers of lookups and of misses.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.asked, self.asked - self.found)
    }

    /// The cached result. After a miss, the next call is [`Self::keep`] for the same outer row, or none.
    pub(crate) fn find(&mut self, outer: &[OuterValue<'_>]) -> Option<Rc<Relation>> {
        self.asked += 1;
        if self.is_over {
            return None;
        }
        self.make_key(outer);
        if let Some(answer) = self.young.get(&self.key[..]) {
            self.found += 1;
            return Some(Rc::clone(answer));
        }
        let (question, answer) = self.old.remove_entry(&self.key[..])?;
        self.found += 1;
        let bytes = size(&question, &answer);
        (self.old_bytes, self.young_bytes) = (self.old_bytes - bytes, self.young_bytes + bytes);
        self.young.insert(question, Rc::clone(&answer));
        Some(answer)
    }

    /// Caches a result. `taken`: bytes of all cached results of the execution, whose memory is `memory`.
    pub(crate) fn keep(&mut self, outer: &[OuterValue<'_>], answer: &Rc<Relation>, taken: &Cell<usize>, memory: usize) {
        if !self.is_over && self.asked >= TRIAL_QUESTIONS && self.found * QUESTIONS_OF_A_REPEAT < self.asked {
            self.is_over = true;
            self.grow_old(taken);
            self.forget_old(taken);
        }
        if self.is_over {
            return;
        }
        // A recursive use of the same query may have changed the key meanwhile.
        self.make_key(outer);
        let (bytes, room) = (size(&self.key, answer), memory / ANSWERS.1 * ANSWERS.0);
        if bytes > room / 2 {
            return;
        }
        if taken.get() + bytes > room || self.young_bytes + bytes > room / 2 {
            self.grow_old(taken);
        }
        if taken.get() + bytes > room {
            self.forget_old(taken);
        }
        if taken.get() + bytes <= room {
            taken.set(taken.get() + bytes);
            self.young_bytes += bytes;
            self.young.insert(self.key.as_slice().into(), Rc::clone(answer));
        }
    }

    /// The younger generation becomes the older one.
    fn grow_old(&mut self, taken: &Cell<usize>) {
        self.forget_old(taken);
        std::mem::swap(&mut self.young, &mut self.old);
        (self.young_bytes, self.old_bytes) = (0, self.young_bytes);
    }

    fn forget_old(&mut self, taken: &Cell<usize>) {
        taken.set(taken.get() - self.old_bytes);
        self.old.clear();
        self.old_bytes = 0;
    }

    /// The key: fields as they are stored, because `5` and `5.0` may have different results.
    fn make_key(&mut self, outer: &[OuterValue<'_>]) {
        self.key.clear();
        outer.iter().for_each(|value| sort::push_field(value.field, &mut self.key));
    }
}

fn size(question: &[u8], answer: &Relation) -> usize {
    question.len() + answer.size() + ANSWER_OVERHEAD_BYTES
}
