//! What a store tells of itself.

use std::time::Duration;

/// What was found and done while opening.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Log batches replayed.
    pub batches: u64,
    /// Bytes of an unacknowledged torn tail that were dropped.
    pub torn_bytes: u64,
    /// The newest version after it.
    pub version: u64,
    /// Time taken.
    pub elapsed: Duration,
}

/// State and counts since the start, for metrics. Taken without stopping anything, so numbers may be microseconds apart.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// The newest visible version.
    pub version: u64,
    /// Transactions queued and not yet in a batch.
    pub queue_depth: u64,
    /// Bytes that prepared transactions hold until they are durable or refused.
    pub queue_bytes: u64,
    /// Transactions committed.
    pub commits: u64,
    /// Batches written; where each is synced, also the syncs.
    pub groups: u64,
    /// Commits done on the caller's own thread.
    pub inline_commits: u64,
    /// Transactions prepared once more because what they had read had changed.
    pub redone: u64,
    /// Batches that waited because commits would have filled the memtable before the checkpoint under way is done.
    pub slowed: u64,
    /// Bytes written to the log, padding included.
    pub log_bytes_written: u64,
    /// Bytes of the log's segments that recovery needs.
    pub log_bytes: u64,
    /// The version from which on `Store::changes_since` has all changes.
    pub changes_oldest: u64,
    /// Bytes of the log's segments that are only kept for readers of changes: beside `log_bytes`.
    pub changes_kept_bytes: u64,
    /// Readers of changes.
    pub change_readers: u64,
    /// Checkpoints completed, and failed.
    pub checkpoints: u64,
    /// See above.
    pub checkpoint_failures: u64,
    /// Bytes in the active memtable.
    pub memtable_bytes: u64,
    /// Bytes in the frozen one, while a checkpoint runs.
    pub frozen_bytes: u64,
    /// Pages of the tree file.
    pub tree_pages: u64,
    /// The last version that the tree contains.
    pub tree_version: u64,
    /// States that are replaced and that readers still look at. At 64 no more are made ([`crate::Error::Pinned`]).
    pub retired_generations: u64,
    /// States of the tree file, of which a checkpoint makes one or more, since the oldest that a reader still looks at.
    pub pinned_states: u64,
    /// Pages that only such readers keep from being used again.
    pub pinned_pages: u64,
    /// Pages of the tree file that the disk did not give when they were read: see `Snapshot::check`.
    pub lost_pages: u64,
    /// Pages of the tree file that were found damaged when they were read, among those that the newest state reaches.
    pub damaged_pages: u64,
    /// The first of them, and what is wrong with it.
    pub damage: Option<String>,
    /// No writes, since a damaged page stops checkpoints: they go on when a checkpoint succeeds.
    pub is_stopped_by_damage: bool,
    /// No writes until reopened.
    pub is_poisoned: bool,
    /// Why.
    pub poisoned_by: Option<String>,
    /// No writes until the disk has room: they go on by themselves then.
    pub is_full: bool,
}
