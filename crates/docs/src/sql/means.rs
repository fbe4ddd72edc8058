//! What a run may use beside its own thread and memory, and where a plan would use it: EXPLAIN says so.

use super::aggregate::AggregateCall;
use super::expr::{Expr, Literal};
use super::parts::is_partible;
use super::plan::Plan;
use super::workers::Workers;

/// See the module's text. The default is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Means<'m> {
    /// What exceeds the memory may go to disk.
    pub spills: bool,
    /// Threads that may help.
    pub workers: Option<&'m Workers>,
}

impl Means<'_> {
    /// How many threads read the outermost range where all are free, if it is thought to be worth more than one.
    pub(super) fn threads(&self, plan: &Plan) -> Option<usize> {
        let workers = self.workers.filter(|workers| workers.threads_max() > 0)?;
        let estimate = plan.levels.first()?.estimate?;
        let is_shared = is_partible(plan, wanted(plan), workers) && estimate.read >= workers.entries_min() as f64;
        is_shared.then(|| workers.threads_max() + 1)
    }

    /// Whether groups, or the values that an aggregate tells apart, may go to disk.
    pub(super) fn spills_groups(&self, plan: &Plan) -> bool {
        let gathers = !plan.group.is_empty() || plan.aggregates.iter().any(AggregateCall::keeps_values);
        self.spills && plan.grouped && gathers
    }

    /// Whether sorted rows may.
    pub(super) fn spills_sort(&self, plan: &Plan) -> bool {
        self.spills && !plan.order.is_empty()
    }

    /// Whether the rows of DISTINCT may.
    pub(super) fn spills_distinct(&self, plan: &Plan) -> bool {
        self.spills && plan.distinct
    }
}

/// Rows that are wanted at most, as far as the text tells: a number that is not in it counts as small.
fn wanted(plan: &Plan) -> Option<usize> {
    let number = |expr: &Option<Expr>| match expr {
        Some(Expr::Literal(Literal::Integer(integer))) => usize::try_from(*integer).ok(),
        _ => Some(0),
    };
    plan.limit.as_ref()?;
    number(&plan.limit)?.checked_add(number(&plan.offset).unwrap_or(0))
}
