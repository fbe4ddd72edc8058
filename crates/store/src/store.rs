//! The door of the engine.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::at_rest;
use crate::bulk::BulkTree;
use crate::direct::DirectReads;
use crate::disk::Disk;
use crate::engine::limits::COMMITTERS;
use crate::engine::{self, Engine, Request};
use crate::error::Error;
use crate::feed::ChangeReader;
use crate::fold::Fold;
use crate::inspect::Inventory;
use crate::key::{TreeId, Version};
use crate::large::LargeTx;
use crate::options::{Durability, Options};
use crate::places::Places;
use crate::snapshot::Reader;
use crate::stats::{Recovery, Stats};
use crate::transaction::{Abort, Commit, Submit, Transaction, Tx, Work};
use crate::tree::{Report, SortedRunWriter, Sorter};

/// The engine. Cheap to clone; the last clone's drop closes it (final sync, no checkpoint needed).
#[derive(Clone)]
pub struct Store {
    running: Arc<Running>,
}

/// The engine with its threads.
struct Running {
    engine: Arc<Engine>,
    committers: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
}

impl Store {
    /// Opens or creates the store in a directory.
    pub fn open(dir: &Path, options: Options) -> Result<(Store, Recovery), Error> {
        Store::open_on(Arc::new(at_rest::open_disk(dir)?), options)
    }

    /// Whether a store was made in this directory.
    pub fn is_in(dir: &Path) -> bool {
        at_rest::is_store(dir)
    }

    /// Opens or creates it on any disk: tests put a simulated one under the engine.
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<(Store, Recovery), Error> {
        let (engine, recovery) = Engine::open(disk, options)?;
        let engine = Arc::new(engine);
        let mut running = Running { engine, committers: Vec::new(), others: Vec::new() };
        for _ in 0..COMMITTERS {
            let thread = running.spawn("store-commit", Engine::run_committer)?;
            running.committers.push(thread);
        }
        let checkpointer = running.spawn("store-ckpt", Engine::run_checkpointer)?;
        running.others.push(checkpointer);
        let room = running.spawn("store-room", Engine::run_room)?;
        running.others.push(room);
        if let Durability::Interval(_) = running.engine.options.durability {
            let syncer = running.spawn("store-sync", Engine::run_syncer)?;
            running.others.push(syncer);
        }
        Ok((Store { running: Arc::new(running) }, recovery))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.running.engine
    }

    /// The tree of that name, made durably if there is none.
    pub fn tree(&self, name: &str) -> Result<TreeId, Error> {
        self.engine().tree(name)
    }

    /// The tree of that name, if there is one.
    pub fn existing_tree(&self, name: &str) -> Result<Option<TreeId>, Error> {
        self.engine().existing_tree(name)
    }

    /// Registers the calling thread as a reader.
    pub fn reader(&self) -> Result<Reader, Error> {
        let engine = Arc::clone(self.engine());
        let places = Places::new(engine.options.places_bytes);
        Ok(Reader { slot: engine.register()?, engine, places, is_asking: false.into() })
    }

    /// Reads past the page cache for the calling thread, so many at once, of pages that together have at most so many bytes
    /// each: a multiple of 4,096. None where the data fits into memory, or the system has no such reads (io_uring(7) of Linux 6.1,
    /// a file system with `O_DIRECT`).
    pub fn direct_reads(&self, places: usize, place_bytes: usize) -> Option<DirectReads> {
        let queue = self.engine().read_queue(places, place_bytes)?;
        Some(DirectReads::new(self.engine(), queue, places, place_bytes))
    }

    /// Prepares on this thread and hands over to the writer; `finish` is called when it is durable or refused.
    ///
    /// Transactions of one thread take effect in the order of submission, also where a later one depends on an earlier
    /// one that is still on its way. So an abort that rests on something read is only a draft: it goes through the queue
    /// like a change, and the writer asks again if that was changed meanwhile.
    pub fn submit(&self, reader: &Reader, mut transaction: Box<dyn Transaction>) -> Submit {
        let mut work = Work::new(self.engine().options.transaction_bound());
        let prepared = {
            let snapshot = reader.snapshot();
            work.prepare(snapshot.view(), &mut |tx| transaction.prepare(tx))
        };
        match prepared {
            Ok(()) => {}
            Err(Error::Aborted) if !work.reads.is_empty() => {}
            Err(error) => {
                engine::finish(transaction, Err(error));
                return Submit::Queued;
            }
        }
        if self.engine().is_poisoned() {
            engine::finish(transaction, Err(Error::Poisoned));
            return Submit::Queued;
        }
        let weight = work.held_bytes();
        if !self.engine().weights.take(weight) {
            return Submit::Busy(transaction);
        }
        match self.engine().enqueue(Box::new(Request::new(transaction, work, weight, false))) {
            Ok(()) => Submit::Queued,
            Err(transaction) => {
                self.engine().weights.give_back(weight);
                Submit::Busy(transaction)
            }
        }
    }

    /// The same, waiting for the outcome; a lone caller commits inline on its own thread.
    pub fn commit(&self, change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send)) -> Result<Commit, Error> {
        self.engine().commit(change)
    }

    /// Whether the queue of what is submitted has room to spare: who has much to submit waits while it has none, and leaves
    /// the rest to others.
    pub fn has_room(&self) -> bool {
        self.engine().has_room()
    }

    /// Begins a transaction of any size, of at most so many bytes on the disk, whose space is taken at once ([`Error::Full`]). Its caller
    /// will be told which keys of the `watched` trees others change. [`Error::Busy`]: another one is under way.
    ///
    /// A snapshot that is taken once this has returned shows what was changed before.
    pub fn large(&self, bytes: u64, watched: &[TreeId]) -> Result<LargeTx, Error> {
        LargeTx::begin(self.engine(), bytes, watched)
    }

    /// Folds by this from now on ([`Tx::fold`]); before the first, transactions that fold are refused. Takes effect between
    /// two batches.
    pub fn set_fold(&self, fold: Arc<dyn Fold>) {
        self.engine().set_fold(fold);
    }

    /// Starts a bottom-up build of a tree's whole content. Entries come sorted by key, each once.
    pub fn bulk(&self) -> Result<BulkTree, Error> {
        Ok(BulkTree { builder: self.engine().bulk(), engine: Arc::clone(self.engine()) })
    }

    /// Sorts any number of entries for a bulk build in about `memory_bytes`, with temporary files in the store's directory.
    pub fn sorter(&self, memory_bytes: usize) -> Sorter {
        self.engine().sorter(memory_bytes)
    }

    /// Starts a run of entries that come in order already, to be read any number of times: a temporary file in the store's
    /// directory.
    pub fn sorted_run(&self) -> Result<SortedRunWriter, Error> {
        self.engine().sorted_run()
    }

    /// Makes finished builds the content of these (empty) trees, all or none, durable when it returns. A tree that is
    /// not empty is an error. Also puts `rows` (a few, catalog-like) in the same step. [`Error::Unknown`]: a sync failed, and all
    /// of it or nothing is there once the store is opened again.
    pub fn attach(
        &self,
        builds: Vec<(TreeId, BulkTree)>,
        rows: &[(TreeId, Vec<u8>, Vec<u8>)],
    ) -> Result<Commit, Error> {
        let mut finished = Vec::with_capacity(builds.len());
        for (tree, build) in builds {
            assert!(Arc::ptr_eq(&build.engine, self.engine()), "a build belongs to the store that started it");
            finished.push((tree, build.builder.finish()?));
        }
        self.engine().attach(finished, rows)
    }

    /// All that was committed after this version, in order, and then what is: see [`ChangeReader`]. [`Error::Gone`] where that
    /// is kept no longer, [`Error::Ahead`] where there is no such version, [`Error::Busy`] with too many readers.
    pub fn changes_since(&self, version: Version) -> Result<ChangeReader, Error> {
        ChangeReader::new(self.engine(), version)
    }

    /// Writes a checkpoint now and waits for it.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.engine().checkpoint()
    }

    /// Checks every page of the tree file: checksums, order, and that each page is reachable, free or in flight. The log
    /// was checked when the store was opened. Reads the whole file; nothing waits for it.
    pub fn verify(&self) -> Report {
        self.engine().verify()
    }

    /// Trees, depth, fill, space.
    pub fn stat(&self) -> Inventory {
        Inventory { report: self.verify(), space: self.engine().space_stat(), stats: self.stats() }
    }

    /// State and counts, for metrics.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }
}

impl Running {
    fn spawn(&self, name: &'static str, life: impl FnOnce(&Engine) + Send + 'static) -> Result<JoinHandle<()>, Error> {
        let engine = Arc::clone(&self.engine);
        std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                // Whatever it was at: others may wait for it, or take its work for done.
                let _watch = engine.fail_stop.watch(name);
                life(&engine);
            })
            .map_err(|error| Error::io(format!("start thread {name}"), error))
    }
}

impl Drop for Running {
    /// What is queued is committed and acknowledged; then the other threads end, and the log gets its last witness.
    fn drop(&mut self) {
        self.engine.refuse_new();
        let committers = std::mem::take(&mut self.committers).into_iter();
        committers.for_each(join);
        self.engine.stop_others();
        std::mem::take(&mut self.others).into_iter().for_each(join);
        self.engine.close_log();
    }
}

fn join(thread: JoinHandle<()>) {
    // The last clone may be dropped by a transaction's `finish`, that is on one of these threads.
    if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}
