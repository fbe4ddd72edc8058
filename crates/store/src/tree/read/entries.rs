//! Entries of a leaf within a range, passed together.
//!
//! An ordinary scan assembles every key and calls its visitor for every entry, even if the visitor does not use the key. A visitor of a
//! leaf's entries requests only what it needs of each, and the values live as long as the view.

use std::ops::{Bound, ControlFlow};

use super::view::TreeView;
use super::walk::{Beginning, Walk};
use crate::base::error::Error;
use crate::base::key::{Direction, KeyRange, TreeId};
use crate::tree::format::node::{Node, Stored};
use crate::tree::format::page::PageNo;
use crate::tree::state::shared::Shared;

/// Consecutive entries of one leaf in a scan's order; at least one.
pub struct Entries<'v> {
    shared: &'v Shared,
    place: PageNo,
    leaf: Node<'v>,
    /// The first entry, and the one after the last, in key order.
    first: usize,
    end: usize,
    direction: Direction,
    /// Longest value whose checksum is computed.
    check_max: usize,
}

/// The callback of a scan, called with each leaf's entries until it breaks.
pub type VisitEntries<'f, 'v> = dyn FnMut(&Entries<'v>) -> ControlFlow<()> + 'f;

impl<'v> Entries<'v> {
    /// Number of entries.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "they are never none")]
    pub fn len(&self) -> usize {
        self.end - self.first
    }

    /// Index in the leaf of an entry, counted in the scan's order.
    #[inline]
    fn index(&self, number: usize) -> usize {
        match self.direction {
            Direction::Forward => self.first + number,
            // A number past the last gives an index past the leaf, which is refused there.
            Direction::Backward => (self.end - 1).wrapping_sub(number),
        }
    }

    /// The value of an entry.
    #[inline]
    pub fn value(&self, number: usize) -> Result<&'v [u8], Error> {
        match self.leaf.stored(self.index(number)).map_err(|damage| self.shared.damage(self.place, damage))? {
            Stored::Inline(value) => Ok(value),
            Stored::Overflow(place) => self.shared.overflow_unless_long(place, self.check_max),
        }
    }

    /// Writes the key of an entry into `key`.
    #[inline]
    pub fn key_into(&self, number: usize, key: &mut Vec<u8>) -> Result<(), Error> {
        key.clear();
        key.extend_from_slice(self.leaf.prefix());
        let built = self.leaf.push_entry(self.index(number), key).map(drop);
        built.map_err(|damage| self.shared.damage(self.place, damage))
    }
}

impl TreeView {
    /// Visits the entries of a range, leaf by leaf. `beginning` is the known beginning of the range; if `None`, it is set for forward
    /// scans from a key, so that it can be remembered. Values of over `check_max` bytes are treated as in [`TreeView::find`].
    pub(crate) fn scan_leaves<'v>(
        &'v self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        (beginning, check_max): (&mut Option<Beginning>, usize),
        visit: &mut VisitEntries<'_, 'v>,
    ) -> Result<(), Error> {
        let shared = self.shared();
        let mut walk = Walk::new(shared, self.root(tree), false);
        let start = match direction {
            Direction::Forward => range.from,
            Direction::Backward => range.to,
        };
        let known = *beginning;
        let mut more = match known {
            Some(known) => walk.start_in(known).map(|()| true)?,
            None => walk.start(start, direction)?,
        };
        let mut is_first = true;
        while more {
            let Some((place, leaf)) = walk.leaf() else { return Ok(()) };
            let rank = |key: &[u8], with_equal: bool| {
                let (rank, found) = leaf.rank(key).map_err(|damage| shared.damage(place, damage))?;
                Ok::<usize, Error>(rank + usize::from(found && with_equal))
            };
            // The bound at the scan's start applies only to the first leaf.
            let first = match range.from {
                _ if is_first && let Some(known) = known => known.rank,
                Bound::Included(key) if is_first || direction == Direction::Backward => rank(key, false)?,
                Bound::Excluded(key) if is_first || direction == Direction::Backward => rank(key, true)?,
                _ => 0,
            };
            let end = match range.to {
                Bound::Included(key) if is_first || direction == Direction::Forward => rank(key, true)?,
                Bound::Excluded(key) if is_first || direction == Direction::Forward => rank(key, false)?,
                _ => leaf.count(),
            };
            if is_first && known.is_none() && direction == Direction::Forward && first < leaf.count() {
                *beginning = Some(Beginning { leaf: place, rank: first });
            }
            if first < end && visit(&Entries { shared, place, leaf, first, end, direction, check_max }).is_break() {
                return Ok(());
            }
            let ends = match direction {
                Direction::Forward => end < leaf.count(),
                Direction::Backward => first > 0,
            };
            more = !ends && walk.turn_to_next(direction)?;
            is_first = false;
        }
        Ok(())
    }
}
