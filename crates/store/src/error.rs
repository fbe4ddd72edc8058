//! Why an operation of the store failed, by what the caller can do about it.

use std::fmt;
use std::io;

use crate::key::Version;

/// See the variants: each names what the caller can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Try again later: the writer's queue or the readers' table is full.
    Busy,
    /// The change may or may not be durable: the sync failed, or a thread panicked. Nothing is acknowledged until the store is reopened.
    Unknown(io::Error),
    /// The store takes no writes any more, after an earlier failed sync or a panic (`Stats::poisoned_by`).
    Poisoned,
    /// Snapshots keep as many old states as there may be, so the store can make no new one. Drop the oldest snapshots, those
    /// above all under which their reader took others, and try again; nothing was changed.
    Pinned {
        /// Old states that are kept.
        states: u64,
    },
    /// The disk is full; nothing was changed.
    Full,
    /// The transaction refused itself in `prepare`; nothing was changed.
    Aborted,
    /// The transaction asks for what cannot be done; nothing was changed.
    Refused {
        /// Why.
        why: &'static str,
    },
    /// A key over 1 KB, a value over 64 MB, a transaction over its bound: what, and the limit.
    Limit {
        /// What was too large.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// Damaged data: which file, where, what is wrong.
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
    /// The files are of another format version.
    Format {
        /// Found.
        found: u32,
        /// This build's.
        supported: u32,
    },
    /// The operating system refused: on what, and its error.
    Io {
        /// What was tried, on which file.
        context: String,
        /// The system's error.
        source: io::Error,
    },
    /// The read would wait for the disk, or compute the checksum of a long value, and its reader does not want to: see
    /// `Reader::ask_before_waiting` and `Reader::check_at_most`.
    NotInMemory,
    /// Changes since that version are not kept any more. Start again: read a snapshot, and then what came since its version.
    Gone {
        /// The version from which on changes are there.
        oldest: Version,
    },
    /// That version was never given: the caller knows more than this store, which was restored from a backup, or lost in
    /// a crash what was not synced. Start again, as for `Gone`.
    Ahead {
        /// The newest version.
        newest: Version,
    },
    /// The store is closing.
    Closed,
}

impl Error {
    /// Wraps a system error with what was tried; a full disk becomes [`Error::Full`].
    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Error::Full,
            _ => Error::Io { context: context.into(), source },
        }
    }

    /// The same again, for another who waits for the same thing.
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
                "snapshots keep {states} old states of the store, as many as there may be: drop the oldest and try again; \
                 nothing was changed"
            ),
            Error::Full => out.write_str("disk full; nothing was changed"),
            Error::Aborted => out.write_str("the transaction refused itself"),
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
                write!(out, "these changes are kept no longer; kept are those since {}", oldest.0)
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
