//! Collections, schemas, indexes and SQL over the store. A library without any network.
//!
//! [`config`] reads the declarations, and [`Database::open`] opens a directory and applies them. A [`Session`] reads;
//! [`Database::write`] writes. Every write updates documents, index entries, unique values and references together, in one
//! transaction ([`write`](mod@write)).

mod announced;
mod body;
pub mod catalog;
mod caught;
pub mod changes;
pub mod collection;
pub mod config;
mod counter;
pub mod counts;
mod database;
mod differences;
pub mod direct;
pub mod engine;
pub mod error;
mod exact_sum;
pub mod expire;
mod gate;
pub mod generate;
pub mod import;
pub mod index;
mod index_build;
pub mod key;
mod large;
mod loader;
mod long_check;
mod losses;
mod made_keys;
mod open_error;
pub mod order;
mod readiness;
mod rebuild;
mod reopen;
pub mod row;
mod scratch;
mod session;
pub mod sql;
mod statement;
mod stored_catalog;
mod transaction;
mod truncate;
mod varint;
pub mod verify;
mod view_trees;
pub mod views;
pub mod write;
mod writing;

pub use announced::RuleStatus;
pub use body::Body;
pub use database::{CollectionId, Database, Required, Write};
pub use differences::{DIFFERENCES_MAX, Differences};
pub use error::{ReadError, WriteError};
pub use long_check::{LARGE_BYTES, LONG_CHECK_BYTES};
pub use open_error::{CollectionNames, OpenError};
pub use readiness::{Readiness, ReadinessState};
pub use schema::{Question, asking};
pub use session::{Moment, Session, Stored, VisitDocument};
pub use statement::{RowsWanted, StepsCall, StepsDone};
pub use stored_catalog::outline;
pub use transaction::{
    Applied, Elsewhere, GivenBack, Run, RunDone, TRANSACTION_WRITES_MAX, Transaction, take_given_up,
};
pub use write::{Op, Precondition, Written};
pub use writing::{Done, Submission, TakeLong};
