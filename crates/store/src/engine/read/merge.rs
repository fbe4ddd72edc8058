//! Merges the leaves of a range with the changes of the range, a leaf at a time.
//!
//! Changes are taken in the scan's order. Each is searched in the current leaf: the entries before it are passed, and it replaces the
//! entry of its key. A change after the leaf's last entry belongs to a later leaf, so a leaf without changes costs one search and is
//! passed as it is.

use super::changes::Changes;
use super::sink::{End, Sink};
use crate::memtable::RangeChange;
use crate::tree::{LeafEntries, Leaves};

/// See the module's text.
pub(super) struct Merge<'c, 'g, 'r> {
    changes: Changes<'c, 'g, 'r>,
    /// The next change.
    change: Option<RangeChange<'g>>,
}

impl<'c, 'g, 'r> Merge<'c, 'g, 'r> {
    /// `None` if there are no changes.
    pub(super) fn new(mut changes: Changes<'c, 'g, 'r>) -> Option<Merge<'c, 'g, 'r>> {
        let change = Some(changes.next()?);
        Some(Merge { changes, change })
    }

    /// Passes the entries of all leaves with the changes, and then the changes after the last leaf.
    pub(super) fn run(&mut self, leaves: Option<&mut Leaves<'g, '_>>, sink: &mut impl Sink<'g>) -> Result<(), End> {
        if let Some(leaves) = leaves {
            while let Some(leaf) = leaves.next()? {
                self.merge_leaf(leaf, sink)?;
            }
        }
        while let Some(change) = self.change {
            self.pass_change(change, sink)?;
        }
        sink.end_leaf()
    }

    fn merge_leaf(&mut self, leaf: &LeafEntries<'g>, sink: &mut impl Sink<'g>) -> Result<(), End> {
        let mut passed = 0;
        while let Some(change) = self.change {
            let (before, is_replaced) = leaf.place_of(change.key, passed)?;
            if before == leaf.len() {
                break;
            }
            if passed < before {
                sink.take_run(leaf, (passed, before))?;
            }
            self.pass_change(change, sink)?;
            passed = before + usize::from(is_replaced);
        }
        sink.take_run(leaf, (passed, leaf.len()))?;
        sink.end_leaf()
    }

    /// Passes a change, unless it is a deletion, and takes the next one.
    #[inline]
    fn pass_change(&mut self, change: RangeChange<'g>, sink: &mut impl Sink<'g>) -> Result<(), End> {
        if let Some(value) = change.value {
            sink.take_change(change.key, value)?;
        }
        self.change = self.changes.next();
        Ok(())
    }
}
