//! The tree file's space: reused under steady change, kept while a view reaches it, freed after failures.

use std::collections::BTreeMap;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::hooked_disk::{HookedDisk, Hooks};
use crate::tree_file::{NAME, no_pace, open};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::DiskFile;
use store::log::LogPosition;
use store::tree::{BulkBuilder, TreeFile, TreeView};
use store::{Direction, KeyRange, StoreError, TreeId, Version};

const TREE: TreeId = TreeId(0);
const OTHER: TreeId = TreeId(1);

fn fill(builder: &mut BulkBuilder, entries: u64, value: &[u8]) {
    for number in 0..entries {
        builder.push(&number.to_be_bytes(), value).unwrap();
    }
}

fn load(file: &TreeFile, entries: u64) {
    let mut builder = file.bulk(no_pace());
    fill(&mut builder, entries, &[1; 400]);
    let mut writer = file.begin(no_pace()).unwrap();
    writer.attach(TREE, builder.finish().unwrap()).unwrap();
    writer.finish(Version(1), LogPosition::default()).unwrap();
}

fn update(file: &TreeFile, rng: &mut SmallRng, entries: u64, count: u64) {
    let edits: BTreeMap<_, _> =
        (0..count).map(|_| (rng.random_range(0..entries).to_be_bytes(), [rng.random(); 400])).collect();
    let mut writer = file.begin(no_pace()).unwrap();
    writer.merge(TREE, edits.iter().map(|(key, value)| (&key[..], Some(&value[..])))).unwrap();
    writer.finish(Version(1), LogPosition::default()).unwrap();
}

fn sum(view: &TreeView, tree: TreeId) -> u64 {
    let mut sum = 0u64;
    view.scan(tree, KeyRange::ALL, Direction::Forward, &mut |_, value| {
        sum = sum.rotate_left(1) ^ value.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        ControlFlow::Continue(())
    })
    .unwrap();
    sum
}

/// All entries of a tree.
fn entries(view: &TreeView, tree: TreeId) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut entries = Vec::new();
    view.scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
        entries.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

#[test]
fn steady_random_updates_stay_under_twice_the_live_data() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    load(&file, 20_000);
    let live = file.space_stat().live;
    let mut rng = SmallRng::seed_from_u64(1);
    for _ in 0..60 {
        // As many as half a default memtable holds for a million documents: 3.5 % of the entries.
        update(&file, &mut rng, 20_000, 700);
    }
    let space = file.space_stat();
    assert!(space.pages < 2 * live, "{space:?} after {live} pages at the load");
    assert!(space.live <= live + live / 50, "{space:?} after {live} pages at the load");
    assert!(file.view().verify().is_clean());
}

#[test]
fn a_view_that_is_held_keeps_its_data_and_its_pages_until_it_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    load(&file, 5000);
    let held = file.view();
    let before = sum(&held, TREE);
    let mut rng = SmallRng::seed_from_u64(2);
    for _ in 0..40 {
        update(&file, &mut rng, 5000, 500);
    }
    assert_eq!(sum(&held, TREE), before);
    assert_eq!(file.oldest_view(), held.meta().sequence);
    assert!(held.verify().is_clean());
    let waiting = file.space_stat().waiting;
    drop(held);
    // The pages freed by the last checkpoint wait for one more.
    update(&file, &mut rng, 5000, 1);
    update(&file, &mut rng, 5000, 1);
    assert!(file.space_stat().waiting < waiting / 4, "{:?} after {waiting} waiting", file.space_stat());
}

#[test]
fn a_dropped_writer_and_a_dropped_build_change_nothing_and_give_their_pages_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    load(&file, 5000);
    let before = sum(&file.view(), TREE);
    let stat = file.space_stat();
    let mut builder = file.bulk(no_pace());
    fill(&mut builder, 3000, &[2; 400]);
    drop(builder);
    let mut builder = file.bulk(no_pace());
    fill(&mut builder, 3000, &[3; 3000]);
    drop(builder.finish().unwrap());
    let mut writer = file.begin(no_pace()).unwrap();
    assert!(matches!(file.begin(no_pace()), Err(StoreError::Busy)));
    writer
        .merge(TREE, (0..5000u64).map(|n| n.to_be_bytes()).collect::<Vec<_>>().iter().map(|key| (&key[..], None)))
        .unwrap();
    drop(writer);
    let after = file.space_stat();
    assert_eq!((after.in_flight, after.live, after.waiting), (0, stat.live, stat.waiting));
    assert_eq!(sum(&file.view(), TREE), before);
    assert!(file.view().verify().is_clean());
}

#[test]
fn a_bulk_build_and_the_same_entries_merged_in_small_steps_give_the_same_tree() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    let value =
        |number: u64| vec![number as u8; (number % 701) as usize * if number.is_multiple_of(97) { 9 } else { 1 }];
    let mut builder = file.bulk(no_pace());
    for number in 0..8000u64 {
        builder.push(format!("key/{number:09}").as_bytes(), &value(number)).unwrap();
    }
    assert!(matches!(builder.push(b"key/000000000", b""), Err(StoreError::Limit { .. })));
    let mut writer = file.begin(no_pace()).unwrap();
    writer.attach(TREE, builder.finish().unwrap()).unwrap();
    writer.finish(Version(1), LogPosition::default()).unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut left: Vec<u64> = (0..8000).collect();
    while !left.is_empty() {
        let mut step: Vec<_> =
            (0..500.min(left.len())).map(|_| left.swap_remove(rng.random_range(0..left.len()))).collect();
        step.sort_unstable();
        let edits: Vec<_> = step.iter().map(|n| (format!("key/{n:09}").into_bytes(), value(*n))).collect();
        let mut writer = file.begin(no_pace()).unwrap();
        writer.merge(OTHER, edits.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice())))).unwrap();
        writer.finish(Version(1), LogPosition::default()).unwrap();
    }
    let view = file.view();
    let all = entries(&view, TREE);
    assert!(all.len() == 8000 && all == entries(&view, OTHER));
    let report = view.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    assert!(report.trees[0].fill() > 0.9, "bulk build {:?}", report.trees[0]);
    assert!(report.trees[1].fill() > 0.7, "small steps {:?}", report.trees[1]);
}

#[test]
fn trees_are_named_and_emptied_by_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    load(&file, 3000);
    let mut writer = file.begin(no_pace()).unwrap();
    writer.set_name(OTHER, "other").unwrap();
    writer.set_name(TREE, "tree").unwrap();
    writer.merge(OTHER, [(&b"a"[..], Some(&[9; 9000][..]))]).unwrap();
    writer.merge(OTHER, [(&b"b"[..], Some(&b"2"[..]))]).unwrap();
    writer.finish(Version(2), LogPosition::default()).unwrap();
    drop(file);
    let file = open(&directory);
    let names = |file: &TreeFile| file.view().list().map(|info| (info.name.unwrap(), info.entries)).collect::<Vec<_>>();
    assert_eq!(names(&file), [("tree".to_string(), 3000), ("other".to_string(), 2)]);
    let mut writer = file.begin(no_pace()).unwrap();
    assert!(matches!(writer.attach(OTHER, file.bulk(no_pace()).finish().unwrap()), Err(StoreError::Limit { .. })));
    writer.delete_range(TREE, &[], None).unwrap();
    writer.delete_range(OTHER, &[], None).unwrap();
    let view = writer.finish(Version(3), LogPosition::default()).unwrap();
    assert_eq!(names(&file), [("tree".to_string(), 0), ("other".to_string(), 0)]);
    assert!(view.verify().is_clean());
    assert_eq!(view.get(OTHER, b"a").unwrap(), None);
    assert!(file.space_stat().live < 5, "{:?}", file.space_stat());
}

#[test]
fn pages_merge_when_entries_are_deleted_here_and_there() {
    let directory = tempfile::tempdir().unwrap();
    let file = open(&directory);
    load(&file, 3000);
    let mut rng = SmallRng::seed_from_u64(4);
    let mut left: Vec<u64> = (0..3000).collect();
    while left.len() > 300 {
        // So few that two changed leaves are hardly ever adjacent, which would be repacked in any case.
        let mut keys: Vec<_> =
            (0..6).map(|_| left.swap_remove(rng.random_range(0..left.len())).to_be_bytes()).collect();
        keys.sort_unstable();
        let mut writer = file.begin(no_pace()).unwrap();
        writer.merge(TREE, keys.iter().map(|key| (&key[..], None))).unwrap();
        writer.finish(Version(1), LogPosition::default()).unwrap();
    }
    let report = file.view().verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    let stat = &report.trees[0];
    assert!(stat.info.entries == 300 && stat.fill() > 0.5, "{stat:?}");
}

/// Files refuse writes and syncs after this many.
struct Steps {
    left: AtomicI64,
    kind: io::ErrorKind,
}

impl Steps {
    fn step(&self) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) > 0 { Ok(()) } else { Err(self.kind.into()) }
    }
}

impl Hooks for Steps {
    fn write_at(&self, _name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.step()?;
        file.write_at(bytes, offset)
    }
    fn set_len(&self, _name: &str, file: &dyn DiskFile, len: u64) -> io::Result<()> {
        self.step()?;
        file.set_len(len)
    }
    fn allocate(&self, _name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        self.step()?;
        file.allocate(start, len)
    }
    fn sync_data(&self, _name: &str, file: &dyn DiskFile) -> io::Result<()> {
        self.step()?;
        file.sync_data()
    }
    fn sync_range(&self, _name: &str, _file: &dyn DiskFile, _start: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Lets the disk fail at each step of a checkpoint in turn.
#[track_caller]
fn check_failing(kind: io::ErrorKind) {
    let directory = tempfile::tempdir().unwrap();
    load(&open(&directory), 2000);
    let mut steps = 0;
    loop {
        let hooks = Arc::new(Steps { left: AtomicI64::new(i64::MAX), kind });
        let (disk, left) = (HookedDisk::new(directory.path(), &hooks), &hooks.left);
        let file = TreeFile::open(&disk, NAME, 1 << 32).unwrap().choose(0).unwrap();
        let (before, space) = (sum(&file.view(), TREE), file.space_stat());
        left.store(steps, Ordering::Relaxed);
        let outcome = (|| {
            let mut builder = file.bulk(no_pace());
            for number in 0..300u32 {
                builder.push(&number.to_be_bytes(), &[5; 2000])?;
            }
            let mut writer = file.begin(no_pace())?;
            writer.delete_range(OTHER, &[], None)?;
            writer.attach(OTHER, builder.finish()?)?;
            let edits: Vec<_> = (0..2000u64).step_by(3).map(|n| (n.to_be_bytes(), vec![steps as u8; 500])).collect();
            writer.merge(TREE, edits.iter().map(|(key, value)| (&key[..], Some(&value[..]))))?;
            writer.finish(Version(steps as u64), LogPosition::default())
        })();
        let has_failed = left.swap(i64::MAX, Ordering::Relaxed) < 0;
        match outcome {
            Ok(_) => {
                assert!(!has_failed);
                assert!(steps > 8, "the loop met no failure");
                return;
            }
            Err(error) => {
                let is_right = matches!(
                    (&error, kind),
                    (StoreError::Full, io::ErrorKind::StorageFull) | (StoreError::Io { .. }, _)
                );
                assert!(is_right && has_failed, "{error:?}");
            }
        }
        // Nothing visible changed; after a failed sync or meta page no writer starts, otherwise the space is free again.
        assert_eq!(sum(&file.view(), TREE), before, "step {steps}");
        assert!(file.view().verify().is_clean());
        assert_eq!(file.space_stat().in_flight, 0, "step {steps}: {:?}, {space:?} before", file.space_stat());
        match file.begin(no_pace()) {
            Ok(writer) => drop(writer.finish(Version(1), LogPosition::default()).unwrap()),
            Err(error) => assert!(matches!(error, StoreError::Poisoned), "{error}"),
        }
        steps += 1;
    }
}

#[test]
fn a_checkpoint_that_meets_a_full_disk_at_any_step_changes_nothing() {
    check_failing(io::ErrorKind::StorageFull);
}

#[test]
fn a_checkpoint_that_meets_a_failing_disk_at_any_step_changes_nothing() {
    check_failing(io::ErrorKind::Other);
}
