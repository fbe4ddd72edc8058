//! Reads: documents by key, rows of queries, of one moment.

use super::Database;
use super::failure::DatabaseError;
use super::parameters::{DbValue, Parameters};
use docs::catalog::CollectionInfo;
use docs::sql::{Budget, Query, QueryError, Scratch, Value};
use docs::{CollectionId, Moment, Session, Stored};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Bytes of a buffer that is kept between two reads.
const KEPT_BYTES_MAX: usize = 64 << 10;
/// Statements that a thread keeps for itself, and their longest.
const PREPARED_MAX: usize = 256;
const PREPARED_BYTES_MAX: usize = 4 << 10;
/// Bytes that a query may make, and as many that it may keep while it sorts and groups.
const QUERY_BYTES_MAX: usize = 64 << 20;

/// What one query may take.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// Rows that it may look at.
    pub(crate) rows_max: u64,
    /// Its time; without one it may take any.
    pub(crate) time_max: Option<Duration>,
}

/// How long a query may take on an event loop, or inside a transaction: all other connections, or commits, wait meanwhile.
pub(crate) const TIME_MAX_WHILE_OTHERS_WAIT: Duration = Duration::from_millis(50);

impl Bounds {
    /// Begins its time, and gives what tells whether that is over.
    pub(crate) fn is_over(self) -> impl Fn() -> bool + Sync {
        let until = self.time_max.map(|most| Instant::now() + most);
        move || until.is_some_and(|until| Instant::now() >= until)
    }
}

/// One thread's way into the database: its reader, and memory that reads use again.
pub(crate) struct Reading {
    pub(crate) session: Session,
    scratch: RefCell<Scratch>,
    rows: RefCell<Vec<u8>>,
    /// Statements that this thread has run: the shared ones are behind a lock.
    prepared: RefCell<HashMap<Box<str>, Arc<Query>>>,
}

impl Reading {
    pub(crate) fn new(docs: &docs::Database) -> Result<Reading, store::Error> {
        let (scratch, rows, prepared) = Default::default();
        Ok(Reading { session: docs.session()?, scratch, rows, prepared })
    }

    /// A statement's query.
    fn query(&self, database: &Database, sql: &str) -> Result<Arc<Query>, DatabaseError> {
        let mut prepared = self.prepared.borrow_mut();
        if let Some(query) = prepared.get(sql) {
            return Ok(Arc::clone(query));
        }
        let query = query_of(database, sql)?;
        // Programs that make texts of values would fill it for ever.
        if prepared.len() < PREPARED_MAX && sql.len() <= PREPARED_BYTES_MAX {
            prepared.insert(sql.into(), Arc::clone(&query));
        }
        Ok(query)
    }

    /// Reads what `read` asks for of the newest state.
    pub(crate) fn read<T, E: From<DatabaseError>>(
        &self,
        database: &Database,
        bounds: Bounds,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let snapshot = Snapshot { moment: self.session.now(), reading: self, database, bounds };
        let outcome = read(&snapshot)?;
        // What was read of a page that a failing disk has lost is no result.
        snapshot.moment.check_indexes().map_err(DatabaseError::from)?;
        Ok(outcome)
    }
}

/// The database as of one moment. Holds back the reuse of memory while it lives, so it is short-lived.
pub struct Snapshot<'s> {
    moment: Moment<'s>,
    reading: &'s Reading,
    database: &'s Database,
    bounds: Bounds,
}

impl Snapshot<'_> {
    /// A document by its key, as a type that serde knows.
    pub fn get<T: DeserializeOwned>(&self, collection: &str, key: impl DbValue) -> Result<Option<T>, DatabaseError> {
        self.document(collection, key)?.map(|document| document.json()).transpose()
    }

    /// A document by its key, as it is stored. A value that is no key of the collection names none.
    pub fn document(&self, collection: &str, key: impl DbValue) -> Result<Option<Document<'_>>, DatabaseError> {
        let collection = collection_of(self.database, collection)?;
        let kind = self.database.inner.docs.collection_at(collection).info.key.kind;
        let Some(key) = kind.of_scalar(key.scalar()) else { return Ok(None) };
        Ok(self.moment.get(collection, &key)?.map(Document))
    }

    /// The rows of a query, as a type that serde knows: a struct with a field for each column.
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

    /// The row of a declared view that has these values in the columns that it is grouped by, in the order of its GROUP BY; `None` where
    /// there is no such group. The view is as new as the snapshot.
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
        self.row(view_row(self.database, view)?, group)
    }

    /// The number of the newest change that it shows.
    pub fn version(&self) -> u64 {
        self.moment.version()
    }

    /// What it is made of.
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

/// Which rows of a query are wanted.
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

    /// The document as a type that serde knows; one that borrows text does so from the document.
    pub fn json<'d, T: serde::Deserialize<'d>>(&'d self) -> Result<T, DatabaseError> {
        Ok(serde_json::from_slice(self.text()?)?)
    }

    /// The number of its last change: its version, for a write that must not overwrite another one
    /// ([`docs::Precondition::Matches`]).
    pub fn change_number(&self) -> Result<u64, DatabaseError> {
        Ok(self.0.change_number()?)
    }
}

pub(crate) fn collection_of(database: &Database, name: &str) -> Result<CollectionId, DatabaseError> {
    let found = database.inner.docs.collection(name);
    found.ok_or_else(|| DatabaseError::Usage(format!("the database has no collection {name}")))
}

pub(crate) fn query_of(database: &Database, sql: &str) -> Result<Arc<Query>, DatabaseError> {
    Ok(database.inner.statements.query(sql, database.inner.docs.catalog())?)
}

/// The statement that finds one row of a view.
pub(crate) fn view_row<'d>(database: &'d Database, view: &str) -> Result<&'d str, DatabaseError> {
    match database.inner.view_rows.iter().find(|(name, _)| name == view) {
        None => Err(DatabaseError::Usage(format!("the database has no view {view}"))),
        Some((_, None)) => {
            Err(DatabaseError::Usage(format!("rows of the view {view} are not told apart by what it is grouped by")))
        }
        Some((_, Some(sql))) => Ok(sql),
    }
}

/// The text of that statement. Its parameters stand in the order of GROUP BY.
pub(crate) fn row_of(view: &CollectionInfo) -> Option<String> {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let conditions = view.identity.as_ref()?.iter().enumerate();
    let conditions: Vec<String> = conditions.map(|(place, name)| format!("{} = :group{place}", quoted(name))).collect();
    let from = format!("SELECT * FROM {}", quoted(&view.name));
    Some(if conditions.is_empty() { from } else { format!("{from} WHERE {}", conditions.join(" AND ")) })
}

pub(crate) fn budget<'b>(rows_max: u64, is_over: &'b (dyn Fn() -> bool + Sync)) -> Budget<'b> {
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

/// A query's parameters, checked and run.
pub(crate) fn run_query<R>(
    query: &Query,
    parameters: &impl Parameters,
    run: impl FnOnce(&[Value<'_>]) -> Result<R, QueryError>,
) -> Result<R, DatabaseError> {
    parameters.with(query.parameters(), |values| Ok(run(values)?))
}
