//! Applying operands to values, see [`crate::Tx::fold`].

use std::borrow::Cow;

use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId, Visit};

/// Applies an operand to a key's value, for counters, sums and the like: if the order of operands does not matter to
/// the callers, a transaction need not read the value that it adds to.
///
/// The writer calls it in commit order, once for each operand, under the writer's lock. It must be quick, must depend on nothing
/// but its arguments and the values that a [`FoldView`] shows, and must not call the store. A panic counts as a refusal.
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

    /// The derived row that a key is part of, if any: a number, and the row's own key. A derived row is stored nowhere. It is
    /// computed from several keys ([`Fold::derive`]). If a transaction changes it, further folds follow ([`Fold::follow`]).
    fn derived<'k>(&self, _tree: TreeId, _key: &'k [u8]) -> Option<(u32, &'k [u8])> {
        None
    }

    /// Computes a derived row: before the transaction folds into the first of the row's keys, and again after all its
    /// folds into them. `out` is empty, and stays empty if there is no such row.
    fn derive(&self, _number: u32, _key: &[u8], _now: &dyn FoldView, _out: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// Queues the consequences of a changed derived row. They may fold into keys of other derived rows; each of those
    /// is computed again after all folds of that stage.
    fn follow(
        &self,
        _number: u32,
        _key: &[u8],
        _change: RowChange<'_>,
        _now: &dyn FoldView,
        _further: &mut Further<'_>,
    ) -> Result<(), Error> {
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

/// What a [`Fold`] may read: keys as the earlier transactions, and the folds so far of this one, leave them.
pub trait FoldView {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error>;
    /// Visits entries in key order until the range ends or `visit` breaks. Of the keys that were folded into, only
    /// those that are part of a derived row are visited with their folded values.
    fn scan(&self, tree: TreeId, range: KeyRange<'_>, direction: Direction, visit: &mut Visit<'_>)
    -> Result<(), Error>;
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
    /// The whole transaction is refused, for this reason, and changes nothing.
    Refused(&'static str),
}
