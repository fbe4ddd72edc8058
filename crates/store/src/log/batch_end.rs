//! The only places where a memtable may end.

use super::position::LogPosition;
use super::reader::Batch;
use crate::base::key::Version;

/// The end of a batch. A memtable, and what a meta page says to be in the trees, ends nowhere else: the results of a batch's folds
/// are its last transaction, so in the middle of a batch its transactions are there without them. Only the log's tail, which knows
/// no other places, and replay make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchEnd {
    /// The last version before it.
    version: Version,
    /// Where the next batch begins.
    next: LogPosition,
}

impl BatchEnd {
    pub(super) fn new(version: u64, next: LogPosition) -> BatchEnd {
        BatchEnd { version: Version(version), next }
    }

    /// The end of the batch before this one, which has transactions.
    pub(crate) fn before(batch: &Batch<'_>, at: &LogPosition) -> BatchEnd {
        BatchEnd::new(batch.first_version().saturating_sub(1), *at)
    }

    /// The same, if the log is needed from an earlier position on: that of a large transaction's first piece.
    pub(crate) fn kept_from(self, first: LogPosition) -> BatchEnd {
        BatchEnd { next: first, ..self }
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// Where replay of the versions after it starts.
    pub(crate) fn log_start(&self) -> LogPosition {
        self.next
    }
}
