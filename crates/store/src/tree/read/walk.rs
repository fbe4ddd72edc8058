//! The traversal of leaves that cursors, readers of entries and the catalog use.
//!
//! The path from the root is kept as page numbers and child indexes. So a step inside a leaf touches only the leaf, and
//! a step to the next leaf the branch above it. Nothing is allocated after the first entry.
//!
//! A walk may also begin in a known leaf ([`Beginning`]). Its path is searched only when the walk leaves that leaf,
//! which most short ranges never do.

use std::ops::Bound;

use crate::base::error::StoreError;
use crate::base::key::Direction;
use crate::tree::format::node::{Node, Stored};
use crate::tree::format::page::{Damage, LEVEL_MAX, PAGE_BYTES, PageNo};
use crate::tree::format::root::Root;
use crate::tree::state::shared::Shared;

/// Buffer for the keys of most entries, allocated at once; longer keys enlarge it.
const KEY_BYTES_USUAL: usize = 128;
/// Maximum number of branches on a path.
const PATH_MAX: usize = LEVEL_MAX as usize;

#[derive(Clone, Copy, Default)]
struct Step {
    branch: PageNo,
    child: u32,
}

/// The beginning of a range: the leaf and the rank of its first entry. Valid for one state of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub(crate) leaf: PageNo,
    pub(crate) rank: usize,
}

/// See the module's text.
pub(in crate::tree) struct Walk<'v> {
    shared: &'v Shared,
    root: Root,
    /// Compute the checksum of each page, even if it was found sound before.
    checked: bool,
    /// Return an error for a page that is not in memory.
    is_asking: bool,
    /// `path[l]` is the branch of level l + 1 above the leaf.
    path: [Step; PATH_MAX],
    /// The walk began in a known leaf, so `path` is not set.
    lacks_path: bool,
    leaf: Option<(PageNo, Node<'v>)>,
    index: usize,
    key: Vec<u8>,
    stored: Stored<'v>,
}

impl<'v> Walk<'v> {
    pub(in crate::tree) fn new(shared: &'v Shared, root: Root, checked: bool) -> Walk<'v> {
        Walk {
            shared,
            root,
            checked,
            is_asking: false,
            path: [Step::default(); PATH_MAX],
            lacks_path: false,
            leaf: None,
            index: 0,
            key: Vec::new(),
            stored: Stored::Inline(&[]),
        }
    }

    #[inline]
    pub(in crate::tree) fn is_valid(&self) -> bool {
        self.leaf.is_some()
    }

    #[inline]
    pub(in crate::tree) fn key(&self) -> &[u8] {
        &self.key
    }

    /// From now on a page that is not in memory is refused with [`StoreError::NotInMemory`].
    pub(super) fn ask(&mut self) {
        self.is_asking = true;
    }

    /// The value of the current entry.
    #[inline]
    pub(super) fn value(&self) -> Result<&'v [u8], StoreError> {
        match self.stored {
            Stored::Inline(value) => Ok(value),
            Stored::Overflow(place) => self.shared.overflow(place, false),
        }
    }

    pub(in crate::tree) fn stored(&self) -> Stored<'v> {
        self.stored
    }

    pub(super) fn leaf_page(&self) -> PageNo {
        self.leaf.map_or(PageNo::NONE, |(page, _)| page)
    }

    fn node(&self, place: PageNo, level: u8) -> Result<Node<'v>, StoreError> {
        if self.is_asking && !self.shared.is_resident(place, PAGE_BYTES) {
            return Err(StoreError::NotInMemory);
        }
        if self.checked { self.shared.checked_node(place, level) } else { self.shared.node(place, level) }
    }

    /// Descends to the leaf where a scan from this bound begins, on no entry yet; false in an empty tree.
    pub(super) fn start(&mut self, bound: Bound<&[u8]>, direction: Direction) -> Result<bool, StoreError> {
        let (root, level) = (self.root.page, self.root.level);
        match (bound, direction) {
            (Bound::Included(key) | Bound::Excluded(key), _) => {
                self.descend(root, level, |branch| branch.child_for(key))
            }
            (Bound::Unbounded, Direction::Forward) => self.descend(root, level, |_| Ok(0)),
            (Bound::Unbounded, Direction::Backward) => self.descend(root, level, |branch| Ok(branch.count())),
        }
    }

    /// Moves to the leaf where a range begins, on no entry yet.
    #[inline]
    pub(super) fn start_in(&mut self, beginning: Beginning) -> Result<(), StoreError> {
        self.leaf = None;
        self.prefetch(beginning.leaf);
        self.leaf = Some((beginning.leaf, self.node(beginning.leaf, 0)?));
        self.lacks_path = true;
        Ok(())
    }

    /// The current leaf and its place.
    #[inline]
    pub(super) fn leaf(&self) -> Option<(PageNo, Node<'v>)> {
        self.leaf
    }

    /// Moves to the next leaf of a scan, on no entry yet; false after the last.
    pub(super) fn turn_to_next(&mut self, direction: Direction) -> Result<bool, StoreError> {
        match direction {
            Direction::Forward => self.turn_forward(),
            Direction::Backward => self.turn_backward(),
        }
    }

    /// Moves to the first entry.
    pub(in crate::tree) fn first(&mut self) -> Result<(), StoreError> {
        if self.descend(self.root.page, self.root.level, |_| Ok(0))? {
            self.enter(0)?;
        }
        Ok(())
    }

    pub(super) fn last(&mut self) -> Result<(), StoreError> {
        if self.descend(self.root.page, self.root.level, |branch| Ok(branch.count()))? {
            self.enter_last()?;
        }
        Ok(())
    }

    /// Moves to the first entry at or above `key` (`or_equal`) or above it.
    pub(super) fn seek(&mut self, key: &[u8], or_equal: bool) -> Result<(), StoreError> {
        let Some(rank) = self.rank(key, or_equal)? else { return Ok(()) };
        if rank < self.leaf.map_or(0, |(_, leaf)| leaf.count()) { self.enter(rank) } else { self.next_leaf() }
    }

    /// Moves to the last entry at or below `key` (`or_equal`) or below it.
    pub(super) fn seek_back(&mut self, key: &[u8], or_equal: bool) -> Result<(), StoreError> {
        let Some(rank) = self.rank(key, !or_equal)? else { return Ok(()) };
        match rank.checked_sub(1) {
            Some(index) => self.enter(index),
            None => self.previous_leaf(),
        }
    }

    /// Number of entries of `key`'s leaf that are below it (or, unless `or_equal`, equal to it).
    fn rank(&mut self, key: &[u8], or_equal: bool) -> Result<Option<usize>, StoreError> {
        if !self.descend(self.root.page, self.root.level, |branch| branch.child_for(key))? {
            return Ok(None);
        }
        self.rank_in_leaf(key, or_equal).map(Some)
    }

    /// Number of entries of the leaf that are below `key` (or, unless `or_equal`, equal to it).
    #[inline]
    fn rank_in_leaf(&self, key: &[u8], or_equal: bool) -> Result<usize, StoreError> {
        let Some((place, leaf)) = self.leaf else { return Ok(0) };
        let (rank, found) = leaf.rank(key).map_err(|damage| self.shared.damage(place, damage))?;
        Ok(rank + usize::from(found && !or_equal))
    }

    /// Descends from a node to a leaf; false in an empty tree.
    fn descend(
        &mut self,
        mut place: PageNo,
        mut level: u8,
        choose: impl Fn(&Node<'v>) -> Result<usize, Damage>,
    ) -> Result<bool, StoreError> {
        self.leaf = None;
        self.lacks_path = false;
        if place == PageNo::NONE {
            return Ok(false);
        }
        while level > 0 {
            let branch = self.node(place, level)?;
            let chosen = choose(&branch).and_then(|index| Ok((index, branch.child(index)?)));
            let (index, child) = chosen.map_err(|damage| self.shared.damage(place, damage))?;
            self.path[usize::from(level) - 1] = Step { branch: place, child: index as u32 };
            place = child;
            level -= 1;
        }
        self.prefetch(place);
        self.leaf = Some((place, self.node(place, 0)?));
        Ok(true)
    }

    /// Prefetches a leaf's header together with its arrays, whose positions the header determines.
    #[inline]
    fn prefetch(&self, leaf: PageNo) {
        // A walk that must not wait does not touch a page before it has checked that it is in memory.
        if !self.is_asking {
            self.shared.prefetch(leaf);
        }
    }

    /// Finds the path to the leaf in which the walk began, by its first key.
    #[cold]
    fn find_path(&mut self) -> Result<(), StoreError> {
        let Some((place, leaf)) = self.leaf else { return Ok(()) };
        let mut key = Vec::new();
        leaf.key_into(0, &mut key).map_err(|damage| self.shared.damage(place, damage))?;
        self.descend(self.root.page, self.root.level, |branch| branch.child_for(&key))?;
        if self.leaf_page() == place {
            return Ok(());
        }
        self.leaf = None;
        Err(self.shared.damage(place, Damage("a leaf whose keys lead elsewhere")))
    }

    /// Makes entry `index` of the leaf the current one.
    #[inline]
    fn enter(&mut self, index: usize) -> Result<(), StoreError> {
        let Some((place, leaf)) = self.leaf else { return Ok(()) };
        if self.key.capacity() == 0 {
            self.key.reserve_exact(KEY_BYTES_USUAL);
        }
        self.key.clear();
        self.key.extend_from_slice(leaf.prefix());
        self.load(place, leaf, index)
    }

    /// Appends the entry's suffix to the prefix in `self.key`, and loads its value.
    #[inline]
    fn load(&mut self, place: PageNo, leaf: Node<'v>, index: usize) -> Result<(), StoreError> {
        self.index = index;
        match leaf.push_entry(index, &mut self.key) {
            Ok(stored) => self.stored = stored,
            Err(damage) => {
                self.leaf = None;
                return Err(self.shared.damage(place, damage));
            }
        }
        Ok(())
    }

    fn enter_last(&mut self) -> Result<(), StoreError> {
        self.enter(self.leaf.map_or(0, |(_, leaf)| leaf.count().saturating_sub(1)))
    }

    /// Moves to the next entry of the same leaf, if there is one.
    #[inline]
    fn next_in_leaf(&mut self) -> Result<bool, StoreError> {
        match self.leaf {
            Some((place, leaf)) if self.index + 1 < leaf.count() => {
                self.key.truncate(leaf.prefix().len());
                self.load(place, leaf, self.index + 1)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    #[inline]
    pub(in crate::tree) fn next(&mut self) -> Result<(), StoreError> {
        if self.next_in_leaf()? { Ok(()) } else { self.next_leaf() }
    }

    #[inline]
    pub(super) fn previous(&mut self) -> Result<(), StoreError> {
        match (self.leaf, self.index.checked_sub(1)) {
            (Some((place, leaf)), Some(index)) => {
                self.key.truncate(leaf.prefix().len());
                self.load(place, leaf, index)
            }
            _ => self.previous_leaf(),
        }
    }

    fn next_leaf(&mut self) -> Result<(), StoreError> {
        if self.turn_forward()? {
            self.enter(0)?;
        }
        Ok(())
    }

    fn previous_leaf(&mut self) -> Result<(), StoreError> {
        if self.turn_backward()? {
            self.enter_last()?;
        }
        Ok(())
    }

    fn turn_forward(&mut self) -> Result<bool, StoreError> {
        self.turn(|step, branch| (step.child as usize) < branch.count(), |child| child + 1, |_| 0)
    }

    fn turn_backward(&mut self) -> Result<bool, StoreError> {
        self.turn(|step, _| step.child > 0, |child| child - 1, Node::count)
    }

    /// Ascends to the first branch with a further child, moves to that child, and descends along its near edge; false at the end.
    fn turn(
        &mut self,
        has_more: impl Fn(&Step, &Node<'v>) -> bool,
        onward: impl Fn(u32) -> u32,
        edge: impl Fn(&Node<'v>) -> usize,
    ) -> Result<bool, StoreError> {
        if self.lacks_path {
            self.find_path()?;
        }
        if self.leaf.take().is_none() {
            return Ok(false);
        }
        for level in 1..=self.root.level {
            let step = &mut self.path[usize::from(level) - 1];
            let place = step.branch;
            if self.is_asking && !self.shared.is_resident(place, PAGE_BYTES) {
                return Err(StoreError::NotInMemory);
            }
            let branch =
                if self.checked { self.shared.checked_node(place, level) } else { self.shared.node(place, level) }?;
            if has_more(step, &branch) {
                step.child = onward(step.child);
                // A walk that must not wait does not prefetch: those pages may not be in memory.
                if level == 1 && !self.is_asking && has_more(step, &branch) {
                    let next = onward(step.child);
                    // Prefetches the cells of the leaf after this one, whose start was prefetched a leaf ago, and the
                    // start of the leaf after that: their cache and TLB misses overlap with the reading of this leaf.
                    if let Some(ahead) =
                        branch.child(next as usize).ok().and_then(|place| self.shared.node_to_fetch(place))
                    {
                        ahead.prefetch_cells();
                    }
                    if has_more(&Step { child: next, ..*step }, &branch)
                        && let Ok(ahead) = branch.child(onward(next) as usize)
                    {
                        self.shared.prefetch(ahead);
                    }
                }
                let child = branch.child(step.child as usize).map_err(|damage| self.shared.damage(place, damage))?;
                return self.descend(child, level - 1, |branch| Ok(edge(branch)));
            }
        }
        Ok(false)
    }
}
