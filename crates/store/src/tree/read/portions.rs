//! Estimates from a tree's upper pages: keys that divide it into even parts, and the number of entries in a range.
//!
//! Branches do not count their entries, so leaves are assumed to be equally full. Both queries read few pages.

use std::ops::Bound;

use super::view::TreeView;
use crate::base::error::StoreError;
use crate::base::key::{KeyRange, TreeId};
use crate::tree::format::node::Node;
use crate::tree::format::page::{Damage, PageNo};

/// Maximum number of pages read to divide a tree.
const CUT_PAGES_MAX: usize = 512;

/// The position of a key in a tree.
struct Standing {
    /// The share of the tree's entries before it.
    share: f64,
    leaf: PageNo,
    /// Entries of the leaf before it.
    rank: usize,
}

/// A page, and the key at which it begins, if that is inside the range.
struct Child {
    start: Option<Vec<u8>>,
    place: PageNo,
}

impl TreeView {
    /// Keys, in order, that divide a range into up to `count` parts with about as many leaves each.
    pub(crate) fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let root = self.root(tree);
        let mut pages = vec![Child { start: None, place: root.page }];
        for level in (1..=root.level).rev() {
            let mut below = Vec::new();
            for page in pages {
                let branch = self.shared().node(page.place, level)?;
                let place = page.place;
                children(&branch, page.start, range, &mut below)
                    .map_err(|damage| self.shared().damage(place, damage))?;
            }
            pages = below;
            if pages.len() >= count || pages.len() > CUT_PAGES_MAX {
                break;
            }
        }
        let keys: Vec<Vec<u8>> = pages.into_iter().filter_map(|page| page.start).collect();
        let wanted = count.saturating_sub(1);
        if keys.len() <= wanted {
            return Ok(keys);
        }
        Ok((1..=wanted).map(|number| keys[number * keys.len() / (wanted + 1)].clone()).collect())
    }

    /// Estimated number of entries in a range.
    pub(crate) fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<u64, StoreError> {
        let entries = self.entries(tree);
        if entries == 0 {
            return Ok(0);
        }
        // One entry more or less does not matter between two bounds.
        let at = |bound: Bound<&[u8]>| match bound {
            Bound::Unbounded => Ok(None),
            Bound::Included(key) | Bound::Excluded(key) => self.standing(tree, key).map(Some),
        };
        let (from, to) = (at(range.from)?, at(range.to)?);
        if let (Some(from), Some(to)) = (&from, &to)
            && from.leaf == to.leaf
        {
            return Ok(to.rank.saturating_sub(from.rank) as u64);
        }
        let share = to.map_or(1.0, |to| to.share) - from.map_or(0.0, |from| from.share);
        Ok((share.max(0.0) * entries as f64).ceil() as u64)
    }

    fn standing(&self, tree: TreeId, key: &[u8]) -> Result<Standing, StoreError> {
        let root = self.root(tree);
        let (mut place, mut share, mut width) = (root.page, 0.0, 1.0);
        for level in (1..=root.level).rev() {
            let branch = self.shared().node(place, level)?;
            let child = branch.child_for(key).and_then(|index| Ok((index, branch.child(index)?)));
            let (index, child) = child.map_err(|damage| self.shared().damage(place, damage))?;
            width /= (branch.count() + 1) as f64;
            share += width * index as f64;
            place = child;
        }
        let leaf = self.shared().node(place, 0)?;
        let (rank, _) = leaf.rank(key).map_err(|damage| self.shared().damage(place, damage))?;
        Ok(Standing { share: share + width * rank as f64 / leaf.count().max(1) as f64, leaf: place, rank })
    }
}

/// The children of a branch that may hold keys of the range. `start` is where the branch itself begins.
fn children(
    branch: &Node<'_>,
    mut start: Option<Vec<u8>>,
    range: KeyRange<'_>,
    below: &mut Vec<Child>,
) -> Result<(), Damage> {
    let first = match range.from {
        Bound::Unbounded => 0,
        Bound::Included(key) | Bound::Excluded(key) => branch.child_for(key)?,
    };
    for index in first..=branch.count() {
        if let Some(separator) = index.checked_sub(1).filter(|_| index > first) {
            let mut key = Vec::new();
            branch.key_into(separator, &mut key)?;
            if !range.is_below_end(&key) {
                break;
            }
            start = Some(key);
        }
        let start = start.take().filter(|start| range.is_above_start(start));
        below.push(Child { start, place: branch.child(index)? });
    }
    Ok(())
}
