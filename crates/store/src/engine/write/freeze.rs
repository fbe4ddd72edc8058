//! Where the writer meets a checkpoint: the active memtable is frozen under the writer's lock, and batches are delayed
//! while they fill the next memtable faster than the frozen one is merged ([`Throttle`]).
//!
//! [`Throttle`]: crate::engine::checkpoint::throttle::Throttle

use std::time::Duration;

use super::writer::{IdleWriter, Writer};
use crate::base::error::StoreError;
use crate::base::fail_stop::{Held, lock};
use crate::base::limits::{LOOK_AGAIN, READERS_WAIT_MAX};
use crate::base::sync::{Instant, thread};
use crate::engine::Engine;
use crate::engine::stats::count;

/// Maximum delay of a batch. So a stalled merge does not stop writers before the memtable is full.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Polling interval.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Engine {
    /// Freezes the active memtable if it is not empty and nothing is frozen.
    ///
    /// It never blocks on the writer's lock: a writer that has frozen the memtable itself meanwhile, and filled the
    /// next one too, holds that lock until this thread has merged.
    pub(in crate::engine) fn freeze(&self) -> Result<(), StoreError> {
        let is_wanted = {
            let current = lock(&self.current);
            current.frozen.is_none() && !current.active.is_empty()
        };
        if is_wanted {
            // Waits for readers here, while no writer waits for it.
            drop(self.reserve_state(READERS_WAIT_MAX)?);
        }
        let mut writer = loop {
            if self.checkpoints.has_frozen() {
                return Ok(());
            }
            if let Some(writer) = self.try_hold_writer() {
                break writer;
            }
            self.fail_stop.check()?;
            thread::sleep(LOOK_AGAIN);
        };
        // A panic may have left part of a transaction in the memtable.
        self.fail_stop.check()?;
        self.refresh(&mut writer);
        self.checkpoints.forget_request_by_size();
        if writer.generation.frozen.is_none() && !writer.table.table().is_empty() {
            // No waiting here: writers continue while there is room, even if this checkpoint must wait.
            self.rotate(&mut writer, Duration::ZERO)?;
        }
        Ok(())
    }

    /// The writer's lock for a holder of `merging`, with nothing frozen. Merges the memtable that the lock's current
    /// holder waits for, or has frozen before it released the lock.
    pub(in crate::engine) fn writer_while_merging(&self) -> Result<Held<'_, IdleWriter>, StoreError> {
        loop {
            if let Some(mut writer) = self.try_hold_writer() {
                self.refresh(&mut writer);
                if writer.generation.frozen.is_none() {
                    return Ok(writer);
                }
            }
            self.merge_frozen()?;
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Before a batch: waits for the merge if the active memtable fills faster.
    pub(super) fn slow_down(&self, writer: &mut Writer) {
        if writer.generation.frozen.is_none() {
            return;
        }
        // Of a large transaction's memtable only the part behind its own changes is filled by others.
        let begins_at = writer.table_begins_at;
        let capacity = writer.table.table().arena_bytes().saturating_sub(begins_at);
        let admits = |writer: &Writer| {
            self.throttle.admits(writer.table.table().used_bytes().saturating_sub(begins_at), capacity)
        };
        if admits(writer) {
            return;
        }
        count(&self.counters.slowed, 1);
        self.throttle.slow();
        let began = Instant::now();
        while writer.generation.frozen.is_some()
            && !admits(writer)
            && began.elapsed() < WAIT_MAX
            && self.check_writable().is_ok()
        {
            thread::sleep(LOOK_EVERY);
            self.refresh(writer);
        }
    }

    /// Takes over a new generation for a writer that is idle, which would still hold the previous state. A busy writer
    /// does it by itself.
    pub(in crate::engine) fn refresh_idle_writer(&self) {
        if let Some(mut writer) = self.try_hold_writer() {
            self.refresh(&mut writer);
        }
    }
}
