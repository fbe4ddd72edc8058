//! What a correlated query answered, remembered by what it was told of the row that asked.
//!
//! Two generations: what the older one has and is asked for again comes into the younger; when there is no room, the younger
//! becomes the older, and what was in that is forgotten. Where hardly any answer is asked for twice, none are kept.

use std::cell::Cell;
use std::rc::Rc;

use hashbrown::HashMap;

use super::relation::Relation;
use super::sort;
use super::value::OuterValue;

/// Of an execution's memory, what answers take.
const ANSWERS: (usize, usize) = (1, 4);
/// Bytes that an answer takes beside what it was asked with and its rows.
const ANSWER_OVERHEAD_BYTES: usize = 256;
/// After so many questions it is looked at whether answers are asked for again.
const TRIAL_QUESTIONS: u64 = 1024;
/// How many questions may go to one that was asked before, for that to be worth it.
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
    /// Answers are not asked for again.
    is_over: bool,
    key: Vec<u8>,
}

impl Answers {
    /// Questions, and those of them that had no answer yet.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.asked, self.asked - self.found)
    }

    /// The answer, if it is known. Otherwise the next call is [`Self::keep`] with the same question, or none.
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

    /// Remembers an answer. `taken`: the bytes of all answers of the execution, which has so much memory.
    pub(crate) fn keep(&mut self, outer: &[OuterValue<'_>], answer: &Rc<Relation>, taken: &Cell<usize>, memory: usize) {
        if !self.is_over && self.asked >= TRIAL_QUESTIONS && self.found * QUESTIONS_OF_A_REPEAT < self.asked {
            self.is_over = true;
            self.grow_old(taken);
            self.forget_old(taken);
        }
        if self.is_over {
            return;
        }
        // A query that asks itself has made another key meanwhile.
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

    /// The younger generation becomes the older.
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

    /// What tells questions apart: fields as they are, for `5` and `5.0` may have other answers.
    fn make_key(&mut self, outer: &[OuterValue<'_>]) {
        self.key.clear();
        outer.iter().for_each(|told| sort::push_field(told.field, &mut self.key));
    }
}

fn size(question: &[u8], answer: &Relation) -> usize {
    question.len() + answer.size() + ANSWER_OVERHEAD_BYTES
}
