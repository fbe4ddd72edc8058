//! A view: one consistent, unchanging state of all trees.

use std::sync::Arc;

use super::catalog::Trees;
use crate::base::error::StoreError;
use crate::base::key::TreeId;
use crate::base::prefetch::prefetch_all;
use crate::tree::format::meta::Meta;
use crate::tree::format::node::Stored;
use crate::tree::format::page::{Damage, PAGE_BYTES, PageNo};
use crate::tree::format::root::Root;
use crate::tree::state::held::Hold;
use crate::tree::state::shared::Shared;

/// All trees as of one checkpoint. Its pages are not written again before its last `Arc` is dropped, so the slices that
/// it returns stay valid.
pub struct TreeView {
    shared: Arc<Shared>,
    meta: Meta,
    trees: Trees,
    /// Dropped last.
    _hold: Hold,
}

/// Information about a tree that needs no page reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeInfo {
    /// Its id.
    pub tree: TreeId,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its entries.
    pub entries: u64,
    /// Levels of pages: 0 for an empty tree, 1 for a single leaf.
    pub depth: u32,
}

/// A value, and, if it is inside its leaf, its offset in the file.
pub(crate) type Found<'v> = (&'v [u8], Option<u64>);

impl TreeView {
    pub(in crate::tree) fn new(shared: Arc<Shared>, meta: Meta, trees: Trees, hold: Hold) -> TreeView {
        TreeView { shared, meta, trees, _hold: hold }
    }

    /// The meta page of this state.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    pub(in crate::tree) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(in crate::tree) fn trees(&self) -> &Trees {
        &self.trees
    }

    /// Number of pages that the disk has failed to read so far; see [`TreeView::check_lost`].
    #[inline]
    pub(crate) fn lost(&self) -> u64 {
        self.shared.lost()
    }

    /// Returns an error if pages were lost since `before`: reads since then may have returned zeros.
    #[inline]
    pub(crate) fn check_lost(&self, before: u64) -> Result<(), StoreError> {
        self.shared.check_lost(before)
    }

    #[inline]
    pub(in crate::tree) fn root(&self, tree: TreeId) -> Root {
        self.trees.root(tree.0)
    }

    /// The trees that are named or not empty, by id.
    pub fn list(&self) -> impl Iterator<Item = TreeInfo> + '_ {
        self.trees.ids().filter_map(|id| {
            let (root, name) = (self.trees.root(id), self.trees.name(id));
            let depth = if root.page == PageNo::NONE { 0 } else { u32::from(root.level) + 1 };
            let is_there = depth > 0 || name.is_some();
            let info = TreeInfo { tree: TreeId(id), name: name.map(str::to_string), entries: root.entries, depth };
            is_there.then_some(info)
        })
    }

    /// Entries of a tree.
    pub fn entries(&self, tree: TreeId) -> u64 {
        self.root(tree).entries
    }

    /// The value of a key, as a slice of the map.
    #[inline]
    pub fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<&[u8]>, StoreError> {
        Ok(self.find(tree, key, usize::MAX)?.map(|(value, _)| value))
    }

    /// The bytes of a value at a place that [`TreeView::find`] returned.
    #[inline]
    pub(crate) fn value_at(&self, offset: u64, len: usize) -> Result<&[u8], StoreError> {
        let place = PageNo((offset / PAGE_BYTES as u64) as u32);
        self.shared.check_once(place)?;
        let beyond = || self.shared.damage(place, Damage("a remembered place beyond the file"));
        let value = self.shared.bytes(offset, len).ok_or_else(beyond)?;
        prefetch_all(value);
        Ok(value)
    }

    /// The value of a key, and, if it is inside its leaf, its offset in the file. [`StoreError::NotInMemory`] if the
    /// checksum of a value of over `check_max` bytes would have to be computed.
    #[inline]
    pub(crate) fn find(&self, tree: TreeId, key: &[u8], check_max: usize) -> Result<Option<Found<'_>>, StoreError> {
        match self.leaf_of(tree, key)? {
            PageNo::NONE => Ok(None),
            place => self.find_in(place, key, check_max),
        }
    }

    /// The leaf in which a key must be, with its first lines prefetched; `PageNo::NONE` in an empty tree.
    #[inline]
    pub(crate) fn leaf_of(&self, tree: TreeId, key: &[u8]) -> Result<PageNo, StoreError> {
        let Root { page: mut place, mut level, .. } = self.root(tree);
        if place == PageNo::NONE {
            return Ok(place);
        }
        let shared = &*self.shared;
        while level > 0 {
            let branch = shared.node(place, level)?;
            let child = branch.child_for(key).and_then(|index| branch.child(index));
            place = child.map_err(|damage| shared.damage(place, damage))?;
            level -= 1;
        }
        shared.prefetch(place);
        Ok(place)
    }

    /// Prefetches the first lines of a leaf.
    #[inline]
    pub(crate) fn fetch_leaf(&self, place: PageNo) {
        self.shared.prefetch(place);
    }

    /// The rank in this leaf of the first entry from `from` on, searched if it is not known; prefetches the entries there.
    /// `None` if the leaf has no such entry.
    #[inline]
    pub(crate) fn begin_in(
        &self,
        place: PageNo,
        from: &[u8],
        known: Option<usize>,
    ) -> Result<Option<usize>, StoreError> {
        let shared = &*self.shared;
        let leaf = shared.node(place, 0)?;
        let rank = known.map_or_else(|| leaf.rank(from).map(|(rank, _)| rank), Ok);
        let rank = rank.map_err(|damage| shared.damage(place, damage))?;
        if rank >= leaf.count() {
            return Ok(None);
        }
        leaf.prefetch_entries(rank);
        Ok(Some(rank))
    }

    /// Like [`TreeView::find`], in the leaf that [`TreeView::leaf_of`] returned.
    #[inline]
    pub(crate) fn find_in(&self, place: PageNo, key: &[u8], check_max: usize) -> Result<Option<Found<'_>>, StoreError> {
        let shared = &*self.shared;
        let leaf = shared.node(place, 0)?;
        let found = match leaf.rank(key) {
            Ok((_, false)) => return Ok(None),
            Ok((index, true)) => leaf.stored(index),
            Err(damage) => Err(damage),
        };
        match found.map_err(|damage| shared.damage(place, damage))? {
            Stored::Inline(value) => {
                prefetch_all(value);
                let inside = leaf.offset_of(value);
                Ok(Some((value, inside.map(|inside| place.offset() + inside))))
            }
            Stored::Overflow(place) => Ok(Some((shared.overflow_unless_long(place, check_max)?, None))),
        }
    }
}
