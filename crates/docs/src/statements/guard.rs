//! A query that must return a row, otherwise an operation is not done. Both run in the same state or transaction.

use std::sync::Arc;

use crate::database::{DocumentDatabase, Moment};
use crate::engine::{ReadView, Within, WriteTransaction};
use crate::error::WriteError;
use crate::sql::{Budget, OwnedValue, PreparedQuery, QueryError, RowList, Scratch, Value};
use crate::views::table::WithViews;

/// Rows that a guard may scan: it runs on event loops and on the committer's thread.
pub const GUARD_ROWS_MAX: u64 = 1_000;
/// Bytes of its row, and of its memory.
const BYTES_MAX: usize = 64 << 10;

/// A query with its parameters. Only its first row counts.
#[derive(Clone, Debug)]
pub struct Guard {
    query: Arc<PreparedQuery>,
    /// By the query's parameter slots.
    values: Vec<OwnedValue>,
    /// Unix time in milliseconds.
    now_ms: i64,
}

impl Guard {
    /// A query with the values of its parameters by slot, and the time that `now` means.
    pub fn new(query: Arc<PreparedQuery>, values: Vec<OwnedValue>, now_ms: i64) -> Guard {
        Guard { query, values, now_ms }
    }

    /// The columns of its first row in a state; `None` if it returns no row.
    pub fn row(&self, now: &Moment<'_>) -> Result<Option<Vec<OwnedValue>>, QueryError> {
        let row = self.first(now.view(), now.database().moment_ms(self.now_ms))?;
        // The row is valid only if the indexes and views from which it was read are up to date.
        now.check_indexes().map_err(QueryError::Store)?;
        Ok(row)
    }

    /// The same inside a transaction; no row is [`WriteError::Unguarded`].
    pub(crate) fn check<C: WriteTransaction>(
        &self,
        database: &DocumentDatabase,
        change: &mut C,
    ) -> Result<(), WriteError> {
        let view = WithViews { inner: Within::new(change), views: database.views_at_work(), ready_by: u64::MAX };
        match self.first(&view, database.moment_ms(self.now_ms)) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(WriteError::Unguarded),
            Err(QueryError::Store(error)) => Err(error.into()),
            Err(error) => Err(WriteError::Unavailable { why: format!("the endpoint's guard: {error}") }),
        }
    }

    fn first(&self, view: &dyn ReadView, now_ms: i64) -> Result<Option<Vec<OwnedValue>>, QueryError> {
        let budget = Budget {
            rows_max: GUARD_ROWS_MAX,
            output_bytes_max: BYTES_MAX,
            memory_bytes_max: BYTES_MAX,
            spill: None,
            deadline: None,
            now_ms,
        };
        let values: Vec<Value<'_>> = self.values.iter().map(OwnedValue::value).collect();
        let mut rows = RowList::default();
        self.query.execute(view, &values, &mut Scratch::new(), &budget, &mut rows)?;
        Ok(rows.first(self.query.columns().count(), |_| true)?)
    }
}
