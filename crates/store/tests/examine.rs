//! Examination of a closed store: every fault is reported, and nothing is changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{Access, DiskFile};
use store::{Store, StoreError, StoreOptions, Tx};

const BLOCK: u64 = 4096;

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 512 << 10;
    options.log_segment_bytes = 128 << 10;
    options.map_bytes = 1 << 32;
    options
}

/// Two checkpoints, a bulk build between them, and a log over several segments.
fn filled(directory: &Path) -> u64 {
    let (store, _) = Store::open(directory, options()).unwrap();
    let tree = store.tree("t").unwrap();
    let put = |number: u32| {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, &number.to_be_bytes(), &number.to_le_bytes().repeat(100));
            Ok(())
        };
        store.commit(change).unwrap();
    };
    (0..200).for_each(put);
    store.checkpoint().unwrap();
    let other = store.tree("other").unwrap();
    let mut build = store.bulk().unwrap();
    (0..3000u32).for_each(|number| build.push(&number.to_be_bytes(), b"built").unwrap());
    store.attach(vec![(other, build)], &[]).unwrap();
    (100..200).for_each(put);
    store.checkpoint().unwrap();
    (200..300).for_each(put);
    store.stats().version
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn a_sound_store_is_read_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let version = filled(directory.path());
    let before = files(directory.path());
    let found = Store::examine(directory.path()).unwrap();
    assert!(found.is_clean() && found.torn_meta.is_none(), "{found}");
    assert_eq!((found.version.0, found.torn_bytes), (version, 0));
    assert!(found.batches > 100 && found.newest.trees.len() == 3, "{found}");
    assert!(files(directory.path()) == before);
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    assert!(matches!(Store::examine(directory.path()), Err(StoreError::Locked)));
    drop(store);
    assert!(matches!(Store::examine(&directory.path().join("none")), Err(StoreError::Io { .. })));
}

/// A disk that can only be read.
struct Unwritable;

impl Hooks for Unwritable {
    fn open(&self, _name: &str, access: Access) -> io::Result<()> {
        if access == Access::ReadOnly { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }

    fn write_at(&self, _name: &str, _file: &dyn DiskFile, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self, _name: &str, _file: &dyn DiskFile) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}

#[test]
fn a_killed_store_can_be_looked_at_where_nothing_can_be_written() {
    let [directory, copy] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let version = filled(directory.path());
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let tree = store.tree("t").unwrap();
    for _ in 0..3 {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, b"key", b"value");
            Ok(())
        };
        store.commit(change).unwrap();
    }
    // As after a kill: no later batch proves that the last ones were durable.
    for (name, content) in files(directory.path()) {
        std::fs::write(copy.path().join(name), content).unwrap();
    }
    let found = Store::examine_on(&HookedDisk::new(copy.path(), &Arc::new(Unwritable))).unwrap();
    assert!(found.is_clean(), "{found}");
    assert_eq!(found.version.0, version + 3);
}

/// Changes a byte and examines; returns the reported fault, if any.
fn told_of(directory: &Path, name: &str, at: u64) -> Option<String> {
    let file = File::options().read(true).write(true).open(directory.join(name)).unwrap();
    let mut old = [0];
    file.read_exact_at(&mut old, at).unwrap();
    file.write_all_at(&[old[0] ^ 0x10], at).unwrap();
    let told = match Store::examine(directory) {
        Err(error) => Some(error.to_string()),
        Ok(found) if !found.is_clean() || found.torn_meta.is_some() => Some(found.to_string()),
        Ok(_) => None,
    };
    file.write_all_at(&old, at).unwrap();
    told
}

#[test]
fn every_page_that_is_broken_is_told() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let found = Store::examine(directory.path()).unwrap();
    let pages = std::fs::metadata(directory.path().join("tree")).unwrap().len() / BLOCK;
    let mut told = 0;
    for page in 0..pages {
        told += u64::from(told_of(directory.path(), "tree", page * BLOCK + 2000).is_some());
    }
    // The newest state with both meta pages, and the pages that only the previous state reaches.
    let reached = found.newest.reached_pages;
    assert!(told >= reached, "{told} of {reached}");
    assert!(told_of(directory.path(), "tree", 100).unwrap().contains("meta pages"));
}

#[test]
fn every_batch_that_is_broken_is_told() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let found = Store::examine(directory.path()).unwrap();
    let mut told = Vec::new();
    for (name, bytes) in files(directory.path()).into_iter().filter(|(name, _)| name.ends_with(".log")) {
        for at in (0..bytes.len() as u64).step_by(BLOCK as usize).map(|block| block + 20) {
            told.extend(told_of(directory.path(), &name, at));
        }
    }
    // Each batch but the last one, which looks like a torn one; and the headers of segments.
    assert!(told.len() as u64 >= found.batches - 1, "{} of {}", told.len(), found.batches);
    assert!(told.iter().all(|told| told.contains(".log") || told.contains("log start")), "{told:?}");
}

#[test]
fn a_segment_that_is_gone_is_told() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let sound = Store::examine(directory.path()).unwrap();
    let mut told = 0;
    for (name, bytes) in files(directory.path()).into_iter().filter(|(name, _)| name.ends_with(".log")) {
        std::fs::remove_file(directory.path().join(&name)).unwrap();
        let is_told = match Store::examine(directory.path()) {
            Err(_) => true,
            // Without its last segments it looks like a shorter log: the loss shows in the version.
            Ok(found) => !found.is_clean() || found.version < sound.version,
        };
        told += u32::from(is_told);
        std::fs::write(directory.path().join(&name), bytes).unwrap();
    }
    assert!(told >= 2, "{told}");
}
