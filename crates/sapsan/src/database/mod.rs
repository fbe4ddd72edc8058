//! The embedded database of an application: reads on the event loop, transactions whose replies wait until they are durable, and the
//! same calls for threads that may wait.
//!
//! | caller | reads | writes |
//! |---|---|---|
//! | a handler on a loop: [`crate::Db`] | at once, within [`LOOP_ROWS_MAX`] rows | [`crate::Db::write`]: a late reply |
//! | a thread that may wait: [`Database`] | at once | [`Database::write`]: waits until the transaction is durable |
//!
//! Both read through a [`Snapshot`] and write through a [`Transaction`]. Documents and rows are types that serde can deserialize, or
//! JSON text.
//!
//! This room imports `reply` (for errors as replies) and the crate `docs`. It knows no request: `arguments/database.rs` gives handlers
//! their [`crate::Db`].

mod expiry;
mod failure;
mod long;
mod on_loop;
mod parameters;
mod reading;
pub(crate) mod transaction;

pub use failure::{DatabaseError, OpenError};
pub use on_loop::LOOP_ROWS_MAX;
pub(crate) use on_loop::LoopDatabase;
pub use parameters::{DbValue, Parameters};
use reading::{Bounds, DeclaredView, Reading};
pub use reading::{Document, Snapshot};
pub use transaction::Transaction;

use docs::config::{Config, Mistakes};
use docs::sql::Statements;
use long::JobQueue;
use serde::de::DeserializeOwned;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Most bytes of cached prepared statements.
const STATEMENT_BYTES_MAX: usize = 8 << 20;
/// Readers of the store for threads that are no event loops: expiry, views, and calls that wait.
const OTHER_READERS: usize = 64;
/// Bounds of a query on a thread that may wait.
const BOUNDS: Bounds = Bounds { rows_max: 10_000_000, time_max: None };

/// An open database. Cloning is cheap. Its methods wait: on an event loop use [`crate::Db`].
#[derive(Clone)]
pub struct Database {
    pub(crate) inner: Arc<Inner>,
}

/// May be dropped on any thread, even one of the store: dropping waits for no thread.
pub(crate) struct Inner {
    pub(crate) docs: docs::DocumentDatabase,
    /// Readers of the store, of which each event loop takes one.
    readers_max: usize,
    pub(crate) statements: Statements,
    /// Idle readers of threads that may wait. There are as many as were ever in use at once.
    idle: Mutex<Vec<Reading>>,
    views: Vec<DeclaredView>,
    /// Transactions that would hold a loop for too long.
    long: Arc<JobQueue>,
}

impl Database {
    /// Opens or creates a database in a folder. The configuration has the sections `[collections.NAME]` and `[views.NAME]` of a
    /// service's file.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let folder = folder.path();
    /// let database = sapsan::Database::open(folder, r#"
    ///     [collections.users]
    ///     key = { field = "login", type = "string" }
    /// "#)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(folder: impl AsRef<Path>, config: &str) -> Result<Database, OpenError> {
        let config = Config::parse("the database's configuration".as_ref(), config).map_err(OpenError::Config)?;
        Database::open_with(folder, &config, docs::engine::StoreOptions::default())
    }

    /// As [`Database::open`], with the configuration from a file.
    pub fn open_file(folder: impl AsRef<Path>, file: impl AsRef<Path>) -> Result<Database, OpenError> {
        let file = file.as_ref();
        let text = std::fs::read_to_string(file).map_err(|source| OpenError::File { file: file.to_owned(), source })?;
        let config = Config::parse(file, &text).map_err(OpenError::Config)?;
        Database::open_with(folder, &config, docs::engine::StoreOptions::default())
    }

    /// As [`Database::open`], with a parsed configuration and options of the store.
    pub fn open_with(
        folder: impl AsRef<Path>,
        config: &Config,
        options: docs::engine::StoreOptions,
    ) -> Result<Database, OpenError> {
        let readers_max = options.readers_max;
        let (docs, recovery) = docs::DocumentDatabase::open(config, folder.as_ref(), options)?;
        tracing::info!(batches = recovery.batches, torn = recovery.torn_bytes, elapsed = ?recovery.elapsed, "the database is open");
        let statements = Statements::new(STATEMENT_BYTES_MAX);
        let views = docs.catalog().views.iter().filter_map(|view| DeclaredView::new(&docs, view)).collect();
        let inner =
            Arc::new(Inner { docs, readers_max, statements, idle: Mutex::default(), views, long: Arc::default() });
        expiry::start(&inner).map_err(OpenError::Thread)?;
        Ok(Database { inner })
    }

    /// Number of event loops whose readers the store has, beside those of other threads.
    pub(crate) fn loops_max(&self) -> usize {
        self.inner.readers_max.saturating_sub(OTHER_READERS).max(1)
    }

    /// The database of crate `docs`, for imports, verification and statistics.
    pub fn docs(&self) -> &docs::DocumentDatabase {
        &self.inner.docs
    }

    /// Runs several reads on one snapshot.
    pub fn read<T, E: From<DatabaseError>>(&self, read: impl FnOnce(&Snapshot<'_>) -> Result<T, E>) -> Result<T, E> {
        let reading = match self.idle().pop() {
            Some(reading) => reading,
            None => Reading::new(&self.inner.docs).map_err(DatabaseError::from)?,
        };
        let outcome = reading.read(self, BOUNDS, read);
        self.idle().push(reading);
        outcome
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Reading>> {
        self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Runs a transaction and waits until it is durable. If other transactions have changed what the closure read, it is called again;
    /// so it should be short and depend only on what it reads. If it returns an error, nothing is changed.
    ///
    /// ```
    /// # use sapsan::{Database, DatabaseError};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Account { id: u32, amount: i64 }
    /// fn deposit(database: &Database, id: u32, amount: i64) -> Result<i64, DatabaseError> {
    ///     database.write(|tx| {
    ///         let mut account: Account = tx.get("accounts", id)?.unwrap_or(Account { id, amount: 0 });
    ///         account.amount += amount;
    ///         tx.put("accounts", id, &account)?;
    ///         Ok(account.amount)
    ///     })
    /// }
    /// ```
    pub fn write<T, E>(&self, mut run: impl FnMut(&mut Transaction<'_>) -> Result<T, E> + Send) -> Result<T, E>
    where
        T: Send,
        E: From<DatabaseError> + Send,
    {
        let outcome = self.inner.docs.transact(&mut |tx| transaction::run(self, tx, &mut run));
        outcome.map_err(transaction::Ended::into_inner)
    }
}

impl From<Mistakes> for OpenError {
    fn from(mistakes: Mistakes) -> OpenError {
        OpenError::Config(mistakes)
    }
}
