//! Expressions: their tree, and their value for a row of nested loops. Aggregates, calls of the JSON functions and
//! `json_each` too, because they take expressions.
//!
//! It imports `rows`, `functions`, `values` and `limits`. It does not know names, the text of a query, or how rows are found.

pub(super) mod aggregate;
pub(super) mod constants;
pub(super) mod each;
pub(super) mod evaluate;
pub(super) mod expr;
pub(super) mod json_calls;
pub(super) mod row;
mod sum;

pub(crate) use aggregate::summand;
pub(super) use aggregate::{AGGREGATES, AggregateCall, AggregateKind};
pub(super) use expr::{Affinity, Arithmetic, CastType, Comparison, Expr, SubqueryUse};
pub(super) use row::{ColumnSource, FieldPlace, Fixed, Frame, Scope};
