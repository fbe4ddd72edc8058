//! A state of all data at one version: the memtables over the tree.
//!
//! A generation is what stays the same between a freeze and the end of a checkpoint: which tree, which memtables. A view
//! is a generation with a version. Reading asks the newest part first; a scan merges up to three cursors, and what no
//! change touches costs no comparison: a part without changes in the tree has no cursor.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::error::Error;
use crate::key::{Direction, KeyRange, TreeId, Version, Visit};
use crate::memtable::{self, Lookup, Memtable};
use crate::places::Places;
use crate::tree::{Cursor, TreeView, VisitEntries};

/// What readers see beside a version. Replaced as a whole.
#[derive(Clone)]
pub(crate) struct Generation {
    pub(crate) tree: Arc<TreeView>,
    /// Being merged into the tree.
    pub(crate) frozen: Option<Arc<Memtable>>,
    /// Takes the changes.
    pub(crate) active: Arc<Memtable>,
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

    /// The same, asking the tree through the reader's memory of places.
    #[inline]
    pub(crate) fn get_by(&self, places: &Places, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'g, [u8]>>, Error> {
        match self.changed(tree, key) {
            Some(value) => Ok(value.map(Cow::Borrowed)),
            None => Ok(places.get(&self.generation.tree, tree, key)?.map(Cow::Borrowed)),
        }
    }

    /// The values of many keys of one length, asking the tree through the reader's memory of places.
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

    /// Whether a read of this key would find all it needs in memory.
    pub(crate) fn is_resident(&self, tree: TreeId, key: &[u8]) -> Result<bool, Error> {
        Ok(self.changed(tree, key).is_some() || self.generation.tree.is_resident(tree, key)?)
    }

    /// What the memtables say: a value, that the key is deleted, or (outer `None`) nothing.
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

    /// Visits the tree's entries of a range leaf by leaf, if no memtable changes any of them; else visits nothing, and
    /// says so.
    pub(crate) fn scan_leaves(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut VisitEntries<'_, 'g>,
    ) -> Result<bool, Error> {
        let generation = self.generation;
        for table in std::iter::once(&generation.active).chain(&generation.frozen) {
            let changes = Changes::seek(table, self.version, tree, range, direction);
            if changes.is_some_and(|changes| changes.current().is_some()) {
                return Ok(false);
            }
        }
        generation.tree.scan_leaves(tree, range, direction, visit)?;
        Ok(true)
    }

    pub(crate) fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.scan_by(self.generation.tree.cursor(tree), tree, range, direction, visit)
    }

    /// The same, with a cursor of the caller's.
    pub(crate) fn scan_by(
        &self,
        cursor: Cursor<'g>,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let mut below = Below::seek(cursor, range, direction)?;
        let mut changed = Changed {
            newer: Changes::seek(&self.generation.active, self.version, tree, range, direction),
            older: self
                .generation
                .frozen
                .as_deref()
                .and_then(|table| Changes::seek(table, self.version, tree, range, direction)),
            direction,
        };
        while let Some(change) = changed.next() {
            // What lies before the change, then the change in place of the tree's entry of its key.
            if below.show_until(Some(change.key), visit)?.is_break() {
                return Ok(());
            }
            below.skip(change.key)?;
            if let Some(value) = change.value
                && visit(change.key, value).is_break()
            {
                return Ok(());
            }
        }
        below.show_until(None, visit).map(|_| ())
    }
}

/// The tree's part of a scan.
struct Below<'v, 'r> {
    cursor: Cursor<'v>,
    range: KeyRange<'r>,
    direction: Direction,
}

impl<'v, 'r> Below<'v, 'r> {
    fn seek(mut cursor: Cursor<'v>, range: KeyRange<'r>, direction: Direction) -> Result<Below<'v, 'r>, Error> {
        match direction {
            Direction::Forward => cursor.seek(range.from)?,
            Direction::Backward => cursor.seek_back(range.to)?,
        }
        Ok(Below { cursor, range, direction })
    }

    /// Shows entries before `limit` and within the range. Without a limit it is the scan's end, and the place after it is
    /// nobody's.
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

    /// How many entries of the leaf, from the current one on, come before `limit` and within the range, and whether one of
    /// the two ends in this leaf. One search instead of a comparison of each key.
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

/// Whether the range has not ended before a key, in the scan's direction.
fn is_within(key: &[u8], range: KeyRange<'_>, direction: Direction) -> bool {
    match direction {
        Direction::Forward => range.is_below_end(key),
        Direction::Backward => range.is_above_start(key),
    }
}

/// One memtable's part of a scan, on its next change.
struct Changes<'m, 'r> {
    cursor: memtable::Cursor<'m>,
    range: KeyRange<'r>,
    direction: Direction,
}

impl<'m, 'r> Changes<'m, 'r> {
    fn seek(
        table: &'m Memtable,
        version: u64,
        tree: TreeId,
        range: KeyRange<'r>,
        direction: Direction,
    ) -> Option<Changes<'m, 'r>> {
        if table.is_empty() {
            return None;
        }
        let mut cursor = table.cursor(Version(version), tree);
        match direction {
            Direction::Forward => cursor.seek(range.from),
            Direction::Backward => cursor.seek_back(range.to),
        };
        Some(Changes { cursor, range, direction })
    }

    fn current(&self) -> Option<memtable::Entry<'m>> {
        self.cursor.current().filter(|entry| is_within(entry.key, self.range, self.direction))
    }

    fn step(&mut self) {
        match self.direction {
            Direction::Forward => self.cursor.next(),
            Direction::Backward => self.cursor.prev(),
        };
    }
}

/// Both memtables' changes in the scan's order; of one key the newer one.
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
