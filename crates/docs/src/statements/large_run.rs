//! A statement that writes more than one transaction can hold, run in a large transaction ([`crate::engine::LargeTx`]).
//!
//! Its queries read one snapshot, and each document is written as soon as the source query finds it: the writes are not in
//! that snapshot. The collections that the queries read are claimed before the snapshot is taken, so they do not change until
//! the statement has ended. The checks of each write read through the transaction, which
//! claims what they read. So the statement takes effect at its commit as if it ran alone.

use std::collections::HashSet;

use bumpalo::Bump;

use super::applied::{ModifyError, ROWS_PER_WRITE, StatementCounts};
use super::document_write::{DocumentWrite, Returning};
use super::modification::{Modification, check, first_field, of_what_is_found};
use crate::catalog::Catalog;
use crate::engine::{LargeTx, ReadView, TreeId, WriteTransaction};
use crate::expire::AtWrite;
use crate::sql::{Action, Budget, FieldValue, QueryError, ROWS_KEPT, RowList, RowSink, Scratch, Value, as_key};
use crate::writes::Collection;

impl Modification {
    /// The trees of documents that its queries read. For UPDATE and DELETE, the target is among them.
    pub(crate) fn trees_read(&self, catalog: &Catalog) -> Vec<TreeId> {
        let mut trees = Vec::new();
        for query in self.queries() {
            query.each_collection(&mut |collection| trees.push(catalog.collections[collection].tree));
        }
        trees.sort_unstable();
        trees.dedup();
        trees
    }

    /// Runs it in a large transaction that has claimed [`Modification::trees_read`]. Its queries read `began`, a state taken
    /// after that.
    pub(crate) fn apply_large(
        &self,
        collection: &Collection,
        tx: &mut LargeTx,
        began: &dyn ReadView,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        returned: &mut RowList,
    ) -> Result<StatementCounts, ModifyError> {
        returned.clear();
        let (keys, mut scratch) = (Bump::new(), Scratch::new());
        let with_key = parameters.iter().copied().chain([Value::Null]).collect();
        let (returning, done) = (self.returned(), StatementCounts::default());
        let returning = Returning { returning, parameters: with_key, keys: &keys, budget, returned, done };
        let (at, row_bytes_max) = (collection.at_moment(budget.now_ms), tx.bytes_max());
        let mut rows = Rows {
            statement: self,
            collection,
            parameters,
            tx,
            at: &at,
            source: 0,
            returning,
            scratch: Scratch::new(),
            row: RowList::default(),
            unchanged: UnchangedKeys::default(),
            failure: None,
        };
        for (number, source) in self.changing.sources.iter().enumerate() {
            rows.source = number;
            let known = &parameters[..source.parameters().len()];
            let rows_max = budget.rows_max.saturating_sub(rows.returning.done.rows_read);
            let left = Budget { rows_max, output_bytes_max: row_bytes_max, ..*budget };
            let read = source.execute(began, known, &mut scratch, &left, &mut rows);
            if let Some(failure) = rows.failure.take() {
                return Err(failure);
            }
            let rows_read = read.map_err(of_what_is_found)?.rows_read;
            rows.returning.done.rows_read += rows_read;
            rows.returning.done.looked_at += rows_read;
        }
        Ok(rows.returning.done)
    }
}

/// Receives the rows of a statement's source queries and writes their documents.
struct Rows<'w> {
    statement: &'w Modification,
    collection: &'w Collection,
    parameters: &'w [Value<'w>],
    tx: &'w mut LargeTx,
    at: &'w AtWrite,
    /// The number of the query whose rows come.
    source: usize,
    returning: Returning<'w>,
    scratch: Scratch,
    row: RowList,
    unchanged: UnchangedKeys,
    failure: Option<ModifyError>,
}

/// Keys of documents whose write changed nothing, so that the transaction does not know them. Bound: the memory of a query.
#[derive(Default)]
struct UnchangedKeys {
    keys: HashSet<Vec<u8>>,
    bytes: usize,
}

impl UnchangedKeys {
    fn add(&mut self, key: Vec<u8>, budget: &Budget<'_>) -> Result<(), QueryError> {
        let limit = budget.memory_bytes_max;
        self.bytes += key.len() + size_of::<Vec<u8>>();
        if self.bytes > limit {
            return Err(QueryError::Limit { what: ROWS_KEPT, limit: limit as u64 });
        }
        self.keys.insert(key);
        Ok(())
    }
}

impl Rows<'_> {
    fn write(&mut self) -> Result<(), ModifyError> {
        let (changing, row) = (&self.statement.changing, self.row.row(0));
        let joined = if changing.joined && changing.action != Action::Insert { Some(self.key_of(row)?) } else { None };
        if joined.as_ref().is_some_and(|key| self.is_written(key)) {
            return Err(QueryError::Value("a document is found by more than one row of FROM").into());
        }
        let mut one = DocumentWrite {
            changing,
            parameters: self.parameters,
            collection: self.collection,
            change: &mut *self.tx,
            forms: changing.forms.get(self.source).map_or(&[][..], |forms| forms),
            names: &self.statement.names,
            at: self.at,
        };
        let is_written = one.write(row, &mut self.returning, &mut self.scratch)?;
        self.tx.check()?;
        if let Some(key) = joined.filter(|key| !self.tx.has_changed(self.collection.info.tree, key)) {
            self.unchanged.add(key, self.returning.budget)?;
        }
        self.returning.done.documents += u64::from(is_written);
        self.returning.done.rows_read += ROWS_PER_WRITE;
        Ok(check(self.returning.done.rows_read, self.returning.budget)?)
    }

    /// The stored key of a row's document: the row's first field.
    fn key_of(&self, row: &[u8]) -> Result<Vec<u8>, QueryError> {
        let (arena, mut first) = (Bump::new(), first_field(row));
        let key = crate::sql::take_field(&mut first).decode_kept(&arena)?;
        let key = as_key(key, self.collection.info.key.kind).ok_or(QueryError::Damaged("a key"))?;
        Ok(key.as_bytes().to_vec())
    }

    /// Whether the statement has written this document.
    fn is_written(&self, key: &[u8]) -> bool {
        self.tx.has_changed(self.collection.info.tree, key) || self.unchanged.keys.contains(key)
    }
}

impl RowSink for Rows<'_> {
    fn begin_row(&mut self) {
        self.row.clear();
    }
    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        self.row.field(column, field);
    }
    fn end_row(&mut self) {
        self.row.end_row();
        if self.failure.is_none() {
            self.failure = self.write().err();
        }
    }
    fn bytes(&self) -> usize {
        0
    }
    fn is_wanted(&self) -> bool {
        self.failure.is_none()
    }
}
