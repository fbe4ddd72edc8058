//! Errors of the store, by what the caller can do about them.

use std::fmt;
use std::io;

use super::key::Version;

/// An error of the store; each variant states what the caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Try again later: the writer's queue or the readers' table is full.
    Busy,
    /// The change may or may not be durable, because the sync failed or a thread panicked. No write is accepted until
    /// the store is reopened.
    Unknown(io::Error),
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
        source: io::Error,
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

impl Error {
    /// Wraps a system error with the operation; a full disk becomes [`Error::Full`].
    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Error::Full,
            _ => Error::Io { context: context.into(), source },
        }
    }

    /// A copy, for a second caller that waits for the same result.
    pub(crate) fn copy(&self) -> Error {
        let copy_io = |source: &io::Error| match source.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(source.kind(), source.to_string()),
        };
        match self {
            Error::Busy => Error::Busy,
            Error::Unknown(source) => Error::Unknown(copy_io(source)),
            Error::Poisoned => Error::Poisoned,
            Error::Pinned { states } => Error::Pinned { states: *states },
            Error::Full => Error::Full,
            Error::Aborted => Error::Aborted,
            Error::Refused { why } => Error::Refused { why },
            Error::Limit { what, limit } => Error::Limit { what, limit: *limit },
            Error::Corrupt { file, offset, what } => {
                Error::Corrupt { file: file.clone(), offset: *offset, what: what.clone() }
            }
            Error::Locked => Error::Locked,
            Error::Format { found, supported } => Error::Format { found: *found, supported: *supported },
            Error::Io { context, source } => Error::Io { context: context.clone(), source: copy_io(source) },
            Error::NotInMemory => Error::NotInMemory,
            Error::Gone { oldest } => Error::Gone { oldest: *oldest },
            Error::Ahead { newest } => Error::Ahead { newest: *newest },
            Error::Closed => Error::Closed,
        }
    }

    /// Names a place in a file that breaks an invariant.
    pub(crate) fn corrupt(file: &str, offset: u64, what: impl Into<String>) -> Error {
        Error::Corrupt { file: file.to_string(), offset, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Busy => out.write_str("busy: the queue or the readers' table is full, try again"),
            Error::Unknown(source) => write!(out, "outcome unknown: {source}"),
            Error::Poisoned => out.write_str(
                "no writes until the store is reopened: an earlier sync failed, or a thread of the store panicked",
            ),
            Error::Pinned { states } => write!(
                out,
                "snapshots keep {states} old states of the store, the maximum: drop the oldest and try again; \
                 nothing was changed"
            ),
            Error::Full => out.write_str("disk full; nothing was changed"),
            Error::Aborted => out.write_str("the transaction aborted itself"),
            Error::Refused { why } => write!(out, "the transaction is refused: {why}"),
            Error::Limit { what, limit } => write!(out, "{what} over the limit of {limit}"),
            Error::Corrupt { file, offset, what } => write!(out, "damaged data in {file} at byte {offset}: {what}"),
            Error::Locked => out.write_str("another process has this directory open"),
            Error::Format { found, supported } => {
                write!(out, "files of format version {found}, this build reads version {supported}")
            }
            Error::Io { context, source } => write!(out, "{context}: {source}"),
            Error::NotInMemory => out.write_str("the read would wait for the disk"),
            Error::Gone { oldest } => {
                write!(out, "these changes are no longer kept; the oldest version to follow from is {}", oldest.0)
            }
            Error::Ahead { newest } => write!(out, "there is no such version yet; the newest is {}", newest.0),
            Error::Closed => out.write_str("the store is closing"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unknown(source) | Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
