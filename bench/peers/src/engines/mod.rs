//! One adapter for each engine.

pub(crate) mod fjall;
pub(crate) mod lmdb;
pub(crate) mod redb;
#[cfg(feature = "rocksdb")]
pub(crate) mod rocks;
pub(crate) mod sapsan;
pub(crate) mod sqlite;
