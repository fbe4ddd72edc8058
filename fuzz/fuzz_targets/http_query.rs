//! A query or form.
#![no_main]

#[path = "../../crates/http/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|query: &str| fuzz_check::check_query(query));
