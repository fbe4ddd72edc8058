//! Statements that write, alone or as steps. Each run is one transaction, which is prepared on the caller's thread, and again
//! after a conflict.
//!
//! The retry runs on the committing thread, so it is limited to [`AGAIN_ROWS_MAX`] rows and to five milliseconds
//! (`writes/share.rs`). A longer statement is aborted there and begins anew on the caller's thread, at most [`TRIES_MAX`]
//! times.

use std::sync::Arc;

use super::large;
use crate::database::{CollectionId, DocumentDatabase, Passing, ReaderSession, Required, Shut, WriteKind};
use crate::engine::{self, Submit, Tx};
use crate::error::WriteError;
use crate::sql::{Budget, ExecutionCounts, OwnedValue, QueryError, ROWS_READ, RowList, RowSink, Value};
use crate::statements::{Modification, ModifyError, Steps, StepsDid, StepsError, StepsOutcome};
use crate::writes::{Share, ShareOf};

/// Rows that a statement may scan while all commits wait for it: some milliseconds.
pub(crate) const AGAIN_ROWS_MAX: u64 = 20_000;
/// Attempts for a longer statement.
const TRIES_MAX: usize = 5;

/// Runs the work of one transaction within a budget.
type Attempt<'a, T, E> = dyn FnMut(&mut Tx<'_>, &Budget<'_>) -> Result<T, E> + Send + 'a;

impl DocumentDatabase {
    /// Runs an INSERT, UPDATE or DELETE in one transaction and waits until it is durable. The rows of RETURNING go to `sink`
    /// afterwards. [`ExecutionCounts::rows`] is the number of affected documents. A statement that exceeds one transaction may
    /// use the budget's spill space on disk.
    pub fn modify(
        &self,
        statement: &Modification,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<ExecutionCounts, ModifyError> {
        if let Some(did) = self.truncate(statement, parameters, budget) {
            let did = did?;
            return Ok(ExecutionCounts { rows: did.documents, rows_read: did.looked_at, scans: false });
        }
        let collection = self.collection_at(CollectionId(statement.collection()));
        let mut returned = RowList::default();
        let applied =
            self.attempt(budget, &mut |tx, budget| statement.apply(collection, tx, parameters, budget, &mut returned));
        let (_, scans) = statement.plan_line(parameters);
        let large = match &applied {
            Err(error) if large::is_too_large(error) => self.modify_large(statement, parameters, budget, &mut returned),
            _ => None,
        };
        let applied = large.unwrap_or(applied)?;
        returned.give(usize::MAX, statement.columns().count(), sink);
        Ok(ExecutionCounts { rows: applied.documents, rows_read: applied.looked_at, scans })
    }

    /// Runs steps in one transaction and waits until it is durable; returns the reply. `did` reports what the steps did, even
    /// if they failed.
    pub fn run_steps(&self, call: &StepsCall, budget: &Budget<'_>, did: &mut StepsDid) -> Result<Vec<u8>, StepsError> {
        let mut body = Vec::new();
        self.attempt(budget, &mut |tx, budget| call.prepare(self, tx, budget, &mut body, did))?;
        Ok(body)
    }

    /// Submits steps as one transaction; `done` is called once, perhaps before this returns. Steps that exceed
    /// [`StepsCall::rows_max`] or [`StepsCall::bytes_max`] are refused, and may be run by [`DocumentDatabase::run_steps`].
    ///
    /// For event loops. While another configuration takes over (some milliseconds), the call is returned to the caller, to be
    /// submitted again. After that the result is [`engine::StoreError::Busy`], because the steps were prepared by the old
    /// database.
    pub fn try_submit_steps(
        &self,
        session: &ReaderSession,
        call: StepsCall,
        done: StepsDone,
    ) -> Result<(), (StepsCall, StepsDone)> {
        let passing = match self.try_pass(WriteKind::Short) {
            Ok(passing) => passing,
            Err(Shut::Closed) => return Err((call, done)),
            Err(Shut::Gone) => {
                done(call, StepsDid::default(), Err(StepsError::Store(engine::StoreError::Busy)));
                return Ok(());
            }
        };
        let stepping =
            Stepping { passing, call, body: Vec::new(), did: StepsDid::default(), runs: 0, refused: None, done };
        if let Submit::Busy(transaction) = self.store().submit(session.reader(), Box::new(stepping)) {
            transaction.finish(Err(engine::StoreError::Busy));
        }
        Ok(())
    }

    /// Commits the work of `attempt`, retrying it as needed, and waits until it is durable.
    pub(crate) fn attempt<T: Send, E>(&self, budget: &Budget<'_>, attempt: &mut Attempt<'_, T, E>) -> Result<T, E>
    where
        E: Refusal + Send,
    {
        // A statement was prepared from this database's catalog: no other database can run it.
        let Some(_passing) = self.pass(WriteKind::Long) else { return Err(E::from(engine::StoreError::Busy)) };
        for number in 0..TRIES_MAX {
            // Other commits, and builds commit most often, have made the statement begin again.
            let _goes_first = (number > 0).then(|| self.inner.core.right_of_way.take());
            let (mut runs, mut outcome) = (0, None);
            let commit = self.store().commit(&mut |tx| {
                runs += 1;
                // A retry runs on the committing thread, which must not wait for files, so nothing is spilled.
                let own = Budget { now_ms: self.moment_ms(budget.now_ms), spill: None, ..*budget };
                let result = match runs {
                    1 => attempt(tx, &own),
                    _ => {
                        let share = Share::begin(ShareOf::Commits);
                        let is_over = || share.is_over() || budget.deadline.is_some_and(|over| over());
                        let rows_max = budget.rows_max.min(AGAIN_ROWS_MAX);
                        attempt(tx, &Budget { rows_max, deadline: Some(&is_over), ..own })
                    }
                };
                let end = if result.is_ok() { Ok(()) } else { Err(engine::Abort) };
                outcome = Some(result);
                end
            });
            match (commit, outcome) {
                (Ok(_), Some(Ok(done))) => return Ok(done),
                (Err(engine::StoreError::Aborted), Some(Err(refused))) => {
                    let is_of_share = match () {
                        () if refused.is_of_rows() => budget.rows_max > AGAIN_ROWS_MAX,
                        () => refused.is_of_time() && !budget.deadline.is_some_and(|over| over()),
                    };
                    if runs == 1 || !is_of_share {
                        return Err(refused);
                    }
                }
                (Err(error), _) => return Err(E::from(error)),
                (Ok(_), _) => return Err(E::from(engine::StoreError::Aborted)),
            }
        }
        Err(E::from(engine::StoreError::Busy))
    }
}

/// Steps, and the arguments of their call.
#[derive(Debug)]
pub struct StepsCall {
    /// The steps.
    pub steps: Arc<Steps>,
    /// Their parameters.
    pub parameters: Vec<OwnedValue>,
    /// A document that must exist when they are committed.
    pub required: Option<Required>,
    /// How the rows of the last step are returned.
    pub rows: RowsWanted,
    /// Unix time in milliseconds.
    pub now_ms: i64,
    /// Rows that submitted steps may scan.
    pub rows_max: u64,
    /// Limit for the rows that submitted steps keep, in bytes.
    pub bytes_max: usize,
    /// Limit for the reply of submitted steps, in bytes.
    pub reply_bytes_max: usize,
}

/// How the last step's rows are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsWanted {
    /// Not at all.
    None,
    /// All rows, as an array.
    All,
    /// The first row, which must exist.
    First,
}

/// Called once with what the steps did and their result: the reply, or the error. May run on a thread of the store, and must
/// not block.
pub type StepsDone = Box<dyn FnOnce(StepsCall, StepsDid, Result<Vec<u8>, StepsError>) + Send>;

impl StepsCall {
    fn prepare(
        &self,
        database: &DocumentDatabase,
        tx: &mut Tx<'_>,
        budget: &Budget<'_>,
        body: &mut Vec<u8>,
        did: &mut StepsDid,
    ) -> Result<(), StepsError> {
        body.clear();
        if let Some(required) = &self.required
            && !database.is_there(required, tx)?
        {
            return Err(StepsError::Missing);
        }
        let mut given = StepsOutcome::default();
        let applied = self.steps.apply(database, tx, &self.parameters, budget, &mut given);
        *did = std::mem::take(&mut given.did);
        applied?;
        match self.rows {
            RowsWanted::None => Ok(()),
            wanted => self.steps.write(&given, wanted == RowsWanted::First, body),
        }
    }
}

/// Submitted steps, in progress.
struct Stepping {
    passing: Passing,
    call: StepsCall,
    body: Vec<u8>,
    did: StepsDid,
    /// Number of preparations: the first on the submitting thread, further ones by the committing thread.
    runs: u32,
    refused: Option<StepsError>,
    done: StepsDone,
}

impl engine::RetriableTransaction for Stepping {
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), engine::Abort> {
        let Stepping { passing, call, body, did, runs, .. } = self;
        let share = Share::begin(if *runs == 0 { ShareOf::Loop } else { ShareOf::Commits });
        *runs += 1;
        let is_over = || share.is_over();
        let budget = Budget {
            rows_max: call.rows_max.min(AGAIN_ROWS_MAX),
            output_bytes_max: call.reply_bytes_max,
            memory_bytes_max: call.bytes_max,
            spill: None,
            deadline: Some(&is_over),
            now_ms: passing.moment_ms(call.now_ms),
        };
        self.refused = call.prepare(passing, tx, &budget, body, did).err();
        if self.refused.is_none() { Ok(()) } else { Err(engine::Abort) }
    }

    fn finish(self: Box<Self>, outcome: Result<engine::Commit, engine::StoreError>) {
        let Stepping { passing, call, body, did, refused, done, .. } = *self;
        drop(passing);
        let outcome = match (outcome, refused) {
            (Ok(_), _) => Ok(body),
            (Err(engine::StoreError::Aborted), Some(refused)) => Err(refused),
            (Err(error), _) => Err(StepsError::Store(error)),
        };
        done(call, did, outcome);
    }
}

/// The errors of an aborted transaction that matter for a retry.
pub(crate) trait Refusal: From<engine::StoreError> {
    /// Whether it reached the limit of rows.
    fn is_of_rows(&self) -> bool;
    /// Whether it reached the limit of time.
    fn is_of_time(&self) -> bool;
}

impl Refusal for StepsError {
    fn is_of_rows(&self) -> bool {
        matches!(self, StepsError::Failed { error, .. } if error.is_of_rows())
    }
    fn is_of_time(&self) -> bool {
        matches!(self, StepsError::Failed { error, .. } if error.is_of_time())
    }
}

impl Refusal for ModifyError {
    fn is_of_rows(&self) -> bool {
        matches!(self, ModifyError::Query(QueryError::Limit { what: ROWS_READ, .. }))
    }
    fn is_of_time(&self) -> bool {
        // While others wait for this thread, the check of a long document fails with `Busy`.
        matches!(self, ModifyError::Query(QueryError::Deadline) | ModifyError::Write(WriteError::Busy))
    }
}
