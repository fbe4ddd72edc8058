//! An execution in progress: its memory, its end, and its budget.

use std::cell::Cell;
use std::ops::Bound;
use std::sync::Arc;

use binjson::FieldCache;
use bumpalo::Bump;
use hashbrown::{HashMap, HashSet};

use super::part::Part;
use super::point_keys::PointKeys;
use super::workers::{Helpers, Workers};
use crate::engine::{self, KeyRange, ReadView};
use crate::sql::expressions::aggregate::AggregateState;
use crate::sql::expressions::constants::Remembered;
use crate::sql::expressions::{Expr, Fixed, Frame, Scope};
use crate::sql::limits::{Budget, ExecutionCounts, Fault, Meter, QueryError, ROW_UNITS, ROWS_READ, Tally};
use crate::sql::planning::Plan;
use crate::sql::planning::plan_space::NearPlans;
use crate::sql::rows::{Relations, RowSink, Runs, Sorter};
use crate::sql::values::workspace;

/// Rows whose work is added to the meter in one call.
pub(super) const TICK_ROWS: u64 = 64;
/// Most bytes that each buffer of a scratch keeps between executions, except the sort of the outermost query.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// The same for the rows of a subquery: dozens may be nested.
const INNER_KEPT_BYTES_MAX: usize = 8 << 10;
/// Estimate of a group's or distinct row's bytes besides its data.
pub(super) const GROUP_OVERHEAD_BYTES: usize = 64;

/// Memory that executions reuse. Each thread has one.
#[derive(Default)]
pub struct Scratch {
    pub(super) run: RunMemory,
    pub(super) constants: Bump,
    pub(super) remembered: Remembered,
    pub(super) caches: Vec<Vec<Cell<FieldCache>>>,
    pub(super) workers: Helpers,
    pub(in crate::sql) near: NearPlans,
    /// The scratch of subqueries.
    inner: Option<Box<Scratch>>,
}

/// The memory of one run.
#[derive(Default)]
pub(super) struct RunMemory {
    pub(super) arena: Bump,
    levels: Vec<LevelKeys>,
    pub(super) sort: Sorter,
    pub(super) states: Vec<AggregateState>,
    key: Vec<u8>,
    /// Spilled groups.
    pub(super) group_runs: Runs,
}

#[derive(Default)]
pub(super) struct LevelKeys {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) key: Vec<u8>,
    /// The ends of the rows of `json_each`.
    pub(super) ends: Vec<usize>,
    /// The keys of point lookups.
    pub(super) points: PointKeys,
}

#[inline]
fn shrink(bytes: &mut Vec<u8>) {
    if bytes.capacity() > KEPT_BYTES_MAX {
        *bytes = Vec::new();
    }
}

impl LevelKeys {
    /// Releases the memory of long keys.
    #[inline]
    pub(super) fn shrink(&mut self) {
        [&mut self.from, &mut self.to, &mut self.key].into_iter().for_each(shrink);
        if self.ends.capacity() * size_of::<usize>() > KEPT_BYTES_MAX {
            self.ends = Vec::new();
        }
    }

    /// The index range between the bounds; an empty bound means unbounded.
    pub(super) fn index_range(&self) -> KeyRange<'_> {
        KeyRange {
            from: if self.from.is_empty() { Bound::Unbounded } else { Bound::Included(&self.from) },
            to: if self.to.is_empty() { Bound::Unbounded } else { Bound::Excluded(&self.to) },
        }
    }

    /// Sets the bounds to the current combination of point values.
    pub(super) fn set_point(&mut self) {
        let (points, from, to) = (&self.points, &mut self.from, &mut self.to);
        from.clear();
        points.append(from);
        to.clear();
        to.extend_from_slice(from);
        from.extend_from_slice(&points.low);
        to.extend_from_slice(&points.high);
    }

    /// The range of documents; `low` and `high` say which bounds exist.
    pub(super) fn document_range(&self, low: bool, high: bool) -> KeyRange<'_> {
        KeyRange {
            from: if low { Bound::Included(&self.from[..]) } else { Bound::Unbounded },
            to: if high { Bound::Included(&self.to[..]) } else { Bound::Unbounded },
        }
    }
}

impl RunMemory {
    /// Empties it for a run, even if a panic ended the previous one.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.sort.clear();
        self.release_runs();
    }

    /// Releases runs on disk, if an error has left some.
    #[inline]
    fn release_runs(&mut self) {
        self.sort.release();
        if !self.group_runs.is_empty() {
            self.group_runs = Runs::default();
        }
    }

    /// Releases what a run must not leave behind: the memory of long keys, computed values, and runs on disk.
    #[inline]
    pub(super) fn clear(&mut self, meter: &Meter<'_>) {
        workspace::reset(&mut self.arena, meter);
        self.release_runs();
        self.levels.iter_mut().for_each(LevelKeys::shrink);
        shrink(&mut self.key);
    }
}

impl Scratch {
    /// Empty. It grows to the needs of its queries and keeps that size.
    pub fn new() -> Self {
        Scratch::default()
    }

    /// Adds helper threads for large scans.
    pub fn with_workers(self, workers: Arc<Workers>) -> Self {
        Scratch { workers: Some(workers), ..self }
    }

    /// Releases the memory of a subquery's sort and groups: each query of a statement has its own scratch.
    pub(super) fn shrink_rows(&mut self) {
        self.run.sort.buffer().shrink(INNER_KEPT_BYTES_MAX);
        if self.run.states.capacity() * size_of::<AggregateState>() > INNER_KEPT_BYTES_MAX {
            self.run.states = Vec::new();
        }
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

/// Why the loops end before the end of their ranges. It has the size of one machine word, so that it is returned in a register.
pub(super) enum End {
    /// As many rows as wanted were delivered.
    Enough,
    Error(Box<QueryError>),
}

/// Whether the loops continue.
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

impl From<engine::StoreError> for End {
    #[cold]
    fn from(error: engine::StoreError) -> Self {
        End::from(QueryError::from(error))
    }
}

/// The groups so far. `places` has each group's position among the aggregate states; `fields` has the fields of its key.
#[derive(Default)]
pub(super) struct Groups {
    pub(super) places: HashMap<Box<[u8]>, usize>,
    pub(super) fields: Vec<Box<[u8]>>,
    /// For each group, its number in the order in which groups were first seen. Spilled groups are counted too.
    pub(super) arrivals: Vec<u64>,
    pub(super) next_arrival: u64,
    /// The next such number for values that aggregates keep.
    pub(super) next_value: u64,
    pub(super) bytes: usize,
}

/// Rows that may be new to DISTINCT, sorted by their values.
#[derive(Default)]
pub(super) struct LateRows {
    pub(super) rows: Sorter,
    pub(super) arrivals: u64,
}

/// Rows that were collected for a sort, and the leading terms of the last row's sort key.
#[derive(Default)]
pub(super) struct Collected {
    pub(super) rows: u64,
    pub(super) first_terms: Vec<u8>,
}

/// An execution in progress.
pub(super) struct Run<'e, S: RowSink + ?Sized> {
    pub(super) plan: &'e Plan,
    pub(super) fixed: &'e Fixed<'e>,
    pub(super) view: &'e dyn ReadView,
    pub(super) budget: &'e Budget<'e>,
    pub(super) arena: &'e mut Bump,
    pub(super) levels: &'e mut [LevelKeys],
    pub(super) sort: &'e mut Sorter,
    pub(super) group_runs: &'e mut Runs,
    pub(super) states: &'e mut Vec<AggregateState>,
    pub(super) key: &'e mut Vec<u8>,
    pub(super) groups: Groups,
    pub(super) distinct: HashSet<Box<[u8]>>,
    pub(super) distinct_bytes: usize,
    /// Present once the memory for rows known to DISTINCT is full.
    pub(super) late: Option<Box<LateRows>>,
    /// The groups must be spilled before the next row.
    pub(super) is_full: bool,
    pub(super) skip: u64,
    pub(super) wanted: u64,
    pub(super) outcome: ExecutionCounts,
    /// The number of rows at which the budget is checked next.
    pub(super) check_at: u64,
    /// The part of the outermost range that this thread scans, if several threads scan it.
    pub(super) part: Option<Part<'e>>,
    /// The row counter of all queries of the execution, if there are subqueries.
    pub(super) tally: Option<&'e Tally>,
    /// Rows collected for a sort whose input is ordered by its leading terms.
    pub(super) collected: Collected,
    /// Rows and bytes that were already added to the shared counters.
    pub(super) counted: (u64, Cell<usize>),
    /// [`RowSink::counts_levels`] of the sink.
    pub(super) counts_levels: bool,
    pub(super) sink: &'e mut S,
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    /// A run of all rows, before its first row. The memory may have the states of an earlier run.
    #[inline(always)]
    pub(super) fn new(
        plan: &'e Plan,
        (fixed, view, budget): (&'e Fixed<'e>, &'e dyn ReadView, &'e Budget<'e>),
        memory: &'e mut RunMemory,
        sink: &'e mut S,
    ) -> Self {
        let RunMemory { arena, levels, sort, group_runs, states, key } = memory;
        if levels.len() < plan.levels.len() {
            levels.resize_with(plan.levels.len(), LevelKeys::default);
        }
        if plan.grouped {
            states.clear();
            if plan.group.is_empty() {
                states.resize_with(plan.aggregates.len(), AggregateState::default);
            }
        }
        Run {
            plan,
            fixed,
            view,
            budget,
            arena,
            levels,
            sort,
            group_runs,
            states,
            key,
            groups: Groups::default(),
            distinct: HashSet::new(),
            distinct_bytes: 0,
            late: None,
            is_full: false,
            skip: 0,
            wanted: u64::MAX,
            outcome: ExecutionCounts { scans: plan.scans, ..ExecutionCounts::default() },
            check_at: 0,
            part: None,
            tally: None,
            collected: Collected::default(),
            counted: Default::default(),
            counts_levels: sink.counts_levels(),
            sink,
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

    /// A level of the plan has scanned an entry.
    #[inline(always)]
    pub(super) fn note_read(&mut self, level: usize) {
        if self.counts_levels {
            self.sink.note_read(level);
        }
    }

    /// A row has passed a level's predicates.
    #[inline(always)]
    pub(super) fn note_row(&mut self, level: usize) {
        if self.counts_levels {
            self.sink.note_row(level);
        }
    }

    #[cold]
    pub(super) fn check_budget(&mut self) -> Flow {
        let mut rows_read = self.outcome.rows_read;
        if let Some(part) = self.part {
            if part.is_unwanted() {
                return Err(End::Enough);
            }
            rows_read = part.add_rows(rows_read - self.counted.0, rows_read);
            self.counted.0 = self.outcome.rows_read;
        } else if let Some(tally) = self.tally {
            rows_read = tally.add(rows_read - self.counted.0);
            self.counted.0 = self.outcome.rows_read;
        }
        if rows_read > self.budget.rows_max {
            return Err(QueryError::Limit { what: ROWS_READ, limit: self.budget.rows_max }.into());
        }
        if self.outcome.rows_read.is_multiple_of(TICK_ROWS) {
            self.fixed.meter.tick(TICK_ROWS * ROW_UNITS)?;
        }
        self.check_at = self.next_check(rows_read);
        Ok(())
    }

    /// The number of rows at which the budget is checked next: the next multiple of [`TICK_ROWS`], or the first row over the
    /// limit if that comes earlier. `all` is the number of rows that all queries of the execution have read. If a subquery
    /// may still read rows, the budget is checked at every row.
    pub(super) fn next_check(&self, all: u64) -> u64 {
        let own = self.outcome.rows_read;
        if self.fixed.relations.is_some_and(Relations::may_read) {
            return own + 1;
        }
        let ticked = (own / TICK_ROWS + 1) * TICK_ROWS;
        let left = self.budget.rows_max.saturating_sub(all);
        ticked.min(own.saturating_add(left).saturating_add(1))
    }
}

/// Converts the end of the loops into a result.
pub(super) fn ended(flow: Flow) -> Result<(), QueryError> {
    match flow {
        Ok(()) | Err(End::Enough) => Ok(()),
        Err(End::Error(error)) => Err(*error),
    }
}
