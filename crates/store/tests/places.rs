//! A reader remembers where it found short keys: its results must agree with those of a fresh reader, whatever was
//! written, deleted and checkpointed in between, also for snapshots held meanwhile.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use store::{Direction, KeyRange, Store, StoreOptions, TreeId};

const KEYS: u32 = 3_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys of 0 to 9 bytes, so that some differ only in length, and some are too long to be remembered.
fn key(number: u32) -> Vec<u8> {
    let bytes = u64::from(number / 10).to_be_bytes();
    let mut key = bytes[8 - (number as usize % 9)..].to_vec();
    if number % 10 == 9 {
        key.extend_from_slice(b"long enough");
    }
    key
}

fn write(store: &Store, tree: TreeId, model: &mut Model, round: u32) {
    for chunk in (0..KEYS).filter(|number| (number + round).is_multiple_of(3)).collect::<Vec<_>>().chunks(200) {
        let mut changes = Vec::new();
        for number in chunk {
            let value =
                (number % 7 != round % 7).then(|| format!("{round} {number}").repeat(1 + *number as usize % 40));
            changes.push((key(*number), value.map(String::into_bytes)));
        }
        let commit = store.commit(&mut |tx| {
            for (key, value) in &changes {
                match value {
                    Some(value) => tx.put(tree, key, value),
                    None => tx.delete(tree, key),
                }
            }
            Ok(())
        });
        commit.expect("committed");
        for (key, value) in changes {
            match value {
                Some(value) => model.insert(key, value),
                None => model.remove(&key),
            };
        }
    }
}

#[track_caller]
fn check(snapshot: &store::StoreSnapshot<'_>, tree: TreeId, model: &Model) {
    for number in 0..KEYS {
        let key = key(number);
        let found = snapshot.get(tree, &key).expect("read");
        assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice), "{key:?}");
    }
    for number in (0..KEYS).step_by(7) {
        let (from, mut found) = (key(number), Vec::new());
        let range = KeyRange { from: Bound::Included(&from), to: Bound::Unbounded };
        let scanned = snapshot.scan(tree, range, Direction::Forward, &mut |key, value| {
            found.push((key.to_vec(), value.to_vec()));
            if found.len() < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        scanned.expect("read");
        let expected = model.range(from.clone()..).take(3).map(|(key, value)| (key.clone(), value.clone()));
        assert!(found.iter().cloned().eq(expected), "from {from:?}: {found:?}");
    }
}

/// Prefetches keys before they are looked up, and beginnings of ranges, sometimes more than are recorded.
fn foresee(reader: &store::Reader, tree: TreeId) {
    for number in 0..KEYS {
        reader.foresee(tree, &key(number));
        reader.foresee_range(tree, &key(number));
        if number.is_multiple_of(70) || number == KEYS / 2 {
            reader.fetch();
        }
    }
    reader.fetch();
}

fn check_against_a_map(places_bytes: usize) {
    let dir = tempfile::tempdir().expect("a folder");
    let mut options = StoreOptions::default();
    options.places_bytes = places_bytes;
    let (store, _) = Store::open(dir.path(), options).expect("opened");
    let (tree, other) = (store.tree("one").expect("a tree"), store.tree("other").expect("a tree"));
    let (mut model, mut other_model) = (Model::new(), Model::new());
    let reader = store.reader().expect("a reader");
    for round in 0..6 {
        write(&store, tree, &mut model, round);
        write(&store, other, &mut other_model, round + 1);
        let held = reader.snapshot();
        let (then, other_then) = (model.clone(), other_model.clone());
        check(&held, tree, &then);
        store.checkpoint().expect("a checkpoint");
        for _ in 0..2 {
            foresee(&reader, tree);
            check(&reader.snapshot(), tree, &model);
            check(&reader.snapshot(), other, &other_model);
            check(&held, tree, &then);
            check(&held, other, &other_then);
        }
    }
}

#[test]
fn a_remembered_place_is_never_stale() {
    check_against_a_map(StoreOptions::default().places_bytes);
}

#[test]
fn keys_that_drive_each_other_out_are_still_found() {
    check_against_a_map(64);
    check_against_a_map(4096);
}

#[test]
fn a_reader_without_room_for_places_searches() {
    check_against_a_map(0);
    check_against_a_map(63);
}
