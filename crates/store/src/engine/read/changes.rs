//! The changes of a range in both memtables, in a scan's order; of equal keys the newer one.

use std::cmp::Ordering;

use crate::base::key::Direction;
use crate::memtable::{RangeChange, RangeCursor};

/// See the module's text.
pub(super) struct Changes<'c, 'm, 'r> {
    newer: Option<&'c mut RangeCursor<'m, 'r>>,
    older: Option<&'c mut RangeCursor<'m, 'r>>,
    /// The next change of each, if both have any.
    next: Option<[Option<RangeChange<'m>>; 2]>,
    direction: Direction,
}

impl<'c, 'm, 'r> Changes<'c, 'm, 'r> {
    pub(super) fn new(
        newer: Option<&'c mut RangeCursor<'m, 'r>>,
        older: Option<&'c mut RangeCursor<'m, 'r>>,
        direction: Direction,
    ) -> Changes<'c, 'm, 'r> {
        let mut changes = Changes { newer, older, next: None, direction };
        if let (Some(newer), Some(older)) = (&mut changes.newer, &mut changes.older) {
            changes.next = Some([newer.next(), older.next()]);
        }
        changes
    }

    /// The next change.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RangeChange<'m>> {
        match (&mut self.newer, &mut self.older) {
            (Some(only), None) | (None, Some(only)) => only.next(),
            (None, None) => None,
            (Some(newer), Some(older)) => {
                let [of_newer, of_older] = self.next.as_mut()?;
                let order = order(of_newer.as_ref(), of_older.as_ref(), self.direction);
                // Of equal keys both are passed.
                let passed = if order.is_ge() { std::mem::replace(of_older, older.next()) } else { None };
                if order.is_le() { std::mem::replace(of_newer, newer.next()) } else { passed }
            }
        }
    }
}

/// Which of two changes comes first; none comes last.
fn order(newer: Option<&RangeChange<'_>>, older: Option<&RangeChange<'_>>, direction: Direction) -> Ordering {
    match (newer, older) {
        (Some(newer), Some(older)) if direction == Direction::Forward => newer.key.cmp(older.key),
        (Some(newer), Some(older)) => older.key.cmp(newer.key),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    }
}
