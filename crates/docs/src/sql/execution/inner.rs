//! Executes a plan with subqueries: each runs when its rows are first requested, once per execution, and its rows are kept.
//!
//! A correlated query runs for each outer row, and its results are cached by the values that it uses of that row. An uncorrelated
//! query inside it runs once per execution, however often the correlated one runs.
//!
//! Rows that subqueries read and keep count against the same budget. A subquery whose rows are never requested, because
//! the outer one has no rows, never runs. If one fails, the execution ends with its error.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use super::execute::{self, Around};
use super::run::{Scratch, TICK_ROWS};
use crate::engine::ReadView;
use crate::sql::limits::{
    Budget, ExecutionCounts, Fault, Meter, QueryError, RESULT, ROW_UNITS, ROWS_KEPT, RUN_UNITS, Tally,
};
use crate::sql::planning::{Access, InnerPlan, Level, Plan};
use crate::sql::rows::{Answers, Combine, Combined, Relation, Relations, RowSink};
use crate::sql::values::{FieldValue, OuterValue, Value};

/// Executes a plan once. `query` is the number of the query, by which its field caches are found.
pub(crate) fn execute<S: RowSink + ?Sized>(
    plan: &Plan,
    query: usize,
    view: &dyn ReadView,
    parameters: &[Value<'_>],
    scratch: &mut Scratch,
    budget: &Budget<'_>,
    sink: &mut S,
) -> Result<ExecutionCounts, QueryError> {
    let meter = Meter::new(budget);
    if plan.inner.is_empty() {
        let alone = Around { view, parameters, budget, relations: None, outer: &[], tally: None, meter: &meter };
        return execute::execute(plan, query, alone, scratch, sink);
    }
    let whole = Whole { view, parameters, budget, meter: &meter, used: Used::default() };
    let mut outcome = whole.execute((plan, &Kept::of(plan)), query, &[], scratch, budget, sink)?;
    outcome.rows_read = whole.used.tally.rows();
    Ok(outcome)
}

/// The outermost execution.
struct Whole<'a> {
    view: &'a dyn ReadView,
    parameters: &'a [Value<'a>],
    budget: &'a Budget<'a>,
    meter: &'a Meter<'a>,
    used: Used,
}

/// Use of the budget so far: rows of all queries, and memory of the inner ones.
#[derive(Default)]
struct Used {
    tally: Tally,
    kept_bytes: Cell<usize>,
    /// Part of the kept bytes: cached results of correlated queries, limited to a share of the memory.
    answer_bytes: Cell<usize>,
}

/// The kept results of the queries inside a plan, by number.
struct Kept(Vec<KeptQuery>);

struct KeptQuery {
    /// The rows of an uncorrelated query.
    relation: OnceCell<Relation>,
    /// The cached results of a correlated query, and the kept results of the queries inside its members.
    answers: RefCell<Answers>,
    members: Vec<Kept>,
}

impl Kept {
    fn of(plan: &Plan) -> Kept {
        let query = |inner: &InnerPlan| {
            let members: &[Plan] = if inner.is_correlated { &inner.members } else { &[] };
            let members = members.iter().map(Kept::of).collect();
            KeptQuery { relation: OnceCell::new(), answers: RefCell::default(), members }
        };
        Kept(plan.inner.iter().map(query).collect())
    }
}

impl Whole<'_> {
    /// Executes a plan whose subqueries keep their results in `kept`. Rows that these read are not in the outcome.
    fn execute<S: RowSink + ?Sized>(
        &self,
        (plan, kept): (&Plan, &Kept),
        query: usize,
        outer: &[OuterValue<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        sink: &mut S,
    ) -> Result<ExecutionCounts, QueryError> {
        let &Whole { view, parameters, meter, ref used, .. } = self;
        let alone = Around { view, parameters, budget, relations: None, outer, tally: Some(&used.tally), meter };
        if plan.inner.is_empty() {
            return execute::execute(plan, query, alone, scratch, sink);
        }
        let own = RefCell::new(scratch.take_inner());
        let (plans, levels) = (&plan.inner[..], &plan.levels[..]);
        let inner = InnerQueries { whole: self, plans, levels, kept, scratch: own, failure: Cell::new(None) };
        let around = Around { relations: Some(&inner), ..alone };
        let result = execute::execute(plan, query, around, scratch, sink);
        scratch.keep_inner(inner.scratch.take());
        for (number, query) in kept.0.iter().enumerate() {
            query.relation.get().into_iter().for_each(|relation| sink.note_kept(number, relation.len()));
            if plan.inner[number].is_correlated {
                let (asked, runs) = query.answers.borrow().counts();
                sink.note_asked(number, asked, runs);
            }
        }
        result.map_err(|error| if error.is_of_inner() { inner.failure.take().unwrap_or(error) } else { error })
    }
}

/// The subqueries of one plan.
struct InnerQueries<'a> {
    whole: &'a Whole<'a>,
    plans: &'a [InnerPlan],
    /// The levels of the plan.
    levels: &'a [Level],
    kept: &'a Kept,
    scratch: RefCell<Option<Box<Scratch>>>,
    failure: Cell<Option<QueryError>>,
}

impl Relations for InnerQueries<'_> {
    fn get(&self, number: usize) -> Result<&Relation, Fault> {
        let kept = self.kept.0.get(number).ok_or(Fault::Plan)?;
        if let Some(relation) = kept.relation.get() {
            return Ok(relation);
        }
        let relation = self.run(number, None, &[]).map_err(|error| self.fail(error))?;
        let bytes = &self.whole.used.kept_bytes;
        bytes.set(bytes.get() + relation.size());
        Ok(kept.relation.get_or_init(|| relation))
    }

    fn ask(&self, number: usize, outer: &[OuterValue<'_>]) -> Result<Rc<Relation>, Fault> {
        let kept = self.kept.0.get(number).ok_or(Fault::Plan)?;
        if let Some(known) = kept.answers.borrow_mut().find(outer) {
            return Ok(known);
        }
        let relation = self.run(number, Some(&kept.members), outer).map_err(|error| self.fail(error))?;
        let relation = Rc::new(relation);
        let (used, memory) = (&self.whole.used, self.whole.budget.memory_bytes_max);
        kept.answers.borrow_mut().keep(outer, &relation, &used.answer_bytes, memory);
        Ok(relation)
    }

    fn may_read(&self) -> bool {
        self.plans.iter().zip(&self.kept.0).any(|(plan, kept)| plan.is_correlated || kept.relation.get().is_none())
    }
}

impl InnerQueries<'_> {
    fn fail(&self, error: QueryError) -> Fault {
        self.failure.set(Some(error));
        Fault::Inner
    }

    /// `kept`: the kept results of the queries inside a correlated one, by member.
    fn run(&self, number: usize, kept: Option<&[Kept]>, outer: &[OuterValue<'_>]) -> Result<Relation, QueryError> {
        let plan = &self.plans[number];
        // Only rows of joins may spill. The rows of IN, EXISTS and scalar subqueries stay in memory, and so do results of
        // correlated queries.
        let is_joined = |level: &Level| matches!(&level.access, Access::Kept { inner, .. } if *inner == number);
        let spills = kept.is_none() && self.whole.budget.spill.is_some() && self.levels.iter().any(is_joined);
        let mut scratch = self.scratch.take().unwrap_or_default();
        // For one outer row it is not worth using other threads.
        let workers = kept.is_some().then(|| std::mem::take(&mut scratch.workers));
        let meter = self.whole.meter;
        let around = meter.gathered();
        let mut rows = Combined::new(meter);
        let compared = plan.combine.iter().rposition(|combine| *combine != Combine::Append);
        // Rows that UNION, EXCEPT or INTERSECT compares stay in memory too.
        let spills = spills && compared.is_none();
        let members = plan.members.iter().zip(&plan.combine).enumerate();
        let result = members.into_iter().try_for_each(|(place, (member, combine))| {
            rows.begin(*combine, compared.is_some_and(|last| place <= last));
            match kept.and_then(|kept| kept.get(place)) {
                Some(kept) => self.run_member((member, kept), outer, (&mut rows, false, around), &mut scratch)?,
                None => {
                    let used = &self.whole.used;
                    let before = (used.kept_bytes.get(), used.answer_bytes.get());
                    self.run_member((member, &Kept::of(member)), outer, (&mut rows, spills, around), &mut scratch)?;
                    used.kept_bytes.set(before.0);
                    used.answer_bytes.set(before.1);
                }
            }
            Ok::<_, QueryError>(rows.end()?)
        });
        meter.set_gathered(around);
        scratch.shrink_rows();
        if let Some(workers) = workers {
            scratch.workers = workers;
        }
        self.scratch.replace(Some(scratch));
        result?;
        let mut relation = rows.into_relation();
        relation.complete(&plan.hashes, self.whole.budget, self.whole.meter)?;
        Ok(relation)
    }

    fn run_member(
        &self,
        (plan, kept): (&Plan, &Kept),
        outer: &[OuterValue<'_>],
        (rows, spills, around): (&mut Combined<'_>, bool, usize),
        scratch: &mut Scratch,
    ) -> Result<(), QueryError> {
        let (own, used) = (self.whole.budget, &self.whole.used);
        self.whole.meter.tick(RUN_UNITS)?;
        // Memory that the enclosing queries hold is not available to it.
        let taken = used.kept_bytes.get() + used.answer_bytes.get() + around;
        let memory = own.memory_bytes_max.saturating_sub(taken);
        let budget = Budget { output_bytes_max: memory, memory_bytes_max: memory, ..*own };
        let (counted, meter) = (rows.size(), self.whole.meter);
        meter.set_gathered(around + counted);
        let mut sink = KeptRows { rows, spills: spills.then_some(&budget), failure: None, meter, counted };
        let outcome =
            self.whole.execute((plan, kept), plan.number, outer, scratch, &budget, &mut sink as &mut dyn RowSink);
        let failure = sink.failure;
        let outcome = outcome.map_err(|error| match error {
            QueryError::Unwanted if let Some(failure) = failure => failure,
            QueryError::Limit { what: RESULT, .. } => {
                QueryError::Limit { what: ROWS_KEPT, limit: own.memory_bytes_max as u64 }
            }
            other => other,
        })?;
        // The meter has not counted the last rows, fewer than [`TICK_ROWS`].
        Ok(self.whole.meter.tick(outcome.rows_read % TICK_ROWS * ROW_UNITS)?)
    }
}

/// Collects rows, and spills them.
struct KeptRows<'r, 'm> {
    rows: &'r mut Combined<'m>,
    /// The budget, if the rows may spill.
    spills: Option<&'r Budget<'r>>,
    failure: Option<QueryError>,
    meter: &'r Meter<'r>,
    /// Bytes of the rows that the meter has counted.
    counted: usize,
}

impl RowSink for KeptRows<'_, '_> {
    fn begin_row(&mut self) {
        self.rows.begin_row();
    }
    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        self.rows.field(column, field);
    }
    fn end_row(&mut self) {
        self.rows.end_row();
        if let Some(budget) = self.spills {
            self.failure = self.rows.make_room(budget).err();
        }
        let size = self.rows.size();
        self.meter.note_gathered(std::mem::replace(&mut self.counted, size), size);
    }
    fn is_wanted(&self) -> bool {
        self.failure.is_none()
    }
    fn bytes(&self) -> usize {
        if self.spills.is_some() { 0 } else { self.rows.bytes() }
    }
    fn takes_infinite(&self) -> bool {
        true
    }
}
