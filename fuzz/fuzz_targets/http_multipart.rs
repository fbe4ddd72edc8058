//! A multipart form, whose first byte says how it is cut into pieces.
#![no_main]

#[path = "../../crates/http/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((piece, body)) = bytes.split_first() else { return };
    fuzz_check::check_multipart(body, usize::from(*piece % 32) + 1);
});
