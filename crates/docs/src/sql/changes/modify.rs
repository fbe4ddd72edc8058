//! INSERT, UPDATE and DELETE, run in one transaction with the checks of every write (`crate::writes::write`).
//!
//! First all documents and new values are read and kept. Then they are written one by one, and RETURNING runs after each write
//! (before it for DELETE). The first rejected write ends the transaction, and the statement has no effect. Assigning NULL
//! removes the field: a missing field and NULL are the same, and most schemas allow only a missing one.

use std::fmt;
use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::HashSet;
use sqlparser::ast::Statement;

use crate::catalog::{Catalog, FieldKind};
use crate::encoding::Key;
use crate::engine::{self, Change, STAMP_BYTES, View, Within};
use crate::error::WriteError;
use crate::expire::AtWrite;
use crate::sql::execution::Scratch;
use crate::sql::expressions::row::as_key;
use crate::sql::limits::{Budget, Meter, QueryError, RESULT, ROWS_READ, SqlError, TO_WRITE};
use crate::sql::prepared::{Compared, Query};
use crate::sql::resolve::changes::{Action, Changing, Form, Given, OnConflict};
use crate::sql::resolve::{self, AS_JSON, EXCLUDED};
use crate::sql::rows::sink::write_field;
use crate::sql::rows::{JsonRows, NoRows, RowSink};
use crate::sql::syntax::parse;
use crate::sql::values::value::of_json;
use crate::sql::values::{Field, OwnedValue, Value, Workspace, json, sort};
use crate::writes::{Collection, InTheWay, LongCheck, Op, Precondition, scratch, write};

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub struct Modification {
    pub(super) changing: Changing,
    pub(super) sources: Vec<Query>,
    returning: Option<Query>,
    upsert: Option<Upsert>,
    parameters: Vec<String>,
}

/// DO UPDATE, prepared.
#[derive(Debug)]
pub(super) struct Upsert {
    fields: Vec<String>,
    /// The same names, quoted.
    names: Vec<Vec<u8>>,
    values: Vec<Given>,
    query: Query,
}

/// A written document counts as this many rows read: about as much work.
const ROWS_PER_WRITE: u64 = 16;

/// The counts of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Applied {
    /// Documents inserted, changed or deleted.
    pub(crate) documents: u64,
    /// Rows read, where each written document counts as [`ROWS_PER_WRITE`].
    pub(crate) rows_read: u64,
    /// Rows read, without the written documents.
    pub(crate) looked_at: u64,
}

impl Applied {
    /// Runs one of the statement's queries within the remaining row budget.
    fn execute(
        &mut self,
        (query, view): (&Query, &dyn View),
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        rows: &mut KeptRows,
    ) -> Result<(), QueryError> {
        let left = Budget { rows_max: budget.rows_max.saturating_sub(self.rows_read), ..*budget };
        let looked_at = match query.execute(view, parameters, scratch, &left, rows) {
            Ok(outcome) => outcome.rows_read,
            // The reported limit is the statement's, not the remainder.
            Err(QueryError::Limit { what: ROWS_READ, .. }) => {
                return Err(QueryError::Limit { what: ROWS_READ, limit: budget.rows_max });
            }
            Err(error) => return Err(error),
        };
        self.rows_read += looked_at;
        self.looked_at += looked_at;
        Ok(())
    }
}

/// Why a statement had no effect.
#[derive(Debug)]
#[non_exhaustive]
pub enum ModifyError {
    /// Computing the writes failed.
    Query(QueryError),
    /// A write was rejected, or the transaction failed.
    Write(WriteError),
}

impl From<QueryError> for ModifyError {
    fn from(error: QueryError) -> Self {
        ModifyError::Query(error)
    }
}

impl From<WriteError> for ModifyError {
    fn from(error: WriteError) -> Self {
        ModifyError::Write(error)
    }
}

impl From<engine::Error> for ModifyError {
    fn from(error: engine::Error) -> Self {
        ModifyError::Write(error.into())
    }
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModifyError::Query(error) => error.fmt(f),
            ModifyError::Write(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ModifyError {}

/// Rows kept one after the other.
#[derive(Default)]
pub(crate) struct KeptRows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl RowSink for KeptRows {
    fn begin_row(&mut self) {}
    fn field(&mut self, _column: usize, field: Field<'_>) {
        sort::push_field(field, &mut self.bytes);
    }
    fn end_row(&mut self) {
        self.ends.push(self.bytes.len());
    }
    fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<usize>()
    }
}

impl KeptRows {
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }

    pub(crate) fn count(&self) -> usize {
        self.ends.len()
    }

    /// The first `columns` columns of the first row; NULL for those that `is_wanted` excludes.
    pub(crate) fn first(
        &self,
        columns: usize,
        is_wanted: impl Fn(usize) -> bool,
        workspace: Workspace<'_>,
    ) -> Result<Option<Vec<OwnedValue>>, QueryError> {
        let Some(mut row) = self.rows().next() else { return Ok(None) };
        let values = (0..columns).map(|column| match sort::take_field(&mut row) {
            _ if !is_wanted(column) => Ok(OwnedValue::Null),
            Field::Value(value) => Ok(OwnedValue::new(&value)),
            Field::Json(json) => Ok(OwnedValue::new(&of_json(json, workspace)?)),
        });
        values.collect::<Result<_, QueryError>>().map(Some)
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Passes the rows, each of `columns` columns, to a sink.
    pub(crate) fn give(&self, columns: usize, sink: &mut dyn RowSink) {
        KeptRows::give_of(self.rows(), columns, sink);
    }

    /// The same for the given rows.
    pub(crate) fn give_of<'r>(rows: impl Iterator<Item = &'r [u8]>, columns: usize, sink: &mut dyn RowSink) {
        for mut row in rows {
            sink.begin_row();
            (0..columns).for_each(|column| sink.field(column, sort::take_field(&mut row)));
            sink.end_row();
        }
    }
}

impl Modification {
    /// Estimate of its bytes in memory, without its plans.
    pub(crate) fn bytes(&self) -> usize {
        let upsert = self.upsert.iter().map(|upsert| &upsert.query);
        let prepared = self.sources.iter().chain(&self.returning).chain(upsert).map(Query::bytes);
        let names = self.changing.fields.iter().chain(&self.parameters);
        let names: usize = names.map(|name| 2 * (size_of::<String>() + name.len())).sum();
        size_of::<Modification>() + prepared.sum::<usize>() + names
    }

    /// Whether a text is an INSERT, UPDATE or DELETE, by its syntax.
    pub fn is_one(sql: &str) -> Result<bool, SqlError> {
        let (statement, _) = parse::statement(sql)?;
        Ok(matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)))
    }

    /// Prepares a statement against a catalog.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<Modification, SqlError> {
        let (statement, _) = parse::statement(sql)?;
        let mut changing = resolve::changes::resolve(&statement, catalog)?;
        let parameters = match &changing.returning {
            Some(returning) => returning.parameters[..returning.parameters.len() - 1].to_vec(),
            None => changing.parameters(),
        };
        let sources = std::mem::take(&mut changing.sources);
        let sources = sources.into_iter().map(|source| Query::of(source, catalog.clone())).collect();
        let returning = changing.returning.take().map(|returning| Query::of(returning, catalog.clone()));
        let upsert = changing.upsert.take().map(|upsert| Upsert {
            names: upsert.fields.iter().map(|name| quoted(name)).collect(),
            fields: upsert.fields,
            values: upsert.values,
            query: Query::of(upsert.query, catalog.clone()),
        });
        Ok(Modification { changing, sources, returning, upsert, parameters })
    }

    /// The names of the parameters, by slot.
    pub fn parameters(&self) -> &[String] {
        &self.parameters
    }

    /// Which fields a parameter is compared with or assigned to.
    pub fn compared(&self, name: &str) -> Compared {
        let Some(slot) = self.parameters.iter().position(|known| known == name) else { return Compared::default() };
        // For UPDATE and DELETE the first column is the document's key.
        let keys = usize::from(self.changing.action != Action::Insert);
        let field = |column: usize| self.changing.fields.get(column.checked_sub(keys)?);
        let sources = self.sources.iter().map(|source| {
            source.compared_or_given(slot, |column| {
                field(column).map_or(FieldKind::Any, |field| source.kind_of(self.changing.collection, field))
            })
        });
        let returning = self.returning.iter().map(|returning| returning.compared_or_given(slot, |_| FieldKind::Any));
        let upsert = self.upsert.iter().filter_map(|upsert| {
            let of = |column: usize| match upsert.fields.get(column) {
                Some(field) => upsert.query.kind_of(self.changing.collection, field),
                None => FieldKind::Any,
            };
            Some(upsert.query.compared_or_given(upsert.query.slot(name)?, of))
        });
        sources.chain(returning).chain(upsert).fold(Compared::default(), Compared::and)
    }

    /// The access path to its documents in one line of ASCII, and whether it scans a whole collection.
    pub fn plan_line(&self, parameters: &[Value<'_>]) -> (String, bool) {
        let mut lines: Vec<Arc<str>> = Vec::new();
        let mut scans = false;
        // VALUES read no table.
        for source in self.sources.iter().filter(|source| source.reads_any()) {
            let (line, scans_too) = source.plan_line(&parameters[..source.parameters().len()]);
            scans |= scans_too;
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        (lines.join("; "), scans)
    }

    /// Whether it scans a whole collection.
    pub(crate) fn scans(&self, parameters: &[Value<'_>]) -> bool {
        let mut sources = self.sources.iter().filter(|source| source.reads_any());
        sources.any(|source| source.plan_line(&parameters[..source.parameters().len()]).1)
    }

    /// The query of RETURNING.
    pub(super) fn returned(&self) -> Option<&Query> {
        self.returning.as_ref()
    }

    /// The names of the columns of RETURNING; none without it.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.returning.iter().flat_map(Query::columns)
    }

    /// A sink that appends the rows of RETURNING as JSON objects, with a byte between them; `None` without RETURNING.
    pub fn json_rows<'o>(&'o self, out: &'o mut Vec<u8>, separator: u8) -> Option<JsonRows<'o>> {
        self.returning.as_ref().map(|returning| returning.json_rows(out, separator))
    }

    /// Whether it may run in a large transaction, by its form: its effect on a document must not depend on other documents or
    /// on counters, and there is no RETURNING.
    pub(crate) fn may_be_large(&self) -> bool {
        let is_plain = self.returning.is_none() && self.upsert.is_none() && !self.changing.joined;
        is_plain && self.changing.on_conflict == OnConflict::Refuse && self.sources.len() == 1
    }

    /// Whether it is a DELETE of all documents of its collection, without RETURNING.
    pub(crate) fn is_whole(&self) -> bool {
        self.changing.is_whole && self.returning.is_none()
    }

    /// The number of documents that its source finds.
    pub(crate) fn count(
        &self,
        view: &impl View,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
    ) -> Result<u64, QueryError> {
        let source = &self.sources[0];
        let known = &parameters[..source.parameters().len()];
        Ok(source.execute(view, known, &mut Scratch::new(), budget, &mut NoRows)?.rows)
    }

    /// The kind of change.
    pub(crate) fn action(&self) -> Action {
        self.changing.action
    }

    /// The place in the catalog of the collection that it changes.
    pub(crate) fn collection(&self) -> usize {
        self.changing.collection
    }

    /// Runs it in a transaction. The rows of RETURNING are in `returned`.
    pub(crate) fn apply<C: Change>(
        &self,
        collection: &Collection,
        change: &mut C,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        returned: &mut KeptRows,
    ) -> Result<Applied, ModifyError> {
        let (expected, given) = (self.parameters.len(), parameters.len());
        if expected != given {
            return Err(QueryError::Parameters { expected, given }.into());
        }
        returned.clear();
        let mut scratch = Scratch::new();
        let keys = Bump::new();
        let with_key = parameters.iter().copied().chain([Value::Null]).collect();
        let (returning, done) = (self.returning.as_ref(), Applied::default());
        let mut tell = Tell { returning, parameters: with_key, keys: &keys, budget, returned, done };
        let names: Vec<Vec<u8>> = self.changing.fields.iter().map(|name| quoted(name)).collect();
        // Half of the memory: while these rows are collected, the sort that delivers them holds memory too.
        let kept_max = Budget { output_bytes_max: budget.memory_bytes_max / 2, ..*budget };
        let mut rows = KeptRows::default();
        // Where each source's rows end: VALUES has one source per row, and all are read before anything is written.
        let mut source_ends = Vec::new();
        for source in &self.sources {
            let view = Within::new(&mut *change);
            let known = &parameters[..source.parameters().len()];
            let found = tell.done.execute((source, &view), known, &mut scratch, &kept_max, &mut rows);
            found.map_err(of_what_is_found)?;
            source_ends.push(rows.count());
        }
        let (at, mut source) = (collection.at_moment(budget.now_ms), 0);
        let mut met: HashSet<&[u8]> = HashSet::new();
        for (number, row) in rows.rows().enumerate() {
            if self.changing.joined && !met.insert(first_field(row)) {
                return Err(QueryError::Value("a document is found by more than one row of FROM").into());
            }
            while source_ends.get(source).is_some_and(|end| *end <= number) {
                source += 1;
            }
            let forms = self.changing.forms.get(source).map_or(&[][..], |forms| forms);
            let (names, at) = (&names[..], &at);
            let (changing, upsert) = (&self.changing, self.upsert.as_ref());
            let mut one = One { changing, upsert, parameters, collection, change: &mut *change, forms, names, at };
            tell.done.documents += u64::from(one.write(row, &mut tell, &mut scratch)?);
            tell.done.rows_read += ROWS_PER_WRITE;
            check(tell.done.rows_read, tell.budget)?;
        }
        Ok(tell.done)
    }
}

/// The RETURNING of written documents.
pub(super) struct Tell<'t> {
    pub(super) returning: Option<&'t Query>,
    /// Parameters of the statement, and the key of a document.
    pub(super) parameters: Vec<Value<'t>>,
    /// Memory for the texts of keys.
    pub(super) keys: &'t Bump,
    pub(super) budget: &'t Budget<'t>,
    pub(super) returned: &'t mut KeptRows,
    /// The statement's counts so far: RETURNING and DO UPDATE read within the remaining rows.
    pub(super) done: Applied,
}

impl Tell<'_> {
    fn tell(&mut self, view: &dyn View, key: Value<'_>, scratch: &mut Scratch) -> Result<(), QueryError> {
        let (Some(returning), Some(last)) = (self.returning, self.parameters.last_mut()) else { return Ok(()) };
        *last = match key {
            Value::Text(text) => Value::Text(self.keys.alloc_slice_copy(text)),
            Value::Integer(integer) => Value::Integer(integer),
            Value::Null | Value::Real(_) => return Err(QueryError::Damaged("a key")),
        };
        self.done.execute((returning, view), &self.parameters, scratch, self.budget, self.returned)
    }
}

/// Renames the limit: the rows to write are no result.
fn of_what_is_found(error: QueryError) -> QueryError {
    match error {
        QueryError::Limit { what: RESULT, limit } => QueryError::Limit { what: TO_WRITE, limit },
        other => other,
    }
}

fn check(rows_read: u64, budget: &Budget<'_>) -> Result<(), QueryError> {
    if rows_read > budget.rows_max {
        return Err(QueryError::Limit { what: ROWS_READ, limit: budget.rows_max });
    }
    if budget.deadline.is_some_and(|over| over()) { Err(QueryError::Deadline) } else { Ok(()) }
}

/// The bytes of a row's first field.
fn first_field(row: &[u8]) -> &[u8] {
    let mut rest = row;
    sort::take_field(&mut rest);
    &row[..row.len() - rest.len()]
}

/// A field's name in the form in which documents store it.
pub(super) fn quoted(name: &str) -> Vec<u8> {
    let mut quoted = Vec::new();
    write_field(Field::Value(Value::text(name)), &mut quoted);
    quoted
}

/// The write of one document.
pub(super) struct One<'o, C> {
    pub(super) changing: &'o Changing,
    pub(super) upsert: Option<&'o Upsert>,
    /// Parameters of the statement.
    pub(super) parameters: &'o [Value<'o>],
    pub(super) collection: &'o Collection,
    pub(super) change: &'o mut C,
    pub(super) forms: &'o [Form],
    pub(super) at: &'o AtWrite,
    /// The names of `changing.fields`, quoted.
    pub(super) names: &'o [Vec<u8>],
}

impl<C: Change> One<'_, C> {
    /// Returns whether a document was written: a new one may be skipped.
    pub(super) fn write(
        &mut self,
        mut row: &[u8],
        tell: &mut Tell<'_>,
        scratch: &mut Scratch,
    ) -> Result<bool, ModifyError> {
        if self.changing.action == Action::Insert {
            let Some(prepared) = self.insert(&mut row, (tell.budget, &mut tell.done), scratch)? else {
                return Ok(false);
            };
            let kind = self.collection.info.key.kind;
            let key = kind.of_bytes(&prepared).ok_or(QueryError::Damaged("a key"))?;
            tell.tell(&Within::new(&mut *self.change), value_of(&key), scratch)?;
            return Ok(true);
        }
        let meter = Meter::unbounded();
        let key = match sort::take_field(&mut row) {
            Field::Value(key) => key,
            // An inner query may have needed the key as stored JSON.
            Field::Json(json) => of_json(json, Workspace::new(tell.keys, &meter)).map_err(QueryError::from)?,
        };
        let stored = as_key(key, self.collection.info.key.kind).ok_or(QueryError::Damaged("a key"))?;
        if self.changing.action == Action::Delete {
            tell.tell(&Within::new(&mut *self.change), key, scratch)?;
            self.apply(&Op::Delete { key: stored.as_bytes().to_vec() }, tell.budget)?;
            return Ok(true);
        }
        let text = self.text_of(stored.as_bytes())?;
        let body = laid_out(&text, self.names, &self.values(&mut row));
        self.apply(&Op::Replace { key: stored.as_bytes().to_vec(), body }, tell.budget)?;
        tell.tell(&Within::new(&mut *self.change), key, scratch)?;
        Ok(true)
    }

    /// Stores a new document, resolving conflicts as [`OnConflict`] says. Returns its key, or `None` if it is skipped.
    fn insert(
        &mut self,
        row: &mut &[u8],
        (budget, done): (&Budget<'_>, &mut Applied),
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<u8>>, ModifyError> {
        let values = self.values(row);
        let op = Op::Insert { body: laid_out(b"{}", self.names, &values) };
        if self.changing.on_conflict == OnConflict::Refuse {
            return self.apply(&op, budget).map(Some);
        }
        let (collection, change, written) = (self.collection, &mut *self.change, (&op, self.at));
        let mut in_the_way = scratch::with(|scratch| {
            scratch.long_check = LongCheck::in_share();
            write::in_the_way(collection, written, change, scratch)
        })?;
        if let OnConflict::LeaveOut(fields) | OnConflict::Update(fields) = &self.changing.on_conflict {
            let counts = |other: &&write::InTheWay| fields.as_ref().is_none_or(|fields| *fields == other.fields);
            return match (in_the_way.iter().find(counts), self.upsert) {
                (None, _) => self.apply(&op, budget).map(Some),
                (Some(_), None) => Ok(None),
                (Some(InTheWay { stuck: Some(why), .. }), Some(_)) => Err(why.clone().into()),
                (Some(other), Some(upsert)) => self.change_stored(&other.key, upsert, &values, (budget, done), scratch),
            };
        }
        if let Some(why) = in_the_way.iter_mut().find_map(|other| other.stuck.take()) {
            return Err(why.into());
        }
        let own = in_the_way.iter().find(|other| other.is_key).map(|other| other.key.clone());
        let mut gone: Vec<&[u8]> = Vec::new();
        for other in in_the_way.iter().filter(|other| own.as_ref() != Some(&other.key)) {
            // Two unique values may belong to one document.
            if !gone.contains(&&*other.key) {
                self.apply(&Op::Delete { key: other.key.clone() }, budget)?;
                gone.push(&other.key);
            }
        }
        match (own, op) {
            // It is replaced in place, so that references to it remain valid.
            (Some(key), Op::Insert { body }) => self.apply(&Op::Replace { key, body }, budget).map(Some),
            (_, op) => self.apply(&op, budget).map(Some),
        }
    }

    /// Updates a stored document by DO UPDATE. Returns its key, or `None` if WHERE is not true.
    fn change_stored(
        &mut self,
        stored: &[u8],
        upsert: &Upsert,
        new: &[Option<Vec<u8>>],
        (budget, done): (&Budget<'_>, &mut Applied),
        scratch: &mut Scratch,
    ) -> Result<Option<Vec<u8>>, ModifyError> {
        let key = self.collection.info.key.kind.of_bytes(stored).ok_or(QueryError::Damaged("a key"))?;
        let (arena, meter, mut known) = (Bump::new(), Meter::unbounded(), self.parameters.iter());
        let mut given = Vec::new();
        for name in upsert.query.parameters() {
            let excluded = name.strip_prefix(EXCLUDED).and_then(|name| name.strip_prefix('.'));
            given.push(match excluded {
                Some(field) => {
                    let (field, as_json) = match field.strip_suffix(AS_JSON) {
                        Some(field) => (field, true),
                        None => (field, false),
                    };
                    match self.changing.fields.iter().position(|known| known == field).map(|place| &new[place]) {
                        Some(Some(json)) if as_json => Value::Text(json),
                        Some(Some(json)) => of_json(json, Workspace::new(&arena, &meter)).map_err(QueryError::from)?,
                        _ => Value::Null,
                    }
                }
                None if name.is_empty() => value_of(&key),
                None => known.next().copied().unwrap_or(Value::Null),
            });
        }
        let mut made = KeptRows::default();
        done.execute((&upsert.query, &Within::new(&mut *self.change)), &given, scratch, budget, &mut made)?;
        let Some(mut row) = made.rows().next() else { return Ok(None) };
        let row = &mut row;
        let values: Vec<Option<Vec<u8>>> = upsert
            .fields
            .iter()
            .zip(&upsert.values)
            .map(|(name, given)| match *given {
                Given::Made(form) => self.value(name, form, row),
                Given::New(place) => {
                    sort::take_field(row);
                    place.and_then(|place| new[place].clone())
                }
            })
            .collect();
        let text = self.text_of(stored)?;
        let op = Op::Replace { key: stored.to_vec(), body: laid_out(&text, &upsert.names, &values) };
        self.apply(&op, budget).map(Some)
    }

    /// The text of the stored document with this key. Rejected if other writers wait and the document is too long for that.
    fn text_of(&mut self, key: &[u8]) -> Result<Vec<u8>, ModifyError> {
        let old = self.change.get(self.collection.info.tree, key)?;
        let old = old.ok_or(QueryError::Damaged("a document"))?;
        LongCheck::in_share().bound_stored(old.len())?;
        let document = old.get(STAMP_BYTES..).and_then(|bytes| binjson::Document::from_bytes(bytes).ok());
        Ok(document.ok_or(QueryError::Damaged("a document"))?.text().to_vec())
    }

    fn apply(&mut self, op: &Op, budget: &Budget<'_>) -> Result<Vec<u8>, ModifyError> {
        let (collection, change, op) = (self.collection, &mut *self.change, (op, self.at));
        let prepared = scratch::with(|scratch| {
            scratch.long_check = LongCheck::in_share();
            write::apply(collection, op, &Precondition::None, change, scratch)
        });
        match prepared {
            Ok(prepared) => Ok(prepared.key),
            // The deadline may have ended the schema check: see `schema::asking`.
            Err(WriteError::Invalid { .. }) if budget.deadline.is_some_and(|over| over()) => {
                Err(QueryError::Deadline.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The values of a row, each as JSON; `None` for NULL.
    fn values(&self, row: &mut &[u8]) -> Vec<Option<Vec<u8>>> {
        self.changing.fields.iter().zip(self.forms).map(|(name, form)| self.value(name, *form, row)).collect()
    }

    /// A field's value as JSON; `None` for NULL.
    fn value(&self, name: &str, form: Form, row: &mut &[u8]) -> Option<Vec<u8>> {
        let truths = self.collection.info.field(name).is_some_and(|field| field.kind == FieldKind::Boolean);
        let mut out = Vec::new();
        match (sort::take_field(row), form) {
            (Field::Value(Value::Null), _) => return None,
            (Field::Json(b"null"), _) => return None,
            (Field::Value(Value::Integer(integer)), _)
                if form == Form::Truth || (truths && (0..2).contains(&integer)) =>
            {
                out.extend_from_slice(if integer == 0 { b"false" } else { b"true" });
            }
            (Field::Value(Value::Text(text)), Form::Json) => out.extend_from_slice(text),
            (Field::Value(Value::Text(text)), Form::Extracted) if matches!(text.first(), Some(b'{' | b'[')) => {
                out.extend_from_slice(text);
            }
            (field, _) => write_field(field, &mut out),
        }
        Some(out)
    }
}

/// A document's text with new values: each at its field's old place, or at the end. Fields whose new value is NULL are removed.
fn laid_out(old: &[u8], names: &[Vec<u8>], values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut out = vec![b'{'];
    let mut push = |name: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(name);
        out.push(b':');
        out.extend_from_slice(value);
    };
    let mut placed = vec![false; names.len()];
    for (name, value) in json::fields(old) {
        match names.iter().position(|new| new == name) {
            None => push(name, value),
            Some(place) => {
                placed[place] = true;
                if let Some(value) = &values[place] {
                    push(name, value);
                }
            }
        }
    }
    for (place, name) in names.iter().enumerate().filter(|(place, _)| !placed[*place]) {
        if let Some(value) = &values[place] {
            push(name, value);
        }
    }
    out.push(b'}');
    out
}

pub(super) fn value_of<'k>(key: &Key<'k>) -> Value<'k> {
    crate::sql::expressions::row::of_scalar(key.scalar())
}
