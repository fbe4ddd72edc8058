//! Pieces: the frozen memtable goes into the trees in several steps, one range of keys after the other, each with its own
//! meta page.
//!
//! Pages that one piece frees are given out again as soon as the next one is durable. So what a checkpoint takes beside
//! the trees is about two pieces, and not all that it rewrites, twice.
//!
//! What a meta page means in between: `version` and log start are still those from before the checkpoint, since all of
//! the memtable's changes are not in the trees yet; some are. Both who reads and who recovers lay over the trees what they
//! would lay there anyway, the frozen memtable or the log: puts and deletions, which give the same a second time. So a
//! tree alone is one state of the data only where no frozen memtable lies over it and the log after it is empty. How far those
//! changes go the meta page says too (`Meta::reaches`): a log that ends before it has lost what was durable, and the trees
//! alone would show a part of a transaction.
//!
//! A piece that failed is tried again from where the last durable one ended, see [`Walk::after`]: what those have taken
//! counts no more to what the merge may still need ([`Engine::room_advanced`](super::Engine::room_advanced)).

use std::iter::Peekable;
use std::ops::Bound;

use super::limits::CATALOG;
use crate::error::Error;
use crate::key::{TreeId, Version};
use crate::memtable::{self, Cursor, Memtable, Stretch};
use crate::tree::{Cut, PAGE_BYTES, TreeWriter};

/// Most pieces of a checkpoint: each syncs twice, and writes the catalog and the space map once.
pub(super) const PIECES_MAX: u64 = 16;
/// A piece rewrites about this part of the trees; a checkpoint that rewrites less is one piece.
const PARTS: u64 = 16;
/// Nor is it cut into pieces that rewrite less than this part of what a memtable may hold. With a half of it the file was
/// 1.20 times as long as what it held after a million inserts, with a third 1.15 times.
const PARTS_OF_MEMTABLE: u64 = 3;
/// What a piece rewrites with the smallest memtable, in pages.
const PIECE_PAGES_LEAST: u64 = 16;

/// Pieces in which so many keys with so many bytes are merged into trees of `live` pages.
pub(super) fn count(keys: u64, bytes: u64, live: u64, memtable_bytes: usize) -> u64 {
    let rewritten = keys.min(live) + bytes / PAGE_BYTES as u64;
    let least = (memtable_bytes / PAGE_BYTES) as u64 / PARTS_OF_MEMTABLE;
    rewritten.div_ceil(least.max(live / PARTS).max(PIECE_PAGES_LEAST)).clamp(1, PIECES_MAX)
}

/// The most that [`count`] may say, however large the trees are by then.
pub(super) fn count_most(keys: u64, bytes: u64) -> u64 {
    (keys + bytes / PAGE_BYTES as u64).div_ceil(PIECE_PAGES_LEAST).clamp(1, PIECES_MAX)
}

/// A key of a tree: all changes up to it are in the trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reached {
    pub(super) tree: TreeId,
    pub(super) key: Vec<u8>,
}

/// A way through the newest records of a frozen memtable, by tree and key.
pub(super) struct Walk<'m> {
    table: &'m Memtable,
    /// Trees that are not done, the last one first.
    trees: Vec<TreeId>,
    /// Records of the first of them, once begun.
    entries: Option<Entries<'m>>,
    reached: Option<Reached>,
}

impl<'m> Walk<'m> {
    /// From behind `reached`, or from the start.
    pub(super) fn after(table: &'m Memtable, reached: Option<Reached>) -> Walk<'m> {
        let mut trees = table.trees();
        trees.reverse();
        let mut walk = Walk { table, trees, entries: None, reached };
        if let Some(reached) = &walk.reached {
            walk.trees.retain(|tree| *tree >= reached.tree);
            let from = Bound::Excluded(reached.key.as_slice());
            walk.entries =
                walk.trees.last().filter(|tree| **tree == reached.tree).map(|tree| Entries::new(table, *tree, from));
        }
        walk
    }

    /// Puts the next records, `most` of them or all that are left, into the trees; `note` hears of each. False when nothing
    /// is left.
    ///
    /// With a tree's first records go all its deleted ranges: of what they hold the tree keeps nothing, and what was put
    /// into them since comes with this piece or a later one.
    pub(super) fn merge(&mut self, writer: &mut TreeWriter<'_>, most: u64, note: &dyn Fn()) -> Result<bool, Error> {
        let mut left = most;
        while let Some(&tree) = self.trees.last() {
            let (entries, cuts) = match &mut self.entries {
                Some(entries) => (entries, Vec::new()),
                None => {
                    let entries = Entries::new(self.table, tree, Bound::Unbounded);
                    (self.entries.insert(entries), cuts(&self.table.deleted(tree)))
                }
            };
            if tree == CATALOG {
                name_trees(writer, self.table)?;
            }
            entries.left = left;
            writer.merge_with(tree, &cuts, entries.by_ref().inspect(|_| note()))?;
            left = entries.left;
            if let Some(key) = entries.last {
                self.reached = Some(Reached { tree, key: key.to_vec() });
            }
            if entries.next.is_some() {
                return Ok(true);
            }
            self.entries = None;
            self.trees.pop();
        }
        Ok(false)
    }

    /// How far it has come.
    pub(super) fn reached(&self) -> Option<&Reached> {
        self.reached.as_ref()
    }
}

/// Puts all that a memtable holds into the trees.
pub(super) fn merge_all(writer: &mut TreeWriter<'_>, table: &Memtable) -> Result<(), Error> {
    Walk::after(table, None).merge(writer, u64::MAX, &|| {}).map(|_| ())
}

/// The tree file knows the names too, so that it can be inspected without the engine.
pub(super) fn name_trees(writer: &mut TreeWriter<'_>, table: &Memtable) -> Result<(), Error> {
    writer.set_name(CATALOG, "names")?;
    let mut entries = Entries::new(table, CATALOG, Bound::Unbounded);
    entries.left = u64::MAX;
    for (key, value) in entries {
        if let Some((name, id)) = super::catalog::row(key, value) {
            writer.set_name(id, name)?;
        }
    }
    Ok(())
}

/// Deleted stretches as what they take away, those that meet joined.
fn cuts<'m>(deleted: &[Stretch<'m>]) -> Vec<Cut<'m>> {
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

/// The newest record of each key of one tree, in order, without those that a range deleted, until there are no more or [`Entries::left`] is used up.
struct Entries<'m> {
    cursor: Cursor<'m>,
    /// From the one on that the cursor has reached.
    deleted: Peekable<std::vec::IntoIter<Stretch<'m>>>,
    next: Option<Change<'m>>,
    left: u64,
    /// The last key given out.
    last: Option<&'m [u8]>,
}

impl<'m> Entries<'m> {
    fn new(table: &'m Memtable, tree: TreeId, from: Bound<&[u8]>) -> Entries<'m> {
        let deleted = table.deleted(tree).into_iter().peekable();
        let mut cursor = table.cursor(Version(u64::MAX), tree);
        let first = cursor.seek(from);
        let mut entries = Entries { cursor, deleted, next: None, left: 0, last: None };
        entries.next = entries.undeleted(first);
        entries
    }

    /// This record, or the first behind it that no range deleted.
    fn undeleted(&mut self, mut entry: Option<memtable::Entry<'m>>) -> Option<Change<'m>> {
        while let Some(found) = entry {
            if !self.is_deleted(found.key, found.version) {
                return Some((found.key, found.value));
            }
            entry = self.cursor.next();
        }
        None
    }

    fn is_deleted(&mut self, key: &[u8], version: Version) -> bool {
        while self.deleted.next_if(|stretch| stretch.to.is_some_and(|to| to <= key)).is_some() {}
        self.deleted.peek().is_some_and(|stretch| stretch.from <= key && version < stretch.deleted)
    }
}

impl<'m> Iterator for Entries<'m> {
    type Item = Change<'m>;

    fn next(&mut self) -> Option<Change<'m>> {
        if self.left == 0 {
            return None;
        }
        let change = self.next?;
        self.left -= 1;
        self.last = Some(change.0);
        let following = self.cursor.next();
        self.next = self.undeleted(following);
        Some(change)
    }
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
