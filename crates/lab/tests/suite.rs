//! All tests of the lab through its public interface, in one program.

#![allow(clippy::unwrap_used)] // An unwrapped error is a failed test.

mod arguments;
mod experiments;
mod serving;
