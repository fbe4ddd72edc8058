//! States overlaid with changes that are not in them: a transaction's own, or the folded rows of a batch, which a fold reads.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::iter::Peekable;
use std::ops::ControlFlow;

use hashbrown::HashTable;

use super::fold::FoldView;
use crate::base::error::StoreError;
use crate::base::key::{Direction, KeyRange, TreeId, Visit};
use crate::base::sync::DefaultHashBuilder;
use crate::engine::read::view::View;
use crate::log::{Edit, Operation};

/// Places of changes of one tree, by key.
pub(super) type Ordered = BTreeMap<Vec<u8>, u32>;

/// Keys and places in a range, in the scan's order.
pub(super) fn in_range<'o>(
    ordered: &'o Ordered,
    range: KeyRange<'_>,
    direction: Direction,
) -> impl Iterator<Item = (&'o [u8], u32)> + use<'o> {
    let mut entries = (!range.is_empty()).then(|| ordered.range::<[u8], _>((range.from, range.to)));
    std::iter::from_fn(move || {
        let entries = entries.as_mut()?;
        let next = if direction == Direction::Forward { entries.next() } else { entries.next_back() };
        next.map(|(key, place)| (key.as_slice(), *place))
    })
}

/// Overlays a scan with changes, which come in the scan's order; a change without a value is a deletion.
pub(in crate::engine) struct Merge<'m, I: Iterator> {
    own: Peekable<I>,
    direction: Direction,
    visit: &'m mut Visit<'m>,
    /// The visitor broke.
    pub(super) is_ended: bool,
}

impl<'m, 'o, I: Iterator<Item = (&'o [u8], Option<&'o [u8]>)>> Merge<'m, I> {
    pub(in crate::engine) fn new(own: I, direction: Direction, visit: &'m mut Visit<'m>) -> Self {
        Merge { own: own.peekable(), direction, visit, is_ended: false }
    }

    fn show(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        let flow = (self.visit)(key, value);
        self.is_ended |= flow.is_break();
        flow
    }

    /// Takes the next entry of the state: shows the changes before it; a change of the same key replaces it.
    pub(in crate::engine) fn take(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        let is_forward = self.direction == Direction::Forward;
        while let Some((own, new)) = self.own.next_if(|(own, _)| if is_forward { *own <= key } else { *own >= key }) {
            if let Some(new) = new {
                self.show(own, new)?;
            }
            if own == key {
                return ControlFlow::Continue(());
            }
        }
        self.show(key, value)
    }

    /// Shows the changes after the state's last entry.
    pub(in crate::engine) fn finish(&mut self) {
        while !self.is_ended
            && let Some((own, new)) = self.own.next()
        {
            if let Some(new) = new {
                let _ = self.show(own, new);
            }
        }
    }
}

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

/// A tree of which there are rows.
pub(super) struct FoldedTree {
    pub(super) tree: TreeId,
    /// Number of rows; zero if they were taken back.
    pub(super) rows: usize,
    /// The rows that are part of derived rows.
    pub(super) ordered: Ordered,
}

/// The state with the folded rows of a batch.
pub(super) struct Overlay<'f> {
    pub(super) view: &'f dyn FoldView,
    pub(super) rows: &'f [Row],
    pub(super) index: &'f HashTable<u32>,
    pub(super) hasher: &'f DefaultHashBuilder,
    pub(super) trees: &'f [FoldedTree],
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
        let known = self.trees.binary_search_by_key(&tree, |of| of.tree);
        let ordered = known.ok().map(|at| &self.trees[at].ordered).filter(|ordered| !ordered.is_empty());
        let Some(ordered) = ordered else { return self.view.scan(tree, range, direction, visit) };
        let folded = in_range(ordered, range, direction);
        let folded = folded.map(|(key, place)| (key, self.rows[place as usize].new.as_deref()));
        let mut merge = Merge::new(folded, direction, visit);
        self.view.scan(tree, range, direction, &mut |key, value| merge.take(key, value))?;
        merge.finish();
        Ok(())
    }
}
