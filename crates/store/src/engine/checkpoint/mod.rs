//! Checkpoints and their budget: when a memtable is merged into the tree, in which pieces, at which write rate, and how
//! much disk space is reserved for it beforehand.
//!
//! [`checkpointer`] drives a checkpoint. [`pieces`], [`pace`], [`throttle`] and [`disk_space`] are its budget of keys, bytes a
//! second, waiting writers and pages. It imports `engine::read`, `tree`, `memtable` and `log`. It must not know
//! transactions or the writer's state, which it reaches only through methods of the engine.

pub(super) mod checkpointer;
pub(super) mod damage_stop;
pub(super) mod deleted_files;
pub(super) mod disk_space;
pub(super) mod need;
pub(crate) mod pace;
pub(super) mod pieces;
mod retries;
pub(super) mod throttle;
