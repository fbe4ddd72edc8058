//! All tests of the lab through its public door, in one program.

#![allow(clippy::unwrap_used)] // A test that unwraps an error has failed, which is what it is for.

mod arguments;
mod experiments;
mod serving;
