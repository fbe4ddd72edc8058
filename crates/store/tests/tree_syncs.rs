//! An error of the tree file that one thread's sync is told is everybody's: the kernel reports it once for an open file
//! (fsync(2), "ERRORS"), so whoever writes the next meta page asks whether another thread has heard of one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::hooked_disk::{HookedDisk, Hooks};
use store::disk::DiskFile;
use store::{Error, Options, Store, Tx};

const META_END: u64 = 2 * store::tree::PAGE_BYTES as u64;
/// No event of these tests takes as long.
const LONG: Duration = Duration::from_secs(20);
/// Time for a checkpoint that does not wait to write its meta page.
const GRACE: Duration = Duration::from_millis(100);

/// A bulk build's sync of a range is told of an error, and comes back with it only after a checkpoint's sync has been told
/// that all is well.
#[derive(Default)]
struct TakesTheError {
    is_armed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The build's sync is under way.
    has_begun: bool,
    /// A checkpoint's sync has ended without an error.
    is_synced: bool,
    /// The meta page was written after that.
    is_published: bool,
}

impl TakesTheError {
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
    fn write_at(&self, name: &str, file: &dyn DiskFile, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if name == "tree" && offset < META_END {
            self.change(|state| state.is_published |= state.is_synced);
        }
        file.write_at(bytes, offset)
    }
    fn sync_data(&self, name: &str, file: &dyn DiskFile) -> io::Result<()> {
        if name == "tree" && is_checkpointer() && self.is_armed.load(Ordering::Relaxed) {
            self.wait(|state| state.has_begun);
            self.change(|state| state.is_synced = true);
            return Ok(());
        }
        file.sync_data()
    }
    fn sync_range(&self, name: &str, file: &dyn DiskFile, start: u64, len: u64) -> io::Result<()> {
        if name == "tree" && !is_checkpointer() && self.is_armed.load(Ordering::Relaxed) {
            self.change(|state| state.has_begun = true);
            self.wait(|state| state.is_synced);
            std::thread::sleep(GRACE);
            return Err(io::Error::from_raw_os_error(5));
        }
        file.sync_range(start, len)
    }
}

#[test]
fn a_checkpoint_is_not_published_after_a_builds_sync_was_told_of_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let hooks = Arc::new(TakesTheError::default());
    let disk = HookedDisk::new(directory.path(), &hooks);
    let (store, _) = Store::open_on(Arc::new(disk), Options::default()).unwrap();
    let tree = store.tree("t").unwrap();
    let put = |number: u32| {
        store.commit(&mut |tx: &mut Tx<'_>| {
            tx.put(tree, &number.to_be_bytes(), &number.to_le_bytes());
            Ok(())
        })
    };
    for number in 0..100 {
        put(number).unwrap();
    }
    hooks.is_armed.store(true, Ordering::Relaxed);
    let (built, checkpoint) = std::thread::scope(|scope| {
        let built = scope.spawn(|| {
            let mut build = store.bulk()?;
            // Each 4 MB are synced while nobody commits.
            (0..10_000u64).try_for_each(|key| build.push(&key.to_be_bytes(), &[7; 1000]))?;
            build.into_entries().map(drop)
        });
        let checkpoint = scope.spawn(|| store.checkpoint());
        (built.join().unwrap(), checkpoint.join().unwrap())
    });
    assert!(matches!(built, Err(Error::Io { .. })), "{built:?}");
    assert!(checkpoint.is_err(), "{checkpoint:?}");
    assert!(!hooks.state.lock().unwrap().is_published, "the meta page was written");
    assert!(store.stats().is_poisoned);
    assert!(matches!(put(100), Err(Error::Poisoned)));
    drop(store);
    let (store, _) = Store::open(directory.path(), Options::default()).unwrap();
    let (tree, reader) = (store.tree("t").unwrap(), store.reader().unwrap());
    let snapshot = reader.snapshot();
    assert!((0..100u32).all(|number| snapshot.get(tree, &number.to_be_bytes()).unwrap().is_some()));
}
