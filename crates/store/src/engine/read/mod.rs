//! Reads of the newest state: memtables over the tree, at one version.
//!
//! Here are views and their generations, snapshots with their caches, reads past the page cache, and the names of
//! trees. It imports `tree`, `memtable` and `base`. It must not know transactions or checkpoints.

pub(crate) mod across;
pub(crate) mod catalog;
mod changes;
pub(crate) mod direct;
pub(crate) mod entries;
mod merge;
pub(super) mod pin;
pub(crate) mod places;
mod sink;
pub(crate) mod snapshot;
pub(crate) mod view;
