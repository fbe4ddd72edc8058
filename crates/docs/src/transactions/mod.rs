//! How callers write: closures, submitted writes, statements and steps, and the large ones among them. Each is one
//! transaction, run again after a conflict.
//!
//! It imports `database`, `statements`, `sql` and the folders below them. Only `expire` and callers of the library use it.

mod body;
mod large;
mod statement;
mod transaction;
pub(crate) mod truncate;
mod writing;

pub use body::BodySchema;
pub use statement::{RowsWanted, StepsCall, StepsDone};
pub use transaction::{
    Applied, DocumentTransaction, Elsewhere, GivenBack, LongTransaction, RunDone, TRANSACTION_WRITES_MAX,
    TransactionBody, take_given_up,
};
pub use writing::{Submission, TakeLong, WriteCallback};
