//! The memtable compared with a `BTreeMap` of versions: the same random inserts, read at snapshots of all ages.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use store::memtable::{Demand, Full, Lookup, Memtable, MemtableWriter};
use store::{Direction, KeyRange, TreeId, Version};

type Versions = Vec<(u64, Option<Vec<u8>>)>;

#[derive(Default)]
struct Model(BTreeMap<(u32, Vec<u8>), Versions>);

/// What the model shows to a snapshot of one tree.
type Shown = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl Model {
    fn insert(&mut self, version: u64, tree: u32, key: &[u8], value: Option<&[u8]>) {
        self.0.entry((tree, key.to_vec())).or_default().push((version, value.map(<[u8]>::to_vec)));
    }

    fn get(&self, version: u64, tree: u32, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let versions = self.0.get(&(tree, key.to_vec()))?;
        versions.iter().rev().find(|(at, _)| *at <= version).map(|(_, value)| value.clone())
    }

    fn shown(&self, version: u64, tree: u32, range: (Bound<&[u8]>, Bound<&[u8]>)) -> Shown {
        let keys = self.0.keys().filter(|(of, key)| *of == tree && inside(key, range));
        keys.filter_map(|(_, key)| Some((key.clone(), self.get(version, tree, key)?))).collect()
    }

    fn changed_since(&self, version: u64, tree: u32, range: (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
        let mut changed = self.0.iter().filter(|((of, key), _)| *of == tree && inside(key, range));
        changed.any(|(_, versions)| versions.last().is_some_and(|(at, _)| *at > version))
    }
}

fn inside(key: &[u8], (from, to): (Bound<&[u8]>, Bound<&[u8]>)) -> bool {
    let above = match from {
        Bound::Unbounded => true,
        Bound::Included(least) => key >= least,
        Bound::Excluded(least) => key > least,
    };
    above
        && match to {
            Bound::Unbounded => true,
            Bound::Included(last) => key <= last,
            Bound::Excluded(end) => key < end,
        }
}

fn scanned(table: &Memtable, version: u64, tree: u32, range: KeyRange<'_>, direction: Direction) -> Shown {
    let found = table.scan(Version(version), TreeId(tree), range, direction);
    found.map(|found| (found.key.to_vec(), found.value.map(<[u8]>::to_vec))).collect()
}

#[track_caller]
fn check_range(table: &Memtable, model: &Model, version: u64, tree: u32, range: (Bound<&[u8]>, Bound<&[u8]>)) {
    let mut shown = model.shown(version, tree, range);
    let asked = KeyRange { from: range.0, to: range.1 };
    for direction in [Direction::Forward, Direction::Backward] {
        let found = scanned(table, version, tree, asked, direction);
        assert_eq!(found, shown, "{direction:?} {version} {tree} {range:?}");
        shown.reverse();
    }
    assert_eq!(
        table.changed_since(Version(version), TreeId(tree), asked),
        model.changed_since(version, tree, range),
        "changed since {version} {tree} {range:?}"
    );
}

#[track_caller]
fn check_all(table: &Memtable, model: &Model, version: u64) {
    for ((tree, key), versions) in &model.0 {
        let found = match table.get(Version(version), TreeId(*tree), key) {
            Lookup::Absent => None,
            Lookup::Deleted => Some(None),
            Lookup::Value(value) => Some(Some(value.to_vec())),
        };
        assert_eq!(found, model.get(version, *tree, key), "{tree} {key:?} at {version}");
        assert_eq!(table.latest(TreeId(*tree), key), versions.last().map(|(at, _)| Version(*at)));
    }
    for tree in table.trees() {
        check_range(table, model, version, tree.0, (Bound::Unbounded, Bound::Unbounded));
    }
}

#[track_caller]
fn check_changes(table: &Memtable, model: &Model) {
    let newest = model.0.iter().map(|((tree, key), versions)| {
        let (version, value) = versions.last().cloned().unwrap_or_default();
        (*tree, key.clone(), version, value)
    });
    let found = table.changes().map(|change| {
        let value = change.entry.value.map(<[u8]>::to_vec);
        (change.tree.0, change.entry.key.to_vec(), change.entry.version.0, value)
    });
    assert_eq!(found.collect::<Vec<_>>(), newest.collect::<Vec<_>>());
    assert_eq!(table.len(), model.0.len());
}

/// Keys that often coincide, share long prefixes, and differ by trailing zeros.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => (0u64..400).prop_map(|number| number.to_be_bytes().to_vec()),
        3 => (0u32..400).prop_map(|number| format!("{:0>56}{number:08}", "customer/").into_bytes()),
        2 => proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..12),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        3 => key().prop_map(Bound::Included),
        3 => key().prop_map(Bound::Excluded),
    ]
}

fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(key),
        Bound::Excluded(key) => Bound::Excluded(key),
    }
}

fn table(arena_bytes: usize) -> (Arc<Memtable>, MemtableWriter) {
    Memtable::new(arena_bytes).expect("memory")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 48 }))]

    #[test]
    fn every_snapshot_sees_what_the_model_says(
        inserts in proptest::collection::vec(
            (prop_oneof![6 => Just(1u32), 2 => Just(257), 1 => 0u32..20], key(), proptest::option::of(0usize..60), any::<bool>()),
            1..if cfg!(miri) { 150 } else { 2500 },
        ),
        ranges in proptest::collection::vec((bound(), bound(), any::<prop::sample::Index>()), 12),
    ) {
        let (table, mut writer) = table(4 << 20);
        let mut model = Model::default();
        let mut version = 1;
        for (at, (tree, key, value, same)) in inserts.iter().enumerate() {
            version += u64::from(!same);
            let value = value.map(|length| vec![at as u8; length]);
            writer.insert(Version(version), TreeId(*tree), key, value.as_deref()).expect("room");
            model.insert(version, *tree, key, value.as_deref());
        }
        for snapshot in [0, version / 3, version - 1, version, u64::MAX] {
            check_all(&table, &model, snapshot);
        }
        for (from, to, snapshot) in &ranges {
            check_range(&table, &model, snapshot.index(version as usize + 1) as u64, 1, (borrowed(from), borrowed(to)));
        }
        check_changes(&table, &model);
    }
}

/// Inserts in this order and reads everything.
#[track_caller]
fn check_order(keys: impl Iterator<Item = Vec<u8>>) {
    let (table, mut writer) = table(16 << 20);
    let mut model = Model::default();
    for (at, key) in keys.enumerate() {
        let version = at as u64 + 1;
        writer.insert(Version(version), TreeId(7), &key, Some(&key)).expect("room");
        model.insert(version, 7, &key, Some(&key));
    }
    check_all(&table, &model, u64::MAX);
    check_all(&table, &model, model.0.len() as u64 / 2);
    check_changes(&table, &model);
}

const KEYS: u64 = if cfg!(miri) { 200 } else { 20_000 };

#[test]
fn rising_keys_are_kept_in_order() {
    check_order((0..KEYS).map(|number| number.to_be_bytes().to_vec()));
}

#[test]
fn falling_keys_are_kept_in_order() {
    check_order((0..KEYS).rev().map(|number| number.to_be_bytes().to_vec()));
}

#[test]
fn scattered_keys_with_a_long_common_prefix_are_kept_in_order() {
    let scattered = (0..KEYS).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    check_order(scattered.map(|number| format!("{:0>44}{number:020}", "a/long/prefix/").into_bytes()));
}

#[test]
fn a_full_memtable_refuses_cleanly_and_keeps_what_it_has() {
    for arena_bytes in [0, 64, 600, 1000, 5_000, 60_000].into_iter().filter(|bytes| !cfg!(miri) || *bytes <= 1000) {
        let (table, mut writer) = table(arena_bytes);
        let mut model = Model::default();
        let mut refused = 0;
        let mut version = 0u64;
        while refused < 20 {
            version += 1;
            let key = (version * 7919 % 3001).to_be_bytes();
            let value = vec![version as u8; (version % 90) as usize];
            let before = (table.used_bytes(), table.len());
            match writer.insert(Version(version), TreeId(version as u32 % 3), &key, Some(&value)) {
                Ok(()) => model.insert(version, version as u32 % 3, &key, Some(&value)),
                Err(Full) => {
                    assert_eq!((table.used_bytes(), table.len()), before);
                    refused += 1;
                }
            }
        }
        assert!(table.used_bytes() <= table.arena_bytes());
        check_all(&table, &model, u64::MAX);
        check_all(&table, &model, version / 2);
        check_changes(&table, &model);
    }
}

#[test]
fn what_was_found_to_fit_is_inserted_without_fail() {
    let mut seed = 1u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    for arena_bytes in [3_000, 20_000, 300_000] {
        for records in [1, 2, 7, 40, 300] {
            let (table, mut writer) = table(arena_bytes);
            loop {
                let batch: Vec<(TreeId, [u8; 8], usize)> = (0..records)
                    .map(|_| (TreeId(next() as u32 % 5), (next() % 5000).to_be_bytes(), next() as usize % 50))
                    .collect();
                let mut demand = Demand::default();
                batch.iter().for_each(|(tree, key, length)| demand.add(&writer, *tree, key.len(), *length));
                if !writer.fits(&demand) {
                    break;
                }
                for (tree, key, length) in batch {
                    let inserted = writer.insert(Version(1), tree, &key, Some(&vec![1; length]));
                    assert_eq!(inserted, Ok(()), "{arena_bytes} {records} {}", table.len());
                }
            }
        }
    }
}

#[test]
fn a_value_larger_than_the_arena_is_refused_and_a_large_one_that_fits_is_whole() {
    let (table, mut writer) = table(3 << 20);
    let large: Vec<u8> = (0..2_000_000u32).map(|at| at as u8).collect();
    assert_eq!(writer.insert(Version(1), TreeId(1), b"large", Some(&vec![0; 4 << 20])), Err(Full));
    assert_eq!(writer.insert(Version(1), TreeId(1), b"large", Some(&large)), Ok(()));
    assert_eq!(writer.insert(Version(2), TreeId(1), b"large", Some(&large)), Err(Full));
    assert_eq!(table.get(Version(9), TreeId(1), b"large"), Lookup::Value(&large));
}

#[test]
fn an_empty_memtable_answers_absent_everywhere() {
    let (table, writer) = table(1 << 20);
    drop(writer);
    assert_eq!(table.get(Version(1), TreeId(1), b"key"), Lookup::Absent);
    assert_eq!(table.latest(TreeId(1), b"key"), None);
    for direction in [Direction::Forward, Direction::Backward] {
        assert!(scanned(&table, 1, 1, KeyRange::ALL, direction).is_empty());
    }
    assert_eq!(table.changes().count(), 0);
    assert!(table.is_empty() && table.trees().is_empty());
}

/// First few keys with large values, then many with small ones: nodes are then where values were.
#[test]
fn reused_memory_may_be_filled_in_other_proportions() {
    let (table, mut writer) = Memtable::new(256 * 1024).expect("memory");
    let mut version = 0;
    while writer.insert(Version(version), TreeId(1), b"key", Some(&[0xff; 1000])).is_ok() {
        version += 1;
    }
    drop(writer);
    let (table, mut writer) = Arc::into_inner(table).expect("the last handle").reuse().expect("memory");
    let mut count = 0_u32;
    while writer.insert(Version(1), TreeId(1), &count.to_be_bytes(), None).is_ok() {
        count += 1;
    }
    drop(writer);
    let keys: Vec<u32> =
        table.changes().map(|change| u32::from_be_bytes(change.entry.key.try_into().expect("four bytes"))).collect();
    assert!(count > 1000 && keys == (0..count).collect::<Vec<u32>>(), "{count} keys");
}

#[test]
fn reused_memory_shows_nothing_of_what_was_in_it() {
    let (mut table, mut writer) = table(1 << 20);
    for round in 0..4u64 {
        let mut model = Model::default();
        for number in 0..1500 {
            let key = (number * 7919 % 4001 * (round + 1)).to_be_bytes();
            let value = vec![round as u8; 300 - number as usize % 300];
            writer.insert(Version(number + 1), TreeId(round as u32), &key, Some(&value)).expect("room");
            model.insert(number + 1, round as u32, &key, Some(&value));
        }
        check_all(&table, &model, 700);
        check_changes(&table, &model);
        drop(writer);
        (table, writer) = Arc::into_inner(table).expect("the last handle").reuse().expect("memory");
        assert_eq!((table.len(), table.trees(), table.arena_bytes()), (0, vec![], 1 << 20));
    }
}
