//! Writes that are submitted and answered later: each is a transaction on its way through the store.

use std::sync::Arc;

use store::Submit;

use crate::database::{Database, Required, Write, written};
use crate::error::WriteError;
use crate::gate::{Kind, Shut};
use crate::long_check::LongCheck;
use crate::reopen::Passing;
use crate::session::Session;
use crate::sql::Guard;
use crate::write::{Prepared, Written};

/// Told once what became of a write. May run on a thread of the store, and must not block.
pub type Done = Box<dyn FnOnce(Result<Written, WriteError>) + Send>;

/// Asked from any thread while work goes on: whether nobody wants it any more. Once that is so, it stays so.
pub type Question = Arc<dyn Fn() -> bool + Send + Sync>;

/// Takes writes of an event loop that turned out, while they were prepared, to be too long for it: by the check of a document, or by
/// the size of the stored one.
pub trait TakeLong: Send + Sync {
    /// On the loop, before [`Database::try_write`] returns: the write will be given to [`TakeLong::take`].
    fn note(&self);
    /// Takes a write to this database, after all writes that were submitted before it are prepared. May run on a thread of the store; must not block. For
    /// [`Database::write_submission`], on a thread that may be busy for a while.
    fn take(&self, database: &Database, submission: Submission);
}

/// A write that is to be submitted.
pub struct Submission {
    /// The write.
    pub write: Write,
    /// What must give a row when it is done: else [`WriteError::Unguarded`]. Asked before anything else.
    pub guard: Option<Guard>,
    /// A document that must be there when it is done: else [`WriteError::NotFound`].
    pub required: Option<Required>,
    /// Asked while a long document is checked by a JSON Schema: if nobody wants the write any more, it ends with [`WriteError::Busy`].
    pub over: Option<Question>,
    /// Takes it from [`Database::try_write`] where it turns out to be no work for an event loop. Without it such a write ends with
    /// [`WriteError::Busy`]. See [`Database::may_be_long`].
    pub long: Option<Arc<dyn TakeLong>>,
    /// Told what became of it.
    pub done: Done,
}

impl Submission {
    /// Whether nobody wants the write any more.
    pub fn is_over(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over())
    }
}

impl Database {
    /// Submits a write; `done` is called once, perhaps before this returns. With all checks it is one transaction. Waits while
    /// another configuration takes over: for threads that may wait.
    pub fn write(&self, session: &Session, write: Write, done: Done) {
        self.write_where(session, write, None, done);
    }

    /// The same where another document must be there when it is done: else [`WriteError::NotFound`].
    pub fn write_where(&self, session: &Session, write: Write, required: Option<Required>, done: Done) {
        self.write_submission(session, Submission { write, guard: None, required, over: None, long: None, done });
    }

    /// The same of a submission.
    pub fn write_submission(&self, session: &Session, submission: Submission) {
        match self.pass(Kind::Short) {
            Some(passing) => self.submit(session, passing, submission, LongCheck::asking),
            None => {
                if let Some((database, submission)) = self.moved(submission) {
                    database.write_submission(session, submission);
                }
            }
        }
    }

    /// The same for event loops, which must not wait: while another configuration takes over, for some milliseconds, the
    /// submission is given back. Who tries again keeps the order.
    pub fn try_write(&self, session: &Session, submission: Submission) -> Result<(), Box<Submission>> {
        match self.try_pass(Kind::Short) {
            Ok(passing) => self.submit(session, passing, submission, LongCheck::on_loop),
            Err(Shut::Closed) => return Err(Box::new(submission)),
            Err(Shut::Gone) => return self.try_write_moved(session, submission),
        }
        Ok(())
    }

    #[cold]
    fn try_write_moved(&self, session: &Session, submission: Submission) -> Result<(), Box<Submission>> {
        // By the old one's numbers of collections it is given back.
        let (write, required) = (submission.write.clone(), submission.required.clone());
        match self.moved(submission) {
            Some((database, moved)) => {
                database.try_write(session, moved).map_err(|moved| Box::new(Submission { write, required, ..*moved }))
            }
            None => Ok(()),
        }
    }

    /// The submission as the database takes it that has taken over. One that this cannot take is answered.
    fn moved(&self, submission: Submission) -> Option<(Database, Submission)> {
        let Submission { write, guard, required, over, long, done } = submission;
        if guard.is_some() {
            // It was prepared from this database's catalog: no other can ask it.
            done(Err(WriteError::Busy));
            return None;
        }
        match self.succeeded(&write).and_then(|next| Ok((next, self.required_there(required)?))) {
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
        session: &Session,
        passing: Passing,
        submission: Submission,
        check: impl FnOnce(Option<Question>) -> LongCheck,
    ) {
        let Submission { write, guard, required, over, long, done } = submission;
        let long_check = check(over);
        let writing = Writing { passing, write, guard, required, outcome: None, long_check, long, done };
        match self.store().submit(session.reader(), Box::new(writing)) {
            Submit::Queued => {}
            Submit::Busy(transaction) => transaction.finish(Err(store::Error::Busy)),
        }
    }
}

/// A write on its way through the store.
struct Writing {
    passing: Passing,
    write: Write,
    guard: Option<Guard>,
    required: Option<Required>,
    outcome: Option<Result<Prepared, WriteError>>,
    long_check: LongCheck,
    long: Option<Arc<dyn TakeLong>>,
    done: Done,
}

impl Writing {
    fn prepared(&mut self, tx: &mut store::Tx<'_>) -> Result<Prepared, WriteError> {
        if let Some(guard) = &self.guard {
            guard.check(&self.passing, tx)?;
        }
        match &self.required {
            Some(required) if !self.passing.is_there(required, tx)? => Err(WriteError::NotFound),
            _ => self.passing.prepare(&self.write, tx, &mut self.long_check),
        }
    }
}

impl store::Transaction for Writing {
    fn prepare(&mut self, tx: &mut store::Tx<'_>) -> Result<(), store::Abort> {
        if self.long_check.is_long {
            // Whatever others have changed meanwhile: another thread begins it anew.
            return Err(store::Abort);
        }
        let prepared = self.prepared(tx);
        if self.long_check.is_long
            && let Some(long) = &self.long
        {
            long.note();
        }
        let result = if prepared.is_ok() { Ok(()) } else { Err(store::Abort) };
        self.outcome = Some(prepared);
        self.long_check.was_prepared();
        result
    }

    fn finish(self: Box<Self>, outcome: Result<store::Commit, store::Error>) {
        let Writing { passing, outcome: prepared, done, write, guard, required, long_check, long, .. } = *self;
        if let (true, Some(long), Err(store::Error::Aborted)) = (long_check.is_long, long, &outcome) {
            let database = Database::clone(&passing);
            drop(passing);
            return long.take(&database, Submission { write, guard, required, over: None, long: None, done });
        }
        drop(passing);
        done(written(prepared, outcome));
    }
}
