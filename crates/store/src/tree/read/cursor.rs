//! Cursor: a position in a tree that moves in both directions.
//!
//! Readers of whole ranges use `entries.rs`, which costs less for each entry.

use std::ops::Bound;

use super::view::TreeView;
use super::walk::Walk;
use crate::base::error::StoreError;
use crate::base::key::TreeId;

/// See the module's text. Before a seek, and past either end, it is on no entry.
pub struct TreeCursor<'v> {
    walk: Walk<'v>,
}

impl TreeView {
    /// A cursor over a tree, not yet on an entry.
    pub fn cursor(&self, tree: TreeId) -> TreeCursor<'_> {
        TreeCursor { walk: Walk::new(self.shared(), self.root(tree), false) }
    }
}

impl<'v> TreeCursor<'v> {
    /// Moves to the first entry within a lower bound.
    pub fn seek(&mut self, from: Bound<&[u8]>) -> Result<(), StoreError> {
        match from {
            Bound::Unbounded => self.walk.first(),
            Bound::Included(key) => self.walk.seek(key, true),
            Bound::Excluded(key) => self.walk.seek(key, false),
        }
    }

    /// Moves to the last entry within an upper bound.
    pub fn seek_back(&mut self, to: Bound<&[u8]>) -> Result<(), StoreError> {
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
    pub fn next(&mut self) -> Result<(), StoreError> {
        self.walk.next()
    }

    /// Moves to the previous entry.
    #[inline]
    pub fn previous(&mut self) -> Result<(), StoreError> {
        self.walk.previous()
    }

    /// The current key; empty if the cursor is on no entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if self.is_valid() { self.walk.key() } else { &[] }
    }

    /// The current value; empty if the cursor is on no entry.
    #[inline]
    pub fn value(&self) -> Result<&'v [u8], StoreError> {
        if self.is_valid() { self.walk.value() } else { Ok(&[]) }
    }
}
