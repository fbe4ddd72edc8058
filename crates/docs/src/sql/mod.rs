//! SQL over collections: a subset of SQLite's dialect. A statement is prepared once and executed many times.
//!
//! ```text
//! text → parse.rs → resolve/ (names, limits)
//!      → planner.rs (a plan, plan.rs, for each set of present optional parameters): candidates.rs, point_ways.rs, row_bounds.rs
//!        (access paths), join_order.rs, estimate.rs (costs, from the counts in counts.rs);
//!        alternatives.rs, prefix.rs, extremes.rs rewrite predicates so that access paths match them
//!      → inner.rs (subqueries, each run when its rows are first requested)
//!      → execute.rs (rows are pushed to a RowSink): pipeline.rs for plan shapes that compiled.rs supports,
//!        nest.rs (nested loops over a View and over kept rows, relation.rs) for any plan;
//!        parts.rs and lists.rs when several threads scan the outermost range;
//!        spilling.rs when sorts and groups exceed their memory, kept.rs when rows kept for joins do
//! ```
//!
//! - A query that runs both here and in SQLite returns equal results. `value.rs`, `number.rs`, `dates/`, `format.rs`,
//!   `pattern.rs`, `functions.rs` and `aggregate.rs` hold the semantics, and the tests compare with SQLite.
//! - Unsupported SQL is rejected when the query is prepared, with its position; no clause is ever ignored.
//! - Every execution has a [`Budget`]. In steady state it allocates no memory for a row.
//! - Joins look up rows during a scan, so the view must allow reads inside a scan's callback, as a snapshot does.

mod access;
mod aggregate;
mod ahead;
mod alternatives;
mod analysis;
mod answers;
mod batch;
mod budget;
mod candidates;
mod column_types;
mod compared;
mod compile;
mod compiled;
mod condition;
mod constants;
mod cut;
pub(crate) mod dates;
mod each;
mod error;
mod estimate;
mod evaluate;
mod execute;
mod explain;
mod expr;
mod extremes;
mod format;
mod functions;
pub(crate) mod grouping;
mod groups;
mod guard;
mod inner;
mod join_order;
mod json;
mod json_calls;
mod json_edits;
mod kept;
mod keyset;
mod large;
mod leaves;
mod lists;
mod mathematics;
mod means;
mod modify;
mod nest;
mod nesting;
mod number;
mod ordered;
mod pages;
mod parse;
mod part;
mod parts;
mod pattern;
mod pipeline;
mod plan;
mod plan_space;
mod planner;
mod point_keys;
mod point_ways;
mod points;
mod prefix;
mod query;
mod relation;
mod resolve;
mod results;
mod row;
mod row_bounds;
mod run;
mod runs;
mod seek;
mod sets;
mod sink;
mod sort;
mod spill;
mod spilled;
mod spilling;
mod statements;
mod steps;
mod sum;
mod value;
mod workers;
pub(crate) mod workspace;

pub(crate) use aggregate::summand;
pub use ahead::FirstRange;
pub use analysis::{Analysis, Explain};
pub use budget::{Budget, COMPUTED_BYTES_LEAST, Outcome, STACK_BYTES_MAX};
pub use column_types::{ColumnType, JsonTypes};
pub use compared::Compared;
pub use error::{
    COMPUTED, GROUPS, LOOKED_UP, OF_JSON_EACH, QueryError, RESULT, ROW, ROWS_KEPT, ROWS_READ, SORTED, SPILLED,
    SqlError, SqlErrorKind, TEXT_BYTES_MAX, TO_WRITE,
};
pub(crate) use error::{IntegerOverflow, Unbuilt};
pub use guard::{GUARD_ROWS_MAX, Guard};
pub(crate) use large::LargeRun;
pub use means::Means;
pub(crate) use modify::{Action, KeptRows};
pub use modify::{Modification, ModifyError};
pub use nesting::NESTING_MAX;
pub use pages::{PAGE_ROWS_MAX, PageAt, Paged, decode_place, encode_place};
pub use parse::{SQL_BYTES_MAX, TOKENS_MAX};
pub use plan_space::{PLAN_BYTES_DEFAULT, PlanSpace};
pub use query::{Query, SPECIALISED_MAX, WantedIncluded};
pub use resolve::{COLUMNS_MAX, INNER_MAX, PARAMETERS_MAX, TABLES_MAX};
pub use run::Scratch;
pub use sink::{Field, JsonRows, NoRows, RowSink, write_field};
pub use spill::SpillSpace;
pub use statements::Statements;
pub(crate) use steps::Given;
pub use steps::{STEPS_MAX, StepMistake, StepText, Steps, StepsDid, StepsError};
pub use value::{OwnedValue, Value};
pub use workers::Workers;
