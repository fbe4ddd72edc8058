//! What the writer decides about a transaction, and when that is its outcome.

use std::sync::Arc;

use super::request::Request;
use super::transaction::Commit;
use crate::base::error::StoreError;
use crate::base::fail_stop::panicked;
use crate::base::key::Version;

/// Result of writing a batch.
pub(super) enum Sent {
    Durable,
    /// A panic, before or after the write.
    Panicked,
    /// An earlier failure.
    Poisoned,
    /// This write or sync failed.
    Failed(Arc<std::io::Error>),
}

/// What the writer has decided about a transaction: its version, or why it is refused. The writer reads versions that are not
/// durable yet, so a decision is an outcome only once they are: [`Sent::outcome`] is the only way to get at it.
pub(super) struct Decision(Result<u64, StoreError>);

/// The transactions that were decided while a batch was gathered.
pub(super) type Decided = Vec<(Box<Request>, Decision)>;

impl From<Result<u64, StoreError>> for Decision {
    fn from(decided: Result<u64, StoreError>) -> Decision {
        Decision(decided)
    }
}

impl Sent {
    /// The outcome of a transaction that was decided in this batch. If the batch has failed, whatever was decided beside it may
    /// depend on changes that do not exist, so a refusal fails as the rest of the batch does.
    pub(super) fn outcome(&self, Decision(decided): Decision) -> Result<Commit, StoreError> {
        match self {
            Sent::Durable => decided.map(|version| Commit { version: Version(version) }),
            Sent::Poisoned => Err(StoreError::Poisoned),
            Sent::Panicked => Err(panicked()),
            Sent::Failed(error) => Err(StoreError::Unknown(Arc::clone(error))),
        }
    }
}
