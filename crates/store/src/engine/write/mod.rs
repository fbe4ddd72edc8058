//! The way of a transaction: prepared, queued, validated, placed into a batch, logged, acknowledged.
//!
//! Here are also its folds and the rows derived from them. It imports `engine::read`, the budget in
//! `engine::checkpoint`, `log` and `memtable`. It must not know bulk loads, recovery or readers of changes.

pub(super) mod changes;
pub(super) mod commit;
mod decision;
pub(crate) mod fold;
pub(super) mod fold_results;
mod foresee;
mod freeze;
pub(crate) mod gathering;
mod new_tree;
pub(in crate::engine) mod overlay;
pub(super) mod queue;
mod reads;
pub(crate) mod request;
pub(super) mod ticket;
pub(crate) mod transaction;
pub(super) mod weight;
pub(super) mod writer;
