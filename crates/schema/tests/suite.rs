//! The tests of `schema`, one subject per file, linked as one program.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod hostile_schemas;

mod bounds;
mod checkers;
mod formats;
mod lints;
mod looser;
mod memory;
mod patterns;
mod types;
