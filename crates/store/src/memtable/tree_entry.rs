//! One tree's entry in the memtable's directory: its root and its newest version.

#![allow(unsafe_code)] // `Lined` is unsafe: the arena relies on a promise that the compiler cannot check.

use super::arena::{AtomicRef, Lined};
use super::node::Node;
use crate::base::sync::atomic::{AtomicU32, AtomicU64};

/// See the module's documentation. Only the writer changes it.
#[repr(C, align(64))]
pub(super) struct TreeEntry {
    /// Root of the tree.
    pub(super) root: AtomicRef<Node>,
    /// The next entry of the directory's chain.
    pub(super) next: AtomicRef<TreeEntry>,
    /// The tree's id.
    pub(super) id: AtomicU32,
    /// Levels of nodes.
    pub(super) height: AtomicU32,
    /// The newest version that changed the tree.
    pub(super) newest: AtomicU64,
}

// SAFETY: it consists of atomics; a zeroed entry has no tree and no next entry.
unsafe impl Lined for TreeEntry {}
