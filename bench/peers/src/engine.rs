//! What the comparison asks of an engine. One adapter each, in [`crate::engines`], with the settings that the engine's own
//! documentation advises for durable commits; each says which.

use crate::data::Shape;
use std::any::Any;

/// A measuring program ends at the first failure, so one kind of error does.
pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Bytes of cache that each engine with a cache of its own gets: all of a million documents fits.
pub(crate) const CACHE_BYTES: usize = 1 << 30;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This project's store.
    Store,
    /// LMDB, by heed.
    Lmdb,
    /// redb.
    Redb,
    /// fjall.
    Fjall,
    /// RocksDB.
    RocksDb,
    /// SQLite, by rusqlite.
    Sqlite,
}

impl Kind {
    /// All, ours first.
    pub(crate) const ALL: [Kind; 6] = [Kind::Store, Kind::Lmdb, Kind::Redb, Kind::Fjall, Kind::RocksDb, Kind::Sqlite];

    /// As the table names it and as `--engines` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Store => "store",
            Kind::Lmdb => "LMDB",
            Kind::Redb => "redb",
            Kind::Fjall => "fjall",
            Kind::RocksDb => "RocksDB",
            Kind::Sqlite => "SQLite",
        }
    }

    /// Whether its data lies in one B+tree file.
    pub(crate) fn is_tree(self) -> bool {
        matches!(self, Kind::Store | Kind::Lmdb | Kind::Redb | Kind::Sqlite)
    }
}

/// An open database of one engine.
pub(crate) trait Engine: Any + Send + Sync {
    /// Loads an empty database from records in the order of their keys; durable when it returns.
    fn load(&self, records: &mut dyn Iterator<Item = (&[u8], &[u8])>) -> Outcome<()>;

    /// A handle for one thread's commits.
    fn writer(&self) -> Outcome<Box<dyn Writer + '_>>;

    /// A handle for one thread's reads.
    fn reader(&self) -> Outcome<Box<dyn Reader + '_>>;

    /// Brings what is in memory or in a log to its resting place, as far as the engine can be asked to.
    fn settle(&self) -> Outcome<()>;
}

/// Commits of one thread.
pub(crate) trait Writer {
    /// Puts these records at this revision in one transaction, durable when it returns.
    fn commit(&mut self, numbers: &[u64], revision: u64) -> Outcome<()>;
}

/// Reads of one thread.
pub(crate) trait Reader {
    /// Reads these records in one snapshot and touches their documents; the sum keeps the compiler honest. A record that
    /// is not there is an error.
    fn read(&mut self, numbers: &[u64]) -> Outcome<u64>;

    /// Reads everything in key order; how many records.
    fn scan(&mut self) -> Outcome<u64>;
}

/// What a database is opened for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose {
    /// Which keys.
    pub(crate) shape: Shape,
    /// The store's memtable; peers take no notice.
    pub(crate) memtable_bytes: Option<usize>,
}

impl Purpose {
    /// Default settings.
    pub(crate) fn usual(shape: Shape) -> Purpose {
        Purpose { shape, memtable_bytes: None }
    }
}

/// A record that was loaded and is not found.
pub(crate) fn missing(number: u64) -> Box<dyn std::error::Error + Send + Sync> {
    format!("record {number} is missing").into()
}
