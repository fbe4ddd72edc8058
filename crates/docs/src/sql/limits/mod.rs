//! What bounds an execution, and the errors when a bound is reached: the budget with its meter, the space on disk, and
//! the names of all limits. The lowest room of SQL.
//!
//! It imports no other room of SQL, and does not know what a value, a row or a query is.

mod budget;
mod error;
mod spill;

pub(super) use budget::{ARENA_BYTES_KEPT, Meter, ROW_UNITS, RUN_UNITS, Tally};
pub use budget::{Budget, COMPUTED_BYTES_LEAST, ExecutionCounts, STACK_BYTES_MAX};
pub(super) use error::{COMPARED_PER_BYTE_MAX, Fault, PATTERN_BYTES_MAX};
pub use error::{
    COMPUTED, GROUPS, LOOKED_UP, OF_JSON_EACH, QueryError, RESULT, ROW, ROWS_KEPT, ROWS_READ, SORTED, SPILLED,
    SqlError, SqlErrorKind, TEXT_BYTES_MAX,
};
pub(crate) use error::{IntegerOverflow, Unbuilt};
pub(super) use spill::SpillFile;
pub use spill::SpillSpace;
