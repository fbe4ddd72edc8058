//! The lock of a folder: one store at a time, even if the lock file is deleted.

#![allow(clippy::unwrap_used)] // Tests: a failed step is a failed test.

use store::{Store, StoreError, StoreOptions};

#[test]
fn a_store_that_is_open_is_not_opened_again_when_its_lock_file_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Store::open(directory.path(), StoreOptions::default()).map(|(store, _)| store);
    // Just created, and opened later.
    for _ in 0..2 {
        let store = open().unwrap();
        store.tree("t").unwrap();
        assert!(matches!(open(), Err(StoreError::Locked)));
        std::fs::remove_file(directory.path().join("lock")).unwrap();
        assert!(matches!(open(), Err(StoreError::Locked)));
        std::fs::remove_file(directory.path().join("lock")).unwrap();
        // Nor can it be examined, restored from, or compacted while it is open.
        assert!(matches!(Store::examine(directory.path()), Err(StoreError::Locked)));
        let target = tempfile::tempdir().unwrap();
        let restored = Store::restore(directory.path(), target.path(), &mut |_| std::ops::ControlFlow::Continue(()));
        assert!(matches!(restored, Err(StoreError::Locked)));
        drop(store);
    }
    drop(open().unwrap());
    assert!(Store::examine(directory.path()).unwrap().is_clean());
}

#[test]
fn a_store_is_examined_in_a_folder_that_can_only_be_read() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), StoreOptions::default()).unwrap());
    std::fs::remove_file(directory.path().join("lock")).unwrap();
    for name in std::fs::read_dir(directory.path()).unwrap() {
        let path = name.unwrap().path();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&path, permissions).unwrap();
    }
    assert!(Store::examine(directory.path()).unwrap().is_clean());
    assert!(!directory.path().join("lock").exists());
}

#[test]
fn a_lock_that_is_held_for_a_moment_does_not_prevent_opening() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), StoreOptions::default()).unwrap());
    for name in ["lock", "tree"] {
        // As a process that was just forked does.
        let held = std::fs::File::open(directory.path().join(name)).unwrap();
        held.lock().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                drop(held);
            });
            drop(Store::open(directory.path(), StoreOptions::default()).unwrap());
        });
    }
}
