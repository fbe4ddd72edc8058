//! Two stored documents, one as a patch of the other; the first byte says where the second begins.
#![no_main]

#[path = "../../crates/binjson/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cut, bytes)) = bytes.split_first() else { return };
    let (document, patch) = bytes.split_at(usize::from(*cut).min(bytes.len()));
    fuzz_check::check_stored(document, patch);
});
