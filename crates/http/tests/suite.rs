//! The tests of `http`, one subject a file, in one program: linking one program for each took most of the time. Tests that
//! measure the whole process stand alone (`Cargo.toml`).

mod fuzz_check;
mod harness;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

mod abuse;
mod closing;
mod crowded;
mod deadlines;
mod files;
mod forwarded;
mod fuzz_requests;
mod heavy;
mod hoarders;
mod in_pieces;
mod parts;
mod pipelining;
mod streaming;
