//! Fixed bounds of the store.

use std::time::Duration;

use super::error::StoreError;
use super::key::TreeId;

/// Bytes of a key.
pub const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Maximum number of deleted ranges in one transaction, after touching ones are merged. Any memtable has room for twice
/// as many boundaries.
pub const RANGES_MAX: usize = 64;
/// Maximum number of trees in one file: the view's table of roots is an array up to the highest id.
pub const TREES_MAX: u32 = 65_536;
/// Committer threads: one gathers while the other's batch is written.
pub(crate) const COMMITTERS: usize = 2;
/// The tree with the names of all others.
pub(crate) const CATALOG: TreeId = TreeId(0);
/// Maximum number of `commit` calls that prepare at the same time, in addition to the registered readers. The scheduler under test
/// has a few threads, and chooses among them at the access of each slot.
pub(crate) const COMMIT_SLOTS: usize = if cfg!(feature = "schedules") { 2 } else { 64 };
/// Maximum number of readers of changes: each may hold a window of the log.
pub(crate) const CHANGE_READERS_MAX: usize = 256;
/// Log bytes in use at which a checkpoint is due even if the memtable is not full, unless memtables are larger than half of it
/// (`StoreOptions::log_bytes_max`). Replaying them takes half a second on a busy machine (measured: 300 MB a second, read and
/// inserted).
pub(crate) const LOG_BYTES_MAX: u64 = 128 << 20;
/// Interval at which time limits are checked.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Minimum time between two optional checkpoints, which are worth their writes (`StoreOptions::checkpoint_worth_bytes`). Under
/// fast commits a memtable is full earlier, and is merged as a whole.
pub(crate) const REST: Duration = Duration::from_secs(5);
/// Maximum wait for readers to release old states, when a memtable or a place for a new state is needed.
pub(crate) const READERS_WAIT_MAX: Duration = Duration::from_secs(1);
/// Polling interval of threads that wait for readers to release old states.
pub(crate) const LOOK_FOR_READERS_EVERY: Duration = Duration::from_millis(1);
/// Pause between two attempts to take the writer's lock.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_micros(50);
/// Delay before a failed checkpoint is retried.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(250);
/// Longest such delay: it doubles with each failure, unless a writer waits for the checkpoint.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(5);
/// First and longest pause between two lines of the log that checkpoints fail; the pause doubles with each line.
pub(crate) const LOG_AGAIN_AFTER: Duration = Duration::from_secs(1);
pub(crate) const LOG_AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// Delay before a checkpoint that a damaged page stopped is retried: the retry writes again what could be merged, and meets the page again.
pub(crate) const RETRY_DAMAGED_AFTER: Duration = Duration::from_secs(30);
/// Interval at which the store looks whether its files have been deleted.
pub(crate) const LOOK_FOR_FILES_EVERY: Duration = Duration::from_secs(1);
/// Name of the tree file.
pub(crate) const TREE_NAME: &str = "tree";
/// Name of the file whose lock keeps other processes out.
pub(crate) const LOCK_NAME: &str = "lock";

/// Checks the limits of keys and values.
pub(crate) fn check_limits(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if key.len() > KEY_BYTES_MAX {
        return Err(StoreError::Limit { what: "key", limit: KEY_BYTES_MAX as u64 });
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(StoreError::Limit { what: "value", limit: VALUE_BYTES_MAX as u64 });
    }
    Ok(())
}
