//! Executes a plan: nested loops over the view, rows pushed to the sink as they are found.
//!
//! In steady state nothing is allocated for a row: frames live on the stack, keys are built in kept buffers, computed texts in
//! an arena that is emptied between rows. An execution stops at its budget with an error that names the limit. The outermost
//! scan is one call of the view with a callback; it can stop after any row and continue after that row's key.

use std::cell::Cell;

use bumpalo::Bump;

use super::run::{End, Flow, Run, Scratch, ended};
use super::workers::Workers;
use super::{gathered, lists};
use crate::engine::ReadView;
use crate::sql::expressions::{Expr, Fixed, Scope, constants};
use crate::sql::limits::{Budget, ExecutionCounts, Meter, QueryError, Tally};
use crate::sql::planning::Plan;
use crate::sql::rows::{Relations, RowSink};
use crate::sql::values::{OuterValue, Value, workspace};

/// Most queries for which one [`Scratch`] keeps separate field caches.
const CACHE_SLOTS: usize = 64;

/// The context of an execution.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) view: &'a dyn ReadView,
    pub(super) parameters: &'a [Value<'a>],
    pub(super) budget: &'a Budget<'a>,
    /// Runs its subqueries.
    pub(super) relations: Option<&'a dyn Relations>,
    /// Fields of the outer row.
    pub(super) outer: &'a [OuterValue<'a>],
    /// The counter of rows of the whole execution, if it has more than one query.
    pub(super) tally: Option<&'a Tally>,
    /// The meter of its work and memory.
    pub(super) meter: &'a Meter<'a>,
}

/// Executes a plan once. `query` is the number of the query, by which its field caches are found.
pub(super) fn execute<S: RowSink + ?Sized>(
    plan: &Plan,
    query: usize,
    around: Around<'_>,
    scratch: &mut Scratch,
    sink: &mut S,
) -> Result<ExecutionCounts, QueryError> {
    let (gathered, levels) = (around.meter.gathered(), around.meter.levels());
    let outcome = execute_within(plan, query, around, scratch, sink);
    around.meter.set_gathered(gathered);
    around.meter.set_levels(levels);
    scratch.run.clear(around.meter);
    workspace::reset(&mut scratch.constants, around.meter);
    outcome
}

/// The same, without emptying the arenas.
fn execute_within<S: RowSink + ?Sized>(
    plan: &Plan,
    query: usize,
    around: Around<'_>,
    scratch: &mut Scratch,
    sink: &mut S,
) -> Result<ExecutionCounts, QueryError> {
    let Around { view, parameters, budget, relations, outer, tally, meter } = around;
    scratch.run.begin();
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
        outer,
        relations,
        now_ms: budget.now_ms,
        meter,
    };
    fixed.constants =
        constants::evaluate((&plan.constants, &plan.repeatable), &fixed, &scratch.constants, &mut scratch.remembered)?;
    let (skip, wanted) = window(plan, &fixed, &scratch.constants)?;
    let mut run = Run::new(plan, (&fixed, view, budget), &mut scratch.run, sink);
    (run.skip, run.wanted, run.tally) = (skip, wanted, tally);
    run.check_at = run.next_check(tally.map_or(0, Tally::rows));
    let ran = run.run(scratch.workers.as_deref());
    let (outcome, uncounted) = (run.outcome, run.outcome.rows_read - run.counted.0);
    tally.into_iter().for_each(|tally| _ = tally.add(uncounted));
    ran.map(|()| outcome)
}

/// OFFSET and LIMIT. A negative limit means none, a negative offset 0; any value but an integer is an error.
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

/// Whether a plan's rows, of which `keep` are wanted, are scanned in parts if there are enough.
pub(in crate::sql) fn is_partible(plan: &Plan, keep: Option<usize>, workers: &Workers) -> bool {
    // If the wanted rows come first, rows scanned by other threads would be unused.
    let comes_first = keep.is_some() && plan.sorted_by > 0;
    plan.is_ranged() && !comes_first && (gathered::is_gathered(plan) || lists::is_listed(plan, keep, workers))
}

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    fn run(&mut self, workers: Option<&Workers>) -> Result<(), QueryError> {
        let plan = self.plan;
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
        if self.late.is_some() {
            ended(self.finish_distinct())?;
        }
        if !plan.order.is_empty() {
            ended(self.finish_sort())?;
        }
        Ok(())
    }

    /// Scans with several threads. Returns false if it did nothing; then one thread must scan.
    fn rows_in_parts(&mut self, workers: &Workers) -> Result<bool, End> {
        if !is_partible(self.plan, self.keep(), workers) {
            return Ok(false);
        }
        let view = self.view;
        let Some(across) = view.across() else { return Ok(false) };
        let mut keys = self.levels.first_mut().map(std::mem::take).unwrap_or_default();
        let cut = self.cut(workers, &mut keys);
        if let Some(place) = self.levels.first_mut() {
            *place = keys;
        }
        let Some(cuts) = cut? else { return Ok(false) };
        let taken = workers.take();
        if taken.count() == 0 {
            return Ok(false);
        }
        if gathered::is_gathered(self.plan) {
            self.gather_parts(&cuts, &taken, &*across)
        } else {
            self.list(&cuts, &taken, &*across)
        }
    }

    fn all_rows(&mut self, workers: Option<&Workers>) -> Flow {
        match workers {
            Some(workers) if self.rows_in_parts(workers)? => Ok(()),
            _ => self.rows(),
        }
    }

    pub(super) fn rows(&mut self) -> Flow {
        match &self.plan.compiled {
            Some(compiled) if self.pipeline(compiled)? => Ok(()),
            _ => self.level(0, None),
        }
    }
}
