//! Failures of requests: their kinds, the one table from kinds to statuses, and the failures that errors of the database become.
//!
//! The lowest room: it knows `docs` and `http`, and no other room.

pub(crate) mod refusal;
mod status;

pub use status::{ErrorRules, Failure, FailureKind, PROBLEM, problem};
