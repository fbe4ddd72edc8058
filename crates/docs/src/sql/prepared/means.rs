//! Resources that an execution may use besides its own thread and memory. EXPLAIN shows where a plan would use them.

use crate::sql::execution::Workers;
use crate::sql::execution::execute::is_partible;
use crate::sql::expressions::{AggregateCall, Expr};
use crate::sql::planning::Plan;
use crate::sql::values::OwnedValue;

/// The resources that an execution may use besides its own thread and memory. The default is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Means<'m> {
    /// Sorts and groups that exceed the memory may spill to disk.
    pub spills: bool,
    /// Threads that may help with scans.
    pub workers: Option<&'m Workers>,
}

impl Means<'_> {
    /// How many threads scan the outermost range if all are free; `None` if the plan is expected to use only its own.
    pub(super) fn threads(&self, plan: &Plan) -> Option<usize> {
        let workers = self.workers.filter(|workers| workers.threads_max() > 0)?;
        let estimate = plan.levels.first()?.estimate?;
        let is_shared = is_partible(plan, wanted(plan), workers) && estimate.read >= workers.entries_min() as f64;
        is_shared.then(|| workers.threads_max() + 1)
    }

    /// Whether groups, or the distinct values that an aggregate keeps, may spill.
    pub(super) fn spills_groups(&self, plan: &Plan) -> bool {
        let gathers = !plan.group.is_empty() || plan.aggregates.iter().any(AggregateCall::keeps_values);
        self.spills && plan.grouped && gathers
    }

    /// Whether sorted rows may spill.
    pub(super) fn spills_sort(&self, plan: &Plan) -> bool {
        self.spills && !plan.order.is_empty()
    }

    /// Whether the rows of DISTINCT may spill.
    pub(super) fn spills_distinct(&self, plan: &Plan) -> bool {
        self.spills && plan.distinct
    }
}

/// An upper bound of the wanted rows, if LIMIT is a literal; any other expression counts as 0.
fn wanted(plan: &Plan) -> Option<usize> {
    let number = |expr: &Option<Expr>| match expr {
        Some(Expr::Literal(OwnedValue::Integer(integer))) => usize::try_from(*integer).ok(),
        _ => Some(0),
    };
    plan.limit.as_ref()?;
    number(&plan.limit)?.checked_add(number(&plan.offset).unwrap_or(0))
}
