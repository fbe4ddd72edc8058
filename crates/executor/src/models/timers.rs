//! Suspended tasks, ordered by the moments at which they are due.
//!
//! A binary heap. Entries are never cancelled, so neither keys nor a timer wheel are needed; its size is bounded by the
//! number of tasks that the event loops admit.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Instant;

/// Values and the moments at which they are due.
pub(super) struct Timers<T> {
    heap: BinaryHeap<Reverse<Timer<T>>>,
    sequence: u64,
}

struct Timer<T> {
    at: Instant,
    /// Entries of equal moments are due in the order of insertion.
    sequence: u64,
    value: T,
}

impl<T> Timer<T> {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

impl<T> PartialEq for Timer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Timer<T> {}

impl<T> PartialOrd for Timer<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Timer<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }
}

impl<T> Timers<T> {
    /// Adds a value that is due at `at`.
    pub(super) fn push(&mut self, at: Instant, value: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Timer { at, sequence: self.sequence, value }));
    }

    /// The moment at which the first value is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(first)| first.at)
    }

    /// Takes the first value, if it is due at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(first)| first.value)
    }

    /// Takes all values, in no particular order.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> {
        std::mem::take(&mut self.heap).into_iter().map(|Reverse(timer)| timer.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn values_are_due_in_the_order_of_their_moments_and_then_of_insertion() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let mut timers = Timers::default();
        for (ms, value) in [(5, 'd'), (1, 'a'), (3, 'b'), (3, 'c'), (9, 'e')] {
            timers.push(at(ms), value);
        }
        assert_eq!(timers.next(), Some(at(1)));
        assert_eq!(timers.pop_due(zero), None);
        let due: String = std::iter::from_fn(|| timers.pop_due(at(5))).collect();
        assert_eq!(due, "abcd");
        assert_eq!(timers.take_all().collect::<String>(), "e");
        assert_eq!(timers.next(), None);
    }
}
