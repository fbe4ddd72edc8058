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
    /// All keys and bounds of ranges, one after another.
    bytes: Vec<u8>,
    points: Vec<(TreeId, KeptKey)>,
    ranges: Vec<Range>,
    is_everything: bool,
}

/// Start and end in the bytes.
type KeptKey = (usize, usize);

struct Range {
    tree: TreeId,
    from: Bound<KeptKey>,
    to: Bound<KeptKey>,
}

impl Reads {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.points.clear();
        self.ranges.clear();
        self.is_everything = false;
    }

    /// Bytes of memory held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.points.capacity() * size_of::<(TreeId, KeptKey)>()
            + self.ranges.capacity() * size_of::<Range>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty() && self.ranges.is_empty() && !self.is_everything
    }

    pub(crate) fn point(&mut self, tree: TreeId, key: &[u8]) {
        if self.has_room() {
            if self.points.capacity() == 0 {
                // Nearly all transactions fit, so their buffers are allocated once.
                self.points = Vec::with_capacity(FIRST_POINTS);
            }
            let place = self.keep(key);
            self.points.push((tree, place));
        }
    }

    /// A scan from the start of the range to `last`, or to the range's end.
    pub(crate) fn scan(&mut self, tree: TreeId, range: KeyRange<'_>, direction: Direction, last: Option<Vec<u8>>) {
        if !self.has_room() {
            return;
        }
        let (from, to) = match (&last, direction) {
            (Some(last), Direction::Forward) => (range.from, Bound::Included(last.as_slice())),
            (Some(last), Direction::Backward) => (Bound::Included(last.as_slice()), range.to),
            (None, _) => (range.from, range.to),
        };
        let (from, to) = (from.map(|key| self.keep(key)), to.map(|key| self.keep(key)));
        self.ranges.push(Range { tree, from, to });
    }

    fn keep(&mut self, key: &[u8]) -> KeptKey {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(key.len().max(FIRST_BYTES));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        (start, self.bytes.len())
    }

    fn kept(&self, (start, end): KeptKey) -> &[u8] {
        &self.bytes[start..end]
    }

    fn has_room(&mut self) -> bool {
        self.is_everything |= self.points.len() + self.ranges.len() >= READS_MAX || self.bytes.len() >= READ_BYTES_MAX;
        !self.is_everything
    }

    /// Whether anything of these trees was read.
    pub(crate) fn is_of_any(&self, is_one: impl Fn(TreeId) -> bool) -> bool {
        self.is_everything
            || self.points.iter().any(|(tree, _)| is_one(*tree))
            || self.ranges.iter().any(|range| is_one(range.tree))
    }

    /// Whether anything read was changed in this memtable by a version above `since`.
    pub(crate) fn changed_in(&self, table: &Memtable, since: u64) -> bool {
        let since = Version(since);
        self.is_everything
            || self
                .points
                .iter()
                .any(|(tree, place)| table.latest(*tree, self.kept(*place)).is_some_and(|at| at > since))
            || self.ranges.iter().any(|range| {
                let bound = |bound: Bound<KeptKey>| bound.map(|place| self.kept(place));
                let borrowed = KeyRange { from: bound(range.from), to: bound(range.to) };
                table.changed_since(since, range.tree, borrowed)
            })
    }
}
