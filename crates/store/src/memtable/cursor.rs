//! Cursor over one tree of a memtable, as a snapshot sees it. `ordered.rs` explains why its batches stay valid.

use std::ops::Bound;

use super::Memtable;
use super::node::{NodeRef, Past};
use super::ordered::{Batch, Side, Target};
use super::tree_entry::TreeEntry;
use crate::base::key::Version;

/// Prefetch distance in keys: about the time of a memory access divided by that of a step.
const PREFETCH_AHEAD: usize = 8;
/// Lines fetched for each: key, record header, start of the value.
pub(super) const PREFETCH_LINES: usize = 2;

/// The entry at the cursor. The slices live as long as the memtable, not only until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorEntry<'m> {
    /// The key.
    pub key: &'m [u8],
    /// Its value; `None` for a deletion.
    pub value: Option<&'m [u8]>,
    /// The version that wrote it.
    pub version: Version,
}

/// Iterates over the keys of one tree in both directions. It allocates nothing, and writers do not disturb it.
///
/// The snapshot's version must be complete: every record up to it was inserted before the cursor was made.
pub struct MemtableCursor<'m> {
    table: &'m Memtable,
    tree: Option<&'m TreeEntry>,
    version: Version,
    batch: Batch,
    /// Index in the batch.
    at: usize,
    current: Option<CursorEntry<'m>>,
}

impl<'m> MemtableCursor<'m> {
    pub(super) fn new(table: &'m Memtable, tree: Option<&'m TreeEntry>, version: Version) -> MemtableCursor<'m> {
        MemtableCursor { table, tree, version, batch: Batch::empty(), at: 0, current: None }
    }

    /// The entry at the cursor: `None` before the first seek and past either end.
    pub fn current(&self) -> Option<CursorEntry<'m>> {
        self.current
    }

    /// The key at the cursor.
    pub fn key(&self) -> Option<&'m [u8]> {
        self.current.map(|entry| entry.key)
    }

    /// The value at the cursor; `None` also for a deletion.
    pub fn value(&self) -> Option<&'m [u8]> {
        self.current.and_then(|entry| entry.value)
    }

    /// Moves to the first key within the lower bound.
    pub fn seek(&mut self, from: Bound<&[u8]>) -> Option<CursorEntry<'m>> {
        let (target, past) = match from {
            Bound::Unbounded => (Target::First, Past::Less),
            Bound::Included(key) => (Target::At(key), Past::Less),
            Bound::Excluded(key) => (Target::At(key), Past::LessOrEqual),
        };
        let at = self.tree.and_then(|tree| self.batch.seek(&self.table.arena, tree, (target, past), Side::Both));
        let Some(at) = at else { return self.end() };
        self.at = at;
        self.prefetch(at, at + PREFETCH_AHEAD);
        self.settle_forward()
    }

    /// Moves to the last key within the upper bound.
    pub fn seek_back(&mut self, to: Bound<&[u8]>) -> Option<CursorEntry<'m>> {
        let (target, past) = match to {
            Bound::Unbounded => (Target::Last, Past::Less),
            Bound::Included(key) => (Target::At(key), Past::LessOrEqual),
            Bound::Excluded(key) => (Target::Below(key), Past::Less),
        };
        let at = self.tree.and_then(|tree| self.batch.seek(&self.table.arena, tree, (target, past), Side::Both));
        let Some(behind) = at else { return self.end() };
        self.at = behind;
        self.settle_backward()
    }

    /// Moves to the next key. Past the end it stays there until the next seek.
    #[allow(clippy::should_implement_trait)] // An iterator cannot go back.
    pub fn next(&mut self) -> Option<CursorEntry<'m>> {
        self.current?;
        self.at += 1;
        self.settle_forward()
    }

    /// Moves to the previous key. Past the start it stays there until the next seek.
    pub fn prev(&mut self) -> Option<CursorEntry<'m>> {
        self.current?;
        self.settle_backward()
    }

    /// Moves to the first visible key from `at` on.
    fn settle_forward(&mut self) -> Option<CursorEntry<'m>> {
        loop {
            while self.at < self.batch.count {
                self.prefetch(self.at + PREFETCH_AHEAD, self.at + PREFETCH_AHEAD + 1);
                if self.stand() {
                    return self.current;
                }
                self.at += 1;
            }
            let Some(next) = self.batch.next else { return self.end() };
            self.enter(next);
        }
    }

    /// Starts the next leaf.
    fn enter(&mut self, leaf: NodeRef) {
        self.batch.read(&self.table.arena, leaf);
        self.at = 0;
        self.prefetch(0, PREFETCH_AHEAD);
        if let Some(next) = self.batch.next {
            self.table.arena.get(next).prefetch();
        }
    }

    /// Moves to the last visible key before `at`.
    fn settle_backward(&mut self) -> Option<CursorEntry<'m>> {
        loop {
            while self.at > 0 {
                self.at -= 1;
                if let Some(ahead) = self.at.checked_sub(PREFETCH_AHEAD) {
                    self.prefetch(ahead, ahead + 1);
                }
                if self.stand() {
                    return self.current;
                }
            }
            // The left neighbour may have been split since: only a descent finds the leaf just below the fence.
            let Some((tree, low)) = self.tree.zip(self.batch.low) else { return self.end() };
            let low = self.table.arena.key(low).bytes;
            match self.batch.seek(&self.table.arena, tree, (Target::Below(low), Past::Less), Side::Both) {
                Some(behind) => self.at = behind,
                None => return self.end(),
            }
            self.prefetch(self.at.saturating_sub(PREFETCH_AHEAD), self.at);
        }
    }

    /// Moves to the key `at`, if the snapshot sees it.
    fn stand(&mut self) -> bool {
        let arena = &self.table.arena;
        self.current = self.batch.key(self.at).and_then(|place| {
            let record = arena.visible(place, self.version)?;
            Some(CursorEntry { key: arena.key(place).bytes, value: record.value, version: record.version })
        });
        self.current.is_some()
    }

    fn end(&mut self) -> Option<CursorEntry<'m>> {
        self.batch.count = 0;
        self.batch.next = None;
        self.batch.low = None;
        self.current = None;
        None
    }

    fn prefetch(&self, from: usize, to: usize) {
        for at in from..to {
            if let Some(key) = self.batch.key(at) {
                self.table.arena.prefetch(key, PREFETCH_LINES);
            }
        }
    }
}
