//! Readers beside the memtable's writer: at version V they see exactly the state at V, whatever is inserted meanwhile.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use store::memtable::{Lookup, Memtable};
use store::{Direction, KeyRange, TreeId, Version};

const TREE: TreeId = TreeId(3);
const READERS: u64 = 3;
/// Versions; each of the first `KEYS` creates a key, each later one changes one.
const VERSIONS: u64 = if cfg!(miri) { 300 } else { 800_000 };
const KEYS: u64 = VERSIONS / 2;
const TIME_MAX: Duration = Duration::from_secs(4);

/// A permutation of the numbers below `KEYS`: 7919 is prime and no divisor of it.
fn key_number(version: u64) -> u64 {
    version * 7919 % KEYS
}

fn key(number: u64) -> Vec<u8> {
    // Every other key has a long prefix, so that heads are equal and prefixes are extended under the readers.
    if number.is_multiple_of(2) {
        number.to_be_bytes().to_vec()
    } else {
        format!("{:0>40}{number:08}", "k").into_bytes()
    }
}

/// The newest version <= `at` that wrote the key that version `first` created.
fn newest_at(first: u64, at: u64) -> Option<u64> {
    (first <= at).then(|| first + (at - first) / KEYS * KEYS)
}

fn value(version: u64) -> Option<Vec<u8>> {
    let deleted = version.is_multiple_of(11);
    (!deleted).then(|| version.to_le_bytes().repeat(1 + version as usize % 9))
}

/// One pass of one reader over the snapshot `at`.
fn check_snapshot(table: &Memtable, at: u64, turn: u64) {
    for probe in 0..20 {
        let version = 1 + (turn * 31 + probe * 6_700_417) % VERSIONS;
        let first = 1 + (version - 1) % KEYS;
        let expected = newest_at(first, at);
        match (table.get(Version(at), TREE, &key(key_number(first))), expected) {
            (Lookup::Absent, None) => {}
            (Lookup::Deleted, Some(version)) => assert_eq!(value(version), None),
            (Lookup::Value(found), Some(version)) => assert_eq!(Some(found), value(version).as_deref()),
            (found, expected) => panic!("{found:?}, expected {expected:?} at {at}"),
        }
    }
    let from = key(turn * 104_729 % KEYS);
    let forward = scan(table, at, &from, true);
    let backward = scan(table, at, &from, false);
    assert!(forward.is_sorted_by(|a, b| a < b), "keys rise strictly");
    assert!(backward.is_sorted_by(|a, b| a > b), "keys fall strictly");
}

fn scan(table: &Memtable, at: u64, from: &[u8], forward: bool) -> Vec<Vec<u8>> {
    let (range, direction) = match forward {
        true => (KeyRange { from: Bound::Included(from), to: Bound::Unbounded }, Direction::Forward),
        false => (KeyRange { from: Bound::Unbounded, to: Bound::Excluded(from) }, Direction::Backward),
    };
    let mut keys = Vec::new();
    for found in table.scan(Version(at), TREE, range, direction).take(300) {
        assert!(found.version.0 <= at);
        assert_eq!(found.value, value(found.version.0).as_deref(), "a value belongs to its version");
        assert_eq!(found.key, key(key_number(found.version.0)), "and to its key");
        keys.push(found.key.to_vec());
    }
    keys
}

/// A whole scan visits each key of the snapshot once.
fn check_count(table: &Memtable, at: u64) {
    let count = |direction| table.scan(Version(at), TREE, KeyRange::ALL, direction).count() as u64;
    let (forward, backward) = (count(Direction::Forward), count(Direction::Backward));
    assert_eq!((forward, backward), (at.min(KEYS), at.min(KEYS)), "at {at}");
}

#[test]
fn readers_see_exactly_their_snapshot_while_the_writer_goes_on() {
    let (table, mut writer) = Memtable::new(if cfg!(miri) { 1 << 20 } else { 320 << 20 }).expect("memory");
    let visible = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let (table, visible, done) = (Arc::clone(&table), Arc::clone(&visible), Arc::clone(&done));
            std::thread::spawn(move || {
                let mut turn = reader;
                while !done.load(Ordering::Relaxed) {
                    turn += READERS;
                    let newest = visible.load(Ordering::Acquire);
                    let at = if turn.is_multiple_of(2) { newest } else { newest / 2 };
                    check_snapshot(&table, at, turn);
                    if turn % 64 == reader || cfg!(miri) {
                        check_count(&table, at);
                    }
                }
                turn
            })
        })
        .collect();
    let start = Instant::now();
    for version in 1..=VERSIONS {
        writer.insert(Version(version), TREE, &key(key_number(version)), value(version).as_deref()).expect("room");
        visible.store(version, Ordering::Release);
        if start.elapsed() > TIME_MAX && !cfg!(miri) {
            break;
        }
    }
    done.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().expect("the reader's checks hold") > READERS, "it got its turn");
    }
    check_count(&table, visible.load(Ordering::Relaxed));
}

/// Keys of each small tree: more than fit into one node, so that its root is split once.
const SMALL_TREE: u64 = 50;
const SMALL_TREES: u64 = if cfg!(miri) { 3 } else { 15_000 };

fn small_key(number: u64) -> [u8; 8] {
    (number % SMALL_TREE * 37 % SMALL_TREE).to_be_bytes()
}

/// The newest tree, whose root is about to be split, read from both ends.
fn check_newest_tree(table: &Memtable, at: u64) {
    let tree = TreeId((at / SMALL_TREE) as u32);
    let keys = |direction| table.scan(Version(at), tree, KeyRange::ALL, direction).map(|entry| entry.key);
    let last_first = keys(Direction::Backward).next();
    let (count, last) = keys(Direction::Forward).fold((0, None), |(count, _), key| (count + 1, Some(key)));
    assert_eq!(last_first, last, "both ends agree at {at}");
    assert_eq!(count, at % SMALL_TREE + 1, "at {at}");
}

#[test]
fn a_root_that_is_split_hides_nothing_from_readers() {
    let (table, mut writer) = Memtable::new(if cfg!(miri) { 1 << 20 } else { 256 << 20 }).expect("memory");
    let visible = Arc::new(AtomicU64::new(0));
    writer.insert(Version(0), TreeId(0), &small_key(0), None).expect("room");
    let last = SMALL_TREE * SMALL_TREES - 1;
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (table, visible) = (Arc::clone(&table), Arc::clone(&visible));
            std::thread::spawn(move || {
                let mut at = 0;
                while at < last {
                    at = visible.load(Ordering::Acquire);
                    check_newest_tree(&table, at);
                }
            })
        })
        .collect();
    for version in 1..=last {
        writer
            .insert(Version(version), TreeId((version / SMALL_TREE) as u32), &small_key(version), None)
            .expect("room");
        visible.store(version, Ordering::Release);
    }
    readers.into_iter().for_each(|reader| reader.join().expect("the reader's checks hold"));
}
