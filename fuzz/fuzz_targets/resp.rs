//! A connection's bytes as requests and as replies; the first byte says how they are cut into reads.
#![no_main]

#[path = "../../crates/resp/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else { return };
    let cuts = [usize::from(*cut % 16) + 1, usize::from(*cut / 16) + 1];
    fuzz_check::check_requests(stream, &cuts);
    fuzz_check::check_replies(stream, &cuts);
});
