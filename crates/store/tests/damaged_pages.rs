//! Pages of the tree file that are damaged while the store is closed, or before they are first read: a read that needs
//! one returns an error, and never a wrong value, a row too few, or a row that does not exist.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use store::{Abort, Direction, KeyRange, Reader, Store, StoreError, StoreOptions, TreeId, Tx};

const PAGE: usize = 4096;
const ROWS: u32 = 3000;
const LEAF: u8 = 1;
const BRANCH: u8 = 2;
const OVERFLOW: u8 = 3;
/// Number of damages in the short form.
const DAMAGES: usize = 45;

/// Every twentieth value has overflow pages.
fn value(number: u32, round: u32) -> Vec<u8> {
    let words = if number.is_multiple_of(20) { 1500 } else { 100 };
    [number, round].map(u32::to_le_bytes).concat().repeat(words)
}

/// Keys of more than eight bytes, so that branches have tails.
fn key(number: u32) -> Vec<u8> {
    format!("row of some length {number:06}").into_bytes()
}

fn put(store: &Store, tree: TreeId, numbers: impl Iterator<Item = u32>, round: u32) -> Result<(), StoreError> {
    let numbers: Vec<u32> = numbers.collect();
    for numbers in numbers.chunks(50) {
        store.commit(&mut |tx: &mut Tx<'_>| {
            numbers.iter().for_each(|number| tx.put(tree, &key(*number), &value(*number, round)));
            Ok(())
        })?;
    }
    Ok(())
}

fn filled(directory: &Path) -> (Store, TreeId) {
    let (store, _) = Store::open(directory, StoreOptions::default()).unwrap();
    let tree = store.tree("t").unwrap();
    put(&store, tree, 0..ROWS, 0).unwrap();
    store.checkpoint().unwrap();
    (store, tree)
}

/// The tree file, changed without the store's knowledge.
struct Pages {
    file: std::fs::File,
    bytes: Vec<u8>,
}

impl Pages {
    fn of(directory: &Path) -> Pages {
        let path = directory.join("tree");
        let bytes = std::fs::read(&path).unwrap();
        Pages { file: std::fs::OpenOptions::new().write(true).open(path).unwrap(), bytes }
    }

    /// The pages of a kind; of overflow extents the first page.
    fn of_kind(&self, kind: u8) -> Vec<usize> {
        let is_of_kind = |page: &usize| self.bytes[page * PAGE + 8] == kind && self.number(*page) == *page;
        (2..self.bytes.len() / PAGE).filter(is_of_kind).collect()
    }

    /// The leaf that holds a row, as first written.
    fn leaf_of(&self, number: u32) -> usize {
        let is_it = |page: &usize| {
            let bytes = &self.bytes[page * PAGE..(page + 1) * PAGE];
            bytes.windows(8).any(|window| window == &value(number, 0)[..8])
        };
        self.of_kind(LEAF).into_iter().find(is_it).unwrap()
    }

    fn number(&self, page: usize) -> usize {
        u32::from_le_bytes(self.bytes[page * PAGE + 4..page * PAGE + 8].try_into().unwrap()) as usize
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).unwrap();
    }

    fn flip(&self, at: usize) {
        self.write(at, &[self.bytes[at] ^ 0x10]);
    }

    fn mend(&self, page: usize) {
        let pages = &self.bytes[page * PAGE..(page + 2) * PAGE];
        self.write(page * PAGE, pages);
    }

    /// Damages a page in one of the ways in which disks do; returns a description.
    fn damage(&self, page: usize, others: &[usize], rng: &mut SmallRng) -> String {
        let at = page * PAGE + rng.random_range(0..PAGE);
        match rng.random_range(0..6) {
            0..=2 => {
                self.flip(at);
                format!("a bit of page {page} at {}", at % PAGE)
            }
            3 => {
                self.write(at / 512 * 512, &[0; 512]);
                format!("a sector of page {page} at {}", at % PAGE)
            }
            4 => {
                self.write(at, &[0xab; 16]);
                format!("sixteen bytes of page {page} at {}", at % PAGE)
            }
            _ => {
                let other = others[rng.random_range(0..others.len())];
                self.write(page * PAGE, &self.bytes[other * PAGE..(other + 1) * PAGE]);
                format!("page {other} in the place of page {page}")
            }
        }
    }
}

/// Reads everything in every way; returns the number of errors. All other reads must be right.
#[track_caller]
fn check_reads(reader: &Reader, tree: TreeId, rows: &BTreeMap<Vec<u8>, Vec<u8>>, what: &str) -> u32 {
    let snapshot = reader.snapshot();
    let mut failed = 0;
    // Twice: the second time some places are remembered.
    for _ in 0..2 {
        for (key, value) in rows {
            match snapshot.get(tree, key) {
                Ok(found) => assert!(found.as_deref() == Some(value), "{what}: a wrong value of {key:?}"),
                Err(error) => failed += is_damage(&error),
            }
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut expected: Vec<_> = rows.iter().collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let mut at = 0;
        let mut is_right = true;
        let scanned = snapshot.scan(tree, KeyRange::ALL, direction, &mut |key, value| {
            is_right &= expected.get(at).is_some_and(|(one, other)| *one == key && *other == value);
            at += 1;
            ControlFlow::Continue(())
        });
        assert!(is_right, "{what}: a wrong row number {at}");
        match scanned {
            Ok(()) => assert_eq!(at, rows.len(), "{what}: rows too few"),
            Err(error) => failed += is_damage(&error),
        }
        let mut leaves = 0;
        let visited = snapshot.scan_leaves(tree, KeyRange::ALL, direction, &mut |entries| {
            leaves += entries.len();
            ControlFlow::Continue(())
        });
        match visited {
            Ok(visited) => assert!(!visited || leaves == rows.len(), "{what}: rows of leaves too few"),
            Err(error) => failed += is_damage(&error),
        }
    }
    failed
}

#[track_caller]
fn is_damage(error: &StoreError) -> u32 {
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    1
}

fn rows(round: u32) -> BTreeMap<Vec<u8>, Vec<u8>> {
    (0..ROWS).map(|number| (key(number), value(number, round))).collect()
}

#[test]
fn a_read_of_a_damaged_page_is_an_error_and_what_is_read_is_right() {
    let seed = rand::random();
    let mut rng = SmallRng::seed_from_u64(seed);
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = filled(directory.path());
    drop(store);
    let pages = Pages::of(directory.path());
    let kinds = [LEAF, BRANCH, OVERFLOW].map(|kind| pages.of_kind(kind));
    assert!(kinds.iter().all(|pages| pages.len() > 1), "{kinds:?}");
    let (rows, mut failing) = (rows(0), 0);
    for round in 0..DAMAGES {
        let kind = &kinds[round % kinds.len()];
        let page = kind[rng.random_range(0..kind.len())];
        let what = format!("seed {seed}, {}", pages.damage(page, kind, &mut rng));
        // Damage of the catalog or the space map prevents opening.
        if let Ok((store, _)) = Store::open(directory.path(), StoreOptions::default()) {
            let failed = check_reads(&store.reader().unwrap(), tree, &rows, &what);
            let stats = store.stats();
            assert_eq!(failed > 0, stats.damaged_pages > 0, "{what}");
            assert_eq!(failed > 0, stats.damage.is_some(), "{what}");
            check_changes(&store, tree, &mut rng, &what);
            failing += u32::from(failed > 0);
            drop(store);
        }
        pages.mend(page);
    }
    assert!(failing > DAMAGES as u32 / 2, "seed {seed}: only {failing} damages were met");
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    assert_eq!(check_reads(&store.reader().unwrap(), tree, &rows, "mended"), 0);
}

/// A transaction's reads are right too, or they fail. Nothing is changed.
#[track_caller]
fn check_changes(store: &Store, tree: TreeId, rng: &mut SmallRng, what: &str) {
    for _ in 0..200 {
        let number = rng.random_range(0..ROWS);
        let mut read = None;
        let outcome = store.commit(&mut |tx: &mut Tx<'_>| {
            read = Some(tx.get(tree, &key(number)).map(|value| value.map(|value| value.into_owned())));
            Err(Abort)
        });
        assert!(matches!(outcome, Err(StoreError::Aborted)), "{what}: {outcome:?}");
        match read.unwrap() {
            Ok(found) => assert!(found == Some(value(number, 0)), "{what}: a wrong value of {number} in a transaction"),
            Err(error) => drop(is_damage(&error)),
        }
    }
}

#[test]
fn a_page_that_a_checkpoint_finds_damaged_is_refused_to_readers_that_had_it_before() {
    let directory = tempfile::tempdir().unwrap();
    drop(filled(directory.path()));
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let tree = store.tree("t").unwrap();
    let (reader, mut rows, changed) = (store.reader().unwrap(), rows(0), 1111);
    assert_eq!(check_reads(&reader, tree, &rows, "sound"), 0);
    let pages = Pages::of(directory.path());
    pages.flip(pages.leaf_of(changed) * PAGE + 2000);
    put(&store, tree, [changed].into_iter(), 1).unwrap();
    rows.insert(key(changed), value(changed, 1));
    assert!(matches!(store.checkpoint(), Err(StoreError::Corrupt { .. })));
    // Its other rows are read by key and by remembered place.
    assert!(check_reads(&reader, tree, &rows, "damaged") > 0);
    assert_eq!(store.stats().damaged_pages, 1);
}

#[test]
fn a_checkpoint_that_meets_a_damaged_page_refuses_writes_and_says_why_until_one_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = filled(directory.path());
    drop(store);
    let pages = Pages::of(directory.path());
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let reader = store.reader().unwrap();
    let wanted = 1111;
    let leaf = pages.leaf_of(wanted);
    pages.flip(leaf * PAGE + 2000);
    // A change without reads is accepted, and stays.
    put(&store, tree, [wanted].into_iter(), 1).unwrap();
    let failed = store.checkpoint().unwrap_err();
    assert!(matches!(failed, StoreError::Corrupt { offset, .. } if offset == (leaf * PAGE) as u64), "{failed:?}");
    let stats = store.stats();
    assert!(stats.is_stopped_by_damage && stats.damaged_pages == 1 && !stats.is_poisoned, "{stats:?}");
    assert!(stats.damage.as_ref().is_some_and(|damage| damage.contains("checksum")), "{stats:?}");
    let refused = put(&store, tree, [5].into_iter(), 1).unwrap_err();
    assert!(refused.to_string().contains("no writes are taken"), "{refused}");
    // Other reads are not affected.
    assert!(reader.snapshot().get(tree, &key(5)).unwrap().as_deref() == Some(&value(5, 0)));
    assert!(reader.snapshot().get(tree, &key(wanted)).unwrap().as_deref() == Some(&value(wanted, 1)));
    pages.mend(leaf);
    store.checkpoint().unwrap();
    let stats = store.stats();
    assert!(!stats.is_stopped_by_damage && stats.damaged_pages == 0, "{stats:?}");
    put(&store, tree, [5].into_iter(), 1).unwrap();
    drop((reader, store));
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let mut rows = rows(0);
    rows.extend([5, wanted].map(|number| (key(number), value(number, 1))));
    assert_eq!(check_reads(&store.reader().unwrap(), tree, &rows, "mended"), 0);
}

#[test]
fn a_value_whose_own_pages_are_damaged_can_be_replaced_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let (store, tree) = filled(directory.path());
    drop(store);
    let pages = Pages::of(directory.path());
    for page in pages.of_kind(OVERFLOW) {
        pages.write(page * PAGE, &[0; 40]);
    }
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let reader = store.reader().unwrap();
    let long = (0..ROWS).step_by(20);
    for number in long.clone() {
        is_damage(&reader.snapshot().get(tree, &key(number)).unwrap_err());
    }
    assert_eq!(store.stats().damaged_pages, long.len() as u64);
    put(&store, tree, long.clone().step_by(2), 1).unwrap();
    let deleted: Vec<u32> = long.skip(1).step_by(2).collect();
    store
        .commit(&mut |tx: &mut Tx<'_>| {
            deleted.iter().for_each(|number| tx.delete(tree, &key(*number)));
            Ok(())
        })
        .unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.stats().damaged_pages, 0);
    let mut rows = rows(0);
    for number in (0..ROWS).step_by(40) {
        rows.insert(key(number), value(number, 1));
    }
    deleted.iter().for_each(|number| drop(rows.remove(&key(*number))));
    assert_eq!(check_reads(&reader, tree, &rows, "replaced"), 0);
    assert!(store.verify().is_clean());
}
