//! Why a database could not be opened, or what comes to it from a file not be taken.

use std::fmt;

use crate::config::Mistakes;
use crate::error::ReadError;

/// Why a database could not be opened, or an import not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration file is wrong.
    Config(Mistakes),
    /// The data in the directory does not fit the configuration: what, and what to do.
    Mismatch(String),
    /// Stored data cannot be read.
    Read(ReadError),
    /// The engine says no.
    Store(store::Error),
}

impl From<store::Error> for OpenError {
    fn from(error: store::Error) -> Self {
        OpenError::Store(error)
    }
}

impl From<ReadError> for OpenError {
    fn from(error: ReadError) -> Self {
        OpenError::Read(error)
    }
}

impl From<Mistakes> for OpenError {
    fn from(mistakes: Mistakes) -> Self {
        OpenError::Config(mistakes)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Config(mistakes) => mistakes.fmt(out),
            OpenError::Mismatch(what) => out.write_str(what),
            OpenError::Read(error) => error.fmt(out),
            OpenError::Store(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for OpenError {}
