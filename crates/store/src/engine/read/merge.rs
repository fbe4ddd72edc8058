//! Merges the leaves of a range with the changes of the range, a leaf at a time.
//!
//! Changes are taken in the scan's order. Each is searched in the current leaf: the entries before it are passed, and it replaces the
//! entry of its key. A change after the leaf's last entry belongs to a later leaf, so a leaf without changes costs one search and is
//! passed as it is. So is a long run of unchanged entries. Everything else is listed (see `entries.rs`), a bounded number at once.
//!
//! The list holds references into the tree file and the memtables, which both live as long as the view.

use std::ops::ControlFlow;

use super::changes::Changes;
use super::entries::{Entries, Merged, Slot, VisitEntries};
use crate::base::error::Error;
use crate::memtable::RangeChange;
use crate::tree::{LeafEntries, Leaves};

/// Maximum number of entries listed at once: the list stays in the L1 cache.
const LISTED_MAX: usize = 64;
/// Entries for which the list has room at first.
const SLOTS_USUAL: usize = 16;
/// Unchanged entries in a row from which on they are passed as a part of the leaf instead of being listed.
const RUN_MIN: usize = 32;

/// Entries that the first list may have, since a visitor that wants few should not cause the merge of many. Each list may be twice
/// as long as the one before.
#[derive(Clone, Copy)]
pub(super) enum First {
    /// For visitors of single entries.
    One,
    /// For visitors of leaves.
    Several,
}

/// Why a merge ends early.
enum End {
    /// The visitor breaks.
    Enough,
    Error(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> End {
        End::Error(error)
    }
}

/// See the module's text.
pub(super) struct Merge<'c, 'g, 'r> {
    changes: &'c mut Changes<'g, 'r>,
    /// The next change.
    change: Option<RangeChange<'g>>,
    /// The current leaf.
    leaf: Option<LeafEntries<'g>>,
    /// Entries that were not passed yet.
    slots: Vec<Slot<'g>>,
    slots_max: usize,
}

impl<'c, 'g, 'r> Merge<'c, 'g, 'r> {
    /// `None` if there are no changes.
    pub(super) fn new(changes: &'c mut Changes<'g, 'r>, first: First) -> Option<Merge<'c, 'g, 'r>> {
        let change = Some(changes.next()?);
        let slots_max = match first {
            First::One => 1,
            First::Several => SLOTS_USUAL,
        };
        Some(Merge { changes, change, leaf: None, slots: Vec::with_capacity(SLOTS_USUAL), slots_max })
    }

    /// Visits the entries of all leaves with the changes, and then the changes after the last leaf.
    pub(super) fn run(
        &mut self,
        leaves: Option<&mut Leaves<'g, '_>>,
        visit: &mut VisitEntries<'_, 'g>,
    ) -> Result<ControlFlow<()>, Error> {
        match self.all(leaves, visit) {
            Ok(()) => Ok(ControlFlow::Continue(())),
            Err(End::Enough) => Ok(ControlFlow::Break(())),
            Err(End::Error(error)) => Err(error),
        }
    }

    fn all(&mut self, leaves: Option<&mut Leaves<'g, '_>>, visit: &mut VisitEntries<'_, 'g>) -> Result<(), End> {
        if let Some(leaves) = leaves {
            while let Some(leaf) = leaves.next()? {
                self.leaf = Some(leaf);
                self.merge_leaf(leaf, visit)?;
            }
        }
        self.leaf = None;
        while let Some(change) = self.change {
            self.put_change(change, visit)?;
        }
        self.pass(visit)
    }

    fn merge_leaf(&mut self, leaf: LeafEntries<'g>, visit: &mut VisitEntries<'_, 'g>) -> Result<(), End> {
        let mut passed = 0;
        while let Some(change) = self.change {
            let (before, is_replaced) = leaf.place_of(change.key, passed)?;
            if before == leaf.len() {
                break;
            }
            if passed < before {
                self.put_run(leaf, (passed, before), visit)?;
            }
            self.put_change(change, visit)?;
            passed = before + usize::from(is_replaced);
        }
        self.put_run(leaf, (passed, leaf.len()), visit)?;
        self.pass(visit)
    }

    /// Adds a change, unless it is a deletion, and takes the next one.
    #[inline]
    fn put_change(&mut self, change: RangeChange<'g>, visit: &mut VisitEntries<'_, 'g>) -> Result<(), End> {
        self.change = self.changes.next();
        let Some(value) = change.value else { return Ok(()) };
        self.slots.push(Slot::Changed(change.key, value));
        self.pass_if_full(visit)
    }

    /// Adds entries of the leaf, from one number up to another.
    fn put_run(
        &mut self,
        leaf: LeafEntries<'g>,
        (from, to): (usize, usize),
        visit: &mut VisitEntries<'_, 'g>,
    ) -> Result<(), End> {
        let is_rest = self.slots.is_empty() && to == leaf.len();
        if from < to && (is_rest || to - from >= RUN_MIN) {
            self.pass(visit)?;
            return go_on(visit(&Entries::of_leaf(leaf.part(from, to))));
        }
        for number in from..to {
            // A leaf of 4 KB has fewer than 2^16 entries.
            self.slots.push(Slot::Leaf(number as u16));
            self.pass_if_full(visit)?;
        }
        Ok(())
    }

    #[inline]
    fn pass_if_full(&mut self, visit: &mut VisitEntries<'_, 'g>) -> Result<(), End> {
        if self.slots.len() < self.slots_max {
            return Ok(());
        }
        self.pass(visit)?;
        self.slots_max = (self.slots_max * 2).min(LISTED_MAX);
        Ok(())
    }

    /// Visits the listed entries, and empties the list.
    fn pass(&mut self, visit: &mut VisitEntries<'_, 'g>) -> Result<(), End> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let slots = std::mem::take(&mut self.slots);
        let entries = Entries::of_merged(Merged { leaf: self.leaf, slots });
        let flow = visit(&entries);
        self.slots = entries.into_slots();
        self.slots.clear();
        go_on(flow)
    }
}

fn go_on(flow: ControlFlow<()>) -> Result<(), End> {
    if flow.is_break() { Err(End::Enough) } else { Ok(()) }
}
