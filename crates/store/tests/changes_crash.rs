//! Power fails while a reader follows the changes of an open store. What it has read is never taken back, and it continues
//! where it was. The changes from the oldest version on are complete, in order, and produce exactly the store's data.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::simulation::content::Files;
use crate::simulation::disk::SimulatedDisk;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::disk::Disk;
use store::{Change, Direction, Durability, KeyRange, Store, StoreError, StoreOptions, TreeId, Version};

const WRITERS: u8 = 2;
/// Trees that are bulk-loaded, once each.
const LOADED_MAX: u8 = 20;
/// A longer history is replaced by a new store, since each crash reads all of it.
const VERSIONS_MAX: usize = 1500;
/// Time after which no further crash is started; STORE_CRASH_SECONDS sets another, STORE_CRASH_SEED repeats a run (as
/// far as threads allow: which operation is the n-th differs).
const SECONDS: u64 = 3;

/// A transaction's changes: tree, key, and the value, or `None` for a deleted key; no key for a reset.
type Changes = Vec<(u32, Option<Vec<u8>>, Option<Vec<u8>>)>;
/// Everything read, by version.
type History = BTreeMap<u64, Changes>;

fn options(segments_kept: u64, durability: Durability) -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 256 * 1024;
    options.log_segment_bytes = 64 * 1024;
    options.map_bytes = 1 << 30;
    options.changes_kept_bytes = segments_kept * options.log_segment_bytes;
    options.durability = durability;
    options
}

/// Reads new changes into `history`, whose last version is the reader's; changes that it already has must be the same.
fn read_on(store: &Store, since: u64, history: &mut History) -> Result<(), StoreError> {
    let mut reader = store.changes_since(Version(since))?;
    while let Some(changeset) = reader.next()? {
        let changes: Changes = changeset
            .changes()
            .map(|change| match change {
                Change::Put { tree, key, value } => (tree.0, Some(key.to_vec()), Some(value.to_vec())),
                Change::Delete { tree, key } => (tree.0, Some(key.to_vec()), None),
                Change::Reset { tree } => (tree.0, None, None),
                other => panic!("{other:?}"),
            })
            .collect();
        if let Some(before) = history.insert(changeset.version().0, changes.clone()) {
            assert!(before == changes, "version {} has changed", changeset.version().0);
        }
    }
    Ok(())
}

fn write(store: &Store, tree: TreeId, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    loop {
        let changes: Vec<(u16, usize)> =
            (0..rng.random_range(1..5)).map(|_| (rng.random_range(0..400), rng.random_range(0..900))).collect();
        let committed = store.commit(&mut |tx| {
            for (key, len) in &changes {
                match len % 5 {
                    0 => tx.delete(tree, &key.to_be_bytes()),
                    _ => tx.put(tree, &key.to_be_bytes(), &vec![*len as u8; *len]),
                }
            }
            Ok(())
        });
        if committed.is_err() {
            return;
        }
    }
}

/// Loads an empty tree; a crash at any step of it changes nothing for readers of changes.
fn load(store: &Store, number: u8) -> Result<(), StoreError> {
    let tree = store.tree(&format!("loaded {number}"))?;
    let mut build = store.bulk()?;
    for key in 0..200u16 {
        build.push(&key.to_be_bytes(), &[number; 50])?;
    }
    store.attach(vec![(tree, build)], &[]).map(|_| ())
}

/// Runs writers and a reader that follows them until the power fails; returns what the reader has read.
fn work(store: &Store, since: u64, seed: u64, loaded: u8) -> History {
    let mut seen = History::new();
    let Ok(tree) = store.tree("t") else { return seen };
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || write(store, tree, seed + u64::from(writer)))).collect();
        if loaded < LOADED_MAX {
            // Whether and when it fails depends on the crash.
            scope.spawn(move || drop(load(store, loaded)));
        }
        while !writers.iter().all(|writer| writer.is_finished()) {
            let at = seen.last_key_value().map_or(since, |(version, _)| *version);
            // After the crash reads fail too, in any way.
            let _ = read_on(store, at, &mut seen);
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    seen
}

/// The data that the changes produce, of trees that were never loaded.
fn replayed(history: &History) -> BTreeMap<(u32, Vec<u8>), Vec<u8>> {
    let mut data = BTreeMap::new();
    let is_reset = |tree: u32| history.values().flatten().any(|(reset, key, _)| *reset == tree && key.is_none());
    let mut resets = BTreeMap::new();
    for (tree, key, value) in history.values().flatten() {
        let (Some(key), false) = (key, *resets.entry(*tree).or_insert_with(|| is_reset(*tree))) else { continue };
        match value {
            Some(value) => data.insert((*tree, key.clone()), value.clone()),
            None => data.remove(&(*tree, key.clone())),
        };
    }
    data
}

fn check(store: &Store, history: &History, context: &str) {
    let newest = store.stats().version;
    assert_eq!(history.last_key_value().map_or(0, |(version, _)| *version), newest, "{context}");
    assert_eq!(history.len() as u64, newest, "{context}: every version once");
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    let mut found = BTreeMap::new();
    let expected = replayed(history);
    for tree in expected.keys().map(|(tree, _)| *tree).collect::<std::collections::BTreeSet<_>>() {
        let visit = &mut |key: &[u8], value: &[u8]| {
            found.insert((tree, key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        };
        snapshot.scan(TreeId(tree), KeyRange::ALL, Direction::Forward, visit).unwrap();
    }
    let of = |data: &BTreeMap<(u32, Vec<u8>), Vec<u8>>, place| data.get(place).map(Vec::len);
    for place in found.keys().chain(expected.keys()) {
        let (there, told) = (of(&found, place), of(&expected, place));
        assert!(there == told, "{context}: of {place:?} there are {there:?} bytes, and {told:?} by the changes");
    }
    assert!(found == expected, "{context}: the changes make other data than there is");
    for number in 0..LOADED_MAX {
        if let Some(tree) = store.existing_tree(&format!("loaded {number}")).unwrap()
            && snapshot.get(tree, &[0, 0]).unwrap().is_some()
        {
            let is_told = history.values().flatten().any(|(reset, key, _)| *reset == tree.0 && key.is_none());
            assert!(is_told, "{context}: nobody heard that tree {number} was loaded");
        }
    }
}

#[test]
fn power_failures_take_back_no_change_that_a_reader_has_seen() {
    let setting = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let seed = setting("STORE_CRASH_SEED").unwrap_or_else(rand::random);
    let time = Duration::from_secs(setting("STORE_CRASH_SECONDS").unwrap_or(SECONDS));
    let mut rng = SmallRng::seed_from_u64(seed);
    let began = Instant::now();
    let (mut files, mut history, mut crashes, mut kept_max) = (Files::new(), History::new(), 0u32, 0);
    while began.elapsed() < time {
        if history.len() > VERSIONS_MAX {
            (files, history) = (Files::new(), History::new());
        }
        let left = if rng.random_bool(0.3) { rng.random_range(1..60) } else { rng.random_range(1..1500) };
        let context = format!("seed {seed}, crash {crashes}, after {left} operations");
        let durability = match rng.random_range(0..3) {
            0 => Durability::Interval(Duration::from_millis(2)),
            _ => Durability::Commit,
        };
        let since = history.last_key_value().map_or(0, |(version, _)| *version);
        let disk = Arc::new(SimulatedDisk::powered(&files, left));
        let (mut seen, loaded) = (History::new(), rng.random_range(0..3 * LOADED_MAX));
        if let Ok((store, _)) = Store::open_on(Arc::clone(&disk) as Arc<dyn Disk>, options(100_000, durability)) {
            seen = work(&store, since, rng.random(), loaded);
        }
        files = disk.after_power_failure(&files, &mut rng);
        crashes += 1;
        let calm = Arc::new(SimulatedDisk::powered(&files, u64::MAX));
        let (store, _) = Store::open_on(calm, options(100_000, Durability::Commit))
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        kept_max = kept_max.max(store.stats().changes_kept_bytes);
        assert_eq!(store.stats().changes_oldest, 0, "{context}");
        // The changes read before exist and are the same, and the following ones continue them.
        let newest_seen = seen.last_key_value().map_or(since, |(version, _)| *version);
        let mut all = seen;
        read_on(&store, 0, &mut all).unwrap_or_else(|error| panic!("{context}: {error}"));
        for (version, changes) in history {
            assert!(all.get(&version) == Some(&changes), "{context}: version {version} has changed");
        }
        assert!(newest_seen <= store.stats().version, "{context}: {newest_seen} was seen");
        check(&store, &all, &context);
        history = all;
    }
    assert!(crashes > 5 && kept_max > 0, "{crashes} crashes, {kept_max} bytes kept");
    println!("{crashes} crashes, {kept_max} bytes kept");
}
