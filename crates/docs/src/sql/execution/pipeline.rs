//! Runs a compiled plan: each entry of the range is decoded into slots, tested, joined by its keys, and delivered.
//!
//! Nothing is allocated for a row, and a field is decoded only when a test or an output uses it: integers are compared in their
//! stored digits, texts by their bytes. Everything else is decoded to a [`Value`], as in the interpreted execution.

use std::borrow::Cow;
use std::cmp::Ordering;

use binjson::StoredDocument;
use bumpalo::Bump;

use super::nest::parse_document;
use super::run::{End, Flow, LevelKeys, Run};
use crate::encoding::{IncludedValues, KeyType, index, order};
use crate::engine::{Direction, TreeId};
use crate::sql::expressions::Comparison;
use crate::sql::expressions::row::{as_key, index_value, of_scalar, whole};
use crate::sql::limits::{Fault, Meter, QueryError};
use crate::sql::planning::compiled_plan::{
    CompiledField, CompiledPlan, KNOWN_MAX, Lookup, SLOTS_MAX, SlotEncoding, Term, Test,
};
use crate::sql::planning::{Access, Level, Points, PointsOf};
use crate::sql::rows::RowSink;
use crate::sql::rows::sink::check_finite;
use crate::sql::values::value::{self, compare};
use crate::sql::values::workspace::empty;
use crate::sql::values::{FieldValue, Value, Workspace};

const ENTRY: Fault = Fault::Damaged("an index entry");
/// A row of at most so many fields is copied before the result's limit is checked. Each field is one of a stored document, so
/// its size is bounded.
const FEW_OUTPUTS: usize = 4;

/// The bytes of a row's fields, by slot.
pub(super) type Slots<'r> = [&'r [u8]; SLOTS_MAX];

/// The data that all rows of an execution share.
pub(super) struct Same<'e> {
    pub(super) compiled: &'e CompiledPlan,
    known: [Value<'e>; KNOWN_MAX],
    pub(super) meter: &'e Meter<'e>,
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// Runs the compiled plan. False: a constant cannot be computed. Only the interpreter reports that error, when a row uses
    /// the constant.
    pub(super) fn pipeline(&mut self, compiled: &'e CompiledPlan) -> Result<bool, End> {
        let mut same = Same { compiled, known: [Value::Null; KNOWN_MAX], meter: self.fixed.meter };
        for (expr, place) in compiled.known.iter().zip(&mut same.known) {
            match expr.evaluate_known(self.fixed) {
                Ok(value) => *place = value,
                Err(_) => return Ok(false),
            }
        }
        // Both are moved out while the range is scanned, because the callback uses the run too.
        let mut keys = self.levels.first_mut().map(std::mem::take).unwrap_or_default();
        let mut arena = std::mem::take(self.arena);
        let flow = self.range(&same, &mut keys, &mut arena);
        *self.arena = arena;
        if let Some(place) = self.levels.first_mut() {
            *place = keys;
        }
        flow.map(|()| true)
    }

    fn range(&mut self, same: &Same<'e>, keys: &mut LevelKeys, arena: &mut Bump) -> Flow {
        let Some(level) = self.plan.levels.first() else { return Ok(()) };
        match &level.access {
            Access::Index { tree, equal, from, to, direction, .. } => {
                match self.index_bounds(equal, from.as_ref(), to.as_ref(), None, keys)? {
                    true => self.index_range(same, (*tree, *direction), keys, arena),
                    false => Ok(()),
                }
            }
            Access::Points(points) => {
                let flow = self.points_ranges(same, level, points, keys, arena);
                keys.points.clear();
                flow
            }
            Access::Scan { from, to, direction } => {
                let low = self.scan_bound(from.as_ref(), level.key, None, &mut keys.from)?;
                let high = self.scan_bound(to.as_ref(), level.key, None, &mut keys.to)?;
                let range = self.within(0, keys.document_range(low, high));
                self.scan(level.tree, range, *direction, |run, key, stored| {
                    let flow = run.document_entry(same, arena, key, stored);
                    empty(arena, same.meter);
                    flow
                })
            }
            _ => self.joined(same, arena, &mut [&[]; SLOTS_MAX]),
        }
    }

    /// Runs the range of each combination of values.
    fn points_ranges(
        &mut self,
        same: &Same<'e>,
        level: &Level,
        points: &Points,
        keys: &mut LevelKeys,
        arena: &mut Bump,
    ) -> Flow {
        let PointsOf::Index { tree, .. } = points.of else { return Ok(()) };
        if !self.gather_points(points, level.key, None, keys)? {
            return Ok(());
        }
        while keys.points.advance(points.direction) {
            keys.set_point();
            let read = self.outcome.rows_read;
            self.index_range(same, (tree, points.direction), keys, arena)?;
            self.count_miss(0, read)?;
        }
        Ok(())
    }

    /// Runs the index range between the bounds in `keys`.
    fn index_range(
        &mut self,
        same: &Same<'e>,
        (tree, direction): (TreeId, Direction),
        keys: &mut LevelKeys,
        arena: &mut Bump,
    ) -> Flow {
        // Only u32 keys are looked up together, and only if all rows are wanted: a LIMIT might not need a collected row.
        let all = self.wanted == u64::MAX && !self.plan.first_only;
        let by_leaves = match same.compiled.lookups.split_first() {
            None => self.covered(same, (tree, direction), keys, arena)?,
            Some(lookups) if lookups.0.kind == KeyType::U32 && all => {
                self.leaves(same, lookups, (tree, direction), keys, arena)?
            }
            Some(_) => false,
        };
        if by_leaves {
            return Ok(());
        }
        self.scan(tree, self.within(0, keys.index_range()), direction, |run, key, value| {
            let flow = run.entry(same, arena, key, value);
            empty(arena, same.meter);
            flow
        })
    }

    /// An index entry, joined at once.
    #[inline(always)]
    fn entry(&mut self, same: &Same<'e>, arena: &Bump, key: &[u8], value: &[u8]) -> Flow {
        self.count_row()?;
        let mut slots: Slots<'_> = [&[]; SLOTS_MAX];
        let rest = lay_out(same.compiled, value, &mut slots)?;
        lay_out_key(same.compiled, (key, rest), &mut slots)?;
        if !same.pass(&same.compiled.tests, &slots, arena)? {
            return Ok(());
        }
        self.joined(same, arena, &mut slots)
    }

    /// An entry of a document range.
    fn document_entry(&mut self, same: &Same<'e>, arena: &Bump, key: &[u8], stored: &[u8]) -> Flow {
        self.count_row()?;
        let compiled = same.compiled;
        let mut slots: Slots<'_> = [&[]; SLOTS_MAX];
        if let Some(slot) = compiled.key {
            slots[slot] = key;
        }
        // Documents that are only counted are not parsed.
        if !compiled.fields.is_empty() {
            self.take_fields(&compiled.fields, parse_document(stored)?, &mut slots);
        }
        if !same.pass(&compiled.tests, &slots, arena)? {
            return Ok(());
        }
        self.joined(same, arena, &mut slots)
    }

    /// Looks up and tests the join partners, and delivers the row.
    #[inline(always)]
    fn joined<'r>(&mut self, same: &Same<'e>, arena: &'r Bump, slots: &mut Slots<'r>) -> Flow
    where
        'e: 'r,
    {
        self.join_each(&same.compiled.lookups, same, arena, slots)
    }

    /// Looks up the join partners, and delivers the row if all exist and pass their tests.
    #[inline(always)]
    pub(super) fn join_each<'r>(
        &mut self,
        lookups: &'e [Lookup],
        same: &Same<'e>,
        arena: &'r Bump,
        slots: &mut Slots<'r>,
    ) -> Flow
    where
        'e: 'r,
    {
        for lookup in lookups {
            let Some(stored) = self.find(lookup, same, slots, arena)? else { return Ok(()) };
            if !self.join_one(lookup, stored, same, arena, slots)? {
                return Ok(());
            }
        }
        if self.plan.grouped { self.fold_slots(same, slots, arena) } else { self.give(same, slots, arena) }
    }

    /// Decodes the used fields of a join partner into the row; returns whether the tests pass.
    #[inline(always)]
    pub(super) fn join_one<'r>(
        &mut self,
        lookup: &'e Lookup,
        stored: &'r [u8],
        same: &Same<'e>,
        arena: &'r Bump,
        slots: &mut Slots<'r>,
    ) -> Result<bool, End>
    where
        'e: 'r,
    {
        if !lookup.own {
            self.count_row()?;
        }
        // A document that only has to exist is not parsed.
        if !lookup.fields.is_empty() {
            self.take_fields(&lookup.fields, parse_document(stored)?, slots);
        }
        Ok(same.pass(&lookup.tests, slots, arena)?)
    }

    /// The stored document that a lookup finds.
    #[inline(always)]
    pub(super) fn find<'r>(
        &self,
        lookup: &Lookup,
        same: &Same<'e>,
        slots: &Slots<'r>,
        arena: &'r Bump,
    ) -> Result<Option<&'r [u8]>, End>
    where
        'e: 'r,
    {
        let view = self.view;
        let integer = same.integer(lookup.key, slots).and_then(|integer| u32::try_from(integer).ok());
        let found = match integer {
            Some(integer) if lookup.kind == KeyType::U32 => view.get(lookup.tree, &integer.to_be_bytes())?,
            _ => match as_key(same.value(lookup.key, slots, arena)?, lookup.kind) {
                Some(key) => view.get(lookup.tree, key.as_bytes())?,
                None if lookup.own => return Err(ENTRY.into()),
                None => None,
            },
        };
        lookup.found(match found {
            Some(Cow::Borrowed(stored)) => Some(stored),
            Some(Cow::Owned(stored)) => Some(Workspace::new(arena, same.meter).copy(&stored)?),
            None => None,
        })
    }

    #[inline(always)]
    fn take_fields<'r>(&self, fields: &[CompiledField], document: StoredDocument<'r>, slots: &mut Slots<'r>) {
        for field in fields {
            let place = &self.fixed.caches[field.column];
            let mut cache = place.get();
            slots[field.slot] = document.raw_named(&field.name, &mut cache);
            place.set(cache);
        }
    }

    /// Adds a row to the aggregates. The row has passed all tests.
    #[inline(always)]
    fn fold_slots<'r>(&mut self, same: &Same<'e>, slots: &Slots<'r>, arena: &'r Bump) -> Flow
    where
        'e: 'r,
    {
        for (state, (kind, argument)) in self.states.iter_mut().zip(&same.compiled.aggregates) {
            match argument {
                None => state.step(*kind, Value::Null),
                Some(argument) => match same.integer(*argument, slots) {
                    Some(integer) => state.step(*kind, Value::Integer(integer)),
                    None => {
                        let value = same.value(*argument, slots, arena)?;
                        same.meter.weigh(value)?;
                        state.step(*kind, value);
                    }
                },
            }
        }
        if self.plan.first_only { Err(End::Enough) } else { Ok(()) }
    }

    /// Delivers a row to the sink. The row has passed all tests.
    #[inline(always)]
    fn give<'r>(&mut self, same: &Same<'e>, slots: &Slots<'r>, arena: &'r Bump) -> Flow
    where
        'e: 'r,
    {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        if same.compiled.outputs.len() > FEW_OUTPUTS {
            self.check_room(same, slots)?;
        }
        self.sink.begin_row();
        for (column, output) in same.compiled.outputs.iter().enumerate() {
            match output.form {
                SlotEncoding::Json if !output.whole && !slots[output.number].is_empty() => {
                    self.sink.field(column, FieldValue::Json(slots[output.number]));
                }
                SlotEncoding::Ordered if let Some(integer) = order::decode_integer(slots[output.number]) => {
                    self.sink.field(column, FieldValue::Value(Value::Integer(integer)));
                }
                SlotEncoding::Ordered
                    if !output.whole
                        && let Some(number) = index::written_number(slots[output.number]) =>
                {
                    self.sink.field(column, FieldValue::Json(number));
                }
                _ => self.give_value(column, same.value(*output, slots, arena)?)?,
            }
        }
        self.end_row()
    }

    /// A row of many fields that exceeds the remaining room of the result is an error before it is copied.
    #[inline(never)]
    fn check_room(&self, same: &Same<'e>, slots: &Slots<'_>) -> Result<(), Fault> {
        let mut room = self.result_room();
        let stored = same.compiled.outputs.iter().filter(|output| output.form != SlotEncoding::Known);
        stored.into_iter().try_for_each(|output| room.take(FieldValue::Json(slots[output.number])))
    }

    #[cold]
    fn give_value(&mut self, column: usize, value: Value<'_>) -> Result<(), QueryError> {
        let field = FieldValue::Value(value);
        check_finite(field, self.sink)?;
        self.sink.field(column, field);
        Ok(())
    }
}

impl Lookup {
    /// The document found. If an index entry's own document is missing, the data is damaged.
    #[inline(always)]
    pub(super) fn found<'r>(&self, found: Option<&'r [u8]>) -> Result<Option<&'r [u8]>, End> {
        if found.is_none() && self.own {
            return Err(QueryError::Damaged("an index entry without its document").into());
        }
        Ok(found)
    }
}

/// Decodes the included fields of an index entry that are used into their slots; returns the rest of its value.
#[inline(always)]
pub(super) fn lay_out<'r>(
    compiled: &CompiledPlan,
    value: &'r [u8],
    slots: &mut Slots<'r>,
) -> Result<IncludedValues<'r>, Fault> {
    let mut included = IncludedValues::new(value);
    for slot in slots.iter_mut().take(compiled.included) {
        *slot = included.next().map_err(|_| ENTRY)?.unwrap_or_default();
    }
    Ok(included)
}

/// Decodes the values of an index entry's key into their slots; a number that the key does not tell, as its document writes it.
#[inline(always)]
pub(super) fn lay_out_key<'r>(
    compiled: &CompiledPlan,
    (key, value): (&'r [u8], IncludedValues<'r>),
    slots: &mut Slots<'r>,
) -> Result<(), Fault> {
    let mut rest = key;
    for ordered in &compiled.ordered {
        for _ in 0..ordered.skipped {
            order::skip(&mut rest).ok_or(ENTRY)?;
        }
        slots[ordered.slot] = rest;
    }
    if let Some(included) = compiled.untold
        && let Some(written) = value.written(included - compiled.included).map_err(|_| ENTRY)?
    {
        let mut place = 0;
        for ordered in &compiled.ordered {
            place += ordered.skipped;
            if let Some(number) = written.at(place) {
                slots[ordered.slot] = number;
            }
        }
    }
    Ok(())
}

impl<'e> Same<'e> {
    #[inline(always)]
    pub(super) fn pass<'r>(&self, tests: &[Test], slots: &Slots<'r>, arena: &'r Bump) -> Result<bool, Fault>
    where
        'e: 'r,
    {
        for test in tests {
            let quick = match test {
                Test::Compare(comparison, left, right) => self.compare_quickly(*comparison, *left, *right, slots),
                Test::Null(..) => None,
            };
            let passes = match quick {
                Some(passes) => passes,
                None => self.passes(test, slots, arena)?,
            };
            if !passes {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A comparison without decoding to values: stored digits with a constant integer, a stored string with a constant text.
    #[inline(always)]
    fn compare_quickly(&self, comparison: Comparison, left: Term, right: Term, slots: &Slots<'_>) -> Option<bool> {
        if right.form != SlotEncoding::Known {
            return None;
        }
        match self.known[right.number] {
            Value::Integer(known) => {
                let integer = self.integer(left, slots)?;
                Some(comparison.holds(integer.cmp(&known)))
            }
            Value::Text(known) if comparison == Comparison::Equal && left.form == SlotEncoding::Json => {
                value::is_text(slots[left.number], known)
            }
            _ => None,
        }
    }

    #[inline(never)]
    fn passes<'r>(&self, test: &Test, slots: &Slots<'r>, arena: &'r Bump) -> Result<bool, Fault>
    where
        'e: 'r,
    {
        match test {
            Test::Compare(comparison, left, right) => {
                let (left, right) = (self.value(*left, slots, arena)?, self.value(*right, slots, arena)?);
                self.meter.weigh(left)?;
                Ok(holds(*comparison, left, right))
            }
            Test::Null(term, wanted) => Ok(self.value(*term, slots, arena)?.is_null() == *wanted),
        }
    }

    /// The integer of a term, if a quick decoding succeeds.
    #[inline(always)]
    pub(super) fn integer(&self, term: Term, slots: &Slots<'_>) -> Option<i64> {
        match term.form {
            SlotEncoding::Json => value::plain_integer(slots[term.number]),
            SlotEncoding::Ordered => order::decode_integer(slots[term.number]),
            SlotEncoding::Key(_) | SlotEncoding::Known => None,
        }
    }

    #[inline(never)]
    fn value<'r>(&self, term: Term, slots: &Slots<'r>, arena: &'r Bump) -> Result<Value<'r>, Fault>
    where
        'e: 'r,
    {
        let workspace = Workspace::new(arena, self.meter);
        let value = match term.form {
            SlotEncoding::Json => value::of_json(slots[term.number], workspace)?,
            SlotEncoding::Ordered => index_value(slots[term.number], workspace)?,
            SlotEncoding::Key(kind) => {
                let key = kind.of_bytes(slots[term.number]).ok_or(Fault::Damaged("a key"))?;
                of_scalar(key.scalar())
            }
            SlotEncoding::Known => self.known[term.number],
        };
        Ok(if term.whole { whole(value).map_or(Value::Null, Value::Integer) } else { value })
    }
}

#[inline]
fn holds(comparison: Comparison, left: Value<'_>, right: Value<'_>) -> bool {
    let order: Ordering = compare(left, right);
    !left.is_null() && !right.is_null() && comparison.holds(order)
}
