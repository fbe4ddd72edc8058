//! The tests of `server`, one subject a file, in one program: linking one program for each took most of the time. Tests that
//! measure the whole process stand alone (`Cargo.toml`).
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod fuzz_check;
mod harness;
#[path = "../../../fuzz/mutation.rs"]
mod mutation;

mod access;
mod backup;
mod browser;
mod bulk;
mod callers;
mod changes;
mod cold_reads;
mod conditional;
mod crowded;
mod damaged_pages;
mod dashboard;
mod declared;
mod documentation;
mod expiry;
mod files;
mod flowing;
mod fuzz_config;
mod general;
mod guards;
mod large;
mod large_writes;
mod metrics;
mod mistakes;
mod openapi;
mod pages;
mod path_types;
mod reload;
mod schema;
mod settings;
mod shop;
mod sql_writes;
mod system_calls;
mod tls;
mod tokens;
mod views;
