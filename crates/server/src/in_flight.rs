//! What waits and may not grow without bound: writes and queries that were handed over and are not answered yet, large
//! replies that their clients have not taken. Past the bound of its kind a request is told to come again.

use crate::failure::ErrorRules;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts bytes under a bound. Cheap to clone.
#[derive(Clone)]
pub(crate) struct InFlight {
    shared: Arc<Shared>,
}

/// The count, and what those who take part in it need when they end: whatever holds some bytes then needs no second
/// reference with a count of its own, which every loop and every committer would pass between their cores.
struct Shared {
    bytes: AtomicUsize,
    bytes_max: usize,
    errors: ErrorRules,
}

/// Some counted bytes; given back when dropped.
pub(crate) struct Taken {
    from: Arc<Shared>,
    bytes: usize,
}

impl InFlight {
    pub(crate) fn new(bytes_max: usize, errors: ErrorRules) -> InFlight {
        InFlight { shared: Arc::new(Shared { bytes: AtomicUsize::new(0), bytes_max, errors }) }
    }

    /// Counts so many bytes, unless that would exceed the bound.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        let before = self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > self.shared.bytes_max {
            self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return None;
        }
        Some(Taken { from: Arc::clone(&self.shared), bytes })
    }

    /// The bound.
    pub(crate) fn bytes_max(&self) -> usize {
        self.shared.bytes_max
    }

    /// Bytes counted now.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl Taken {
    /// How failures are answered.
    pub(crate) fn errors(&self) -> &ErrorRules {
        &self.from.errors
    }

    /// Gives the bytes back before the rest of this ends.
    pub(crate) fn give_back(&mut self) {
        self.from.bytes.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.give_back();
        }
    }
}

#[cfg(test)]
mod bound {
    use super::InFlight;
    use crate::failure::ErrorRules;

    #[test]
    fn what_exceeds_the_bound_is_refused_and_what_ends_makes_room() {
        let flight = InFlight::new(10, ErrorRules::default());
        let first = flight.take(7);
        assert!(first.is_some());
        assert!(flight.take(4).is_none());
        assert_eq!(flight.bytes(), 7);
        let mut first = first;
        if let Some(first) = &mut first {
            first.give_back();
        }
        assert_eq!(flight.bytes(), 0);
        drop(first);
        assert!(flight.take(10).is_some());
        assert_eq!(flight.bytes(), 0);
    }
}
