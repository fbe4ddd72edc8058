//! All data at one version: the memtables over the tree.
//!
//! A generation is the pair of tree and memtables that stays the same between a freeze and the end of a checkpoint. A
//! view is a generation with a version. A lookup reads the newest part first. A scan passes the tree's leaves, merged with
//! the memtables' changes where there are any (`merge.rs`). If ranges were deleted, a scan proceeds from boundary to
//! boundary and skips what is deleted between them.

use std::borrow::Cow;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::changes::Changes;
use super::entries::VisitEntries;
use super::merge::Merge;
use super::places::Places;
use super::sink::{End, Lists, Rows, Sink};
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Version, Visit};
use crate::memtable::{Lookup, Memtable, Stretch};
use crate::tree::{Lack, Leaves, TreeView, WaitLimits};

/// What readers see, apart from the version. Replaced as a whole.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) tree: Arc<TreeView>,
    /// The memtable that is being merged into the tree.
    pub(crate) frozen: Option<Arc<Memtable>>,
    /// The memtable that receives changes.
    pub(crate) active: Arc<Memtable>,
    /// A version below which no snapshot of this generation may be: that of the last large transaction, whose records have
    /// no versions of their own.
    pub(crate) least_version: u64,
    /// Whether the memory of a memtable is in a file, of which the disk may lose pages.
    pub(crate) is_in_file: bool,
}

impl Generation {
    /// The memtables, newest first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
    }

    /// The version that every snapshot of this generation contains.
    #[inline]
    pub(crate) fn contains(&self) -> u64 {
        self.tree.meta().version.0.max(self.least_version)
    }

    /// Number of pages, of the tree and of memtables in files, that the disk has failed to read so far.
    #[inline]
    pub(crate) fn lost(&self) -> u64 {
        self.tree.lost() + if self.is_in_file { self.tables().map(|table| table.lost()).sum() } else { 0 }
    }

    /// Returns an error if pages were lost since [`Generation::lost`] was `before`: reads since then may have returned zeros.
    #[inline]
    pub(crate) fn check_lost(&self, before: u64) -> Result<(), StoreError> {
        if self.lost() == before { Ok(()) } else { Err(self.lost_error()) }
    }

    #[cold]
    fn lost_error(&self) -> StoreError {
        self.tree
            .check_lost(u64::MAX)
            .err()
            .filter(|_| self.tree.lost() > 0)
            .unwrap_or_else(crate::memtable::lost_error)
    }
}

/// See the module's text.
#[derive(Clone, Copy)]
pub(crate) struct View<'g> {
    pub(crate) generation: &'g Generation,
    pub(crate) version: u64,
}

impl<'g> View<'g> {
    #[inline]
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'g, [u8]>>, StoreError> {
        match self.changed(tree, key) {
            Some(value) => Ok(value.map(Cow::Borrowed)),
            None => Ok(self.generation.tree.get(tree, key)?.map(Cow::Borrowed)),
        }
    }

    /// The same, with the reader's cache of positions in the tree file.
    #[inline]
    pub(crate) fn get_by(
        &self,
        places: &Places,
        tree: TreeId,
        key: &[u8],
    ) -> Result<Option<Cow<'g, [u8]>>, StoreError> {
        match self.changed(tree, key) {
            Some(value) => Ok(value.map(Cow::Borrowed)),
            None => Ok(places.get(&self.generation.tree, tree, key)?.map(Cow::Borrowed)),
        }
    }

    /// The values of many keys of one length, with the reader's cache of positions in the tree file.
    pub(crate) fn get_all_by<const N: usize>(
        &self,
        places: &Places,
        tree: TreeId,
        keys: &[[u8; N]],
        values: &mut [Option<&'g [u8]>],
    ) -> Result<(), StoreError> {
        let generation = self.generation;
        places.get_all(&generation.tree, tree, keys, values)?;
        let may_change = |table: &Memtable| table.may_change(tree);
        if !may_change(&generation.active) && !generation.frozen.as_deref().is_some_and(may_change) {
            return Ok(());
        }
        for (key, value) in keys.iter().zip(values) {
            if let Some(changed) = self.changed(tree, key) {
                *value = changed;
            }
        }
        Ok(())
    }

    /// The pages for which a lookup of this key would have to wait.
    pub(crate) fn lack(&self, tree: TreeId, key: &[u8]) -> Result<Lack, StoreError> {
        if self.changed(tree, key).is_some() { Ok(Lack::Nothing) } else { self.generation.tree.lack(tree, key) }
    }

    /// The change in the memtables: a value, a deletion, or (outer `None`) none.
    #[inline]
    fn changed(&self, tree: TreeId, key: &[u8]) -> Option<Option<&'g [u8]>> {
        let version = Version(self.version);
        let generation = self.generation;
        match generation.active.get(version, tree, key) {
            Lookup::Value(value) => return Some(Some(value)),
            Lookup::Deleted => return Some(None),
            Lookup::Absent => {}
        }
        if let Some(frozen) = &generation.frozen {
            match frozen.get(version, tree, key) {
                Lookup::Value(value) => return Some(Some(value)),
                Lookup::Deleted => return Some(None),
                Lookup::Absent => {}
            }
        }
        None
    }

    /// Visits the entries of a range in key order, those of a leaf together, merged with changes. The reader's cache of positions may
    /// contain the range's beginning.
    pub(crate) fn scan_leaves(
        &self,
        places: Option<&Places>,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 'g>,
    ) -> Result<(), StoreError> {
        RangeScan { view: *self, places, is_asking: false, tree, direction }.run(range, &mut Lists::new(visit))
    }

    pub(crate) fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        self.scan_by(None, false, tree, range, direction, visit)
    }

    /// The same, optionally with the reader's cache of positions. With `is_asking`, returns an error if the tree's part
    /// is not in memory.
    pub(crate) fn scan_by(
        &self,
        places: Option<&Places>,
        is_asking: bool,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        RangeScan { view: *self, places, is_asking, tree, direction }.run(range, &mut Rows::new(visit))
    }

    /// The number of keys of a tree. The tree file stores its number of entries; each key changed in the memtables is
    /// looked up. With deleted ranges all keys are visited.
    pub(crate) fn count(&self, tree: TreeId) -> Result<u64, StoreError> {
        let mut count = 0u64;
        if self.has_ranges() {
            self.scan(tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            return Ok(count);
        }
        count = self.generation.tree.entries(tree);
        let direction = Direction::Forward;
        let of = |table: &'g Memtable| table.range(Version(self.version), tree, KeyRange::ALL, direction, Version(0));
        let mut older = self.generation.frozen.as_deref().and_then(of);
        let mut newer = of(&self.generation.active);
        let mut changes = Changes::new(newer.as_mut(), older.as_mut(), direction);
        while let Some(change) = changes.next() {
            match (self.generation.tree.get(tree, change.key)?.is_some(), change.value.is_some()) {
                (false, true) => count += 1,
                (true, false) => count -= 1,
                _ => {}
            }
        }
        Ok(count)
    }

    fn has_ranges(&self) -> bool {
        self.generation.tables().any(|table| table.has_ranges())
    }
}

/// A scan of a range. It goes from one boundary of deleted ranges to the next.
struct RangeScan<'g, 'p> {
    view: View<'g>,
    places: Option<&'p Places>,
    is_asking: bool,
    tree: TreeId,
    direction: Direction,
}

impl<'g> RangeScan<'g, '_> {
    #[inline]
    fn run(&self, range: KeyRange<'_>, sink: &mut impl Sink<'g>) -> Result<(), StoreError> {
        let end = match self.direction {
            _ if !self.view.has_ranges() => self.part(range, Hidden::default(), sink),
            Direction::Forward => self.forward(range, sink),
            Direction::Backward => self.backward(range, sink),
        };
        match end {
            Ok(()) | Err(End::Enough) => Ok(()),
            Err(End::Error(error)) => Err(error),
        }
    }

    /// Scans a part of the range in which the same deletions apply to all keys.
    fn part(&self, range: KeyRange<'_>, hidden: Hidden, sink: &mut impl Sink<'g>) -> Result<(), End> {
        let (generation, direction, version) = (self.view.generation, self.direction, Version(self.view.version));
        let of = |table: &'g Memtable, below| table.range(version, self.tree, range, direction, Version(below));
        let older = generation.frozen.as_deref().filter(|_| hidden.in_active == 0);
        let mut older = older.and_then(|table| of(table, hidden.in_frozen));
        let mut newer = of(&generation.active, hidden.in_active);
        // Lent, because moving them costs more than a short scan.
        let merge = match (newer.as_mut(), older.as_mut()) {
            (None, None) => None,
            (newer, older) => Merge::new(Changes::new(newer, older, direction)),
        };
        match merge {
            Some(mut merge) if hidden.hides_tree() => merge.run(None, sink),
            Some(mut merge) => self.read_leaves(range, |leaves| merge.run(Some(leaves), sink)),
            None if hidden.hides_tree() => Ok(()),
            None => self.read_leaves(range, |leaves| each_leaf(leaves, sink)),
        }
    }

    /// Reads the tree's leaves of a range. The reader's cache of positions may contain the range's beginning.
    #[inline]
    fn read_leaves<'r>(
        &self,
        range: KeyRange<'r>,
        read: impl FnOnce(&mut Leaves<'g, 'r>) -> Result<(), End>,
    ) -> Result<(), End> {
        let tree = &*self.view.generation.tree;
        let cache = match (self.places, range.from, self.direction) {
            (Some(places), Bound::Included(from), Direction::Forward) => Some((places, from)),
            _ => None,
        };
        let known = cache.and_then(|(places, from)| places.beginning(tree, self.tree, from));
        let check_max = self.places.map_or(usize::MAX, Places::check_max);
        let waiting = WaitLimits { is_asking: self.is_asking, check_max };
        let mut leaves = tree.leaves(self.tree, range, self.direction, waiting);
        leaves.start(known)?;
        let end = read(&mut leaves);
        if let Err(End::Error(_)) = end {
            return end;
        }
        if let (Some((places, from)), Some(beginning)) = (cache, leaves.beginning) {
            places.remember_beginning(tree, self.tree, from, beginning);
        }
        end
    }

    fn forward(&self, range: KeyRange<'_>, sink: &mut impl Sink<'g>) -> Result<(), End> {
        let mut from = range.from;
        loop {
            let at = match from {
                Bound::Unbounded => &[],
                Bound::Included(key) | Bound::Excluded(key) => key,
            };
            let (hidden, stretches) = self.stretches(|table, version| table.stretch_of(version, self.tree, at));
            let next = stretches.into_iter().flatten().filter_map(|stretch| stretch.to).min();
            let Some(next) = next.filter(|next| range.is_below_end(next)) else {
                let rest = KeyRange { from, to: range.to };
                return self.part(rest, hidden, sink);
            };
            let part = KeyRange { from, to: Bound::Excluded(next) };
            self.part(part, hidden, sink)?;
            from = Bound::Included(next);
        }
    }

    fn backward(&self, range: KeyRange<'_>, sink: &mut impl Sink<'g>) -> Result<(), End> {
        let mut to = range.to;
        loop {
            let (hidden, stretches) = self.stretches(|table, version| table.stretch_below(version, self.tree, to));
            let first = stretches.into_iter().flatten().map(|stretch| stretch.from).max().unwrap_or_default();
            if first.is_empty() || !range.is_above_start(first) {
                let rest = KeyRange { from: range.from, to };
                return self.part(rest, hidden, sink);
            }
            let part = KeyRange { from: Bound::Included(first), to };
            self.part(part, hidden, sink)?;
            to = Bound::Excluded(first);
        }
    }

    /// The stretches of both memtables at the same place, and what they hide.
    fn stretches(&self, stretch: impl Fn(&'g Memtable, Version) -> Stretch<'g>) -> (Hidden, [Option<Stretch<'g>>; 2]) {
        let version = Version(self.view.version);
        let of = |table: &'g Memtable| table.has_ranges().then(|| stretch(table, version));
        let stretches = [of(&self.view.generation.active), self.view.generation.frozen.as_deref().and_then(of)];
        let [in_active, in_frozen] = stretches.map(|stretch| stretch.map_or(0, |stretch| stretch.deleted.0));
        (Hidden { in_active, in_frozen }, stretches)
    }
}

/// What deleted ranges hide between two of their boundaries: the older records of the memtable with the range, and
/// everything older than that memtable.
#[derive(Clone, Copy, Default)]
struct Hidden {
    /// Version of the newest range in the active memtable; 0: none.
    in_active: u64,
    /// The same in the frozen one.
    in_frozen: u64,
}

impl Hidden {
    /// Whether all entries of the tree are hidden.
    fn hides_tree(self) -> bool {
        self.in_active > 0 || self.in_frozen > 0
    }
}

/// Passes leaves that have no changes.
fn each_leaf<'g>(leaves: &mut Leaves<'g, '_>, sink: &mut impl Sink<'g>) -> Result<(), End> {
    while let Some(leaf) = leaves.next()? {
        sink.take_run(leaf, (0, leaf.len()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
