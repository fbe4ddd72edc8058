//! Statistics of a store.

use std::time::Duration;

use crate::base::sync::atomic::{AtomicU64, Ordering};

/// What recovery found and did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Log batches replayed.
    pub batches: u64,
    /// Bytes of a torn, unacknowledged batch at the end of the log that were dropped.
    pub torn_bytes: u64,
    /// The newest version after recovery.
    pub version: u64,
    /// Duration of recovery.
    pub elapsed: Duration,
}

/// State and counters since the start, for metrics. Collected while the store runs, so values may be microseconds apart.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The newest visible version.
    pub version: u64,
    /// Transactions queued and not yet in a batch.
    pub queue_depth: u64,
    /// Bytes held by prepared transactions until they are durable or refused.
    pub queue_bytes: u64,
    /// Transactions committed. A batch whose write or sync failed counts here and in `groups` as nothing.
    pub commits: u64,
    /// Batches written; if each is synced, also the number of syncs.
    pub groups: u64,
    /// Successful commits done on the caller's own thread.
    pub inline_commits: u64,
    /// Transactions prepared again because others had changed what they read.
    pub redone: u64,
    /// Batches delayed because commits would have filled the memtable before the running checkpoint ends.
    pub slowed: u64,
    /// Bytes written to the log, padding included.
    pub log_bytes_written: u64,
    /// Bytes of the log's segments that recovery needs.
    pub log_bytes: u64,
    /// The oldest version after which `Store::changes_since` has all changes.
    pub changes_oldest: u64,
    /// Bytes of log segments that are kept only for readers of changes, not counted in `log_bytes`.
    pub changes_kept_bytes: u64,
    /// Number of readers of changes.
    pub change_readers: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Checkpoints failed.
    pub checkpoint_failures: u64,
    /// Bytes in the active memtable.
    pub memtable_bytes: u64,
    /// Bytes in the frozen memtable while a checkpoint runs.
    pub frozen_bytes: u64,
    /// Pages of the tree file.
    pub tree_pages: u64,
    /// The last version that the tree contains.
    pub tree_version: u64,
    /// Replaced states that readers still hold. At 64 no new state is published ([`crate::StoreError::Pinned`]).
    pub retired_generations: u64,
    /// States of the tree file since the oldest one that a reader holds. A checkpoint makes one or more.
    pub pinned_states: u64,
    /// Pages that cannot be reused only because readers hold older states.
    pub pinned_pages: u64,
    /// Pages of the tree file that the disk failed to read: see `StoreSnapshot::check`.
    pub lost_pages: u64,
    /// Pages of the tree file found damaged when read, counting only those that the newest state reaches.
    pub damaged_pages: u64,
    /// The first damaged page, and its fault.
    pub damage: Option<String>,
    /// Writes are refused because a damaged page stops checkpoints; they resume when a checkpoint succeeds.
    pub is_stopped_by_damage: bool,
    /// Files of the open store that were deleted or cut short. Writes are refused; reads and backups go on.
    pub files_deleted: Option<String>,
    /// Why the log cannot get its next segment, unless because the disk is full: writes end with the current one.
    pub log_refusal: Option<String>,
    /// Writes are refused until the store is reopened.
    pub is_poisoned: bool,
    /// Why writes are refused until the store is reopened.
    pub poisoned_by: Option<String>,
    /// Writes are refused until the disk has room; then they resume by themselves.
    pub is_full: bool,
}

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) groups: AtomicU64,
    pub(crate) redone: AtomicU64,
    pub(crate) inline: AtomicU64,
    pub(crate) slowed: AtomicU64,
}

/// Called at most once for each group, so the cost of the locked instruction does not matter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
