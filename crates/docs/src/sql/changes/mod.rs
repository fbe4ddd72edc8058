//! Statements that write, and the transactions around them: INSERT, UPDATE and DELETE, steps, and guards.
//!
//! The highest room of SQL: it imports any other, and the writes, views and transactions of the crate. No other room imports
//! it.

mod guard;
mod large;
mod modify;
mod steps;

pub use guard::{GUARD_ROWS_MAX, Guard};
pub(crate) use large::LargeRun;
pub(crate) use modify::KeptRows;
pub use modify::{Modification, ModifyError};
pub(crate) use steps::Given;
pub use steps::{STEPS_MAX, StepMistake, StepText, Steps, StepsDid, StepsError};
