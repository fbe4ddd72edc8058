//! The tests of `reactor`, one subject a file, in one program: linking one program for each took most of the time. Tests that
//! measure the whole process stand alone (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod harness;

mod backpressure;
mod broken;
mod closing;
mod completions;
mod connecting;
mod drain;
mod echo;
mod fairness;
mod files;
mod hoarders;
mod listening;
mod looking_ahead;
mod mailbox;
mod neighbours;
mod relay;
mod signals;
mod states;
mod timers;
mod tls;
