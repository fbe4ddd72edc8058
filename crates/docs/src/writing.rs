//! Writes that are submitted and answered later: each is a transaction on its way through the store.

use store::Submit;

use crate::database::{Database, Write, written};
use crate::error::WriteError;
use crate::gate::Kind;
use crate::reopen::Passing;
use crate::session::Session;
use crate::write::{Prepared, Written};

/// Told once what became of a write. May run on a thread of the store, and must not block.
pub type Done = Box<dyn FnOnce(Result<Written, WriteError>) + Send>;

impl Database {
    /// Submits a write; `done` is called once, perhaps before this returns. With all checks it is one transaction.
    pub fn write(&self, session: &Session, write: Write, done: Done) {
        let Some(passing) = self.pass(Kind::Short) else {
            return match self.succeeded(&write) {
                Ok((database, write)) => database.write(session, write, done),
                Err(error) => done(Err(error)),
            };
        };
        let writing = Writing { passing, write, outcome: None, done };
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
    outcome: Option<Result<Prepared, WriteError>>,
    done: Done,
}

impl store::Transaction for Writing {
    fn prepare(&mut self, tx: &mut store::Tx<'_>) -> Result<(), store::Abort> {
        let prepared = self.passing.prepare(&self.write, tx);
        let result = if prepared.is_ok() { Ok(()) } else { Err(store::Abort) };
        self.outcome = Some(prepared);
        result
    }

    fn finish(self: Box<Self>, outcome: Result<store::Commit, store::Error>) {
        let Writing { passing, outcome: prepared, done, .. } = *self;
        drop(passing);
        done(written(prepared, outcome));
    }
}
