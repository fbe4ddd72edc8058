//! Pieces: the frozen memtable is merged in several steps, one range of keys after the other, each with its own meta page.
//!
//! Pages freed by one piece are reused once the next one is durable. So a checkpoint needs free space for about two
//! pieces, instead of twice the pages that it rewrites.
//!
//! The meta pages in between keep `version` and log start from before the checkpoint, although the trees contain part of
//! the memtable's changes. Readers overlay the frozen memtable, and recovery replays the log from its start: the same puts
//! and deletions again, with the same result. So the trees alone are a consistent state only if there is no frozen memtable
//! and the log after them is empty. The meta page also stores the highest version among those changes (`Meta::reaches`). If
//! the log ends before that, durable changes are lost, and the trees alone would show part of a transaction.
//!
//! A failed piece is retried from the end of the last durable one, see [`Walk::after`].

use std::iter::Peekable;
use std::ops::Bound;

use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Version};
use crate::base::limits::CATALOG;
use crate::engine::read::catalog;
use crate::memtable::{Memtable, Stretch};
use crate::tree::{Cut, PAGE_BYTES, TreeWriter};

/// Maximum number of pieces of a checkpoint: each syncs twice, and writes catalog and space map once.
pub(super) const PIECES_MAX: u64 = 16;
/// A piece rewrites at least about the trees' pages divided by this; a checkpoint that rewrites less has one piece.
const PARTS: u64 = 16;
/// A piece also rewrites at least a memtable's pages divided by this. After a million inserts the file was 1.20 times
/// as long as its content with 2, and 1.15 times with 3.
const PARTS_OF_MEMTABLE: u64 = 3;
/// Pages that a piece rewrites at least, with the smallest memtable.
const PIECE_PAGES_LEAST: u64 = 16;

/// Number of pieces for merging this many keys and bytes into trees of `live` pages.
pub(super) fn count(keys: u64, bytes: u64, live: u64, memtable_bytes: usize) -> u64 {
    let rewritten = keys.min(live) + bytes / PAGE_BYTES as u64;
    let least = (memtable_bytes / PAGE_BYTES) as u64 / PARTS_OF_MEMTABLE;
    rewritten.div_ceil(least.max(live / PARTS).max(PIECE_PAGES_LEAST)).clamp(1, PIECES_MAX)
}

/// Upper bound of [`count`] for any size of the trees.
pub(super) fn count_most(keys: u64, bytes: u64) -> u64 {
    (keys + bytes / PAGE_BYTES as u64).div_ceil(PIECE_PAGES_LEAST).clamp(1, PIECES_MAX)
}

/// A key of a tree: all changes up to it are in the trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) tree: TreeId,
    pub(super) key: Vec<u8>,
}

/// A pass over a frozen memtable, by tree and key, as a snapshot of the version at which it ends sees it: whatever else it holds,
/// nothing newer gets into the trees.
pub(super) struct Walk<'m> {
    table: &'m Memtable,
    version: Version,
    /// Trees that are not done, in reverse order.
    trees: Vec<TreeId>,
    /// Remaining records of the current tree, once begun.
    entries: Option<Peekable<Box<dyn Iterator<Item = Change<'m>> + 'm>>>,
    reached: Option<Reached>,
}

impl<'m> Walk<'m> {
    /// Starts after `reached`, or at the beginning.
    pub(super) fn after(table: &'m Memtable, version: Version, reached: Option<&'m Reached>) -> Walk<'m> {
        let mut trees = table.trees();
        trees.reverse();
        let mut walk = Walk { table, version, trees, entries: None, reached: reached.cloned() };
        if let Some(reached) = reached {
            walk.trees.retain(|tree| *tree >= reached.tree);
            if walk.trees.last() == Some(&reached.tree) {
                walk.begin(reached.tree, Bound::Excluded(&reached.key));
            }
        }
        walk
    }

    fn begin(&mut self, tree: TreeId, from: Bound<&'m [u8]>) {
        let entries: Box<dyn Iterator<Item = Change<'m>>> = Box::new(entries(self.table, self.version, tree, from));
        self.entries = Some(entries.peekable());
    }

    /// Merges the next `most` records, or all that are left, into the trees; calls `note` for each. False if nothing is left.
    ///
    /// All deleted ranges of a tree are applied with its first records: the tree keeps nothing of their content, and
    /// later puts in them come with this piece or a later one.
    pub(super) fn merge(
        &mut self,
        writer: &mut TreeWriter<'_>,
        most: u64,
        note: &dyn Fn(),
    ) -> Result<bool, StoreError> {
        let mut left = most;
        while let Some(&tree) = self.trees.last() {
            let mut cuts = Vec::new();
            if self.entries.is_none() {
                self.begin(tree, Bound::Unbounded);
                cuts = joined(&self.table.deleted(self.version, tree));
            }
            let Some(entries) = &mut self.entries else { return Ok(false) };
            if tree == CATALOG {
                name_trees(writer, self.table, self.version)?;
            }
            let mut last = None;
            let next = || {
                let change = entries.next_if(|_| left > 0)?;
                (left, last) = (left - 1, Some(change.0));
                note();
                Some(change)
            };
            writer.merge_with(tree, &cuts, std::iter::from_fn(next))?;
            if let Some(key) = last {
                self.reached = Some(Reached { tree, key: key.to_vec() });
            }
            if entries.peek().is_some() {
                return Ok(true);
            }
            self.entries = None;
            self.trees.pop();
        }
        Ok(false)
    }

    /// The last key merged.
    pub(super) fn reached(&self) -> Option<&Reached> {
        self.reached.as_ref()
    }
}

/// Merges a memtable's changes up to a version into the trees.
pub(in crate::engine) fn merge_all(
    writer: &mut TreeWriter<'_>,
    table: &Memtable,
    version: Version,
) -> Result<(), StoreError> {
    Walk::after(table, version, None).merge(writer, u64::MAX, &|| {}).map(|_| ())
}

/// The tree file also holds the names, so that tools can inspect it without the engine.
pub(in crate::engine) fn name_trees(
    writer: &mut TreeWriter<'_>,
    table: &Memtable,
    version: Version,
) -> Result<(), StoreError> {
    writer.set_name(CATALOG, "names")?;
    for (key, value) in entries(table, version, CATALOG, Bound::Unbounded) {
        if let Some((name, id)) = catalog::row(key, value) {
            writer.set_name(id, name)?;
        }
    }
    Ok(())
}

/// The deleted stretches as cuts; adjacent stretches are joined.
fn joined<'m>(deleted: &[Stretch<'m>]) -> Vec<Cut<'m>> {
    let mut cuts: Vec<Cut<'m>> = Vec::new();
    for Stretch { from, to, .. } in deleted {
        match cuts.last_mut() {
            Some(last) if last.to == Some(from) => last.to = *to,
            _ => cuts.push(Cut { from, to: *to }),
        }
    }
    cuts
}

type Change<'m> = (&'m [u8], Option<&'m [u8]>);

/// The newest record of each key of one tree, in order, without those that a range deleted.
fn entries<'m>(
    table: &'m Memtable,
    version: Version,
    tree: TreeId,
    from: Bound<&'m [u8]>,
) -> impl Iterator<Item = Change<'m>> {
    let mut deleted = table.deleted(version, tree).into_iter().peekable();
    let changes = table.scan(version, tree, KeyRange { from, to: Bound::Unbounded }, Direction::Forward);
    let undeleted = changes.filter(move |change| {
        while deleted.next_if(|stretch| stretch.to.is_some_and(|to| to <= change.key)).is_some() {}
        !deleted.peek().is_some_and(|stretch| stretch.from <= change.key && change.version < stretch.deleted)
    });
    undeleted.map(|change| (change.key, change.value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_checkpoints_are_one_piece_and_large_ones_a_part_of_the_trees_each() {
        let memtable_bytes = 32 << 20;
        assert_eq!(count(1, 500, 1_000_000, memtable_bytes), 1);
        assert_eq!(count(2_000, 500_000, 100, memtable_bytes), 1);
        assert_eq!(count(50_000, 0, 160_000, memtable_bytes), 5);
        assert_eq!(count(10_000_000, 0, 160_000, memtable_bytes), 16);
        for (keys, bytes, live) in [(500, 200_000, 0), (500, 200_000, 100), (70_000, 30 << 20, 111_000)] {
            for memtable_bytes in [256 << 10, 32 << 20] {
                assert!(count(keys, bytes, live, memtable_bytes) <= count_most(keys, bytes), "{keys} {bytes} {live}");
            }
        }
    }
}
