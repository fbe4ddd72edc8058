//! INSERT, UPDATE and DELETE, run in one transaction with the checks of every write (`crate::writes::write`). Beyond the bounds of
//! an ordinary transaction they run in a large one (`large_run.rs`).
//!
//! First all documents and new values are read and kept. Then they are written one by one, and RETURNING runs after each write
//! (before it for DELETE). The first refused write ends the transaction, and the statement has no effect. Assigning NULL
//! removes the field: a missing field and NULL are the same, and most schemas allow only a missing one.

use std::sync::Arc;

use bumpalo::Bump;
use hashbrown::HashSet;

use super::applied::{ModifyError, ROWS_PER_WRITE, StatementCounts};
use super::document_write::{DocumentWrite, QuotedNames, Returning};
use crate::catalog::{Catalog, FieldKind};
use crate::engine::{OF_TRANSACTION, ReadView, Within, WriteTransaction};
use crate::error::WriteError;
use crate::sql::{
    Action, Budget, Changing, JsonRows, NoRows, ParameterUses, PreparedQuery, QueryError, RESULT, ROWS_READ, RowList,
    Scratch, SqlError, Value, take_field,
};
use crate::writes::Collection;

/// A prepared INSERT, UPDATE or DELETE.
#[derive(Debug)]
pub struct Modification {
    pub(super) changing: Changing<PreparedQuery>,
    pub(super) names: QuotedNames,
}

impl Modification {
    /// Estimate of its bytes in memory, without its plans.
    pub(crate) fn bytes(&self) -> usize {
        let Changing { fields, parameters, .. } = &self.changing;
        let prepared = self.queries().map(PreparedQuery::bytes);
        let names: usize = fields.iter().chain(parameters).map(|name| 2 * (size_of::<String>() + name.len())).sum();
        size_of::<Modification>() + prepared.sum::<usize>() + names
    }

    /// Whether a text is an INSERT, UPDATE or DELETE, by its syntax.
    pub fn is_one(sql: &str) -> Result<bool, SqlError> {
        Changing::is_one(sql)
    }

    /// Prepares a statement against a catalog.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<Modification, SqlError> {
        let changing = Changing::prepare(sql, catalog)?;
        Ok(Modification { names: QuotedNames::of(&changing), changing })
    }

    /// The names of the parameters, by slot.
    pub fn parameters(&self) -> &[String] {
        &self.changing.parameters
    }

    /// Which fields a parameter is compared with or assigned to.
    pub fn compared(&self, name: &str) -> ParameterUses {
        let Some(slot) = self.changing.parameters.iter().position(|known| known == name) else {
            return ParameterUses::default();
        };
        // For UPDATE and DELETE the first column is the document's key.
        let keys = usize::from(self.changing.action != Action::Insert);
        let field = |column: usize| self.changing.fields.get(column.checked_sub(keys)?);
        let sources = self.changing.sources.iter().map(|source| {
            source.compared_or_given(slot, |column| {
                field(column).map_or(FieldKind::Any, |field| source.kind_of(self.changing.collection, field))
            })
        });
        let returning =
            self.changing.returning.iter().map(|returning| returning.compared_or_given(slot, |_| FieldKind::Any));
        let upsert = self.changing.upsert.iter().filter_map(|upsert| {
            let of = |column: usize| match upsert.fields.get(column) {
                Some(field) => upsert.query.kind_of(self.changing.collection, field),
                None => FieldKind::Any,
            };
            Some(upsert.query.compared_or_given(upsert.query.slot(name)?, of))
        });
        sources.chain(returning).chain(upsert).fold(ParameterUses::default(), ParameterUses::and)
    }

    /// The access path to its documents in one line of ASCII, and whether it scans a whole collection.
    pub fn plan_line(&self, parameters: &[Value<'_>]) -> (String, bool) {
        let mut lines: Vec<Arc<str>> = Vec::new();
        let mut scans = false;
        // VALUES read no table.
        for source in self.changing.sources.iter().filter(|source| source.reads_any()) {
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
        let mut sources = self.changing.sources.iter().filter(|source| source.reads_any());
        sources.any(|source| source.plan_line(&parameters[..source.parameters().len()]).1)
    }

    /// The query of RETURNING.
    pub(super) fn returned(&self) -> Option<&PreparedQuery> {
        self.changing.returning.as_ref()
    }

    /// The names of the columns of RETURNING; none without it.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.changing.returning.iter().flat_map(PreparedQuery::columns)
    }

    /// A sink that appends the rows of RETURNING as JSON objects, with a byte between them; `None` without RETURNING.
    pub fn json_rows<'o>(&'o self, out: &'o mut Vec<u8>, separator: u8) -> Option<JsonRows<'o>> {
        self.changing.returning.as_ref().map(|returning| returning.json_rows(out, separator))
    }

    /// All its queries.
    pub(super) fn queries(&self) -> impl Iterator<Item = &PreparedQuery> {
        let Changing { sources, returning, upsert, .. } = &self.changing;
        sources.iter().chain(returning).chain(upsert.iter().map(|upsert| &upsert.query))
    }

    /// Whether it is a DELETE of all documents of its collection, without RETURNING.
    pub(crate) fn is_whole(&self) -> bool {
        self.changing.is_whole && self.changing.returning.is_none()
    }

    /// The number of documents that its source finds.
    pub(crate) fn count(
        &self,
        view: &impl ReadView,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
    ) -> Result<u64, QueryError> {
        let source = &self.changing.sources[0];
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
    pub(crate) fn apply<C: WriteTransaction>(
        &self,
        collection: &Collection,
        change: &mut C,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
        returned: &mut RowList,
    ) -> Result<StatementCounts, ModifyError> {
        let (expected, given) = (self.changing.parameters.len(), parameters.len());
        if expected != given {
            return Err(QueryError::Parameters { expected, given }.into());
        }
        returned.clear();
        let mut scratch = Scratch::new();
        let keys = Bump::new();
        let with_key = parameters.iter().copied().chain([Value::Null]).collect();
        let (returning, done) = (self.changing.returning.as_ref(), StatementCounts::default());
        let mut rows_returned = Returning { returning, parameters: with_key, keys: &keys, budget, returned, done };
        // All of it is written, so the limit of the transaction is the only one.
        let to_write = Budget { output_bytes_max: change.bytes_max(), ..*budget };
        let mut rows = RowList::default();
        // Where each source's rows end: VALUES has one source per row, and all are read before anything is written.
        let mut source_ends = Vec::new();
        for source in &self.changing.sources {
            let view = Within::new(&mut *change);
            let known = &parameters[..source.parameters().len()];
            let found = rows_returned.done.execute((source, &view), known, &mut scratch, &to_write, &mut rows);
            found.map_err(of_what_is_found)?;
            source_ends.push(rows.len());
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
            let (collection, change, names, at) = (collection, &mut *change, &self.names, &at);
            let mut one = DocumentWrite { changing: &self.changing, parameters, collection, change, forms, names, at };
            let folds_before = one.change.folds_count();
            rows_returned.done.documents += u64::from(one.write(row, &mut rows_returned, &mut scratch)?);
            rows_returned.done.rows_read += ROWS_PER_WRITE + one.change.folds_count() - folds_before;
            check(rows_returned.done.rows_read, rows_returned.budget)?;
        }
        Ok(rows_returned.done)
    }
}

/// The rows to write are no result: they exceed the transaction.
pub(super) fn of_what_is_found(error: QueryError) -> ModifyError {
    match error {
        QueryError::Limit { what: RESULT, limit } => {
            WriteError::TooLarge { what: format!("{OF_TRANSACTION} by the rows to write,"), limit }.into()
        }
        other => other.into(),
    }
}

pub(super) fn check(rows_read: u64, budget: &Budget<'_>) -> Result<(), QueryError> {
    if rows_read > budget.rows_max {
        return Err(QueryError::Limit { what: ROWS_READ, limit: budget.rows_max });
    }
    if budget.deadline.is_some_and(|over| over()) { Err(QueryError::Deadline) } else { Ok(()) }
}

/// The bytes of a row's first field.
pub(super) fn first_field(row: &[u8]) -> &[u8] {
    let mut rest = row;
    take_field(&mut rest);
    &row[..row.len() - rest.len()]
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::ops::ControlFlow;

    use super::*;
    use crate::config::Config;
    use crate::database::{CollectionId, DocumentDatabase, Write};
    use crate::engine::{Direction, KeyRange, StoreError, StoreOptions, TreeId, Tx};
    use crate::writes::{Op, Precondition};

    const CONFIG: &str = "[collections.tasks]\nkey = { field = \"id\", type = \"u32\" }\nunique = [[\"name\"]]\n\
        indexes = [[\"size\"]]\nreferences = { parent = \"tasks\" }\n\
        [views.sizes]\nquery = \"SELECT owner, COUNT(*) AS n, SUM(size) AS s, MIN(size) AS least, \
        COUNT(DISTINCT size) AS sizes FROM tasks GROUP BY owner\"\n";

    /// Counts the operations of a transaction and the entries that its scans visit.
    struct Counting<'c, 't> {
        tx: &'c mut Tx<'t>,
        steps: u64,
    }

    impl WriteTransaction for Counting<'_, '_> {
        fn get(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, StoreError> {
            self.steps += 1;
            self.tx.get(tree, key)
        }
        fn scan(
            &mut self,
            tree: TreeId,
            range: KeyRange<'_>,
            direction: Direction,
            visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
        ) -> Result<(), StoreError> {
            self.steps += 1;
            self.tx.scan(tree, range, direction, &mut |key, value| {
                self.steps += 1;
                visit(key, value)
            })
        }
        fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
            self.steps += 1;
            self.tx.put(tree, key, value);
        }
        fn put_stamped(&mut self, tree: TreeId, key: &[u8], value: &[u8]) {
            self.steps += 1;
            self.tx.put_stamped(tree, key, value);
        }
        fn delete(&mut self, tree: TreeId, key: &[u8]) {
            self.steps += 1;
            self.tx.delete(tree, key);
        }
        fn fold(&mut self, tree: TreeId, key: &[u8], operand: &[u8]) {
            self.steps += 1;
            self.tx.fold(tree, key, operand);
        }
        fn folds_count(&self) -> u64 {
            self.tx.folds_count() as u64
        }
        fn bytes_max(&self) -> usize {
            self.tx.bytes_max()
        }
    }

    /// Steps and counts of a statement that writes this many documents.
    fn work(database: &DocumentDatabase, sql: &str, documents: i64) -> (u64, StatementCounts, u64) {
        let statement = Modification::prepare(sql, database.catalog()).unwrap();
        let collection = database.collection_at(CollectionId(0));
        let budget = Budget {
            rows_max: u64::MAX,
            output_bytes_max: 64 << 20,
            memory_bytes_max: 64 << 20,
            spill: None,
            deadline: None,
            now_ms: 0,
        };
        let mut work = None;
        let commit = database.store().commit(&mut |tx| {
            let mut counting = Counting { tx, steps: 0 };
            let parameters = [Value::Integer(documents)];
            let counts = statement.apply(collection, &mut counting, &parameters, &budget, &mut RowList::default());
            work = Some((counting.steps, counts.unwrap(), counting.folds_count()));
            Ok(())
        });
        commit.unwrap();
        let (steps, counts, folds) = work.unwrap();
        assert_eq!(counts.documents, documents.unsigned_abs());
        (steps, counts, folds)
    }

    #[test]
    fn twice_as_many_documents_take_twice_the_steps_and_changes_of_views_count_as_rows() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse("c.toml".as_ref(), CONFIG).unwrap();
        let database = DocumentDatabase::open(&config, folder.path(), StoreOptions::default()).unwrap().0;
        let stored = database.transact(&mut |tx| {
            (0..1200).rev().try_for_each(|id| {
                let parent = if id == 1199 { "null".to_owned() } else { format!("{}", id + 1) };
                let (owner, body) = (id % 7, format!("{{\"id\":{id},\"name\":\"{id}\",\"size\":{id},"));
                let body = format!("{body}\"owner\":{owner},\"parent\":{parent}}}").into_bytes();
                let op = Op::Insert { body };
                let write = Write { collection: CollectionId(0), op, precondition: Precondition::None };
                tx.write(&write).map(drop)
            })
        });
        assert!(matches!(stored, Ok::<(), WriteError>(())), "{stored:?}");
        let statements = [
            "UPDATE tasks SET size = size + 1, name = name || '.' WHERE id < :n",
            // Each one refers to the next one, which can go only later.
            "DELETE FROM tasks WHERE id IN (SELECT id FROM tasks ORDER BY id LIMIT :n)",
        ];
        for sql in statements {
            let ((one, ..), (two, counts, folds)) = (work(&database, sql, 300), work(&database, sql, 600));
            assert!(two < 3 * one, "{sql}: {two} steps for twice as many documents, {one} before");
            assert!(folds >= 600, "{sql}: {folds}");
            assert_eq!(counts.rows_read, counts.looked_at + 16 * 600 + folds, "{sql}");
        }
    }
}
