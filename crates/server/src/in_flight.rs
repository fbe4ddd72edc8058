//! What waits and may not grow without bound: writes and queries that were handed over and are not answered yet, large
//! replies that their clients have not taken. Past the bound of its kind a request is told to come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts bytes under a bound. Cheap to clone.
#[derive(Clone)]
pub(crate) struct InFlight {
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
}

/// Some counted bytes; given back when dropped.
pub(crate) struct Taken {
    from: Arc<AtomicUsize>,
    bytes: usize,
}

impl InFlight {
    pub(crate) fn new(bytes_max: usize) -> InFlight {
        InFlight { bytes: Arc::default(), bytes_max }
    }

    /// Counts so many bytes, unless that would exceed the bound.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let taken = Taken { from: Arc::clone(&self.bytes), bytes };
        (before + bytes <= self.bytes_max).then_some(taken)
    }

    /// The bound.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Bytes counted now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.from.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod bound {
    use super::InFlight;

    #[test]
    fn what_exceeds_the_bound_is_refused_and_what_ends_makes_room() {
        let flight = InFlight::new(10);
        let first = flight.take(7);
        assert!(first.is_some());
        assert!(flight.take(4).is_none());
        assert_eq!(flight.bytes(), 7);
        drop(first);
        assert!(flight.take(10).is_some());
        assert_eq!(flight.bytes(), 0);
    }
}
