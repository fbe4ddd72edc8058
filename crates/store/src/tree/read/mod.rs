//! Reading of trees: a view of one state, lookups, readers of entries, and estimates.
//!
//! It imports `tree::state` and `tree::format`. It must not know how pages are written.

pub(super) mod catalog;
pub(super) mod direct;
pub(super) mod entries;
mod portions;
mod residency;
pub(super) mod view;
pub(super) mod walk;
pub(super) mod whole;
