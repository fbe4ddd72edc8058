//! A text as a document, and as a file that arrives in pieces.
#![no_main]

#[path = "../../crates/binjson/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|text: &[u8]| {
    fuzz_check::check_text(text);
    fuzz_check::check_pieces(text);
});
