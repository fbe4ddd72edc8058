//! A chunked body, whose first byte says how it is cut into pieces.
#![no_main]

#[path = "../../crates/http/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((piece, input)) = bytes.split_first() else { return };
    fuzz_check::check_chunks(input, usize::from(*piece % 16) + 1);
});
