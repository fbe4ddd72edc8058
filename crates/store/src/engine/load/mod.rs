//! Loads past the log: bulk builds and their attachment, and transactions of any size.
//!
//! One meta page makes each of them visible. It imports `engine::write`, `engine::checkpoint` and `engine::read`. It
//! must not know recovery or readers of changes.

mod attach;
pub(crate) mod bulk;
pub(crate) mod claims;
pub(crate) mod large;
mod large_commit;
