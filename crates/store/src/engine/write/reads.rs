//! The reads of a transaction, for validation by the writer.
//!
//! Bounded: a transaction that reads more than [`READS_MAX`] keys or ranges, or more than [`READ_BYTES_MAX`] of them,
//! counts as one that read everything, so any commit in between makes it be prepared again.

use std::ops::Bound;

use crate::base::key::{Direction, KeyRange, TreeId, Version};
use crate::memtable::Memtable;

/// Keys and ranges remembered one by one.
const READS_MAX: usize = 100_000;
/// Initial capacities, in keys and in bytes of keys.
const FIRST_POINTS: usize = 8;
const FIRST_BYTES: usize = 128;
/// Bytes of their keys.
const READ_BYTES_MAX: usize = 4 << 20;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Reads {
    bytes: Vec<u8>,
    points: Vec<(TreeId, usize, usize)>,
    ranges: Vec<Range>,
    range_bytes: usize,
    is_everything: bool,
}

struct Range {
    tree: TreeId,
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
}

impl Reads {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.points.clear();
        self.ranges.clear();
        self.range_bytes = 0;
        self.is_everything = false;
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        let ends = self.ranges.iter().map(|range| bound_bytes(&range.from) + bound_bytes(&range.to));
        self.bytes.capacity()
            + self.points.capacity() * size_of::<(TreeId, usize, usize)>()
            + self.ranges.capacity() * size_of::<Range>()
            + ends.sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty() && !self.is_everything
    }

    pub(crate) fn point(&mut self, tree: TreeId, key: &[u8]) {
        if self.has_room() {
            if self.points.capacity() == 0 {
                // Nearly all transactions fit, so their buffers are allocated once.
                self.points = Vec::with_capacity(FIRST_POINTS);
                self.bytes = Vec::with_capacity(key.len().max(FIRST_BYTES));
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(key);
            self.points.push((tree, start, self.bytes.len()));
        }
    }

    /// A scan from the start of the range to `last`, or to the range's end.
    pub(crate) fn scan(&mut self, tree: TreeId, range: KeyRange<'_>, direction: Direction, last: Option<Vec<u8>>) {
        if !self.has_room() {
            return;
        }
        let (mut from, mut to) = (range.from.map(<[u8]>::to_vec), range.to.map(<[u8]>::to_vec));
        match (last, direction) {
            (Some(last), Direction::Forward) => to = Bound::Included(last),
            (Some(last), Direction::Backward) => from = Bound::Included(last),
            (None, _) => {}
        }
        self.range_bytes += bound_bytes(&from) + bound_bytes(&to);
        self.ranges.push(Range { tree, from, to });
    }

    fn has_room(&mut self) -> bool {
        self.is_everything |=
            self.points.len() + self.ranges.len() >= READS_MAX || self.bytes.len() + self.range_bytes >= READ_BYTES_MAX;
        !self.is_everything
    }

    /// Whether anything of this tree was read.
    pub(crate) fn is_of(&self, tree: TreeId) -> bool {
        self.is_everything
            || self.points.iter().any(|(of, ..)| *of == tree)
            || self.ranges.iter().any(|range| range.tree == tree)
    }

    /// Whether anything read was changed in this memtable by a version above `since`.
    pub(crate) fn changed_in(&self, table: &Memtable, since: u64) -> bool {
        let since = Version(since);
        self.is_everything
            || self
                .points
                .iter()
                .any(|(tree, start, end)| table.latest(*tree, &self.bytes[*start..*end]).is_some_and(|at| at > since))
            || self.ranges.iter().any(|range| {
                let borrowed =
                    KeyRange { from: range.from.as_ref().map(Vec::as_slice), to: range.to.as_ref().map(Vec::as_slice) };
                table.changed_since(since, range.tree, borrowed)
            })
    }
}

fn bound_bytes(bound: &Bound<Vec<u8>>) -> usize {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => key.capacity(),
        Bound::Unbounded => 0,
    }
}
