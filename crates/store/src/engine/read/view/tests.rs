//! Random histories over tree, frozen and active memtable, compared at each version with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::disk::MemoryDisk;
use crate::log::LogPosition;
use crate::memtable::MemtableWriter;
use crate::tree::TreeFile;

const TREE: TreeId = TreeId(1);
/// Enough keys for several leaves, and for runs of unchanged entries longer than those that a merge lists.
const KEYS: u8 = 120;
const LOG_START: LogPosition = LogPosition { segment: 1, offset: 4096, previous: 0, sequence: 1, epoch: 1 };

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, Option<u8>),
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// Most leaves hold about twenty.
fn value(version: u64) -> Vec<u8> {
    vec![version as u8; 3 + version as usize * 37 % 300]
}

fn apply_to_map(map: &mut Map, version: u64, step: &Step) {
    match step {
        Step::Put(key) => drop(map.insert(vec![*key], value(version))),
        Step::Delete(key) => drop(map.remove(&vec![*key])),
        Step::DeleteRange(from, to) => map.retain(|key, _| !(key[0] >= *from && to.is_none_or(|to| key[0] < to))),
    }
}

fn apply_to_table(table: &mut MemtableWriter, version: u64, step: &Step) {
    let at = Version(version);
    match step {
        Step::Put(key) => table.insert(at, TREE, &[*key], Some(&value(version))),
        Step::Delete(key) => table.insert(at, TREE, &[*key], None),
        Step::DeleteRange(from, to) => table.delete_range(at, TREE, &[*from], to.as_ref().map(std::slice::from_ref)),
    }
    .unwrap();
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0..KEYS, proptest::option::weighted(0.9, 1u8..12));
    prop_oneof![
        4 => (0..KEYS).prop_map(Step::Put),
        2 => (0..KEYS).prop_map(Step::Delete),
        1 => range.prop_map(|(from, len)| Step::DeleteRange(from, len.map(|len| from + len))),
    ]
}

/// Each step is read in every way. Half of the histories have no deleted ranges, which are scanned in parts.
fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let steps = proptest::collection::vec(step(), 0..if cfg!(miri) { 4 } else { most });
    (steps, proptest::bool::ANY).prop_map(|(mut steps, has_ranges)| {
        steps.retain(|step| has_ranges || !matches!(step, Step::DeleteRange(..)));
        steps
    })
}

/// The first steps of a tree: a key and a few after it, over and over, so that some leaves are full.
fn filled() -> impl Strategy<Value = Vec<Step>> {
    let runs = proptest::collection::vec((0..KEYS, 0u8..40), 0..if cfg!(miri) { 2 } else { 6 });
    let puts = |(from, count): (u8, u8)| (from..from.saturating_add(count).min(KEYS)).map(Step::Put);
    runs.prop_map(move |runs| runs.into_iter().flat_map(puts).collect())
}

fn bound() -> impl Strategy<Value = Bound<[u8; 1]>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0..KEYS + 2).prop_map(|key| Bound::Included([key])),
        (0..KEYS + 2).prop_map(|key| Bound::Excluded([key]))
    ]
}

/// A generation with the first steps in its tree, and the others in its memtables.
fn generation(file: &TreeFile, parts: &[Vec<Step>; 3]) -> Generation {
    let mut version = 0;
    let mut map = Map::new();
    for step in &parts[0] {
        version += 1;
        apply_to_map(&mut map, version, step);
    }
    let mut writer = file.begin(Box::new(|_, _, _| Ok(()))).unwrap();
    writer.merge(TREE, map.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice())))).unwrap();
    let tree = writer.finish(Version(version), LOG_START).unwrap();
    let mut table = |steps: &[Step]| {
        let (table, mut writer) = Memtable::new(1 << 20).unwrap();
        for step in steps {
            version += 1;
            apply_to_table(&mut writer, version, step);
        }
        table
    };
    let (frozen, active) = (Some(table(&parts[1])), table(&parts[2]));
    Generation { tree, frozen, active, least_version: 0, is_in_file: false }
}

fn check(view: View<'_>, map: &Map, range: KeyRange<'_>) -> Result<(), TestCaseError> {
    for key in 0..KEYS + 2 {
        let found = view.get(TREE, &[key]).unwrap();
        prop_assert_eq!(found.as_deref(), map.get(&vec![key]).map(Vec::as_slice), "{} as of {}", key, view.version);
    }
    let inside = map.iter().filter(|(key, _)| range.is_above_start(key) && range.is_below_end(key));
    let mut expected: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    for direction in [Direction::Forward, Direction::Backward] {
        for most in [1, 3, usize::MAX] {
            let mut found = Vec::new();
            view.scan(TREE, range, direction, &mut |key, value| {
                found.push((key.to_vec(), value.to_vec()));
                if found.len() == most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
            let (mut merged, mut key) = (Vec::new(), Vec::new());
            view.scan_leaves(None, TREE, range, direction, &mut |entries| {
                assert_ne!(entries.len(), 0);
                for number in 0..entries.len() {
                    entries.key_into(number, &mut key).unwrap();
                    merged.push((key.clone(), entries.value(number).unwrap().to_vec()));
                    if merged.len() == most {
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })
            .unwrap();
            let expected: Vec<_> = expected.iter().take(most).cloned().collect();
            prop_assert_eq!(&found, &expected, "{:?} {:?} as of {}", range, direction, view.version);
            prop_assert_eq!(&merged, &expected, "leaves of {:?} {:?} as of {}", range, direction, view.version);
        }
        expected.reverse();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 150 }))]

    #[test]
    fn a_view_shows_its_version_through_all_three_parts(
        first in (filled(), steps(60)), second in steps(20), third in steps(20), from in bound(), to in bound()
    ) {
        let disk = MemoryDisk::new(2 << 20);
        TreeFile::create(&disk, "tree", Version(0), LOG_START).unwrap();
        let file = TreeFile::open(&disk, "tree", 1 << 30).unwrap().choose(0).unwrap();
        let parts = [[first.0, first.1].concat(), second, third];
        let generation = generation(&file, &parts);
        let range = KeyRange { from: from.as_ref().map(<[u8; 1]>::as_slice), to: to.as_ref().map(<[u8; 1]>::as_slice) };
        let mut map = Map::new();
        for (step, version) in parts[0].iter().zip(1..) {
            apply_to_map(&mut map, version, step);
        }
        let merged = parts[0].len() as u64;
        check(View { generation: &generation, version: merged }, &map, range)?;
        for (step, version) in parts[1..].concat().iter().zip(merged + 1..) {
            apply_to_map(&mut map, version, step);
            check(View { generation: &generation, version }, &map, range)?;
        }
    }
}
