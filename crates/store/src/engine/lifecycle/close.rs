//! Closing, and the syncs of `Durability::Interval`.

use crate::base::fail_stop::lock;
use crate::base::sync::atomic::Ordering;
use crate::engine::Engine;
use crate::engine::options::Durability;

impl Engine {
    /// Refuses new transactions; queued ones are completed.
    pub(crate) fn refuse_new(&self) {
        self.queue.close();
    }

    /// Ends the checkpointer, the syncer and the space keeper. A running merge is abandoned, which changes nothing.
    pub(crate) fn stop_others(&self) {
        self.checkpoints.announce(|| self.is_closing.store(true, Ordering::Release));
        self.disk_space.close();
        self.alarm.ring();
    }

    /// Syncs, and writes an empty batch, which records that the last transactions were durable.
    pub(crate) fn close_log(&self) {
        let mut writer = self.hold_writer();
        let _turn = lock(&self.turn);
        if self.is_poisoned() {
            return;
        }
        if let Err(error) = self.log.write_empty_batch(&mut writer.tail) {
            tracing::error!(%error, "the log could not be closed cleanly");
        }
        // A commit that is about to go inline then finds the store closed.
        self.fail_stop.close();
    }

    /// Main loop of the thread that syncs at intervals.
    pub(crate) fn run_syncer(&self) {
        let Durability::Interval(interval) = self.options.durability else { return };
        while !self.checkpoints.wait_for_close(self, interval) {
            if self.log.sync().is_err() {
                return;
            }
            self.alarm.ring();
        }
    }
}
