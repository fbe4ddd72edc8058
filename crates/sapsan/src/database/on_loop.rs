//! The database on an event loop.

use super::failure::DatabaseError;
use super::parameters::{DbValue, Parameters};
use super::reading::{Bounds, Reading, Snapshot, TIME_MAX_WHILE_OTHERS_WAIT};
use super::transaction::{self, Ended, Transaction};
use super::{Database, missing};
use crate::build::Needs;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::extract::Extract;
use crate::late::{Later, Responder};
use crate::request::Request;
use crate::respond::Respond;
use docs::{Elsewhere, Run, RunDone};
use reactor::Loop;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Rows that a query on an event loop may scan. The loop's other connections wait meanwhile; a query that takes longer than 50 ms fails.
pub const LOOP_ROWS_MAX: u64 = 20_000;
const BOUNDS: Bounds = Bounds { rows_max: LOOP_ROWS_MAX, time_max: Some(TIME_MAX_WHILE_OTHERS_WAIT) };
/// Transactions that a loop holds while the database admits no writes, which lasts some milliseconds.
const HELD_MAX: usize = 10_000;
/// Time until a loop submits held transactions again.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// A loop's access to the database.
pub(crate) struct LoopDatabase {
    database: Database,
    reading: Reading,
    /// Takes transactions that would hold the loop for too long.
    elsewhere: Elsewhere,
    held: RefCell<VecDeque<Held>>,
}

/// A transaction that was not admitted. Calling it submits it again; if it is still not admitted, it returns itself.
struct Held(Box<TryHeld>);

type TryHeld = dyn FnOnce(&LoopDatabase) -> Option<Held>;

impl LoopDatabase {
    /// Panics if the store has no reader left; it has more readers than any machine has cores.
    pub(crate) fn new(database: &Database) -> LoopDatabase {
        let reading = Reading::new(&database.inner.docs).expect("the store has more readers than there are loops");
        let (line, docs) = (Arc::clone(&database.inner.long), database.inner.docs.clone());
        let elsewhere: Elsewhere = Arc::new(move |job| line.push(&docs, job));
        LoopDatabase { database: database.clone(), reading, elsewhere, held: RefCell::default() }
    }

    /// Submits a transaction. If it is not admitted, it is held, and so are all later ones, in their order.
    fn submit<T, E>(&self, run: Run<T, Ended<E>>, done: RunDone<T, Ended<E>>)
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        if self.held.borrow().is_empty() {
            if let Some(held) = self.try_submit(run, done) {
                self.held.borrow_mut().push_back(held);
            }
        } else if self.held.borrow().len() < HELD_MAX {
            self.held.borrow_mut().push_back(Held(Box::new(move |database| database.try_submit(run, done))));
        } else {
            done(Err(Ended::from(docs::WriteError::Busy)));
        }
    }

    fn try_submit<T, E>(&self, run: Run<T, Ended<E>>, done: RunDone<T, Ended<E>>) -> Option<Held>
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
    {
        let docs = &self.database.inner.docs;
        match docs.try_transact(&self.reading.session, run, done, &self.elsewhere) {
            Ok(()) => None,
            Err((run, done)) => Some(Held(Box::new(move |database| database.try_submit(run, done)))),
        }
    }

    /// Submits the held transactions again.
    #[inline]
    pub(crate) fn tick_ended(&self, lp: &Loop) {
        if !self.held.borrow().is_empty() {
            self.try_again(lp);
        }
    }

    #[cold]
    fn try_again(&self, lp: &Loop) {
        while let Some(held) = self.pop() {
            if let Some(held) = (held.0)(self) {
                self.held.borrow_mut().push_front(held);
                // The empty timer wakes the loop; the end of that turn calls this function again.
                return lp.after(TRY_AGAIN, Box::new(|_| {}));
            }
        }
    }

    fn pop(&self) -> Option<Held> {
        self.held.borrow_mut().pop_front()
    }
}

/// The application's database, for a handler on an event loop.
///
/// Reads happen at once, without a lock. The reply to a transaction is sent when it is durable; many transactions share one sync of the
/// disk.
#[derive(Clone, Copy)]
pub struct Db<'r> {
    on: &'r LoopDatabase,
}

impl Extract for Db<'_> {
    type Item<'r> = Db<'r>;

    fn extract<'r>(request: &'r Request<'_>) -> Result<Db<'r>, Error> {
        request.local.database.as_ref().map(|on| Db { on }).ok_or_else(missing)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.database();
    }
}

impl Db<'_> {
    /// Runs several reads on one snapshot. Must not wait. A query may scan [`LOOP_ROWS_MAX`] rows; for more use [`crate::blocking()`].
    pub fn read<T, E: From<DatabaseError>>(&self, read: impl FnOnce(&Snapshot<'_>) -> Result<T, E>) -> Result<T, E> {
        self.on.reading.read(&self.on.database, BOUNDS, read)
    }

    /// A document by its key.
    pub fn get<T: DeserializeOwned>(&self, collection: &str, key: impl DbValue) -> Result<Option<T>, DatabaseError> {
        self.read(|now| now.get(collection, key))
    }

    /// The rows of a query.
    pub fn query<T: DeserializeOwned>(&self, sql: &str, parameters: impl Parameters) -> Result<Vec<T>, DatabaseError> {
        self.read(|now| now.query(sql, parameters))
    }

    /// The first row of a query.
    pub fn row<T: DeserializeOwned>(&self, sql: &str, parameters: impl Parameters) -> Result<Option<T>, DatabaseError> {
        self.read(|now| now.row(sql, parameters))
    }

    /// The row of a declared view: see [`Snapshot::view_row`].
    pub fn view_row<T: DeserializeOwned>(
        &self,
        view: &str,
        group: impl Parameters,
    ) -> Result<Option<T>, DatabaseError> {
        self.read(|now| now.view_row(view, group))
    }

    /// The database for threads that may wait.
    pub fn database(&self) -> &Database {
        &self.on.database
    }

    /// Runs a transaction and replies with its result once it is durable. The closure runs on the loop. If other transactions have changed
    /// meanwhile what it read, it runs again on another thread; so it should be short and depend only on what it reads. If it returns an
    /// error, nothing is changed.
    pub fn write<T, E>(&self, run: impl FnMut(&mut Transaction<'_>) -> Result<T, E> + Send + 'static) -> Later
    where
        T: Respond + Send + 'static,
        E: From<DatabaseError> + Into<Error> + Send + 'static,
    {
        self.write_then(run, |outcome| outcome)
    }

    /// As [`Db::write`]; `reply` makes the reply from the transaction's result. It runs on a thread of the store and must not wait.
    pub fn write_then<T, E, R>(
        &self,
        run: impl FnMut(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
        reply: impl FnOnce(Result<T, E>) -> R + Send + 'static,
    ) -> Later
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
        R: Respond,
    {
        self.write_with(run, |outcome, _| reply(outcome))
    }

    /// As [`Db::write_then`]; `reply` may also change the request's values, such as its session.
    pub fn write_with<T, E, R>(
        &self,
        mut run: impl FnMut(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
        reply: impl FnOnce(Result<T, E>, &mut Exchange) -> R + Send + 'static,
    ) -> Later
    where
        T: Send + 'static,
        E: From<DatabaseError> + Send + 'static,
        R: Respond,
    {
        let database = self.on.database.clone();
        let answer = move |outcome: Result<T, E>, mut responder: Responder| {
            let reply = reply(outcome, responder.exchange());
            responder.send(reply);
        };
        Later::on_loop(true, move |responder, local| {
            match local.and_then(|local| Some((local, local.database.as_ref()?))) {
                Some((local, on)) => {
                    let run: Run<T, Ended<E>> = Box::new(move |tx| transaction::run(&database, tx, &mut run));
                    on.submit(run, Box::new(move |outcome| answer(outcome.map_err(Ended::into_inner), responder)));
                    // A transaction that is held, or that continues on another thread, could be overtaken by later requests of its
                    // connection, so these wait for it.
                    if docs::take_given_up() || !on.held.borrow().is_empty() {
                        local.stands_alone.set(true);
                    }
                }
                // Started on a thread that may wait.
                None => answer(database.write(run), responder),
            }
        })
    }
}
