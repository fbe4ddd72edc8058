//! Cursor: a position in a tree that moves in both directions.
//!
//! Within a leaf it moves without key comparisons. [`Cursor::leaf_entries_below`] returns how far a merging reader can
//! go without checking its other sources.

use std::ops::Bound;

use super::view::TreeView;
use super::walk::{Beginning, Walk};
use crate::base::error::Error;
use crate::base::key::TreeId;

/// See the module's text. Before a seek, and past either end, it is on no entry.
pub struct Cursor<'v> {
    walk: Walk<'v>,
}

impl TreeView {
    /// A cursor over a tree, not yet on an entry.
    pub fn cursor(&self, tree: TreeId) -> Cursor<'_> {
        Cursor { walk: Walk::new(self.shared(), self.root(tree), false) }
    }
}

impl<'v> Cursor<'v> {
    /// The same, but returns [`Error::NotInMemory`] instead of waiting for the disk. Costs a system call for each page.
    pub(crate) fn asking(mut self) -> Cursor<'v> {
        self.walk.ask();
        self
    }

    /// The same, but returns [`Error::NotInMemory`] instead of computing the checksum of a value of more than `bytes` bytes.
    pub(crate) fn checking_at_most(mut self, bytes: usize) -> Cursor<'v> {
        self.walk.check_at_most(bytes);
        self
    }

    /// Moves to the first entry within a lower bound.
    pub fn seek(&mut self, from: Bound<&[u8]>) -> Result<(), Error> {
        match from {
            Bound::Unbounded => self.walk.first(),
            Bound::Included(key) => self.walk.seek(key, true),
            Bound::Excluded(key) => self.walk.seek(key, false),
        }
    }

    /// Moves to the first entry of a range whose beginning is known.
    #[inline]
    pub(crate) fn begin_at(&mut self, beginning: Beginning) -> Result<(), Error> {
        self.walk.begin_at(beginning)
    }

    /// The beginning of a range whose first entry is the current one.
    #[inline]
    pub(crate) fn beginning(&self) -> Option<Beginning> {
        self.walk.beginning()
    }

    /// Moves to the last entry within an upper bound.
    pub fn seek_back(&mut self, to: Bound<&[u8]>) -> Result<(), Error> {
        match to {
            Bound::Unbounded => self.walk.last(),
            Bound::Included(key) => self.walk.seek_back(key, true),
            Bound::Excluded(key) => self.walk.seek_back(key, false),
        }
    }

    /// Whether it is on an entry.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.walk.is_valid()
    }

    /// Moves to the next entry.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a cursor's entry is read by key() and value(), not returned")]
    pub fn next(&mut self) -> Result<(), Error> {
        self.walk.next()
    }

    /// Moves to the previous entry.
    #[inline]
    pub fn previous(&mut self) -> Result<(), Error> {
        self.walk.previous()
    }

    /// Moves to the next entry if it is in the same leaf; otherwise stays and returns false.
    #[inline]
    pub fn next_in_leaf(&mut self) -> Result<bool, Error> {
        self.walk.next_in_leaf()
    }

    /// Moves to the previous entry if it is in the same leaf; otherwise stays and returns false.
    #[inline]
    pub fn previous_in_leaf(&mut self) -> Result<bool, Error> {
        if self.walk.index() == 0 || !self.is_valid() {
            return Ok(false);
        }
        self.walk.previous()?;
        Ok(true)
    }

    /// The current key; empty if the cursor is on no entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.is_valid() { self.walk.key() } else { &[] }
    }

    /// The current value; empty if the cursor is on no entry.
    #[inline]
    pub fn value(&self) -> Result<&'v [u8], Error> {
        if self.is_valid() { self.walk.value() } else { Ok(&[]) }
    }

    /// Number of entries of the leaf, from the current one on, that are within all upper bounds `ends`, and whether an
    /// entry of the leaf is not. A merging reader can visit these without checking its other sources.
    #[inline]
    pub fn leaf_entries_below(&self, ends: [Bound<&[u8]>; 2]) -> Result<(usize, bool), Error> {
        let Some((_, leaf)) = self.walk.leaf() else { return Ok((0, true)) };
        let mut stop = leaf.count();
        for end in ends {
            stop = match end {
                Bound::Unbounded => stop,
                Bound::Included(key) => stop.min(self.walk.rank_in_leaf(key, false)?),
                Bound::Excluded(key) => stop.min(self.walk.rank_in_leaf(key, true)?),
            };
        }
        Ok((stop.saturating_sub(self.walk.index()), stop < leaf.count()))
    }

    /// The same backward: entries within all lower bounds `ends`.
    #[inline]
    pub fn leaf_entries_above(&self, ends: [Bound<&[u8]>; 2]) -> Result<(usize, bool), Error> {
        let mut first = 0;
        for end in ends {
            first = match end {
                Bound::Unbounded => first,
                Bound::Included(key) => first.max(self.walk.rank_in_leaf(key, true)?),
                Bound::Excluded(key) => first.max(self.walk.rank_in_leaf(key, false)?),
            };
        }
        Ok(((self.walk.index() + 1).saturating_sub(first), first > 0))
    }
}
