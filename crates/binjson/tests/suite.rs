//! The tests of `binjson`, one subject per file, linked as one program, as linking one for each took most of the time. Tests
//! that observe the whole process are separate programs (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod fuzz_check;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;
mod support;

mod categories;
mod damage;
mod fuzz_documents;
mod marks;
mod patches;
mod refusals;
mod replies;
mod round_trip;
