//! Runs a plan: nested loops over the view, rows pushed outwards as they are found.
//!
//! Nothing is allocated for a row in steady state: frames live on the stack, keys are built in kept buffers, computed
//! texts in an arena that is emptied between rows. An execution stops at its budget with an error that names it. The
//! outermost scan is one call of the view with a callback: to yield, it can end after any row and begin again behind
//! that row's key.

use std::cell::Cell;
use std::ops::{Bound, ControlFlow};

use binjson::{Document, FieldCache};
use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;
use hashbrown::{HashMap, HashSet};

use super::aggregate::State;
use super::error::{Fault, QueryError};
use super::expr::Expr;
use super::plan::{Access, Level, Limit, Plan};
use super::row::{CHANGE_NUMBER_BYTES, Field, Frame, Scope, of_scalar};
use super::sink::{RowSink, check_finite};
use super::sort::{self, SortBuffer};
use super::value::Value;
use crate::engine::{Direction, KeyRange, TreeId, View};
use crate::key::{Key, KeyType};
use crate::order::{self, Scalar};

/// Rows between two questions to [`Budget::deadline`].
const DEADLINE_ROWS: u64 = 256;
/// The arena is emptied between rows once it is larger than this.
const ARENA_BYTES_KEPT: usize = 16 << 10;
/// Bytes that a group or distinct row costs beside its own.
const GROUP_OVERHEAD_BYTES: usize = 64;
/// Queries whose field caches one [`Scratch`] keeps apart.
const CACHE_SLOTS: usize = 64;

/// Longest stored key of an integer.
const INTEGER_KEY_BYTES_MAX: usize = 8;

/// What an execution may use.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    /// Index entries and documents looked at.
    pub rows_max: u64,
    /// Bytes of the result.
    pub output_bytes_max: usize,
    /// Bytes kept for sorting, grouping and DISTINCT.
    pub memory_bytes_max: usize,
    /// Asked now and then: whether the time is over.
    pub deadline: Option<&'b dyn Fn() -> bool>,
    /// Unix time in milliseconds that `now` means in date functions.
    pub now_ms: i64,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget {
            rows_max: 10_000_000,
            output_bytes_max: 64 << 20,
            memory_bytes_max: 64 << 20,
            deadline: None,
            now_ms: 0,
        }
    }
}

/// What an execution did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Rows given to the sink.
    pub rows: u64,
    /// Index entries and documents looked at.
    pub rows_read: u64,
}

/// Memory that executions reuse. One for each thread.
#[derive(Default)]
pub struct Scratch {
    arena: Bump,
    constants: Bump,
    caches: Vec<Vec<Cell<FieldCache>>>,
    levels: Vec<LevelKeys>,
    sort: SortBuffer,
    states: Vec<State>,
    key: Vec<u8>,
}

#[derive(Default)]
struct LevelKeys {
    from: Vec<u8>,
    to: Vec<u8>,
    key: Vec<u8>,
}

impl Scratch {
    /// Empty; it grows to what the queries need and stays so.
    pub fn new() -> Self {
        Scratch::default()
    }
}

/// Whether more rows are wanted.
type Flow = Result<ControlFlow<()>, QueryError>;

const GO_ON: Flow = Ok(ControlFlow::Continue(()));
const STOP: Flow = Ok(ControlFlow::Break(()));

/// The groups seen: each one's place among the states, and its key's fields.
#[derive(Default)]
struct Groups {
    places: HashMap<Box<[u8]>, usize>,
    fields: Vec<Box<[u8]>>,
    bytes: usize,
}

/// What expressions see besides the row: the same for a whole execution.
#[derive(Clone, Copy)]
struct Fixed<'e> {
    plan: &'e Plan,
    parameters: &'e [Value<'e>],
    constants: &'e [Result<Value<'e>, Fault>],
    caches: &'e [Cell<FieldCache>],
    now_ms: i64,
}

impl<'e> Fixed<'e> {
    #[inline]
    fn scope<'s>(&self, arena: &'s Bump, frame: Option<&'s Frame<'s>>) -> Scope<'s>
    where
        'e: 's,
    {
        Scope {
            frame,
            sources: &self.plan.sources,
            caches: self.caches,
            parameters: self.parameters,
            constants: self.constants,
            aggregates: &[],
            group: &[],
            arena,
            now_ms: self.now_ms,
        }
    }
}

struct Run<'e, S: RowSink + ?Sized> {
    plan: &'e Plan,
    fixed: Fixed<'e>,
    view: &'e dyn View,
    budget: &'e Budget<'e>,
    arena: &'e mut Bump,
    levels: &'e mut [LevelKeys],
    sort: &'e mut SortBuffer,
    states: &'e mut Vec<State>,
    key: &'e mut Vec<u8>,
    groups: Groups,
    distinct: HashSet<Box<[u8]>>,
    distinct_bytes: usize,
    skip: u64,
    wanted: u64,
    outcome: Outcome,
    sink: &'e mut S,
}

/// Runs a plan once. `query` numbers the query, so that its field caches are found again.
pub(crate) fn execute<S: RowSink + ?Sized>(
    plan: &Plan,
    query: usize,
    view: &dyn View,
    parameters: &[Value<'_>],
    scratch: &mut Scratch,
    budget: &Budget<'_>,
    sink: &mut S,
) -> Result<Outcome, QueryError> {
    scratch.arena.reset();
    scratch.constants.reset();
    scratch.sort.clear();
    if scratch.levels.len() < plan.levels.len() {
        scratch.levels.resize_with(plan.levels.len(), LevelKeys::default);
    }
    let slot = query % CACHE_SLOTS;
    if scratch.caches.len() <= slot {
        scratch.caches.resize_with(slot + 1, Vec::new);
    }
    if scratch.caches[slot].len() < plan.sources.len() {
        scratch.caches[slot].resize_with(plan.sources.len(), Cell::default);
    }
    let constants = evaluate_constants(plan, parameters, budget, &scratch.constants);
    let (skip, wanted) = window(plan, parameters, constants, budget, &scratch.constants)?;
    let mut run = Run {
        plan,
        fixed: Fixed { plan, parameters, constants, caches: &scratch.caches[slot], now_ms: budget.now_ms },
        view,
        budget,
        arena: &mut scratch.arena,
        levels: &mut scratch.levels,
        sort: &mut scratch.sort,
        states: &mut scratch.states,
        key: &mut scratch.key,
        groups: Groups::default(),
        distinct: HashSet::new(),
        distinct_bytes: 0,
        skip,
        wanted,
        outcome: Outcome::default(),
        sink,
    };
    run.run()?;
    Ok(run.outcome)
}

fn constant_scope<'a>(
    plan: &'a Plan,
    parameters: &'a [Value<'a>],
    constants: &'a [Result<Value<'a>, Fault>],
    budget: &Budget<'_>,
    arena: &'a Bump,
) -> Scope<'a> {
    Scope {
        frame: None,
        sources: &plan.sources,
        caches: &[],
        parameters,
        constants,
        aggregates: &[],
        group: &[],
        arena,
        now_ms: budget.now_ms,
    }
}

fn evaluate_constants<'a>(
    plan: &'a Plan,
    parameters: &'a [Value<'a>],
    budget: &Budget<'_>,
    arena: &'a Bump,
) -> &'a [Result<Value<'a>, Fault>] {
    if plan.constants.is_empty() {
        return &[];
    }
    let scope = constant_scope(plan, parameters, &[], budget, arena);
    let mut values = BumpVec::with_capacity_in(plan.constants.len(), arena);
    values.extend(plan.constants.iter().map(|constant| constant.evaluate(&scope)));
    values.into_bump_slice()
}

/// OFFSET and LIMIT. A negative limit is none, a negative offset is 0; anything but an integer is refused.
fn window(
    plan: &Plan,
    parameters: &[Value<'_>],
    constants: &[Result<Value<'_>, Fault>],
    budget: &Budget<'_>,
    arena: &Bump,
) -> Result<(u64, u64), QueryError> {
    let scope = constant_scope(plan, parameters, constants, budget, arena);
    let number = |expr: &Expr| match expr.evaluate(&scope)?.with_numeric_affinity() {
        Value::Integer(integer) => Ok(integer),
        Value::Real(real) if real == real.trunc() && real.abs() < 9e18 => Ok(real as i64),
        _ => Err(QueryError::Value("LIMIT and OFFSET take integers")),
    };
    let limit = plan.limit.as_ref().map(number).transpose()?;
    let offset = plan.offset.as_ref().map(number).transpose()?;
    Ok((offset.map_or(0, |o| o.max(0) as u64), limit.map_or(u64::MAX, |l| u64::try_from(l).unwrap_or(u64::MAX))))
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    fn run(&mut self) -> Result<(), QueryError> {
        let plan = self.plan;
        if plan.grouped {
            self.states.clear();
            if plan.group.is_empty() {
                self.states.resize_with(plan.aggregates.len(), State::default);
            }
        }
        let scope = self.scope(None);
        let mut passes = self.wanted > 0 || plan.grouped;
        for condition in &plan.first {
            passes = passes && condition.passes(&scope)?;
        }
        if passes {
            let _ = self.level(0, None)?;
        }
        if plan.grouped && self.wanted > 0 {
            self.finish_groups()?;
        }
        if !plan.order.is_empty() {
            self.finish_sort()?;
        }
        Ok(())
    }

    #[inline]
    fn scope<'s>(&'s self, frame: Option<&'s Frame<'s>>) -> Scope<'s> {
        self.fixed.scope(self.arena, frame)
    }

    #[inline]
    fn passes(&self, conditions: &[Expr], frame: &Frame<'_>) -> Result<bool, Fault> {
        if conditions.is_empty() {
            return Ok(true);
        }
        let scope = self.scope(Some(frame));
        for condition in conditions {
            if !condition.passes(&scope)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    #[inline]
    fn count_row(&mut self) -> Result<(), QueryError> {
        self.outcome.rows_read += 1;
        if self.outcome.rows_read > self.budget.rows_max {
            return Err(QueryError::Limit { what: "rows read", limit: self.budget.rows_max });
        }
        if self.outcome.rows_read.is_multiple_of(DEADLINE_ROWS) && self.budget.deadline.is_some_and(|over| over()) {
            return Err(QueryError::Deadline);
        }
        Ok(())
    }

    // ---- levels ------------------------------------------------------------------------------------------------

    /// Finds the level's entries for the row outside, and goes inwards with each.
    fn level(&mut self, number: usize, outer: Option<&Frame<'_>>) -> Flow {
        let plan = self.plan;
        let Some(level) = plan.levels.get(number) else { return self.emit(outer) };
        let mut found = false;
        if let Access::Key(value) = &level.access
            && level.key != KeyType::String
            && !level.left
        {
            return self.lookup(number, level, value, outer);
        }
        // The buffers are taken out while the level runs, for deeper levels use the run too.
        let mut keys = std::mem::take(&mut self.levels[number]);
        let flow = self.entries(number, level, outer, &mut keys, &mut found);
        self.levels[number] = keys;
        if flow?.is_break() {
            return STOP;
        }
        if !level.left || found {
            return GO_ON;
        }
        let frame = Frame { level: number, key: &[], value: &[], document: None, absent: true, outer };
        if !self.passes(&level.beyond, &frame)? {
            return GO_ON;
        }
        self.level(number + 1, Some(&frame))
    }

    /// The common join: one document by an integer key, which needs no buffer.
    #[inline]
    fn lookup(&mut self, number: usize, level: &Level, value: &Expr, outer: Option<&Frame<'_>>) -> Flow {
        let mut bytes = [0; INTEGER_KEY_BYTES_MAX];
        let length = {
            let value = value.evaluate(&self.scope(outer))?;
            let Some(key) = as_key(value, level.key) else { return GO_ON };
            let key = key.as_bytes();
            bytes[..key.len()].copy_from_slice(key);
            key.len()
        };
        self.document(number, level, &bytes[..length], outer, &mut false)
    }

    fn entries(
        &mut self,
        number: usize,
        level: &Level,
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
        found: &mut bool,
    ) -> Flow {
        match &level.access {
            Access::Key(value) => {
                if !self.key_bytes(value, level.key, outer, &mut keys.key)? {
                    return GO_ON;
                }
                self.document(number, level, &keys.key, outer, found)
            }
            Access::Unique { tree, value, .. } => {
                keys.from.clear();
                match value.evaluate(&self.scope(outer))? {
                    Value::Null => return GO_ON,
                    value => order::lower(value.scalar().ok_or(Fault::Damaged("a text"))?, &mut keys.from),
                }
                match self.view.get(*tree, &keys.from)? {
                    Some(key) => self.document(number, level, &key, outer, found),
                    None => GO_ON,
                }
            }
            Access::Index { tree, equal, from, to, direction, .. } => {
                if !self.index_bounds(equal, from.as_ref(), to.as_ref(), outer, keys)? {
                    return GO_ON;
                }
                let open = |bytes: &Vec<u8>| if bytes.is_empty() { None } else { Some(()) };
                let range = KeyRange {
                    from: open(&keys.from).map_or(Bound::Unbounded, |()| Bound::Included(&keys.from[..])),
                    to: open(&keys.to).map_or(Bound::Unbounded, |()| Bound::Excluded(&keys.to[..])),
                };
                let key = &mut keys.key;
                self.scan(*tree, range, *direction, |run, entry, value| {
                    run.index_entry(number, level, (entry, value), outer, key, found)
                })
            }
            Access::Scan { from, to, direction } => {
                let low = self.scan_bound(from.as_ref(), level.key, outer, &mut keys.from)?;
                let high = self.scan_bound(to.as_ref(), level.key, outer, &mut keys.to)?;
                let range = KeyRange {
                    from: if low { Bound::Included(&keys.from[..]) } else { Bound::Unbounded },
                    to: if high { Bound::Included(&keys.to[..]) } else { Bound::Unbounded },
                };
                self.scan(level.tree, range, *direction, |run, key, value| {
                    let document = parse_document(value)?;
                    let frame =
                        Frame { level: number, key, value: &[], document: Some(document), absent: false, outer };
                    run.row(number, level, &frame, found)
                })
            }
        }
    }

    /// Visits a range; an error inside ends the visit and is given on.
    fn scan(
        &mut self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Flow,
    ) -> Flow {
        let (mut flow, view) = (GO_ON, self.view);
        view.scan(tree, range, direction, &mut |key, value| {
            flow = visit(self, key, value);
            match flow {
                Ok(go_on) => go_on,
                Err(_) => ControlFlow::Break(()),
            }
        })?;
        flow
    }

    /// The key that a value is, put into `out`; false where it is none.
    #[inline]
    fn key_bytes(
        &self,
        value: &Expr,
        kind: KeyType,
        outer: Option<&Frame<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<bool, QueryError> {
        let value = value.evaluate(&self.scope(outer))?;
        out.clear();
        let Some(key) = as_key(value, kind) else { return Ok(false) };
        out.extend_from_slice(key.as_bytes());
        Ok(true)
    }

    /// One document by its key.
    fn document(
        &mut self,
        number: usize,
        level: &Level,
        key: &[u8],
        outer: Option<&Frame<'_>>,
        found: &mut bool,
    ) -> Flow {
        let view = self.view;
        let Some(stored) = view.get(level.tree, key)? else { return GO_ON };
        let document = Some(parse_document(&stored)?);
        let frame = Frame { level: number, key, value: &[], document, absent: false, outer };
        self.row(number, level, &frame, found)
    }

    fn index_entry(
        &mut self,
        number: usize,
        level: &Level,
        (entry, value): (&[u8], &[u8]),
        outer: Option<&Frame<'_>>,
        key: &mut Vec<u8>,
        found: &mut bool,
    ) -> Flow {
        let frame = Frame { level: number, key: entry, value, document: None, absent: false, outer };
        if !level.fetch {
            return self.row(number, level, &frame, found);
        }
        if !self.passes(&level.before, &frame)? {
            return self.count_row().map(ControlFlow::Continue);
        }
        primary_key(entry, level, key)?;
        let view = self.view;
        let stored = view.get(level.tree, key)?.ok_or(QueryError::Damaged("an index entry without its document"))?;
        let frame = Frame { document: Some(parse_document(&stored)?), ..frame };
        self.row(number, level, &frame, found)
    }

    /// A candidate row of the level: checks its conditions and goes inwards.
    #[inline]
    fn row(&mut self, number: usize, level: &Level, frame: &Frame<'_>, found: &mut bool) -> Flow {
        self.count_row()?;
        if !level.fetch && !self.passes(&level.before, frame)? {
            return GO_ON;
        }
        if !self.passes(&level.after, frame)? {
            return GO_ON;
        }
        *found = true;
        if level.left && !self.passes(&level.beyond, frame)? {
            return GO_ON;
        }
        let flow = self.level(number + 1, Some(frame))?;
        // No value made for this row is looked at again: those that are kept were copied.
        if self.arena.allocated_bytes() > ARENA_BYTES_KEPT {
            self.arena.reset();
        }
        Ok(flow)
    }

    /// The bounds of an index range, empty for none; false where nothing can match.
    fn index_bounds(
        &self,
        equal: &[Expr],
        from: Option<&Limit>,
        to: Option<&Limit>,
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
    ) -> Result<bool, QueryError> {
        let scope = self.scope(outer);
        let (low, high) = (&mut keys.from, &mut keys.to);
        low.clear();
        high.clear();
        for (place, value) in equal.iter().enumerate() {
            let Some(value) = bound_value(value, &scope)? else { return Ok(false) };
            if place + 1 == equal.len() {
                high.extend_from_slice(low);
                if to.is_some() { order::lower(value, high) } else { order::upper(value, high) }
            }
            order::lower(value, low);
        }
        if let Some((value, inclusive)) = to {
            let Some(value) = bound_value(value, &scope)? else { return Ok(false) };
            if *inclusive { order::upper(value, high) } else { order::lower(value, high) }
        }
        match from {
            Some((value, inclusive)) => {
                let Some(value) = bound_value(value, &scope)? else { return Ok(false) };
                if *inclusive { order::lower(value, low) } else { order::upper(value, low) }
            }
            // NULL is below every bound, yet fulfils none.
            None if to.is_some() => order::upper(Scalar::Null, low),
            None => {}
        }
        Ok(high.is_empty() || low.as_slice() < high.as_slice())
    }

    /// One bound of a scan in key order; false for none. A value that is no key does not narrow.
    fn scan_bound(
        &self,
        value: Option<&Expr>,
        kind: KeyType,
        outer: Option<&Frame<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<bool, QueryError> {
        match value {
            Some(value) => self.key_bytes(value, kind, outer, out),
            None => Ok(false),
        }
    }

    // ---- what becomes of a row ---------------------------------------------------------------------------------

    fn emit(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        if self.plan.grouped {
            return self.fold(frame);
        }
        let plan = self.plan;
        if plan.distinct && !self.is_new(frame)? {
            return GO_ON;
        }
        if !plan.order.is_empty() {
            return self.collect(frame);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return GO_ON;
        }
        self.sink.begin_row();
        let scope = self.fixed.scope(self.arena, frame);
        for (column, expr) in plan.outputs.iter().enumerate() {
            let field = output(expr, &scope)?;
            check_finite(field)?;
            self.sink.field(column, field);
        }
        self.end_row()
    }

    #[inline]
    fn end_row(&mut self) -> Flow {
        self.sink.end_row();
        self.outcome.rows += 1;
        if self.sink.bytes() > self.budget.output_bytes_max {
            return Err(QueryError::Limit { what: "bytes of result", limit: self.budget.output_bytes_max as u64 });
        }
        if self.outcome.rows >= self.wanted { STOP } else { GO_ON }
    }

    /// DISTINCT: whether such a row was not there before.
    fn is_new(&mut self, frame: Option<&Frame<'_>>) -> Result<bool, QueryError> {
        let mut key = std::mem::take(self.key);
        key.clear();
        for expr in &self.plan.outputs {
            sort::push_key(expr.evaluate(&self.scope(frame))?, false, &mut key)?;
        }
        let new = !self.distinct.contains(&key[..]);
        if new {
            self.distinct_bytes += key.len() + GROUP_OVERHEAD_BYTES;
            self.check_memory(self.distinct_bytes)?;
            self.distinct.insert(key.as_slice().into());
        }
        *self.key = key;
        Ok(new)
    }

    fn check_memory(&self, bytes: usize) -> Result<(), QueryError> {
        let limit = self.budget.memory_bytes_max;
        if bytes > limit {
            return Err(QueryError::Limit { what: "bytes of groups", limit: limit as u64 });
        }
        Ok(())
    }

    /// Keeps a row for sorting.
    fn collect(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let plan = self.plan;
        self.sort.begin();
        for (expr, falling) in &plan.order {
            let scope = self.fixed.scope(self.arena, frame);
            sort::push_key(expr.evaluate(&scope)?, *falling, self.sort.bytes())?;
        }
        self.sort.end_key();
        for expr in &plan.outputs {
            let field = output(expr, &self.fixed.scope(self.arena, frame))?;
            sort::push_field(field, self.sort.bytes());
        }
        self.sort.end(self.keep(), self.budget.memory_bytes_max)?;
        GO_ON
    }

    /// How many sorted rows are wanted at most.
    fn keep(&self) -> Option<usize> {
        let keep = self.wanted.checked_add(self.skip)?;
        usize::try_from(keep).ok().filter(|&keep| keep < usize::MAX / 4)
    }

    fn finish_sort(&mut self) -> Result<(), QueryError> {
        let sort = std::mem::take(self.sort);
        let result = self.write_sorted(sort);
        *self.sort = result?;
        Ok(())
    }

    fn write_sorted(&mut self, mut sort: SortBuffer) -> Result<SortBuffer, QueryError> {
        sort.sort();
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        for mut row in sort.rows().skip(skip) {
            self.sink.begin_row();
            for column in 0..self.plan.outputs.len() {
                let field = sort::take_field(&mut row);
                check_finite(field)?;
                self.sink.field(column, field);
            }
            if self.end_row()?.is_break() {
                break;
            }
        }
        Ok(sort)
    }

    // ---- groups ------------------------------------------------------------------------------------------------

    /// Takes a row into its group's aggregates.
    fn fold(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let plan = self.plan;
        let start = if plan.group.is_empty() { 0 } else { self.group_of(frame)? * plan.aggregates.len() };
        let scope = self.fixed.scope(self.arena, frame);
        for (place, (kind, argument)) in plan.aggregates.iter().enumerate() {
            let value = match argument {
                Some(argument) => argument.evaluate(&scope)?,
                None => Value::Null,
            };
            self.states[start + place].step(*kind, value);
        }
        GO_ON
    }

    fn group_of(&mut self, frame: Option<&Frame<'_>>) -> Result<usize, QueryError> {
        let plan = self.plan;
        let mut key = std::mem::take(self.key);
        key.clear();
        for expr in &plan.group {
            sort::push_key(expr.evaluate(&self.scope(frame))?, false, &mut key)?;
        }
        let place = match self.groups.places.get(&key[..]) {
            Some(&place) => place,
            None => {
                let mut fields = Vec::new();
                for expr in &plan.group {
                    sort::push_field(output(expr, &self.scope(frame))?, &mut fields);
                }
                let states = plan.aggregates.len() * std::mem::size_of::<State>();
                self.groups.bytes += key.len() + fields.len() + states + GROUP_OVERHEAD_BYTES;
                self.check_memory(self.groups.bytes)?;
                let place = self.groups.fields.len();
                self.groups.places.insert(key.as_slice().into(), place);
                self.groups.fields.push(fields.into_boxed_slice());
                self.states.resize_with((place + 1) * plan.aggregates.len(), State::default);
                place
            }
        };
        *self.key = key;
        Ok(place)
    }

    fn finish_groups(&mut self) -> Result<(), QueryError> {
        let groups = std::mem::take(&mut self.groups);
        let states = std::mem::take(self.states);
        let count = if self.plan.group.is_empty() { 1 } else { groups.fields.len() };
        for group in 0..count {
            let fields = groups.fields.get(group).map_or(&[][..], |fields| fields);
            let width = self.plan.aggregates.len();
            if self.finish_group(fields, &states[group * width..(group + 1) * width])?.is_break() {
                break;
            }
        }
        *self.states = states;
        Ok(())
    }

    fn finish_group(&mut self, fields: &[u8], states: &[State]) -> Flow {
        // Taken out, so that the group's values can stand in it while the run goes on.
        let mut arena = std::mem::take(self.arena);
        arena.reset();
        let flow = self.finish_group_in(&arena, fields, states);
        *self.arena = arena;
        flow
    }

    fn finish_group_in(&mut self, arena: &Bump, mut fields: &[u8], states: &[State]) -> Flow {
        let plan = self.plan;
        let mut stored = BumpVec::new_in(arena);
        let mut group = BumpVec::new_in(arena);
        for _ in &plan.group {
            let field = sort::take_field(&mut fields);
            stored.push(field);
            group.push(match field {
                Field::Json(json) => super::value::of_json(json, arena)?,
                Field::Value(value) => value,
            });
        }
        let mut aggregates = BumpVec::new_in(arena);
        for (state, (kind, _)) in states.iter().zip(&plan.aggregates) {
            aggregates.push(state.finish(*kind)?);
        }
        let scope = Scope { aggregates: &aggregates, group: &group, ..self.fixed.scope(arena, None) };
        if let Some(having) = &plan.having
            && !having.passes(&scope)?
        {
            return GO_ON;
        }
        let mut outputs = BumpVec::with_capacity_in(plan.outputs.len(), arena);
        for expr in &plan.outputs {
            outputs.push(match expr {
                Expr::GroupKey(place) => stored[*place],
                other => Field::Value(other.evaluate(&scope)?),
            });
        }
        self.finish_output(&outputs, &scope)
    }

    fn finish_output(&mut self, outputs: &[Field<'_>], scope: &Scope<'_>) -> Flow {
        let plan = self.plan;
        if plan.distinct {
            let mut key = Vec::new();
            for field in outputs {
                let value = match field {
                    Field::Json(json) => super::value::of_json(json, scope.arena)?,
                    Field::Value(value) => *value,
                };
                sort::push_key(value, false, &mut key)?;
            }
            if !self.distinct.insert(key.into_boxed_slice()) {
                return GO_ON;
            }
        }
        if !plan.order.is_empty() {
            self.sort.begin();
            for (expr, falling) in &plan.order {
                sort::push_key(expr.evaluate(scope)?, *falling, self.sort.bytes())?;
            }
            self.sort.end_key();
            outputs.iter().for_each(|field| sort::push_field(*field, self.sort.bytes()));
            self.sort.end(self.keep(), self.budget.memory_bytes_max)?;
            return GO_ON;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return GO_ON;
        }
        self.sink.begin_row();
        for (column, field) in outputs.iter().enumerate() {
            check_finite(*field)?;
            self.sink.field(column, *field);
        }
        self.end_row()
    }
}

/// A result column: a field as stored, anything else as its value.
#[inline]
fn output<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<Field<'a>, Fault> {
    match expr {
        Expr::Column(column) => scope.cell(*column),
        Expr::Path(column, steps) => {
            Ok(scope.stored_path(*column, steps)?.map_or(Field::Value(Value::Null), Field::Json))
        }
        other => other.evaluate(scope).map(Field::Value),
    }
}

/// The value of a bound; `None` for NULL, which nothing matches.
#[inline]
fn bound_value<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<Option<Scalar<'a>>, Fault> {
    match expr.evaluate(scope)? {
        Value::Null => Ok(None),
        value => value.scalar().map(Some).ok_or(Fault::Damaged("a text")),
    }
}

#[inline]
fn parse_document(stored: &[u8]) -> Result<Document<'_>, QueryError> {
    let bytes = stored.get(CHANGE_NUMBER_BYTES..).unwrap_or_default();
    Document::from_bytes(bytes).map_err(|_| QueryError::Damaged("a document"))
}

/// The key that a value equals, if any: 5.0 equals the key 5.
#[inline]
fn as_key(value: Value<'_>, kind: KeyType) -> Option<Key<'_>> {
    let value = match value {
        Value::Real(real) if kind != KeyType::String && real == real.trunc() && real.abs() < 9.2e18 => {
            Value::Integer(real as i64)
        }
        other => other,
    };
    kind.of_scalar(value.scalar()?)
}

/// The stored key of the document that an index entry belongs to.
fn primary_key(entry: &[u8], level: &Level, out: &mut Vec<u8>) -> Result<(), QueryError> {
    const ENTRY: QueryError = QueryError::Damaged("an index entry");
    let mut rest = entry;
    for _ in 0..level.key_place {
        order::skip(&mut rest).ok_or(ENTRY)?;
    }
    let mut unescaped = Vec::new();
    let scalar = order::decode(&mut rest, &mut unescaped).ok_or(ENTRY)?;
    let key = as_key(of_scalar(scalar), level.key).ok_or(ENTRY)?;
    out.clear();
    out.extend_from_slice(key.as_bytes());
    Ok(())
}
