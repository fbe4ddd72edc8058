//! Deleted ranges of a memtable: for each key the version of the newest deleted range that holds it.
//!
//! They form a step function over the keys. Its steps, the boundaries, are ordinary keys of a second tree beside the tree
//! concerned. A boundary's record is the version of the deletion that applies from there to the next boundary, or 0:
//!
//! ```text
//!  delete b..f at 7    b: 7              f: 0
//!  delete d..m at 9    b: 7    d: 9      f: 9      m: 0        (as of 9; a snapshot of 8 sees neither d nor m, and f: 0)
//! ```
//!
//! So a range costs two keys and a record for each boundary inside it. Readers find it by one descent in a structure
//! that they read without locks anyway, and a snapshot sees the function as of its own version. The alternative is a
//! list of ranges, which must be copied as a whole for its readers, or searched as a whole.
//!
//! A record is hidden if it is older than the deletion that holds its key. A record of the same version is not: the
//! ranges of a transaction come before its other changes.
//!
//! Invariants:
//!
//! - A memtable has at most [`BOUNDARIES_MAX`] boundaries, which bounds the cost of one more range. Beyond that it is full.
//! - The function is 0 below the first boundary. A range without an end has no boundary after it.

use std::ops::Bound;
use std::sync::Arc;

use super::arena::record_bytes;
use super::{Demand, Full, Memtable, MemtableWriter, RangeChange};
use crate::base::key::{Direction, KeyRange, TreeId, Version};
use crate::base::limits::{RANGES_MAX, TREES_MAX};
use crate::base::sync::atomic::Ordering;

/// Maximum number of boundaries of all trees of one memtable.
pub const BOUNDARIES_MAX: usize = 4096;

/// Marks the trees of boundaries. Above all tree ids.
const BOUNDARIES_BIT: u32 = 1 << 31;
const _: () = assert!(TREES_MAX <= BOUNDARIES_BIT);
// A transaction with the most deleted ranges fits into any memtable.
const _: () = assert!(2 * RANGES_MAX <= BOUNDARIES_MAX);

/// A stretch of keys between two boundaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch<'m> {
    /// Its first key; below the first boundary the empty key.
    pub from: &'m [u8],
    /// The next boundary, if there is one.
    pub to: Option<&'m [u8]>,
    /// The version of the newest deletion that holds it; 0: none.
    pub deleted: Version,
}

/// The tree that holds a tree's boundaries.
fn boundaries_of(tree: TreeId) -> TreeId {
    TreeId(tree.0 | BOUNDARIES_BIT)
}

/// The tree whose content or boundaries a tree holds.
pub(super) fn owner_of(tree: TreeId) -> TreeId {
    TreeId(tree.0 & !BOUNDARIES_BIT)
}

/// The version in a boundary's record.
fn deletion(value: Option<&[u8]>) -> Version {
    Version(value.and_then(|value| value.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes)))
}

impl Memtable {
    /// Whether any range was deleted.
    #[inline]
    pub fn has_ranges(&self) -> bool {
        self.index.is_beside_ranges()
    }

    /// Used share of the maximum number of boundaries, in percent.
    pub(crate) fn boundaries_percent(&self) -> usize {
        self.boundaries.load(Ordering::Relaxed) * 100 / BOUNDARIES_MAX
    }

    /// The boundaries of a tree in a range of keys, in order, as a snapshot of `version` sees them.
    fn boundaries(&self, version: Version, tree: TreeId, range: KeyRange<'_>) -> impl Iterator<Item = RangeChange<'_>> {
        self.scan(version, boundaries_of(tree), range, Direction::Forward)
    }

    /// The last boundary within an upper bound.
    fn last_boundary(&self, version: Version, tree: TreeId, to: Bound<&[u8]>) -> Option<RangeChange<'_>> {
        let range = KeyRange { from: Bound::Unbounded, to };
        self.scan(version, boundaries_of(tree), range, Direction::Backward).next()
    }

    /// The version of the newest deleted range that a snapshot of `version` sees and that holds the key; 0: none.
    pub(super) fn deletion_of(&self, version: Version, tree: TreeId, key: &[u8]) -> Version {
        deletion(self.last_boundary(version, tree, Bound::Included(key)).and_then(|boundary| boundary.value))
    }

    /// The stretch in which a key lies, as a snapshot of `version` sees it.
    pub fn stretch_of(&self, version: Version, tree: TreeId, key: &[u8]) -> Stretch<'_> {
        self.stretch_below(version, tree, Bound::Included(key))
    }

    /// The last stretch with keys within an upper bound.
    pub fn stretch_below(&self, version: Version, tree: TreeId, to: Bound<&[u8]>) -> Stretch<'_> {
        let first = self.last_boundary(version, tree, to);
        let from = first.map_or(Bound::Unbounded, |first| Bound::Excluded(first.key));
        let next = self.boundaries(version, tree, KeyRange { from, to: Bound::Unbounded }).next();
        let (from, deleted) = first.map_or((&[][..], Version(0)), |first| (first.key, deletion(first.value)));
        Stretch { from, to: next.map(|next| next.key), deleted }
    }

    /// The deleted stretches of a tree as a snapshot of `version` sees them, in order. Allocates: for checkpoints.
    pub fn deleted(&self, version: Version, tree: TreeId) -> Vec<Stretch<'_>> {
        let mut found: Vec<Stretch<'_>> = Vec::new();
        let mut boundaries = self.boundaries(version, tree, KeyRange::ALL).peekable();
        while let Some(entry) = boundaries.next() {
            let deleted = deletion(entry.value);
            if deleted > Version(0) {
                found.push(Stretch { from: entry.key, to: boundaries.peek().map(|next| next.key), deleted });
            }
        }
        found
    }

    /// Whether a range deleted by a version above `version` overlaps this one. May also be true for one that ends right before it.
    pub(super) fn is_range_deleted_since(&self, version: Version, tree: TreeId, range: KeyRange<'_>) -> bool {
        let newest = self.tree_entry(boundaries_of(tree)).map(|entry| entry.newest.load(Ordering::Acquire));
        if newest.is_none_or(|newest| newest <= version.0) {
            return false;
        }
        let from = match range.from {
            Bound::Unbounded => &[],
            Bound::Included(key) | Bound::Excluded(key) => key,
        };
        let now = Version(u64::MAX);
        if self.deletion_of(now, tree, from) > version {
            return true;
        }
        let inside = KeyRange { from: Bound::Excluded(from), to: range.to };
        self.boundaries(now, tree, inside).any(|boundary| deletion(boundary.value) > version)
    }
}

impl MemtableWriter {
    /// Deletes the keys from `from` on and below `to`, or to the end. `version` must be at least that of the previous
    /// change, and above that of any record that it hides.
    pub fn delete_range(&mut self, version: Version, tree: TreeId, from: &[u8], to: Option<&[u8]>) -> Result<(), Full> {
        let table = Arc::clone(&self.table);
        let steps = boundaries_of(tree);
        let now = Version(u64::MAX);
        let behind = to.map(|to| (to, table.stretch_of(now, tree, to))).filter(|(to, behind)| behind.from != *to);
        let at = |key| KeyRange { from: Bound::Included(key), to: Bound::Included(key) };
        let is_new = table.boundaries(now, tree, at(from)).next().is_none();
        let boundaries = table.boundaries.load(Ordering::Relaxed) + usize::from(is_new) + usize::from(behind.is_some());
        if boundaries > BOUNDARIES_MAX {
            return Err(Full);
        }
        // The deletion that applied at the end of the range continues to apply after it; an existing boundary says so
        // already. So this changes nothing yet, and may stay if the rest finds no room.
        if let Some((to, behind)) = behind {
            self.put_boundary(version, steps, to, behind.deleted)?;
        }
        let inside = KeyRange { from: Bound::Excluded(from), to: to.map_or(Bound::Unbounded, Bound::Excluded) };
        let count = table.boundaries(now, tree, inside).count();
        if !self.has_room_for_boundaries(steps, from, is_new, count) {
            return Err(Full);
        }
        for boundary in table.boundaries(now, tree, inside) {
            self.put_boundary(version, steps, boundary.key, version)?;
        }
        self.put_boundary(version, steps, from, version)?;
        table.index.note_ranges();
        Ok(())
    }

    /// Whether there is exactly the room for a record for each of `inside` boundaries, and for the boundary at `from`.
    fn has_room_for_boundaries(&self, steps: TreeId, from: &[u8], is_new: bool, inside: usize) -> bool {
        let record = record_bytes(size_of::<u64>());
        match is_new {
            true => self.has_room(self.table.tree_entry(steps), from, size_of::<u64>(), inside * record),
            false => (inside + 1) * record <= self.fill.free_bytes(),
        }
    }

    fn put_boundary(&mut self, version: Version, steps: TreeId, key: &[u8], deleted: Version) -> Result<(), Full> {
        let keys_before = self.table.len();
        self.insert(version, steps, key, Some(&deleted.0.to_le_bytes()))?;
        self.table.boundaries.fetch_add(self.table.len() - keys_before, Ordering::Relaxed);
        Ok(())
    }
}

impl Demand {
    /// Adds one deleted range. The ranges for one call of [`MemtableWriter::fits`] do not overlap.
    pub fn add_range(&mut self, writer: &MemtableWriter, tree: TreeId, from_length: usize, to_length: Option<usize>) {
        for length in [Some(from_length), to_length].into_iter().flatten() {
            self.add(writer, boundaries_of(tree), length, size_of::<u64>());
            self.boundaries += 1;
        }
        self.has_ranges = true;
    }

    /// Bytes of the records that the ranges add to existing boundaries; `None` if there are too many boundaries.
    pub(super) fn boundaries_bytes(&self, existing: usize) -> Option<usize> {
        if !self.has_ranges {
            return Some(0);
        }
        // Each boundary is inside at most one of the ranges, which do not overlap.
        let is_bounded = existing + self.boundaries <= BOUNDARIES_MAX;
        is_bounded.then(|| existing * record_bytes(size_of::<u64>()))
    }
}
