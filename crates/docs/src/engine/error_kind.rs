//! What an error of the engine means to its caller, whatever the engine.

use std::io;

/// Beginning of the name of each bound of one transaction, in an error that names the exceeded bound.
pub const OF_TRANSACTION: &str = "transaction,";

/// Kinds of errors of an engine, by what the caller can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Try again: a queue or a table is full. Nothing was changed.
    Busy,
    /// Try again later: readers hold as many old states as the engine can keep. Nothing was changed.
    OldStates,
    /// The change may or may not be durable. No write is accepted until the database is opened again.
    OutcomeUnknown,
    /// No write is accepted until the database is opened again, after an earlier fault.
    WritesStopped,
    /// The disk is full. Nothing was changed.
    DiskFull,
    /// The transaction ended itself. Nothing was changed.
    Aborted,
    /// The engine does not support what the transaction requires. Nothing was changed.
    Refused,
    /// A key, a value, a transaction or a setting is over a bound, which the error's text names.
    TooLarge,
    /// Stored data is damaged. The error's text has the file, the place and what is wrong.
    Damaged,
    /// Another process has the folder open.
    InUse,
    /// This build does not read the format of the files.
    OtherFormat,
    /// The operating system returned an error of this kind.
    System(io::ErrorKind),
    /// The read would have to wait for the disk, and its reader forbids that. Nothing is wrong.
    WouldWait,
    /// Changes since the given version are no longer kept.
    ChangesGone {
        /// The oldest version after which all changes are available.
        oldest: u64,
    },
    /// The given version was never assigned.
    ChangesAhead {
        /// The newest version.
        newest: u64,
    },
    /// The database is closing.
    Closed,
    /// None of these. The error is final.
    Other,
}

/// An error that states its kind.
pub trait Classified {
    /// The kind of this error.
    fn kind(&self) -> ErrorKind;
}
