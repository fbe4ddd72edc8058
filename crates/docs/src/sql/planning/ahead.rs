//! The range that a query scans first, as far as its parameters determine it: for prefetching before the query runs.

use super::access::Access;
use super::plan::Plan;
use crate::engine::{Direction, TreeId};
use crate::sql::expressions::Expr;

/// The index range with which a query begins: the entries whose first fields equal parameters.
#[derive(Clone, Copy, Debug)]
pub struct FirstRange<'p> {
    tree: TreeId,
    equal: &'p [Expr],
}

impl<'p> FirstRange<'p> {
    /// The range with which a plan begins. `None` if it begins with another access path, or backwards.
    #[inline]
    pub(in crate::sql) fn of(plan: &'p Plan) -> Option<FirstRange<'p>> {
        match &plan.levels.first()?.access {
            Access::Index { tree, equal, direction: Direction::Forward, .. } => Some(FirstRange { tree: *tree, equal }),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn tree(&self) -> TreeId {
        self.tree
    }

    /// The slots of the parameters that the first fields equal, in the order of the fields.
    #[inline]
    pub fn slots(&self) -> impl Iterator<Item = usize> + 'p {
        self.equal.iter().map_while(|value| match value {
            Expr::Parameter(slot) => Some(*slot),
            _ => None,
        })
    }
}
