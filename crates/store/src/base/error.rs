//! Errors of the store, by what the caller can do about them.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::key::Version;

/// An error of the store; each variant states what the caller can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Try again later: the writer's queue or the readers' table is full.
    Busy,
    /// Try again later: a large transaction has read what this one would change.
    Claimed,
    /// The change may or may not be durable, because the sync failed or a thread panicked. No write is accepted until
    /// the store is reopened.
    Unknown(Arc<io::Error>),
    /// The store accepts no writes, after an earlier failed sync or a panic (`Stats::poisoned_by`).
    Poisoned,
    /// Snapshots hold the maximum number of old states, so no new state can be published. Drop the oldest snapshots,
    /// above all nested ones of one reader, and try again. Nothing was changed.
    Pinned {
        /// Number of old states held.
        states: u64,
    },
    /// The disk is full; nothing was changed.
    Full,
    /// The transaction aborted itself in `prepare`; nothing was changed.
    Aborted,
    /// The transaction requires something that is not supported; nothing was changed.
    Refused {
        /// Why.
        why: &'static str,
    },
    /// A key over 1 KB, a value over 64 MB, a transaction over its bound.
    Limit {
        /// What was too large.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Damaged data: file, place and broken invariant.
    Corrupt {
        /// File name.
        file: String,
        /// Byte offset.
        offset: u64,
        /// The broken invariant.
        what: String,
    },
    /// Files of the open store were deleted or cut short. No write is accepted; reads and backups go on until it is closed.
    Deleted {
        /// Their names.
        files: String,
    },
    /// Another process has the directory open.
    Locked,
    /// The files have a format version that this build does not read.
    Format {
        /// The version found.
        found: u32,
        /// The version that this build reads.
        supported: u32,
    },
    /// The operating system returned an error.
    Io {
        /// The operation and the file.
        context: String,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The read would have to wait for the disk, or to compute the checksum of a long value, and its reader forbids
    /// that: see `Reader::ask_before_waiting` and `Reader::check_at_most`.
    NotInMemory,
    /// Changes since that version are no longer kept. Start again: read a snapshot, then follow the changes since its
    /// version.
    Gone {
        /// The oldest version after which all changes are available.
        oldest: Version,
    },
    /// That version was never assigned: the store was restored from a backup, or lost unsynced commits in a crash.
    /// Start again, as for `Gone`.
    Ahead {
        /// The newest version.
        newest: Version,
    },
    /// The store is closing.
    Closed,
}

impl StoreError {
    /// Wraps a system error with the operation; a full disk becomes [`StoreError::Full`].
    pub fn io(context: impl Into<String>, source: io::Error) -> StoreError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => StoreError::Full,
            _ => StoreError::Io { context: context.into(), source: source.into() },
        }
    }

    /// Names a place in a file that breaks an invariant.
    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> StoreError {
        StoreError::Corrupt { file: file.to_string(), offset, what: what.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Busy => out.write_str("busy: the queue or the readers' table is full, try again"),
            StoreError::Claimed => out.write_str(
                "busy: a large transaction is active that depends on what would be changed, try again when it has ended",
            ),
            StoreError::Unknown(source) => write!(out, "outcome unknown: {source}"),
            StoreError::Poisoned => out.write_str(
                "no writes until the store is reopened: an earlier sync failed, or a thread of the store panicked",
            ),
            StoreError::Pinned { states } => write!(
                out,
                "snapshots keep {states} old states of the store, the maximum: drop the oldest and try again; \
                 nothing was changed"
            ),
            StoreError::Full => out.write_str("disk full; nothing was changed"),
            StoreError::Aborted => out.write_str("the transaction aborted itself"),
            StoreError::Refused { why } => write!(out, "the transaction is refused: {why}"),
            StoreError::Limit { what, limit } => write!(out, "{what} over the limit of {limit}"),
            StoreError::Corrupt { file, offset, what } => {
                write!(out, "damaged data in {file} at byte {offset}: {what}")
            }
            StoreError::Deleted { files } => write!(
                out,
                "files of the data folder were deleted or cut short while it was open ({files}): make a backup now, \
                 while the store is open and still has the data, and restore it"
            ),
            StoreError::Locked => out.write_str("another process has this directory open: stop it first"),
            StoreError::Format { found, supported } => {
                write!(out, "files of format version {found}, this build reads version {supported}")
            }
            StoreError::Io { context, source } => write!(out, "{context}: {source}"),
            StoreError::NotInMemory => out.write_str("the read would wait for the disk"),
            StoreError::Gone { oldest } => {
                write!(out, "these changes are no longer kept; the oldest version to follow from is {}", oldest.0)
            }
            StoreError::Ahead { newest } => write!(out, "there is no such version yet; the newest is {}", newest.0),
            StoreError::Closed => out.write_str("the store is closing"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StoreError::Unknown(source) | StoreError::Io { source, .. } => Some(&**source),
            _ => None,
        }
    }
}
