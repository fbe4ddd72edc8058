//! Collections, schemas, indexes and SQL over the store. A library without any network.
//!
//! [`config`] reads the declarations, and [`DocumentDatabase::open`] opens a directory and applies them. A [`ReaderSession`]
//! reads; [`DocumentDatabase::write`] writes. Every write updates documents, index entries, unique values and references
//! together, in one transaction ([`write`](mod@write)).

pub mod catalog;
mod caught;
pub mod config;
mod database;
mod encoding;
pub mod engine;
pub mod error;
pub mod expire;
pub mod import;
mod opening;
mod patience;
pub mod sql;
pub mod statements;
mod transactions;
pub mod views;
mod writes;

pub use catalog::{Readiness, ReadinessState, RuleState, counts, generate};
pub use database::{
    CollectionId, DocumentDatabase, Moment, ReaderSession, Required, Stored, Sweep, Swept, VisitDocument, Write,
    changes, direct, verify,
};
pub use encoding::{index, key, order, row};
pub use error::{ReadError, WriteError};
pub use opening::{CollectionNames, DIFFERENCES_MAX, DatabaseOpenError, Differences, outline};
pub use schema::{CancelCheck, lints as schema_lints, with_cancel_check};
pub use transactions::{
    Applied, BodySchema, DocumentTransaction, Elsewhere, GivenBack, LongTransaction, RowsWanted, RunDone, StepsCall,
    StepsDone, Submission, TRANSACTION_WRITES_MAX, TakeLong, TransactionBody, WriteCallback, take_given_up,
};
pub use views::ViewId;
pub use writes::{LARGE_BYTES, LONG_CHECK_BYTES, Op, Precondition, RuleStatus, Written, collection, write};
