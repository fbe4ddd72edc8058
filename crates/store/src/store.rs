//! The public interface of the engine.

use std::path::Path;
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::key::{TreeId, Version};
use crate::disk::Disk;
use crate::engine::Engine;
use crate::engine::checkpoint::pace;
use crate::engine::feed::reader::ChangeReader;
use crate::engine::lifecycle::threads::Running;
use crate::engine::lifecycle::{at_rest, folder};
use crate::engine::load::bulk::BulkTree;
use crate::engine::load::large::LargeTx;
use crate::engine::options::StoreOptions;
use crate::engine::read::direct::DirectReads;
use crate::engine::read::places::Places;
use crate::engine::read::snapshot::Reader;
use crate::engine::stats::{Recovery, Stats};
use crate::engine::write::fold::Fold;
use crate::engine::write::gathering::Gathering;
use crate::engine::write::request::Request;
use crate::engine::write::transaction::{Abort, Commit, RetriableTransaction, Submit, Tx, Work, finish};
use crate::sort::{SortedRunWriter, Sorter};
use crate::tree::TreeReport;

/// The engine. Cheap to clone. Dropping the last clone closes the store with a final sync, without a checkpoint.
#[derive(Clone)]
pub struct Store {
    running: Arc<Running>,
}

impl Store {
    /// Opens or creates the store in a directory.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<(Store, Recovery), StoreError> {
        Store::open_on(Arc::new(folder::open_disk(dir)?), options)
    }

    /// Whether this directory holds a store.
    pub fn is_in(dir: &Path) -> bool {
        at_rest::is_store(dir)
    }

    /// Opens or creates the store on any disk; tests pass a simulated one.
    pub fn open_on(disk: Arc<dyn Disk>, options: StoreOptions) -> Result<(Store, Recovery), StoreError> {
        let (engine, recovery) = Engine::open(disk, options)?;
        let running = Running::start(engine)?;
        Ok((Store { running: Arc::new(running) }, recovery))
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        self.running.engine()
    }

    /// The tree with that name; created durably if missing.
    pub fn tree(&self, name: &str) -> Result<TreeId, StoreError> {
        self.engine().tree(name)
    }

    /// The tree with that name, if it exists.
    pub fn existing_tree(&self, name: &str) -> Result<Option<TreeId>, StoreError> {
        self.engine().existing_tree(name)
    }

    /// Registers the calling thread as a reader.
    pub fn reader(&self) -> Result<Reader, StoreError> {
        let engine = Arc::clone(self.engine());
        let places = Places::new(engine.options.places_bytes);
        Ok(Reader {
            slot: engine.register()?,
            engine,
            places,
            is_asking: false.into(),
            gathering: Gathering::default(),
        })
    }

    /// Reads past the page cache for the calling thread: up to `places` reads in flight, each of adjacent pages with at
    /// most `place_bytes` bytes, a multiple of 4,096. `None` if the data fits into memory, or if the system does not
    /// support such reads (they need io_uring(7) of Linux 6.1 and a file system with `O_DIRECT`).
    pub fn direct_reads(&self, places: usize, place_bytes: usize) -> Option<DirectReads> {
        let queue = self.engine().tree.read_queue(places, place_bytes)?;
        Some(DirectReads::new(self.engine(), queue, places, place_bytes))
    }

    /// Prepares the transaction on this thread and passes it to the writer. `finish` is called when it is durable or refused.
    ///
    /// Transactions of one thread take effect in the order of submission, even if a later one depends on an earlier one
    /// that is still queued. So if a transaction that has read something aborts itself, the abort is provisional: the
    /// transaction is queued like any other, and the writer prepares it again if its reads have changed.
    pub fn submit(&self, reader: &Reader, mut transaction: Box<dyn RetriableTransaction>) -> Submit {
        let mut work = Work::new(self.engine().options.transaction_bound());
        let prepared = {
            let snapshot = reader.snapshot();
            work.prepare(snapshot.view(), &mut |tx| transaction.prepare(tx))
        };
        match prepared {
            Ok(()) => {}
            Err(StoreError::Aborted) if !work.reads.is_empty() => {}
            Err(error) => {
                finish(transaction, Err(error));
                return Submit::Queued;
            }
        }
        if self.engine().is_poisoned() {
            finish(transaction, Err(StoreError::Poisoned));
            return Submit::Queued;
        }
        let weight = work.held_bytes();
        if !self.engine().weights.take(weight) {
            return Submit::Busy(transaction);
        }
        match self.engine().enqueue(Box::new(Request::new(transaction, work, weight, false)), Some(&reader.gathering)) {
            Ok(()) => Submit::Queued,
            Err(transaction) => {
                self.engine().weights.give_back(weight);
                Submit::Busy(transaction)
            }
        }
    }

    /// Commits and waits for the outcome. A lone caller commits inline on its own thread.
    pub fn commit(
        &self,
        change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send),
    ) -> Result<Commit, StoreError> {
        self.engine().commit(change)
    }

    /// Whether a quarter of the queue is free. A caller with many transactions should wait until it is, so that other
    /// callers find room.
    pub fn has_room(&self) -> bool {
        self.engine().has_room()
    }

    /// Begins a transaction of at most `bytes` bytes, which may exceed an ordinary transaction's bound. Its disk space is allocated at
    /// once ([`StoreError::Full`]). [`StoreError::Busy`]: another large transaction is active.
    ///
    /// The `whole` trees are claimed: until the transaction ends, other transactions that would change them are refused
    /// ([`StoreError::Claimed`]). So every snapshot taken meanwhile shows the same content of these trees. Of other trees, what
    /// the transaction reads is claimed when it is read.
    pub fn large(&self, bytes: u64, whole: &[TreeId]) -> Result<LargeTx, StoreError> {
        LargeTx::begin(self.engine(), bytes, whole)
    }

    /// Sets the function by which operands are folded ([`Tx::fold`]), from the next batch on. Before the first call,
    /// transactions with folds are refused.
    pub fn set_fold(&self, fold: Arc<dyn Fold>) {
        self.engine().set_fold(fold);
    }

    /// Starts a bottom-up build of a tree's whole content. Entries must come sorted by key, each key once.
    pub fn bulk(&self) -> Result<BulkTree, StoreError> {
        let engine = Arc::clone(self.engine());
        Ok(BulkTree { builder: engine.tree.bulk(pace::of_bulk_build(Arc::clone(&engine))), engine })
    }

    /// Sorts any number of entries for a bulk build in about `memory_bytes`, with temporary files in the store's directory.
    pub fn sorter(&self, memory_bytes: usize) -> Sorter {
        Sorter::new(Arc::clone(&self.engine().disk), &self.engine().sorter_name(), memory_bytes)
    }

    /// Starts a temporary file, in the store's directory, for entries that are already sorted. It can be read any number of times.
    pub fn sorted_run(&self) -> Result<SortedRunWriter, StoreError> {
        SortedRunWriter::new(&*self.engine().disk, &self.engine().sorter_name())
    }

    /// Makes finished builds the content of these trees, durably, all or none. Each of the trees must be empty. `rows`,
    /// a few catalog-like rows (tree, key, value), are put in the same step. [`StoreError::Unknown`]: a sync failed; after
    /// the store is reopened either all of it exists or nothing.
    pub fn attach(
        &self,
        builds: Vec<(TreeId, BulkTree)>,
        rows: &[(TreeId, Vec<u8>, Vec<u8>)],
    ) -> Result<Commit, StoreError> {
        let mut finished = Vec::with_capacity(builds.len());
        for (tree, build) in builds {
            assert!(Arc::ptr_eq(&build.engine, self.engine()), "a build belongs to the store that started it");
            finished.push((tree, build.builder.finish()?));
        }
        self.engine().attach(finished, rows)
    }

    /// A reader of all transactions after this version, in order, followed by new ones as they are committed.
    /// [`StoreError::Gone`]: the log no longer has all of them. [`StoreError::Ahead`]: there is no such version.
    /// [`StoreError::Busy`]: too many readers.
    pub fn changes_since(&self, version: Version) -> Result<ChangeReader, StoreError> {
        ChangeReader::new(self.engine(), version)
    }

    /// Writes a checkpoint now and waits for it.
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        self.engine().checkpoint()
    }

    /// Checks every page of the tree file: checksums, order, and that each page is reachable, free or in flight. The
    /// log was checked when the store was opened. Reads the whole file without blocking others.
    pub fn verify(&self) -> TreeReport {
        self.engine().tree.verify()
    }

    /// State and counters, for metrics.
    pub fn stats(&self) -> Stats {
        self.engine().stats()
    }
}
