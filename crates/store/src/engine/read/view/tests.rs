//! Random histories over tree, frozen and active memtable, compared at each version with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::disk::MemoryDisk;
use crate::log::LogPosition;
use crate::memtable::MemtableWriter;
use crate::tree::TreeFile;

const TREE: TreeId = TreeId(1);
const LOG_START: LogPosition = LogPosition { segment: 1, offset: 4096, previous: 0, sequence: 1, epoch: 1 };

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, Option<u8>),
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn apply_to_map(map: &mut Map, version: u64, step: &Step) {
    match step {
        Step::Put(key) => drop(map.insert(vec![*key], vec![version as u8; 3])),
        Step::Delete(key) => drop(map.remove(&vec![*key])),
        Step::DeleteRange(from, to) => map.retain(|key, _| !(key[0] >= *from && to.is_none_or(|to| key[0] < to))),
    }
}

fn apply_to_table(table: &mut MemtableWriter, version: u64, step: &Step) {
    let at = Version(version);
    match step {
        Step::Put(key) => table.insert(at, TREE, &[*key], Some(&[version as u8; 3])),
        Step::Delete(key) => table.insert(at, TREE, &[*key], None),
        Step::DeleteRange(from, to) => table.delete_range(at, TREE, &[*from], to.as_ref().map(std::slice::from_ref)),
    }
    .unwrap();
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0u8..30, proptest::option::weighted(0.9, 1u8..12));
    prop_oneof![
        4 => (0u8..30).prop_map(Step::Put),
        2 => (0u8..30).prop_map(Step::Delete),
        1 => range.prop_map(|(from, len)| Step::DeleteRange(from, len.map(|len| from + len))),
    ]
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    // Each step is read in every way.
    proptest::collection::vec(step(), 0..if cfg!(miri) { 4 } else { most })
}

fn bound() -> impl Strategy<Value = Bound<[u8; 1]>> {
    prop_oneof![
        Just(Bound::Unbounded),
        (0u8..32).prop_map(|key| Bound::Included([key])),
        (0u8..32).prop_map(|key| Bound::Excluded([key]))
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
    Generation { tree, frozen: Some(table(&parts[1])), active: table(&parts[2]) }
}

fn check(view: View<'_>, map: &Map, range: KeyRange<'_>) -> Result<(), TestCaseError> {
    for key in 0..32 {
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
            let expected: Vec<_> = expected.iter().take(most).cloned().collect();
            prop_assert_eq!(found, expected, "{:?} {:?} as of {}", range, direction, view.version);
        }
        expected.reverse();
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 150 }))]

    #[test]
    fn a_view_shows_its_version_through_all_three_parts(
        first in steps(60), second in steps(20), third in steps(20), from in bound(), to in bound()
    ) {
        let disk = MemoryDisk::new(2 << 20);
        TreeFile::create(&disk, "tree", Version(0), LOG_START).unwrap();
        let file = TreeFile::open(&disk, "tree", 1 << 30).unwrap().choose(0).unwrap();
        let parts = [first, second, third];
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
