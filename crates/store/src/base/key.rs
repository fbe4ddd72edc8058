//! Basic types of the store: trees, versions, key ranges.

use std::ops::{Bound, ControlFlow};

/// The number of a named tree in the catalog. It survives restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(pub u32);

/// Longest name of a tree.
pub const TREE_NAME_BYTES_MAX: usize = 255;

/// The number of a committed transaction (the change number). It rises by one with each transaction.
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

    /// Whether the key is not below the lower bound.
    pub(crate) fn is_above_start(&self, key: &[u8]) -> bool {
        match self.from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        }
    }

    /// Whether its bounds leave no key between them. `BTreeMap::range` panics for such a range.
    pub(crate) fn is_empty(&self) -> bool {
        match (self.from, self.to) {
            (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
            (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from > to,
            _ => false,
        }
    }

    /// Whether the key is not above the upper bound.
    pub(crate) fn is_below_end(&self, key: &[u8]) -> bool {
        match self.to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        }
    }
}

/// A half-open range that owns its keys: `from` included, `to` excluded or unbounded. Deletions of ranges are
/// normalized to this form, whose bounds compare directly with keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: Vec<u8>,
    pub(crate) to: Option<Vec<u8>>,
}

impl Span {
    /// The same keys as a range; `None` if the range is empty.
    pub(crate) fn of(range: KeyRange<'_>) -> Option<Span> {
        // There is no key between a key and the same key with a zero byte appended.
        let above = |key: &[u8]| [key, &[0]].concat();
        let from = match range.from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => above(key),
        };
        let to = match range.to {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(above(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        let is_empty = to.as_ref().is_some_and(|to| *to <= from);
        (!is_empty).then_some(Span { from, to })
    }

    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }
}

/// The callback of a scan, called with each key and value until it breaks.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// A key with its value.
pub type Entry = (Vec<u8>, Vec<u8>);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        let key = || proptest::collection::vec(0u8..3, 0..4);
        prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
    }

    proptest! {
        #[test]
        fn a_span_holds_what_its_range_holds(from in bound(), to in bound(), key in proptest::collection::vec(0u8..3, 0..4)) {
            let range = KeyRange { from: from.as_ref().map(Vec::as_slice), to: to.as_ref().map(Vec::as_slice) };
            let is_in_range = range.is_above_start(&key) && range.is_below_end(&key);
            prop_assert_eq!(Span::of(range).is_some_and(|span| span.holds(&key)), is_in_range);
        }
    }
}
