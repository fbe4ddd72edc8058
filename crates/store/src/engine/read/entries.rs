//! Entries of a range, passed together: those of one leaf, or of one leaf merged with changes.
//!
//! A visitor requests only what it needs of each entry. The values live as long as the view: they lie in the mapped tree file or in a
//! memtable. A leaf without changes is passed as it is; only a merged one has a list of its entries.

use std::ops::ControlFlow;

use crate::base::error::StoreError;
use crate::tree::LeafEntries;

/// Consecutive entries in a scan's order; at least one.
pub struct Entries<'v>(Source<'v>);

enum Source<'v> {
    Leaf(LeafEntries<'v>),
    Merged(Merged<'v>),
}

/// Entries of a leaf among changes.
pub(super) struct Merged<'v> {
    /// `None`: there are only changes.
    pub(super) leaf: Option<LeafEntries<'v>>,
    pub(super) slots: Vec<Slot<'v>>,
}

/// One entry of a merged leaf.
#[derive(Clone, Copy)]
pub(super) enum Slot<'v> {
    /// Its number among the leaf's entries.
    Leaf(u16),
    /// Its key and value in a memtable.
    Changed(&'v [u8], &'v [u8]),
}

/// The callback of a scan, called with entries until it breaks.
pub type VisitEntries<'f, 'v> = dyn FnMut(&Entries<'v>) -> ControlFlow<()> + 'f;

impl<'v> Entries<'v> {
    #[inline]
    pub(super) fn of_leaf(leaf: LeafEntries<'v>) -> Entries<'v> {
        Entries(Source::Leaf(leaf))
    }

    pub(super) fn of_merged(merged: Merged<'v>) -> Entries<'v> {
        Entries(Source::Merged(merged))
    }

    /// The list of a merged leaf, to be used again.
    pub(super) fn into_slots(self) -> Vec<Slot<'v>> {
        match self.0 {
            Source::Leaf(_) => Vec::new(),
            Source::Merged(merged) => merged.slots,
        }
    }

    /// Number of entries.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "they are never none")]
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Leaf(leaf) => leaf.len(),
            Source::Merged(merged) => merged.slots.len(),
        }
    }

    /// The value of an entry, counted in the scan's order.
    #[inline]
    pub fn value(&self, number: usize) -> Result<&'v [u8], StoreError> {
        match &self.0 {
            Source::Leaf(leaf) => leaf.value(number),
            Source::Merged(merged) => match merged.at(number) {
                At::Leaf(leaf, number) => leaf.value(number),
                At::Changed(_, value) => Ok(value),
            },
        }
    }

    /// Writes the key of an entry into `key`.
    #[inline]
    pub fn key_into(&self, number: usize, key: &mut Vec<u8>) -> Result<(), StoreError> {
        match &self.0 {
            Source::Leaf(leaf) => leaf.key_into(number, key),
            Source::Merged(merged) => match merged.at(number) {
                At::Leaf(leaf, number) => leaf.key_into(number, key),
                At::Changed(bytes, _) => {
                    key.clear();
                    key.extend_from_slice(bytes);
                    Ok(())
                }
            },
        }
    }
}

/// Where an entry lies.
enum At<'m, 'v> {
    Leaf(&'m LeafEntries<'v>, usize),
    Changed(&'v [u8], &'v [u8]),
}

impl<'v> Merged<'v> {
    /// A number past the last gives an empty entry.
    #[inline]
    fn at(&self, number: usize) -> At<'_, 'v> {
        match (self.slots.get(number), &self.leaf) {
            (Some(Slot::Changed(key, value)), _) => At::Changed(key, value),
            (Some(Slot::Leaf(number)), Some(leaf)) => At::Leaf(leaf, usize::from(*number)),
            _ => At::Changed(&[], &[]),
        }
    }
}
