//! All entries of a tree, one after the other, for what is copied or built from them: the checksum of each page is computed anew.

use std::ops::Bound;

use super::walk::Walk;
use crate::base::error::StoreError;
use crate::base::key::Direction;
use crate::tree::format::node::Stored;
use crate::tree::format::page::PageNo;
use crate::tree::format::root::Root;
use crate::tree::state::shared::Shared;

/// A cursor that has read no entry yet, or stands at one.
pub(in crate::tree) struct WholeTree<'v> {
    shared: &'v Shared,
    walk: Walk<'v>,
    is_begun: bool,
    /// Index in the leaf of the next entry.
    next: usize,
    key: Vec<u8>,
    stored: Stored<'v>,
}

impl<'v> WholeTree<'v> {
    pub(in crate::tree) fn new(shared: &'v Shared, root: Root) -> WholeTree<'v> {
        let walk = Walk::new(shared, root, true);
        WholeTree { shared, walk, is_begun: false, next: 0, key: Vec::new(), stored: Stored::Inline(&[]) }
    }

    /// Moves to the next entry; false after the last.
    pub(in crate::tree) fn advance(&mut self) -> Result<bool, StoreError> {
        self.key.clear();
        if !std::mem::replace(&mut self.is_begun, true) {
            self.walk.start(Bound::Unbounded, Direction::Forward)?;
        }
        while let Some((place, leaf)) = self.walk.leaf() {
            if self.next < leaf.count() {
                self.key.extend_from_slice(leaf.prefix());
                let stored = leaf.push_entry(self.next, &mut self.key);
                self.stored = stored.map_err(|damage| self.shared.damage(place, damage))?;
                self.next += 1;
                return Ok(true);
            }
            self.walk.turn_to_next(Direction::Forward)?;
            self.next = 0;
        }
        Ok(false)
    }

    /// The leaf of the entry.
    pub(in crate::tree) fn place(&self) -> PageNo {
        self.walk.leaf().map_or(PageNo::NONE, |(place, _)| place)
    }

    /// The key; empty after the last entry.
    pub(in crate::tree) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value as the leaf stores it.
    pub(in crate::tree) fn stored(&self) -> Stored<'v> {
        self.stored
    }

    pub(in crate::tree) fn value(&self) -> Result<&'v [u8], StoreError> {
        match self.stored {
            Stored::Inline(value) => Ok(value),
            Stored::Overflow(place) => self.shared.overflow(place, true),
        }
    }
}
