//! Runs an index range one leaf at a time: alone, or with its first join.
//!
//! If the entries have all needed fields, they are tested and delivered in place.
//!
//! A join partner may lie anywhere in memory: a lookup has two cache misses, for its place and for the document. So a leaf's
//! entries are decoded and tested first, then all partners of those that passed are looked up together, and only then are the
//! rows completed: the misses overlap.
//!
//! Nothing is copied meanwhile, because an entry's value and its partner stay in place as long as the view is borrowed, in the
//! tree file or in a memtable: the store merges changes since the last checkpoint into the leaves. A transaction in progress,
//! and a reader that must not wait for the disk, have no such leaves; for them `pipeline.rs` runs the range entry by entry.

use std::ops::ControlFlow;

use bumpalo::Bump;

use super::pipeline::{Same, Slots, lay_out, lay_out_key};
use super::run::{End, Flow, LevelKeys, Run};
use crate::engine::{Direction, Entries, TreeId};
use crate::sql::planning::compiled_plan::{CompiledPlan, Lookup, SLOTS_MAX};
use crate::sql::rows::RowSink;
use crate::sql::values::workspace::empty;

/// Entries that are joined together: about as many as a core has cache misses in flight, and as `odd` has bits.
const ROWS_MAX: usize = u16::BITS as usize;

/// Entries that passed, with their partners' keys, and then their partners.
struct Rows<'e> {
    /// Their numbers among the leaf's entries.
    numbers: [u16; ROWS_MAX],
    values: [&'e [u8]; ROWS_MAX],
    keys: [[u8; 4]; ROWS_MAX],
    partners: [Option<&'e [u8]>; ROWS_MAX],
    len: usize,
    /// Bits of those whose key is not a u32: they are looked up one by one.
    odd: u16,
}

/// A row's partner: looked up already, or not yet.
enum Partner<'e> {
    Asked(Option<&'e [u8]>),
    Unasked,
}

/// The work for each leaf of a range.
#[derive(Clone, Copy)]
struct Join<'s, 'e> {
    same: &'s Same<'e>,
    lookup: &'e Lookup,
    /// The lookups after the first.
    inner: &'e [Lookup],
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// Runs an index range with its lookups: the first, and those after it. Returns false, and does nothing, if the range is not available by leaves.
    pub(super) fn leaves(
        &mut self,
        same: &Same<'e>,
        (lookup, inner): (&'e Lookup, &'e [Lookup]),
        (tree, direction): (TreeId, Direction),
        keys: &mut LevelKeys,
        arena: &mut Bump,
    ) -> Result<bool, End> {
        let join = Join { same, lookup, inner };
        self.each_leaf((tree, direction), keys, |run, entries, key| run.leaf(join, entries, arena, key))
    }

    /// Runs an index range without joins. Returns false, and does nothing, if the range is not available by leaves.
    pub(super) fn covered(
        &mut self,
        same: &Same<'e>,
        (tree, direction): (TreeId, Direction),
        keys: &mut LevelKeys,
        arena: &mut Bump,
    ) -> Result<bool, End> {
        self.each_leaf((tree, direction), keys, |run, entries, key| {
            (0..entries.len()).try_for_each(|number| {
                let flow = run.covered_entry(same, entries, number, arena, key);
                empty(arena, same.meter);
                flow
            })
        })
    }

    /// Visits the leaves of an index range, with a buffer for keys. Returns false, and does nothing, if the range is not
    /// available by leaves.
    #[inline]
    fn each_leaf(
        &mut self,
        (tree, direction): (TreeId, Direction),
        keys: &mut LevelKeys,
        mut visit: impl FnMut(&mut Self, &Entries<'e>, &mut Vec<u8>) -> Flow,
    ) -> Result<bool, End> {
        let mut key = std::mem::take(&mut keys.key);
        let (mut flow, view) = (Ok(()), self.view);
        let scanned = view.scan_leaves(tree, self.within(0, keys.index_range()), direction, &mut |entries| {
            flow = visit(self, entries, &mut key);
            if flow.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        keys.key = key;
        let scanned = scanned?;
        flow.map(|()| scanned)
    }

    /// Tests an entry, and delivers it if it passes.
    #[inline(always)]
    fn covered_entry(
        &mut self,
        same: &Same<'e>,
        entries: &Entries<'e>,
        number: usize,
        arena: &Bump,
        key: &mut Vec<u8>,
    ) -> Flow {
        self.count_row()?;
        let mut slots: Slots<'_> = [&[]; SLOTS_MAX];
        lay_out_entry(same.compiled, entries, (number, entries.value(number)?), key, &mut slots)?;
        if same.pass(&same.compiled.tests, &slots, arena)? {
            self.join_each(&[], same, arena, &mut slots)?;
        }
        Ok(())
    }

    fn leaf(&mut self, join: Join<'_, 'e>, entries: &Entries<'e>, arena: &mut Bump, key: &mut Vec<u8>) -> Flow {
        let mut rows = Rows {
            numbers: [0; ROWS_MAX],
            values: [&[]; ROWS_MAX],
            keys: [[0; 4]; ROWS_MAX],
            partners: [None; ROWS_MAX],
            len: 0,
            odd: 0,
        };
        for number in 0..entries.len() {
            self.pass_entry(join, entries, number, arena, key, &mut rows)?;
            empty(arena, join.same.meter);
            if rows.len == ROWS_MAX {
                self.join_rows(join, entries, arena, key, &mut rows)?;
            }
        }
        if rows.len > 0 { self.join_rows(join, entries, arena, key, &mut rows) } else { Ok(()) }
    }

    /// Tests an entry, and adds it to the rows if it passes.
    #[inline(always)]
    fn pass_entry(
        &mut self,
        join: Join<'_, 'e>,
        entries: &Entries<'e>,
        number: usize,
        arena: &Bump,
        key: &mut Vec<u8>,
        rows: &mut Rows<'e>,
    ) -> Flow {
        self.count_row()?;
        let (same, compiled) = (join.same, join.same.compiled);
        let value = entries.value(number)?;
        let mut slots: Slots<'_> = [&[]; SLOTS_MAX];
        let rest = lay_out(compiled, value, &mut slots)?;
        if compiled.tests_key {
            entries.key_into(number, key)?;
            lay_out_key(compiled, (key, rest), &mut slots)?;
        }
        if !same.pass(&compiled.tests, &slots, arena)? {
            return Ok(());
        }
        let at = rows.len % ROWS_MAX;
        match same.integer(join.lookup.key, &slots).and_then(|integer| u32::try_from(integer).ok()) {
            Some(integer) => rows.keys[at] = integer.to_be_bytes(),
            None => rows.odd |= 1 << at,
        }
        // The store passes fewer than 2^16 entries at once.
        (rows.numbers[at], rows.values[at]) = (number as u16, value);
        rows.len = at + 1;
        Ok(())
    }

    /// Joins the rows, and empties their list.
    fn join_rows(
        &mut self,
        join: Join<'_, 'e>,
        entries: &Entries<'e>,
        arena: &mut Bump,
        key: &mut Vec<u8>,
        rows: &mut Rows<'e>,
    ) -> Flow {
        let (lookup, same, compiled) = (join.lookup, join.same, join.same.compiled);
        let len = rows.len.min(ROWS_MAX);
        let found = self.view.get_all(lookup.tree, &rows.keys[..len], &mut rows.partners[..len])?;
        for at in 0..len {
            let row = (usize::from(rows.numbers[at]), rows.values[at]);
            let is_odd = !found || rows.odd >> at & 1 != 0;
            if is_odd || !compiled.skips_entry {
                let partner = if is_odd { Partner::Unasked } else { Partner::Asked(rows.partners[at]) };
                self.join_whole(join, entries, row, partner, arena, key)?;
                empty(arena, join.same.meter);
                continue;
            }
            // A selective join drops most rows before their entries are needed.
            let Some(partner) = lookup.found(rows.partners[at])? else { continue };
            let mut slots: Slots<'_> = [&[]; SLOTS_MAX];
            if self.join_one(lookup, partner, same, arena, &mut slots)? {
                lay_out_entry(compiled, entries, row, key, &mut slots)?;
                self.join_each(join.inner, same, arena, &mut slots)?;
            }
            empty(arena, join.same.meter);
        }
        (rows.len, rows.odd) = (0, 0);
        Ok(())
    }

    /// Joins a row whose fields are all decoded first.
    #[inline(never)]
    fn join_whole(
        &mut self,
        join: Join<'_, 'e>,
        entries: &Entries<'e>,
        row: (usize, &'e [u8]),
        partner: Partner<'e>,
        arena: &Bump,
        key: &mut Vec<u8>,
    ) -> Flow {
        let (lookup, same) = (join.lookup, join.same);
        let mut slots: Slots<'_> = [&[]; SLOTS_MAX];
        lay_out_entry(same.compiled, entries, row, key, &mut slots)?;
        let partner = match partner {
            Partner::Asked(partner) => lookup.found(partner)?,
            Partner::Unasked => self.find(lookup, same, &slots, arena)?,
        };
        match partner {
            Some(partner) if self.join_one(lookup, partner, same, arena, &mut slots)? => {
                self.join_each(join.inner, same, arena, &mut slots)
            }
            _ => Ok(()),
        }
    }
}

/// Decodes an entry's fields into their slots.
#[inline(always)]
fn lay_out_entry<'r, 'e: 'r>(
    compiled: &CompiledPlan,
    entries: &Entries<'e>,
    (number, value): (usize, &'e [u8]),
    key: &'r mut Vec<u8>,
    slots: &mut Slots<'r>,
) -> Result<(), End> {
    let rest = lay_out(compiled, value, slots)?;
    if !compiled.ordered.is_empty() {
        entries.key_into(number, key)?;
        lay_out_key(compiled, (key, rest), slots)?;
    }
    Ok(())
}
