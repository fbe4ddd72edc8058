//! One adapter for each engine.

pub(crate) mod fjall;
pub(crate) mod lmdb;
pub(crate) mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocks;
pub(crate) mod sapsan;
pub(crate) mod sqlite;

use crate::engine::{Engine, Kind, Outcome, Purpose};
use sapsan::Sapsan;
use std::any::Any;
use std::path::Path;

/// Opens or creates a database in a folder.
pub(crate) fn open(kind: Kind, folder: &Path, purpose: Purpose) -> Outcome<Box<dyn Engine>> {
    std::fs::create_dir_all(folder)?;
    let shape = purpose.shape;
    Ok(match kind {
        Kind::Store => Box::new(sapsan::Sapsan::open(folder, purpose)?),
        Kind::Lmdb => Box::new(lmdb::Lmdb::open(folder, shape)?),
        Kind::Redb => Box::new(redb::Redb::open(folder, shape)?),
        Kind::Fjall => Box::new(fjall::Fjall::open(folder, shape)?),
        #[cfg(feature = "rocksdb")]
        Kind::RocksDb => Box::new(rocks::Rocks::open(folder, shape)?),
        #[cfg(not(feature = "rocksdb"))]
        Kind::RocksDb => return Err("built without RocksDB: `--features rocksdb`".into()),
        Kind::Sqlite => Box::new(sqlite::Sqlite::open(folder, shape)?),
    })
}

impl dyn Engine {
    /// Ours alone: it has doors that no peer has.
    pub(crate) fn as_store(&self) -> Option<&Sapsan> {
        let any: &dyn Any = self;
        any.downcast_ref()
    }
}
