//! Transactions of any size, kept on disk while they are prepared: see [`LargeTx`].

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::watching::{Armed, Changed};
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Version, Visit};
use crate::base::limits::check_limits;
use crate::engine::Engine;
use crate::engine::read::snapshot::StoreSnapshot;
use crate::engine::write::transaction::{Abort, Commit};
use crate::memtable::{Lookup, Memtable, MemtableCursor, MemtableWriter};

/// The version of all its records. One is enough, since no reader sees them before they are in the trees.
pub(crate) const OWN: Version = Version(1);
/// Minimum size of the scratch memory: an arena has fixed content at both ends.
const SCRATCH_BYTES_MIN: u64 = 1 << 20;

/// A transaction of any size. Its changes are kept first in an unnamed file (memory that the kernel may write out),
/// then in tree pages that no meta page references. One meta page makes all of them visible.
///
/// The caller computes its changes from a snapshot of its own, while other writers continue. The store then reports
/// which keys of the watched trees they have changed ([`Revise`]), and the caller adapts its changes, the last time
/// while all writers wait. Only one large transaction runs at a time.
///
/// Readers of changes get a reset of its trees, as after a bulk load.
pub struct LargeTx {
    engine: Arc<Engine>,
    own: MemtableWriter,
    bytes: u64,
    /// Keys put since the merge into the trees began.
    late: Option<BTreeSet<(TreeId, Vec<u8>)>>,
    _armed: Armed,
}

/// A fold to do when a large transaction is committed ([`crate::Tx::fold`]): tree, key, operand.
pub type Operand = (TreeId, Vec<u8>, Vec<u8>);

/// Adapts a large transaction to the changes that others have made meanwhile.
pub trait Revise {
    /// Puts into `tx` the changes that are right for a snapshot taken now, given the keys that other transactions have
    /// changed since the large one began, or since the last call. Called several times.
    ///
    /// While `writers_wait`, there are at most [`CHANGED_LAST_MAX`] keys. If the revision would take more than some
    /// milliseconds, it should return `false`: then writers continue, and the same keys are passed again.
    fn revise(&mut self, tx: &mut LargeTx, changed: &[Changed], writers_wait: bool) -> Result<bool, Abort>;

    /// The folds of the transaction, bounded like those of an ordinary one. Called once, after the last [`Revise::revise`].
    fn folds(&mut self) -> Vec<Operand>;
}

/// Maximum number of keys that are revised while all writers wait.
pub const CHANGED_LAST_MAX: usize = 128;

impl LargeTx {
    /// Begins a transaction of at most `bytes` bytes, whose disk space is taken at once. See [`crate::Store::large`].
    pub(crate) fn begin(engine: &Arc<Engine>, bytes: u64, watched: &[TreeId]) -> Result<LargeTx, StoreError> {
        let armed = Armed::new(engine, watched)?;
        let bytes = bytes.max(SCRATCH_BYTES_MIN);
        let scratch = engine.scratch(bytes)?;
        let own = match &scratch {
            Some(file) => Memtable::in_file(file),
            None => Memtable::new(bytes as usize),
        };
        let (_, own) = own.map_err(|error| StoreError::io("map a large transaction's file", error))?;
        Ok(LargeTx { engine: Arc::clone(engine), own, bytes, late: None, _armed: armed })
    }

    /// The transaction's own change of a key: `None` if it has not touched it, `Some(None)` if it has deleted it.
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.own.table().get(OWN, tree, key) {
            Lookup::Absent => None,
            Lookup::Deleted => Some(None),
            Lookup::Value(value) => Some(Some(value)),
        }
    }

    /// Visits entries of a snapshot in key order, overlaid with the transaction's own changes.
    pub fn scan(
        &self,
        base: &StoreSnapshot<'_>,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let mut cursor = self.own.table().cursor(OWN, tree);
        match direction {
            Direction::Forward => cursor.seek(range.from),
            Direction::Backward => cursor.seek_back(range.to),
        };
        let mut own = Own { cursor, range, direction };
        let mut is_over = false;
        base.scan(tree, range, direction, &mut |key, value| {
            let mut flow = own.show_before(key, visit);
            // An own entry with the same key replaces it.
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
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.insert(tree, key, Some(value))
    }

    /// Deletes a key, which need not exist.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<(), StoreError> {
        self.insert(tree, key, None)
    }

    fn insert(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        check_limits(key, value.unwrap_or_default())?;
        let full = StoreError::Limit { what: "bytes of a large transaction", limit: self.bytes };
        self.own.insert(OWN, tree, key, value).map_err(|_| full)?;
        if let Some(late) = &mut self.late {
            late.insert((tree, key.to_vec()));
        }
        Ok(())
    }

    /// Commits the transaction and calls `revise` to adapt it. [`StoreError::Busy`]: other transactions have changed too
    /// much meanwhile, or have deleted key ranges; the caller may begin again. After any error but [`StoreError::Unknown`]
    /// nothing was changed.
    pub fn commit(mut self, revise: &mut dyn Revise) -> Result<Commit, StoreError> {
        let engine = Arc::clone(&self.engine);
        engine.commit_large(&mut self, revise)
    }

    pub(crate) fn table(&self) -> &Memtable {
        self.own.table()
    }

    /// Starts recording the keys that are put; forgets those recorded before.
    pub(crate) fn begin_late(&mut self) {
        self.late = Some(BTreeSet::new());
    }

    pub(crate) fn late(&self) -> impl Iterator<Item = &(TreeId, Vec<u8>)> {
        self.late.iter().flatten()
    }
}

/// The transaction's own entries in a range, in the scan's order.
struct Own<'m, 'r> {
    cursor: MemtableCursor<'m>,
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

    /// Shows the own entries before a key of the snapshot.
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
