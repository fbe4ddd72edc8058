//! Content after a stop of any kind, and the refusals of opening.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::DiskFile;
use store::{Direction, Durability, KeyRange, Store, StoreError, StoreOptions, Tx};

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 512 * 1024;
    options.log_segment_bytes = 256 * 1024;
    options.map_bytes = 1 << 32;
    options
}

fn put(store: &Store, number: u32) -> Result<(), StoreError> {
    let tree = store.tree("t")?;
    let change = &mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &number.to_le_bytes().repeat(50));
        tx.delete(tree, &(number / 2).to_be_bytes());
        Ok(())
    };
    store.commit(change).map(|_| ())
}

#[track_caller]
fn check(store: &Store, count: u32) {
    let tree = store.existing_tree("t").unwrap().unwrap();
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    for number in 1..=count {
        let value = snapshot.get(tree, &number.to_be_bytes()).unwrap();
        let expected = (number > count / 2).then(|| number.to_le_bytes().repeat(50));
        assert_eq!(value.as_deref(), expected.as_deref(), "{number} of {count}");
    }
}

/// Copies the folder of an open store, as a kill would leave it. A segment may be renamed for reuse meanwhile: then it tries again.
fn copy(from: &Path) -> tempfile::TempDir {
    const TRIES_MAX: usize = 100;
    for _ in 0..TRIES_MAX {
        let to = tempfile::tempdir().unwrap();
        let copied = std::fs::read_dir(from).unwrap().try_for_each(|entry| {
            let path = entry.unwrap().path();
            std::fs::copy(&path, to.path().join(path.file_name().unwrap())).map(drop)
        });
        match copied {
            Ok(()) => return to,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the folder was never still");
}

#[test]
fn a_store_that_was_not_closed_opens_with_everything_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    for number in 1..=3000 {
        put(&store, number).unwrap();
        if number % 700 == 0 {
            store.checkpoint().unwrap();
        }
        if number % 500 == 0 {
            let killed = copy(directory.path());
            let (recovered, _) = Store::open(killed.path(), options()).unwrap();
            check(&recovered, number);
            put(&recovered, number + 1).unwrap();
            check(&recovered, number + 1);
        }
    }
    check(&store, 3000);
}

#[test]
fn a_store_opens_again_and_again_with_and_without_checkpoints() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let (store, recovery) = Store::open(directory.path(), options()).unwrap();
        assert_eq!(recovery.torn_bytes, 0);
        if round > 0 {
            check(&store, round * 200);
        }
        for number in round * 200 + 1..=round * 200 + 200 {
            put(&store, number).unwrap();
        }
        if round % 2 == 0 {
            store.checkpoint().unwrap();
        }
    }
}

#[test]
fn a_smaller_memtable_than_before_still_takes_the_whole_log() {
    let directory = tempfile::tempdir().unwrap();
    let mut large = options();
    large.memtable_bytes = 64 << 20;
    let (store, _) = Store::open(directory.path(), large).unwrap();
    for number in 1..=2500 {
        put(&store, number).unwrap();
    }
    drop(store);
    let (store, recovery) = Store::open(directory.path(), options()).unwrap();
    assert!(recovery.batches >= 2500);
    check(&store, 2500);
    put(&store, 2501).unwrap();
    store.checkpoint().unwrap();
    drop(store);
    check(&Store::open(directory.path(), options()).unwrap().0, 2501);
}

#[test]
fn a_torn_last_batch_is_reported_and_the_rest_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    for number in 1..=10 {
        put(&store, number).unwrap();
    }
    let killed = copy(directory.path());
    let name = killed.path().join("0000000001.log");
    let mut bytes = std::fs::read(&name).unwrap();
    let last = (0..bytes.len()).step_by(4096).rfind(|at| bytes[*at..].starts_with(b"SLOG")).unwrap();
    bytes[last + 100] ^= 1;
    std::fs::write(&name, bytes).unwrap();
    let (recovered, recovery) = Store::open(killed.path(), options()).unwrap();
    assert!(recovery.torn_bytes > 200, "{recovery:?}");
    check(&recovered, 9);
}

#[test]
fn damage_in_an_acknowledged_batch_is_an_error_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    for number in 1..=10 {
        put(&store, number).unwrap();
    }
    drop(store);
    let name = directory.path().join("0000000001.log");
    let mut bytes = std::fs::read(&name).unwrap();
    bytes[5 * 4096 + 100] ^= 1;
    std::fs::write(&name, bytes).unwrap();
    let error = Store::open(directory.path(), options()).err();
    assert!(
        matches!(&error, Some(StoreError::Corrupt { file, offset, .. }) if file == "0000000001.log" && *offset == 5 * 4096),
        "{error:?}"
    );
}

#[test]
fn a_log_without_its_tree_file_is_not_taken_for_a_new_store() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    put(&store, 1).unwrap();
    drop(store);
    std::fs::remove_file(directory.path().join("tree")).unwrap();
    assert!(matches!(Store::open(directory.path(), options()).err(), Some(StoreError::Corrupt { .. })));
}

#[test]
fn a_creation_that_was_cut_short_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    drop(Store::open(directory.path(), options()).unwrap());
    // As if the power had failed before the tree file got its name.
    std::fs::rename(directory.path().join("tree"), directory.path().join("tree.new")).unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    put(&store, 1).unwrap();
    check(&store, 1);
}

#[test]
fn a_second_open_is_refused_until_the_first_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let other = store.clone();
    drop(store);
    assert!(matches!(Store::open(directory.path(), options()).err(), Some(StoreError::Locked)));
    drop(other);
    Store::open(directory.path(), options()).unwrap();
}

#[test]
fn every_durability_keeps_what_was_closed() {
    for durability in [Durability::Commit, Durability::Interval(Duration::from_millis(5)), Durability::None] {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options();
        options.durability = durability;
        let (store, _) = Store::open(directory.path(), options.clone()).unwrap();
        for number in 1..=2000 {
            put(&store, number).unwrap();
        }
        drop(store);
        check(&Store::open(directory.path(), options).unwrap().0, 2000);
    }
}

#[test]
fn settings_that_cannot_work_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options();
    options.memtable_bytes = 1000;
    assert!(matches!(Store::open(directory.path(), options).err(), Some(StoreError::Limit { .. })));
}

#[test]
fn a_missing_segment_at_the_logs_start_is_named_with_its_fault_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    for number in 1..=3000 {
        put(&store, number).unwrap();
    }
    store.checkpoint().unwrap();
    drop(store);
    let refusal = || match Store::open(directory.path(), options()) {
        Ok(_) => panic!("opened"),
        Err(error) => error.to_string(),
    };
    let mut segments: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "log"))
        .collect();
    segments.sort();
    let aside = tempfile::tempdir().unwrap();
    for path in &segments {
        std::fs::copy(path, aside.path().join(path.file_name().unwrap())).unwrap();
        std::fs::remove_file(path).unwrap();
    }
    let missing = refusal();
    let named = segments
        .iter()
        .find(|path| missing.contains(path.file_name().unwrap().to_str().unwrap()))
        .unwrap_or_else(|| panic!("{missing}"));
    assert!(missing.contains("which is missing: put the file back, or restore a backup"), "{missing}");
    assert!(!missing.contains("data in tree"), "{missing}");
    std::fs::write(named, b"").unwrap();
    assert!(refusal().contains("which is empty"), "{}", refusal());
    std::fs::write(named, b"x").unwrap();
    assert!(refusal().contains("which has only 1 bytes"), "{}", refusal());
    for path in &segments {
        std::fs::copy(aside.path().join(path.file_name().unwrap()), path).unwrap();
    }
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    check(&store, 3000);
}

/// Writes of the tree file that fail after a number of meta pages.
struct MetaPages {
    left: AtomicI64,
}

impl Hooks for MetaPages {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        const META_PAGES_BYTES: u64 = 2 * 4096;
        if name == "tree" && self.left.fetch_sub(i64::from(offset < META_PAGES_BYTES), Ordering::AcqRel) <= 0 {
            return Err(io::Error::from_raw_os_error(5));
        }
        file.write_at(bytes, offset)
    }
}

#[test]
fn a_transaction_larger_than_a_memtable_of_recovery_is_in_the_trees_as_a_whole_or_not_at_all() {
    const ROWS: u32 = 300;
    for meta_pages in 1..12 {
        let directory = tempfile::tempdir().unwrap();
        let mut large = options();
        (large.memtable_bytes, large.log_segment_bytes) = (4 << 20, 1 << 20);
        let (store, _) = Store::open(directory.path(), large).unwrap();
        let tree = store.tree("t").unwrap();
        for round in 0..3u8 {
            let change = &mut |tx: &mut Tx<'_>| {
                (0..ROWS).for_each(|key| tx.put(tree, &key.to_be_bytes(), &[round; 1000]));
                Ok(())
            };
            store.commit(change).unwrap();
        }
        drop(store);
        // Opened with memtables smaller than a transaction, and stopped after some meta pages.
        let hooks = Arc::new(MetaPages { left: meta_pages.into() });
        let mut small = options();
        small.memtable_bytes = 256 << 10;
        if let Ok((store, _)) = Store::open_on(Arc::new(HookedDisk::new(directory.path(), &hooks)), small) {
            let _ = store.checkpoint();
        }
        // All batches of the log are lost.
        for path in std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|end| end == "log") {
                let len = std::fs::metadata(&path).unwrap().len();
                let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(4096).unwrap();
                file.set_len(len).unwrap();
            }
        }
        let Ok((store, _)) = Store::open(directory.path(), options()) else { continue };
        let reader = store.reader().unwrap();
        let mut rounds = std::collections::BTreeMap::new();
        let count = &mut |_: &[u8], value: &[u8]| {
            *rounds.entry(value[0]).or_insert(0) += 1;
            ControlFlow::Continue(())
        };
        reader.snapshot().scan(tree, KeyRange::ALL, Direction::Forward, count).unwrap();
        assert!(
            rounds.is_empty() || rounds.len() == 1 && rounds.values().all(|rows| *rows == ROWS),
            "a part of a transaction after {meta_pages} meta pages: {rounds:?}"
        );
    }
}

/// Counts the bytes that are read from the log.
#[derive(Default)]
struct LogReads(AtomicU64);

impl Hooks for LogReads {
    fn read_at(&self, name: &str, file: &dyn DiskFile, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if name.ends_with(".log") {
            self.0.fetch_add(buffer.len() as u64, Ordering::AcqRel);
        }
        file.read_at(buffer, offset)
    }
}

#[test]
fn a_start_reads_the_log_a_few_times_whatever_values_it_holds() {
    const HEADER: [u8; 8] = *b"SLOG\0\0\x18\0";
    let directory = tempfile::tempdir().unwrap();
    let mut options = options();
    (options.memtable_bytes, options.log_segment_bytes) = (4 << 20, 2 << 20);
    let (store, _) = Store::open(directory.path(), options.clone()).unwrap();
    let tree = store.tree("t").unwrap();
    // Each block of the log looks like the header of a batch of 1.5 MB, more than is read at once. Segments are recycled.
    for number in 0..30u32 {
        let change = &mut |tx: &mut Tx<'_>| {
            tx.put(tree, &(number % 3).to_be_bytes(), &HEADER.repeat(80_000));
            Ok(())
        };
        store.commit(change).unwrap();
        if number % 5 == 4 {
            store.checkpoint().unwrap();
        }
    }
    drop(store);
    let segments = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let segments = segments.filter(|path| path.extension().is_some_and(|end| end == "log"));
    let bytes: u64 = segments.map(|path| std::fs::metadata(path).unwrap().len()).sum();
    let reads = Arc::new(LogReads::default());
    drop(Store::open_on(Arc::new(HookedDisk::new(directory.path(), &reads)), options).unwrap());
    let read = reads.0.load(Ordering::Acquire);
    assert!(read <= 4 * bytes, "{read} bytes are read of {bytes}");
}
