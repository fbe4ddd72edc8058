//! Writers are slowed before they would be stopped.
//!
//! Where commits come faster than a checkpoint can merge, the active memtable would be full within a moment, and then
//! nobody could commit for the seconds that the merge still takes. So a part of it is free to fill, and beyond that it is
//! filled no faster than the frozen one is merged: each batch waits a little, and the checkpoint goes as fast as it can.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::writer::Writer;
use super::{Engine, count};

/// Part of the active memtable, in thousandths, that may be filled whatever the merge does.
const FREE: u64 = 250;
const WHOLE: u64 = 1000;
/// A batch waits no longer: a merge that stands still stops nobody before the memtable is full.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Between two looks at the merge.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How far the merge of the frozen memtable has come, and whether writers wait for it.
#[derive(Default)]
pub(super) struct Throttle {
    /// In thousandths of its records.
    merged: AtomicU64,
    is_slowing: AtomicBool,
}

impl Throttle {
    /// A memtable was frozen.
    pub(super) fn restart(&self) {
        self.merged.store(0, Ordering::Relaxed);
        self.is_slowing.store(false, Ordering::Relaxed);
    }

    /// So much of the frozen memtable is merged, from 0 to 1.
    pub(super) fn note(&self, share: f64) {
        self.merged.store((share * WHOLE as f64) as u64, Ordering::Relaxed);
    }

    /// Whether writers have waited for the merge that is under way.
    pub(super) fn is_slowing(&self) -> bool {
        self.is_slowing.load(Ordering::Relaxed)
    }

    /// Whether a memtable with so many bytes may get more.
    fn admits(&self, used: usize, capacity: usize) -> bool {
        let filled = used as u64 * WHOLE / capacity.max(1) as u64;
        filled <= FREE + (WHOLE - FREE) * self.merged.load(Ordering::Relaxed).min(WHOLE) / WHOLE
    }
}

impl Engine {
    /// Before a batch is begun: waits for the merge where the active memtable is ahead of it.
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
