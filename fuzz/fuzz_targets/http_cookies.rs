//! A `Cookie` field.
#![no_main]

#[path = "../../crates/http/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|field: &[u8]| fuzz_check::check_cookies(field));
