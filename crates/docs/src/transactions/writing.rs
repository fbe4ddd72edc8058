//! Writes that are submitted and report their result later. Each is a transaction of the store.

use std::sync::Arc;

use schema::CancelCheck;

use crate::database::{DocumentDatabase, Passing, ReaderSession, Required, Shut, Write, WriteKind, written};
use crate::engine::{self, Submit};
use crate::error::WriteError;
use crate::statements::Guard;
use crate::writes::{LongCheck, Prepared, Written};

/// Called once with the result of a write. May run on a thread of the store, and must not block.
pub type WriteCallback = Box<dyn FnOnce(Result<Written, WriteError>) + Send>;

/// Receives writes of an event loop whose preparation turned out to take too long for it, because of the check of a document or
/// the size of the stored one.
pub trait TakeLong: Send + Sync {
    /// Called on the event loop, before [`DocumentDatabase::try_write`] returns, for a write that will be passed to
    /// [`TakeLong::take`].
    fn note(&self);
    /// Receives a write to this database, after all writes submitted before it are prepared. May run on a thread of the store
    /// and must not block. The receiver must run the write by [`DocumentDatabase::write_submission`], on a thread that may block.
    fn take(&self, database: &DocumentDatabase, submission: Submission);
}

/// A write that is to be submitted.
pub struct Submission {
    /// The write.
    pub write: Write,
    /// A query that must return a row, else [`WriteError::Unguarded`]. Evaluated first.
    pub guard: Option<Guard>,
    /// A document that must exist, else [`WriteError::NotFound`].
    pub required: Option<Required>,
    /// Called while a long document is checked by a JSON Schema: if the write is cancelled, it ends with [`WriteError::Busy`].
    pub over: Option<CancelCheck>,
    /// Takes the write from [`DocumentDatabase::try_write`] if it turns out to be too long for an event loop. Without it such a
    /// write ends with [`WriteError::Busy`]. See [`DocumentDatabase::may_be_long`].
    pub long: Option<Arc<dyn TakeLong>>,
    /// Called with the result.
    pub done: WriteCallback,
}

impl Submission {
    /// Whether the write is cancelled.
    pub fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over())
    }
}

impl DocumentDatabase {
    /// Submits a write, which is one transaction with all its checks. `done` is called once, perhaps before this returns.
    /// Blocks while another configuration takes over, so only for threads that may block.
    pub fn write(&self, session: &ReaderSession, write: Write, done: WriteCallback) {
        self.write_where(session, write, None, done);
    }

    /// The same with a required document that must exist, else [`WriteError::NotFound`].
    pub fn write_where(&self, session: &ReaderSession, write: Write, required: Option<Required>, done: WriteCallback) {
        self.write_submission(session, Submission { write, guard: None, required, over: None, long: None, done });
    }

    /// The same for a submission.
    pub fn write_submission(&self, session: &ReaderSession, submission: Submission) {
        match self.pass(WriteKind::Short) {
            Some(passing) => self.submit(session, passing, submission, LongCheck::with_cancel_check),
            None => {
                if let Some((database, submission)) = self.moved(submission) {
                    database.write_submission(session, submission);
                }
            }
        }
    }

    /// The same for event loops, which must not block. While another configuration takes over (some milliseconds), the
    /// submission is returned. If returned submissions are retried in order, writes keep their order.
    pub fn try_write(&self, session: &ReaderSession, submission: Submission) -> Result<(), Box<Submission>> {
        match self.try_pass(WriteKind::Short) {
            Ok(passing) => self.submit(session, passing, submission, LongCheck::on_loop),
            Err(Shut::Closed) => return Err(Box::new(submission)),
            Err(Shut::Gone) => return self.try_write_moved(session, submission),
        }
        Ok(())
    }

    #[cold]
    fn try_write_moved(&self, session: &ReaderSession, submission: Submission) -> Result<(), Box<Submission>> {
        // A returned submission must have the collection numbers of this database.
        let (write, required) = (submission.write.clone(), submission.required.clone());
        match self.moved(submission) {
            Some((database, moved)) => {
                database.try_write(session, moved).map_err(|moved| Box::new(Submission { write, required, ..*moved }))
            }
            None => Ok(()),
        }
    }

    /// Translates the submission for the database that has taken over. If that is impossible, reports an error as its result.
    fn moved(&self, submission: Submission) -> Option<(DocumentDatabase, Submission)> {
        let Submission { write, guard, required, over, long, done } = submission;
        if guard.is_some() {
            // The guard was prepared from this database's catalog, so no other database can run it.
            done(Err(WriteError::Busy));
            return None;
        }
        match self.for_successor(&write).and_then(|next| Ok((next, self.required_for_successor(required)?))) {
            Ok(((database, write), required)) => {
                Some((database, Submission { write, guard: None, required, over, long, done }))
            }
            Err(error) => {
                done(Err(error));
                None
            }
        }
    }

    #[inline]
    fn submit(
        &self,
        session: &ReaderSession,
        passing: Passing,
        submission: Submission,
        check: impl FnOnce(Option<CancelCheck>) -> LongCheck,
    ) {
        let Submission { write, guard, required, over, long, done } = submission;
        let long_check = check(over);
        let writing = Writing { passing, write, guard, required, outcome: None, long_check, long, done };
        if let Submit::Busy(transaction) = self.store().submit(session.reader(), Box::new(writing)) {
            transaction.finish(Err(engine::StoreError::Busy));
        }
    }
}

/// A submitted write, in progress.
struct Writing {
    passing: Passing,
    write: Write,
    guard: Option<Guard>,
    required: Option<Required>,
    outcome: Option<Result<Prepared, WriteError>>,
    long_check: LongCheck,
    long: Option<Arc<dyn TakeLong>>,
    done: WriteCallback,
}

impl Writing {
    fn prepared(&mut self, tx: &mut engine::Tx<'_>) -> Result<Prepared, WriteError> {
        if let Some(guard) = &self.guard {
            guard.check(&self.passing, tx)?;
        }
        match &self.required {
            Some(required) if !self.passing.is_there(required, tx)? => Err(WriteError::NotFound),
            _ => self.passing.prepare(&self.write, tx, &mut self.long_check),
        }
    }
}

impl engine::RetriableTransaction for Writing {
    fn prepare(&mut self, tx: &mut engine::Tx<'_>) -> Result<(), engine::Abort> {
        if self.long_check.is_long {
            // No retry on this thread: another thread begins the write anew.
            return Err(engine::Abort);
        }
        let prepared = self.prepared(tx);
        if self.long_check.is_long
            && let Some(long) = &self.long
        {
            long.note();
        }
        let result = if prepared.is_ok() { Ok(()) } else { Err(engine::Abort) };
        self.outcome = Some(prepared);
        self.long_check.was_prepared();
        result
    }

    fn finish(self: Box<Self>, outcome: Result<engine::Commit, engine::StoreError>) {
        let Writing { passing, outcome: prepared, done, write, guard, required, long_check, long, .. } = *self;
        if let (true, Some(long), Err(engine::StoreError::Aborted)) = (long_check.is_long, long, &outcome) {
            let database = DocumentDatabase::clone(&passing);
            drop(passing);
            return long.take(&database, Submission { write, guard, required, over: None, long: None, done });
        }
        drop(passing);
        done(written(prepared, outcome));
    }
}
