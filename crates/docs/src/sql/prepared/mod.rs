//! Prepared queries. [`PreparedQuery`] parses, resolves, plans and executes the text of a query. The other files explain a query
//! (EXPLAIN), derive the types of its columns, read its result in pages, cache statements, and prepare the grouped queries of
//! views.
//!
//! It imports all other rooms. It does not write: `crate::statements` executes prepared statements that write.

mod analysis;
mod changing;
mod column_types;
mod compared;
mod explain;
pub(crate) mod grouping;
mod keyset;
mod means;
mod pages;
mod query;
mod statements;

pub use analysis::{Analysis, Explain};
pub use column_types::ColumnType;
pub use compared::ParameterUses;
pub use means::Means;
pub use pages::{PAGE_ROWS_MAX, PageAt, Paged, decode_place, encode_place};
pub use query::{PreparedQuery, SPECIALISED_MAX, WantedIncluded};
pub use statements::Statements;
