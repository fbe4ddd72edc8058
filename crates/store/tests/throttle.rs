//! Writers are slowed before they would be blocked: on a disk on which a checkpoint stalls as long as the test wants.

use std::io;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::time::Duration;

use store::disk::{Access, DirectoryLock, Disk, DiskFile, Map, SystemDisk};
use store::{Abort, Commit, RetriableTransaction, Stats, Store, StoreError, StoreOptions, Submit, TreeId, Tx};

const MEMTABLE_BYTES: usize = 1 << 20;
const VALUE: [u8; 1000] = [b'v'; 1000];
/// Maximum fill of the active memtable when the test gives up: it has room for more, so no writer was blocked.
const FULL_BYTES: u64 = MEMTABLE_BYTES as u64 * 3 / 4;

/// So that a bug is a failure and not a hang.
const SHUT_MAX: Duration = Duration::from_secs(20);

/// Whether checkpoints wait: at their slices, because the file also grows outside of them.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let is_shut = self.is_shut.lock().unwrap();
        drop(self.changed.wait_timeout_while(is_shut, SHUT_MAX, |is_shut| *is_shut).unwrap());
    }
}

struct GatedDisk {
    disk: SystemDisk,
    gate: Arc<Gate>,
}

struct GatedFile {
    file: Arc<dyn DiskFile>,
    gate: Option<Arc<Gate>>,
}

impl Disk for GatedDisk {
    fn open(&self, name: &str, create: bool, access: Access) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(name, create, access)?;
        let gate = (name == "tree").then(|| Arc::clone(&self.gate));
        Ok(Arc::new(GatedFile { file, gate }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.disk.sync_dir()
    }

    fn lock(&self, name: &str) -> io::Result<DirectoryLock> {
        self.disk.lock(name)
    }
}

impl DiskFile for GatedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_range(&self, start: u64, len: u64) -> io::Result<()> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.file.sync_range(start, len)
    }

    fn map(&self, reserve: u64) -> io::Result<Map> {
        self.file.map(reserve)
    }
}

fn put(tx: &mut Tx<'_>, tree: TreeId, number: u64) -> Result<(), Abort> {
    tx.put(tree, &number.to_be_bytes(), &VALUE);
    Ok(())
}

/// One commit after the other, into a memtable whose checkpoint stalls: some batch waits while there is still room.
fn check(commit: &dyn Fn(&Store, TreeId, u64)) -> Stats {
    let directory = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let disk = GatedDisk { disk: SystemDisk::new(directory.path()).unwrap(), gate: Arc::clone(&gate) };
    let mut options = StoreOptions::default();
    options.memtable_bytes = MEMTABLE_BYTES;
    let (store, _) = Store::open_on(Arc::new(disk), options).unwrap();
    let tree = store.tree("t").unwrap();
    gate.set(true);
    let mut number = 0;
    let until = |number: &mut u64, is_over: &dyn Fn(&Stats) -> bool| {
        let mut stats = store.stats();
        while !is_over(&stats) {
            commit(&store, tree, *number);
            *number += 1;
            stats = store.stats();
        }
        stats
    };
    let frozen = until(&mut number, &|stats| stats.frozen_bytes > 0);
    assert_eq!(frozen.slowed, 0, "nobody waits while the memtable that took over is empty");
    let slowed = until(&mut number, &|stats| stats.slowed > 0 || stats.memtable_bytes > FULL_BYTES);
    // Whatever the result, no thread of the store may be left waiting.
    gate.set(false);
    assert!(slowed.slowed > 0, "nobody was slowed: {slowed:?}");
    assert!(slowed.frozen_bytes > 0, "the checkpoint was to stand still: {slowed:?}");
    store.checkpoint().unwrap();
    let before = store.stats().slowed;
    commit(&store, tree, number);
    assert_eq!(store.stats().slowed, before, "nobody waits for a checkpoint that is done");
    let reader = store.reader().unwrap();
    let snapshot = reader.snapshot();
    assert!((0..=number).all(|number| snapshot.get(tree, &number.to_be_bytes()).unwrap().is_some()));
    drop(snapshot);
    store.stats()
}

#[test]
fn a_lone_caller_is_slowed_before_its_memtable_is_full() {
    let stats = check(&|store, tree, number| {
        store.commit(&mut |tx| put(tx, tree, number)).unwrap();
    });
    assert!(stats.inline_commits > 0, "a lone caller commits by itself: {stats:?}");
}

struct Put {
    tree: TreeId,
    number: u64,
    done: mpsc::Sender<Result<Commit, StoreError>>,
}

impl RetriableTransaction for Put {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort> {
        put(tx, self.tree, self.number)
    }

    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>) {
        self.done.send(outcome).unwrap();
    }
}

#[test]
fn what_is_submitted_is_slowed_before_the_memtable_is_full() {
    check(&|store, tree, number| {
        let (done, outcome) = mpsc::channel();
        let reader = store.reader().unwrap();
        assert!(matches!(store.submit(&reader, Box::new(Put { tree, number, done })), Submit::Queued));
        outcome.recv().unwrap().unwrap();
    });
}
