//! Settings of a store and the limits that follow from them.

use std::time::Duration;

use crate::clock::Clock;
use crate::engine::limits::LOG_BYTES_MAX;
use crate::error::Error;
use crate::log::{Kept, SEGMENT_BYTES_MAX, SEGMENT_OVERHEAD_BYTES};

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
pub struct Options {
    /// See [`Durability`].
    pub durability: Durability,
    /// Bytes of one memtable's arena (two may live: active and frozen). Default 96 MB: the more
    /// changes a checkpoint merges at once, the more of them share a page that it writes. Taken as it fills.
    pub memtable_bytes: usize,
    /// Memtables that there may be at once: the two, and those that readers of old states still see. Writers wait for these
    /// readers then, and after a second are told [`Error::Busy`]; who writes while holding a snapshot may wait for itself. Default:
    /// any number, which the states kept for readers bound ([`Error::Pinned`]).
    pub memtables_max: usize,
    /// Bytes of one log segment. Default 16 MB.
    pub log_segment_bytes: u64,
    /// Time after which a checkpoint starts even when little changed. Default 60 s.
    pub checkpoint_interval: Duration,
    /// Readers that may be registered at once. Default 256.
    pub readers_max: usize,
    /// Transactions queued for the writer at most; more are refused with `Error::Busy`. Default 65536.
    pub queue_max: usize,
    /// Bytes of prepared transactions that wait for the writer or the disk; past it more are refused with `Error::Busy`.
    /// Default 64 MB.
    pub queue_bytes_max: usize,
    /// Log bytes of one transaction at most; half of a memtable and a segment bound it too. Default: only they do. A value
    /// of 64 MB, the largest, goes into a store with `memtable_bytes` of 129 MB and `log_segment_bytes` of 65 MB or more.
    pub transaction_bytes_max: usize,
    /// Bytes in which one reader remembers where it found short keys; taken when it first finds one. 0: it searches anew
    /// each time. Default 4 MB: a table that is mostly empty loses little to keys that fall together.
    pub places_bytes: usize,
    /// Bytes of log kept for readers of changes (`Store::changes_since`), in whole segments, beside what recovery needs; at
    /// most 4,096 segments. A full disk gets them back first. Default 0: none, readers keep up with checkpoints or start
    /// again.
    pub changes_kept_bytes: u64,
    /// Time for which they are kept at most; after a restart it counts from the opening. Default: for ever.
    pub changes_kept_for: Duration,
    /// The clock for that.
    pub clock: Clock,
    /// Address space reserved for the tree file's map; the file cannot outgrow it. Default 1 TB.
    pub map_bytes: u64,
    /// Whether the kernel reads the pages around one that is touched, too: right where all data fits into memory, a
    /// waste of the disk's time where it does not. Default `None`: unless the tree file, when it is opened, is larger than
    /// half of the machine's memory.
    pub read_ahead: Option<bool>,
}

const MEMTABLE_BYTES_MIN: usize = 256 * 1024;
/// One that is written, one that is merged, and one more for the moment in which the merged one is given up.
const MEMTABLES_MIN: usize = 3;
const SEGMENT_BYTES_MIN: u64 = 64 * 1024;
/// A memtable that holds a fourth of what the trees do has changes for nearly each of their pages, unless values are large.
const WORTH_LIVE_PART: u64 = 4;
/// Where there is hardly anything in the trees a checkpoint is about as much work as its two syncs.
const WORTH_BYTES_LEAST: usize = 8 << 20;
/// A batch is closed when it has grown to this: larger ones sync no faster per byte and let the first wait longer.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Nor does it take a larger part of a memtable, so that small settings have small buffers.
const MEMTABLE_PARTS_PER_BATCH: usize = 8;
/// A transaction may fill this part of a memtable at most, so that it always fits into an empty one: its smallest entries
/// take less than twice of what they count.
const MEMTABLE_PARTS_PER_TRANSACTION: usize = 2;

impl Default for Options {
    fn default() -> Options {
        Options {
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

impl Options {
    /// Refuses what cannot work, by the name of the setting and its bound.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let limit = |what, limit| Err(Error::Limit { what, limit });
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

    /// The same, keeping whatever is there for readers of changes: for who only looks at a store that others serve.
    pub fn keeping_changes(mut self) -> Options {
        self.changes_kept_bytes = u64::MAX;
        self.changes_kept_for = Duration::MAX;
        self
    }

    /// What is kept of the log for readers of changes.
    pub(crate) fn kept(&self) -> Kept {
        Kept { bytes: self.changes_kept_bytes, time: self.changes_kept_for, clock: self.clock.clone() }
    }

    /// Bytes of log in use from which on a checkpoint is due whatever the memtable holds: not before the log of a full one.
    pub(crate) fn log_bytes_max(&self) -> u64 {
        LOG_BYTES_MAX.max(2 * self.memtable_bytes as u64).max(4 * self.log_segment_bytes)
    }

    /// Bytes of the active memtable at which its checkpoint is due: nearly all of it, for the more it merges the less it
    /// writes for each change, and the next memtable takes over while it does.
    pub(crate) fn checkpoint_at_bytes(&self) -> usize {
        self.memtable_bytes / 8 * 7
    }

    /// Bytes from which on a checkpoint is worth its writes though there is no hurry, where the trees take so many: nearly
    /// each of their pages has changes by then. So a store of little data that is changed steadily takes little memory.
    pub(crate) fn checkpoint_worth_bytes(&self, live_bytes: u64) -> usize {
        let most = self.checkpoint_at_bytes();
        let part = usize::try_from(live_bytes / WORTH_LIVE_PART).unwrap_or(most);
        part.clamp(WORTH_BYTES_LEAST.min(most), most)
    }

    /// Bytes at which a batch is closed; one transaction may exceed them.
    pub(crate) fn batch_bytes_max(&self) -> usize {
        BATCH_BYTES_MAX.min(self.memtable_bytes / MEMTABLE_PARTS_PER_BATCH)
    }

    /// Log bytes of one transaction at most, and what to call one that has more, by the setting that bounds it: it must
    /// fit into an empty memtable and an empty segment.
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
        let options = Options { memtable_bytes, ..Options::default() };
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
