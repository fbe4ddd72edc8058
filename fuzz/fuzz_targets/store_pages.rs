//! Changes of a good tree file in place, checksums made right again: page, offset (two bytes), value (two bytes).
#![no_main]

use std::fs;
use std::sync::LazyLock;

use tempfile::TempDir;

#[path = "../../crates/store/tests/fuzz_check/mod.rs"]
mod fuzz_check;

static GOOD: LazyLock<(TempDir, Vec<u8>)> = LazyLock::new(|| {
    let directory = fuzz_check::folder();
    fuzz_check::write_tree(directory.path());
    let bytes = fs::read(directory.path().join(fuzz_check::TREE_NAME)).expect("the tree file");
    (directory, bytes)
});

libfuzzer_sys::fuzz_target!(|patches: Vec<(u8, u16, u16)>| {
    let (directory, good) = &*GOOD;
    let mut bytes = good.clone();
    let pages = (bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) / 4096 + 1).max(1);
    for (page, at, value) in patches.into_iter().take(16) {
        let at = usize::from(page) % pages * 4096 + usize::from(at) % 4095;
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    fuzz_check::reseal_pages(&mut bytes);
    fuzz_check::check_tree(directory.path(), &bytes);
});
