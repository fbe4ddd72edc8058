//! Transactions as values: a transaction is prepared against a snapshot, validated by the writer, and prepared again
//! after a conflict.

use std::borrow::Cow;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::changes::Changes;
use super::overlay::Merge;
use super::reads::Reads;
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, Span, TreeId, Version, Visit};
use crate::engine::read::view::View;

/// A successful commit.
#[derive(Clone, Copy, Debug)]
pub struct Commit {
    /// The transaction's version. A transaction without changes gets the newest version whose changes it saw.
    pub version: Version,
}

/// Returned by a transaction that aborts itself. The reason is in the transaction's own state.
#[derive(Clone, Copy, Debug)]
pub struct Abort;

/// A transaction as a value: it can be prepared again if its reads have changed.
pub trait RetriableTransaction: Send {
    /// Reads through `tx`, checks, and puts its changes into `tx`. Called first on the caller's thread against a
    /// snapshot. If another transaction has changed what it read, it is called again, on the writer's thread, against
    /// the newest state. The result must depend only on what it reads. A panic on the writer's thread counts as
    /// `Abort`.
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), Abort>;
    /// Called once with the outcome: the version of the durable transaction, or an error. Runs on a thread of the store
    /// and must not block.
    fn finish(self: Box<Self>, outcome: Result<Commit, StoreError>);
}

/// A panic in a caller's code must not end a committer.
pub(crate) fn finish(transaction: Box<dyn RetriableTransaction>, outcome: Result<Commit, StoreError>) {
    if catch_unwind(AssertUnwindSafe(|| transaction.finish(outcome))).is_err() {
        tracing::error!("a transaction's finish panicked; its commit stands");
    }
}

/// Immediate result of submitting a transaction.
pub enum Submit {
    /// It is queued; `finish` will be called.
    Queued,
    /// The queue is full: the transaction is returned, and `finish` was not called.
    Busy(Box<dyn RetriableTransaction>),
}

/// The interface of a transaction to the data: reads see the snapshot and the transaction's own changes. Point reads
/// and scans are recorded for validation by the writer.
pub struct Tx<'t> {
    view: View<'t>,
    /// What the writer will validate and apply.
    work: &'t mut Work,
}

/// The reads and changes of a transaction.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) reads: Reads,
    pub(crate) changes: Changes,
    /// The version of the snapshot against which it was prepared.
    pub(crate) snapshot: u64,
    /// The transaction aborted itself. The abort is final only if its reads are still valid.
    pub(crate) is_aborted: bool,
}

impl Work {
    pub(crate) fn new((cost_max, too_large): (usize, &'static str)) -> Work {
        Work { changes: Changes::new(cost_max, too_large), ..Work::default() }
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Work>() + self.reads.held_bytes() + self.changes.held_bytes()
    }

    /// Runs `prepare` from scratch against `view`.
    pub(crate) fn prepare(
        &mut self,
        view: View<'_>,
        prepare: &mut dyn FnMut(&mut Tx<'_>) -> Result<(), Abort>,
    ) -> Result<(), StoreError> {
        self.reads.clear();
        self.changes.clear();
        self.snapshot = view.version;
        let lost = view.generation.lost();
        self.is_aborted = prepare(&mut Tx { view, work: self }).is_err();
        // The transaction may have read a lost page, which reads as zeros.
        if let Err(error) = view.generation.check_lost(lost) {
            self.is_aborted = true;
            self.changes.clear();
            return Err(error);
        }
        if self.is_aborted {
            self.changes.clear();
            return Err(StoreError::Aborted);
        }
        self.changes.forget_order();
        match self.changes.take_failure() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }
}

impl Tx<'_> {
    /// Reads a key; the transaction's own changes come first.
    pub fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        self.refuse_after_fold(tree)?;
        if self.work.changes.get(tree, key).is_none() {
            self.work.reads.point(tree, key);
            return self.view.get(tree, key);
        }
        Ok(self.work.changes.get(tree, key).flatten().map(Cow::Borrowed))
    }

    /// Like [`Tx::get`], but the read is not validated: the transaction is not prepared again if another one changes the key.
    /// A later change of the key by another transaction is no conflict. It is for a decision that such a change cannot alter, for
    /// example by a bound that only rises.
    pub fn peek(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        self.refuse_after_fold(tree)?;
        match self.work.changes.get(tree, key) {
            Some(own) => Ok(own.map(Cow::Borrowed)),
            None => self.view.get(tree, key),
        }
    }

    /// Visits entries in key order, including the transaction's own changes.
    pub fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.refuse_after_fold(tree)?;
        let own = self.work.changes.scanned(tree);
        let mut last = None;
        let mut visit = |key: &[u8], value: &[u8]| {
            let flow = visit(key, value);
            if flow.is_break() {
                last = Some(key.to_vec());
            }
            flow
        };
        let mut merge = Merge::new(own.in_range(range, direction), direction, &mut visit);
        let result = if own.spans().next().is_none() {
            self.view.scan(tree, range, direction, &mut |key, value| merge.take(key, value))
        } else {
            let mut gaps = gaps_between(own.spans(), range);
            if direction == Direction::Backward {
                gaps.reverse();
            }
            gaps.into_iter().try_for_each(|gap| match merge.is_ended {
                false => self.view.scan(tree, gap, direction, &mut |key, value| merge.take(key, value)),
                true => Ok(()),
            })
        };
        if result.is_ok() {
            merge.finish();
        }
        self.work.reads.scan(tree, range, direction, last);
        result
    }

    /// Inserts or replaces.
    pub fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.work.changes.put(tree, key, value, false);
    }

    /// Like [`Tx::put`], but the writer replaces the value's first 8 bytes by the transaction's version
    /// (little-endian).
    pub fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
        self.work.changes.put(tree, key, value, true);
    }

    /// Deletes a key, which need not exist.
    pub fn delete(&mut self, tree: TreeId, key: &[u8]) {
        self.work.changes.delete(tree, key);
    }

    /// Deletes all keys of a range, including those that this transaction has put so far; later puts stay. The cost does not depend
    /// on the number of keys. Nothing is read, so keys that other transactions put into the range before the commit are deleted
    /// too.
    pub fn delete_range(&mut self, tree: TreeId, range: KeyRange<'_>) {
        self.work.changes.delete_range(tree, range);
    }

    /// Applies an operand to the key's value at commit, by the store's [`crate::Fold`]. Reads nothing, so it conflicts
    /// with no other fold of the same key. A reader that sees the transaction sees the result of its folds. A
    /// transaction must neither read nor otherwise change a tree into which it has folded: that is [`StoreError::Refused`].
    ///
    /// Readers of changes get the results of a batch's folds as puts and deletions, in a separate transaction at the end of the
    /// batch.
    pub fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
        self.work.changes.fold(tree, key, operand);
    }

    /// Number of operands so far. The committer applies them, so they are work during which other commits wait.
    pub fn folds_count(&self) -> usize {
        self.work.changes.folds_count()
    }

    /// Most bytes of its changes.
    pub fn bytes_max(&self) -> usize {
        self.work.changes.bytes_max()
    }

    /// Returns an error if the transaction has folded into the tree, whose content is then known only at commit.
    fn refuse_after_fold(&self, tree: TreeId) -> Result<(), StoreError> {
        match self.work.changes.folds_into(tree) {
            false => Ok(()),
            true => Err(StoreError::Refused { why: "it reads a tree into which it has folded" }),
        }
    }
}

/// The parts of a range outside the spans, which are sorted and disjoint.
fn gaps_between<'k>(spans: impl Iterator<Item = &'k Span>, range: KeyRange<'k>) -> Vec<KeyRange<'k>> {
    let mut gaps = Vec::new();
    let mut from = range.from;
    for span in spans.take_while(|span| range.is_below_end(&span.from)) {
        let is_before = match from {
            Bound::Unbounded => true,
            Bound::Included(from) | Bound::Excluded(from) => *from < *span.from,
        };
        if is_before {
            gaps.push(KeyRange { from, to: Bound::Excluded(&span.from) });
        }
        match &span.to {
            None => return gaps,
            Some(to) if (KeyRange { from, to: Bound::Unbounded }).is_above_start(to) => from = Bound::Included(to),
            Some(_) => {}
        }
    }
    gaps.push(KeyRange { from, to: range.to });
    gaps
}
