//! The tests of `binjson`, one subject a file, in one program: to link one for each took most of the time.
//! What looks at the whole process stands alone (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod fuzz_check;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;
mod support;

mod categories;
mod damage;
mod fuzz_documents;
mod imports;
mod marks;
mod patches;
mod refusals;
mod replies;
mod round_trip;
