//! A connection's bytes, the first of which says how they are cut into reads.
#![no_main]

#[path = "../../crates/http/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else { return };
    fuzz_check::check_stream(stream, &[usize::from(*cut % 64) + 1]);
});
