//! Need: how many pages a checkpoint of some changes takes at most, in numbers that are cheap to update.

use super::pieces;
use crate::log::{Edit, OPERATION_HEADER_BYTES, Operation};
use crate::memtable::Memtable;
use crate::tree::{FreePages, PAGE_BYTES, VALUE_INLINE_MAX, overflow_pages};

/// Pages that any checkpoint takes for leaves and branches of catalog and space map, regardless of the file's size.
const FIXED_PAGES: u64 = 32;
/// Pages that a deleted range may rewrite in addition to the leaves at its ends: the branches above both, and
/// neighbours of pages that are too empty. Enough for trees of fewer than twelve levels; a tree of 2^32 pages has five.
const RANGE_PAGES: u64 = 20;
/// Pages of each further piece of a checkpoint for catalog and space map, with the pages on which two pieces meet.
const PIECE_PAGES: u64 = 16;
/// For this many pages of the file a checkpoint may rewrite one page of the space map. (A map page covers 32,576 pages; the bound
/// includes the old page, the new one and a directory.)
const PAGES_PER_MAP_PAGE: u64 = 8192;

/// Changes, counted for an upper bound of the pages for merging them into the trees.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Need {
    /// Distinct keys.
    pub(crate) keys: u64,
    /// Bytes of keys and of values inside leaves, with a header for each.
    leaf_bytes: u64,
    /// Number of deleted ranges.
    ranges: u64,
    /// Pages of values with pages of their own.
    overflow_pages: u64,
    /// Of these, pages of values with several, which must be adjacent.
    adjacent_pages: u64,
}

impl Need {
    /// The changes of a memtable without deleted ranges.
    pub(in crate::engine) fn of(table: &Memtable) -> Need {
        let mut need = Need::default();
        for change in table.changes() {
            let edit = change.entry.value.map_or(Edit::Delete, Edit::Put);
            need.add(&Operation { tree: change.tree.0, key: change.entry.key, edit });
        }
        need.keys = table.len() as u64;
        need
    }

    /// Adds one operation, except for its keys: only the caller knows whether they are new.
    pub(crate) fn add(&mut self, operation: &Operation<'_>) {
        let value_len = operation.edit.bytes().len();
        let own_pages = match operation.edit {
            Edit::Put(_) if value_len > VALUE_INLINE_MAX => u64::from(overflow_pages(value_len)),
            Edit::Put(_) | Edit::Delete | Edit::DeleteRange { .. } => 0,
        };
        let in_leaf = if own_pages > 0 { 0 } else { value_len };
        self.and(Need {
            keys: 0,
            leaf_bytes: (OPERATION_HEADER_BYTES + operation.key.len() + in_leaf) as u64,
            ranges: u64::from(matches!(operation.edit, Edit::DeleteRange { .. })),
            overflow_pages: own_pages,
            adjacent_pages: if own_pages > 1 { own_pages } else { 0 },
        });
    }

    /// Adds other changes.
    pub(crate) fn and(&mut self, other: Need) {
        self.keys += other.keys;
        self.leaf_bytes += other.leaf_bytes;
        self.ranges += other.ranges;
        self.overflow_pages += other.overflow_pages;
        self.adjacent_pages += other.adjacent_pages;
    }

    /// Takes back what was added before.
    pub(crate) fn without(&mut self, other: Need) {
        self.keys -= other.keys;
        self.leaf_bytes -= other.leaf_bytes;
        self.ranges -= other.ranges;
        self.overflow_pages -= other.overflow_pages;
        self.adjacent_pages -= other.adjacent_pages;
    }

    /// Maximum number of pages, if the trees have `live` pages before.
    ///
    /// Each key touches one leaf, and no more leaves can be touched than exist. Apart from added bytes, a touched leaf becomes
    /// at most two leaves, or three together with an untouched neighbour; the more leaves are touched, the fewer are untouched.
    /// A leaf is at least half full unless it was cut because of a neighbour that does not fit. Branches have at least three
    /// children, so there are at most half as many as leaves. Each piece of the merge rewrites catalog and space map.
    pub(crate) fn pages(&self, live: u64) -> FreePages {
        if self.keys == 0 {
            return FreePages::default();
        }
        let touched = (3 * self.keys).min(self.keys.min(live) + live);
        let leaves = touched + 2 * self.leaf_bytes / PAGE_BYTES as u64 + 2;
        let bytes = self.leaf_bytes + self.overflow_pages * PAGE_BYTES as u64;
        let pieces = pieces::count_most(self.keys, bytes);
        let fixed = empty_pages(0) + (pieces - 1) * PIECE_PAGES + pieces * (live / PAGES_PER_MAP_PAGE);
        let all = leaves + leaves / 2 + self.overflow_pages + RANGE_PAGES * self.ranges + fixed;
        FreePages { all, adjacent: self.adjacent_pages }
    }
}

/// Maximum number of pages of a checkpoint that merges nothing.
pub(super) fn empty_pages(live: u64) -> u64 {
    FIXED_PAGES + live / PAGES_PER_MAP_PAGE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::{RngExt, SeedableRng, rngs::SmallRng};

    use super::*;
    use crate::base::key::{TreeId, Version};
    use crate::disk::MemoryDisk;
    use crate::log::LogPosition;
    use crate::tree::{Pace, TreeFile};

    const TREE: TreeId = TreeId(1);
    const NAME: &str = "tree";

    #[test]
    fn a_need_grows_with_keys_up_to_the_trees_and_with_bytes_without_end() {
        let need = |keys, leaf_bytes| Need { keys, leaf_bytes, ..Need::default() };
        let pages = |need: Need, live| need.pages(live).all;
        assert_eq!(pages(need(0, 0), 1000), 0);
        let few = pages(need(10, 1000), 1000);
        assert!((30..120).contains(&few), "{few}");
        assert_eq!(pages(need(20_000, 0), 1000), pages(need(90_000, 0), 1000));
        assert!(pages(need(10, 10 << 20), 1) >= 3 * (10 << 20) / 4096);
        let long = Need { keys: 1, overflow_pages: 73, adjacent_pages: 70, ..Need::default() }.pages(5);
        assert!(long.all >= pages(need(1, 0), 5) + 73 && long.adjacent == 70, "{long:?}");
    }

    /// Merges random changes in pieces, with every page that an earlier piece frees kept by a view. Returns the pages that it
    /// took, and the bound.
    fn taken_and_bound(rng: &mut SmallRng, file: &TreeFile, changes: u32, keys: u32, longest: usize) -> (u64, u64) {
        let mut newest = BTreeMap::new();
        let mut need = Need::default();
        for _ in 0..changes {
            let key = rng.random_range(0..keys).to_be_bytes();
            let value = match rng.random_range(0..10) {
                0..3 => None,
                3 => Some(vec![1; rng.random_range(0..longest)]),
                _ => Some(vec![2; rng.random_range(0..longest / 10)]),
            };
            let edit = value.as_deref().map_or(Edit::Delete, Edit::Put);
            need.add(&Operation { tree: TREE.0, key: &key, edit });
            newest.insert(key, value);
        }
        need.keys = newest.len() as u64;
        let bound = need.pages(file.live_pages().into()).all;
        let held = file.view();
        let pages = || file.space_stat().pages - file.space_stat().free;
        let mut taken = 0;
        let entries: Vec<_> = newest.iter().collect();
        let pieces = rng.random_range(1..=pieces::count_most(need.keys, 0).min(4) as usize);
        for piece in entries.chunks(entries.len().div_ceil(pieces)) {
            let mut writer = file.begin(no_pace()).expect("no other writer");
            let piece = piece.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
            // Pages that wait are released by `begin`, so those in use only grow until the end.
            let before = pages();
            writer.merge(TREE, piece).expect("a memory disk");
            writer.finish(Version(1), LogPosition::default()).expect("a memory disk");
            taken += pages() - before;
        }
        drop(held);
        (taken, bound)
    }

    fn no_pace() -> Pace {
        Box::new(|_, _, _| Ok(()))
    }

    #[test]
    fn no_merge_of_random_changes_takes_more_pages_than_its_bound() {
        for seed in 0..10 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let disk = MemoryDisk::new(256 << 20);
            TreeFile::create(&disk, NAME, Version(0), LogPosition::default()).unwrap();
            let file = TreeFile::open(&disk, NAME, 256 << 20).unwrap().choose(0).unwrap();
            for round in 0..12 {
                let (changes, keys) = (rng.random_range(1..600), rng.random_range(1..4000));
                let longest = [20, 600, 3000, 20_000][rng.random_range(0..4)];
                let (taken, bound) = taken_and_bound(&mut rng, &file, changes, keys, longest);
                assert!(taken <= bound, "seed {seed}, round {round}: {taken} pages, {bound} are the bound");
            }
        }
    }
}
