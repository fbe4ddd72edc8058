//! Errors of operations on documents. There is one variant for each possible reaction of the caller.

use std::fmt;

use crate::engine::{self, Classified, ErrorKind};

/// Why a read failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// Stored bytes are damaged: which document, and what is wrong.
    Damaged(String),
    /// The engine reported an error.
    Store(engine::StoreError),
    /// The read was cancelled.
    Stopped,
}

/// Why a write was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no such document.
    NotFound,
    /// The write's guard query returned no row.
    Unguarded,
    /// The stored document does not match the request's precondition (`If-Match`, `If-None-Match`).
    PreconditionFailed,
    /// The body is wrong; the client must send another.
    Invalid {
        /** What is wrong, in words. */
        why: String,
        /** The place in the body, as a JSON pointer; empty for the whole. */
        pointer: String,
    },
    /// The body is right, but it conflicts with other stored data.
    Conflict {
        /** The conflict, in words. */
        what: String,
    },
    /// Over a limit.
    TooLarge {
        /** What is too large. */
        what: String,
        /** The limit, in bytes. */
        limit: u64,
    },
    /// Try again later: nothing was changed.
    Busy,
    /// The disk is full: nothing was changed. Writes are taken again when there is room.
    DiskFull,
    /// The store takes no writes (an earlier failed sync, closing): nothing was changed.
    Unavailable {
        /** The reason. */
        why: String,
    },
    /// The change may or may not have become durable.
    Unknown {
        /** The reason. */
        why: String,
    },
}

impl ReadError {
    /// What the engine's error means, if the engine reported one.
    pub fn engine(&self) -> Option<ErrorKind> {
        match self {
            ReadError::Store(error) => Some(error.kind()),
            _ => None,
        }
    }
}

impl WriteError {
    /// Whether the write takes more than one transaction may take.
    pub fn exceeds_transaction(&self) -> bool {
        matches!(self, WriteError::TooLarge { what, .. } if what.starts_with(engine::OF_TRANSACTION))
    }

    pub(crate) fn invalid(why: impl Into<String>, pointer: impl Into<String>) -> WriteError {
        WriteError::Invalid { why: why.into(), pointer: pointer.into() }
    }
}

/// The reason for refusing a write if the resulting row of a view cannot be represented in another view that reads the first
/// one.
pub(crate) const VIEW_CANNOT_TAKE: &str =
    "a view over a view cannot store the resulting row: its key is too long, or a value exceeds 64 bits";

impl From<engine::StoreError> for WriteError {
    fn from(error: engine::StoreError) -> Self {
        match error {
            engine::StoreError::Busy | engine::StoreError::Claimed | engine::StoreError::Pinned { .. } => {
                WriteError::Busy
            }
            engine::StoreError::Full => WriteError::DiskFull,
            engine::StoreError::Unknown(source) => WriteError::Unknown { why: source.to_string() },
            engine::StoreError::Limit { what, limit } => WriteError::TooLarge { what: what.to_string(), limit },
            engine::StoreError::Refused { why } if why == VIEW_CANNOT_TAKE => WriteError::invalid(why, ""),
            other => WriteError::Unavailable { why: words(&other) },
        }
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Store(error) => error.into(),
            damaged => WriteError::Unavailable { why: damaged.to_string() },
        }
    }
}

impl From<binjson::JsonError> for WriteError {
    fn from(error: binjson::JsonError) -> Self {
        match error.kind {
            binjson::JsonErrorKind::TooLarge => {
                WriteError::TooLarge { what: "the document".to_string(), limit: binjson::TEXT_BYTES_MAX as u64 }
            }
            binjson::JsonErrorKind::Unwanted => WriteError::Busy,
            _ => WriteError::invalid(error.to_string(), ""),
        }
    }
}

impl From<engine::StoreError> for ReadError {
    fn from(error: engine::StoreError) -> Self {
        ReadError::Store(error)
    }
}

fn words(error: &engine::StoreError) -> String {
    error.to_string()
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Damaged(what) => write!(out, "damaged data: {what}"),
            ReadError::Store(error) => out.write_str(&words(error)),
            ReadError::Stopped => out.write_str("the read was cancelled by its caller"),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::NotFound => out.write_str("there is no such document"),
            WriteError::Unguarded => out.write_str("its guard query returned no row"),
            WriteError::PreconditionFailed => {
                out.write_str("the stored document does not satisfy the precondition (If-Match or If-None-Match)")
            }
            WriteError::Invalid { why, .. } => out.write_str(why),
            WriteError::Conflict { what } => out.write_str(what),
            WriteError::TooLarge { what, limit } => write!(out, "{what} is over {limit} bytes"),
            WriteError::Busy => out.write_str("too many writes wait, or long reads hold too many versions: try again"),
            WriteError::DiskFull => out.write_str(
                "no writes are taken: disk full; nothing was changed. A few documents at a time can be deleted",
            ),
            WriteError::Unavailable { why } => write!(out, "no writes are taken: {why}"),
            WriteError::Unknown { why } => write!(out, "the change may or may not be durable: {why}"),
        }
    }
}

impl std::error::Error for ReadError {}
impl std::error::Error for WriteError {}

/// The names that may stand in the place of an unknown one, for a message.
pub fn there_are(names: &[&str]) -> String {
    if names.is_empty() { "there is none".to_owned() } else { format!("there are: {}", names.join(", ")) }
}
