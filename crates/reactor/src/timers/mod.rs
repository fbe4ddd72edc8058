//! Precise timers: a heap of moments whose entries can be moved and removed, beside the wheel of coarse deadlines.
//!
//! Each entry's index in the heap is kept in a slot that the timer's [`TimerKey`] names, so a timer is moved or cancelled in
//! place, in O(log n). A cancelled timer leaves nothing behind: memory is bounded by the largest number of timers that waited at
//! once.
//!
//! Invariants, for each index `place` of `heap`:
//!
//! - `heap[place]` is not before its parent, `heap[(place - 1) / 2]`.
//! - `slots[heap[place].slot]` holds `place` and a `due`; every other slot is on the free list.

pub(crate) mod wheel;

use crate::fleet::Task;
use crate::protocol::ConnectionId;

/// Action of a timer.
pub(crate) enum Due {
    /// A closure of [`crate::Loop::after`] or [`crate::Loop::at`].
    Task(Task),
    /// The precise timer of a connection.
    Connection(ConnectionId),
    /// The timer of a loop's state: the `n`-th that was added.
    State(u32),
    /// The pause after a failed accept is over.
    AcceptAgain,
    /// Time to check the pace of peers.
    LookAtPaces,
    /// The drain deadline.
    DrainEnd,
}

/// Names one waiting timer. Stale once it has fired or was cancelled: then it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    slot: u32,
    sequence: u64,
}

/// An entry of the heap. Entries of one moment fire in the order of their creation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at_ns: u64,
    sequence: u64,
    slot: u32,
}

/// The part of a timer that does not move with the heap's entries.
#[derive(Default)]
struct Slot {
    /// Index in the heap.
    place: u32,
    /// `None` while the slot is free.
    due: Option<Due>,
}

/// The timers, ordered by moment.
#[derive(Default)]
pub(crate) struct Timers {
    heap: Vec<Entry>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    sequence: u64,
}

impl Timers {
    /// Adds a timer.
    pub(crate) fn push(&mut self, at_ns: u64, due: Due) -> TimerKey {
        self.sequence += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let (place, entry) = (self.heap.len(), Entry { at_ns, sequence: self.sequence, slot });
        self.slots[slot as usize].due = Some(due);
        self.heap.push(entry);
        self.put(place, entry);
        self.rise(place);
        TimerKey { slot, sequence: entry.sequence }
    }

    /// Sets, moves or clears the timer whose key the owner keeps in `timer`.
    pub(crate) fn set(&mut self, timer: &mut Option<TimerKey>, at_ns: Option<u64>, due: Due) {
        match (at_ns, *timer) {
            (Some(at_ns), Some(key)) if self.set_moment(key, at_ns) => {}
            (Some(at_ns), _) => *timer = Some(self.push(at_ns, due)),
            (None, Some(key)) => {
                self.cancel(key);
                *timer = None;
            }
            (None, None) => {}
        }
    }

    /// Moves a timer to another moment. `false`: it has fired or was cancelled.
    pub(crate) fn set_moment(&mut self, key: TimerKey, at_ns: u64) -> bool {
        let Some(place) = self.place_of(key) else { return false };
        self.heap[place].at_ns = at_ns;
        self.settle(place);
        true
    }

    /// Removes a timer; no effect if it has fired or was cancelled.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        if let Some(place) = self.place_of(key) {
            self.take_out(place);
        }
    }

    /// The earliest moment; `u64::MAX` if there is none.
    pub(crate) fn next_ns(&self) -> u64 {
        self.heap.first().map_or(u64::MAX, |entry| entry.at_ns)
    }

    /// Removes the first entry whose moment has come.
    pub(crate) fn pop(&mut self, now_ns: u64) -> Option<Due> {
        if self.next_ns() > now_ns {
            return None;
        }
        self.take_out(0)
    }

    /// Number of waiting timers.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    fn place_of(&self, key: TimerKey) -> Option<usize> {
        let slot = self.slots.get(key.slot as usize).filter(|slot| slot.due.is_some())?;
        let place = slot.place as usize;
        (self.heap[place].sequence == key.sequence).then_some(place)
    }

    fn take_out(&mut self, place: usize) -> Option<Due> {
        let taken = self.heap.swap_remove(place);
        if place < self.heap.len() {
            self.put(place, self.heap[place]);
            self.settle(place);
        }
        self.free.push(taken.slot);
        self.slots[taken.slot as usize].due.take()
    }

    /// Restores the heap order around an entry whose moment has changed.
    fn settle(&mut self, place: usize) {
        if self.rise(place) == place {
            self.sink(place);
        }
    }

    /// Moves an entry towards the front as far as it belongs; returns its new index.
    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(mut first) = self.heap.get(left).map(|_| left) else { return };
            if self.heap.get(right).is_some_and(|entry| *entry < self.heap[left]) {
                first = right;
            }
            if self.heap[place] <= self.heap[first] {
                return;
            }
            self.swap(place, first);
            place = first;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        let (a, b) = (self.heap[one], self.heap[other]);
        self.put(one, b);
        self.put(other, a);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.slots[entry.slot as usize].place = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn id(slot: u32) -> ConnectionId {
        ConnectionId { loop_index: 0, slot, generation: 1 }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Move(usize, u64),
        Cancel(usize),
        Pop(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..50_u64).prop_map(Step::Push),
            (0..40_usize, 0..50_u64).prop_map(|(nth, at_ns)| Step::Move(nth, at_ns)),
            (0..40_usize).prop_map(Step::Cancel),
            (0..50_u64).prop_map(Step::Pop),
        ];
        prop::collection::vec(step, 1..200)
    }

    /// Compares with a map in the order of moments.
    fn check_against_map(steps: &[Step]) {
        let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
        let mut keys: Vec<(TimerKey, u64)> = Vec::new();
        for step in steps {
            match *step {
                Step::Push(at_ns) => {
                    let key = timers.push(at_ns, Due::Connection(id(keys.len() as u32)));
                    model.insert((at_ns, key.sequence), keys.len() as u32);
                    keys.push((key, at_ns));
                }
                Step::Move(nth, at_ns) => {
                    let Some((key, before_ns)) = keys.get_mut(nth) else { continue };
                    let there = model.remove(&(*before_ns, key.sequence));
                    assert_eq!(timers.set_moment(*key, at_ns), there.is_some());
                    if let Some(number) = there {
                        model.insert((at_ns, key.sequence), number);
                        *before_ns = at_ns;
                    }
                }
                Step::Cancel(nth) => {
                    let Some((key, at_ns)) = keys.get(nth) else { continue };
                    timers.cancel(*key);
                    model.remove(&(*at_ns, key.sequence));
                }
                Step::Pop(now_ns) => {
                    let first = model.first_key_value().map(|(moment, number)| (*moment, *number));
                    let first = first.filter(|((at_ns, _), _)| *at_ns <= now_ns);
                    let popped = match timers.pop(now_ns) {
                        Some(Due::Connection(id)) => Some(id.slot),
                        _ => None,
                    };
                    assert_eq!(popped, first.map(|(_, number)| number));
                    first.map(|(moment, _)| model.remove(&moment));
                }
            }
            assert_eq!(timers.len(), model.len());
            assert_eq!(timers.next_ns(), model.first_key_value().map_or(u64::MAX, |((at_ns, _), _)| *at_ns));
        }
    }

    proptest! {
        #[test]
        fn timers_fire_in_order_whatever_is_moved_or_cancelled(steps in steps()) {
            check_against_map(&steps);
        }
    }

    #[test]
    fn ten_million_pairs_of_arm_and_cancel_leave_nothing_behind() {
        let mut timers = Timers::default();
        let standing: Vec<TimerKey> =
            (0..1000).map(|slot| timers.push(u64::from(slot) * 7919 % 1000, Due::Connection(id(slot)))).collect();
        for moment in 0..10_000_000_u64 {
            let key = timers.push(moment % 4096, Due::Connection(id(7)));
            timers.cancel(key);
        }
        assert_eq!(timers.len(), standing.len());
        assert!(timers.slots.len() <= standing.len() + 1, "{} slots", timers.slots.len());
        standing.into_iter().for_each(|key| timers.cancel(key));
        assert_eq!((timers.len(), timers.free.len()), (0, timers.slots.len()));
    }
}
