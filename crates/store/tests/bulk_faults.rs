//! A disk that fails during a bulk build whose pages are written by a second thread.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::DiskFile;
use store::{BulkTree, Store, StoreError, StoreOptions};

const VALUE: [u8; 1000] = [b'v'; 1000];
/// Twenty-four megabytes of leaves: most of them are written by the second thread.
const ENTRIES: u64 = 24_000;

/// Writes of the tree file fail after this many bytes.
struct Left(AtomicI64);

impl Hooks for Left {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let len = bytes.len() as i64;
        if name == "tree" && self.0.fetch_sub(len, Ordering::Relaxed) < len {
            return Err(io::Error::from_raw_os_error(5));
        }
        file.write_at(bytes, offset)
    }
}

fn open(directory: &Path) -> (Store, Arc<Left>) {
    let left = Arc::new(Left(AtomicI64::new(i64::MAX)));
    let disk = HookedDisk::new(directory, &left);
    (Store::open_on(Arc::new(disk), StoreOptions::default()).unwrap().0, left)
}

fn fill(build: &mut BulkTree) -> Result<(), StoreError> {
    (0..ENTRIES).try_for_each(|key| build.push(&key.to_be_bytes(), &VALUE))
}

/// A build whose writes fail after this many bytes is refused at the latest when it is attached, and its pages are freed.
#[track_caller]
fn check_failed(bytes: i64) {
    let directory = tempfile::tempdir().unwrap();
    let (store, left) = open(directory.path());
    let tree = store.tree("t").unwrap();
    store.checkpoint().unwrap();
    left.0.store(bytes, Ordering::Relaxed);
    let mut build = store.bulk().unwrap();
    let refused = match fill(&mut build) {
        Err(error) => {
            assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
            assert!(matches!(build.push(&u64::MAX.to_be_bytes(), &[]), Ok(()) | Err(StoreError::Io { .. })));
            // Further pushes are allowed, but it is never attached.
            store.attach(vec![(tree, build)], &[]).map(drop)
        }
        Ok(()) => store.attach(vec![(tree, build)], &[]).map(drop),
    };
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    left.0.store(i64::MAX, Ordering::Relaxed);
    // The pages of the failed build are reused, and no late write of it overwrites them.
    let mut build = store.bulk().unwrap();
    fill(&mut build).unwrap();
    store.attach(vec![(tree, build)], &[]).unwrap();
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    (0..ENTRIES)
        .for_each(|key| assert_eq!(snapshot.get(tree, &key.to_be_bytes()).unwrap().as_deref(), Some(&VALUE[..])));
}

#[test]
fn a_build_whose_writes_fail_is_told_so_and_never_attached() {
    check_failed(1 << 20);
    check_failed(9 << 20);
    check_failed(23 << 20);
}

#[test]
fn a_build_that_is_given_up_half_way_leaves_its_pages_to_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let tree = store.tree("t").unwrap();
    for _ in 0..3 {
        let mut build = store.bulk().unwrap();
        fill(&mut build).unwrap();
    }
    let mut build = store.bulk().unwrap();
    fill(&mut build).unwrap();
    store.attach(vec![(tree, build)], &[]).unwrap();
    let report = store.verify();
    assert!(report.is_clean(), "{:?}", report.faults);
    let bytes = std::fs::metadata(directory.path().join("tree")).unwrap().len();
    assert!(
        bytes < 2 * ENTRIES * VALUE.len() as u64,
        "{bytes} bytes: the pages of abandoned builds were not used again"
    );
}

/// The first sync after a meta page fails, once this is requested.
#[derive(Default)]
struct MetaSync {
    is_asked_for: AtomicBool,
    is_written: AtomicBool,
}

/// End of the meta pages.
const META_END: u64 = 2 * store::tree::PAGE_BYTES as u64;

impl Hooks for MetaSync {
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if name == "tree" && offset < META_END && self.is_asked_for.load(Ordering::Relaxed) {
            self.is_written.store(true, Ordering::Relaxed);
        }
        file.write_at(bytes, offset)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        if name == "tree" && self.is_written.swap(false, Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        file.sync_data()
    }
}

#[test]
fn an_attachment_whose_meta_page_was_not_synced_may_be_there_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(MetaSync::default());
    let disk = HookedDisk::new(directory.path(), &hooks);
    let (store, _) = Store::open_on(Arc::new(disk), StoreOptions::default()).unwrap();
    let tree = store.tree("t").unwrap();
    let mut build = store.bulk().unwrap();
    fill(&mut build).unwrap();
    hooks.is_asked_for.store(true, Ordering::Relaxed);
    let outcome = store.attach(vec![(tree, build)], &[]);
    assert!(matches!(outcome, Err(StoreError::Unknown(_))), "{outcome:?}");
    let written = store.commit(&mut |tx| {
        tx.put(tree, b"k", b"v");
        Ok(())
    });
    assert!(matches!(written, Err(StoreError::Poisoned)), "{written:?}");
    drop(store);
    // Here the page has reached the disk.
    let (store, _) = Store::open(directory.path(), StoreOptions::default()).unwrap();
    let (tree, reader) = (store.tree("t").unwrap(), store.reader().unwrap());
    assert_eq!(reader.snapshot().get(tree, &0u64.to_be_bytes()).unwrap().as_deref(), Some(&VALUE[..]));
}
