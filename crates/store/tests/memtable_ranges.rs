//! Deleted ranges of a memtable, read at snapshots of all ages, compared with a list of all steps.

use std::ops::Bound;

use proptest::prelude::*;
use store::memtable::{BOUNDARIES_MAX, Demand, Full, Lookup, Memtable, MemtableWriter};
use store::{KeyRange, TreeId, Version};

const TREE: TreeId = TreeId(3);
const OTHER: TreeId = TreeId(4);

#[derive(Clone, Debug)]
enum Step {
    Put(u8),
    Delete(u8),
    DeleteRange(u8, Option<u8>),
}

/// The steps, each at the version of its place, from 1 on.
struct History(Vec<Step>);

impl History {
    /// The version of the newest range that holds the key, as a snapshot of `version` sees it; 0: none.
    fn deletion_of(&self, version: u64, key: u8) -> u64 {
        let holds =
            |step: &Step| matches!(step, Step::DeleteRange(from, to) if *from <= key && to.is_none_or(|to| key < to));
        let seen = self.0.iter().zip(1..=version);
        seen.filter(|(step, _)| holds(step)).map(|(_, at)| at).last().unwrap_or(0)
    }

    /// The newest put (true) or deletion of the key itself.
    fn record_of(&self, version: u64, key: u8) -> Option<(u64, bool)> {
        let of_key = |step: &Step| match step {
            Step::Put(at) => (*at == key).then_some(true),
            Step::Delete(at) => (*at == key).then_some(false),
            Step::DeleteRange(..) => None,
        };
        self.0.iter().zip(1..=version).filter_map(|(step, at)| Some((at, of_key(step)?))).last()
    }

    fn check(&self, table: &Memtable, version: u64) {
        for key in 0..=32 {
            let deleted = self.deletion_of(version, key);
            let record = self.record_of(version, key).filter(|(at, _)| *at > deleted);
            let expected = match record {
                Some((_, true)) => Lookup::Value(b"value"),
                Some((_, false)) => Lookup::Deleted,
                None if deleted > 0 => Lookup::Deleted,
                None => Lookup::Absent,
            };
            assert_eq!(table.get(Version(version), TREE, &[key]), expected, "{key} as of {version}");
            assert_eq!(table.get(Version(version), OTHER, &[key]), Lookup::Absent);
            for to in [Bound::Included(&[key][..]), Bound::Excluded(&[key + 1][..])] {
                let stretch = table.stretch_below(Version(version), TREE, to);
                assert!(
                    stretch.from <= &[key][..] && stretch.to.is_none_or(|to| to > &[key][..]),
                    "{stretch:?} of {key}"
                );
                assert_eq!(stretch.deleted.0, deleted, "{key} as of {version}");
            }
        }
    }

    fn check_changes(&self, table: &Memtable, since: u64) {
        let now = self.0.len() as u64;
        let newest = |key| self.deletion_of(now, key).max(self.record_of(now, key).map_or(0, |(at, _)| at));
        for from in 0..=32 {
            assert_eq!(table.latest(TREE, &[from]).map_or(0, |at| at.0), newest(from), "{from}");
            for to in from..=32 {
                let range = KeyRange { from: Bound::Included(&[from]), to: Bound::Included(&[to]) };
                let is_changed = (from..=to).any(|key| newest(key) > since);
                // A range or a boundary may be between the model's keys.
                let found = table.changed_since(Version(since), TREE, range);
                assert!(found == is_changed, "{from}..={to} since {since}");
                assert!(!table.changed_since(Version(since), OTHER, range));
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let range = (0u8..32, proptest::option::weighted(0.9, 1u8..12));
    prop_oneof![
        3 => (0u8..32).prop_map(Step::Put),
        1 => (0u8..32).prop_map(Step::Delete),
        2 => range.prop_map(|(from, len)| Step::DeleteRange(from, len.map(|len| from + len))),
    ]
}

fn apply(writer: &mut MemtableWriter, version: u64, step: &Step) -> Result<(), Full> {
    match step {
        Step::Put(key) => writer.insert(Version(version), TREE, &[*key], Some(b"value")),
        Step::Delete(key) => writer.insert(Version(version), TREE, &[*key], None),
        Step::DeleteRange(from, to) => {
            writer.delete_range(Version(version), TREE, &[*from], to.as_ref().map(std::slice::from_ref))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 200 }))]

    #[test]
    fn every_snapshot_sees_the_ranges_of_its_time(steps in proptest::collection::vec(step(), 1..if cfg!(miri) { 8 } else { 40 })) {
        let (table, mut writer) = Memtable::new(1 << 20).unwrap();
        for (step, version) in steps.iter().zip(1..) {
            apply(&mut writer, version, step).unwrap();
        }
        let history = History(steps);
        for version in 0..=history.0.len() as u64 {
            history.check(&table, version);
        }
        history.check_changes(&table, history.0.len() as u64 / 2);
        let has_range = |step: &Step| matches!(step, Step::DeleteRange(..));
        prop_assert_eq!(table.has_ranges(), history.0.iter().any(has_range));
        // What a checkpoint reads of it.
        let deleted = table.deleted(Version(u64::MAX), TREE);
        prop_assert!(deleted.is_sorted_by(|left, right| left.to.is_some_and(|to| to <= right.from)));
        for key in 0..=32 {
            let holds = deleted.iter().find(|found| found.from <= &[key][..] && found.to.is_none_or(|to| &[key][..] < to));
            prop_assert_eq!(holds.map_or(0, |found| found.deleted.0), history.deletion_of(u64::MAX, key));
        }
        prop_assert_eq!(table.trees(), [TREE]);
    }
}

#[test]
fn a_range_and_a_put_of_one_version_leave_what_was_put() {
    let (table, mut writer) = Memtable::new(1 << 20).unwrap();
    writer.insert(Version(1), TREE, b"b", Some(b"old")).unwrap();
    writer.insert(Version(1), TREE, b"c", Some(b"old")).unwrap();
    writer.delete_range(Version(2), TREE, b"a", None).unwrap();
    writer.insert(Version(2), TREE, b"c", Some(b"new")).unwrap();
    assert_eq!(table.get(Version(2), TREE, b"b"), Lookup::Deleted);
    assert_eq!(table.get(Version(2), TREE, b"c"), Lookup::Value(b"new"));
    assert_eq!(table.get(Version(1), TREE, b"b"), Lookup::Value(b"old"));
    assert_eq!(table.get(Version(2), TREE, b""), Lookup::Absent);
}

#[test]
#[cfg_attr(miri, ignore = "thousands of boundaries")]
fn boundaries_are_bounded_and_one_too_many_changes_nothing() {
    let (table, mut writer) = Memtable::new(8 << 20).unwrap();
    let key = |number: usize| (number as u32).to_be_bytes();
    for number in 0..BOUNDARIES_MAX / 2 {
        writer.delete_range(Version(1), TREE, &key(2 * number), Some(&key(2 * number + 1))).unwrap();
    }
    let used = table.used_bytes();
    let mut demand = Demand::default();
    demand.add_range(&writer, TREE, 4, None);
    assert!(!writer.fits(&demand));
    assert_eq!(writer.delete_range(Version(2), TREE, &key(BOUNDARIES_MAX), None), Err(Full));
    assert_eq!((table.used_bytes(), table.len()), (used, BOUNDARIES_MAX));
    writer.insert(Version(2), TREE, b"key", Some(b"value")).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "fills a memtable")]
fn a_range_that_does_not_fit_changes_nothing() {
    let (table, mut writer) = Memtable::new(64 << 10).unwrap();
    let mut version = 1;
    while writer.delete_range(Version(version), TREE, &version.to_be_bytes(), None).is_ok() {
        version += 1;
    }
    assert!(version > 50);
    let (used, len) = (table.used_bytes(), table.len());
    assert_eq!(writer.delete_range(Version(version), TREE, &version.to_be_bytes(), None), Err(Full));
    assert_eq!((table.used_bytes(), table.len()), (used, len));
    assert_eq!(table.get(Version(version), TREE, &1u64.to_be_bytes()), Lookup::Deleted);
}

#[test]
fn a_range_over_many_others_finds_room_for_all_their_boundaries_or_changes_nothing() {
    let (table, mut writer) = Memtable::new(if cfg!(miri) { 64 << 10 } else { 256 << 10 }).unwrap();
    let key = |number: u32| number.to_be_bytes();
    for number in 0..if cfg!(miri) { 30 } else { 300 } {
        writer.delete_range(Version(1), TREE, &key(2 * number), Some(&key(2 * number + 1))).unwrap();
    }
    let used = |table: &Memtable| (table.used_bytes(), table.len());
    let (mut version, mut before) = (1, used(&table));
    while writer.delete_range(Version(version + 1), TREE, &key(0), None).is_ok() {
        version += 1;
        before = used(&table);
    }
    assert!(version > 3, "{version}");
    assert_eq!(used(&table), before);
    assert_eq!(table.stretch_of(Version(version), TREE, &key(1)).deleted, Version(version));
}

#[test]
fn ranges_stay_known_when_the_hash_grows() {
    let (table, mut writer) = Memtable::new(4 << 20).unwrap();
    writer.delete_range(Version(1), TREE, b"a", Some(b"b")).unwrap();
    let count = if cfg!(miri) { 60 } else { 2000u32 };
    for number in 0..count {
        writer.insert(Version(2), TREE, &number.to_be_bytes(), Some(b"value")).unwrap();
    }
    assert!(table.has_ranges());
    assert_eq!(table.get(Version(2), TREE, b"ab"), Lookup::Deleted);
    assert_eq!(table.get(Version(2), TREE, &7u32.to_be_bytes()), Lookup::Value(b"value"));
}
