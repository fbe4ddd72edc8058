//! Transactions of arbitrary reads and writes, as closures.
//!
//! The closure runs on its caller's thread against a snapshot, and after a conflict again on the committing thread. So its
//! result must depend only on what it reads through its [`DocumentTransaction`], and it must be short, because all commits wait
//! for a second run. A refused write does not abort the transaction by itself. The closure's result decides: if it is an error,
//! nothing is changed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::database::{CollectionId, DocumentDatabase, Passing, ReaderSession, Shut, Stored, Write, WriteKind};
use crate::encoding::Key;
use crate::engine::{self, ReadView, Submit, Tx, Within};
use crate::error::{ReadError, WriteError};
use crate::sql::{QueryError, Value};
use crate::views::table::WithViews;
use crate::views::{ViewId, row};
use crate::writes::LongCheck;

/// Writes that one transaction may hold: each keeps the state of its document's check.
pub const TRANSACTION_WRITES_MAX: usize = 10_000;

/// A transaction in progress: reads see its own writes.
pub struct DocumentTransaction<'a, 't> {
    database: &'a DocumentDatabase,
    tx: &'a mut Tx<'t>,
    checks: &'a mut Checks,
}

/// The states of the checks of a transaction's writes, by their order, for a second run.
#[derive(Default)]
struct Checks {
    list: Vec<(CollectionId, LongCheck)>,
    next: usize,
    is_on_loop: bool,
    /// The transaction runs again, while all commits wait.
    is_again: bool,
}

impl Checks {
    /// The check of the next write. A check at this place for another collection does not apply and is replaced.
    fn next(&mut self, collection: CollectionId) -> Result<&mut LongCheck, WriteError> {
        let place = self.next;
        if place >= TRANSACTION_WRITES_MAX {
            let (what, limit) = ("a transaction, in writes (not bytes),".to_owned(), TRANSACTION_WRITES_MAX as u64);
            return Err(WriteError::TooLarge { what, limit });
        }
        self.next += 1;
        let is_known = self.list.get(place).is_some_and(|(known, _)| *known == collection);
        if !is_known {
            self.list.truncate(place);
            self.list.push((collection, LongCheck::within(self.is_on_loop, self.is_again)));
        }
        Ok(&mut self.list[place].1)
    }

    fn was_prepared(&mut self) {
        self.list.iter_mut().for_each(|(_, check)| check.was_prepared());
        (self.next, self.is_again, self.is_on_loop) = (0, true, false);
    }

    /// Whether a write is too long for an event loop.
    fn is_long(&self) -> bool {
        self.list.iter().any(|(_, check)| check.is_long)
    }
}

/// Result of one write of a transaction, without its change number, which the commit assigns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Whether the document is new.
    pub created: bool,
    /// The key's stored bytes.
    pub key: Vec<u8>,
}

impl DocumentTransaction<'_, '_> {
    /// The database.
    pub fn database(&self) -> &DocumentDatabase {
        self.database
    }

    /// A document by its key, unless it has expired.
    pub fn get(&mut self, collection: CollectionId, key: &Key<'_>) -> Result<Option<Stored<'_>>, ReadError> {
        let collection = self.database.collection_at(collection);
        let clock = self.database.clock();
        let found = self.tx.get(collection.info.tree, key.as_bytes())?;
        Ok(found.filter(|stored| collection.is_there(stored, || clock.now_ms())).map(Stored::of))
    }

    /// Applies one write, with all its checks.
    pub fn write(&mut self, write: &Write) -> Result<Applied, WriteError> {
        let check = self.checks.next(write.collection)?;
        let prepared = self.database.prepare(write, self.tx, check)?;
        Ok(Applied { created: prepared.created, key: prepared.key })
    }

    /// Appends the row of a declared view: see [`crate::Moment::view_row`]. A view into which the transaction has written cannot
    /// be read: [`engine::StoreError::Refused`].
    pub fn view_row(&mut self, view: ViewId, group: &[Value<'_>], out: &mut Vec<u8>) -> Result<bool, QueryError> {
        row::append(self.database.views_at_work(), (view, group), &Within::new(self.tx), out)
    }

    /// The transaction's state for queries. A view into which the transaction has written cannot be read:
    /// [`engine::StoreError::Refused`].
    pub fn view(&mut self) -> impl ReadView + '_ {
        WithViews { inner: Within::new(self.tx), views: self.database.views_at_work(), ready_by: u64::MAX }
    }
}

/// The body of a transaction. May be called more than once.
pub type TransactionBody<T, E> = Box<dyn FnMut(&mut DocumentTransaction<'_, '_>) -> Result<T, E> + Send>;

/// Called once with the result of a transaction. May run on a thread of the store, and must not block.
pub type RunDone<T, E> = Box<dyn FnOnce(Result<T, E>) + Send>;

/// A transaction that was not accepted.
pub type GivenBack<T, E> = (TransactionBody<T, E>, RunDone<T, E>);

/// A transaction that turned out to be too long for an event loop. With a database it runs and waits until it is durable; without
/// one it is refused as busy.
pub type LongTransaction = Box<dyn FnOnce(Option<&DocumentDatabase>) + Send>;

/// Receives long transactions, and must run them on another thread. May be called on a thread of the store and must not block.
pub type Elsewhere = Arc<dyn Fn(LongTransaction) + Send + Sync>;

impl DocumentDatabase {
    /// Runs a transaction and waits until it is durable; a lone caller commits on its own thread. If the closure panics,
    /// nothing is changed and the panic continues here.
    pub fn transact<T, E>(
        &self,
        run: &mut (dyn FnMut(&mut DocumentTransaction<'_, '_>) -> Result<T, E> + Send),
    ) -> Result<T, E>
    where
        T: Send,
        E: From<WriteError> + Send,
    {
        // The closure may hold collection numbers of this database, so no other database can run it.
        let Some(_passing) = self.pass(WriteKind::Long) else { return Err(WriteError::Busy.into()) };
        let (mut outcome, mut checks, mut panicked) = (None, Checks::default(), None);
        let commit = self.store().commit(&mut |tx| {
            // A panic that unwinds through the store would stop all writes.
            let ran = catch_unwind(AssertUnwindSafe(|| {
                run(&mut DocumentTransaction { database: self, tx, checks: &mut checks })
            }));
            checks.was_prepared();
            outcome = ran.map_err(|panic| panicked = Some(panic)).ok();
            if matches!(outcome, Some(Ok(_))) { Ok(()) } else { Err(engine::Abort) }
        });
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        ended(commit, outcome)
    }

    /// Submits a transaction; `done` is called once, perhaps before this returns. If the closure panics, `done` gets
    /// [`WriteError::Unavailable`], and nothing is changed.
    ///
    /// For event loops. While another configuration takes over or a collection is emptied (some milliseconds), the transaction
    /// is returned to the caller, to be submitted again.
    pub fn try_transact<T, E>(
        &self,
        session: &ReaderSession,
        run: TransactionBody<T, E>,
        done: RunDone<T, E>,
        elsewhere: &Elsewhere,
    ) -> Result<(), GivenBack<T, E>>
    where
        T: Send + 'static,
        E: From<WriteError> + Send + 'static,
    {
        let passing = match self.try_pass(WriteKind::Short) {
            Ok(passing) => passing,
            Err(Shut::Closed) => return Err((run, done)),
            Err(Shut::Gone) => {
                done(Err(WriteError::Busy.into()));
                return Ok(());
            }
        };
        let checks = Checks { is_on_loop: true, ..Checks::default() };
        let running = Running { passing, run, outcome: None, checks, done, elsewhere: Arc::clone(elsewhere) };
        if let Submit::Busy(transaction) = self.store().submit(session.reader(), Box::new(running)) {
            transaction.finish(Err(engine::StoreError::Busy));
        }
        Ok(())
    }
}

thread_local! {
    /// Set if this thread, an event loop, gave up a transaction as too long.
    static GIVEN_UP: Cell<bool> = const { Cell::new(false) };
}

/// Whether a transaction that this thread submitted since the last call continues elsewhere, so that later writes may overtake
/// it.
pub fn take_given_up() -> bool {
    GIVEN_UP.take()
}

fn ended<T, E: From<WriteError>>(
    commit: Result<engine::Commit, engine::StoreError>,
    outcome: Option<Result<T, E>>,
) -> Result<T, E> {
    match (commit, outcome) {
        (Ok(_), Some(Ok(result))) => Ok(result),
        (Err(engine::StoreError::Aborted), Some(Err(refused))) => Err(refused),
        (Err(engine::StoreError::Aborted), _) => {
            Err(WriteError::Unavailable { why: "the transaction panicked".to_owned() }.into())
        }
        (Err(error), _) => Err(WriteError::from(error).into()),
        (Ok(_), _) => {
            Err(WriteError::Unknown { why: "the store finished a transaction it had not prepared".to_owned() }.into())
        }
    }
}

/// A submitted transaction, in progress.
struct Running<T, E> {
    passing: Passing,
    run: TransactionBody<T, E>,
    outcome: Option<Result<T, E>>,
    checks: Checks,
    done: RunDone<T, E>,
    elsewhere: Elsewhere,
}

impl<T, E> engine::RetriableTransaction for Running<T, E>
where
    T: Send + 'static,
    E: From<WriteError> + Send + 'static,
{
    fn prepare(&mut self, tx: &mut Tx<'_>) -> Result<(), engine::Abort> {
        let Running { passing, run, outcome, checks, .. } = self;
        *outcome = None;
        if checks.is_long() {
            // No retry on this thread: another thread begins the transaction anew.
            return Err(engine::Abort);
        }
        let is_on_loop = checks.is_on_loop;
        let ran = catch_unwind(AssertUnwindSafe(|| run(&mut DocumentTransaction { database: passing, tx, checks })));
        checks.was_prepared();
        if is_on_loop && checks.is_long() {
            GIVEN_UP.set(true);
        }
        *outcome = ran.ok();
        if matches!(outcome, Some(Ok(_))) && !checks.is_long() { Ok(()) } else { Err(engine::Abort) }
    }

    fn finish(self: Box<Self>, commit: Result<engine::Commit, engine::StoreError>) {
        let Running { passing, mut run, outcome, checks, done, elsewhere } = *self;
        if checks.is_long() && matches!(commit, Err(engine::StoreError::Aborted)) {
            drop(passing);
            return elsewhere(Box::new(move |database| match database {
                Some(database) => done(database.transact(&mut *run)),
                None => {
                    drop(run);
                    done(Err(WriteError::Busy.into()));
                }
            }));
        }
        // The closure's captures are dropped before `done` is called, because its receiver may reopen the folder.
        drop((passing, run));
        done(ended(commit, outcome));
    }
}
