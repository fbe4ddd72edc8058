//! All data at one version: the memtables over the tree.
//!
//! A generation is the pair of tree and memtables that stays the same between a freeze and the end of a checkpoint. A
//! view is a generation with a version. A lookup reads the newest part first. A scan merges up to three cursors. A
//! memtable without changes of the tree has no cursor, and in stretches without changes the tree's entries need no
//! comparisons. If ranges were deleted, a scan proceeds from boundary to boundary and skips what is deleted between
//! them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::places::Places;
use crate::base::error::Error;
use crate::base::key::{Direction, Entry, KeyRange, TreeId, Version, Visit};
use crate::memtable::{self, Lookup, Memtable, Stretch};
use crate::tree::{Cursor, Lack, TreeView, VisitEntries};

/// What readers see, apart from the version. Replaced as a whole.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) tree: Arc<TreeView>,
    /// The memtable that is being merged into the tree.
    pub(crate) frozen: Option<Arc<Memtable>>,
    /// The memtable that receives changes.
    pub(crate) active: Arc<Memtable>,
}

impl Generation {
    /// The memtables, newest first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(&self.frozen)
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
    pub(crate) fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'g, [u8]>>, Error> {
        match self.changed(tree, key) {
            Some(value) => Ok(value.map(Cow::Borrowed)),
            None => Ok(self.generation.tree.get(tree, key)?.map(Cow::Borrowed)),
        }
    }

    /// The same, with the reader's cache of positions in the tree file.
    #[inline]
    pub(crate) fn get_by(&self, places: &Places, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'g, [u8]>>, Error> {
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
    ) -> Result<(), Error> {
        let generation = self.generation;
        places.get_all(&generation.tree, tree, keys, values)?;
        if generation.active.is_empty() && generation.frozen.as_ref().is_none_or(|frozen| frozen.is_empty()) {
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
    pub(crate) fn lack(&self, tree: TreeId, key: &[u8]) -> Result<Lack, Error> {
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

    /// Visits the tree's entries of a range leaf by leaf if no memtable changes any of them; else visits nothing and
    /// returns false. The reader's cache of positions may contain the range's beginning.
    pub(crate) fn scan_leaves(
        &self,
        places: Option<&Places>,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 'g>,
    ) -> Result<bool, Error> {
        let generation = self.generation;
        if self.has_ranges() {
            return Ok(false);
        }
        for table in generation.tables() {
            let changes = Changes::seek(table, self.version, tree, range, direction, 0);
            if changes.is_some_and(|changes| changes.current().is_some()) {
                return Ok(false);
            }
        }
        let asked = match (places, range.from, direction) {
            (Some(places), Bound::Included(from), Direction::Forward) => Some((places, from)),
            _ => None,
        };
        let known = asked.and_then(|(places, from)| places.beginning(&generation.tree, tree, from));
        let mut beginning = known;
        let check_max = places.map_or(usize::MAX, Places::check_max);
        generation.tree.scan_leaves(tree, range, direction, (&mut beginning, check_max), visit)?;
        if let (Some((places, from)), None, Some(beginning)) = (asked, known, beginning) {
            places.remember_beginning(&generation.tree, tree, from, beginning);
        }
        Ok(true)
    }

    pub(crate) fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.scan_by(None, false, tree, range, direction, visit)
    }

    /// The same, optionally with the reader's cache of positions. With `is_asking`, returns an error if the tree's part
    /// is not in memory ([`Cursor::asking`]).
    pub(crate) fn scan_by(
        &self,
        places: Option<&Places>,
        is_asking: bool,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let scan = PartScan { view: *self, places, is_asking, tree, direction };
        if !self.has_ranges() {
            return scan.part(range, Hidden::default(), visit).map(drop);
        }
        match direction {
            Direction::Forward => scan.forward(range, visit),
            Direction::Backward => scan.backward(range, visit),
        }
    }

    /// The number of keys of a tree. The tree file stores its number of entries; each key changed in the memtables is
    /// looked up. With deleted ranges all keys are visited.
    pub(crate) fn count(&self, tree: TreeId) -> Result<u64, Error> {
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
        let seek = |table| Changes::seek(table, self.version, tree, KeyRange::ALL, direction, 0);
        let older = self.generation.frozen.as_deref().and_then(seek);
        let mut changed = Changed { newer: seek(&self.generation.active), older, direction };
        while let Some(change) = changed.next() {
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

/// A scan that goes from one boundary of deleted ranges to the next.
struct PartScan<'g, 'p> {
    view: View<'g>,
    places: Option<&'p Places>,
    is_asking: bool,
    tree: TreeId,
    direction: Direction,
}

impl<'g> PartScan<'g, '_> {
    /// The tree's part of a range, at its beginning.
    fn below<'r>(&self, range: KeyRange<'r>) -> Result<Below<'g, 'r>, Error> {
        let (tree, direction) = (&*self.view.generation.tree, self.direction);
        let cursor = tree.cursor(self.tree).checking_at_most(self.places.map_or(usize::MAX, Places::check_max));
        let mut cursor = if self.is_asking { cursor.asking() } else { cursor };
        match (self.places, range.from, direction) {
            (Some(places), Bound::Included(from), Direction::Forward) => {
                match places.beginning(tree, self.tree, from) {
                    Some(beginning) => cursor.begin_at(beginning)?,
                    None => {
                        cursor.seek(range.from)?;
                        if let Some(beginning) = cursor.beginning() {
                            places.remember_beginning(tree, self.tree, from, beginning);
                        }
                    }
                }
            }
            (_, _, Direction::Forward) => cursor.seek(range.from)?,
            (_, _, Direction::Backward) => cursor.seek_back(range.to)?,
        }
        Ok(Below { cursor, range, direction })
    }

    /// Scans a part of the range in which the same deletions apply to all keys.
    fn part(&self, range: KeyRange<'_>, hidden: Hidden, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        let (generation, direction) = (self.view.generation, self.direction);
        let mut below = match hidden {
            Hidden { in_active: 0, in_frozen: 0 } => Some(self.below(range)?),
            _ => None,
        };
        let seek = |table, below| Changes::seek(table, self.view.version, self.tree, range, direction, below);
        let older = generation.frozen.as_deref().filter(|_| hidden.in_active == 0);
        let mut changed = Changed {
            newer: seek(&generation.active, hidden.in_active),
            older: older.and_then(|table| seek(table, hidden.in_frozen)),
            direction,
        };
        while let Some(change) = changed.next() {
            // First the tree's entries before the change, then the change, which replaces the tree's entry of its key.
            if let Some(below) = &mut below {
                if below.show_until(Some(change.key), visit)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                below.skip(change.key)?;
            }
            if let Some(value) = change.value
                && visit(change.key, value).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        below.map_or(Ok(ControlFlow::Continue(())), |mut below| below.show_until(None, visit))
    }

    fn forward(&self, range: KeyRange<'_>, visit: &mut Visit<'_>) -> Result<(), Error> {
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
                return self.part(rest, hidden, visit).map(drop);
            };
            let part = KeyRange { from, to: Bound::Excluded(next) };
            if self.part(part, hidden, visit)?.is_break() {
                return Ok(());
            }
            from = Bound::Included(next);
        }
    }

    fn backward(&self, range: KeyRange<'_>, visit: &mut Visit<'_>) -> Result<(), Error> {
        let mut to = range.to;
        loop {
            let (hidden, stretches) = self.stretches(|table, version| table.stretch_below(version, self.tree, to));
            let first = stretches.into_iter().flatten().map(|stretch| stretch.from).max().unwrap_or_default();
            if first.is_empty() || !range.is_above_start(first) {
                let rest = KeyRange { from: range.from, to };
                return self.part(rest, hidden, visit).map(drop);
            }
            let part = KeyRange { from: Bound::Included(first), to };
            if self.part(part, hidden, visit)?.is_break() {
                return Ok(());
            }
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

/// The tree's part of a scan.
struct Below<'v, 'r> {
    cursor: Cursor<'v>,
    range: KeyRange<'r>,
    direction: Direction,
}

impl Below<'_, '_> {
    /// Shows entries before `limit` and within the range. Without a limit the scan ends, and the cursor's position
    /// afterwards does not matter.
    fn show_until(&mut self, limit: Option<&[u8]>, visit: &mut Visit<'_>) -> Result<ControlFlow<()>, Error> {
        while self.cursor.is_valid() {
            let (count, ends) = self.entries_before(limit)?;
            for left in (0..count).rev() {
                if visit(self.cursor.key(), self.cursor.value()?).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                if left > 0 {
                    match self.direction {
                        Direction::Forward => self.cursor.next_in_leaf()?,
                        Direction::Backward => self.cursor.previous_in_leaf()?,
                    };
                }
            }
            if !ends {
                self.step()?;
                continue;
            }
            if count > 0 && limit.is_some() {
                self.step()?;
            }
            break;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Number of entries of the leaf, from the current one on, that are before `limit` and within the range, and
    /// whether one of the two ends in this leaf. One search instead of a comparison of each key.
    #[inline]
    fn entries_before(&self, limit: Option<&[u8]>) -> Result<(usize, bool), Error> {
        let limit = limit.map_or(Bound::Unbounded, Bound::Excluded);
        match self.direction {
            Direction::Forward => self.cursor.leaf_entries_below([self.range.to, limit]),
            Direction::Backward => self.cursor.leaf_entries_above([self.range.from, limit]),
        }
    }

    /// Steps over the entry of this key, if the cursor is on it.
    fn skip(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.cursor.is_valid() && self.cursor.key() == key { self.step() } else { Ok(()) }
    }

    fn step(&mut self) -> Result<(), Error> {
        match self.direction {
            Direction::Forward => self.cursor.next(),
            Direction::Backward => self.cursor.previous(),
        }
    }
}

/// Whether a key is not past the range's end, in the scan's direction.
fn is_within(key: &[u8], range: KeyRange<'_>, direction: Direction) -> bool {
    match direction {
        Direction::Forward => range.is_below_end(key),
        Direction::Backward => range.is_above_start(key),
    }
}

/// One memtable's part of a scan, positioned on its next change.
struct Changes<'m, 'r> {
    cursor: memtable::Cursor<'m>,
    range: KeyRange<'r>,
    direction: Direction,
    /// A deleted range hides records of older versions.
    hidden_below: Version,
}

impl<'m, 'r> Changes<'m, 'r> {
    fn seek(
        table: &'m Memtable,
        version: u64,
        tree: TreeId,
        range: KeyRange<'r>,
        direction: Direction,
        hidden_below: u64,
    ) -> Option<Changes<'m, 'r>> {
        if table.is_empty() {
            return None;
        }
        let mut cursor = table.cursor(Version(version), tree);
        match direction {
            Direction::Forward => cursor.seek(range.from),
            Direction::Backward => cursor.seek_back(range.to),
        };
        let mut changes = Changes { cursor, range, direction, hidden_below: Version(hidden_below) };
        if hidden_below > 0 {
            changes.skip_hidden();
        }
        Some(changes)
    }

    fn skip_hidden(&mut self) {
        while self.current().is_some_and(|entry| entry.version < self.hidden_below) {
            self.advance();
        }
    }

    fn current(&self) -> Option<memtable::Entry<'m>> {
        self.cursor.current().filter(|entry| is_within(entry.key, self.range, self.direction))
    }

    fn step(&mut self) {
        self.advance();
        if self.hidden_below > Version(0) {
            self.skip_hidden();
        }
    }

    fn advance(&mut self) {
        match self.direction {
            Direction::Forward => self.cursor.next(),
            Direction::Backward => self.cursor.prev(),
        };
    }
}

/// Both memtables' changes in the scan's order; of equal keys the newer one.
struct Changed<'m, 'r> {
    newer: Option<Changes<'m, 'r>>,
    older: Option<Changes<'m, 'r>>,
    direction: Direction,
}

impl<'m> Changed<'m, '_> {
    fn next(&mut self) -> Option<memtable::Entry<'m>> {
        let newer = self.newer.as_ref().and_then(Changes::current);
        let older = self.older.as_ref().and_then(Changes::current);
        let order = match (newer, older) {
            (Some(newer), Some(older)) if self.direction == Direction::Forward => newer.key.cmp(older.key),
            (Some(newer), Some(older)) => older.key.cmp(newer.key),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        if order.is_le()
            && let Some(newer) = &mut self.newer
        {
            newer.step();
        }
        if order.is_ge()
            && let Some(older) = &mut self.older
        {
            older.step();
        }
        if order.is_le() { newer } else { older }
    }
}

/// The first entry that a scan visits.
pub(crate) fn first_of(scan: impl FnOnce(&mut Visit<'_>) -> Result<(), Error>) -> Result<Option<Entry>, Error> {
    let mut found = None;
    scan(&mut |key, value| {
        found = Some((key.to_vec(), value.to_vec()));
        ControlFlow::Break(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests;
