//! Tests of the proxy through its public door and through real servers.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod bounds;
mod cluster;
mod commands;
mod faults;
mod keys;
mod nodes;
mod own;
mod placement;
mod programs;
mod random;
mod reshard;
mod splits;
mod tls;
