//! A range with the same beginning as an earlier one has the model's entries, whether or not its leaf was remembered.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use store::{Direction, KeyRange, Store, StoreOptions, StoreSnapshot, TreeId};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

const KEYS: u64 = 4_000;

/// Keys of all lengths that are remembered and of some that are not; many are between two keys of another length.
fn key(number: u64) -> Vec<u8> {
    let length = 2 + (number % 9) as usize;
    let spread = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_be_bytes();
    spread.into_iter().chain([7, 7]).take(length).collect()
}

fn value(number: u64) -> Vec<u8> {
    vec![number as u8; 20 + (number % 31) as usize]
}

struct Tried {
    _folder: tempfile::TempDir,
    store: Store,
    tree: TreeId,
    model: Model,
}

impl Tried {
    fn new(places_bytes: usize) -> Tried {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = StoreOptions::default();
        options.places_bytes = places_bytes;
        let (store, _) = Store::open(folder.path(), options).expect("opened");
        let tree = store.tree("one").expect("a tree");
        let mut tried = Tried { _folder: folder, store, tree, model: Model::new() };
        for first in (0..KEYS).step_by(1000) {
            tried.put(first..first + 1000);
        }
        tried.store.checkpoint().expect("a checkpoint");
        tried
    }

    fn put(&mut self, numbers: impl Iterator<Item = u64> + Clone + Sync) {
        let tree = self.tree;
        let commit = self.store.commit(&mut |tx| {
            numbers.clone().for_each(|number| tx.put(tree, &key(number), &value(number)));
            Ok(())
        });
        commit.expect("committed");
        self.model.extend(numbers.map(|number| (key(number), value(number))));
    }

    fn delete(&mut self, numbers: impl Iterator<Item = u64> + Clone + Sync) {
        let tree = self.tree;
        let commit = self.store.commit(&mut |tx| {
            numbers.clone().for_each(|number| tx.delete(tree, &key(number)));
            Ok(())
        });
        commit.expect("committed");
        numbers.for_each(|number| drop(self.model.remove(&key(number))));
    }

    /// Every range twice, and again from the same beginning to another end.
    #[track_caller]
    fn check(&self, snapshot: &StoreSnapshot<'_>) {
        for number in (0..KEYS).step_by(97) {
            let (from, far) = (key(number), key(number * 7 + 1));
            let mut near = from.clone();
            near.push(0xff);
            for to in [&near, &near, &far, &from] {
                self.check_range(snapshot, &from, Bound::Excluded(to), usize::MAX);
                self.check_range(snapshot, &from, Bound::Included(to), 3);
            }
            self.check_range(snapshot, &from, Bound::Unbounded, 300);
        }
        for beyond in [[0xff; 8].as_slice(), &[0; 3]] {
            for _ in 0..2 {
                self.check_range(snapshot, beyond, Bound::Unbounded, 10);
            }
        }
    }

    #[track_caller]
    fn check_range(&self, snapshot: &StoreSnapshot<'_>, from: &[u8], to: Bound<&[u8]>, limit: usize) {
        let range = KeyRange { from: Bound::Included(from), to };
        let is_empty = matches!(to, Bound::Excluded(to) | Bound::Included(to) if to < from || to == from && range.to == Bound::Excluded(from));
        let entries = (!is_empty).then(|| self.model.range::<[u8], _>((Bound::Included(from), to)));
        let expected = entries.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
        let expected: Pairs = expected.take(limit).collect();
        let mut scanned = Pairs::new();
        let visit = &mut |key: &[u8], value: &[u8]| {
            scanned.push((key.to_vec(), value.to_vec()));
            if scanned.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        snapshot.scan(self.tree, range, Direction::Forward, visit).expect("scanned");
        assert!(scanned == expected, "scanned {range:?}, {} entries of {}", scanned.len(), expected.len());
        let (mut leaves, mut key) = (Pairs::new(), Vec::new());
        let done = snapshot.scan_leaves(self.tree, range, Direction::Forward, &mut |entries| {
            for number in 0..entries.len() {
                entries.key_into(number, &mut key).expect("a key");
                leaves.push((key.clone(), entries.value(number).expect("a value").to_vec()));
                if leaves.len() == limit {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if done.expect("scanned") {
            assert!(leaves == expected, "leaves of {range:?}, {} entries of {}", leaves.len(), expected.len());
        }
    }
}

#[test]
fn a_range_has_its_entries_wherever_its_beginning_was_remembered() {
    // The cache holds nothing, hardly anything, everything.
    for places_bytes in [0, 256, 4 << 20] {
        let mut tried = Tried::new(places_bytes);
        let reader = tried.store.reader().expect("a reader");
        tried.check(&reader.snapshot());
        // The content of a remembered leaf changes, first in memory, then in the tree.
        tried.delete((0..KEYS).step_by(5));
        tried.put(KEYS..KEYS + 500);
        tried.check(&reader.snapshot());
        tried.store.checkpoint().expect("a checkpoint");
        tried.check(&reader.snapshot());
        tried.put((0..KEYS).step_by(3));
        tried.store.checkpoint().expect("a checkpoint");
        tried.check(&reader.snapshot());
    }
}

#[test]
fn a_document_and_a_range_of_the_same_key_are_remembered_apart() {
    let tried = Tried::new(4 << 20);
    let reader = tried.store.reader().expect("a reader");
    let snapshot = reader.snapshot();
    for _ in 0..2 {
        for number in (0..KEYS).step_by(17) {
            let key = key(number);
            assert_eq!(
                snapshot.get(tried.tree, &key).expect("read").as_deref(),
                tried.model.get(&key).map(Vec::as_slice)
            );
            tried.check_range(&snapshot, &key, Bound::Included(&key), 2);
        }
    }
}

#[test]
fn who_asks_before_waiting_begins_where_another_scan_began() {
    let tried = Tried::new(4 << 20);
    let reader = tried.store.reader().expect("a reader");
    tried.check(&reader.snapshot());
    reader.ask_before_waiting(true);
    tried.check(&reader.snapshot());
}
