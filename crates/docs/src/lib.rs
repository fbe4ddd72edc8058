//! Collections, schemas, indexes and SQL over the store. A library without any network.
//!
//! [`config`] reads the declarations, and [`Database::open`] opens a directory and applies them. A [`Session`] reads;
//! [`Database::write`] writes. Every write updates documents, index entries, unique values and references together, in one
//! transaction ([`write`](mod@write)).

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
pub mod sql;
pub mod statements;
mod transactions;
pub mod views;
mod writes;

pub use catalog::{Readiness, ReadinessState, counts, generate};
pub use database::{
    CollectionId, Database, Moment, Required, Session, Stored, Sweep, Swept, VisitDocument, Write, changes, direct,
    verify,
};
pub use encoding::{index, key, order, row};
pub use error::{ReadError, WriteError};
pub use opening::{CollectionNames, DIFFERENCES_MAX, Differences, OpenError, outline};
pub use schema::{Question, asking};
pub use transactions::{
    Applied, Body, Done, Elsewhere, GivenBack, RowsWanted, Run, RunDone, StepsCall, StepsDone, Submission,
    TRANSACTION_WRITES_MAX, TakeLong, Transaction, take_given_up,
};
pub use views::ViewId;
pub use writes::{LARGE_BYTES, LONG_CHECK_BYTES, Op, Precondition, RuleStatus, Written, collection, write};
