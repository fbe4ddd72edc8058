//! What waiting transactions hold: the bytes of all that are prepared and not finished, under a bound. The queue's length
//! alone would not do: a patch of a few bytes may prepare a large document.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum, and its bound.
pub(crate) struct Weights {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// One transaction's part; given back when dropped.
pub(crate) struct Weight {
    of: Option<Arc<AtomicUsize>>,
    bytes: usize,
}

impl Weights {
    pub(crate) fn new(bytes_max: usize) -> Weights {
        Weights { bytes: Arc::default(), bytes_max }
    }

    /// Counts so many bytes, unless that exceeds the bound. One that is alone always goes: it has a bound of its own.
    pub(crate) fn take(&self, bytes: usize) -> Option<Weight> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let weight = Weight { of: Some(Arc::clone(&self.bytes)), bytes };
        (before == 0 || before + bytes <= self.bytes_max).then_some(weight)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Weight {
    /// Of one whose caller waits for it, and so can have no second one.
    pub(crate) fn none() -> Weight {
        Weight { of: None, bytes: 0 }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            of.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_exceeds_the_bound_is_refused_unless_it_is_alone() {
        let weights = Weights::new(10);
        let large = weights.take(12).unwrap();
        assert!(weights.take(1).is_none());
        drop(large);
        let first = weights.take(7).unwrap();
        assert!(weights.take(4).is_none());
        assert_eq!(weights.bytes(), 7);
        let second = weights.take(3).unwrap();
        drop((first, second, Weight::none()));
        assert_eq!(weights.bytes(), 0);
    }
}
