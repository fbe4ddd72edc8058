//! Commutative changes, folded by the writer: one put for each key, for many transactions of a batch.
//!
//! A transaction that adds one to a counter need not read it. It passes an operand, and the writer applies it to the
//! counter's value when it places the transaction, so transactions that add to the same counter never conflict. The
//! results are kept here and put once, as the last transaction of the batch: they become durable and visible together
//! with their transactions. Before the writer prepares or places a transaction that reads or otherwise changes a folded
//! tree, the results so far are put ([`Folds::meets`]).
//!
//! The folds of a transaction can be taken back until the next one begins: the batch may have no room for it.
//!
//! If keys are part of a derived row ([`Fold::derived`]), the row is computed before the transaction folds into the first of them
//! and after it has folded into all of them. The consequences of a difference are the transaction's next stage ([`Folds::follow`]).

use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hashbrown::HashTable;

use super::changes::{Changes, KeyChange};
use super::fold::{Fold, FoldView, Folded, RowChange};
use super::overlay::{FoldedTree, Ordered, Overlay, Row};
use super::transaction::Work;
use crate::base::error::StoreError;
use crate::base::key::TreeId;
use crate::base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use crate::base::sync::DefaultHashBuilder;
use crate::engine::checkpoint::need::Need;
use crate::log::{Edit, OPERATION_HEADER_BYTES, Operation, TRANSACTION_HEADER_BYTES};
use crate::memtable::{Demand, MemtableWriter};

/// Maximum number of folds that follow, directly or indirectly, from those of one transaction ([`Fold::fold`]'s `further`).
const FURTHER_MAX: usize = 65_536;
/// Number of buffers kept for reuse.
const SPARE_MAX: usize = 1024;
/// A larger buffer is not kept.
const SPARE_BYTES_MAX: usize = 4096;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Folds {
    rows: Vec<Row>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The trees of the rows, sorted.
    trees: Vec<FoldedTree>,
    size: Size,
    /// Undo log of the newest transaction: the earlier values of its rows, in order.
    undo: Vec<(u32, Option<Vec<u8>>)>,
    /// Number of rows and their size before it.
    before: (usize, Size),
    spare: Vec<Vec<u8>>,
    /// Derived rows that the current stage may change.
    touched: Touched,
}

/// Derived rows, each once, with their content before the transaction.
#[derive(Default)]
struct Touched {
    rows: Vec<DerivedRow>,
    index: HashTable<u32>,
}

struct DerivedRow {
    number: u32,
    key: Vec<u8>,
    before: Vec<u8>,
}

/// Space that putting the rows takes.
#[derive(Clone, Copy, Default)]
struct Size {
    need: Need,
    value_bytes: usize,
    key_bytes: usize,
}

/// A fold that is still to do.
struct Next {
    tree: TreeId,
    key: Vec<u8>,
    operand: Vec<u8>,
}

impl Folds {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes in a batch.
    pub(crate) fn log_bytes(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let headers = TRANSACTION_HEADER_BYTES + self.rows.len() * OPERATION_HEADER_BYTES;
        headers + self.size.key_bytes + self.size.value_bytes
    }

    /// Adds the pages that a checkpoint will need for the rows.
    pub(crate) fn add_need(&self, need: &mut Need) {
        need.and(self.size.need);
        need.keys += self.rows.len() as u64;
    }

    /// Adds the memory that the memtable will need for them.
    pub(crate) fn add_demand(&self, demand: &mut Demand, table: &MemtableWriter) {
        for of in self.trees.iter().filter(|of| of.rows > 0) {
            demand.add_some(table, of.tree, of.rows);
        }
        demand.add_bytes(self.rows.len(), self.size.key_bytes, self.size.value_bytes);
    }

    /// Whether a transaction reads a tree of the rows, or changes it other than by folding.
    pub(crate) fn meets(&self, work: &Work) -> bool {
        let has_rows = |tree| self.known_tree(tree).is_ok_and(|at| self.trees[at].rows > 0);
        !self.is_empty() && (work.reads.is_of_any(has_rows) || work.changes.changed_trees().any(has_rows))
    }

    /// The place of a tree's record, or where to insert it.
    fn known_tree(&self, tree: TreeId) -> Result<usize, usize> {
        self.trees.binary_search_by_key(&tree, |of| of.tree)
    }

    /// The keys that the newest transaction has folded, directly or as a consequence. A key may be repeated.
    pub(crate) fn folded(&self) -> impl Iterator<Item = (TreeId, &[u8])> {
        let rows = self.undo.iter().map(|(row, _)| &self.rows[*row as usize]);
        rows.map(|row| (row.tree, row.key.as_slice()))
    }

    /// The resulting puts and deletions.
    pub(crate) fn puts(&self) -> impl Iterator<Item = KeyChange<'_>> {
        self.rows.iter().filter(|row| row.old != row.new).map(|row| KeyChange {
            operation: Operation {
                tree: row.tree.0,
                key: &row.key,
                edit: row.new.as_deref().map_or(Edit::Delete, Edit::Put),
            },
            is_stamped: false,
        })
    }

    pub(crate) fn clear(&mut self) {
        self.begin();
        while let Some(row) = self.rows.pop() {
            [Some(row.key), row.old, row.new].into_iter().flatten().for_each(|bytes| self.keep(bytes));
        }
        self.index.clear();
        self.trees.clear();
        self.size = Size::default();
        self.before = (0, self.size);
    }

    /// Folds all operands of a transaction, or none. Current values are read through `view`.
    pub(crate) fn fold(
        &mut self,
        by: Option<&dyn Fold>,
        view: &dyn FoldView,
        changes: &Changes,
    ) -> Result<(), StoreError> {
        let Some(by) = by else { return Err(StoreError::Refused { why: "the store has no fold function" }) };
        self.begin();
        let folded = catch_unwind(AssertUnwindSafe(|| self.fold_all(by, view, changes)));
        let folded = folded.unwrap_or(Err(StoreError::Aborted));
        if folded.is_err() {
            self.take_back();
        }
        folded
    }

    /// Begins the next transaction.
    fn begin(&mut self) {
        self.touched.clear();
        while let Some((_, bytes)) = self.undo.pop() {
            bytes.into_iter().for_each(|bytes| self.keep(bytes));
        }
        self.before = (self.rows.len(), self.size);
    }

    /// Undoes the folds of the newest transaction.
    pub(crate) fn take_back(&mut self) {
        while let Some((row, before)) = self.undo.pop() {
            let after = std::mem::replace(&mut self.rows[row as usize].new, before);
            after.into_iter().for_each(|bytes| self.keep(bytes));
        }
        let (rows, size) = self.before;
        for place in (rows..self.rows.len()).rev() {
            let row = &self.rows[place];
            let hash = self.hasher.hash_one((row.tree, row.key.as_slice()));
            if let Ok(found) = self.index.find_entry(hash, |at| *at as usize == place) {
                found.remove();
            }
            if let Ok(at) = self.known_tree(row.tree) {
                self.trees[at].ordered.remove(&row.key);
                self.trees[at].rows -= 1;
            }
        }
        self.rows.truncate(rows);
        self.size = size;
    }

    fn fold_all(&mut self, by: &dyn Fold, view: &dyn FoldView, changes: &Changes) -> Result<(), StoreError> {
        let mut further = Vec::new();
        let mut followed = 0;
        for (tree, key, operand) in changes.folds() {
            self.fold_one(by, view, (tree, key, operand), &mut further)?;
            self.fold_further(by, view, &mut further, &mut followed)?;
        }
        while !self.touched.rows.is_empty() {
            self.follow(by, view, &mut further)?;
            self.fold_further(by, view, &mut further, &mut followed)?;
        }
        Ok(())
    }

    /// Folds in queue order, so that the result does not depend on the depth of consequences.
    fn fold_further(
        &mut self,
        by: &dyn Fold,
        view: &dyn FoldView,
        further: &mut Vec<Next>,
        followed: &mut usize,
    ) -> Result<(), StoreError> {
        let mut done = 0;
        while done < further.len() {
            *followed += 1;
            if *followed > FURTHER_MAX {
                return Err(StoreError::Limit {
                    what: "folds that follow from a transaction's",
                    limit: FURTHER_MAX as u64,
                });
            }
            let Next { tree, key, operand } = &mut further[done];
            let next = Next { tree: *tree, key: std::mem::take(key), operand: std::mem::take(operand) };
            self.fold_one(by, view, (next.tree, &next.key, &next.operand), further)?;
            self.keep(next.key);
            self.keep(next.operand);
            done += 1;
        }
        further.clear();
        Ok(())
    }

    /// Collects the next stage: the consequences of the derived rows that this stage changed.
    fn follow(&mut self, by: &dyn Fold, view: &dyn FoldView, further: &mut Vec<Next>) -> Result<(), StoreError> {
        let touched = std::mem::take(&mut self.touched);
        let mut after = Vec::new();
        for row in &touched.rows {
            after.clear();
            let now = self.overlay(view);
            by.derive(row.number, &row.key, &now, &mut after)?;
            if after == row.before {
                continue;
            }
            let change = RowChange { before: &row.before, after: &after };
            by.follow(row.number, &row.key, change, &now, &mut |tree, key, operand| {
                further.push(Next { tree, key: key.to_vec(), operand: operand.to_vec() });
            })?;
        }
        Ok(())
    }

    /// The data that a fold may read.
    fn overlay<'f>(&'f self, view: &'f dyn FoldView) -> Overlay<'f> {
        Overlay { view, rows: &self.rows, index: &self.index, hasher: &self.hasher, trees: &self.trees }
    }

    /// Records a derived row before the first fold into one of its keys.
    fn touch(&mut self, by: &dyn Fold, view: &dyn FoldView, (number, key): (u32, &[u8])) -> Result<(), StoreError> {
        let hash = self.hasher.hash_one((number, key));
        let rows = &self.touched.rows;
        let is_it = |at: &u32| rows[*at as usize].number == number && rows[*at as usize].key == key;
        if self.touched.index.find(hash, is_it).is_some() {
            return Ok(());
        }
        let mut before = Vec::new();
        let now = self.overlay(view);
        by.derive(number, key, &now, &mut before)?;
        let place = rows.len() as u32;
        self.touched.rows.push(DerivedRow { number, key: key.to_vec(), before });
        let (rows, hasher) = (&self.touched.rows, &self.hasher);
        self.touched.index.insert_unique(hash, place, |at| {
            let row = &rows[*at as usize];
            hasher.hash_one((row.number, row.key.as_slice()))
        });
        Ok(())
    }

    fn fold_one(
        &mut self,
        by: &dyn Fold,
        view: &dyn FoldView,
        (tree, key, operand): (TreeId, &[u8], &[u8]),
        further: &mut Vec<Next>,
    ) -> Result<(), StoreError> {
        let derived = by.derived(tree, key);
        if let Some(derived) = derived {
            self.touch(by, view, derived)?;
        }
        let place = self.row(view, tree, key, derived.is_some())?;
        let mut new = self.spare.pop().unwrap_or_default();
        let spare = &mut self.spare;
        let mut add = |tree: TreeId, key: &[u8], operand: &[u8]| {
            further.push(Next { tree, key: copy(spare, key), operand: copy(spare, operand) });
        };
        let folded = by.fold(tree, key, self.rows[place].new.as_deref(), operand, &mut new, &mut add);
        let new = match folded {
            Folded::Put => Some(new),
            _ => {
                self.keep(new);
                None
            }
        };
        match folded {
            Folded::Put | Folded::Delete => {}
            Folded::Unchanged => return Ok(()),
            Folded::Refused(why) => return Err(StoreError::Refused { why }),
        }
        if new.as_ref().is_some_and(|new| new.len() > VALUE_BYTES_MAX) {
            return Err(StoreError::Limit { what: "value", limit: VALUE_BYTES_MAX as u64 });
        }
        let row = &mut self.rows[place];
        self.size.take(row.operation());
        self.undo.push((place as u32, std::mem::replace(&mut row.new, new)));
        self.size.add(row.operation());
        Ok(())
    }

    /// The index of a key's row, which is created if missing.
    fn row(&mut self, view: &dyn FoldView, tree: TreeId, key: &[u8], is_ordered: bool) -> Result<usize, StoreError> {
        let hash = self.hasher.hash_one((tree, key));
        let is_it = |at: &u32| self.rows[*at as usize].is(tree, key);
        if let Some(place) = self.index.find(hash, is_it) {
            return Ok(*place as usize);
        }
        if key.len() > KEY_BYTES_MAX {
            return Err(StoreError::Limit { what: "key", limit: KEY_BYTES_MAX as u64 });
        }
        let old = view.get(tree, key)?;
        let spare = &mut self.spare;
        let old = old.as_deref();
        let key_copy = copy(spare, key);
        let row =
            Row { tree, key: key_copy, old: old.map(|old| copy(spare, old)), new: old.map(|old| copy(spare, old)) };
        let place = self.rows.len();
        self.size.key_bytes += key.len();
        self.size.add(row.operation());
        self.rows.push(row);
        let (rows, hasher) = (&self.rows, &self.hasher);
        self.index.insert_unique(hash, place as u32, |at| {
            let row = &rows[*at as usize];
            hasher.hash_one((row.tree, row.key.as_slice()))
        });
        let at = self.known_tree(tree).unwrap_or_else(|at| {
            self.trees.insert(at, FoldedTree { tree, rows: 0, ordered: Ordered::new() });
            at
        });
        self.trees[at].rows += 1;
        if is_ordered {
            self.trees[at].ordered.insert(key.to_vec(), place as u32);
        }
        Ok(place)
    }

    fn keep(&mut self, mut bytes: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && (1..=SPARE_BYTES_MAX).contains(&bytes.capacity()) {
            bytes.clear();
            self.spare.push(bytes);
        }
    }
}

/// A copy of the bytes in a spare buffer, or in a new one.
fn copy(spare: &mut Vec<Vec<u8>>, bytes: &[u8]) -> Vec<u8> {
    let mut buffer = spare.pop().unwrap_or_default();
    buffer.extend_from_slice(bytes);
    buffer
}

impl Touched {
    fn clear(&mut self) {
        self.rows.clear();
        self.index.clear();
    }
}

impl Size {
    fn add(&mut self, operation: Operation<'_>) {
        self.need.add(&operation);
        self.value_bytes += operation.edit.bytes().len();
    }

    fn take(&mut self, operation: Operation<'_>) {
        let mut gone = Need::default();
        gone.add(&operation);
        self.need.without(gone);
        self.value_bytes -= operation.edit.bytes().len();
    }
}
