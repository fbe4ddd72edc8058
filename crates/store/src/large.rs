//! Transactions of any size, kept on the disk while they are made: see [`LargeTx`].

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::large::Armed;
use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId, Version, Visit};
use crate::memtable::{Cursor, Lookup, Memtable, MemtableWriter};
use crate::snapshot::Snapshot;
use crate::transaction::{Abort, Commit};

/// All its records are of one version: nobody else sees them before they are in the trees.
pub(crate) const OWN: Version = Version(1);
/// Both ends of the memory hold something from the start.
const SCRATCH_BYTES_MIN: u64 = 1 << 20;

/// A transaction of any size. What it changes lies in a file without a name (memory that the kernel may write out), then in pages of the
/// trees that nothing refers to, and all of it appears by one meta page.
///
/// Its caller reads a snapshot of its own, and decides by that. Others go on writing meanwhile: which keys of the watched trees
/// they have changed is told ([`Revise`]), and the caller makes its changes fit, for the last time while all writers wait.
/// One is under way at a time.
///
/// Followers of changes are told that its trees are to be read anew, as after a load.
pub struct LargeTx {
    engine: Arc<Engine>,
    own: MemtableWriter,
    bytes: u64,
    /// Keys put since the trees were begun.
    late: Option<BTreeSet<(TreeId, Vec<u8>)>>,
    _armed: Armed,
}

/// A key that others have changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Changed {
    /// Its tree.
    pub tree: TreeId,
    /// The key.
    pub key: Vec<u8>,
}

/// What to fold when a large transaction is committed ([`crate::Tx::fold`]).
pub type Operand = (TreeId, Vec<u8>, Vec<u8>);

/// Makes a large transaction fit what others have changed meanwhile.
pub trait Revise {
    /// Others have changed these keys since the transaction began, or since the last call: a snapshot taken now shows them. Puts into `tx`
    /// what it should be by that snapshot. Called several times.
    ///
    /// While `writers_wait` there are [`CHANGED_LAST_MAX`] keys at most, and where it takes more than some milliseconds it had better
    /// give back `false`: then writers go on, and the same keys come again.
    fn revise(&mut self, tx: &mut LargeTx, changed: &[Changed], writers_wait: bool) -> Result<bool, Abort>;

    /// What to fold, asked once behind the last [`Revise::revise`]: as little as a common transaction may have.
    fn folds(&mut self) -> Vec<Operand>;
}

/// Keys that are revised while all writers wait.
pub const CHANGED_LAST_MAX: usize = 128;

impl LargeTx {
    /// Begins one of at most so many bytes, which are taken on the disk. See [`crate::Store::large`].
    pub(crate) fn begin(engine: &Arc<Engine>, bytes: u64, watched: &[TreeId]) -> Result<LargeTx, Error> {
        let armed = Armed::new(engine, watched)?;
        let bytes = bytes.max(SCRATCH_BYTES_MIN);
        let scratch = engine.scratch(bytes)?;
        let own = match &scratch {
            Some(file) => Memtable::in_file(file),
            None => Memtable::new(bytes as usize),
        };
        let (_, own) = own.map_err(|error| Error::io("map a large transaction's file", error))?;
        Ok(LargeTx { engine: Arc::clone(engine), own, bytes, late: None, _armed: armed })
    }

    /// What the transaction has made of a key: `None` where it has not touched it, `Some(None)` where it has deleted it.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.own.table().get(OWN, tree, key) {
            Lookup::Absent => None,
            Lookup::Deleted => Some(None),
            Lookup::Value(value) => Some(Some(value)),
        }
    }

    /// Visits entries of a snapshot in key order, with the transaction's own changes laid over it.
    pub fn scan(
        &self,
        base: &Snapshot<'_>,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let mut cursor = self.own.table().cursor(OWN, tree);
        match direction {
            Direction::Forward => cursor.seek(range.from),
            Direction::Backward => cursor.seek_back(range.to),
        };
        let mut own = Own { cursor, range, direction };
        let mut is_over = false;
        base.scan(tree, range, direction, &mut |key, value| {
            let mut flow = own.show_before(key, visit);
            // An own entry of the same key comes in its place.
            if flow.is_continue() && !own.is_at(key) {
                flow = visit(key, value);
            }
            is_over |= flow.is_break();
            flow
        })?;
        if !is_over {
            let _ = own.show_rest(visit);
        }
        Ok(())
    }

    /// Inserts or replaces.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.insert(tree, key, Some(value))
    }

    /// Removes a key, which need not exist.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), Error> {
        self.insert(tree, key, None)
    }

    fn insert(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> Result<(), Error> {
        crate::tree::check_limits(key, value.unwrap_or_default())?;
        let full = Error::Limit { what: "bytes of a large transaction", limit: self.bytes };
        self.own.insert(OWN, tree, key, value).map_err(|_| full)?;
        if let Some(late) = &mut self.late {
            late.insert((tree, key.to_vec()));
        }
        Ok(())
    }

    /// Commits it; `revise` is asked to make it fit. [`Error::Busy`]: others have changed too much meanwhile, or removed ranges of keys;
    /// it may be begun anew. After any error but [`Error::Unknown`] nothing was changed.
    pub fn commit(mut self, revise: &mut dyn Revise) -> Result<Commit, Error> {
        let engine = Arc::clone(&self.engine);
        engine.commit_large(&mut self, revise)
    }

    pub(crate) fn table(&self) -> &Memtable {
        self.own.table()
    }

    /// From now on the keys that are put are noted; before, those noted so far are gone.
    pub(crate) fn begin_late(&mut self) {
        self.late = Some(BTreeSet::new());
    }

    pub(crate) fn late(&self) -> impl Iterator<Item = &(TreeId, Vec<u8>)> {
        self.late.iter().flatten()
    }
}

/// The transaction's own entries of a range, in the scan's order.
struct Own<'m, 'r> {
    cursor: Cursor<'m>,
    range: KeyRange<'r>,
    direction: Direction,
}

impl Own<'_, '_> {
    fn is_inside(&self, key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => self.range.is_below_end(key),
            Direction::Backward => self.range.is_above_start(key),
        }
    }

    fn step(&mut self) {
        match self.direction {
            Direction::Forward => self.cursor.next(),
            Direction::Backward => self.cursor.prev(),
        };
    }

    /// Shows the entries before a key of the snapshot.
    fn show_before(&mut self, key: &[u8], visit: &mut Visit<'_>) -> ControlFlow<()> {
        while let Some(entry) = self.cursor.current() {
            let is_before = match self.direction {
                Direction::Forward => entry.key < key,
                Direction::Backward => entry.key > key,
            };
            if !is_before {
                break;
            }
            self.step();
            if let Some(value) = entry.value {
                visit(entry.key, value)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether the next entry is of this key.
    fn is_at(&self, key: &[u8]) -> bool {
        self.cursor.key() == Some(key)
    }

    fn show_rest(&mut self, visit: &mut Visit<'_>) -> ControlFlow<()> {
        while let Some(entry) = self.cursor.current().filter(|entry| self.is_inside(entry.key)) {
            self.step();
            if let Some(value) = entry.value {
                visit(entry.key, value)?;
            }
        }
        ControlFlow::Continue(())
    }
}
