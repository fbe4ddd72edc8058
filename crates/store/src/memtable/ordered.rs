//! Ordered index of a memtable: a B+tree for each tree, changed in place by one writer under readers that retry.
//!
//! A descent reads a node between two loads of its `seq`, and loads the child's `seq` before the second load of the
//! parent's. The writer splits from the top down, changing parent and child under both locks. So a child whose parent
//! did not change in between covers the key sought; a reader that meets a change restarts at the root.
//!
//! Leaves are read into a [`Batch`], whole or from a key on. Records added to a leaf later have higher versions, so a snapshot does
//! not see them, and fences do not move. So a batch stays valid for its snapshot, and its `next` leads to the following keys,
//! whatever the writer does meanwhile.

use super::arena::{Arena, Fill, KeyRef};
use super::node::{NODE_ENTRIES, Node, NodeRef, Past};
use super::tree_entry::TreeEntry;
use crate::base::key::Direction;
use crate::base::sync::atomic::Ordering;

/// Target of a descent.
#[derive(Clone, Copy)]
pub(super) enum Target<'k> {
    /// The first leaf.
    First,
    /// The last leaf.
    Last,
    /// The leaf between whose fences the key belongs.
    At(&'k [u8]),
    /// The leaf with the greatest keys below the key.
    Below(&'k [u8]),
}

/// A leaf as it was at one moment.
pub(super) struct Batch {
    keys: [Option<KeyRef>; NODE_ENTRIES],
    /// Number of keys.
    pub(super) count: usize,
    /// Its lower fence.
    pub(super) low: Option<KeyRef>,
    /// The next leaf.
    pub(super) next: Option<NodeRef>,
}

impl Batch {
    pub(super) fn empty() -> Batch {
        Batch { keys: [None; NODE_ENTRIES], count: 0, low: None, next: None }
    }

    #[inline]
    pub(super) fn key(&self, at: usize) -> Option<KeyRef> {
        self.keys[..self.count].get(at).copied().flatten()
    }

    /// Reads the current content of a leaf, of its keys the numbers `from..to`; valid if the leaf proves unchanged.
    fn copy(&mut self, leaf: &Node, (from, to): (usize, usize)) {
        self.count = leaf.copy_keys((from, to), &mut self.keys);
        self.low = leaf.low();
        self.next = leaf.next();
    }

    /// Reads a leaf.
    pub(super) fn read(&mut self, arena: &Arena, place: NodeRef) {
        let leaf = arena.get(place);
        loop {
            let seq = leaf.begin();
            self.copy(leaf, (0, NODE_ENTRIES));
            if leaf.unchanged(seq) {
                return;
            }
        }
    }

    /// Reads the leaf that `target` leads to; returns the number of keys that the search skips. A scan backward may ask for these
    /// only, a scan forward only for the others.
    pub(super) fn seek(
        &mut self,
        arena: &Arena,
        tree: &TreeEntry,
        (target, past): (Target<'_>, Past),
        direction: Direction,
    ) -> Option<usize> {
        loop {
            let (leaf, seq) = descend(arena, tree, target)?;
            let at = match target {
                Target::First => Ok(0),
                Target::Last => Ok(leaf.shape().count),
                Target::At(key) | Target::Below(key) => leaf.search(arena, 0, key, past),
            };
            let Ok(at) = at else { continue };
            let wanted = match direction {
                Direction::Forward => (at, NODE_ENTRIES),
                Direction::Backward => (0, at),
            };
            self.copy(leaf, wanted);
            if leaf.unchanged(seq) {
                return Some(at);
            }
        }
    }
}

/// The child of a branch that leads to the target.
fn pick(arena: &Arena, branch: &Node, target: Target<'_>) -> Option<NodeRef> {
    let behind = match target {
        Target::First => 1,
        Target::Last => branch.shape().count,
        Target::At(key) => branch.search(arena, 1, key, Past::LessOrEqual).ok()?,
        Target::Below(key) => branch.search(arena, 1, key, Past::Less).ok()?,
    };
    branch.child(behind.checked_sub(1)?)
}

/// The leaf and its `seq`. `None` while the tree has no node.
fn descend<'a>(arena: &'a Arena, tree: &TreeEntry, target: Target<'_>) -> Option<(&'a Node, u32)> {
    'restart: loop {
        let root = tree.root.load()?;
        let mut node = arena.get(root);
        let mut seq = node.begin();
        // A root that was split meanwhile is only a part of the tree; the new root is set before the old one's unlock.
        if tree.root.load() != Some(root) {
            continue;
        }
        while node.shape().level > 0 {
            let child = pick(arena, node, target);
            if let Some(child) = child {
                arena.get(child).prefetch();
            }
            let below = child.map(|child| arena.get(child)).map(|child| (child, child.begin()));
            match below {
                Some((child, child_seq)) if node.unchanged(seq) => (node, seq) = (child, child_seq),
                _ => continue 'restart,
            }
        }
        return Some((node, seq));
    }
}

/// Maximum number of nodes for inserting one key into a tree: a split on each level, and a new root.
pub(super) fn nodes_for_one_key(tree: Option<&TreeEntry>) -> usize {
    tree.map_or(0, |tree| tree.height.load(Ordering::Relaxed) as usize) + 1
}

/// Number of nodes for inserting this key: each full node on its path is split, a full root gets a parent. Writer only.
pub(super) fn nodes_for(arena: &Arena, tree: Option<&TreeEntry>, key: &[u8]) -> usize {
    let Some(root) = tree.and_then(|tree| tree.root.load()) else { return 1 };
    let mut node = arena.get(root);
    let is_full = |node: &Node| usize::from(node.shape().count == NODE_ENTRIES);
    let mut nodes = is_full(node);
    loop {
        nodes += is_full(node);
        let child = if node.shape().level > 0 { node.child(search(arena, node, 1, key) - 1) } else { None };
        match child {
            Some(child) => node = arena.get(child),
            None => return nodes,
        }
    }
}

/// Inserts a new key into its tree; returns the number of nodes added. Writer only; the arena has room for [`nodes_for`].
pub(super) fn put(arena: &Arena, fill: &mut Fill, tree: &TreeEntry, key: KeyRef) -> Option<usize> {
    let bytes = arena.key(key).bytes;
    let free = fill.free_bytes();
    let mut node = root_with_room(arena, fill, tree)?;
    while node.shape().level > 0 {
        let at = search(arena, node, 1, bytes) - 1;
        let child = node.child(at)?;
        arena.get(child).prefetch();
        let full = arena.get(child).shape().count == NODE_ENTRIES;
        node = if full { split(arena, fill, node, at, child, key)? } else { arena.get(child) };
    }
    node.put_key(search(arena, node, 0, bytes), bytes, key);
    Some((free - fill.free_bytes()) / size_of::<Node>())
}

fn search(arena: &Arena, node: &Node, from: usize, key: &[u8]) -> usize {
    node.search(arena, from, key, Past::LessOrEqual).expect("nothing changes under the one writer")
}

/// The root; if it was full, a new one above it.
fn root_with_room<'a>(arena: &'a Arena, fill: &mut Fill, tree: &TreeEntry) -> Option<&'a Node> {
    let Some(place) = tree.root.load() else {
        let leaf = fill.push::<Node>()?;
        tree.root.store(Some(leaf));
        tree.height.store(1, Ordering::Relaxed);
        return Some(arena.get(leaf));
    };
    let root = arena.get(place);
    let shape = root.shape();
    if shape.count < NODE_ENTRIES {
        return Some(root);
    }
    let above = fill.push::<Node>()?;
    arena.get(above).start_branch(shape.level + 1, place);
    // The old root is still complete: readers may start at either.
    tree.root.store(Some(above));
    tree.height.store(shape.level + 2, Ordering::Relaxed);
    Some(arena.get(above))
}

/// Splits the full node `child`, entry `at` of `parent`; returns the half to which `key` belongs.
fn split<'a>(
    arena: &'a Arena,
    fill: &mut Fill,
    parent: &Node,
    at: usize,
    child: NodeRef,
    key: KeyRef,
) -> Option<&'a Node> {
    let left = arena.get(child);
    let bytes = arena.key(key).bytes;
    let place = fill.push::<Node>()?;
    // Ascending keys leave full leaves behind, instead of half-full ones.
    let last_leaf = left.shape().level == 0 && left.next().is_none();
    let in_order = last_leaf && search(arena, left, 0, bytes) == NODE_ENTRIES;
    let low = parent.change(|parent| {
        let low = left.change(|left| match in_order {
            true => left.start_right(arena, key, place),
            false => left.split_off(arena, NODE_ENTRIES / 2, place),
        })?;
        parent.put_child(at + 1, arena.key(low).bytes, place);
        Some(low)
    })?;
    Some(arena.get(if bytes >= arena.key(low).bytes { place } else { child }))
}
