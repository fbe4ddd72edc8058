//! The tree file compared with a `BTreeMap`: the same random changes to both, then every way of reading must agree.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::SystemDisk;
use store::log::LogPosition;
use store::tree::{TreeFile, TreeView};
use store::{Direction, Entry, KeyRange, TreeId, Version};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Edits = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

const TREE: TreeId = TreeId(3);
const MAP_BYTES: u64 = 1 << 36;
const NAME: &str = "trees";

struct Bed {
    _directory: tempfile::TempDir,
    disk: SystemDisk,
    file: Option<TreeFile>,
    model: Model,
    commits: u64,
}

impl Bed {
    fn new() -> Bed {
        let directory = tempfile::tempdir().unwrap();
        let disk = SystemDisk::new(directory.path()).unwrap();
        TreeFile::create(&disk, NAME, Version(0), LogPosition::default()).unwrap();
        let mut bed = Bed { _directory: directory, disk, file: None, model: Model::new(), commits: 0 };
        bed.reopen();
        bed
    }

    fn file(&self) -> &TreeFile {
        self.file.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        self.file = None;
        self.file = Some(TreeFile::open(&self.disk, NAME, MAP_BYTES).unwrap().choose(0).unwrap());
    }

    /// Within one checkpoint: keys are added to the range, then the whole range is deleted.
    fn delete_range(&mut self, from: Vec<u8>, to: Option<Vec<u8>>) -> Arc<TreeView> {
        let (from, to) = match to {
            Some(to) if to < from => (to, Some(from)),
            to => (from, to),
        };
        self.commits += 1;
        let mut writer = self.file().begin(Box::new(|_, _, _| Ok(()))).unwrap();
        writer.merge(TREE, [(from.as_slice(), Some(&[1; 7000][..]))]).unwrap();
        writer.delete_range(TREE, &from, to.as_deref()).unwrap();
        let view = writer.finish(Version(self.commits), LogPosition::default()).unwrap();
        let is_empty = to.as_ref() == Some(&from);
        if is_empty {
            self.model.insert(from.clone(), vec![1; 7000]);
        }
        self.model.retain(|key, _| *key < from || to.as_ref().is_some_and(|to| key >= to));
        view
    }

    fn merge(&mut self, edits: &Edits) -> Arc<TreeView> {
        self.commits += 1;
        let mut writer = self.file().begin(Box::new(|_, _, _| Ok(()))).unwrap();
        writer.merge(TREE, edits.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))).unwrap();
        let version = Version(self.commits);
        let view = writer.finish(version, LogPosition { segment: self.commits, ..LogPosition::default() }).unwrap();
        for (key, value) in edits {
            match value {
                Some(value) => self.model.insert(key.clone(), value.clone()),
                None => self.model.remove(key),
            };
        }
        view
    }
}

#[track_caller]
fn check_view(view: &TreeView, model: &Model) {
    let report = view.verify();
    assert!(report.is_clean(), "{:?}", &report.faults[..report.faults.len().min(5)]);
    assert_eq!(view.entries(TREE), model.len() as u64);
    let mut expected: Vec<Entry> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        assert!(scanned(view, KeyRange::ALL, direction, usize::MAX) == expected, "{direction:?}");
        expected.reverse();
    }
}

/// The first entries of a range in this direction.
fn scanned(view: &TreeView, range: KeyRange<'_>, direction: Direction, most: usize) -> Vec<Entry> {
    let mut found = Vec::new();
    view.scan(TREE, range, direction, &mut |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .unwrap();
    found
}

/// Reads by key, and scans from bounds on and beside keys.
#[track_caller]
fn check_bounds(view: &TreeView, model: &Model, probes: impl Iterator<Item = Vec<u8>>) {
    for key in probes {
        assert_eq!(view.get(TREE, &key).unwrap(), model.get(&key).map(Vec::as_slice));
        let probe = key.as_slice();
        for bound in [Bound::Included(probe), Bound::Excluded(probe)] {
            let above = KeyRange { from: bound, to: Bound::Unbounded };
            let expected = model.range::<[u8], _>((bound, Bound::Unbounded)).take(3);
            let expected: Vec<Entry> = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(scanned(view, above, Direction::Forward, 3), expected, "from {bound:?}");
            let below = KeyRange { from: Bound::Unbounded, to: bound };
            let expected = model.range::<[u8], _>((Bound::Unbounded, bound)).rev().take(3);
            let expected: Vec<Entry> = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
            assert_eq!(scanned(view, below, Direction::Backward, 3), expected, "down from {bound:?}");
        }
    }
}

#[derive(Clone, Copy)]
enum Keys {
    /// 8 bytes, big-endian, this many different ones.
    Numbers(u64),
    /// 0 to 40 bytes out of {0, 1, 'a'}: many prefixes and zeros.
    Knotty,
    /// A long common start, a number, sometimes a long end.
    Prefixed,
}

fn key(keys: Keys, rng: &mut SmallRng) -> Vec<u8> {
    match keys {
        Keys::Numbers(count) => (rng.random_range(0..count) * 0x9e37_79b9).to_be_bytes().to_vec(),
        Keys::Knotty => {
            let end = if rng.random_ratio(1, 10) { 40 } else { 12 };
            let len = rng.random_range(0..end);
            (0..len).map(|_| [0, 0, 1, b'a'][rng.random_range(0..4)]).collect()
        }
        Keys::Prefixed => {
            let mut key = vec![b'p'; 50];
            key.extend_from_slice(&rng.random_range(0..3000u32).to_be_bytes());
            key.resize(key.len() + [0, 3, 30, 960][rng.random_range(0..4)], 1);
            key.truncate(1024);
            key
        }
    }
}

fn value(rng: &mut SmallRng) -> Vec<u8> {
    let len = match rng.random_range(0..100) {
        0 => rng.random_range(1024..30_000),
        1..10 => rng.random_range(500..1100),
        _ => rng.random_range(0..300),
    };
    vec![rng.random(); len]
}

#[track_caller]
fn check_random_merges(seed: u64, keys: Keys, rounds: usize, edits_max: usize) {
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut bed = Bed::new();
    for round in 0..rounds {
        // Phases of growth and of shrinking, so that pages split and merge.
        let deletes = if round % 8 < 4 { 10 } else { 75 };
        let count = rng.random_range(1..=edits_max);
        let edits: Edits = (0..count)
            .map(|_| {
                let is_delete = rng.random_ratio(deletes, 100);
                let key = match bed.model.range(key(keys, &mut rng)..).next() {
                    Some((key, _)) if is_delete => key.clone(),
                    _ => key(keys, &mut rng),
                };
                (key, (!is_delete).then(|| value(&mut rng)))
            })
            .collect();
        let view = bed.merge(&edits);
        check_view(&view, &bed.model);
        check_bounds(&view, &bed.model, (0..50).map(|_| key(keys, &mut rng)));
        if round % 4 == 3 {
            let view = bed.delete_range(key(keys, &mut rng), rng.random_ratio(3, 4).then(|| key(keys, &mut rng)));
            check_view(&view, &bed.model);
        }
        if round % 5 == 4 {
            bed.reopen();
            check_view(&bed.file().view(), &bed.model);
        }
    }
    let all: Edits = bed.model.keys().map(|key| (key.clone(), None)).collect();
    let view = bed.merge(&all);
    check_view(&view, &bed.model);
}

#[test]
fn small_merges_of_number_keys_agree_with_the_model() {
    check_random_merges(1, Keys::Numbers(5000), 150, 60);
}

#[test]
fn large_merges_of_number_keys_agree_with_the_model() {
    check_random_merges(2, Keys::Numbers(60_000), 16, 12_000);
}

#[test]
fn keys_that_are_prefixes_of_one_another_or_end_with_zeros_agree_with_the_model() {
    check_random_merges(3, Keys::Knotty, 150, 300);
}

#[test]
fn long_keys_with_a_common_start_agree_with_the_model() {
    check_random_merges(4, Keys::Prefixed, 80, 600);
}
