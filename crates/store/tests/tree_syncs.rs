//! A sync error of the tree file concerns every thread, although only one thread's sync returns it: the kernel reports
//! it once for an open file (fsync(2), "ERRORS"). So before the next meta page is written, the store checks whether the
//! sync of another thread has failed.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::{Disk, DiskFile, SystemDisk};
use store::{Commit, Store, StoreError, StoreOptions, TreeId, Tx};

const META_END: u64 = 2 * store::tree::PAGE_BYTES as u64;
/// No event of these tests takes as long.
const LONG: Duration = Duration::from_secs(20);
/// Time for a checkpoint that does not wait to write its meta page.
const GRACE: Duration = Duration::from_millis(100);

/// The sync of one thread fails, but it returns the error only after a checkpoint's sync has returned without one.
struct TakesTheError {
    /// The failing sync is that of the thread that makes room; otherwise that of a bulk build.
    is_of_room: bool,
    is_armed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

fn options() -> StoreOptions {
    let mut options = StoreOptions::default();
    options.memtable_bytes = 1 << 20;
    options.log_segment_bytes = 256 << 10;
    options.map_bytes = 1 << 32;
    options.checkpoint_interval = Duration::from_secs(3600);
    options
}

#[derive(Default)]
struct State {
    /// The checkpoint has begun to write pages.
    is_merging: bool,
    /// The failing sync has begun.
    has_begun: bool,
    /// A checkpoint's sync has ended without an error.
    is_synced: bool,
    /// The meta page was written after that.
    is_published: bool,
}

impl TakesTheError {
    fn new(is_of_room: bool) -> Arc<TakesTheError> {
        let (is_armed, state, changed) = Default::default();
        Arc::new(TakesTheError { is_of_room, is_armed, state, changed })
    }

    /// The failing sync.
    fn is_told(&self) -> io::Error {
        self.change(|state| state.has_begun = true);
        self.wait(|state| state.is_synced);
        std::thread::sleep(GRACE);
        io::Error::from_raw_os_error(5)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_timeout_while(state, LONG, |state| !until(state)).unwrap());
    }
}

fn is_checkpointer() -> bool {
    std::thread::current().name() == Some("store-ckpt")
}

impl Hooks for TakesTheError {
    fn free_bytes(&self, disk: &SystemDisk) -> io::Result<Option<u64>> {
        // Little enough that space in the tree file is allocated ahead of commits.
        if self.is_of_room { Ok(Some(64 << 20)) } else { disk.free_bytes() }
    }
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if name == "tree" && offset < META_END {
            self.change(|state| state.is_published |= state.is_synced);
        } else if name == "tree" && is_checkpointer() && self.is_armed.load(Ordering::Relaxed) {
            self.change(|state| state.is_merging = true);
        }
        file.write_at(bytes, offset)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        if name == "tree" && is_checkpointer() && self.is_armed.load(Ordering::Relaxed) {
            self.wait(|state| state.has_begun);
            self.change(|state| state.is_synced = true);
            return Ok(());
        }
        // A writer that reserves pages.
        let is_room = self.is_of_room && self.is_armed.load(Ordering::Relaxed);
        if name == "tree" && is_room && self.state.lock().unwrap().is_merging {
            return Err(self.is_told());
        }
        file.sync_data()
    }
    fn sync_range(&self, name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        if name == "tree" && !self.is_of_room && !is_checkpointer() && self.is_armed.load(Ordering::Relaxed) {
            return Err(self.is_told());
        }
        file.sync_range(start, len)
    }
}

fn put(store: &Store, tree: TreeId, number: u32) -> Result<Commit, StoreError> {
    store.commit(&mut |tx: &mut Tx<'_>| {
        tx.put(tree, &number.to_be_bytes(), &[7; 1000]);
        Ok(())
    })
}

/// Runs a checkpoint beside `others`, whose sync fails; returns the result of `others`.
#[track_caller]
fn check_told<R: Send>(is_of_room: bool, others: impl FnOnce(&Store, TreeId) -> R + Send) -> R {
    let directory = tempfile::tempdir().unwrap();
    let hooks = TakesTheError::new(is_of_room);
    let disk = HookedDisk::new(directory.path(), &hooks);
    let (store, _) = Store::open_on(Arc::new(disk), options()).unwrap();
    let tree = store.tree("t").unwrap();
    for number in 0..100 {
        put(&store, tree, number).unwrap();
    }
    hooks.is_armed.store(true, Ordering::Relaxed);
    let (told, checkpoint) = std::thread::scope(|scope| {
        let told = scope.spawn(|| others(&store, tree));
        let checkpoint = scope.spawn(|| store.checkpoint());
        (told.join().unwrap(), checkpoint.join().unwrap())
    });
    assert!(hooks.state.lock().unwrap().has_begun, "nobody was told");
    assert!(checkpoint.is_err(), "{checkpoint:?}");
    assert!(!hooks.state.lock().unwrap().is_published, "the meta page was written");
    assert!(store.stats().is_poisoned);
    assert!(matches!(put(&store, tree, 100), Err(StoreError::Poisoned)));
    drop(store);
    let (store, _) = Store::open(directory.path(), options()).unwrap();
    let (tree, reader) = (store.tree("t").unwrap(), store.reader().unwrap());
    let snapshot = reader.snapshot();
    assert!((0..100u32).all(|number| snapshot.get(tree, &number.to_be_bytes()).unwrap().is_some()));
    told
}

#[test]
fn a_checkpoint_is_not_published_after_a_builds_sync_was_told_of_an_error() {
    let built = check_told(false, |store, _| {
        let mut build = store.bulk()?;
        // The build syncs every 4 MB while there are no commits.
        (0..10_000u64).try_for_each(|key| build.push(&key.to_be_bytes(), &[7; 1000]))?;
        build.into_entries().map(drop)
    });
    assert!(matches!(built, Err(StoreError::Io { .. })), "{built:?}");
}

#[test]
fn a_checkpoint_is_not_published_after_a_sync_was_told_of_an_error_that_made_room() {
    // More than a memtable, so that space is requested repeatedly.
    let refused = check_told(true, |store, tree| (1_000..100_000).find_map(|number| put(store, tree, number).err()));
    assert!(matches!(refused, Some(StoreError::Poisoned | StoreError::Unknown(_))), "{refused:?}");
}
