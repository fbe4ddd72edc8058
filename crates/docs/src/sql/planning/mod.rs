//! From a resolved query to its plan ([`Plan`]): access paths, estimates and costs, the join order, and the compiled form
//! of common plans.
//!
//! It imports `resolve`, `expressions` and the rooms below them. It asks the catalog and its counts, and never reads a row.

mod access;
mod ahead;
mod alternatives;
mod candidates;
pub(super) mod compiled_plan;
pub(super) mod condition;
mod estimate;
pub(super) mod extremes;
mod join_order;
mod known;
pub(super) mod plan;
pub(super) mod plan_compiler;
pub(super) mod plan_space;
pub(super) mod planner;
mod point_paths;
mod points;
mod prefix;
mod row_bounds;

pub(super) use access::Access;
pub use ahead::FirstRange;
pub(super) use plan::{Estimate, InnerPlan, Level, Plan};
pub use plan_space::{PLAN_BYTES_DEFAULT, PlanSpace};
pub(super) use points::{Limit, Points, PointsOf, Sought};
