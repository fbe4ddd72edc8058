//! Transactions as Rust closures.

use super::Database;
use super::failure::DatabaseError;
use super::parameters::{DbValue, Parameters};
use super::reading::{Bounds, TIME_MAX_WHILE_OTHERS_WAIT, Wanted, budget, collection_of, query_of, run_query, view_of};
use docs::sql::{QueryError, Scratch, Value};
use docs::{Applied, CollectionId, Op, Precondition, ViewId, Write, WriteError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bounds of a query inside a transaction. If the transaction has to run again, all commits wait for it.
const BOUNDS: Bounds = Bounds { rows_max: 20_000, time_max: Some(TIME_MAX_WHILE_OTHERS_WAIT) };

/// Initial capacity for the text of a view's row, in bytes.
const ROW_BYTES: usize = 256;

/// The same for the text of a document that is written.
const BODY_BYTES: usize = 512;

/// A running transaction. Reads see its own writes; the commit checks that what was read has not changed.
pub struct Transaction<'t> {
    database: &'t Database,
    inner: &'t mut dyn Inside,
}

/// A transaction of crate `docs`, without its lifetimes.
trait Inside {
    /// The document's JSON text, and its change number.
    fn text(&mut self, collection: CollectionId, key: &dyn DbValue) -> Result<Option<(Vec<u8>, u64)>, DatabaseError>;
    fn write(&mut self, write: &Write) -> Result<Applied, WriteError>;
    fn with_view(&mut self, look: &mut dyn FnMut(&dyn docs::engine::ReadView));
    fn view_row(&mut self, view: ViewId, group: &[Value<'_>], row: &mut Vec<u8>) -> Result<bool, QueryError>;
}

impl Inside for docs::DocumentTransaction<'_, '_> {
    fn text(&mut self, collection: CollectionId, key: &dyn DbValue) -> Result<Option<(Vec<u8>, u64)>, DatabaseError> {
        let kind = self.database().collection_at(collection).info.key.kind;
        let Some(key) = kind.of_scalar(key.scalar()) else { return Ok(None) };
        match self.get(collection, &key)? {
            Some(stored) => Ok(Some((stored.text()?.to_vec(), stored.change_number()?))),
            None => Ok(None),
        }
    }

    fn write(&mut self, write: &Write) -> Result<Applied, WriteError> {
        docs::DocumentTransaction::write(self, write)
    }

    fn with_view(&mut self, look: &mut dyn FnMut(&dyn docs::engine::ReadView)) {
        look(&self.view());
    }

    fn view_row(&mut self, view: ViewId, group: &[Value<'_>], row: &mut Vec<u8>) -> Result<bool, QueryError> {
        docs::DocumentTransaction::view_row(self, view, group, row)
    }
}

/// The error of a transaction's closure; crate `docs` converts its own errors into it.
pub(crate) struct Ended<E>(E);

impl<E> Ended<E> {
    pub(crate) fn into_inner(self) -> E {
        self.0
    }
}

impl<E: From<DatabaseError>> From<WriteError> for Ended<E> {
    fn from(error: WriteError) -> Self {
        Ended(DatabaseError::Write(error).into())
    }
}

/// Calls a closure inside a transaction of crate `docs`.
pub(crate) fn run<T, E>(
    database: &Database,
    inner: &mut docs::DocumentTransaction<'_, '_>,
    run: &mut dyn FnMut(&mut Transaction<'_>) -> Result<T, E>,
) -> Result<T, Ended<E>> {
    run(&mut Transaction { database, inner }).map_err(Ended)
}

/// A document's JSON text.
fn body_of(document: &(impl Serialize + ?Sized)) -> Result<Vec<u8>, DatabaseError> {
    let mut body = Vec::with_capacity(BODY_BYTES);
    serde_json::to_writer(&mut body, document)?;
    Ok(body)
}

impl Transaction<'_> {
    /// A document by its key.
    pub fn get<T: DeserializeOwned>(
        &mut self,
        collection: &str,
        key: impl DbValue,
    ) -> Result<Option<T>, DatabaseError> {
        Ok(self.get_numbered(collection, key)?.map(|(document, _)| document))
    }

    /// A document by its key, with the number of its last change: 0 if this transaction has written it.
    pub fn get_numbered<T: DeserializeOwned>(
        &mut self,
        collection: &str,
        key: impl DbValue,
    ) -> Result<Option<(T, u64)>, DatabaseError> {
        let collection = collection_of(self.database, collection)?;
        match self.inner.text(collection, &key)? {
            Some((text, number)) => Ok(Some((serde_json::from_slice(&text)?, number))),
            None => Ok(None),
        }
    }

    /// The rows of a query over the transaction's state. It may scan 20,000 rows. A view that the transaction's
    /// writes have changed cannot be read: read it before them.
    pub fn query<T: DeserializeOwned>(
        &mut self,
        sql: &str,
        parameters: impl Parameters,
    ) -> Result<Vec<T>, DatabaseError> {
        let (_, rows) = self.run(sql, &parameters, Wanted::All)?;
        Ok(serde_json::from_slice(&rows)?)
    }

    /// The first row of a query.
    pub fn row<T: DeserializeOwned>(
        &mut self,
        sql: &str,
        parameters: impl Parameters,
    ) -> Result<Option<T>, DatabaseError> {
        match self.run(sql, &parameters, Wanted::First)? {
            (0, _) => Ok(None),
            (_, row) => Ok(Some(serde_json::from_slice(&row)?)),
        }
    }

    /// The row of a declared view: see [`crate::Snapshot::view_row`].
    pub fn view_row<T: DeserializeOwned>(
        &mut self,
        view: &str,
        group: impl Parameters,
    ) -> Result<Option<T>, DatabaseError> {
        let view = view_of(self.database, view)?;
        let mut row = Vec::with_capacity(ROW_BYTES);
        let append = |values: &[Value<'_>]| Ok(self.inner.view_row(view.id, values, &mut row)?);
        let is_there = group.with(view.group()?, append)?;
        Ok(if is_there { Some(serde_json::from_slice(&row)?) } else { None })
    }

    /// Stores a new document. Its key is in the document, unless the collection generates keys. Returns the key.
    pub fn insert<K: DeserializeOwned>(
        &mut self,
        collection: &str,
        document: &(impl Serialize + ?Sized),
    ) -> Result<K, DatabaseError> {
        let body = body_of(document)?;
        let applied = self.apply(collection, Precondition::None, |_| Ok(Op::Insert { body }))?;
        self.key_of(collection, &applied)
    }

    /// Stores a document under a key, new or in place of an old one. Returns whether it is new.
    pub fn put(
        &mut self,
        collection: &str,
        key: impl DbValue,
        document: &(impl Serialize + ?Sized),
    ) -> Result<bool, DatabaseError> {
        let body = body_of(document)?;
        let put = |key| Ok(Op::Put { key, body });
        Ok(self.apply_to(collection, key, Precondition::None, put)?.created)
    }

    /// Replaces an existing document; if there is none, [`WriteError::NotFound`].
    pub fn replace(
        &mut self,
        collection: &str,
        key: impl DbValue,
        document: &(impl Serialize + ?Sized),
    ) -> Result<(), DatabaseError> {
        let body = body_of(document)?;
        self.apply_to(collection, key, Precondition::None, |key| Ok(Op::Replace { key, body })).map(drop)
    }

    /// Changes fields of an existing document by a merge patch (RFC 7396).
    pub fn update(
        &mut self,
        collection: &str,
        key: impl DbValue,
        patch: &(impl Serialize + ?Sized),
    ) -> Result<(), DatabaseError> {
        let patch = serde_json::to_vec(patch)?;
        self.apply_to(collection, key, Precondition::None, |key| Ok(Op::Update { key, patch })).map(drop)
    }

    /// Deletes an existing document.
    pub fn delete(&mut self, collection: &str, key: impl DbValue) -> Result<(), DatabaseError> {
        self.apply_to(collection, key, Precondition::None, |key| Ok(Op::Delete { key })).map(drop)
    }

    /// One write of crate `docs`, with a precondition.
    pub fn write(&mut self, collection: &str, op: Op, precondition: Precondition) -> Result<Applied, DatabaseError> {
        self.apply(collection, precondition, |_| Ok(op))
    }

    fn apply_to(
        &mut self,
        collection: &str,
        key: impl DbValue,
        precondition: Precondition,
        op: impl FnOnce(Vec<u8>) -> Result<Op, DatabaseError>,
    ) -> Result<Applied, DatabaseError> {
        let database = self.database;
        self.apply(collection, precondition, |id| {
            let kind = database.inner.docs.collection_at(id).info.key.kind;
            let Some(key) = kind.of_scalar(key.scalar()) else {
                let why = format!("a key of {collection} is {}", kind.name());
                return Err(WriteError::Invalid { why, pointer: String::new() }.into());
            };
            op(key.as_bytes().to_vec())
        })
    }

    fn apply(
        &mut self,
        collection: &str,
        precondition: Precondition,
        op: impl FnOnce(CollectionId) -> Result<Op, DatabaseError>,
    ) -> Result<Applied, DatabaseError> {
        let collection = collection_of(self.database, collection)?;
        let write = Write { collection, op: op(collection)?, precondition };
        Ok(self.inner.write(&write)?)
    }

    fn key_of<K: DeserializeOwned>(&self, collection: &str, applied: &Applied) -> Result<K, DatabaseError> {
        let id = collection_of(self.database, collection)?;
        let kind = self.database.inner.docs.collection_at(id).info.key.kind;
        let key = kind.of_bytes(&applied.key).map(|key| match key.scalar() {
            docs::order::Scalar::Text(text) => serde_json::Value::from(text),
            docs::order::Scalar::Integer(integer) => serde_json::Value::from(integer),
            docs::order::Scalar::Null | docs::order::Scalar::Real(_) => serde_json::Value::Null,
        });
        Ok(serde_json::from_value(key.unwrap_or_default())?)
    }

    fn run(
        &mut self,
        sql: &str,
        parameters: &impl Parameters,
        wanted: Wanted,
    ) -> Result<(u64, Vec<u8>), DatabaseError> {
        let query = query_of(self.database, sql)?;
        let is_over = BOUNDS.is_over();
        let (mut rows, budget) = (Vec::new(), budget(BOUNDS.rows_max, &is_over));
        let outcome = run_query(&query, parameters, |values| {
            let mut scratch = Scratch::new();
            let mut outcome = None;
            self.inner.with_view(&mut |view| {
                outcome = Some(match wanted {
                    Wanted::All => query.write_array(view, values, &mut scratch, &budget, &mut rows),
                    Wanted::First => query.write_row(view, values, &mut scratch, &budget, &mut rows),
                });
            });
            outcome.unwrap_or(Ok(docs::sql::ExecutionCounts::default()))
        })?;
        Ok((outcome.rows, rows))
    }
}
