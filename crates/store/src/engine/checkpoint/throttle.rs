//! Throttling of writers before the memtable is full.
//!
//! If commits come faster than a checkpoint merges, the active memtable would soon be full, and no writer could commit
//! during the seconds that the merge still takes. So only a part of the active memtable fills freely. Beyond that it
//! fills no faster than the frozen one is merged: each batch waits a little, and the checkpoint runs at full speed.

use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Part of the active memtable, in thousandths, that fills freely.
const FREE: u64 = 250;
const WHOLE: u64 = 1000;

/// Progress of the frozen memtable's merge, and whether writers wait for it.
#[derive(Default)]
pub(in crate::engine) struct Throttle {
    /// Merged records, in thousandths.
    merged: AtomicU64,
    is_slowing: AtomicBool,
}

impl Throttle {
    /// A memtable was frozen.
    pub(in crate::engine) fn restart(&self) {
        self.merged.store(0, Ordering::Relaxed);
        self.is_slowing.store(false, Ordering::Relaxed);
    }

    /// Sets the merged share of the frozen memtable, from 0 to 1.
    pub(super) fn note(&self, share: f64) {
        self.merged.store((share * WHOLE as f64) as u64, Ordering::Relaxed);
    }

    /// Writers begin to wait for the current merge.
    pub(in crate::engine) fn slow(&self) {
        self.is_slowing.store(true, Ordering::Relaxed);
    }

    /// Whether writers have waited for the current merge.
    pub(super) fn is_slowing(&self) -> bool {
        self.is_slowing.load(Ordering::Relaxed)
    }

    /// Whether a memtable with `used` bytes may grow.
    pub(in crate::engine) fn admits(&self, used: usize, capacity: usize) -> bool {
        let filled = used as u64 * WHOLE / capacity.max(1) as u64;
        filled <= FREE + (WHOLE - FREE) * self.merged.load(Ordering::Relaxed).min(WHOLE) / WHOLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_free_and_the_rest_goes_with_the_merge() {
        let throttle = Throttle::default();
        assert!(throttle.admits(0, 1000) && throttle.admits(250, 1000) && !throttle.admits(260, 1000));
        throttle.note(0.5);
        assert!(throttle.admits(625, 1000) && !throttle.admits(626, 1000));
        throttle.note(1.0);
        assert!(throttle.admits(1000, 1000));
        throttle.restart();
        assert!(!throttle.admits(260, 1000));
    }
}
