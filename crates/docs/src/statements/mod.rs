//! Statements that write: INSERT, UPDATE and DELETE, steps of several statements, and guards.
//!
//! It stands above `sql`, `writes`, `views` and `database`, and uses `sql` only through the names of `sql/mod.rs`: a statement
//! is a prepared [`Changing`](crate::sql::Changing), whose queries return the documents and their new values.
//! `transactions` runs these statements.

mod applied;
mod document_write;
mod guard;
mod large_run;
mod modification;
mod steps;

pub use applied::ModifyError;
pub(crate) use applied::StatementCounts;
pub use guard::{GUARD_ROWS_MAX, Guard};
pub use modification::Modification;
pub(crate) use steps::StepsOutcome;
pub use steps::{STEPS_MAX, StepMistake, StepText, Steps, StepsDid, StepsError};
