//! One part of a range that several threads read, and what all its parts count together.

use std::ops::Bound;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::row::Field;
use super::sink::RowSink;
use crate::engine::KeyRange;

/// Groups that one part sees have numbers of so many bits.
const ARRIVAL_BITS: u32 = 40;

/// One part of the outermost range.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub(super) number: usize,
    pub(super) from: Option<&'p [u8]>,
    pub(super) to: Option<&'p [u8]>,
    pub(super) shared: &'p Shared,
    /// Called now and then by the thread that gives the rows, while it reads this part: false where nobody wants them.
    pub(super) turn: Option<&'p dyn Fn() -> bool>,
}

/// What the parts of one execution count together.
#[derive(Default)]
pub(super) struct Shared {
    /// Rows that inner queries had read before.
    before: u64,
    /// Rows read in all parts, with those.
    rows: AtomicU64,
    pub(super) bytes: AtomicUsize,
    /// Parts from this one on are not wanted: counted from the end, so that 0 is none.
    unwanted: AtomicUsize,
    /// Where rows may be read that none turns out to have wanted: those of all parts that are given, with those.
    given: Option<AtomicU64>,
}

/// The sink of a part: its rows are gathered.
pub(super) struct OfPart;

impl RowSink for OfPart {
    fn begin_row(&mut self) {}
    fn field(&mut self, _column: usize, _field: Field<'_>) {}
    fn end_row(&mut self) {}
    fn bytes(&self) -> usize {
        0
    }
}

impl<'p> Part<'p> {
    /// The part of the range.
    pub(super) fn of<'k>(&self, range: KeyRange<'k>) -> KeyRange<'k>
    where
        'p: 'k,
    {
        KeyRange { from: self.from.map_or(range.from, Bound::Included), to: self.to.map_or(range.to, Bound::Excluded) }
    }

    /// Counts rows read, of so many of this part; gives those of all parts, or at least as many as of them are surely read.
    pub(super) fn add_rows(&self, rows: u64, own: u64) -> u64 {
        let all = self.shared.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        self.shared.given.as_ref().map_or(all, |given| given.load(Ordering::Relaxed) + own)
    }

    /// Counts bytes kept, where so many were before; gives those of all parts.
    pub(super) fn count_bytes(&self, before: usize, bytes: usize) -> usize {
        self.shared.count_bytes(before, bytes)
    }

    /// The number of the first group that it sees: behind all of the parts before it.
    pub(super) fn first_arrival(&self) -> u64 {
        (self.number as u64) << ARRIVAL_BITS
    }

    pub(super) fn is_unwanted(&self) -> bool {
        self.shared.is_unwanted(self.number) || self.turn.is_some_and(|turn| !turn())
    }
}

impl Shared {
    /// Inner queries have read so many rows before.
    pub(super) fn after(before: u64) -> Shared {
        Shared { before, rows: AtomicU64::new(before), ..Shared::default() }
    }

    /// For parts that are given in their order; `may_end`: perhaps not all of them, for LIMIT or an error of a row ends it before.
    pub(super) fn given_in_order(before: u64, may_end: bool) -> Shared {
        Shared { given: may_end.then(|| AtomicU64::new(before)), ..Shared::after(before) }
    }

    /// A part is given back: its rows are read again, by whoever takes it.
    pub(super) fn uncount(&self, rows: u64) {
        self.rows.fetch_sub(rows, Ordering::Relaxed);
    }

    /// Whether a row at which so many of its part were read comes after too many, where that matters.
    pub(super) fn is_late(&self, read: u64, rows_max: u64) -> bool {
        self.given.as_ref().is_some_and(|given| given.load(Ordering::Relaxed) + read > rows_max)
    }

    /// Counts the rows read of a part that is given; gives those of all of them, where that matters.
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
