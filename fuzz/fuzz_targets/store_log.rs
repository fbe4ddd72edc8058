//! Changes of a good log segment in place, checksums made right again: block, offset (two bytes), value (four bytes).
#![no_main]

use std::fs;

#[path = "../../crates/store/tests/fuzz_check/mod.rs"]
mod fuzz_check;

libfuzzer_sys::fuzz_target!(|patches: Vec<(u8, u16, u32)>| {
    // The store's own files are written anew each time: recovery changes them.
    let directory = fuzz_check::folder();
    let states = fuzz_check::write_store(directory.path());
    let mut bytes = fs::read(directory.path().join(fuzz_check::LOG_NAME)).expect("the segment");
    for (block, at, value) in patches.into_iter().take(16) {
        let at = usize::from(block) % 12 * 4096 + usize::from(at) % 4093;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    fuzz_check::reseal_log(&mut bytes);
    fuzz_check::check_log(directory.path(), &bytes, &states, true);
});
