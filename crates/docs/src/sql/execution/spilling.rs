//! Spilling: which data of an execution goes to disk, when, and how it is merged.
//!
//! The result is identical to that in memory, to the last byte:
//!
//! - **Sorts.** The rows so far are sorted and written as a run; runs are merged at the end. Equal rows keep their order.
//! - **Groups.** All groups so far are written as a run sorted by their keys, with the states of their aggregates, and grouping
//!   starts afresh. The merge combines adjacent entries of one group; a second sort restores the order in which groups were
//!   first seen. DISTINCT values of an aggregate are entries of their own after their group's, so that a group need not hold
//!   all of them in memory; the first of equal values is used.
//! - **DISTINCT.** When the memory for known rows is full, rows that equal none of these are sorted; the first of equal rows is
//!   kept, and their order of arrival is restored.
//!
//! ```text
//!  entry of a group:   key | 0 (u16)                                → arrival (u64) | length (u32) | fields | aggregates
//!  DISTINCT value:     key | 1 + place of the aggregate (u16) | value → nothing, a summand, or arrival (u64) and text
//!  row of DISTINCT:    values                                       → arrival (u64) | length (u32) | sort key | fields
//! ```
//!
//! No group's key is a prefix of another's. Half of the budget's memory is for collected rows or groups, a quarter for rows
//! known to DISTINCT, and a quarter for the blocks of a merge.

use super::run::{Flow, GROUP_OVERHEAD_BYTES, Groups, LateRows, Run};
use crate::sql::expressions::aggregate::{ARRIVAL_BYTES, AggregateState, DistinctValue};
use crate::sql::expressions::{AggregateCall, Expr, Scope};
use crate::sql::limits::{Budget, Fault, GROUPS, Meter, QueryError, SORTED};
use crate::sql::planning::Plan;
use crate::sql::rows::{RowSink, Runs, Sorter};
use crate::sql::values::{FieldValue, sort};

/// The share of the memory for collected rows or groups.
pub(super) const GATHERED: (usize, usize) = (1, 2);
/// The share for rows known to DISTINCT.
const KNOWN: (usize, usize) = (1, 4);
/// The share for all parts of a parallel scan together: they spill when they notice that it is exceeded.
pub(super) const GATHERED_BY_PARTS: (usize, usize) = (3, 4);

const TAG_BYTES: usize = 2;
const LENGTH_BYTES: usize = 4;
/// Bytes of a text of a DISTINCT aggregate besides its own, while the texts of a group are sorted by arrival.
const TEXT_OVERHEAD_BYTES: usize = 64;
const DAMAGED: Fault = Fault::Damaged("rows on disk");

/// A share of the budget's memory.
pub(super) fn share(budget: &Budget<'_>, (part, of): (usize, usize)) -> usize {
    budget.memory_bytes_max / of * part
}

impl<S: RowSink + ?Sized> Run<'_, S> {
    /// Counts bytes of collected rows or groups; returns those of all parts.
    pub(super) fn count_bytes(&self, bytes: usize) -> usize {
        match self.part {
            None => {
                let held = self.groups.bytes + self.sort.size() + self.distinct_bytes;
                self.fixed.meter.note_gathered(self.counted.1.replace(held), held);
                bytes
            }
            Some(part) => part.count_bytes(self.counted.1.replace(bytes), bytes),
        }
    }

    fn gathered_max(&self) -> usize {
        let of = if self.part.is_some() { GATHERED_BY_PARTS } else { GATHERED };
        share(self.budget, of)
    }

    /// Checks the memory of the groups. If they exceed it, they spill, or it is an error.
    pub(super) fn check_groups(&mut self) -> Result<(), QueryError> {
        let bytes = self.count_bytes(self.groups.bytes);
        if self.budget.spill.is_some() {
            self.is_full = bytes > self.gathered_max();
            return Ok(());
        }
        limited(GROUPS, bytes, self.budget)
    }

    /// The same for rows of a sort.
    pub(super) fn check_sort(&mut self) -> Result<(), QueryError> {
        if self.budget.spill.is_none() {
            limited(SORTED, self.sort.row_bytes(), self.budget)?;
            let bytes = self.count_bytes(self.sort.size());
            return if self.part.is_some() { limited(GROUPS, bytes, self.budget) } else { Ok(()) };
        }
        if self.count_bytes(self.sort.size()) <= self.gathered_max() {
            return Ok(());
        }
        self.sort.spill(self.keep(), self.budget)?;
        self.count_bytes(0);
        Ok(())
    }

    pub(super) fn spill_groups(&mut self) -> Result<(), QueryError> {
        self.is_full = false;
        self.groups.spill(self.plan, self.states, self.group_runs, self.budget)?;
        self.count_bytes(0);
        Ok(())
    }

    /// Merges the groups on disk and in memory, and delivers them in the order in which they were first seen.
    pub(super) fn finish_spilled_groups(&mut self) -> Flow {
        self.spill_groups()?;
        let (plan, budget, bytes_max) = (self.plan, self.budget, self.fixed.meter.row_bytes_max());
        let mut merge = std::mem::take(self.group_runs).merge(None, budget)?;
        let mut arrived = Arrived::default();
        let mut joined: Option<Joined> = None;
        while merge.advance()? {
            let (key, payload) = (merge.key(), merge.payload());
            match &mut joined {
                Some(group) if key.starts_with(&group.key) => group.add(key, payload, plan, self.fixed.meter)?,
                _ => {
                    if let Some(group) = joined.take() {
                        arrived.push_group(group, plan, self.fixed.meter, budget)?;
                    }
                    joined = Some(Joined::new(key, payload, plan, bytes_max)?);
                }
            }
        }
        drop(merge);
        if let Some(group) = joined.take() {
            arrived.push_group(group, plan, self.fixed.meter, budget)?;
        }
        arrived.0.each(None, budget, |_, mut payload| {
            let fields = take_sized(&mut payload)?;
            let states = decode_states(&plan.aggregates, payload)?;
            self.finish_group(fields, &states)
        })
    }

    /// DISTINCT: whether a row with these values was seen before.
    pub(super) fn note_distinct(&mut self, key: &[u8]) -> Result<Distinct, QueryError> {
        if self.distinct.contains(key) {
            return Ok(Distinct::Known);
        }
        if self.late.is_some() {
            return Ok(Distinct::Late);
        }
        self.distinct_bytes += key.len() + GROUP_OVERHEAD_BYTES;
        if self.budget.spill.is_none() {
            limited(GROUPS, self.distinct_bytes, self.budget)?;
        } else if self.distinct_bytes > share(self.budget, KNOWN) {
            self.late = Some(Box::default());
        }
        self.distinct.insert(key.into());
        if self.part.is_none() {
            self.count_bytes(0);
        }
        Ok(Distinct::New)
    }

    /// Keeps a row of which DISTINCT does not know yet whether it is new; see [`late_row`].
    pub(super) fn keep_late(&mut self, key: &[u8], row: &[u8]) -> Result<(), QueryError> {
        let LateRows { rows, arrivals } = &mut **self.late.get_or_insert_default();
        rows.buffer().push(&[key], &[&arrivals.to_be_bytes(), row], None, self.fixed.meter)?;
        *arrivals += 1;
        rows.make_room(share(self.budget, KNOWN), self.budget)
    }

    /// Continues with the first of each set of equal rows that DISTINCT kept.
    pub(super) fn finish_distinct(&mut self) -> Flow {
        let (budget, keep, is_sorted) = (self.budget, self.keep(), !self.plan.order.is_empty());
        let Some(mut late) = self.late.take() else { return Ok(()) };
        let (mut before, mut arrived) = (None, Arrived::default());
        late.rows.each(None, budget, |key, payload| -> Flow {
            if before.as_deref() == Some(key) {
                return Ok(());
            }
            let before = before.get_or_insert_with(Vec::new);
            before.clear();
            before.extend_from_slice(key);
            let (arrival, mut row) = payload.split_first_chunk::<ARRIVAL_BYTES>().ok_or(DAMAGED)?;
            let order = take_sized(&mut row)?;
            if !is_sorted {
                return Ok(arrived.push(arrival, row, budget)?);
            }
            // It sorts after equal rows of earlier arrival: their sort keys are prefixes of this one, which continues with the
            // arrival.
            self.sort.buffer().push(&[order, arrival], &[row], keep, self.fixed.meter)?;
            Ok(self.check_sort()?)
        })?;
        if is_sorted { Ok(()) } else { arrived.0.each(None, budget, |_, row| self.give_kept(row)) }
    }
}

fn limited(what: &'static str, bytes: usize, budget: &Budget<'_>) -> Result<(), QueryError> {
    let limit = budget.memory_bytes_max;
    if bytes > limit { Err(QueryError::Limit { what, limit: limit as u64 }) } else { Ok(()) }
}

/// Whether DISTINCT has seen a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distinct {
    New,
    Known,
    /// Not known yet: the row is kept, and decided at the end.
    Late,
}

/// A row kept for DISTINCT: its sort key, and its fields.
pub(super) fn late_row<'a>(
    order: &[(Expr, bool)],
    outputs: impl Iterator<Item = Result<FieldValue<'a>, Fault>>,
    scope: &Scope<'_>,
) -> Result<Vec<u8>, Fault> {
    let (mut row, mut room) = (vec![0; LENGTH_BYTES], scope.fixed.meter.row_room());
    for (expr, falling) in order {
        let value = expr.evaluate(scope)?;
        room.take(FieldValue::Value(value))?;
        sort::push_key(value, *falling, &mut row)?;
    }
    let length = (row.len() - LENGTH_BYTES) as u32;
    row[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    for field in outputs {
        let field = field?;
        room.take(field)?;
        sort::push_field(field, &mut row);
    }
    Ok(row)
}

impl Groups {
    /// Writes the groups as a run and removes them, with their states, from memory.
    pub(super) fn spill(
        &mut self,
        plan: &Plan,
        states: &mut Vec<AggregateState>,
        runs: &mut Runs,
        budget: &Budget<'_>,
    ) -> Result<(), QueryError> {
        let width = plan.aggregates.len();
        let mut order: Vec<(&[u8], usize)> = self.places.iter().map(|(key, place)| (&key[..], *place)).collect();
        let meter = Meter::new(budget);
        sort::sort_in_pieces(&mut order, |(key, _)| *key, &meter)?;
        if plan.group.is_empty() && !states.is_empty() {
            order.push((&[], 0));
        }
        if order.is_empty() {
            return Ok(());
        }
        let (mut run, mut entry, mut payload) = (runs.begin(budget)?, Vec::new(), Vec::new());
        for (key, place) in order {
            let states = &mut states[place * width..(place + 1) * width];
            let taken = plan.aggregates.iter().zip(&mut *states);
            let kept: Vec<Vec<DistinctValue>> =
                taken.map(|(call, state)| if call.keeps_values() { state.take_values() } else { Vec::new() }).collect();
            payload.clear();
            payload.extend_from_slice(&self.arrivals.get(place).copied().unwrap_or(0).to_be_bytes());
            push_sized(self.fields.get(place).map_or(&[][..], |fields| fields), &mut payload);
            encode_states(&plan.aggregates, states, &mut payload);
            entry.clear();
            entry.extend_from_slice(key);
            entry.extend_from_slice(&0u16.to_be_bytes());
            run.push(&entry, &payload)?;
            for (values, tag) in kept.iter().zip(1u16..) {
                let mut values: Vec<&DistinctValue> = values.iter().collect();
                sort::sort_in_pieces(&mut values, |(value, _)| &value[..], &meter)?;
                for (value, taken_in) in values {
                    entry.truncate(key.len());
                    entry.extend_from_slice(&tag.to_be_bytes());
                    entry.extend_from_slice(value);
                    run.push(&entry, taken_in)?;
                }
            }
        }
        run.end()?;
        self.places.clear();
        (self.fields, self.arrivals, self.bytes) = Default::default();
        states.clear();
        if plan.group.is_empty() {
            states.resize_with(width, AggregateState::default);
        }
        Ok(())
    }
}

fn encode_states(calls: &[AggregateCall], states: &[AggregateState], out: &mut Vec<u8>) {
    calls.iter().zip(states).for_each(|(call, state)| state.encode(call, out));
}

fn decode_states(calls: &[AggregateCall], mut bytes: &[u8]) -> Result<Vec<AggregateState>, Fault> {
    calls.iter().map(|call| AggregateState::decode(call, &mut bytes)).collect()
}

fn push_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn take_sized<'b>(bytes: &mut &'b [u8]) -> Result<&'b [u8], Fault> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH_BYTES>().ok_or(DAMAGED)?;
    let (taken, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or(DAMAGED)?;
    *bytes = rest;
    Ok(taken)
}

/// A group whose entries are being merged.
struct Joined {
    key: Vec<u8>,
    arrival: [u8; ARRIVAL_BYTES],
    fields: Vec<u8>,
    states: Vec<AggregateState>,
    /// Bytes of texts that its aggregates have collected, and their limit.
    bytes: usize,
    bytes_max: usize,
    /// The entry of the last value that was added.
    counted: Vec<u8>,
}

impl Joined {
    fn new(key: &[u8], payload: &[u8], plan: &Plan, bytes_max: usize) -> Result<Joined, Fault> {
        let key = key.strip_suffix(&0u16.to_be_bytes()).ok_or(DAMAGED)?.to_vec();
        let mut joined = Joined {
            key,
            arrival: [0; ARRIVAL_BYTES],
            fields: Vec::new(),
            states: Vec::new(),
            bytes: 0,
            bytes_max,
            counted: Vec::new(),
        };
        let (arrival, mut rest) = payload.split_first_chunk::<ARRIVAL_BYTES>().ok_or(DAMAGED)?;
        let fields = take_sized(&mut rest)?;
        joined.count(rest.len())?;
        joined.arrival = *arrival;
        (joined.fields, joined.states) = (fields.to_vec(), decode_states(&plan.aggregates, rest)?);
        Ok(joined)
    }

    /// Adds an entry of the same group: from a later run, or of a DISTINCT value.
    fn add(&mut self, key: &[u8], payload: &[u8], plan: &Plan, meter: &Meter<'_>) -> Result<(), Fault> {
        let tag = key[self.key.len()..].first_chunk::<TAG_BYTES>().ok_or(DAMAGED)?;
        let Some(place) = usize::from(u16::from_be_bytes(*tag)).checked_sub(1) else {
            let (_, mut rest) = payload.split_first_chunk::<ARRIVAL_BYTES>().ok_or(DAMAGED)?;
            take_sized(&mut rest)?;
            let before = self.bytes;
            // The states are counted twice, because they are decoded and then added.
            self.count(2 * rest.len())?;
            let states = decode_states(&plan.aggregates, rest)?;
            let mut grown = 0;
            for ((place, part), call) in states.into_iter().enumerate().zip(&plan.aggregates) {
                grown += self.states.get_mut(place).ok_or(DAMAGED)?.add_part(part, call, meter)?;
            }
            self.bytes = before + grown;
            return Ok(());
        };
        if self.counted != key {
            let call = plan.aggregates.get(place).ok_or(DAMAGED)?;
            // The text is kept by itself, and again in the joined text.
            self.count(if call.kind.joins_texts() { 2 * payload.len() + TEXT_OVERHEAD_BYTES } else { 0 })?;
            self.states.get_mut(place).ok_or(DAMAGED)?.add_value(call, payload)?;
            self.counted.clear();
            self.counted.extend_from_slice(key);
        }
        Ok(())
    }

    /// Counts bytes that its aggregates are about to keep: each of many aggregates may have a long text.
    fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        if self.bytes + bytes > self.bytes_max {
            return Err(Fault::Row(self.bytes_max));
        }
        self.bytes += bytes;
        Ok(())
    }
}

/// Rows sorted by their arrival.
#[derive(Default)]
struct Arrived(Sorter);

impl Arrived {
    fn push(&mut self, arrival: &[u8; ARRIVAL_BYTES], row: &[u8], budget: &Budget<'_>) -> Result<(), QueryError> {
        self.0.buffer().push(&[arrival], &[row], None, &Meter::new(budget))?;
        self.0.make_room(share(budget, GATHERED), budget)
    }

    fn push_group(
        &mut self,
        mut group: Joined,
        plan: &Plan,
        meter: &Meter<'_>,
        budget: &Budget<'_>,
    ) -> Result<(), QueryError> {
        group.states.iter_mut().try_for_each(|state| state.end_values(meter))?;
        let mut row = Vec::new();
        push_sized(&group.fields, &mut row);
        encode_states(&plan.aggregates, &group.states, &mut row);
        self.push(&group.arrival, &row, budget)
    }
}
