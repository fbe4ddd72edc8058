//! Runs a plan: nested loops over the view, rows pushed outwards as they are found.
//!
//! Nothing is allocated for a row in steady state: frames live on the stack, keys are built in kept buffers, computed
//! texts in an arena that is emptied between rows. An execution stops at its budget with an error that names it. The
//! outermost scan is one call of the view with a callback: to yield, it can end after any row and begin again behind
//! that row's key.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use binjson::FieldCache;
use bumpalo::Bump;
use hashbrown::{HashMap, HashSet};

use super::aggregate::State;
use super::batch::Batch;
use super::constants::{self, Remembered};
use super::error::{Fault, QueryError};
use super::expr::Expr;
use super::parts::{OfPart, Part};
use super::plan::Plan;
use super::relation::Relations;
use super::row::{Fixed, Frame, Scope};
use super::sink::RowSink;
use super::sort::SortBuffer;
use super::spill::SpillSpace;
use super::spilled::Spilled;
use super::value::Value;
use super::workers::{Helpers, Workers};
use crate::engine::{KeyRange, View};

/// Rows between two questions to [`Budget::deadline`]: some ten microseconds of rows of a kilobyte. Whoever asks uses them to
/// let others have the core.
const DEADLINE_ROWS: u64 = 64;
/// Queries whose field caches one [`Scratch`] keeps apart.
const CACHE_SLOTS: usize = 64;

/// What an execution may use.
#[derive(Clone, Copy)]
pub struct Budget<'b> {
    /// Index entries and documents looked at.
    pub rows_max: u64,
    /// Bytes of the result.
    pub output_bytes_max: usize,
    /// Bytes kept for sorting, grouping and DISTINCT.
    pub memory_bytes_max: usize,
    /// Where what exceeds that goes; without it, it is an error.
    pub spill: Option<&'b Arc<SpillSpace>>,
    /// Asked now and then: whether the time is over.
    pub deadline: Option<&'b (dyn Fn() -> bool + Sync)>,
    /// Unix time in milliseconds that `now` means in date functions.
    pub now_ms: i64,
}

impl Default for Budget<'_> {
    fn default() -> Self {
        Budget {
            rows_max: 10_000_000,
            output_bytes_max: 64 << 20,
            memory_bytes_max: 64 << 20,
            spill: None,
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
    remembered: Remembered,
    caches: Vec<Vec<Cell<FieldCache>>>,
    pub(super) levels: Vec<LevelKeys>,
    batch: Batch,
    pub(super) sort: SortBuffer,
    pub(super) states: Vec<State>,
    key: Vec<u8>,
    workers: Helpers,
    /// That of inner queries.
    inner: Option<Box<Scratch>>,
}

#[derive(Default)]
pub(super) struct LevelKeys {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// Where the rows of `json_each` end.
    pub(super) ends: Vec<usize>,
}

impl LevelKeys {
    /// The range of an index between the bounds; an empty one is none.
    pub(super) fn index_range(&self) -> KeyRange<'_> {
        KeyRange {
            from: if self.from.is_empty() { Bound::Unbounded } else { Bound::Included(&self.from) },
            to: if self.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(&self.to) },
        }
    }

    /// The range of documents between the bounds that there are.
    pub(super) fn document_range(&self, low: bool, high: bool) -> KeyRange<'_> {
        KeyRange {
            from: if low { Bound::Included(&self.from[..]) } else { Bound::Unbounded },
            to: if high { Bound::Included(&self.to[..]) } else { Bound::Unbounded },
        }
    }
}

impl Scratch {
    /// Empty; it grows to what the queries need and stays so.
    pub fn new() -> Self {
        Scratch::default()
    }

    /// The same with threads that help where much is read.
    pub fn with_workers(self, workers: Arc<Workers>) -> Self {
        Scratch { workers: Some(workers), ..self }
    }

    pub(super) fn take_inner(&mut self) -> Option<Box<Scratch>> {
        let mut inner = self.inner.take().unwrap_or_default();
        inner.workers.clone_from(&self.workers);
        Some(inner)
    }

    pub(super) fn keep_inner(&mut self, inner: Option<Box<Scratch>>) {
        self.inner = inner;
    }
}

/// Why the loops end before their ranges do. One word, so that it is handed outwards in registers.
pub(super) enum End {
    /// As many rows as are wanted.
    Enough,
    Error(Box<QueryError>),
}

/// Whether the loops go on.
pub(super) type Flow = Result<(), End>;

impl From<QueryError> for End {
    #[cold]
    fn from(error: QueryError) -> Self {
        End::Error(Box::new(error))
    }
}

impl From<Fault> for End {
    #[cold]
    fn from(fault: Fault) -> Self {
        End::from(QueryError::from(fault))
    }
}

impl From<store::Error> for End {
    #[cold]
    fn from(error: store::Error) -> Self {
        End::from(QueryError::from(error))
    }
}

/// The groups seen: each one's place among the states, and its key's fields.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) places: HashMap<Box<[u8]>, usize>,
    pub(super) fields: Vec<Box<[u8]>>,
    /// The numbers of the groups in the order in which they were first seen, also among those that are on disk.
    pub(super) arrivals: Vec<u64>,
    pub(super) next_arrival: u64,
    pub(super) bytes: usize,
}

/// An execution in progress.
pub(super) struct Run<'e, S: RowSink + ?Sized> {
    pub(super) plan: &'e Plan,
    pub(super) fixed: &'e Fixed<'e>,
    pub(super) view: &'e dyn View,
    pub(super) budget: &'e Budget<'e>,
    pub(super) arena: &'e mut Bump,
    pub(super) levels: &'e mut [LevelKeys],
    pub(super) batch: &'e mut Batch,
    pub(super) sort: &'e mut SortBuffer,
    pub(super) states: &'e mut Vec<State>,
    pub(super) key: &'e mut Vec<u8>,
    pub(super) groups: Groups,
    pub(super) distinct: HashSet<Box<[u8]>>,
    pub(super) distinct_bytes: usize,
    /// What is on disk, if anything is.
    pub(super) spilled: Option<Box<Spilled>>,
    /// The groups are to go to disk before the next row.
    pub(super) is_full: bool,
    pub(super) skip: u64,
    pub(super) wanted: u64,
    pub(super) outcome: Outcome,
    /// The row at which the budget is looked at again.
    pub(super) check_at: u64,
    /// The part of the outermost range that is read, where several threads read it.
    pub(super) part: Option<Part<'e>>,
    /// Rows and bytes that the part has counted with the others.
    pub(super) counted: (u64, Cell<usize>),
    pub(super) sink: &'e mut S,
}

/// Runs a plan once, its inner queries being run by `relations`. `query` numbers the query, so that its field caches are
/// found again.
pub(crate) fn execute<S: RowSink + ?Sized>(
    plan: &Plan,
    query: usize,
    (view, relations): (&dyn View, Option<&dyn Relations>),
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
    let mut fixed = Fixed {
        sources: &plan.sources,
        caches: &scratch.caches[slot],
        parameters,
        constants: &[],
        aggregates: &[],
        group: &[],
        relations,
        now_ms: budget.now_ms,
    };
    fixed.constants = constants::evaluate(plan, &fixed, &scratch.constants, &mut scratch.remembered);
    let (skip, wanted) = window(plan, &fixed, &scratch.constants)?;
    let mut run = Run {
        plan,
        fixed: &fixed,
        view,
        budget,
        arena: &mut scratch.arena,
        levels: &mut scratch.levels,
        batch: &mut scratch.batch,
        sort: &mut scratch.sort,
        states: &mut scratch.states,
        key: &mut scratch.key,
        groups: Groups::default(),
        distinct: HashSet::new(),
        distinct_bytes: 0,
        spilled: None,
        is_full: false,
        skip,
        wanted,
        outcome: Outcome::default(),
        check_at: next_check(0, budget),
        part: None,
        counted: Default::default(),
        sink,
    };
    run.run(scratch.workers.as_deref())?;
    Ok(run.outcome)
}

/// OFFSET and LIMIT. A negative limit is none, a negative offset is 0; anything but an integer is refused.
fn window(plan: &Plan, fixed: &Fixed<'_>, arena: &Bump) -> Result<(u64, u64), QueryError> {
    if plan.limit.is_none() && plan.offset.is_none() {
        return Ok((0, u64::MAX));
    }
    let scope = Scope { frame: None, fixed, arena };
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
    fn run(&mut self, workers: Option<&Workers>) -> Result<(), QueryError> {
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
            ended(self.all_rows(workers))?;
        }
        if plan.grouped && self.wanted > 0 {
            ended(self.finish_groups())?;
        }
        if self.spilled.is_some() {
            ended(self.finish_distinct())?;
        }
        if !plan.order.is_empty() {
            ended(self.finish_sort())?;
        }
        Ok(())
    }

    fn all_rows(&mut self, workers: Option<&Workers>) -> Flow {
        match workers {
            Some(workers) if self.rows_in_parts(workers)? => Ok(()),
            _ => self.rows(),
        }
    }

    fn rows(&mut self) -> Flow {
        match &self.plan.compiled {
            Some(compiled) if self.pipeline(compiled)? => Ok(()),
            _ => self.level(0, None),
        }
    }

    #[inline]
    pub(super) fn scope<'s>(&'s self, frame: Option<&'s Frame<'s>>) -> Scope<'s> {
        Scope { frame, fixed: self.fixed, arena: self.arena }
    }

    #[inline]
    pub(super) fn passes(&self, conditions: &[Expr], frame: &Frame<'_>) -> Result<bool, Fault> {
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
    pub(super) fn count_row(&mut self) -> Flow {
        self.outcome.rows_read += 1;
        if self.outcome.rows_read >= self.check_at {
            self.check_budget()?;
        }
        Ok(())
    }

    #[cold]
    fn check_budget(&mut self) -> Flow {
        let mut rows_read = self.outcome.rows_read;
        if let Some(part) = self.part {
            if part.is_unwanted() {
                return Err(End::Enough);
            }
            rows_read = part.add_rows(self.outcome.rows_read - self.counted.0);
            self.counted.0 = self.outcome.rows_read;
        }
        if rows_read > self.budget.rows_max {
            return Err(QueryError::Limit { what: "rows read", limit: self.budget.rows_max }.into());
        }
        if self.outcome.rows_read.is_multiple_of(DEADLINE_ROWS) && self.budget.deadline.is_some_and(|over| over()) {
            return Err(QueryError::Deadline.into());
        }
        self.check_at = next_check(self.outcome.rows_read, self.budget);
        Ok(())
    }
}

impl<'e> Run<'e, OfPart> {
    /// The run of one part. `keep` is how many sorted rows are wanted.
    pub(super) fn of_part(
        plan: &'e Plan,
        fixed: &'e Fixed<'e>,
        view: &'e dyn View,
        budget: &'e Budget<'e>,
        scratch: &'e mut Scratch,
        sink: &'e mut OfPart,
        (part, keep): (Part<'e>, Option<usize>),
    ) -> Self {
        scratch.arena.reset();
        scratch.states.clear();
        if plan.grouped && plan.group.is_empty() {
            scratch.states.resize_with(plan.aggregates.len(), State::default);
        }
        Run {
            plan,
            fixed,
            view,
            budget,
            arena: &mut scratch.arena,
            levels: &mut scratch.levels,
            batch: &mut scratch.batch,
            sort: &mut scratch.sort,
            states: &mut scratch.states,
            key: &mut scratch.key,
            groups: Groups { next_arrival: part.first_arrival(), ..Groups::default() },
            distinct: HashSet::new(),
            distinct_bytes: 0,
            spilled: None,
            is_full: false,
            skip: 0,
            wanted: keep.map_or(u64::MAX, |keep| keep as u64),
            outcome: Outcome::default(),
            check_at: DEADLINE_ROWS,
            part: Some(part),
            counted: Default::default(),
            sink,
        }
    }

    /// Gathers the part's rows, and counts them to the end.
    pub(super) fn gather_part(&mut self) -> Result<(), QueryError> {
        ended(self.rows())?;
        ended(self.check_budget())
    }
}

/// The next row that is one of [`DEADLINE_ROWS`], or one too many.
fn next_check(rows_read: u64, budget: &Budget<'_>) -> u64 {
    let deadline = (rows_read / DEADLINE_ROWS + 1) * DEADLINE_ROWS;
    deadline.min(budget.rows_max.saturating_add(1))
}

/// The loops' end as the caller sees it.
fn ended(flow: Flow) -> Result<(), QueryError> {
    match flow {
        Ok(()) | Err(End::Enough) => Ok(()),
        Err(End::Error(error)) => Err(*error),
    }
}
