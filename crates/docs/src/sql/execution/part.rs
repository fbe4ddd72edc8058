//! One part of a range that several threads scan, and the counters that all its parts share.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::engine::KeyRange;

/// The number of a group within one part has this many bits.
const ARRIVAL_BITS: u32 = 40;

/// One part of the outermost range.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) number: usize,
    pub(super) from: Option<&'p [u8]>,
    pub(super) to: Option<&'p [u8]>,
    pub(super) shared: &'p Shared,
    /// Called regularly by the consumer's thread while it reads this part. Returns false if the rows are no longer wanted.
    pub(super) turn: Option<&'p dyn Fn() -> bool>,
}

/// Counters that the parts of one execution share.
#[derive(Default)]
pub(super) struct Shared {
    /// Rows that subqueries read before.
    before: u64,
    /// Rows read in all parts, plus `before`.
    rows: AtomicU64,
    pub(super) bytes: AtomicUsize,
    /// The first part that is no longer wanted, counted down from `usize::MAX`, so that 0 means none.
    unwanted: AtomicUsize,
    /// Present if the execution may end before all parts are delivered: rows read in the delivered parts, plus `before`. Then
    /// only these rows count for the limit, not the rows read ahead.
    given: Option<AtomicU64>,
}

impl<'p> Part<'p> {
    /// The range of the part within `range`.
    pub(super) fn of<'k>(&self, range: KeyRange<'k>) -> KeyRange<'k>
    where
        'p: 'k,
    {
        KeyRange { from: self.from.map_or(range.from, Bound::Included), to: self.to.map_or(range.to, Bound::Excluded) }
    }

    /// Counts `rows` more rows; `own` is the total of this part. Returns the rows of all parts. If the execution may end early,
    /// returns a lower bound instead: the rows of the delivered parts plus `own`.
    pub(super) fn add_rows(&self, rows: u64, own: u64) -> u64 {
        let all = self.shared.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        self.shared.given.as_ref().map_or(all, |given| given.load(Ordering::Relaxed) + own)
    }

    /// Counts kept bytes, `before` of which were counted already; returns those of all parts.
    pub(super) fn count_bytes(&self, before: usize, bytes: usize) -> usize {
        self.shared.count_bytes(before, bytes)
    }

    /// The number of its first group: above all numbers of the parts before it.
    pub(super) fn first_arrival(&self) -> u64 {
        (self.number as u64) << ARRIVAL_BITS
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.shared.is_unwanted(self.number) || self.turn.is_some_and(|turn| !turn())
    }
}

impl Shared {
    /// Counters of an execution whose subqueries have read so many rows before.
    pub(super) fn after(before: u64) -> Shared {
        Shared { before, rows: AtomicU64::new(before), ..Shared::default() }
    }

    /// For parts that are delivered in their order. `may_end`: LIMIT or an error of a row may end the execution before the last
    /// part.
    pub(super) fn given_in_order(before: u64, may_end: bool) -> Shared {
        Shared { given: may_end.then(|| AtomicU64::new(before)), ..Shared::after(before) }
    }

    /// Takes back the count of a part's rows: the part is returned, and another thread reads it again.
    pub(super) fn uncount(&self, rows: u64) {
        self.rows.fetch_sub(rows, Ordering::Relaxed);
    }

    /// Whether the row limit is exceeded at a delivered row, `read` rows into its part. False if the execution cannot end
    /// early.
    pub(super) fn is_late(&self, read: u64, rows_max: u64) -> bool {
        self.given.as_ref().is_some_and(|given| given.load(Ordering::Relaxed) + read > rows_max)
    }

    /// Counts the rows of a delivered part; returns those of all delivered parts if the execution may end early, else 0.
    pub(super) fn add_given(&self, rows: u64) -> u64 {
        self.given.as_ref().map_or(0, |given| given.fetch_add(rows, Ordering::Relaxed) + rows)
    }

    /// Rows read in all parts.
    pub(super) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed) - self.before
    }

    pub(super) fn is_unwanted(&self, part: usize) -> bool {
        part >= usize::MAX - self.unwanted.load(Ordering::Relaxed)
    }

    pub(super) fn count_bytes(&self, before: usize, bytes: usize) -> usize {
        let counted = self.bytes.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
        counted.wrapping_add(bytes).wrapping_sub(before)
    }

    pub(super) fn want_only_before(&self, part: usize) {
        self.unwanted.fetch_max(usize::MAX - part, Ordering::Relaxed);
    }
}
