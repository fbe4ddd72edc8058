//! Receivers of a scan's entries: [`Rows`] visits one entry at a time, [`Lists`] visits them a leaf at a time.
//!
//! Entries of a leaf arrive as runs without a change between them, so a receiver of single entries handles a run in one loop.

use std::ops::ControlFlow;

use super::entries::{Entries, Merged, Slot, VisitEntries};
use crate::base::error::StoreError;
use crate::base::key::Visit;
use crate::tree::LeafEntries;

/// Maximum number of entries listed at once: the list stays in the L1 cache.
const LISTED_MAX: usize = 64;
/// Entries that the first list has at most, since a visitor that wants few should not cause the merge of many. Each list may be twice as
/// long as the one before.
const LISTED_FIRST: usize = 16;
/// Entries in a row from which on they are passed as a part of the leaf instead of being listed.
const RUN_MIN: usize = 32;
/// Buffer for the keys of most entries, allocated at once; longer keys enlarge it.
const KEY_BYTES_USUAL: usize = 128;

/// Why a scan ends early.
pub(super) enum End {
    /// The visitor breaks.
    Enough,
    Error(StoreError),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> End {
        End::Error(error)
    }
}

fn go_on(flow: ControlFlow<()>) -> Result<(), End> {
    if flow.is_break() { Err(End::Enough) } else { Ok(()) }
}

/// A receiver of entries in the scan's order.
pub(super) trait Sink<'g> {
    /// Takes consecutive entries of a leaf, from one number up to another, which may be the same.
    fn take_run(&mut self, leaf: &LeafEntries<'g>, range: (usize, usize)) -> Result<(), End>;

    /// Takes an entry of a memtable: its key and value.
    fn take_change(&mut self, key: &'g [u8], value: &'g [u8]) -> Result<(), End>;

    /// All entries of the leaf, or all after the last leaf, were taken.
    fn end_leaf(&mut self) -> Result<(), End>;
}

/// Visits each entry.
pub(super) struct Rows<'f, 'v> {
    visit: &'f mut Visit<'v>,
    /// Buffer for keys of leaves.
    key: Vec<u8>,
}

impl<'f, 'v> Rows<'f, 'v> {
    pub(super) fn new(visit: &'f mut Visit<'v>) -> Rows<'f, 'v> {
        Rows { visit, key: Vec::with_capacity(KEY_BYTES_USUAL) }
    }
}

impl<'g> Sink<'g> for Rows<'_, '_> {
    #[inline]
    fn take_run(&mut self, leaf: &LeafEntries<'g>, (from, to): (usize, usize)) -> Result<(), End> {
        if from == to {
            return Ok(());
        }
        go_on(leaf.visit_run((from, to), &mut self.key, self.visit)?)
    }

    #[inline]
    fn take_change(&mut self, key: &'g [u8], value: &'g [u8]) -> Result<(), End> {
        go_on((self.visit)(key, value))
    }

    #[inline]
    fn end_leaf(&mut self) -> Result<(), End> {
        Ok(())
    }
}

/// Visits the entries of a leaf together. A leaf without changes, and a long run, is passed as it is. Everything else is listed, a
/// bounded number at once. The list holds references into the tree file and the memtables, which both live as long as the view.
pub(super) struct Lists<'f, 'v, 'g> {
    visit: &'f mut VisitEntries<'v, 'g>,
    /// The leaf of listed entries.
    leaf: Option<LeafEntries<'g>>,
    /// Entries that were not passed yet.
    slots: Vec<Slot<'g>>,
    slots_max: usize,
}

impl<'f, 'v, 'g> Lists<'f, 'v, 'g> {
    pub(super) fn new(visit: &'f mut VisitEntries<'v, 'g>) -> Lists<'f, 'v, 'g> {
        Lists { visit, leaf: None, slots: Vec::new(), slots_max: LISTED_FIRST }
    }

    #[inline]
    fn list(&mut self, slot: Slot<'g>) -> Result<(), End> {
        if self.slots.capacity() == 0 {
            self.slots.reserve(LISTED_FIRST);
        }
        self.slots.push(slot);
        if self.slots.len() < self.slots_max {
            return Ok(());
        }
        self.pass()?;
        self.slots_max = (self.slots_max * 2).min(LISTED_MAX);
        Ok(())
    }

    /// Visits the listed entries, and empties the list.
    fn pass(&mut self) -> Result<(), End> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let slots = std::mem::take(&mut self.slots);
        let entries = Entries::of_merged(Merged { leaf: self.leaf, slots });
        let flow = (self.visit)(&entries);
        self.slots = entries.into_slots();
        self.slots.clear();
        go_on(flow)
    }
}

impl<'g> Sink<'g> for Lists<'_, '_, 'g> {
    #[inline]
    fn take_run(&mut self, leaf: &LeafEntries<'g>, (from, to): (usize, usize)) -> Result<(), End> {
        if from == to {
            return Ok(());
        }
        let is_rest = self.slots.is_empty() && to == leaf.len();
        if is_rest || to - from >= RUN_MIN {
            self.pass()?;
            return go_on((self.visit)(&Entries::of_leaf(leaf.part(from, to))));
        }
        self.leaf = Some(*leaf);
        for number in from..to {
            // A leaf of 4 KB has fewer than 2^16 entries.
            self.list(Slot::Leaf(number as u16))?;
        }
        Ok(())
    }

    #[inline]
    fn take_change(&mut self, key: &'g [u8], value: &'g [u8]) -> Result<(), End> {
        self.list(Slot::Changed(key, value))
    }

    #[inline]
    fn end_leaf(&mut self) -> Result<(), End> {
        self.pass()
    }
}
