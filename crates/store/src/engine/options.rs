//! Settings of a store and the limits that follow from them.

use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::StoreError;
use crate::base::limits::LOG_BYTES_MAX;
use crate::log::{RetentionLimits, SEGMENT_BYTES_MAX, SEGMENT_OVERHEAD_BYTES};

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After its log batch is synced (default).
    Commit,
    /// At once; the log is synced at this interval.
    Interval(Duration),
    /// At once; the log is synced at checkpoints only.
    None,
}

/// Settings of a store, each with a bound.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreOptions {
    /// See [`Durability`].
    pub durability: Durability,
    /// Bytes of one memtable's arena. Normally there are two memtables, active and frozen, and more while readers hold old ones.
    /// Memory is allocated as they fill. Default 96 MB: the more changes a checkpoint merges at once, the fewer pages it writes for
    /// each.
    pub memtable_bytes: usize,
    /// Maximum number of memtables: active, frozen, and those that readers of old states hold. At the maximum, writers
    /// wait for these readers for up to a second and then get [`StoreError::Busy`]. A thread that writes while it holds a
    /// snapshot may wait for itself. Default: unlimited; then only the number of states held by readers is bounded
    /// ([`StoreError::Pinned`]).
    pub memtables_max: usize,
    /// Bytes of one log segment. Default 16 MB.
    pub log_segment_bytes: u64,
    /// Time after which a checkpoint starts even if little has changed. Default 60 s.
    pub checkpoint_interval: Duration,
    /// Readers that may be registered at once. Default 256.
    pub readers_max: usize,
    /// Maximum number of transactions queued for the writer; further ones are refused with `StoreError::Busy`. Default 65536.
    pub queue_max: usize,
    /// Maximum bytes of prepared transactions that wait for the writer or the disk; further ones are refused with
    /// `StoreError::Busy`. Default 64 MB.
    pub queue_bytes_max: usize,
    /// Maximum log bytes of one transaction. A transaction must also fit into half of a memtable and into a log segment;
    /// by default only that limits it. The largest value, 64 MB, needs `memtable_bytes` of at least 129 MB and
    /// `log_segment_bytes` of at least 65 MB.
    pub transaction_bytes_max: usize,
    /// Bytes of each reader's cache of the positions of short keys in the tree file. It is allocated when the reader
    /// first finds a key. 0 disables it. Default 4 MB: few keys collide in a table that is mostly empty.
    pub places_bytes: usize,
    /// Bytes of log kept for readers of changes (`Store::changes_since`), in whole segments, in addition to the segments that recovery
    /// needs; at most 4,096 segments. On a full disk they are removed first. Default 0: a reader that falls behind the checkpoints
    /// must start again.
    pub changes_kept_bytes: u64,
    /// Maximum time for which such segments are kept. After a restart it counts from the opening. Default: unlimited.
    pub changes_kept_for: Duration,
    /// The clock by which `changes_kept_for` is measured.
    pub clock: Clock,
    /// Address space reserved for mapping the tree file, which cannot grow beyond it. Default 1 TB.
    pub map_bytes: u64,
    /// Whether the kernel reads ahead around a page that is accessed. This helps if all data fits into memory, and wastes disk
    /// time otherwise. Default `None`: yes, unless the tree file is larger than half of the machine's memory when it is opened.
    pub read_ahead: Option<bool>,
}

const MEMTABLE_BYTES_MIN: usize = 256 * 1024;
/// The active one, the frozen one, and one more for the moment between publishing a merge and releasing the merged memtable.
const MEMTABLES_MIN: usize = 3;
const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// A memtable a quarter the size of the trees has changes for nearly every page, unless values are large.
const WORTH_LIVE_PART: u64 = 4;
/// With nearly empty trees a checkpoint costs little more than its two syncs.
const WORTH_BYTES_LEAST: usize = 8 << 20;
/// A batch is closed at this size: a larger one syncs no faster per byte and makes its first transaction wait longer.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A batch is also at most a memtable divided by this, so that small memtables have small buffers.
const MEMTABLE_PARTS_PER_BATCH: usize = 8;
/// A transaction is at most a memtable divided by this, so that it always fits into an empty one: the smallest entries
/// take less than twice the bytes that are counted for them.
const MEMTABLE_PARTS_PER_TRANSACTION: usize = 2;

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            durability: Durability::Commit,
            memtable_bytes: 96 << 20,
            memtables_max: usize::MAX,
            log_segment_bytes: 16 << 20,
            checkpoint_interval: Duration::from_secs(60),
            readers_max: 256,
            queue_max: 65_536,
            queue_bytes_max: 64 << 20,
            transaction_bytes_max: usize::MAX,
            places_bytes: 4 << 20,
            changes_kept_bytes: 0,
            changes_kept_for: Duration::MAX,
            clock: Clock::default(),
            map_bytes: 1 << 40,
            read_ahead: None,
        }
    }
}

impl StoreOptions {
    /// Returns an error that names the first invalid setting and its bound.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let limit = |what, limit| Err(StoreError::Limit { what, limit });
        if self.memtable_bytes < MEMTABLE_BYTES_MIN {
            return limit("memtable_bytes (lower bound)", MEMTABLE_BYTES_MIN as u64);
        }
        if self.memtables_max < MEMTABLES_MIN {
            return limit("memtables_max (lower bound)", MEMTABLES_MIN as u64);
        }
        if self.log_segment_bytes < SEGMENT_BYTES_MIN || !self.log_segment_bytes.is_multiple_of(4096) {
            return limit("log_segment_bytes (lower bound, and a multiple of 4096)", SEGMENT_BYTES_MIN);
        }
        if self.log_segment_bytes > SEGMENT_BYTES_MAX {
            return limit("log_segment_bytes", SEGMENT_BYTES_MAX);
        }
        if (1..self.log_segment_bytes).contains(&self.changes_kept_bytes) {
            return limit("changes_kept_bytes (lower bound, or 0)", self.log_segment_bytes);
        }
        if self.queue_max == 0 || self.readers_max == 0 {
            return limit("queue_max and readers_max (lower bound)", 1);
        }
        Ok(())
    }

    /// The same options, but with all changes kept. For tools that open the store of a service and must not remove
    /// segments that the service keeps.
    pub fn keeping_changes(mut self) -> StoreOptions {
        self.changes_kept_bytes = u64::MAX;
        self.changes_kept_for = Duration::MAX;
        self
    }

    /// The bounds on log segments that are kept for readers of changes.
    pub(crate) fn kept(&self) -> RetentionLimits {
        RetentionLimits { bytes: self.changes_kept_bytes, time: self.changes_kept_for, clock: self.clock.clone() }
    }

    /// Bytes of log in use at which a checkpoint is due even if the memtable is not full: at least the log of a full memtable.
    pub(crate) fn log_bytes_max(&self) -> u64 {
        LOG_BYTES_MAX.max(2 * self.memtable_bytes as u64).max(4 * self.log_segment_bytes)
    }

    /// Bytes of the active memtable at which its checkpoint is due: nearly full, since a larger merge writes less for
    /// each change. The next memtable takes over during the merge.
    pub(crate) fn checkpoint_at_bytes(&self) -> usize {
        self.memtable_bytes / 8 * 7
    }

    /// Bytes of the active memtable at which a checkpoint is worthwhile although nothing requires it, for trees of this
    /// size: by then nearly every page has changes. So a small store with steady writes needs little memory.
    pub(crate) fn checkpoint_worth_bytes(&self, live_bytes: u64) -> usize {
        let most = self.checkpoint_at_bytes();
        let part = usize::try_from(live_bytes / WORTH_LIVE_PART).unwrap_or(most);
        part.clamp(WORTH_BYTES_LEAST.min(most), most)
    }

    /// Bytes at which a batch is closed; a single transaction may exceed them.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        BATCH_BYTES_MAX.min(self.memtable_bytes / MEMTABLE_PARTS_PER_BATCH)
    }

    /// Maximum log bytes of one transaction, and the name of the bound for the error: the transaction must fit into an
    /// empty memtable and an empty segment.
    pub(crate) fn transaction_bound(&self) -> (usize, &'static str) {
        let memtable = self.memtable_bytes / MEMTABLE_PARTS_PER_TRANSACTION;
        let segment = (self.log_segment_bytes - SEGMENT_OVERHEAD_BYTES) as usize;
        let bounds = [
            (memtable, "transaction, by half of memtable_bytes,"),
            (segment, "transaction, by log_segment_bytes,"),
            (self.transaction_bytes_max, "transaction, by transaction_bytes_max,"),
        ];
        bounds.into_iter().min_by_key(|(bytes, _)| *bytes).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(memtable_bytes: usize, live_bytes: u64, expected: usize) {
        let options = StoreOptions { memtable_bytes, ..StoreOptions::default() };
        assert_eq!(options.checkpoint_worth_bytes(live_bytes), expected);
    }

    #[test]
    fn a_checkpoint_is_worth_its_writes_when_a_part_of_the_trees_has_changed() {
        check(96 << 20, 1 << 30, 84 << 20);
        check(96 << 20, 100 << 20, 25 << 20);
        check(96 << 20, 0, 8 << 20);
        check(1 << 20, 0, 7 << 17);
        check(1 << 20, u64::MAX, 7 << 17);
    }
}
