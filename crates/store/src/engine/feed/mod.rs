//! Readers of changes: all transactions since a version, from the log, and their wake-up by the next commit.
//!
//! It imports `log` and `base`. It must not know how transactions are prepared or merged.

pub(super) mod alarm;
pub(crate) mod reader;
