//! SQL over collections: a subset of SQLite's dialect. A statement is prepared once and executed many times.
//!
//! ```text
//! text → syntax/ (sqlparser's tree) → resolve/ (names, limits)
//!      → planning/: planner.rs makes a plan (plan.rs) for each set of present optional parameters; candidates.rs,
//!        point_paths.rs, row_bounds.rs (access paths), join_order.rs, estimate.rs (costs, from the counts in counts.rs);
//!        alternatives.rs, prefix.rs, extremes.rs rewrite predicates so that access paths match them
//!      → execution/: inner.rs (subqueries, each run when its rows are first requested), execute.rs (rows are pushed to a
//!        RowSink): pipeline.rs for plan shapes that planning/compiled_plan.rs supports, nest.rs (nested loops over a View and over
//!        kept rows, rows/relation.rs) for any plan; morsels.rs when several threads scan the outermost range;
//!        spilling.rs when sorts and groups exceed their memory, rows/on_disk.rs when rows kept for joins do
//! ```
//!
//! Each folder imports only those before it: `limits`, `values`, `functions`, `rows`, `expressions`, `syntax`, `resolve`,
//! `planning`, `execution`, `prepared` (queries as callers have them). Statements that write stand above, in
//! `crate::statements`.
//!
//! - A query that runs both here and in SQLite returns equal results. `values/`, `functions/` and `expressions/aggregate.rs`
//!   hold the semantics, and the tests compare with SQLite.
//! - Unsupported SQL is refused when the query is prepared, with its position; no clause is ever ignored.
//! - Every execution has a [`Budget`]. In steady state it allocates no memory for a row.
//! - Joins look up rows during a scan, so the view must allow reads inside a scan's callback, as a snapshot does.

mod execution;
mod expressions;
mod functions;
mod limits;
mod planning;
mod prepared;
mod resolve;
mod rows;
mod syntax;
mod values;

pub use execution::{Scratch, Workers};
pub(crate) use expressions::row::{as_key, of_scalar};
pub(crate) use expressions::summand;
pub(crate) use functions::dates;
pub use limits::{
    Budget, COMPUTED, COMPUTED_BYTES_LEAST, ExecutionCounts, GROUPS, LOOKED_UP, OF_JSON_EACH, QueryError, RESULT, ROW,
    ROWS_KEPT, ROWS_READ, SORTED, SPILLED, STACK_BYTES_MAX, SpillSpace, SqlError, SqlErrorKind, TEXT_BYTES_MAX,
};
pub(crate) use limits::{IntegerOverflow, Unbuilt};
pub use planning::{FirstRange, PLAN_BYTES_DEFAULT, PlanSpace};
pub(crate) use prepared::grouping;
pub use prepared::{
    Analysis, ColumnType, Explain, Means, PAGE_ROWS_MAX, PageAt, Paged, ParameterUses, PreparedQuery, SPECIALISED_MAX,
    Statements, WantedIncluded, decode_place, encode_place,
};
pub(crate) use resolve::changes::{Action, Assigned, Changing, Conversion, OnConflict, Upsert, excluded_field};
pub use resolve::{COLUMNS_MAX, INNER_MAX, PARAMETERS_MAX, TABLES_MAX};
pub(crate) use rows::RowList;
pub use rows::{JsonRows, NoRows, RowSink, write_field};
pub use syntax::{NESTING_MAX, SQL_BYTES_MAX, TOKENS_MAX};
pub(crate) use values::json::fields as json_fields;
pub(crate) use values::sort::take_field;
pub use values::{FieldValue, JsonTypes, OwnedValue, Value};
