//! Bounds of the store that are not settings.

/// Bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 1024;
/// Bytes of a value.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;
/// A batch is closed when it has grown to this: larger ones sync no faster per byte and let the first wait longer.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 20;
/// Threads that take turns: one gathers while the other's batch is on its way to the disk.
pub(crate) const COMMITTERS: usize = 2;
/// The tree that names all others.
pub(crate) const CATALOG: crate::TreeId = crate::TreeId(0);
/// Calls of `commit` that may prepare at the same moment, beside the registered readers.
pub(crate) const COMMIT_SLOTS: usize = 64;
