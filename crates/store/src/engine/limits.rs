//! Bounds of the store that are not settings.

/// Bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a value.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;
/// Ranges that one transaction deletes, after those that meet are joined. Twice as many boundaries fit into any memtable.
pub const RANGES_MAX: usize = 64;
const _: () = assert!(2 * RANGES_MAX <= crate::memtable::BOUNDARIES_MAX);
/// Threads that take turns: one gathers while the other's batch is on its way to the disk.
pub(crate) const COMMITTERS: usize = 2;
/// The tree that names all others.
pub(crate) const CATALOG: crate::TreeId = crate::TreeId(0);
/// Calls of `commit` that may prepare at the same moment, beside the registered readers.
pub(crate) const COMMIT_SLOTS: usize = 64;
/// Readers of changes at once: each may hold a window of the log.
pub(crate) const CHANGE_READERS_MAX: usize = 256;
/// Log in use from which on a checkpoint is due whatever the memtable holds, unless memtables are larger than half of it
/// (`Options::log_bytes_max`): replaying as much takes half a second on a busy machine (measured: 300 MB a second, read
/// and inserted).
pub(crate) const LOG_BYTES_MAX: u64 = 128 << 20;
/// How often time limits are looked at.
pub(crate) const TICK: std::time::Duration = std::time::Duration::from_millis(100);
/// Between two checkpoints without hurry, at least (`Options::checkpoint_worth_bytes`): where commits come fast a memtable is
/// full before, and is merged as a whole.
pub(crate) const REST: std::time::Duration = std::time::Duration::from_secs(5);
/// Who needs a memtable, or a place for a new state, waits so long for readers to leave old ones.
pub(crate) const READERS_WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(1);
/// A failed checkpoint is tried again after this.
pub(crate) const RETRY_AFTER: std::time::Duration = std::time::Duration::from_millis(250);
/// The same for one that a damaged page stopped: it writes all over again what it could merge, and meets the page again.
pub(crate) const RETRY_DAMAGED_AFTER: std::time::Duration = std::time::Duration::from_secs(30);
/// The tree file.
pub(crate) const TREE_NAME: &str = "tree";
/// The file whose lock keeps other processes out.
pub(crate) const LOCK_NAME: &str = "lock";
