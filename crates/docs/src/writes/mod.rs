//! The checks and changes of one write: an open collection, keys that it makes, announced rules, long checks, and the working
//! memory of a thread that writes.
//!
//! It imports `encoding`, `catalog`, `schema`, `views` and `expire`. It does not know the database: it works within one
//! transaction of the store that its caller began.

pub(crate) mod announced;
pub mod collection;
mod entries;
mod integrity;
mod long_check;
mod made_keys;
mod reference;
mod rule;
pub(crate) mod scratch;
pub(crate) mod share;
pub mod write;

pub use announced::RuleStatus;
pub(crate) use announced::Wish;
pub(crate) use collection::Collection;
pub use long_check::{LARGE_BYTES, LONG_CHECK_BYTES};
pub(crate) use long_check::{LongCheck, SHORT_CHECK_STEPS};
pub(crate) use made_keys::Keys;
pub(crate) use reference::ReferencePlace;
pub(crate) use rule::{Rule, RuleScope};
pub(crate) use share::{Share, ShareOf};
pub(crate) use write::{InTheWay, Prepared};
pub use write::{Op, Precondition, Written};
