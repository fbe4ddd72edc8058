//! A server's bytes as the load tester reads them. The first byte says how they are cut into reads, the second which replies answer a
//! HEAD.
#![no_main]

#[path = "../../crates/loadtest/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [cut, heads, stream @ ..] = bytes else { return };
    fuzz_check::check_replies(stream, &[usize::from(*cut % 16) + 1, usize::from(*cut / 16) + 1], *heads);
});
