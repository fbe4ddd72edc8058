//! Statements of clients, of the command line and of the file: queries, EXPLAIN, writing statements, pages with their cursors, and
//! guards.
//!
//! It may import `config`, `failure`, `requests` and `replies`. It knows neither the service nor the thread that runs a statement.

pub(crate) mod cursor;
mod explain;
pub(crate) mod guard;
pub mod modify;
pub(crate) mod paging;
pub mod statement;
