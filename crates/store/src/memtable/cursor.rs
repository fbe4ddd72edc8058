//! Changes of a range of one tree in one direction, as a snapshot sees them.
//!
//! The range's end is compared with one key of several, until it is near. `ordered.rs` explains why the batches stay valid.

use std::ops::Bound;

use super::Memtable;
use super::arena::KeyRef;
use super::node::{NodeRef, Past};
use super::ordered::{Batch, Target};
use super::tree_entry::TreeEntry;
use crate::base::key::{Direction, KeyRange, TreeId, Version};

/// Keys that are checked against the range's end by one comparison, of the last of them.
const TOGETHER: usize = 8;
/// Lines fetched for each key: key, record header, start of the value.
const PREFETCH_LINES: usize = 2;

/// A change that a snapshot sees. The slices live as long as the memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeChange<'m> {
    /// The key.
    pub key: &'m [u8],
    /// Its value; `None` for a deletion.
    pub value: Option<&'m [u8]>,
    /// The version that wrote it.
    pub version: Version,
}

/// A cursor over the changes of a range of one tree.
pub(crate) struct RangeCursor<'m, 'r> {
    table: &'m Memtable,
    tree: &'m TreeEntry,
    version: Version,
    range: KeyRange<'r>,
    direction: Direction,
    /// Records of older versions are hidden by a deleted range.
    hidden_below: Version,
    batch: Batch,
    /// Number of keys of the batch that were not passed yet, in the scan's order.
    left: usize,
    /// So many of them are known to be in the range.
    within: usize,
    /// A key of the range was found.
    is_begun: bool,
    /// The range ends within the next [`TOGETHER`] keys.
    is_near_end: bool,
}

impl Memtable {
    /// The changes of a range, as a snapshot of `version` sees them, in this direction. The version must be complete: every record
    /// up to it was inserted before this call.
    pub fn scan<'m>(
        &'m self,
        version: Version,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
    ) -> impl Iterator<Item = RangeChange<'m>> {
        self.range(version, tree, range, direction, Version(0)).into_iter().flatten()
    }

    /// The changes of a range by a snapshot of `version`, without records below the version `hidden_below`. `None` if the tree has none.
    pub(crate) fn range<'m, 'r>(
        &'m self,
        version: Version,
        tree: TreeId,
        range: KeyRange<'r>,
        direction: Direction,
        hidden_below: Version,
    ) -> Option<RangeCursor<'m, 'r>> {
        if self.is_empty() {
            return None;
        }
        let tree = self.tree_entry(tree)?;
        let mut batch = Batch::empty();
        let (target, past) = match (direction, range.from, range.to) {
            (Direction::Forward, Bound::Unbounded, _) => (Target::First, Past::Less),
            (Direction::Forward, Bound::Included(key), _) => (Target::At(key), Past::Less),
            (Direction::Forward, Bound::Excluded(key), _) => (Target::At(key), Past::LessOrEqual),
            (Direction::Backward, _, Bound::Unbounded) => (Target::Last, Past::Less),
            (Direction::Backward, _, Bound::Included(key)) => (Target::At(key), Past::LessOrEqual),
            (Direction::Backward, _, Bound::Excluded(key)) => (Target::Below(key), Past::Less),
        };
        let behind = batch.seek(&self.arena, tree, (target, past), direction)?;
        let left = match direction {
            Direction::Forward => batch.count.saturating_sub(behind),
            Direction::Backward => behind,
        };
        Some(RangeCursor {
            table: self,
            tree,
            version,
            range,
            direction,
            hidden_below,
            batch,
            left,
            within: 0,
            is_begun: false,
            is_near_end: false,
        })
    }
}

impl<'m> Iterator for RangeCursor<'m, '_> {
    type Item = RangeChange<'m>;

    fn next(&mut self) -> Option<RangeChange<'m>> {
        let arena = &self.table.arena;
        loop {
            if self.left == 0 && !self.turn() {
                return None;
            }
            if self.within == 0 && !self.look_ahead() {
                self.end();
                return None;
            }
            let place = self.key(0);
            self.left -= 1;
            self.within -= 1;
            let Some(place) = place else { continue };
            if let Some(record) = arena.visible(place, self.version)
                && record.version >= self.hidden_below
            {
                return Some(RangeChange { key: arena.key(place).bytes, value: record.value, version: record.version });
            }
        }
    }
}

impl RangeCursor<'_, '_> {
    /// The key after `number` others of the batch that are left.
    #[inline]
    fn key(&self, number: usize) -> Option<KeyRef> {
        match self.direction {
            _ if number >= self.left => None,
            Direction::Forward => self.batch.key(self.batch.count - self.left + number),
            Direction::Backward => self.batch.key(self.left - 1 - number),
        }
    }

    /// Compares the next keys with the range's end. False if the next key is past it.
    fn look_ahead(&mut self) -> bool {
        if !self.is_within(0) {
            return false;
        }
        self.within = 1;
        // A scan may want one change only.
        if !std::mem::replace(&mut self.is_begun, true) || self.is_near_end {
            return true;
        }
        let together = self.left.min(TOGETHER);
        if self.is_within(together - 1) {
            self.within = together;
            self.prefetch(TOGETHER..2 * TOGETHER);
        } else {
            self.is_near_end = true;
        }
        true
    }

    #[inline]
    fn is_within(&self, number: usize) -> bool {
        let Some(place) = self.key(number) else { return false };
        let key = self.table.arena.key(place).bytes;
        match self.direction {
            Direction::Forward => self.range.is_below_end(key),
            Direction::Backward => self.range.is_above_start(key),
        }
    }

    /// Reads the next leaf that has keys; false if there is none.
    fn turn(&mut self) -> bool {
        while self.left == 0 {
            self.left = match self.direction {
                Direction::Forward => match self.batch.next {
                    Some(next) => self.read(next),
                    None => return false,
                },
                Direction::Backward => {
                    // The left neighbour may have been split since: only a descent finds the leaf just below the fence.
                    let Some(low) = self.batch.low else { return false };
                    let low = self.table.arena.key(low).bytes;
                    let target = (Target::Below(low), Past::Less);
                    match self.batch.seek(&self.table.arena, self.tree, target, self.direction) {
                        Some(behind) => behind,
                        None => return false,
                    }
                }
            };
        }
        self.prefetch(0..TOGETHER);
        true
    }

    fn read(&mut self, leaf: NodeRef) -> usize {
        self.batch.read(&self.table.arena, leaf);
        if let Some(next) = self.batch.next {
            self.table.arena.get(next).prefetch();
        }
        self.batch.count
    }

    fn end(&mut self) {
        self.left = 0;
        self.batch.next = None;
        self.batch.low = None;
    }

    #[inline]
    fn prefetch(&self, numbers: std::ops::Range<usize>) {
        for key in numbers.filter_map(|number| self.key(number)) {
            self.table.arena.prefetch(key, PREFETCH_LINES);
        }
    }
}
