//! A configuration file.
#![no_main]

#[path = "../../crates/server/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|text: &str| {
    fuzz_check::check_config(text);
});
