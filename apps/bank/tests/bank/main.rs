//! The bank through its public interface: both ledgers compared with a slow model, the commands, the pages through real sockets,
//! kill -9, and a browser.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod browser;
mod commands;
mod crash;
mod ledgers;
mod model;
mod pages;
#[path = "../../../../crates/resp/tests/redis_server/mod.rs"]
#[allow(dead_code, reason = "the tests of the Redis client use all of it")]
mod redis_server;
mod server;
mod visitor;
