//! What lays operands onto values, see [`crate::Tx::fold`].

use std::borrow::Cow;

use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId, Visit};

/// How an operand changes what a key has. Counters, sums and the like: where the order of operands does not matter to
/// whoever wants them, no transaction need read what it adds to.
///
/// The writer calls it in the order of commits, once for each operand, with its lock held: it must be quick, must depend on
/// nothing but what it is given and the values that a [`FoldView`] shows, and must not call the store. A panic counts as a refusal.
pub trait Fold: Send + Sync {
    /// Lays `operand` onto `old`, what the key has. `new` is empty: what is written to it becomes the value with
    /// [`Folded::Put`]. `further` folds an operand into another key as a consequence, after this one; what it leads to may lead on,
    /// up to 65,536 folds for one transaction.
    fn fold(
        &self,
        tree: TreeId,
        key: &[u8],
        old: Option<&[u8]>,
        operand: &[u8],
        new: &mut Vec<u8>,
        further: &mut Further<'_>,
    ) -> Folded;

    /// The derived row that a key is part of, if there is one: a number, and the row's own key. A derived row is stored
    /// nowhere. It is computed of several keys ([`Fold::derive`]); where a transaction changes it, that leads to further folds
    /// ([`Fold::follow`]).
    fn derived<'k>(&self, _tree: TreeId, _key: &'k [u8]) -> Option<(u32, &'k [u8])> {
        None
    }

    /// Computes a derived row: before the transaction folds into the first of its keys, and again when all that it folds
    /// into them is done. `out` is empty, and stays so where there is no such row.
    fn derive(&self, _number: u32, _key: &[u8], _now: &dyn FoldView, _out: &mut Vec<u8>) -> Result<(), Error> {
        Ok(())
    }

    /// What follows where a derived row became another. It may lead to folds into keys of other derived rows: of these, too,
    /// each is looked at once all that is folded into its keys at that stage is done.
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

/// A derived row before and after; empty where there was or is none.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'r> {
    /// Before the transaction.
    pub before: &'r [u8],
    /// After it.
    pub after: &'r [u8],
}

/// What a [`Fold`] may look at: keys as the transactions before it, and what it folded so far, leave them.
pub trait FoldView {
    /// The value of a key.
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, Error>;
    /// Visits entries in key order until the range ends or `visit` breaks. Of the keys that were folded into only those are in
    /// their places that are part of a derived row.
    fn scan(&self, tree: TreeId, range: KeyRange<'_>, direction: Direction, visit: &mut Visit<'_>)
    -> Result<(), Error>;
}

/// Takes a tree, a key of it, and an operand for the key.
pub type Further<'f> = dyn FnMut(TreeId, &[u8], &[u8]) + 'f;

/// What became of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// It has a new value.
    Put,
    /// It is gone.
    Delete,
    /// It stays as it was.
    Unchanged,
    /// The whole transaction is refused, and nothing of it was done: why.
    Refused(&'static str),
}
