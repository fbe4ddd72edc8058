//! Ordered transactional key-value engine: log, memtable, copy-on-write B+tree.
//!
//! Sketch of the public interface (settled for `docs`; the inside is this crate's).

mod api;
pub mod disk;
mod error;
pub mod log;
pub mod tree;

pub use api::{
    Abort, BulkTree, Commit, Direction, Durability, KeyRange, Options, Reader, Recovery, Snapshot, Store, Submit,
    Transaction, TreeId, Tx, Version,
};
pub use error::Error;
