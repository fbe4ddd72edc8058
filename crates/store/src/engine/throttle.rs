//! Throttling of writers before the memtable is full.
//!
//! If commits come faster than a checkpoint merges, the active memtable would soon be full, and no writer could commit
//! during the seconds that the merge still takes. So only a part of the active memtable fills freely. Beyond that it
//! fills no faster than the frozen one is merged: each batch waits a little, and the checkpoint runs at full speed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::writer::Writer;
use super::{Engine, count};

/// Part of the active memtable, in thousandths, that fills freely.
const FREE: u64 = 250;
const WHOLE: u64 = 1000;
/// Maximum delay of a batch. So a stalled merge does not stop writers before the memtable is full.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Progress of the frozen memtable's merge, and whether writers wait for it.
#[derive(Default)]
pub(super) struct Throttle {
    /// Merged records, in thousandths.
    merged: AtomicU64,
    is_slowing: AtomicBool,
}

impl Throttle {
    /// A memtable was frozen.
    pub(super) fn restart(&self) {
        self.merged.store(0, Ordering::Relaxed);
        self.is_slowing.store(false, Ordering::Relaxed);
    }

    /// Sets the merged share of the frozen memtable, from 0 to 1.
    pub(super) fn note(&self, share: f64) {
        self.merged.store((share * WHOLE as f64) as u64, Ordering::Relaxed);
    }

    /// Whether writers have waited for the current merge.
    pub(super) fn is_slowing(&self) -> bool {
        self.is_slowing.load(Ordering::Relaxed)
    }

    /// Whether a memtable with `used` bytes may grow.
    fn admits(&self, used: usize, capacity: usize) -> bool {
        let filled = used as u64 * WHOLE / capacity.max(1) as u64;
        filled <= FREE + (WHOLE - FREE) * self.merged.load(Ordering::Relaxed).min(WHOLE) / WHOLE
    }
}

impl Engine {
    /// Before a batch: waits for the merge if the active memtable fills faster.
    pub(super) fn slow_down(&self, writer: &mut Writer) {
        if writer.generation.frozen.is_none() {
            return;
        }
        let capacity = self.options.memtable_bytes;
        if self.throttle.admits(writer.table.table().used_bytes(), capacity) {
            return;
        }
        count(&self.counters.slowed, 1);
        self.throttle.is_slowing.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while writer.generation.frozen.is_some()
            && !self.throttle.admits(writer.table.table().used_bytes(), capacity)
            && began.elapsed() < WAIT_MAX
            && self.check_writable().is_ok()
        {
            std::thread::sleep(LOOK_EVERY);
            self.refresh(writer);
        }
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
