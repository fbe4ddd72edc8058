//! The result of a statement that writes: its counts, or why it had no effect.

use std::fmt;

use crate::engine::{self, ReadView};
use crate::error::WriteError;
use crate::sql::{Budget, PreparedQuery, QueryError, ROWS_READ, RowList, Scratch, Value};

/// A written document counts as this many rows read: about as much work.
pub(super) const ROWS_PER_WRITE: u64 = 16;

/// The counts of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StatementCounts {
    /// Documents inserted, changed or deleted.
    pub(crate) documents: u64,
    /// Rows read, where each written document counts as [`ROWS_PER_WRITE`], and each change of a view's row as one.
    pub(crate) rows_read: u64,
    /// Rows read, without the written documents.
    pub(crate) looked_at: u64,
}

impl StatementCounts {
    /// Runs one of the statement's queries within the remaining row budget.
    pub(super) fn execute(
        &mut self,
        (query, view): (&PreparedQuery, &dyn ReadView),
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        rows: &mut RowList,
    ) -> Result<(), QueryError> {
        let left = Budget { rows_max: budget.rows_max.saturating_sub(self.rows_read), ..*budget };
        let looked_at = match query.execute(view, parameters, scratch, &left, rows) {
            Ok(outcome) => outcome.rows_read,
            // The reported limit is the statement's, not the remainder.
            Err(QueryError::Limit { what: ROWS_READ, .. }) => {
                return Err(QueryError::Limit { what: ROWS_READ, limit: budget.rows_max });
            }
            Err(error) => return Err(error),
        };
        self.rows_read += looked_at;
        self.looked_at += looked_at;
        Ok(())
    }
}

/// Why a statement had no effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModifyError {
    /// Computing the writes failed.
    Query(QueryError),
    /// A write was refused, or the transaction failed.
    Write(WriteError),
}

impl From<QueryError> for ModifyError {
    fn from(error: QueryError) -> Self {
        ModifyError::Query(error)
    }
}

impl From<WriteError> for ModifyError {
    fn from(error: WriteError) -> Self {
        ModifyError::Write(error)
    }
}

impl From<engine::StoreError> for ModifyError {
    fn from(error: engine::StoreError) -> Self {
        ModifyError::Write(error.into())
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModifyError::Query(error) => error.fmt(f),
            ModifyError::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ModifyError {}
