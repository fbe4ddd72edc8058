//! Files of an open store are deleted or cut short: it says so and refuses writes. A backup still has everything acknowledged,
//! unless the tree file was cut.

use std::path::Path;
use std::time::{Duration, Instant};

use store::{Store, StoreError, StoreOptions, Tx};

/// Time that the store may take to notice.
const PATIENCE: Duration = Duration::from_secs(20);

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 512 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options.map_bytes = 1 << 30;
    options
}

fn put(store: &Store, key: u32) -> Result<(), StoreError> {
    let tree = store.tree("t")?;
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &key.to_be_bytes(), &key.to_le_bytes().repeat(50));
        Ok(())
    };
    store.commit(change).map(|_| ())
}

#[track_caller]
fn check(store: &Store, keys: u32) {
    let tree = store.existing_tree("t").unwrap().unwrap();
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    for key in 0..keys {
        let value = snapshot.get(tree, &key.to_be_bytes()).unwrap();
        assert_eq!(value.as_deref(), Some(&key.to_le_bytes().repeat(50)[..]), "{key} of {keys}");
    }
}

/// Writes until it is refused; returns the number of acknowledged writes and the names in the refusal.
fn write_until_refused(store: &Store, mut keys: u32) -> (u32, String) {
    let began = Instant::now();
    loop {
        match put(store, keys) {
            Ok(()) => keys += 1,
            Err(StoreError::Deleted { files }) => return (keys, files),
            Err(error) => panic!("{error}"),
        }
        assert!(began.elapsed() < PATIENCE, "nothing was noticed");
    }
}

fn remove(directory: &Path, is_removed: impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if is_removed(&name) {
            // The store may remove a segment of its own, or rename it, meanwhile.
            let _ = std::fs::remove_file(directory.join(name));
        }
    }
}

#[track_caller]
fn check_refusal(is_removed: impl Fn(&str) -> bool, removes_folder: bool, named: &str) {
    let above = tempfile::tempdir().unwrap();
    let (folder, copy) = (above.path().join("data"), above.path().join("copy"));
    let (store, _) = Store::open(&folder, options()).unwrap();
    for key in 0..2000 {
        put(&store, key).unwrap();
    }
    assert_eq!(store.stats().files_deleted, None);
    remove(&folder, &is_removed);
    if removes_folder {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    let (keys, files) = write_until_refused(&store, 2000);
    assert!(files.contains(named), "{files}");
    assert_eq!(store.stats().files_deleted.as_deref(), Some(&files[..]));
    assert!(!store.stats().is_full && !store.stats().is_poisoned);
    let refusal = put(&store, keys).unwrap_err().to_string();
    assert!(refusal.contains(&files) && refusal.contains("make a backup now"), "{refusal}");
    check(&store, keys);
    store.backup(&copy, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    drop(store);
    let (copied, _) = Store::open(&copy, options()).unwrap();
    check(&copied, keys);
    put(&copied, keys).unwrap();
}

#[test]
fn deleted_log_segments_stop_writes_and_a_backup_has_everything() {
    check_refusal(|name| name.ends_with(".log"), false, ".log");
}

#[test]
fn a_deleted_tree_file_stops_writes_and_a_backup_has_everything() {
    check_refusal(|name| name == "tree", false, "tree");
}

#[test]
fn a_deleted_lock_file_stops_writes_and_a_backup_has_everything() {
    check_refusal(|name| name == "lock", false, "lock");
}

#[test]
fn a_deleted_folder_stops_writes_and_a_backup_has_everything() {
    check_refusal(|_| true, true, "tree");
}

/// Cuts the files to half their length; returns how many.
fn cut(directory: &Path, is_cut: impl Fn(&str) -> bool) -> usize {
    let names = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| is_cut(name)).collect();
    for name in &names {
        // The store may rename a segment of its own meanwhile.
        let Ok(file) = std::fs::OpenOptions::new().write(true).open(directory.join(name)) else { continue };
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    }
    names.len()
}

#[track_caller]
fn check_cut(is_cut: impl Fn(&str) -> bool, named: &str) -> (Store, tempfile::TempDir) {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("data");
    let (store, _) = Store::open(&folder, options()).unwrap();
    for key in 0..2000 {
        put(&store, key).unwrap();
    }
    store.checkpoint().unwrap();
    put(&store, 2000).unwrap();
    assert!(cut(&folder, is_cut) > 0);
    let began = Instant::now();
    while store.stats().files_deleted.is_none() {
        assert!(began.elapsed() < PATIENCE, "not noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let refusal = put(&store, 2001).unwrap_err().to_string();
    assert!(refusal.contains(named) && refusal.contains("cut short"), "{refusal}");
    (store, above)
}

#[test]
fn a_log_that_is_cut_is_noticed_and_a_backup_has_everything() {
    let (store, above) = check_cut(|name| name.ends_with(".log"), ".log");
    let copy = above.path().join("copy");
    store.backup(&copy, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    drop(store);
    let (copied, _) = Store::open(&copy, options()).unwrap();
    check(&copied, 2001);
}

#[test]
fn a_tree_file_that_is_cut_is_noticed_without_a_read() {
    check_cut(|name| name == "tree", "tree");
}

#[test]
fn deleted_files_are_noticed_without_writes() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    put(&store, 0).unwrap();
    remove(directory.path(), |name| name == "tree");
    let began = Instant::now();
    while store.stats().files_deleted.is_none() {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(matches!(put(&store, 1), Err(StoreError::Deleted { .. })));
}
