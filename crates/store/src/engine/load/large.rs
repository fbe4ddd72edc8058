//! Transactions of any size, kept on disk while they are prepared: see [`LargeTx`].

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Version, Visit};
use crate::base::limits::check_limits;
use crate::engine::Engine;
use crate::engine::read::view::View;
use crate::engine::write::changes::Changes;
use crate::engine::write::fold::{Fold, FoldView};
use crate::engine::write::fold_results::Folds;
use crate::engine::write::overlay::Merge;
use crate::engine::write::transaction::Commit;
use crate::log::Edit;
use crate::memtable::{Lookup, Memtable, MemtableWriter, lost_error};

/// The version of all its records. One is enough: no reader sees them before the commit, and after it every reader does.
pub(crate) const OWN: Version = Version(1);
/// Minimum size of the scratch memory: an arena has fixed content at both ends.
const SCRATCH_BYTES_MIN: usize = 1 << 20;
/// Bytes of a change in a piece, besides its key and value.
const CHANGE_OVERHEAD_BYTES: usize = 128;

/// A transaction of any size. Only one is active at a time.
///
/// Its changes are kept in a memtable whose memory is an unnamed file, which the kernel may write out. It reads the newest
/// committed state and its own changes. What it reads is claimed before ([`super::claims`]), so its reads stay true until
/// it ends, and its commit cannot meet a conflict. (It can fail if readers hold the maximum number of old states.) The commit writes the changes to the log and makes that memtable the
/// active one ([`super::large_commit`]).
pub struct LargeTx {
    engine: Arc<Engine>,
    own: MemtableWriter,
    /// Bound of its changes in memory, in bytes.
    bytes_max: usize,
    fold: Option<Arc<dyn Fold>>,
    /// Operands that are not yet folded.
    operands: Changes,
    folds: Folds,
    /// Trees into which it has folded.
    folded: HashSet<TreeId>,
    /// The first failure of a change.
    failure: Option<StoreError>,
    _active: Active,
}

/// The claims of the active large transaction; dropping it ends them.
struct Active {
    engine: Arc<Engine>,
}

impl Drop for Active {
    fn drop(&mut self) {
        let _writer = self.engine.hold_writer();
        self.engine.claims.end();
    }
}

impl LargeTx {
    /// See [`crate::Store::large`].
    pub(crate) fn begin(engine: &Arc<Engine>, bytes: u64, whole: &[TreeId]) -> Result<LargeTx, StoreError> {
        let (active, newest, fold) = {
            let writer = engine.hold_writer();
            if !engine.claims.begin(whole) {
                return Err(StoreError::Busy);
            }
            (Active { engine: Arc::clone(engine) }, writer.next_version - 1, writer.fold.clone())
        };
        // Every snapshot from here on contains the earlier changes of the claimed trees.
        engine.wait_until_visible(newest)?;
        let bytes_max = usize::try_from(bytes).unwrap_or(usize::MAX).max(SCRATCH_BYTES_MIN);
        // After the commit, others write into the same memory until it is frozen.
        let own = MemtableWriter::in_scratch(&*engine.disk, bytes_max.saturating_add(engine.options.memtable_bytes))?;
        let (limit, what) = engine.options.transaction_bound();
        Ok(LargeTx {
            engine: Arc::clone(engine),
            own,
            bytes_max,
            fold,
            operands: Changes::new(limit, what),
            folds: Folds::default(),
            folded: HashSet::new(),
            failure: None,
            _active: active,
        })
    }

    /// Most bytes of one change.
    pub fn change_bytes_max(&self) -> usize {
        self.engine.options.transaction_bound().0
    }

    /// Reads a key: its own change, or the newest committed value.
    pub fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        self.refuse_after_fold(tree)?;
        self.read(tree, key)
    }

    /// Whether it has changed a key.
    pub fn has_changed(&self, tree: TreeId, key: &[u8]) -> bool {
        self.own.table().get(OWN, tree, key) != Lookup::Absent
    }

    /// Visits entries in key order, its own changes included. The whole range is claimed.
    pub fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.refuse_after_fold(tree)?;
        self.read_range(tree, range, direction, visit)
    }

    /// Inserts or replaces. A failure is reported by [`LargeTx::check`] and the commit.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.change(tree, key, Some(value));
    }

    /// The same; the value's first 8 bytes become a number (little-endian) above the version of every transaction that
    /// has changed this key, and not above the transaction's own version.
    pub fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        let mut value = value.to_vec();
        let stamp = self.engine.visible() + 1;
        match value.first_chunk_mut() {
            Some(place) => *place = stamp.to_le_bytes(),
            None => self.fail(StoreError::Limit { what: "stamped value (lower bound)", limit: 8 }),
        }
        self.change(tree, key, Some(&value));
    }

    /// Deletes a key, which need not exist.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.change(tree, key, None);
    }

    /// Applies an operand to the key's value, by the store's [`crate::Fold`]. See [`crate::Tx::fold`]. The operands between two
    /// calls of [`LargeTx::check`] are folded together, within the bounds of an ordinary transaction.
    pub fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
        self.folded.insert(tree);
        self.operands.fold(tree, key, operand);
    }

    /// Folds the operands that wait. Returns the first failure of a change so far; then the transaction cannot be committed.
    pub fn check(&mut self) -> Result<(), StoreError> {
        self.fold_all();
        if self.own.table().lost() > 0 {
            return Err(lost_error());
        }
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Commits: durably, and visible as a whole. Readers of changes get the changes of the tree `last` after all others.
    /// After any error but [`StoreError::Unknown`] nothing was changed.
    pub fn commit(mut self, last: TreeId) -> Result<Commit, StoreError> {
        self.check()?;
        let engine = Arc::clone(&self.engine);
        engine.commit_large(self, last)
    }

    pub(crate) fn table(&self) -> &Arc<Memtable> {
        self.own.table()
    }

    /// The memtable, and the guard of its claims.
    pub(super) fn into_parts(self) -> (MemtableWriter, impl Drop) {
        (self.own, self._active)
    }

    fn fail(&mut self, failure: StoreError) {
        self.failure.get_or_insert(failure);
    }

    fn change(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) {
        if let Err(failure) = self.insert(tree, key, value) {
            self.fail(failure);
        }
    }

    fn insert(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        check_limits(key, value.unwrap_or_default())?;
        let (limit, what) = self.engine.options.transaction_bound();
        if key.len() + value.map_or(0, <[u8]>::len) + CHANGE_OVERHEAD_BYTES > limit {
            return Err(StoreError::Limit { what, limit: limit as u64 });
        }
        let full = StoreError::Limit { what: "bytes of a large transaction", limit: self.bytes_max as u64 };
        if self.own.table().used_bytes() > self.bytes_max {
            return Err(full);
        }
        self.own.insert(OWN, tree, key, value).map_err(|_| full)
    }

    /// Folds the operands that wait.
    fn fold_all(&mut self) {
        if let Some(failure) = self.operands.take_failure() {
            self.fail(failure);
        }
        if !self.operands.has_folds() {
            return;
        }
        let mut folds = std::mem::take(&mut self.folds);
        if let Err(failure) = folds.fold(self.fold.as_deref(), &*self, &self.operands) {
            self.fail(failure);
        }
        for put in folds.puts() {
            let operation = put.operation;
            let value = match operation.edit {
                Edit::Put(value) => Some(value),
                Edit::Delete | Edit::DeleteRange { .. } => None,
            };
            self.change(TreeId(operation.tree), operation.key, value);
        }
        folds.clear();
        self.operands.clear();
        self.folds = folds;
    }

    /// As for an ordinary transaction: operands that wait are not in the tree yet.
    fn refuse_after_fold(&self, tree: TreeId) -> Result<(), StoreError> {
        match self.folded.contains(&tree) {
            false => Ok(()),
            true => Err(StoreError::Refused { why: "it reads a tree into which it has folded" }),
        }
    }

    fn read(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        match self.own.table().get(OWN, tree, key) {
            Lookup::Deleted => return Ok(None),
            Lookup::Value(value) => return Ok(Some(Cow::Borrowed(value))),
            Lookup::Absent => {}
        }
        self.engine.claims.key(tree, key);
        let is_newer = |table: &Memtable, version| table.latest(tree, key).is_some_and(|latest| latest.0 > version);
        self.newest(&is_newer, |view| Ok(view.get(tree, key)?.map(|value| Cow::Owned(value.into_owned()))))
    }

    fn read_range(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.engine.claims.range(tree, range);
        let is_newer = |table: &Memtable, version| table.changed_since(Version(version), tree, range);
        self.newest(&is_newer, |view| {
            let own = self.own.table().scan(OWN, tree, range, direction).map(|change| (change.key, change.value));
            let mut merge = Merge::new(own, direction, visit);
            view.scan(tree, range, direction, &mut |key, value| merge.take(key, value))?;
            merge.finish();
            Ok(())
        })
    }

    /// Reads the newest committed state of something that is claimed. A change placed before the claim may still be on its
    /// way to the disk, which `is_newer` finds in the memtables; then this waits until it is visible.
    fn newest<T>(
        &self,
        is_newer: &dyn Fn(&Memtable, u64) -> bool,
        read: impl FnOnce(View<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self.engine.take_slot();
        loop {
            let (generation, version) = self.engine.pin(slot.slot());
            // Versions above this one are not visible, but a large transaction's records have the version `OWN`.
            if generation.tables().any(|table| is_newer(table, version)) {
                drop(generation);
                self.engine.wait_until_visible(version + 1)?;
                continue;
            }
            let view = View { generation: &generation, version };
            let lost = generation.lost();
            let result = read(view)?;
            generation.check_lost(lost)?;
            return Ok(result);
        }
    }
}

impl FoldView for LargeTx {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        self.read(tree, key)
    }

    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.read_range(tree, range, direction, visit)
    }
}
