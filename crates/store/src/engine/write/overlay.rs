//! The current state overlaid with the folded rows of a batch: the data that a fold may read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::{Bound, ControlFlow};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::fold::FoldView;
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Visit};
use crate::engine::read::view::View;
use crate::log::{Edit, Operation};

/// Indexes of rows by tree and key.
pub(super) type Ordered = Vec<(TreeId, BTreeMap<Vec<u8>, u32>)>;

/// The value of one key before and after the folds of a batch.
pub(super) struct Row {
    pub(super) tree: TreeId,
    pub(super) key: Vec<u8>,
    /// The value in memtables and trees.
    pub(super) old: Option<Vec<u8>>,
    pub(super) new: Option<Vec<u8>>,
}

impl Row {
    pub(super) fn is(&self, tree: TreeId, key: &[u8]) -> bool {
        self.tree == tree && self.key == key
    }

    pub(super) fn operation(&self) -> Operation<'_> {
        let edit = self.new.as_deref().map_or(Edit::Delete, Edit::Put);
        Operation { tree: self.tree.0, key: &self.key, edit }
    }
}

/// See the module's text.
pub(super) struct Overlay<'f> {
    pub(super) view: &'f dyn FoldView,
    pub(super) rows: &'f [Row],
    pub(super) index: &'f HashTable<u32>,
    pub(super) hasher: &'f DefaultHashBuilder,
    pub(super) ordered: &'f Ordered,
}

impl FoldView for View<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        View::get(self, tree, key)
    }

    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        View::scan(self, tree, range, direction, visit)
    }
}

impl FoldView for Overlay<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
        let hash = self.hasher.hash_one((tree, key));
        match self.index.find(hash, |at| self.rows[*at as usize].is(tree, key)) {
            Some(place) => Ok(self.rows[*place as usize].new.as_deref().map(Cow::Borrowed)),
            None => self.view.get(tree, key),
        }
    }

    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let folded = self.ordered.iter().find(|(of, _)| *of == tree).filter(|_| !is_empty(range));
        let Some((_, folded)) = folded else { return self.view.scan(tree, range, direction, visit) };
        let mut folded = Folded::of(folded, range, direction);
        let mut is_ended = false;
        self.view.scan(tree, range, direction, &mut |key, value| {
            let flow = match self.show_folded(&mut folded, Some(key), visit) {
                Shown::Continue(false) => visit(key, value),
                Shown::Continue(true) => ControlFlow::Continue(()),
                Shown::Break(()) => ControlFlow::Break(()),
            };
            is_ended = flow.is_break();
            flow
        })?;
        if !is_ended {
            let _ = self.show_folded(&mut folded, None, visit);
        }
        Ok(())
    }
}

/// `Break` if the visitor broke; otherwise whether a folded entry has replaced the tree's entry.
type Shown = ControlFlow<(), bool>;

impl Overlay<'_> {
    /// Visits the folded entries up to and including a key.
    fn show_folded(&self, folded: &mut Folded<'_>, until: Option<&[u8]>, visit: &mut Visit<'_>) -> Shown {
        while let Some((key, place)) = folded.peek() {
            let is_it = match until.map(|until| if folded.is_forward { key.cmp(until) } else { until.cmp(key) }) {
                Some(std::cmp::Ordering::Greater) => break,
                order => order == Some(std::cmp::Ordering::Equal),
            };
            folded.next();
            if let Some(value) = &self.rows[place as usize].new {
                visit(key, value)?;
            }
            if is_it {
                return Shown::Continue(true);
            }
        }
        Shown::Continue(false)
    }
}

/// Folded entries of a range in the scan's direction.
struct Folded<'k> {
    entries: std::collections::btree_map::Range<'k, Vec<u8>, u32>,
    is_forward: bool,
    next: Option<(&'k [u8], u32)>,
}

impl<'k> Folded<'k> {
    fn of(keys: &'k BTreeMap<Vec<u8>, u32>, range: KeyRange<'_>, direction: Direction) -> Folded<'k> {
        let entries = keys.range::<[u8], _>((range.from, range.to));
        let mut folded = Folded { entries, is_forward: direction == Direction::Forward, next: None };
        folded.next();
        folded
    }

    fn peek(&self) -> Option<(&'k [u8], u32)> {
        self.next
    }

    fn next(&mut self) {
        let next = if self.is_forward { self.entries.next() } else { self.entries.next_back() };
        self.next = next.map(|(key, place)| (key.as_slice(), *place));
    }
}

/// `BTreeMap::range` panics for such a range.
fn is_empty(range: KeyRange<'_>) -> bool {
    match (range.from, range.to) {
        (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from > to,
        _ => false,
    }
}
