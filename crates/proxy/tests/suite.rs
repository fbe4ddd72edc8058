//! Tests of the proxy through its public door and through real servers.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod nodes;
mod placement;
mod reshard;
