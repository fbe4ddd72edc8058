//! Rows once they are found: where a query passes them ([`RowSink`]), and how they are kept, in memory or in sorted runs on
//! disk: for joins, for subqueries, and for UNION, EXCEPT and INTERSECT.
//!
//! It imports `values` and `limits`. It does not know expressions, plans or the catalog.

mod answers;
mod on_disk;
pub(super) mod relation;
mod row_list;
mod runs;
mod sets;
pub(super) mod sink;
mod sorter;

pub(super) use answers::Answers;
pub(super) use relation::{Relation, Relations};
pub(crate) use row_list::RowList;
pub(super) use runs::Runs;
pub(super) use sets::{Combine, Combined};
pub(super) use sink::{INFINITE, RowShape};
pub use sink::{JsonRows, NoRows, RowSink, write_field};
pub(super) use sorter::Sorter;
