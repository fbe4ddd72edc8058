//! The engine's public types.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::time::Duration;

use crate::error::Error;

/// A named tree of the store, as its catalog numbers it. Stable over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(pub u32);

/// The number of a committed transaction: the change number. Rises by one with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After its log batch is synced (default).
    Commit,
    /// At once; the log is synced at this interval.
    Interval(Duration),
    /// At once; the log is synced at checkpoints only.
    None,
}

/// Settings of a store, each with a bound.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// See [`Durability`].
    pub durability: Durability,
    /// Bytes of one memtable's arena (two may live: active and frozen). Default 32 MB.
    pub memtable_bytes: usize,
    /// Bytes of one log segment. Default 16 MB.
    pub log_segment_bytes: u64,
    /// Time after which a checkpoint starts even when little changed. Default 60 s.
    pub checkpoint_interval: Duration,
    /// Readers that may be registered at once. Default 256.
    pub readers_max: usize,
    /// Transactions queued for the writer at most; more are refused with `Error::Busy`. Default 65536.
    pub queue_max: usize,
    /// Address space reserved for the tree file's map; the file cannot outgrow it. Default 1 TB.
    pub map_bytes: u64,
}

/// A range of keys, as in `BTreeMap::range`.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'k> {
    /// Lower bound.
    pub from: Bound<&'k [u8]>,
    /// Upper bound.
    pub to: Bound<&'k [u8]>,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Rising keys.
    Forward,
    /// Falling keys.
    Backward,
}

/// What was found and done while opening.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Recovery {
    /// Log batches replayed.
    pub batches: u64,
    /// Bytes of an unacknowledged torn tail that were dropped.
    pub torn_bytes: u64,
    /// Time taken.
    pub elapsed: Duration,
}

/// The engine. Cheap to clone; the last clone's drop closes it (final sync, no checkpoint needed).
#[derive(Clone)]
pub struct Store {
    _todo: (),
}

/// One thread's registration as a reader. Not `Sync`.
pub struct Reader {
    _todo: std::cell::Cell<()>,
}

/// All data as of one version. Taken without a lock in nanoseconds; pins pages while it lives.
pub struct Snapshot<'r> {
    _todo: &'r (),
}

/// What was committed.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// The transaction's change number.
    pub version: Version,
}

/// A transaction refuses itself: its own state says why.
#[derive(Clone, Copy, Debug)]
pub struct Abort;

/// A transaction as a value: it can be computed again when what it read has changed meanwhile.
pub trait Transaction: Send {
    /// Reads through `tx`, checks, and puts its changes into `tx`. Called on the caller's thread against a snapshot
    /// and, only when something it read was changed by others in between, once more on the writer's thread against
    /// the newest state. Must depend on nothing but what it reads.
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort>;
    /// Told once: durable with its version, or not done and why. Runs on a thread of the store: must not block.
    fn finish(self: Box<Self>, outcome: Result<Commit, Error>);
}

/// The inside of a transaction: reads see the snapshot and the transaction's own changes; point reads and scans are
/// remembered for the writer's check.
pub struct Tx<'t> {
    _todo: &'t mut (),
}

/// What became of a submitted transaction at once.
pub enum Submit {
    /// It is on its way; `finish` will be called.
    Queued,
    /// The queue is full: given back, `finish` was not called.
    Busy(Box<dyn Transaction>),
}

/// Builds one tree bottom-up from sorted entries, apart from the log; visible all at once by [`Store::attach`].
pub struct BulkTree {
    _todo: (),
}

impl Store {
    /// Opens or creates the store in a directory.
    pub fn open(_dir: &Path, _options: Options) -> Result<(Store, Recovery), Error> {
        unimplemented!()
    }
    /// The tree of that name, made durably if there is none.
    pub fn tree(&self, _name: &str) -> Result<TreeId, Error> {
        unimplemented!()
    }
    /// The tree of that name, if there is one.
    pub fn existing_tree(&self, _name: &str) -> Result<Option<TreeId>, Error> {
        unimplemented!()
    }
    /// Registers the calling thread as a reader.
    pub fn reader(&self) -> Result<Reader, Error> {
        unimplemented!()
    }
    /// Prepares on this thread and hands over to the writer; `finish` is called when it is durable or refused.
    /// When `prepare` aborts, `finish(Err(Aborted))` is called before this returns.
    pub fn submit(&self, _reader: &Reader, _transaction: Box<dyn Transaction>) -> Submit {
        unimplemented!()
    }
    /// The same, waiting for the outcome; a lone caller commits inline on its own thread.
    pub fn commit(&self, _change: &mut (dyn FnMut(&mut Tx<'_>) -> Result<(), Abort> + Send)) -> Result<Commit, Error> {
        unimplemented!()
    }
    /// Starts a bottom-up build of a tree's whole content. Entries come sorted by key, each once.
    pub fn bulk(&self) -> Result<BulkTree, Error> {
        unimplemented!()
    }
    /// Makes finished builds the content of these (empty) trees, all or none, durable when it returns. A tree that is
    /// not empty is an error. Also puts `rows` (a few, catalog-like) in the same step.
    pub fn attach(
        &self,
        _builds: Vec<(TreeId, BulkTree)>,
        _rows: &[(TreeId, Vec<u8>, Vec<u8>)],
    ) -> Result<Commit, Error> {
        unimplemented!()
    }
    /// Writes a checkpoint now and waits for it.
    pub fn checkpoint(&self) -> Result<(), Error> {
        unimplemented!()
    }
}

impl BulkTree {
    /// Adds the next entry; keys must rise strictly.
    pub fn push(&mut self, _key: &[u8], _value: &[u8]) -> Result<(), Error> {
        unimplemented!()
    }
}

impl Reader {
    /// The newest committed (durable) state.
    pub fn snapshot(&self) -> Snapshot<'_> {
        unimplemented!()
    }
}

impl Snapshot<'_> {
    /// The version this snapshot shows.
    pub fn version(&self) -> Version {
        unimplemented!()
    }
    /// The value of a key; borrowed from the map or the arena, owned where it had to be put together.
    pub fn get(&self, _tree: TreeId, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        unimplemented!()
    }
    /// Visits entries in key order until the range ends or `visit` breaks. A later scan can go on behind the last key.
    pub fn scan(
        &self,
        _tree: TreeId,
        _range: KeyRange<'_>,
        _direction: Direction,
        _visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        unimplemented!()
    }
}

impl Tx<'_> {
    /// Reads a key: own changes first.
    pub fn get(&mut self, _tree: TreeId, _key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error> {
        unimplemented!()
    }
    /// Visits entries in key order, own changes included.
    pub fn scan(
        &mut self,
        _tree: TreeId,
        _range: KeyRange<'_>,
        _direction: Direction,
        _visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        unimplemented!()
    }
    /// Inserts or replaces.
    pub fn put(&mut self, _tree: TreeId, _key: &[u8], _value: &[u8]) {
        unimplemented!()
    }
    /// The same; the writer replaces the value's first 8 bytes by the transaction's version (little-endian).
    pub fn put_stamped(&mut self, _tree: TreeId, _key: &[u8], _value: &[u8]) {
        unimplemented!()
    }
    /// Removes a key (it need not exist).
    pub fn delete(&mut self, _tree: TreeId, _key: &[u8]) {
        unimplemented!()
    }
}
