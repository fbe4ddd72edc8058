//! Errors of the database, sorted by what the caller can do.

use crate::reply::Error;
use docs::config::Mistakes;
use docs::engine::{self, Classified, ErrorKind};
use docs::sql::{QueryError, SqlError};
use docs::{ReadError, WriteError};
use http::Status;
use std::fmt;
use std::path::PathBuf;

/// Why a database cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration file cannot be read.
    File {
        /// The file.
        file: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The configuration has mistakes.
    Config(Mistakes),
    /// The folder does not fit the configuration, or cannot be read.
    Folder(docs::DatabaseOpenError),
    /// The system refuses the expiry thread.
    Thread(std::io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::File { file, source } => write!(f, "cannot read {}: {source}", file.display()),
            OpenError::Config(mistakes) => mistakes.fmt(f),
            OpenError::Folder(error) => error.fmt(f),
            OpenError::Thread(error) => write!(f, "cannot start a thread of the database: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<docs::DatabaseOpenError> for OpenError {
    fn from(error: docs::DatabaseOpenError) -> OpenError {
        OpenError::Folder(error)
    }
}

/// Why a read or a transaction failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatabaseError {
    /// A mistake of the program: the database has no such collection, statement or parameter.
    Usage(String),
    /// A document or row does not fit its Rust type.
    Type(serde_json::Error),
    /// A write was refused, or a transaction failed: see [`WriteError`] for what the caller can do.
    Write(WriteError),
    /// A query failed.
    Query(QueryError),
    /// Stored data could not be read.
    Read(ReadError),
    /// All readers are in use.
    Busy,
}

impl DatabaseError {
    /// An error by which a transaction aborts itself: what it read forbids the change. As a reply it is 409.
    pub fn conflict(what: impl Into<String>) -> DatabaseError {
        DatabaseError::Write(WriteError::Conflict { what: what.into() })
    }

    /// Whether the call may be repeated: nothing was changed.
    pub fn is_busy(&self) -> bool {
        matches!(self, DatabaseError::Busy | DatabaseError::Write(WriteError::Busy))
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseError::Usage(what) => f.write_str(what),
            DatabaseError::Type(error) => write!(f, "a document is not of the type asked for: {error}"),
            DatabaseError::Write(error) => error.fmt(f),
            DatabaseError::Query(error) => error.fmt(f),
            DatabaseError::Read(error) => error.fmt(f),
            DatabaseError::Busy => f.write_str("all readers of the database are in use"),
        }
    }
}

impl std::error::Error for DatabaseError {}

impl From<WriteError> for DatabaseError {
    fn from(error: WriteError) -> DatabaseError {
        DatabaseError::Write(error)
    }
}

impl From<QueryError> for DatabaseError {
    fn from(error: QueryError) -> DatabaseError {
        DatabaseError::Query(error)
    }
}

impl From<SqlError> for DatabaseError {
    fn from(error: SqlError) -> DatabaseError {
        DatabaseError::Usage(format!("a statement: {error}"))
    }
}

impl From<ReadError> for DatabaseError {
    fn from(error: ReadError) -> DatabaseError {
        DatabaseError::Read(error)
    }
}

impl From<engine::StoreError> for DatabaseError {
    fn from(error: engine::StoreError) -> DatabaseError {
        match error.kind() {
            ErrorKind::Busy => DatabaseError::Busy,
            _ => DatabaseError::Read(ReadError::Store(error)),
        }
    }
}

impl From<serde_json::Error> for DatabaseError {
    fn from(error: serde_json::Error) -> DatabaseError {
        DatabaseError::Type(error)
    }
}

/// Errors that the client can correct, and overload, get statuses of their own; all others are internal.
impl From<DatabaseError> for Error {
    fn from(error: DatabaseError) -> Error {
        match error {
            DatabaseError::Write(error) => of_write(error),
            DatabaseError::Query(QueryError::Limit { .. } | QueryError::Deadline) => Error::busy("").with_cause(error),
            DatabaseError::Busy => Error::busy("too many requests read the database"),
            error => Error::internal(error),
        }
    }
}

fn of_write(error: WriteError) -> Error {
    match error {
        WriteError::NotFound => Error::not_found(),
        WriteError::PreconditionFailed => Error::new(Status(412), error.to_string()),
        WriteError::Invalid { why, pointer } if pointer.is_empty() => Error::new(Status(422), why),
        WriteError::Invalid { why, pointer } => Error::new(Status(422), format!("{pointer}: {why}")),
        WriteError::Conflict { what } => Error::conflict(what),
        WriteError::TooLarge { .. } => Error::new(Status(413), error.to_string()),
        WriteError::Busy => Error::busy("too many writes wait"),
        error => Error::internal(error),
    }
}
