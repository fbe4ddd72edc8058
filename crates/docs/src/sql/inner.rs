//! Runs a plan with inner queries: each runs when its rows are first asked for, once for an execution, and they are kept.
//!
//! What the inner ones read and keep counts against the same budget. An inner query whose rows nobody asks for, because
//! the outer one has none, never runs. One that fails ends the execution with its own error.

use std::cell::{Cell, OnceCell, RefCell};

use super::budget::{Budget, Outcome};
use super::error::{Fault, QueryError};
use super::execute;
use super::plan::{InnerPlan, Plan};
use super::relation::{Relation, Relations};
use super::run::Scratch;
use super::sets::{Combine, Combined};
use super::sink::RowSink;
use super::value::Value;
use crate::engine::View;

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
    if plan.inner.is_empty() {
        return execute::execute(plan, query, (view, None), parameters, scratch, budget, sink);
    }
    let inner = InnerQueries {
        plans: &plan.inner,
        relations: plan.inner.iter().map(|_| OnceCell::new()).collect(),
        view,
        parameters,
        budget,
        scratch: RefCell::new(scratch.take_inner()),
        kept_bytes: Cell::new(0),
        rows_read: Cell::new(0),
        failure: Cell::new(None),
    };
    let result = execute::execute(plan, query, (view, Some(&inner)), parameters, scratch, budget, sink);
    scratch.keep_inner(inner.scratch.take());
    for (number, relation) in inner.relations.iter().enumerate() {
        relation.get().into_iter().for_each(|relation| sink.note_kept(number, relation.len()));
    }
    match result {
        Ok(mut outcome) => {
            outcome.rows_read += inner.rows_read.get();
            if outcome.rows_read > budget.rows_max {
                return Err(QueryError::Limit { what: "rows read", limit: budget.rows_max });
            }
            Ok(outcome)
        }
        Err(error) if error.is_of_inner() => Err(inner.failure.take().unwrap_or(error)),
        Err(error) => Err(error),
    }
}

struct InnerQueries<'a> {
    plans: &'a [InnerPlan],
    relations: Vec<OnceCell<Relation>>,
    view: &'a dyn View,
    parameters: &'a [Value<'a>],
    budget: &'a Budget<'a>,
    scratch: RefCell<Option<Box<Scratch>>>,
    kept_bytes: Cell<usize>,
    rows_read: Cell<u64>,
    failure: Cell<Option<QueryError>>,
}

impl Relations for InnerQueries<'_> {
    fn get(&self, number: usize) -> Result<&Relation, Fault> {
        let place = self.relations.get(number).ok_or(Fault::Damaged("a plan"))?;
        if let Some(relation) = place.get() {
            return Ok(relation);
        }
        match self.run(&self.plans[number]) {
            Ok(relation) => Ok(place.get_or_init(|| relation)),
            Err(error) => {
                self.failure.set(Some(error));
                Err(Fault::Inner)
            }
        }
    }
}

impl InnerQueries<'_> {
    fn run(&self, plan: &InnerPlan) -> Result<Relation, QueryError> {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let mut rows = Combined::default();
        let compared = plan.combine.iter().rposition(|combine| *combine != Combine::Append);
        let members = plan.members.iter().zip(&plan.combine).enumerate();
        let result = members.into_iter().try_for_each(|(place, (member, combine))| {
            rows.begin(*combine, compared.is_some_and(|last| place <= last));
            self.run_member(member, &mut rows, &mut scratch)?;
            Ok::<_, QueryError>(rows.end()?)
        });
        self.scratch.replace(Some(scratch));
        result?;
        let mut relation = rows.into_relation();
        for columns in &plan.hashes {
            relation.add_hash(columns)?;
        }
        self.kept_bytes.set(self.kept_bytes.get() + relation.size());
        Ok(relation)
    }

    fn run_member(&self, plan: &Plan, rows: &mut Combined, scratch: &mut Scratch) -> Result<(), QueryError> {
        const KEPT: &str = "bytes of rows kept for a join or an inner query";
        let (own, kept) = (self.budget, self.kept_bytes.get());
        let budget = Budget {
            rows_max: own.rows_max.saturating_sub(self.rows_read.get()),
            output_bytes_max: own.memory_bytes_max.saturating_sub(kept),
            memory_bytes_max: own.memory_bytes_max.saturating_sub(kept),
            spill: own.spill,
            deadline: own.deadline,
            now_ms: own.now_ms,
        };
        let outcome = execute(plan, plan.number, self.view, self.parameters, scratch, &budget, rows);
        let outcome = outcome.map_err(|error| match error {
            QueryError::Limit { what: "rows read", .. } => QueryError::Limit { what: "rows read", limit: own.rows_max },
            QueryError::Limit { what: "bytes of result", .. } => {
                QueryError::Limit { what: KEPT, limit: own.memory_bytes_max as u64 }
            }
            other => other,
        })?;
        self.rows_read.set(self.rows_read.get() + outcome.rows_read);
        Ok(())
    }
}
