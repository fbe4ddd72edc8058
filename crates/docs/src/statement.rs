//! Statements that write, each one transaction: prepared on the caller's thread, and again where others changed what it read.
//!
//! The second preparing runs on the thread that commits for all, so it may look at few rows there
//! ([`AGAIN_ROWS_MAX`]); a longer statement gives up its turn and begins anew, on the caller's thread, so many times at most
//! ([`TRIES_MAX`]).

use store::Tx;

use crate::database::{CollectionId, Database};
use crate::sql::{Budget, KeptRows, Modification, ModifyError, QueryError, ROWS_READ, RowSink, Value};

/// Rows that a statement may look at while everybody's commits wait for it: some milliseconds.
pub(crate) const AGAIN_ROWS_MAX: u64 = 20_000;
/// How often a longer one is begun.
const TRIES_MAX: usize = 5;

/// Runs what is to be one transaction within a budget.
type Attempt<'a, T, E> = dyn FnMut(&mut Tx<'_>, &Budget<'_>) -> Result<T, E> + Send + 'a;

impl Database {
    /// Runs an INSERT, UPDATE or DELETE in one transaction and waits until it is durable; gives how many documents it was
    /// about. What RETURNING gives goes to `sink` then.
    pub fn modify<S: RowSink + ?Sized>(
        &self,
        statement: &Modification,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        sink: &mut S,
    ) -> Result<u64, ModifyError> {
        let collection = self.collection_at(CollectionId(statement.collection()));
        // What has come due is not there, whoever asks.
        let now_ms = if collection.info.expire.is_some() { self.clock().now_ms() } else { budget.now_ms };
        let budget = &Budget { now_ms, ..*budget };
        let mut returned = KeptRows::default();
        let applied =
            self.attempt(budget, &mut |tx, budget| statement.apply(collection, tx, parameters, budget, &mut returned))?;
        returned.give(statement.columns().count(), sink);
        Ok(applied.documents)
    }

    /// Commits what `attempt` does, however often it has to be done, and waits until it is durable.
    pub(crate) fn attempt<T: Send, E>(&self, budget: &Budget<'_>, attempt: &mut Attempt<'_, T, E>) -> Result<T, E>
    where
        E: Refusal + Send,
    {
        for _ in 0..TRIES_MAX {
            let (mut runs, mut outcome) = (0, None);
            let commit = self.store().commit(&mut |tx| {
                runs += 1;
                let rows_max = if runs == 1 { budget.rows_max } else { budget.rows_max.min(AGAIN_ROWS_MAX) };
                let result = attempt(tx, &Budget { rows_max, ..*budget });
                let end = if result.is_ok() { Ok(()) } else { Err(store::Abort) };
                outcome = Some(result);
                end
            });
            match (commit, outcome) {
                (Ok(_), Some(Ok(done))) => return Ok(done),
                (Err(store::Error::Aborted), Some(Err(refused))) => {
                    if runs == 1 || budget.rows_max <= AGAIN_ROWS_MAX || !refused.is_of_rows() {
                        return Err(refused);
                    }
                }
                (Err(error), _) => return Err(E::from(error)),
                (Ok(_), _) => return Err(E::from(store::Error::Aborted)),
            }
        }
        Err(E::from(store::Error::Busy))
    }
}

/// Why a transaction was given up, as far as it matters for doing it again.
pub(crate) trait Refusal: From<store::Error> {
    /// Whether it looked at too many rows.
    fn is_of_rows(&self) -> bool;
}

impl Refusal for ModifyError {
    fn is_of_rows(&self) -> bool {
        matches!(self, ModifyError::Query(QueryError::Limit { what: ROWS_READ, .. }))
    }
}
