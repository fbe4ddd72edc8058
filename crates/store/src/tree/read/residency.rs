//! Whether a lookup would have to wait for the disk. The check descends to a leaf, and before it reads a page it checks
//! that the page is in memory, except for the upper branches. A scan's cursor has its own check.

use super::direct::{Lack, LastPages, Pages};
use super::view::TreeView;
use crate::base::error::StoreError;
use crate::base::key::TreeId;
use crate::tree::format::node::{OverflowRef, Stored};
use crate::tree::format::page::{self, HEADER_BYTES, PAGE_BYTES, PageNo};
use crate::tree::state::shared::Shared;

/// From this level on (leaves are level 0) branches are assumed to be in memory.
const LEVEL_NEVER_ASKED: u8 = 2;

impl Shared {
    /// Whether the overflow pages of a value, or the first ones of a long value, are in memory.
    pub(super) fn is_overflow_resident(&self, value: &OverflowRef) -> bool {
        let bytes = page::overflow_pages(value.len as usize) as usize * PAGE_BYTES - HEADER_BYTES;
        self.is_resident(value.start, bytes)
    }
}

impl TreeView {
    /// The first page that [`TreeView::get`] of this key would wait for.
    pub(crate) fn lack(&self, tree: TreeId, key: &[u8]) -> Result<Lack, StoreError> {
        let shared: &Shared = self.shared();
        let root = self.root(tree);
        let mut place = root.page;
        if place == PageNo::NONE {
            return Ok(Lack::Nothing);
        }
        for level in (1..=root.level).rev() {
            // A page at this level or above leads to tens of thousands of leaves. Nearly every read uses it, so the
            // kernel evicts it last, and checking it would be most of the cost.
            if level < LEVEL_NEVER_ASKED && !shared.is_resident(place, PAGE_BYTES) {
                return Ok(Lack::Branch);
            }
            let branch = shared.node(place, level)?;
            let child = branch.child_for(key).and_then(|index| branch.child(index));
            place = child.map_err(|damage| shared.damage(place, damage))?;
        }
        if !shared.is_resident(place, PAGE_BYTES) {
            return Ok(Lack::LastPages(LastPages(Pages::Leaf(place))));
        }
        let leaf = shared.node(place, 0)?;
        let stored = match leaf.rank(key) {
            Ok((index, true)) => leaf.stored(index),
            Ok((_, false)) => return Ok(Lack::Nothing),
            Err(damage) => Err(damage),
        };
        match stored.map_err(|damage| shared.damage(place, damage))? {
            Stored::Overflow(value) if !shared.is_overflow_resident(&value) => {
                Ok(Lack::LastPages(LastPages(Pages::Value(value))))
            }
            _ => Ok(Lack::Nothing),
        }
    }
}
