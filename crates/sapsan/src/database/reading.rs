//! Reads from one snapshot: documents by key, rows of queries.

use super::Database;
use super::failure::DatabaseError;
use super::parameters::{DbValue, Parameters};
use docs::catalog::CollectionInfo;
use docs::sql::{Budget, PreparedQuery, QueryError, Scratch, Value};
use docs::{CollectionId, Moment, ReaderSession, Stored, ViewId};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Largest buffer that is kept between two reads, in bytes.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Most statements that a reader caches, and the longest text of a cached one in bytes.
const PREPARED_MAX: usize = 256;
const PREPARED_BYTES_MAX: usize = 4 << 10;
/// Most bytes of a query's result, and most bytes of memory for its sorting and grouping.
const QUERY_BYTES_MAX: usize = 64 << 20;

/// Bounds of one query.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Rows that it may scan.
    pub(super) rows_max: u64,
    /// Time limit; `None`: unlimited.
    pub(super) time_max: Option<Duration>,
}

/// Time limit of a query on an event loop or inside a transaction: other connections, or commits, wait meanwhile.
pub(super) const TIME_MAX_WHILE_OTHERS_WAIT: Duration = Duration::from_millis(50);

impl Bounds {
    /// Starts the clock, and returns the check for the end of the time.
    pub(super) fn is_over(self) -> impl Fn() -> bool + Sync {
        let until = self.time_max.map(|most| Instant::now() + most);
        move || until.is_some_and(|until| Instant::now() >= until)
    }
}

/// A thread's access to the database: its reader, and memory that its reads reuse.
pub(crate) struct Reading {
    pub(crate) session: ReaderSession,
    scratch: RefCell<Scratch>,
    rows: RefCell<Vec<u8>>,
    /// Statements that this reader has run, so that the shared cache, which is behind a lock, is not asked again.
    prepared: RefCell<HashMap<Box<str>, Arc<PreparedQuery>>>,
}

impl Reading {
    pub(crate) fn new(docs: &docs::DocumentDatabase) -> Result<Reading, docs::engine::StoreError> {
        let (scratch, rows, prepared) = Default::default();
        Ok(Reading { session: docs.session()?, scratch, rows, prepared })
    }

    /// The prepared query of a statement.
    fn query(&self, database: &Database, sql: &str) -> Result<Arc<PreparedQuery>, DatabaseError> {
        let mut prepared = self.prepared.borrow_mut();
        if let Some(query) = prepared.get(sql) {
            return Ok(Arc::clone(query));
        }
        let query = query_of(database, sql)?;
        // Bounded, because programs that write values into statements would fill the cache without end.
        if prepared.len() < PREPARED_MAX && sql.len() <= PREPARED_BYTES_MAX {
            prepared.insert(sql.into(), Arc::clone(&query));
        }
        Ok(query)
    }

    /// Calls `read` with a snapshot of the newest state.
    pub(crate) fn read<T, E: From<DatabaseError>>(
        &self,
        database: &Database,
        bounds: Bounds,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let snapshot = Snapshot { moment: self.session.now(), reading: self, database, bounds };
        let outcome = read(&snapshot)?;
        // If the disk lost a page during the read, the result is invalid.
        snapshot.moment.check_indexes().map_err(DatabaseError::from)?;
        Ok(outcome)
    }
}

/// The database as of one moment. It pins the pages of that moment while it lives, so it should be short-lived.
pub struct Snapshot<'s> {
    moment: Moment<'s>,
    reading: &'s Reading,
    database: &'s Database,
    bounds: Bounds,
}

impl Snapshot<'_> {
    /// A document by its key, as a type that serde can deserialize.
    pub fn get<T: DeserializeOwned>(&self, collection: &str, key: impl DbValue) -> Result<Option<T>, DatabaseError> {
        self.document(collection, key)?.map(|document| document.json()).transpose()
    }

    /// A document by its key, in its stored form. `None` too if the value is not a key of the collection's type.
    pub fn document(&self, collection: &str, key: impl DbValue) -> Result<Option<Document<'_>>, DatabaseError> {
        let collection = collection_of(self.database, collection)?;
        let kind = self.database.inner.docs.collection_at(collection).info.key.kind;
        let Some(key) = kind.of_scalar(key.scalar()) else { return Ok(None) };
        Ok(self.moment.get(collection, &key)?.map(Document))
    }

    /// The rows of a query, as a type that serde can deserialize: a struct with a field for each column.
    pub fn query<T: DeserializeOwned>(&self, sql: &str, parameters: impl Parameters) -> Result<Vec<T>, DatabaseError> {
        self.run(sql, parameters, Wanted::All, |_, rows| Ok(serde_json::from_slice(rows)?))
    }

    /// The first row of a query.
    pub fn row<T: DeserializeOwned>(&self, sql: &str, parameters: impl Parameters) -> Result<Option<T>, DatabaseError> {
        self.run(sql, parameters, Wanted::First, |count, row| match count {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_slice(row)?)),
        })
    }

    /// The rows of a query as the text of a JSON array of objects.
    pub fn json(&self, sql: &str, parameters: impl Parameters) -> Result<Vec<u8>, DatabaseError> {
        self.run(sql, parameters, Wanted::All, |_, rows| Ok(rows.to_vec()))
    }

    /// The row of a declared view with these values in its GROUP BY columns, in the order of GROUP BY; `None` if there is no such group.
    /// The view is as new as the snapshot.
    ///
    /// ```
    /// # use sapsan::{DatabaseError, Snapshot};
    /// # #[derive(serde::Deserialize)]
    /// # struct Failures { count: u32 }
    /// # fn of(now: &Snapshot<'_>) -> Result<(), DatabaseError> {
    /// let failures: Option<Failures> = now.view_row("failures_by_address", ("192.0.2.7",))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn view_row<T: DeserializeOwned>(
        &self,
        view: &str,
        group: impl Parameters,
    ) -> Result<Option<T>, DatabaseError> {
        let view = view_of(self.database, view)?;
        let mut row = self.reading.rows.borrow_mut();
        row.clear();
        let append = |values: &[Value<'_>]| Ok(self.moment.view_row(view.id, values, &mut row)?);
        let is_there = group.with(view.group()?, append)?;
        Ok(if is_there { Some(serde_json::from_slice(&row)?) } else { None })
    }

    /// The number of the newest change in the snapshot.
    pub fn version(&self) -> u64 {
        self.moment.version()
    }

    /// The snapshot of crate `docs`.
    pub fn moment(&self) -> &Moment<'_> {
        &self.moment
    }

    fn run<R>(
        &self,
        sql: &str,
        parameters: impl Parameters,
        wanted: Wanted,
        read: impl FnOnce(u64, &[u8]) -> Result<R, DatabaseError>,
    ) -> Result<R, DatabaseError> {
        let query = self.reading.query(self.database, sql)?;
        let (mut scratch, mut rows) = (self.reading.scratch.borrow_mut(), self.reading.rows.borrow_mut());
        rows.clear();
        let is_over = self.bounds.is_over();
        let budget = budget(self.bounds.rows_max, &is_over);
        let view = self.moment.view();
        let outcome = run_query(&query, &parameters, |values| match wanted {
            Wanted::All => query.write_array(view, values, &mut scratch, &budget, &mut rows),
            Wanted::First => query.write_row(view, values, &mut scratch, &budget, &mut rows),
        })?;
        let result = read(outcome.rows, &rows);
        if rows.capacity() > KEPT_BYTES_MAX {
            *rows = Vec::new();
        }
        result
    }
}

/// Which rows of a query the caller needs.
#[derive(Clone, Copy)]
pub(crate) enum Wanted {
    All,
    First,
}

/// A stored document.
pub struct Document<'d>(pub(crate) Stored<'d>);

impl Document<'_> {
    /// Its JSON text, minified.
    pub fn text(&self) -> Result<&[u8], DatabaseError> {
        Ok(self.0.text()?)
    }

    /// The document as a type that serde can deserialize; it may borrow text from the document.
    pub fn json<'d, T: serde::Deserialize<'d>>(&'d self) -> Result<T, DatabaseError> {
        Ok(serde_json::from_slice(self.text()?)?)
    }

    /// The number of its last change, which serves as its version: a write with [`docs::Precondition::Matches`] does not overwrite
    /// another one.
    pub fn change_number(&self) -> Result<u64, DatabaseError> {
        Ok(self.0.change_number()?)
    }
}

pub(super) fn collection_of(database: &Database, name: &str) -> Result<CollectionId, DatabaseError> {
    let found = database.inner.docs.collection(name);
    found.ok_or_else(|| DatabaseError::Usage(format!("the database has no collection {name}")))
}

pub(super) fn query_of(database: &Database, sql: &str) -> Result<Arc<PreparedQuery>, DatabaseError> {
    Ok(database.inner.statements.query(sql, database.inner.docs.catalog())?)
}

/// A declared view, for reads by the values of its GROUP BY columns.
pub(crate) struct DeclaredView {
    name: String,
    pub(super) id: ViewId,
    /// These columns, in the order of GROUP BY; `None` if their values do not identify a row.
    group: Option<Vec<String>>,
}

impl DeclaredView {
    pub(super) fn new(docs: &docs::DocumentDatabase, view: &CollectionInfo) -> Option<DeclaredView> {
        Some(DeclaredView { name: view.name.clone(), id: docs.view(&view.name)?, group: view.identity.clone() })
    }

    /// The GROUP BY columns.
    pub(super) fn group(&self) -> Result<&[String], DatabaseError> {
        let why = || format!("the GROUP BY values of the view {} do not identify a row", self.name);
        self.group.as_deref().ok_or_else(|| DatabaseError::Usage(why()))
    }
}

pub(super) fn view_of<'d>(database: &'d Database, name: &str) -> Result<&'d DeclaredView, DatabaseError> {
    let found = database.inner.views.iter().find(|view| view.name == name);
    found.ok_or_else(|| DatabaseError::Usage(format!("the database has no view {name}")))
}

pub(super) fn budget<'b>(rows_max: u64, is_over: &'b (dyn Fn() -> bool + Sync)) -> Budget<'b> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Budget {
        rows_max,
        output_bytes_max: QUERY_BYTES_MAX,
        memory_bytes_max: QUERY_BYTES_MAX,
        spill: None,
        deadline: Some(is_over),
        now_ms: i64::try_from(now_ms).unwrap_or(i64::MAX),
    }
}

/// Checks a query's parameters and runs it.
pub(super) fn run_query<R>(
    query: &PreparedQuery,
    parameters: &impl Parameters,
    run: impl FnOnce(&[Value<'_>]) -> Result<R, QueryError>,
) -> Result<R, DatabaseError> {
    parameters.with(query.parameters(), |values| Ok(run(values)?))
}
