//! Applying a changed configuration to stored documents when a database is opened.
//!
//! One pass over a collection's documents checks them against a changed schema and collects the entries of new or changed
//! indexes, of new unique fields, and of new references. All of it becomes visible in one step with the catalog's rows. The old
//! entries of an index are removed after that, by the next opening if the process stops in between.

use std::ops::ControlFlow;

use binjson::StoredDocument;

use super::loader::{DocumentOrigin, LoadError, Loader, STORED};
use super::open_error::DatabaseOpenError;
use super::stored_catalog::Work;
use super::stored_rows::{DROP, Rows, tree_of};
use crate::encoding::FieldNumbers;
use crate::encoding::key::shown_key;
use crate::engine::{self, BulkTree, Direction, KeyRange, Reader, STAMP_BYTES, Store, TreeId};
use crate::error::ReadError;
use crate::writes::{Collection, ReferencePlace};

/// Does the work on one collection and returns its new trees.
pub(crate) fn collection(
    store: &Store,
    reader: &Reader,
    collection: &Collection,
    work: &Work,
    sort_bytes: usize,
) -> Result<Vec<(TreeId, BulkTree)>, DatabaseOpenError> {
    let mut loader = Loader::new(collection, &work.wanted, store, sort_bytes);
    let mut shape = FieldNumbers::default();
    let mut outcome = Ok(());
    // One snapshot for all: no writes run meanwhile whose old states it would hold.
    reader.snapshot().scan(collection.info.tree, KeyRange::ALL, Direction::Forward, &mut |key, stored| {
        outcome = one(collection, work.recheck, key, stored, &mut shape, &mut loader);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome?;
    let mut trees = Vec::new();
    for task in loader.into_tasks() {
        // A stored document may refer to one that has expired since.
        let stored = |target: &ReferencePlace, key: &[u8]| Ok(reader.snapshot().get(target.target, key)?.is_some());
        trees.extend(task.run(store, &[], &stored).map_err(|error| explain(collection, error))?);
    }
    Ok(trees)
}

fn one(
    collection: &Collection,
    recheck: bool,
    key: &[u8],
    stored: &[u8],
    shape: &mut FieldNumbers,
    loader: &mut Loader<'_>,
) -> Result<(), DatabaseOpenError> {
    let name = || format!("{}/{}", collection.info.name, shown_key(collection.info.key.kind, key));
    let damaged = || DatabaseOpenError::Read(ReadError::Damaged(name()));
    let document =
        stored.get(STAMP_BYTES..).and_then(|bytes| StoredDocument::from_bytes(bytes).ok()).ok_or_else(damaged)?;
    let key = collection.info.key.kind.of_bytes(key).ok_or_else(damaged)?;
    collection.with_row(document, shape, |row| {
        if recheck && let Err(why) = collection.check(document, row) {
            let what = format!("the stored document {} does not fit the configuration's schema: {why}", name());
            return Err(DatabaseOpenError::Mismatch(what));
        }
        let added = loader.add(row, &key, &STORED).map_err(|error| explain(collection, error.into()))?;
        added.map_err(|why| DatabaseOpenError::Mismatch(format!("the stored document {}: {why}", name())))
    })
}

fn explain(collection: &Collection, error: LoadError) -> DatabaseOpenError {
    let name = &collection.info.name;
    let kind = collection.info.key.kind;
    let shown = |origin: &DocumentOrigin| format!("{name}/{}", shown_key(kind, &origin.key));
    match error {
        LoadError::Store(error) => DatabaseOpenError::Store(error),
        LoadError::Record { why, from } => {
            DatabaseOpenError::Mismatch(format!("the stored document {}: {why}", shown(&from)))
        }
        LoadError::Twice { fields, first, second } => DatabaseOpenError::Mismatch(format!(
            "{fields} cannot be unique: {} and {} have the same value",
            shown(&first),
            shown(&second)
        )),
        LoadError::Dangling { field, target, from, .. } => DatabaseOpenError::Mismatch(format!(
            "\"{field}\" cannot refer to {target}: {} refers to a document that is not there",
            shown(&from)
        )),
    }
}

/// Makes built trees and rows of the catalog visible in one step, then removes the obsolete rows.
pub(crate) fn make_visible(
    store: &Store,
    catalog: TreeId,
    trees: Vec<(TreeId, BulkTree)>,
    rows: &Rows,
    obsolete: &[String],
) -> Result<(), engine::StoreError> {
    if trees.is_empty() {
        // One transaction suffices. Attaching would write a checkpoint.
        return write_rows(store, catalog, rows, obsolete);
    }
    let entry = |(key, value): (&String, &String)| (catalog, key.clone().into_bytes(), value.clone().into_bytes());
    let entries: Vec<_> = rows.iter().map(entry).collect();
    store.attach(trees, &entries)?;
    write_rows(store, catalog, &Rows::new(), obsolete)
}

/// Writes rows of the catalog and removes others in one transaction, if there are any.
fn write_rows(store: &Store, catalog: TreeId, rows: &Rows, obsolete: &[String]) -> Result<(), engine::StoreError> {
    if rows.is_empty() && obsolete.is_empty() {
        return Ok(());
    }
    store.commit(&mut |tx| {
        rows.iter().for_each(|(key, row)| tx.put(catalog, key.as_bytes(), row.as_bytes()));
        // A row may be in both lists: it is removed.
        obsolete.iter().for_each(|key| tx.delete(catalog, key.as_bytes()));
        Ok(())
    })?;
    Ok(())
}

/// Empties the trees named by rows `drop/…`, and removes these rows, together with index or unique rows of such a tree that a
/// crash left behind. Each tree is emptied in one transaction, whatever its size: the next checkpoint frees its pages.
pub(crate) fn drop_trees(store: &Store, catalog: TreeId, rows: &Rows) -> Result<(), engine::StoreError> {
    for row in rows.keys() {
        let Some(name) = row.strip_prefix(DROP) else { continue };
        let tree = store.existing_tree(name)?;
        let stands_for_it = rows.iter().filter(|(_, value)| tree_of(value).as_deref() == Some(name));
        let left: Vec<&String> = stands_for_it.map(|(key, _)| key).collect();
        store.commit(&mut |tx| {
            if let Some(tree) = tree {
                tx.delete_range(tree, KeyRange::ALL);
            }
            tx.delete(catalog, row.as_bytes());
            left.iter().for_each(|key| tx.delete(catalog, key.as_bytes()));
            Ok(())
        })?;
    }
    Ok(())
}
