//! The traversal of leaves that all readers of entries use.
//!
//! The path from the root is kept as page numbers and child indexes, so a step to the next leaf touches only the branch above it.
//! Nothing is allocated.
//!
//! A walk may also begin in a known leaf ([`Beginning`]). Its path is searched only when the walk leaves that leaf,
//! which most short ranges never do.

use std::ops::Bound;

use crate::base::error::StoreError;
use crate::base::key::Direction;
use crate::tree::format::node::Node;
use crate::tree::format::page::{Damage, LEVEL_MAX, PAGE_BYTES, PageNo};
use crate::tree::format::root::Root;
use crate::tree::state::shared::Shared;

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
}

impl<'v> Walk<'v> {
    pub(in crate::tree) fn new(shared: &'v Shared, root: Root, checked: bool) -> Walk<'v> {
        let path = [Step::default(); PATH_MAX];
        Walk { shared, root, checked, is_asking: false, path, lacks_path: false, leaf: None }
    }

    /// From now on a page that is not in memory is refused with [`StoreError::NotInMemory`].
    pub(super) fn ask(&mut self) {
        self.is_asking = true;
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
            Direction::Forward => {
                self.turn(|step, branch| (step.child as usize) < branch.count(), |child| child + 1, |_| 0)
            }
            Direction::Backward => self.turn(|step, _| step.child > 0, |child| child - 1, Node::count),
        }
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
            if self.checked && level == 1 {
                self.shared.read_ahead((0..=branch.count()).filter_map(|index| branch.child(index).ok()));
            }
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
        if self.leaf.is_some_and(|(found, _)| found == place) {
            return Ok(());
        }
        self.leaf = None;
        Err(self.shared.damage(place, Damage("a leaf whose keys lead elsewhere")))
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
            // Its checksum was computed on the way down.
            let branch = self.shared.node(place, level)?;
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
