//! The folder of an open store is moved, and another folder takes its path.

use std::path::Path;

use store::{Store, StoreOptions, Tx};

/// Enough that both stores change their log segment several times and run checkpoints.
const KEYS: u32 = 4000;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 512 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options.map_bytes = 1 << 30;
    options
}

fn put(store: &Store, keys: std::ops::Range<u32>, value: &[u8]) {
    let tree = store.tree("t").unwrap();
    for key in keys {
        store
            .commit(&mut |tx: &mut Tx<'_>| {
                tx.put(tree, &key.to_be_bytes(), value);
                Ok(())
            })
            .unwrap();
    }
}

#[track_caller]
fn check(directory: &Path, keys: u32, value: &[u8]) {
    let (store, _) = Store::open(directory, options()).unwrap();
    let tree = store.existing_tree("t").unwrap().unwrap();
    let reader = store.reader().unwrap();
    for key in 0..keys {
        assert_eq!(reader.snapshot().get(tree, &key.to_be_bytes()).unwrap().as_deref(), Some(value), "{key}");
    }
    assert!(store.verify().is_clean());
}

#[test]
fn a_store_whose_folder_is_moved_goes_on_there_and_an_empty_folder_at_its_path_stays_empty() {
    let above = tempfile::tempdir().unwrap();
    let (path, moved) = (above.path().join("mk"), above.path().join("mk.old"));
    let value = [1; 300];
    let (store, _) = Store::open(&path, options()).unwrap();
    put(&store, 0..KEYS / 2, &value);
    std::fs::rename(&path, &moved).unwrap();
    std::fs::create_dir(&path).unwrap();
    put(&store, KEYS / 2..KEYS, &value);
    store.checkpoint().unwrap();
    drop(store);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    check(&moved, KEYS, &value);
}

#[test]
fn a_store_whose_folder_is_moved_does_not_touch_a_second_store_at_its_path() {
    let above = tempfile::tempdir().unwrap();
    let (path, moved) = (above.path().join("mk"), above.path().join("mk.old"));
    let (ours, theirs) = ([1; 300], [2; 300]);
    let (first, _) = Store::open(&path, options()).unwrap();
    put(&first, 0..KEYS / 2, &ours);
    std::fs::rename(&path, &moved).unwrap();
    let (second, _) = Store::open(&path, options()).unwrap();
    for part in 0..10 {
        let keys = part * KEYS / 10..(part + 1) * KEYS / 10;
        put(&second, keys.clone(), &theirs);
        put(&first, keys, &ours);
    }
    drop((first, second));
    check(&moved, KEYS, &ours);
    check(&path, KEYS, &theirs);
}
