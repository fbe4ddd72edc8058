//! Answers of the load tester, and bodies that are compared: the input is cut in two at the middle.
#![no_main]

#[path = "../../crates/loadtest/tests/fuzz_check_ammo/mod.rs"]
mod fuzz_check_ammo;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz_check_ammo::check_answers(bytes);
    let (one, other) = bytes.split_at(bytes.len() / 2);
    fuzz_check_ammo::check_bodies(one, other);
});
