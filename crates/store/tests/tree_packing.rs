//! How full leaves are after scattered changes, and the writes that filling them costs.

use std::collections::BTreeMap;

use crate::tree_file::{no_pace, open};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::log::LogPosition;
use store::tree::TreeFile;
use store::{TreeId, Version};

const TREE: TreeId = TreeId(0);
const VALUE: [u8; 400] = [7; 400];

fn put(file: &TreeFile, keys: impl IntoIterator<Item = u64>) {
    let edits: BTreeMap<_, _> = keys.into_iter().map(|key| (key.to_be_bytes(), VALUE)).collect();
    let mut writer = file.begin(no_pace()).unwrap();
    writer.merge(TREE, edits.iter().map(|(key, value)| (&key[..], Some(&value[..])))).unwrap();
    writer.finish(Version(1), LogPosition::default()).unwrap();
}

/// Number of pages that the newest view reaches and the previous one did not.
fn written(file: &TreeFile, change: impl FnOnce()) -> u64 {
    let before = file.space_stat();
    change();
    let after = file.space_stat();
    // The waiting pages are those that the last change freed: as many as it wrote, except for the growth of the trees.
    after.waiting + after.live - before.live
}

/// Inserts this many random keys, `step` at a time; returns the used share of the leaves' bytes.
fn fill_after_random_inserts(keys: u64, step: usize) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..keys / step as u64 {
        put(&file, (0..step).map(|_| rng.random::<u64>()));
    }
    let report = file.view().verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    report.trees[0].fill()
}

#[test]
fn random_inserts_leave_leaves_nearly_full() {
    // Nine of these entries fill a leaf to 0.91.
    let (few, many) = (fill_after_random_inserts(20_000, 400), fill_after_random_inserts(20_000, 2_000));
    assert!(few > 0.78 && many > 0.8, "{few} {many}");
}

#[test]
fn keys_in_rising_order_leave_full_leaves() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    for step in 0..100u64 {
        put(&file, step * 50..(step + 1) * 50);
    }
    let fill = file.view().verify().trees[0].fill();
    assert!(fill > 0.9, "{fill}");
}

#[test]
fn an_update_of_full_leaves_writes_no_neighbour() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    put(&file, 0..9000);
    let before = file.view().verify().trees[0].clone();
    put(&file, [0]);
    // Every hundredth leaf, its branches, the catalog and the space map, and those of the previous update.
    let pages = written(&file, || put(&file, (0..10).map(|number| 900 * number + 5)));
    assert!((10..28).contains(&pages), "{pages}");
    assert_eq!(file.view().verify().trees[0].leaf_pages, before.leaf_pages);
}
