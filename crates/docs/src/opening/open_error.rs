//! Why a database could not be opened, or data from a file not be imported.

use std::fmt;

use super::differences::Differences;
use crate::config::Mistakes;
use crate::engine;
use crate::error::ReadError;

/// Names listed in the text of an error; further ones are only counted.
const NAMES_LISTED_MAX: usize = 20;

/// Why a database could not be opened, or an import failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatabaseOpenError {
    /// The configuration file is wrong.
    Config(Mistakes),
    /// The data in the directory does not fit the configuration; the text names the difference and the remedy.
    Mismatch(String),
    /// The directory belongs to another service: none of its collections is declared.
    OtherService {
        /** The collections in the directory. */
        held: CollectionNames,
        /** The collections of the configuration. */
        declared: CollectionNames,
    },
    /// The configuration would drop these parts of the directory, which [`crate::config::Config::may_drop`] does not permit.
    WouldDrop(Differences),
    /// Stored data cannot be read.
    Read(ReadError),
    /// The engine reported an error.
    Store(engine::StoreError),
}

/// Names of collections for the text of an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectionNames {
    /// The first ones.
    pub list: Vec<String>,
    /// The number of further ones.
    pub more: usize,
}

impl CollectionNames {
    pub(crate) fn of(names: &[&str]) -> CollectionNames {
        let list: Vec<String> = names.iter().take(NAMES_LISTED_MAX).map(|name| (*name).to_string()).collect();
        CollectionNames { more: names.len() - list.len(), list }
    }
}

impl fmt::Display for CollectionNames {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.list[..] {
            [] => return out.write_str("no collection"),
            [one] => return write!(out, "the collection {one}"),
            several => write!(out, "the collections {}", several.join(", "))?,
        }
        if self.more > 0 { write!(out, " and {} more", self.more) } else { Ok(()) }
    }
}

impl From<engine::StoreError> for DatabaseOpenError {
    fn from(error: engine::StoreError) -> Self {
        DatabaseOpenError::Store(error)
    }
}

impl From<ReadError> for DatabaseOpenError {
    fn from(error: ReadError) -> Self {
        DatabaseOpenError::Read(error)
    }
}

impl From<Mistakes> for DatabaseOpenError {
    fn from(mistakes: Mistakes) -> Self {
        DatabaseOpenError::Config(mistakes)
    }
}

impl fmt::Display for DatabaseOpenError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseOpenError::Config(mistakes) => mistakes.fmt(out),
            DatabaseOpenError::Mismatch(what) => out.write_str(what),
            DatabaseOpenError::OtherService { held, declared } => write!(
                out,
                "the folder belongs to another service: it holds {held}, and the configuration declares {declared}"
            ),
            DatabaseOpenError::WouldDrop(lost) => {
                write!(out, "the configuration no longer declares what the folder holds. This would be dropped: {lost}")
            }
            DatabaseOpenError::Read(error) => error.fmt(out),
            DatabaseOpenError::Store(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for DatabaseOpenError {}
