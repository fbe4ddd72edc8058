//! What documents and queries ask of an engine: [`ReadView`] to read, [`WriteTransaction`] to write. Both name trees by
//! [`TreeId`] and know nothing of documents.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{Bound, ControlFlow};

use super::binding::{Direction, Entries, KeyRange, StoreError, TreeId};

/// A readable state: a snapshot, or a transaction in progress.
#[allow(
    clippy::type_complexity,
    reason = "the visitor's type is said once, here; a name for it would hide its arguments"
)]
pub trait ReadView {
    /// The value of a key, borrowed or owned.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError>;
    /// Visits entries in key order until the range ends or `visit` breaks.
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;
    /// Visits the first entry of a range in this direction, if there is one. `visit` must not read through this view.
    fn visit_first(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        self.scan(tree, range, direction, &mut |key, value| {
            visit(key, value);
            ControlFlow::Break(())
        })
    }
    /// Visits the entries of a range in key order, one leaf at a time, until the range ends or `visit` breaks. Returns `false`,
    /// without a visit, if this view has no access to leaves; the caller then uses [`ReadView::scan`]. The borrowed keys and
    /// values live as long as the view is borrowed.
    fn scan_leaves<'v>(
        &'v self,
        _tree: TreeId,
        _range: KeyRange<'_>,
        _direction: Direction,
        _visit: &mut dyn FnMut(&Entries<'v>) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }
    /// Looks up many keys in about the time of one, and writes each value to the key's index in `values`. `false`: nothing was
    /// looked up; use [`ReadView::get`].
    fn get_all<'v>(
        &'v self,
        _tree: TreeId,
        _keys: &[[u8; 4]],
        _values: &mut [Option<&'v [u8]>],
    ) -> Result<bool, StoreError> {
        Ok(false)
    }
    /// Number of indexes that had become ready before this state was taken ([`crate::catalog::readiness`]).
    #[inline]
    fn ready_by(&self) -> u64 {
        u64::MAX
    }
    /// The same state for other threads, while this one is borrowed; `None` where the engine cannot share it.
    fn across(&self) -> Option<Box<dyn ReadView + Sync + '_>> {
        None
    }
    /// Ascending keys that divide a range into up to `count` parts of about equal size.
    fn cuts(&self, _tree: TreeId, _range: KeyRange<'_>, _count: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        Ok(Vec::new())
    }
    /// The approximate number of entries in a range; `None` where it is not known.
    fn entries_about(&self, _tree: TreeId, _range: KeyRange<'_>) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }
}

/// Bytes before a stored document: its change number, little-endian.
pub const STAMP_BYTES: usize = 8;

/// A transaction in progress: reads see its own changes.
#[allow(clippy::type_complexity, reason = "as for `View`")]
pub trait WriteTransaction {
    /// Reads a key.
    fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError>;
    /// The same, but a later change of the key by another transaction is no conflict. It is for a decision that such a change cannot
    /// alter, for example by a bound that only rises.
    fn peek(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        self.get(tree, key)
    }
    /// Visits entries in key order until the range ends or `visit` breaks.
    fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;
    /// Inserts or replaces a value.
    fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]);
    /// The same; the value's first 8 bytes become the transaction's change number (little-endian).
    fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]);
    /// Removes a key (it need not exist).
    fn delete(&mut self, tree: TreeId, key: &[u8]);
    /// Merges an operand into the key's value when the transaction commits; nothing is read.
    fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]);
    /// Most bytes of all its changes; of one change in a large transaction.
    fn bytes_max(&self) -> usize;
    /// Number of operands so far that will be merged while other commits wait; 0 where none do.
    fn folds_count(&self) -> u64 {
        0
    }
}

impl ReadView for Box<dyn ReadView + Sync + '_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        (**self).get(tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        (**self).scan(tree, range, direction, visit)
    }
    fn scan_leaves<'v>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&Entries<'v>) -> ControlFlow<()>,
    ) -> Result<bool, StoreError> {
        (**self).scan_leaves(tree, range, direction, visit)
    }
}

/// A transaction in progress as a [`ReadView`], so that a query can run inside it.
///
/// Values are copied: a transaction records each read, so each read borrows it mutably, and a borrowed value cannot outlive
/// that borrow. A scan copies in batches, so that its visitor may read through the same view, as joins do.
pub struct Within<'c, C: WriteTransaction + ?Sized> {
    change: RefCell<&'c mut C>,
}

impl<'c, C: WriteTransaction + ?Sized> Within<'c, C> {
    /// Reads the transaction's state until dropped.
    pub fn new(change: &'c mut C) -> Self {
        Within { change: RefCell::new(change) }
    }
}

impl<C: WriteTransaction + ?Sized> ReadView for Within<'_, C> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        let mut change = self.change.borrow_mut();
        Ok(change.get(tree, key)?.map(|value| Cow::Owned(value.into_owned())))
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let mut bounds = (range.from.map(<[u8]>::to_vec), range.to.map(<[u8]>::to_vec));
        let mut batch = Vec::new();
        let mut rows_max = FIRST_BATCH_ROWS;
        loop {
            batch.clear();
            let from = bounds.0.as_ref().map(Vec::as_slice);
            let to = bounds.1.as_ref().map(Vec::as_slice);
            let mut bytes = 0;
            self.change.borrow_mut().scan(tree, KeyRange { from, to }, direction, &mut |key, value| {
                bytes += key.len() + value.len();
                batch.push((key.to_vec(), value.to_vec()));
                let full = batch.len() == rows_max || bytes >= BATCH_BYTES_MAX;
                if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            let ended = batch.len() < rows_max && bytes < BATCH_BYTES_MAX;
            for (key, value) in &batch {
                if visit(key, value).is_break() {
                    return Ok(());
                }
            }
            let Some((last, _)) = batch.pop().filter(|_| !ended) else { return Ok(()) };
            let side = if direction == Direction::Forward { &mut bounds.0 } else { &mut bounds.1 };
            *side = Bound::Excluded(last);
            rows_max = (rows_max * 4).min(BATCH_ROWS_MAX);
        }
    }
    /// Copies nothing, and only the range up to this entry counts as read.
    fn visit_first(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), StoreError> {
        self.change.borrow_mut().scan(tree, range, direction, &mut |key, value| {
            visit(key, value);
            ControlFlow::Break(())
        })
    }
}

/// Entries that a transaction's scan copies at once: few at first, because every copied entry counts as read.
const FIRST_BATCH_ROWS: usize = 16;
const BATCH_ROWS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 256 << 10;
