//! The tests of `executor`, one subject per file, in one program.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod models;
mod pool;
mod two_lines;
