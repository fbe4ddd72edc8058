//! Applying operands to values, see [`crate::Tx::fold`].

use std::borrow::Cow;

use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Visit};

/// Applies operands to the values of keys, for counters, sums and the like: a transaction can add to a value without
/// reading it, if the order of additions does not matter.
///
/// The writer calls it in commit order, once for each operand, under the writer's lock. It must be quick, must depend only on
/// its arguments and on a [`FoldView`], and must not call the store. It holds no lock while it reads: the read of a large
/// transaction, which folds on its own thread, waits for the writer. A panic refuses the transaction.
pub trait Fold: Send + Sync {
    /// Applies `operand` to `old`, the key's current value. `new` is empty; with [`Folded::Put`] its content becomes
    /// the value. `further` queues an operand for another key as a consequence, to be folded after this one.
    /// Consequences may have further consequences, up to 65,536 folds for one transaction.
    fn fold(
        &self,
        tree: TreeId,
        key: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        further: &mut Further<'_>,
    ) -> Folded;

    /// The derived row that depends on a key, if any: a number, and the row's own key. A derived row is computed from several
    /// keys ([`Fold::derive`]) and is not stored. If a transaction changes it, further folds follow ([`Fold::follow`]).
    fn derived<'k>(&self, _tree: TreeId, _key: &'k [u8]) -> Option<(u32, &'k [u8])> {
        None
    }

    /// Computes a derived row. Called before the transaction's first fold into any of the row's keys, and again after
    /// its last. `out` is empty, and stays empty if there is no such row.
    fn derive(&self, _number: u32, _key: &[u8], _now: &dyn FoldView, _out: &mut Vec<u8>) -> Result<(), StoreError> {
        Ok(())
    }

    /// Queues the folds that follow from a changed derived row. They may change keys of other derived rows; those rows
    /// are computed again after all folds of that stage.
    fn follow(
        &self,
        _number: u32,
        _key: &[u8],
        _change: RowChange<'_>,
        _now: &dyn FoldView,
        _further: &mut Further<'_>,
    ) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A derived row before and after a transaction; empty if it did not or does not exist.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'r> {
    /// Before the transaction.
    pub before: &'r [u8],
    /// After it.
    pub after: &'r [u8],
}

/// What a [`Fold`] may read: the state after all earlier transactions and the folds of this transaction so far.
pub trait FoldView {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError>;
    /// Visits entries in key order until the range ends or `visit` breaks. Keys that are part of a derived row are
    /// visited with their folded values, other keys with their values before the batch's folds.
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError>;
}

/// Receives a tree, a key in it, and an operand for the key.
pub type Further<'f> = dyn FnMut(TreeId, &[u8], &[u8]) + 'f;

/// Result of a fold for its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// The key has a new value.
    Put,
    /// The key is deleted.
    Delete,
    /// The key is unchanged.
    Unchanged,
    /// The whole transaction is refused for this reason and changes nothing.
    Refused(&'static str),
}
