//! Readers of changes: every transaction once, whole, in order, as long as it is kept; and the errors when it is not.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::faulty_disk::faulty;
use crate::scans::beginning_with;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{Change, ChangeReader, Clock, Durability, Store, StoreError, StoreOptions, TreeId, Version};

const SEGMENT_BYTES: u64 = 64 * 1024;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = SEGMENT_BYTES;
    options.map_bytes = 1 << 30;
    options
}

fn keeping(segments: u64) -> StoreOptions {
    let mut options = options();
    options.changes_kept_bytes = segments * SEGMENT_BYTES;
    options
}

fn open(directory: &Path, options: &StoreOptions) -> Store {
    Store::open(directory, options.clone()).unwrap().0
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owned {
    Put(u32, Vec<u8>, Vec<u8>),
    Delete(u32, Vec<u8>),
    DeleteRange(u32, Vec<u8>, Option<Vec<u8>>),
    Reset(u32),
}

fn owned(change: Change<'_>) -> Owned {
    match change {
        Change::Put { tree, key, value } => Owned::Put(tree.0, key.to_vec(), value.to_vec()),
        Change::Delete { tree, key } => Owned::Delete(tree.0, key.to_vec()),
        Change::DeleteRange { tree, from, to } => Owned::DeleteRange(tree.0, from.to_vec(), to.map(<[u8]>::to_vec)),
        Change::Reset { tree } => Owned::Reset(tree.0),
        other => panic!("{other:?}"),
    }
}

/// The changes of every version.
type Model = BTreeMap<u64, Vec<Owned>>;

/// Reads to the end; returns the changes by version.
fn drain(reader: &mut ChangeReader) -> Result<Model, StoreError> {
    let mut found = Model::new();
    while let Some(changeset) = reader.next()? {
        let version = changeset.version().0;
        assert!(
            found.last_key_value().is_none_or(|(last, _)| last + 1 == version),
            "{version} follows what came before"
        );
        found.insert(version, changeset.changes().map(owned).collect());
    }
    Ok(found)
}

/// All changes since a version agree with the model.
#[track_caller]
fn check_since(store: &Store, since: u64, model: &Model) {
    let mut reader = store.changes_since(Version(since)).unwrap();
    let found = drain(&mut reader).unwrap();
    let expected: Model = model.range(since + 1..).map(|(version, changes)| (*version, changes.clone())).collect();
    assert!(found == expected, "since {since}: {} found, {} expected", found.len(), expected.len());
    let last = expected.last_key_value().map_or(since, |(version, _)| *version);
    assert_eq!(reader.version(), Version(last));
}

#[track_caller]
fn check_gone(store: &Store, since: u64, oldest: u64) {
    match store.changes_since(Version(since)).map(|_| ()) {
        Err(StoreError::Gone { oldest: told }) => assert_eq!(told, Version(oldest)),
        other => panic!("since {since}: {other:?}"),
    }
}

/// The stats agree with the readers: the oldest version can be read from, the version before is gone.
#[track_caller]
fn check_oldest(store: &Store, model: &Model) -> u64 {
    let oldest = store.stats().changes_oldest;
    check_since(store, oldest, model);
    if oldest > 0 {
        check_gone(store, oldest - 1, oldest);
        check_gone(store, 0, oldest);
    }
    oldest
}

/// Commits these changes and records them under their version.
fn commit(store: &Store, changes: Vec<Owned>, model: &mut Model) {
    let committed = store.commit(&mut |tx| {
        for change in &changes {
            match change {
                Owned::Put(tree, key, value) => tx.put(TreeId(*tree), key, value),
                Owned::Delete(tree, key) => tx.delete(TreeId(*tree), key),
                Owned::DeleteRange(..) | Owned::Reset(_) => {}
            }
        }
        Ok(())
    });
    model.insert(committed.unwrap().version.0, changes);
}

fn put(tree: TreeId, number: u64, bytes: usize) -> Owned {
    Owned::Put(tree.0, number.to_be_bytes().to_vec(), vec![number as u8; bytes])
}

/// A store with a tree, and the changes that created it.
fn start(directory: &Path, options: &StoreOptions) -> (Store, TreeId, Model) {
    let store = open(directory, options);
    let tree = store.tree("t").unwrap();
    let mut reader = store.changes_since(Version(0)).unwrap();
    let model = drain(&mut reader).unwrap();
    assert_eq!(model.len(), 1, "the tree's name is a transaction too");
    (store, tree, model)
}

fn random_changes(rng: &mut SmallRng, tree: TreeId) -> Vec<Owned> {
    let mut changes = BTreeMap::new();
    for _ in 0..rng.random_range(1..6) {
        let key = rng.random_range(0..300u16).to_be_bytes().to_vec();
        let value = rng.random_range(0..600usize);
        let change = match rng.random_range(0..4) {
            0 => Owned::Delete(tree.0, key.clone()),
            _ => Owned::Put(tree.0, key.clone(), vec![value as u8; value]),
        };
        changes.insert(key, change);
    }
    changes.into_values().collect()
}

#[test]
fn every_transaction_comes_once_whole_and_in_order_whatever_happens_meanwhile() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let options = keeping(1000);
    let (mut store, tree, mut model) = start(directory.path(), &options);
    let mut follower = Some(store.changes_since(Version(0)).unwrap());
    let mut followed = Model::new();
    for _ in 0..2500 {
        commit(&store, random_changes(&mut rng, tree), &mut model);
        match rng.random_range(0..200) {
            0 => store.checkpoint().unwrap(),
            1 => {
                let at = follower.take().map_or(Version(0), |reader| reader.version());
                drop(store);
                store = open(directory.path(), &options);
                follower = Some(store.changes_since(at).unwrap());
            }
            2..12 => followed.extend(drain(follower.as_mut().unwrap()).unwrap()),
            12..16 => check_since(&store, rng.random_range(0..=*model.last_key_value().unwrap().0), &model),
            _ => {}
        }
    }
    followed.extend(drain(follower.as_mut().unwrap()).unwrap());
    assert!(followed == model);
    assert_eq!(check_oldest(&store, &model), 0);
    store.checkpoint().unwrap();
    assert!(store.stats().changes_kept_bytes > 50 * SEGMENT_BYTES, "{:?}", store.stats());
}

#[test]
fn no_more_is_kept_than_the_bytes_allow_and_files_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &keeping(5));
    let mut oldest_before = 0;
    for number in 0..600 {
        commit(&store, vec![put(tree, number % 50, 4000)], &mut model);
        if number % 40 == 39 {
            store.checkpoint().unwrap();
            assert!(store.stats().changes_kept_bytes <= 5 * SEGMENT_BYTES);
            let oldest = check_oldest(&store, &model);
            assert!(oldest >= oldest_before);
            oldest_before = oldest;
        }
    }
    assert_eq!(store.stats().changes_kept_bytes, 5 * SEGMENT_BYTES);
    assert!(oldest_before > 400 && oldest_before < 590, "{oldest_before}");
    let segments = || {
        std::fs::read_dir(directory.path())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".log"))
            .count()
    };
    // Five kept, those since the checkpoint, two prepared, eight spares.
    assert!(segments() <= 5 + 4 + 2 + 8, "{}", segments());
}

#[test]
fn what_is_older_than_the_time_is_gone_and_what_is_younger_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(1000));
    let mut options = keeping(1000);
    options.changes_kept_for = Duration::from_secs(60);
    options.clock = Clock::shows(Arc::clone(&now));
    let (store, tree, mut model) = start(directory.path(), &options);
    let mut at_minute = Vec::new();
    for minute in 0..4 {
        at_minute.push(store.stats().version);
        for number in 0..60 {
            commit(&store, vec![put(tree, number, 4000)], &mut model);
        }
        store.checkpoint().unwrap();
        now.fetch_add(40, Ordering::Release);
        // Expire old segments now, so that they do not expire in the middle of the following checks.
        commit(&store, vec![put(tree, 0, 10)], &mut model);
        store.checkpoint().unwrap();
        let oldest = check_oldest(&store, &model);
        // Changes 40 seconds old are kept and 80 seconds old are gone, except in the segment that contains the boundary.
        assert!(oldest <= at_minute[minute], "minute {minute}: {oldest}, {at_minute:?}");
        assert!(minute == 0 || oldest + 20 > at_minute[minute], "minute {minute}: {oldest}, {at_minute:?}");
    }
    now.fetch_add(1000, Ordering::Release);
    // The store's own thread expires them.
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while store.stats().changes_kept_bytes > 0 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(store.stats().changes_kept_bytes, 0);
    let oldest = check_oldest(&store, &model);
    assert!(oldest > at_minute[3] && oldest <= store.stats().version);
}

#[test]
fn where_nothing_is_kept_who_keeps_up_sees_all_and_who_is_slow_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &options());
    let mut fast = store.changes_since(Version(0)).unwrap();
    let mut slow = store.changes_since(Version(0)).unwrap();
    assert!(slow.next().unwrap().is_some());
    let mut followed = Model::new();
    for number in 0..400 {
        commit(&store, vec![put(tree, number % 50, 4000)], &mut model);
        if number % 10 == 9 {
            followed.extend(drain(&mut fast).unwrap());
        }
        if number % 50 == 49 {
            store.checkpoint().unwrap();
            assert_eq!(store.stats().changes_kept_bytes, 0);
        }
    }
    followed.extend(drain(&mut fast).unwrap());
    assert!(followed == model);
    let oldest = check_oldest(&store, &model);
    assert!(oldest > 350);
    for _ in 0..3 {
        assert!(matches!(drain(&mut slow), Err(StoreError::Gone { oldest: told }) if told == Version(oldest)));
    }
}

#[test]
fn a_reader_that_had_read_all_goes_on_though_its_segment_is_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &options());
    let mut reader = store.changes_since(Version(0)).unwrap();
    assert_eq!(drain(&mut reader).unwrap(), model);
    let mut behind = reader.version().0;
    for round in 0..8 {
        // Each transaction takes more than half a segment, so the next one starts a new segment.
        commit(&store, vec![put(tree, round, 40_000)], &mut model);
        store.checkpoint().unwrap();
        let found = drain(&mut reader).unwrap();
        assert_eq!(found, model.range(behind + 1..).map(|(version, changes)| (*version, changes.clone())).collect());
        behind = reader.version().0;
    }
}

#[test]
fn readers_beside_writers_see_every_thread_of_them_in_order() {
    const WRITERS: u64 = 3;
    const EACH: u64 = 400;
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, _) = start(directory.path(), &keeping(1000));
    let last = store.stats().version + WRITERS * EACH;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = store.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    let key = [writer.to_be_bytes(), number.to_be_bytes()].concat();
                    store
                        .commit(&mut |tx| {
                            tx.put(tree, &key, &[7; 300]);
                            tx.put(tree, &[writer as u8], &number.to_be_bytes());
                            Ok(())
                        })
                        .unwrap();
                }
            });
        }
        for _ in 0..2 {
            let store = store.clone();
            scope.spawn(move || {
                let mut reader = store.changes_since(Version(0)).unwrap();
                let mut next = [0; WRITERS as usize];
                while reader.version().0 < last {
                    assert!(reader.wait(Duration::from_secs(60)).unwrap(), "stuck at {:?}", reader.version());
                    for changes in drain(&mut reader).unwrap().into_values().filter(|changes| changes.len() == 2) {
                        let Owned::Put(named, key, _) = &changes[0] else { panic!("{changes:?}") };
                        if *named != tree.0 {
                            continue;
                        }
                        let writer = key[7] as usize;
                        assert_eq!(key[8..], u64::to_be_bytes(next[writer]));
                        assert_eq!(changes[1], Owned::Put(tree.0, vec![writer as u8], key[8..].to_vec()));
                        next[writer] += 1;
                    }
                }
                assert_eq!(next, [EACH; WRITERS as usize]);
            });
        }
        let store = store.clone();
        scope.spawn(move || {
            while store.stats().version < last {
                store.checkpoint().unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
}

#[test]
fn who_has_read_all_is_woken_once_by_the_next_change() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &options());
    let woken = Arc::new(AtomicUsize::new(0));
    let mut reader = store.changes_since(Version(0)).unwrap();
    let count = Arc::clone(&woken);
    reader.wake_by(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    commit(&store, vec![put(tree, 0, 10)], &mut model);
    assert_eq!(woken.load(Ordering::Relaxed), 0, "nobody was told yet that there is nothing");
    assert_eq!(drain(&mut reader).unwrap().len(), 2);
    for number in 1..4 {
        commit(&store, vec![put(tree, number, 10)], &mut model);
    }
    assert_eq!(woken.load(Ordering::Relaxed), 1, "once, until it has read all again");
    assert_eq!(drain(&mut reader).unwrap().len(), 3);
    commit(&store, vec![put(tree, 9, 10)], &mut model);
    assert_eq!(woken.load(Ordering::Relaxed), 2);
}

#[test]
fn waiting_ends_in_time_and_with_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &options());
    let mut reader = store.changes_since(store_version(&store)).unwrap();
    assert!(!reader.wait(Duration::from_millis(5)).unwrap());
    assert!(reader.next().unwrap().is_none());
    commit(&store, vec![put(tree, 1, 10)], &mut model);
    assert!(reader.wait(Duration::from_secs(60)).unwrap());
    assert!(reader.next().unwrap().is_some());
    let waiter = std::thread::spawn(move || {
        let outcome = reader.wait(Duration::from_secs(60));
        assert!(matches!(outcome, Err(StoreError::Closed)), "{outcome:?}");
        assert!(matches!(reader.next().map(|_| ()), Err(StoreError::Closed)));
    });
    std::thread::sleep(Duration::from_millis(20));
    drop(store);
    waiter.join().unwrap();
}

fn store_version(store: &Store) -> Version {
    Version(store.stats().version)
}

#[test]
fn a_version_that_was_never_given_is_told_from_one_that_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ..) = start(directory.path(), &options());
    let newest = store_version(&store);
    assert!(store.changes_since(newest).is_ok());
    assert!(
        matches!(store.changes_since(Version(newest.0 + 1)).map(|_| ()), Err(StoreError::Ahead { newest: told }) if told == newest)
    );
}

#[test]
fn there_are_no_more_readers_than_the_bound() {
    let directory = tempfile::tempdir().unwrap();
    let (store, ..) = start(directory.path(), &options());
    let mut readers = Vec::new();
    let refused = loop {
        match store.changes_since(Version(0)) {
            Ok(reader) => readers.push(reader),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Busy));
    assert_eq!((readers.len(), store.stats().change_readers), (256, 256));
    readers.pop();
    assert!(store.changes_since(Version(0)).is_ok());
}

#[test]
fn a_bulk_build_resets_its_trees_at_its_version_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let options = keeping(100);
    let (store, tree, mut model) = start(directory.path(), &options);
    commit(&store, vec![put(tree, 1, 100)], &mut model);
    let before = store_version(&store).0;
    let (first, second) = (store.tree("first").unwrap(), store.tree("second").unwrap());
    let mut reader = store.changes_since(Version(before)).unwrap();
    for (version, changes) in drain(&mut reader).unwrap() {
        model.insert(version, changes);
    }
    let build = |count: u64| {
        let mut build = store.bulk().unwrap();
        (0..count).for_each(|number| build.push(&number.to_be_bytes(), b"loaded").unwrap());
        build
    };
    let builds = vec![(first, build(1000)), (second, build(10))];
    let attached = store.attach(builds, &[(tree, b"row".to_vec(), b"of the catalog".to_vec())]).unwrap();
    model.insert(attached.version.0, vec![Owned::Reset(tree.0), Owned::Reset(first.0), Owned::Reset(second.0)]);
    assert!(reader.wait(Duration::from_secs(60)).unwrap());
    let seen = drain(&mut reader).unwrap();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(attached.version.0, model[&attached.version.0].clone())]);
    commit(&store, vec![put(first, 5, 100)], &mut model);
    check_since(&store, 0, &model);
    drop((reader, store));
    let store = open(directory.path(), &options);
    check_since(&store, 0, &model);
    let snapshot_reader = store.reader().unwrap();
    assert_eq!(snapshot_reader.snapshot().get(second, &9u64.to_be_bytes()).unwrap().as_deref(), Some(&b"loaded"[..]));
    assert_eq!(snapshot_reader.snapshot().get(tree, b"row").unwrap().as_deref(), Some(&b"of the catalog"[..]));
}

#[test]
fn a_deleted_range_is_one_change_before_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &keeping(4));
    let committed = store.commit(&mut |tx| {
        tx.delete(tree, b"z");
        tx.delete_range(tree, beginning_with(b"b", &mut Vec::new()));
        tx.put(tree, b"b1", b"stays");
        Ok(())
    });
    let changes = vec![
        Owned::DeleteRange(tree.0, b"b".to_vec(), Some(b"c".to_vec())),
        Owned::Delete(tree.0, b"z".to_vec()),
        Owned::Put(tree.0, b"b1".to_vec(), b"stays".to_vec()),
    ];
    model.insert(committed.unwrap().version.0, changes);
    check_since(&store, 0, &model);
}

#[test]
fn a_refused_attachment_leaves_no_hole_in_the_versions() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &options());
    commit(&store, vec![put(tree, 1, 100)], &mut model);
    let mut build = store.bulk().unwrap();
    build.push(b"k", b"v").unwrap();
    assert!(matches!(store.attach(vec![(tree, build)], &[]), Err(StoreError::Limit { .. })), "the tree is not empty");
    commit(&store, vec![put(tree, 2, 100)], &mut model);
    store.checkpoint().unwrap();
    check_since(&store, store.stats().changes_oldest, &model);
}

#[test]
fn changes_are_seen_only_when_they_would_survive_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = keeping(10);
    options.durability = Durability::None;
    let store = open(directory.path(), &options);
    let tree = store.tree("t").unwrap();
    let mut reader = store.changes_since(Version(0)).unwrap();
    let mut model = Model::new();
    commit(&store, vec![put(tree, 1, 100)], &mut model);
    let newest = store_version(&store);
    assert!(reader.next().unwrap().is_none(), "nothing is synced");
    let mut from_newest = store.changes_since(newest).unwrap();
    assert!(from_newest.next().unwrap().is_none());
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    reader.wake_by(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert!(reader.next().unwrap().is_none());
    store.checkpoint().unwrap();
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    assert_eq!(drain(&mut reader).unwrap().len(), 2);
    assert!(from_newest.next().unwrap().is_none());
}

#[test]
fn changes_that_are_synced_at_an_interval_come_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = keeping(10);
    options.durability = Durability::Interval(Duration::from_millis(10));
    let store = open(directory.path(), &options);
    let tree = store.tree("t").unwrap();
    let mut reader = store.changes_since(Version(0)).unwrap();
    let mut model = Model::new();
    commit(&store, vec![put(tree, 1, 100)], &mut model);
    while reader.version() < store_version(&store) {
        assert!(reader.wait(Duration::from_secs(60)).unwrap());
        drain(&mut reader).unwrap();
    }
}

#[test]
fn a_restart_keeps_what_was_kept_and_a_smaller_setting_gives_it_up() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &keeping(1000));
    for number in 0..300 {
        commit(&store, vec![put(tree, number % 50, 4000)], &mut model);
        if number % 50 == 49 {
            store.checkpoint().unwrap();
        }
    }
    let kept = store.stats().changes_kept_bytes;
    assert!(kept > 10 * SEGMENT_BYTES);
    drop(store);
    let store = open(directory.path(), &keeping(1000));
    assert_eq!((store.stats().changes_oldest, store.stats().changes_kept_bytes), (0, kept));
    check_since(&store, 0, &model);
    drop(store);
    let store = open(directory.path(), &keeping(4));
    assert_eq!(store.stats().changes_kept_bytes, 4 * SEGMENT_BYTES);
    assert!(check_oldest(&store, &model) > 100);
    drop(store);
    let store = open(directory.path(), &options());
    assert_eq!(store.stats().changes_kept_bytes, 0);
    check_oldest(&store, &model);
}

#[test]
fn a_kept_segment_that_is_not_what_it_was_is_given_up_with_all_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &keeping(1000));
    for number in 0..200 {
        commit(&store, vec![put(tree, number % 50, 4000)], &mut model);
    }
    store.checkpoint().unwrap();
    drop(store);
    let file = std::fs::OpenOptions::new().write(true).open(directory.path().join("0000000005.log")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 8], 16).unwrap();
    let store = open(directory.path(), &keeping(1000));
    let oldest = check_oldest(&store, &model);
    assert!((60..90).contains(&oldest), "segments hold some fourteen transactions: {oldest}");
}

#[test]
fn damage_in_a_kept_segment_is_an_error_with_its_place_and_nothing_is_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree, mut model) = start(directory.path(), &keeping(1000));
    for number in 0..200 {
        commit(&store, vec![put(tree, number % 50, 3000)], &mut model);
    }
    store.checkpoint().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(directory.path().join("0000000003.log")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"damage", 5 * 4096 + 100).unwrap();
    let mut reader = store.changes_since(Version(0)).unwrap();
    for _ in 0..3 {
        match drain(&mut reader) {
            Err(StoreError::Corrupt { file, offset, .. }) => {
                assert_eq!((file.as_str(), offset), ("0000000003.log", 5 * 4096))
            }
            other => panic!("{:?}", other.map(|found| found.len())),
        }
    }
    let read = reader.version().0;
    let mut again = store.changes_since(Version(0)).unwrap();
    let mut found = Model::new();
    while let Ok(Some(changeset)) = again.next() {
        found.insert(changeset.version().0, changeset.changes().map(owned).collect());
    }
    assert_eq!(found, model.range(..=read).map(|(version, changes)| (*version, changes.clone())).collect());
    check_since(&store, read + 20, &model);
}

#[test]
fn a_transaction_larger_than_what_is_read_at_once_comes_whole() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = keeping(0);
    options.log_segment_bytes = 4 << 20;
    options.memtable_bytes = 16 << 20;
    options.changes_kept_bytes = 64 << 20;
    let (store, tree, mut model) = start(directory.path(), &options);
    for number in 0..6 {
        commit(&store, vec![put(tree, number, 10)], &mut model);
        commit(&store, (0..20).map(|part| put(tree, 100 + part, 100_000)).collect(), &mut model);
    }
    store.checkpoint().unwrap();
    check_since(&store, 0, &model);
    check_since(&store, 5, &model);
}

#[test]
fn a_full_disk_gets_kept_segments_back_before_it_refuses_anything() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, faults) = faulty(directory.path());
    let (store, _) = Store::open_on(Arc::new(disk), keeping(1000)).unwrap();
    let tree = store.tree("t").unwrap();
    let mut model = drain(&mut store.changes_since(Version(0)).unwrap()).unwrap();
    let write = |from: u64, model: &mut Model| {
        for number in from..from + 200 {
            commit(&store, vec![put(tree, number % 20, 4000)], model);
            if number % 20 == 19 {
                store.checkpoint().unwrap();
            }
        }
    };
    write(0, &mut model);
    assert_eq!(check_oldest(&store, &model), 0);
    let kept = store.stats().changes_kept_bytes;
    assert!(kept > 8 * SEGMENT_BYTES);
    // From now on no file may grow: every new segment of the log is a recycled one.
    faults.room.store(0, Ordering::Relaxed);
    write(200, &mut model);
    assert!(store.stats().changes_kept_bytes <= kept);
    assert!(check_oldest(&store, &model) > 0);
    assert!(!store.stats().is_full);
}

#[test]
fn a_full_disk_gets_kept_segments_back_for_a_tree_that_grows() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, faults) = faulty(directory.path());
    let (store, _) = Store::open_on(Arc::new(disk), keeping(1000)).unwrap();
    let tree = store.tree("t").unwrap();
    let mut model = drain(&mut store.changes_since(Version(0)).unwrap()).unwrap();
    for number in 0..1200 {
        commit(&store, vec![put(tree, number % 20, 4000)], &mut model);
    }
    store.checkpoint().unwrap();
    let kept = store.stats().changes_kept_bytes;
    assert!(kept > 50 * SEGMENT_BYTES, "{kept}");
    faults.room.store(0, Ordering::Relaxed);
    let pages = store.stats().tree_pages;
    for number in 0..400 {
        commit(&store, vec![put(tree, 1000 + number, 4000)], &mut model);
    }
    store.checkpoint().unwrap();
    assert!(store.stats().tree_pages > pages + 200, "{} after {pages}", store.stats().tree_pages);
    assert!(store.stats().changes_kept_bytes < kept);
    check_oldest(&store, &model);
}
