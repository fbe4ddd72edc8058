//! Rows of the stored catalog (`stored_catalog.rs` has their format): reading them, and what one of them says.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde_json::Value as Json;

use super::open_error::DatabaseOpenError;
use crate::engine::{Direction, KeyRange, ReadView, Store, TreeId};
use crate::error::ReadError;

/// The tree of the catalog's rows.
pub(crate) const CATALOG_TREE: &str = "catalog";
/// Rows by key.
pub(crate) type Rows = BTreeMap<String, String>;

/// Prefix of the row of a tree that is to be emptied; the tree's name follows.
pub(crate) const DROP: &str = "drop/";
/// Prefix of the row of an index that stands until the indexes that begin with the same field are built; its tree's name follows.
pub(crate) const STANDING: &str = "standing/";
/// Name of the mark in the row of a collection that the last configuration did not declare.
pub(crate) const UNDECLARED: &str = "undeclared";

/// Reads all rows.
pub(crate) fn read(view: &impl ReadView, tree: TreeId) -> Result<Rows, ReadError> {
    let mut rows = Rows::new();
    view.scan(tree, KeyRange::ALL, Direction::Forward, &mut |key, value| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        rows.insert(text(key), text(value));
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// A row's content; null if it is damaged.
pub(crate) fn parsed(row: &str) -> Json {
    serde_json::from_str(row).unwrap_or_default()
}

/// Whether a row belongs to an index or unique field whose build was not finished, or refused.
pub(crate) fn is_part(row: &str) -> bool {
    !parsed(row)["state"].is_null()
}

/// The name of the tree that holds a collection's documents.
pub(crate) fn documents_tree(collection: &str) -> String {
    format!("docs/{collection}")
}

/// The tree that a row names.
pub(crate) fn tree_of(row: &str) -> Option<String> {
    parsed(row)["tree"].as_str().map(str::to_string)
}

/// The rows that [`super::rebuild::drop_trees`] leaves.
pub(crate) fn after_drops(rows: Rows) -> Rows {
    let dropped: BTreeSet<String> = rows.keys().filter_map(|key| key.strip_prefix(DROP)).map(str::to_string).collect();
    let stays =
        |key: &str, value: &str| !key.starts_with(DROP) && tree_of(value).is_none_or(|tree| !dropped.contains(&tree));
    rows.into_iter().filter(|(key, value)| stays(key, value)).collect()
}

pub(crate) fn is_empty(view: &impl ReadView, tree: TreeId) -> Result<bool, ReadError> {
    let mut empty = true;
    view.visit_first(tree, KeyRange::ALL, Direction::Forward, &mut |_, _| empty = false)?;
    Ok(empty)
}

/// Whether a tree of this name exists and has entries.
pub(crate) fn holds_any(store: &Store, view: &impl ReadView, name: &str) -> Result<bool, DatabaseOpenError> {
    store.existing_tree(name)?.map_or(Ok(false), |tree| Ok(!is_empty(view, tree)?))
}
