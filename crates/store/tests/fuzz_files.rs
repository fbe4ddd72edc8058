//! Mutated log segments and tree files: recovery yields an earlier state or an error with its place, and content with a
//! valid checksum is not trusted either.

use std::cell::Cell;
use std::fs;

use crate::fuzz_check::{
    LOG_NAME, TREE_NAME, check_log, check_tree, folder, reseal_log, reseal_pages, write_store, write_tree,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tempfile::TempDir;

/// A change in place: formats with fixed offsets are reached by these, not by insertions.
#[derive(Clone, Copy, Debug)]
struct Patch {
    block: u16,
    /// Small numbers are likely: headers are at the start of a block.
    at: u16,
    value: u64,
    kind: u8,
}

fn patches() -> impl Strategy<Value = Vec<Patch>> {
    let at = prop_oneof![3 => 0u16..112, 1 => 0u16..4096];
    let value =
        prop_oneof![Just(0u64), Just(1), Just(u64::MAX), Just(0x7fff_ffff), Just(4096), 0u64..300, any::<u64>()];
    let patch = (any::<u16>(), at, value, 0u8..8).prop_map(|(block, at, value, kind)| Patch { block, at, value, kind });
    prop::collection::vec(patch, 1..5)
}

fn patched(good: &[u8], blocks: usize, patches: &[Patch]) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for patch in patches {
        let block = usize::from(patch.block) % blocks * 4096;
        let from = (patch.value as usize % blocks * 4096).min(bytes.len() - 4096);
        let width = [1, 2, 4, 8][usize::from(patch.kind) % 4];
        match patch.kind {
            0..=4 => {
                let at = (block + usize::from(patch.at)).min(bytes.len() - width);
                bytes[at..at + width].copy_from_slice(&patch.value.to_le_bytes()[..width]);
            }
            5 => bytes.copy_within(from..from + 4096, block),
            6 => bytes[block + usize::from(patch.at)..block + 4096].fill(0),
            _ => bytes[block + usize::from(patch.at)] ^= 1 << (patch.value % 8),
        }
    }
    bytes
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() })
}

fn copy(from: &TempDir) -> TempDir {
    let to = folder();
    for entry in fs::read_dir(from.path()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

#[test]
fn a_changed_log_gives_a_state_that_once_was_or_tells_its_damage() {
    let good = folder();
    let states = write_store(good.path());
    let log = fs::read(good.path().join(LOG_NAME)).unwrap();
    let opened = [Cell::new(0), Cell::new(0)];
    let run = runner(200).run(&(patches(), any::<bool>()), |(patches, is_resealed)| {
        let directory = copy(&good);
        let mut bytes = patched(&log, 12, &patches);
        if is_resealed {
            reseal_log(&mut bytes);
        }
        let count = &opened[usize::from(is_resealed)];
        count.set(count.get() + u32::from(check_log(directory.path(), &bytes, &states, is_resealed)));
        Ok(())
    });
    run.unwrap();
    assert!(opened.iter().all(|count| count.get() > 2), "few mutations reach recovery: {opened:?}");
}

#[test]
fn a_changed_tree_file_behind_right_checksums_is_never_trusted() {
    let good = folder();
    write_tree(good.path());
    let file = fs::read(good.path().join(TREE_NAME)).unwrap();
    let blocks = file.iter().rposition(|byte| *byte != 0).unwrap() / 4096 + 1;
    let directory = copy(&good);
    let opened = Cell::new(0);
    let run = runner(1500).run(&patches(), |patches| {
        let mut bytes = patched(&file, blocks, &patches);
        reseal_pages(&mut bytes);
        opened.set(opened.get() + u32::from(check_tree(directory.path(), &bytes)));
        Ok(())
    });
    run.unwrap();
    assert!(opened.get() > 500, "few mutations reach the pages: {opened:?}");
}
