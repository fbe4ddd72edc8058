//! Ordered transactional key-value engine: log, memtable, copy-on-write B+tree.
//!
//! Sketch of the public interface (settled for `docs`; the inside is this crate's).

mod api;
pub mod memtable;
pub mod readers;

pub use api::{
    Abort, BulkTree, Commit, Direction, Durability, Error, KeyRange, Options, Reader, Recovery, Snapshot, Store,
    Submit, Transaction, TreeId, Tx, Version,
};
