//! Cuts and edits in one pass, on trees of several levels, compared with a map; and how merges pack sparse trees.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::base::key::{Direction, KeyRange, TreeId, Version};
use crate::disk::MemoryDisk;
use crate::log::LogPosition;
use crate::tree::{TreeFile, TreeReport};

const TREE: TreeId = TreeId(1);
const LOG_START: LogPosition = LogPosition { segment: 1, offset: 4096, previous: 0, sequence: 1, epoch: 1 };

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
type Edits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The rounds and rows that Miri has time for.
const SEEDS: u64 = if cfg!(miri) { 1 } else { 40 };
const ROWS: u32 = if cfg!(miri) { 150 } else { 3000 };

struct Bench {
    file: TreeFile,
    map: Map,
}

impl Bench {
    fn new() -> Bench {
        let disk = MemoryDisk::new(if cfg!(miri) { 2 << 20 } else { 128 << 20 });
        TreeFile::create(&disk, "tree", Version(0), LOG_START).unwrap();
        let file = TreeFile::open(&disk, "tree", 1 << 30).unwrap().choose(0).unwrap();
        Bench { file, map: Map::new() }
    }

    fn merge(&mut self, cuts: &[(Vec<u8>, Option<Vec<u8>>)], edits: &Edits) {
        let mut writer = self.file.begin(Box::new(|_, _, _| Ok(()))).unwrap();
        let borrowed: Vec<_> = cuts.iter().map(|(from, to)| Cut { from, to: to.as_deref() }).collect();
        let changes = edits.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        writer.merge_with(TREE, &borrowed, changes).unwrap();
        writer.finish(Version(1), LOG_START).unwrap();
        for (from, to) in cuts {
            self.map.retain(|key, _| key < from || to.as_ref().is_some_and(|to| key >= to));
        }
        for (key, value) in edits {
            match value {
                Some(value) => drop(self.map.insert(key.clone(), value.clone())),
                None => drop(self.map.remove(key)),
            }
        }
    }

    /// The file has the map's content, and every page is where it belongs.
    #[track_caller]
    fn check(&self, seed: u64) -> TreeReport {
        let view = self.file.view();
        let mut expected = self.map.iter();
        let scanned = view.scan(TREE, KeyRange::ALL, Direction::Forward, &mut |key, value| {
            let next = expected.next().map(|(key, value)| (key.as_slice(), value.as_slice()));
            assert!(next == Some((key, value)), "seed {seed}, key {key:?}");
            ControlFlow::Continue(())
        });
        assert!(scanned.is_ok() && expected.next().is_none(), "seed {seed}");
        let report = view.verify();
        assert!(report.is_clean(), "seed {seed}: {:?}", report.faults);
        assert_eq!(view.entries(TREE), self.map.len() as u64, "seed {seed}");
        report
    }
}

/// Numbers below 4,096. Neighbours differ late, so separators are long, branches have few children, and trees many levels.
fn key(number: u32) -> Vec<u8> {
    let bit = |at: u32| [b'a' + (number >> at & 1) as u8; 12];
    (0..12).rev().flat_map(bit).collect()
}

fn value(random: &mut StdRng) -> Vec<u8> {
    let len = if random.random_ratio(1, 40) { random.random_range(1000..9000) } else { random.random_range(0..400) };
    vec![random.random(); len]
}

fn cuts(random: &mut StdRng) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let count = random.random_range(0..4);
    let mut ends: Vec<Vec<u8>> = (0..2 * count).map(|_| key(random.random_range(0..4000))).collect();
    if random.random_ratio(1, 8) {
        ends.push(Vec::new());
    }
    ends.sort();
    ends.dedup();
    ends.chunks(2).map(|ends| (ends[0].clone(), ends.get(1).cloned())).collect()
}

fn edits(random: &mut StdRng, most: u32) -> Edits {
    let count = random.random_range(0..most);
    let change = |random: &mut StdRng| random.random_ratio(2, 3).then(|| value(random));
    (0..count).map(|_| (key(random.random_range(0..4000)), change(random))).collect()
}

#[test]
fn cuts_and_edits_of_one_pass_leave_what_a_map_has_left() {
    for seed in 0..SEEDS {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bench = Bench::new();
        let all = (0..ROWS).map(|number| (key(4000 / ROWS * number), Some(value(&mut random)))).collect();
        bench.merge(&[], &all);
        assert!(bench.file.view().list().any(|info| info.depth >= 3) || cfg!(miri), "several levels of branches");
        for _ in 0..if cfg!(miri) { 2 } else { 6 } {
            let (cuts, edits) = (cuts(&mut random), edits(&mut random, ROWS / 10));
            bench.merge(&cuts, &edits);
            bench.check(seed);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of pages")]
fn what_is_cut_and_put_again_in_one_pass_takes_no_more_pages_than_anew() {
    let mut random = StdRng::seed_from_u64(7);
    let all: Edits = (0..3000).map(|number| (key(number), Some(value(&mut random)))).collect();
    let mut bench = Bench::new();
    bench.merge(&[], &all);
    let before = bench.check(7).trees[0].leaf_pages;
    bench.merge(&[(Vec::new(), None)], &all);
    assert_eq!(bench.check(7).trees[0].leaf_pages, before);
    bench.merge(&[(Vec::new(), None)], &Edits::new());
    let report = bench.check(7);
    assert!(report.trees.iter().all(|stat| stat.info.depth == 0 && stat.leaf_pages == 0), "{:?}", report.trees);
}

fn stat(report: &TreeReport) -> (f64, u32) {
    report.trees.iter().find(|stat| stat.info.tree == TREE).map_or((0.0, 0), |stat| (stat.fill(), stat.info.depth))
}

/// Deletes nine keys of ten in random order, `per_checkpoint` at a time; returns fill and depth of the rest.
fn thinned(per_checkpoint: usize, value_bytes: usize) -> ((f64, u32), (f64, u32)) {
    let mut random = StdRng::seed_from_u64(3);
    let mut bench = Bench::new();
    let numbers: Vec<u32> = (0..20_000).collect();
    let short = |number: u32| number.wrapping_mul(0x9e37_79b1).to_be_bytes().to_vec();
    bench.merge(&[], &numbers.iter().map(|number| (short(*number), Some(vec![1; value_bytes]))).collect());
    let full = stat(&bench.check(3));
    let mut gone: Vec<u32> = numbers.into_iter().filter(|number| number % 10 != 0).collect();
    for place in (1..gone.len()).rev() {
        gone.swap(place, random.random_range(0..=place));
    }
    for numbers in gone.chunks(per_checkpoint) {
        bench.merge(&[], &numbers.iter().map(|number| (short(*number), None)).collect());
    }
    let left = stat(&bench.check(3));
    let rest: Edits = bench.map.keys().map(|key| (key.clone(), None)).collect();
    bench.merge(&[], &rest);
    assert_eq!(stat(&bench.check(3)), (0.0, 0), "an empty tree has no page");
    assert_eq!(bench.file.view().root(TREE).page, PageNo::NONE);
    (full, left)
}

#[test]
#[cfg_attr(miri, ignore = "thousands of pages")]
fn leaves_that_deletions_empty_are_merged_with_their_neighbours() {
    for (per_checkpoint, value_bytes) in [(100, 100), (100, 400), (1000, 100), (20_000, 100), (20_000, 30)] {
        let ((_, depth_before), (fill, depth)) = thinned(per_checkpoint, value_bytes);
        assert!(fill >= 0.5, "fill {fill} of {per_checkpoint} deletions a checkpoint, values of {value_bytes}");
        assert!(depth <= depth_before);
    }
}

#[test]
#[cfg_attr(miri, ignore = "thousands of pages")]
fn a_tree_that_shrinks_loses_levels() {
    let mut bench = Bench::new();
    bench.merge(&[], &(0..4000).map(|number| (key(number), Some(vec![1; 300]))).collect());
    let (_, before) = stat(&bench.check(0));
    bench.merge(&[], &(0..4000).filter(|number| number % 500 != 0).map(|number| (key(number), None)).collect());
    let (fill, after) = stat(&bench.check(0));
    assert!(before >= 3 && after == 1 && fill >= 0.5, "depth {before}, then {after}; fill {fill}");
}
