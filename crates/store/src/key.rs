//! Names that everything in the store uses: trees, versions, ranges of keys.

use std::ops::Bound;

/// A named tree of the store, as its catalog numbers it. Stable over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(pub u32);

/// The number of a committed transaction: the change number. Rises by one with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// A range of keys, as in `BTreeMap::range`.
#[derive(Clone, Copy, Debug)]
pub struct KeyRange<'k> {
    /// Lower bound.
    pub from: Bound<&'k [u8]>,
    /// Upper bound.
    pub to: Bound<&'k [u8]>,
}

/// Direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Rising keys.
    Forward,
    /// Falling keys.
    Backward,
}

impl<'k> KeyRange<'k> {
    /// Every key.
    pub const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

    /// Whether the key does not lie below the range.
    pub(crate) fn is_above_start(&self, key: &[u8]) -> bool {
        match self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        }
    }

    /// Whether the key does not lie above the range.
    pub(crate) fn is_below_end(&self, key: &[u8]) -> bool {
        match self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        }
    }
}
