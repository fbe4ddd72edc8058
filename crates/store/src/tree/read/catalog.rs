//! The catalog: the trees and the places of their roots.
//!
//! It is itself a tree, whose root is in the meta page. A row's key is the tree's id (u32, big-endian); its value:
//!
//! ```text
//!  0           4            5               13
//!  +-----------+------------+---------------+-------------------+
//!  | root page | root level | entries       | name, UTF-8       |
//!  | u32       | u8         | u64           | the rest          |
//!  +-----------+------------+---------------+-------------------+
//! ```

use std::sync::Arc;

use super::whole::WholeTree;
use crate::base::error::StoreError;
use crate::base::limits::TREES_MAX;
use crate::tree::format::node::Stored;
use crate::tree::format::page::{Damage, LEVEL_MAX, PageNo};
use crate::tree::format::root::Root;
use crate::tree::state::shared::Shared;

/// Bytes of a row before the name.
const ROW_BYTES: usize = 13;
/// Longest name of a tree.
pub(in crate::tree) const NAME_BYTES_MAX: usize = 512;

/// All trees of one view. A tree's index in the vectors is its id.
#[derive(Clone, Default)]
pub(in crate::tree) struct Trees {
    /// The hot part: a lookup reads one element.
    pub(super) roots: Vec<Root>,
    names: Vec<Option<Arc<str>>>,
}

impl Trees {
    pub(in crate::tree) fn root(&self, tree: u32) -> Root {
        self.roots.get(tree as usize).copied().unwrap_or_default()
    }

    pub(super) fn name(&self, tree: u32) -> Option<&str> {
        self.names.get(tree as usize)?.as_deref()
    }

    pub(in crate::tree) fn set_root(&mut self, tree: u32, root: Root) {
        let index = tree as usize;
        if self.roots.len() <= index {
            self.roots.resize(index + 1, Root::default());
        }
        self.roots[index] = root;
    }

    pub(in crate::tree) fn set_name(&mut self, tree: u32, name: Option<&str>) {
        let index = tree as usize;
        if self.names.len() <= index {
            self.names.resize(index + 1, None);
        }
        self.names[index] = name.map(Arc::from);
    }

    /// The ids of all trees that may have a row.
    pub(super) fn ids(&self) -> std::ops::Range<u32> {
        0..self.roots.len().max(self.names.len()) as u32
    }

    /// The row of a tree; `None` for an empty tree without a name.
    pub(in crate::tree) fn row(&self, tree: u32) -> Option<Vec<u8>> {
        let (root, name) = (self.root(tree), self.name(tree));
        if root.page == PageNo::NONE && name.is_none() {
            return None;
        }
        let mut row = Vec::with_capacity(ROW_BYTES + name.map_or(0, str::len));
        row.extend_from_slice(&root.page.0.to_le_bytes());
        row.push(root.level);
        row.extend_from_slice(&root.entries.to_le_bytes());
        row.extend_from_slice(name.unwrap_or_default().as_bytes());
        Some(row)
    }

    /// Adds the tree of a row.
    fn read_row(&mut self, key: &[u8], row: &[u8]) -> Option<()> {
        let tree = u32::from_be_bytes(*key.as_array()?);
        let (page, rest) = row.split_first_chunk()?;
        let (level, rest) = rest.split_first()?;
        let (entries, name) = rest.split_first_chunk()?;
        let root =
            Root { page: PageNo(u32::from_le_bytes(*page)), level: *level, entries: u64::from_le_bytes(*entries) };
        let name = std::str::from_utf8(name).ok()?;
        if tree >= TREES_MAX || root.level > LEVEL_MAX || name.len() > NAME_BYTES_MAX {
            return None;
        }
        self.set_root(tree, root);
        self.set_name(tree, (!name.is_empty()).then_some(name));
        Some(())
    }
}

/// Reads the catalog of a meta page; its pages are checked.
pub(in crate::tree) fn load(shared: &Shared, root: Root) -> Result<Trees, StoreError> {
    let mut trees = Trees::default();
    let mut rows = WholeTree::new(shared, root);
    while rows.advance()? {
        let damage = || shared.damage(rows.place(), Damage("catalog row of a wrong form"));
        let Stored::Inline(row) = rows.stored() else { return Err(damage()) };
        trees.read_row(rows.key(), row).ok_or_else(damage)?;
    }
    Ok(trees)
}
