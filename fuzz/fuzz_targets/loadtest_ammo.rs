//! Ammo of the load tester, in every format.
#![no_main]

#[path = "../../crates/loadtest/tests/fuzz_check_ammo/mod.rs"]
mod fuzz_check_ammo;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz_check_ammo::check_ammo(bytes);
});
