//! What lays operands onto values, see [`crate::Tx::fold`].

use crate::key::TreeId;

/// How an operand changes what a key has. Counters, sums and the like: where the order of operands does not matter to
/// whoever wants them, no transaction need read what it adds to.
///
/// The writer calls it in the order of commits, once for each operand, with its lock held: it must be quick, must depend on
/// nothing but what it is given, and must not call the store. A panic counts as a refusal.
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
