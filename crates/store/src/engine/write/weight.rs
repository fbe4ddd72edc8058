//! Bytes of all transactions that are prepared and not finished, with a bound. The queue's length alone is no bound on
//! memory, because a patch of a few bytes may prepare a large document.
//!
//! All submitting threads and the committers update the sum. So each transaction adds once, and a group's bytes are returned in
//! one step. With a reference-counted guard, the cache line would move between cores four times for each transaction.

use crate::base::sync::atomic::{AtomicUsize, Ordering};

/// The sum and its bound.
pub(crate) struct Weights {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Weights {
    pub(crate) fn new(bytes_max: usize) -> Weights {
        Weights { bytes: AtomicUsize::new(0), bytes_max }
    }

    /// Adds bytes until they are returned; false if that would exceed the bound. If nothing else is counted it always
    /// succeeds: a single transaction has a bound of its own.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before == 0 || before + bytes <= self.bytes_max;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Whether a quarter of the bound is free.
    pub(crate) fn has_room(&self) -> bool {
        self.bytes().saturating_mul(4) <= self.bytes_max.saturating_mul(3)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_bound_is_refused_unless_it_is_alone() {
        let weights = Weights::new(10);
        assert!(weights.take(12));
        assert!(!weights.take(1));
        weights.give_back(12);
        assert!(weights.take(7));
        assert!(!weights.take(4));
        assert_eq!((weights.bytes(), weights.has_room()), (7, true));
        assert!(weights.take(1) && !weights.has_room());
        weights.give_back(1);
        assert!(weights.take(3));
        weights.give_back(10);
        assert_eq!(weights.bytes(), 0);
    }
}
