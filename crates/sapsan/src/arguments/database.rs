//! The database as an argument: [`Db`] on the event loop, [`Database`] for threads that may wait.

use super::extract::Extract;
use crate::database::transaction::{self, Ended};
use crate::database::{Database, DatabaseError, DbValue, LoopDatabase, Parameters, Snapshot, Transaction};
use crate::dispatch::{Exchange, Later, Needs, Request, Respond, Responder};
use crate::reply::Error;
use docs::TransactionBody;
use serde::de::DeserializeOwned;

/// The application's database, for handlers that run on an executor.
impl Extract for Database {
    type Item<'r> = Database;

    fn extract(request: &Request<'_>) -> Result<Database, Error> {
        request.resources.database.clone().ok_or_else(missing)
    }

    fn needs(needs: &mut Needs<'_>) {
        needs.database();
    }
}

/// Unreachable: the start checks that there is a database.
#[cold]
fn missing() -> Error {
    Error::internal("the application has no database")
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
    /// Runs several reads on one snapshot. Must not wait. A query may scan [`crate::LOOP_ROWS_MAX`] rows; for more use [`crate::blocking()`].
    pub fn read<T, E: From<DatabaseError>>(&self, read: impl FnOnce(&Snapshot<'_>) -> Result<T, E>) -> Result<T, E> {
        self.on.read(read)
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
        self.on.database()
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
        let database = self.on.database().clone();
        let answer = move |outcome: Result<T, E>, mut responder: Responder| {
            let reply = reply(outcome, responder.exchange());
            responder.send(reply);
        };
        Later::on_loop(true, move |responder, local| {
            match local.and_then(|local| Some((local, local.database.as_ref()?))) {
                Some((local, on)) => {
                    let run: TransactionBody<T, Ended<E>> =
                        Box::new(move |tx| transaction::run(&database, tx, &mut run));
                    on.submit(run, Box::new(move |outcome| answer(outcome.map_err(Ended::into_inner), responder)));
                    // A transaction that is held, or that continues on another thread, could be overtaken by later requests of its
                    // connection, so these wait for it.
                    if docs::take_given_up() || on.has_held() {
                        local.stands_alone.set(true);
                    }
                }
                // Started on a thread that may wait.
                None => answer(database.write(run), responder),
            }
        })
    }
}
