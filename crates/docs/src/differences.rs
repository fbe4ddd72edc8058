//! What a configuration would change of a directory: for who only looks, and must not bring it in line with a wrong file.
//!
//! Rows of the catalog are compared, nothing is read of the documents: what is declared and has no row of its own would be
//! built, what has one and is not declared would be dropped.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use store::Store;

use crate::config::{CollectionConfig, Config};
use crate::database::CATALOG_TREE;
use crate::open_error::OpenError;
use crate::stored_catalog::{self, Rows};
use crate::views;

/// What opening the directory with this configuration would build, drop or change: a line for each, in no order that means
/// anything. Empty where it would leave all as it is.
pub fn differences(store: &Store, config: &Config) -> Result<Vec<String>, OpenError> {
    let stored = match store.existing_tree(CATALOG_TREE)? {
        Some(tree) => stored_catalog::read(&store.reader()?.snapshot(), tree)?,
        None => Rows::new(),
    };
    let mut lines = Vec::new();
    for collection in &config.collections {
        match parsed(&stored, &stored_catalog::collection_row(collection)) {
            None => lines.push(format!("the collection {} is new", collection.name)),
            Some(row) => changed(collection, &row, &mut lines),
        }
    }
    lines.extend(rules(config, &stored));
    lines.extend(views_differ(config, &stored));
    Ok(lines)
}

fn parsed(stored: &Rows, key: &str) -> Option<Json> {
    serde_json::from_str(stored.get(key)?).ok()
}

/// What is another in a collection's own row.
fn changed(collection: &CollectionConfig, stored: &Json, lines: &mut Vec<String>) {
    let declared = stored_catalog::declared_row(collection);
    for (fields, what) in
        [(&["key", "type"][..], "key"), (&["schema"], "schema"), (&["expire", "expire_after"], "time of expiry")]
    {
        if fields.iter().any(|field| declared[field] != stored[field]) {
            lines.push(format!("the {what} of {} is another", collection.name));
        }
    }
}

/// Indexes, unique fields and references, by the names of their rows: of the declared collections all, of others the references.
fn rules(config: &Config, stored: &Rows) -> Vec<String> {
    let declared: BTreeMap<String, Json> =
        config.collections.iter().flat_map(|collection| stored_catalog::declared_rules(config, collection)).collect();
    let is_declared = |name: &str| config.collections.iter().any(|collection| collection.name == name);
    let mut lines = Vec::new();
    for (name, rule) in &declared {
        let Some(row) = parsed(stored, name) else {
            lines.push(format!("{} is not there and would be built", told(name)));
            continue;
        };
        if ["included", "target"].iter().any(|field| rule[field] != row[field]) {
            lines.push(format!("{} is another and would be built anew", told(name)));
        }
    }
    for name in stored.keys().filter(|name| !declared.contains_key(*name)) {
        let mut parts = name.split('/');
        let (kind, collection) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if kind == "reference" || matches!(kind, "index" | "unique") && is_declared(collection) {
            lines.push(format!("{} would be dropped", told(name)));
        }
    }
    lines
}

/// A rule's row as a reader of the configuration knows it.
fn told(name: &str) -> String {
    match name.splitn(3, '/').collect::<Vec<_>>()[..] {
        ["index", collection, fields] => format!("the index of {collection} on {}", fields.replace(',', ", ")),
        ["unique", collection, field] => format!("the unique field {field} of {collection}"),
        ["reference", collection, field] => format!("the reference {field} of {collection}"),
        _ => name.to_string(),
    }
}

fn views_differ(config: &Config, stored: &Rows) -> Vec<String> {
    let known = views::stored_queries(stored);
    let mut lines = Vec::new();
    for view in &config.views {
        let mut queries = known.iter().filter(|(name, _)| *name == view.name).map(|(_, query)| query).peekable();
        if queries.peek().is_none() {
            lines.push(format!("the view {} is not there and would be built", view.name));
        } else if !queries.any(|query| *query == view.query) {
            lines.push(format!("the view {} has another query and would be built anew", view.name));
        }
    }
    let is_declared = |name: &str| config.views.iter().any(|view| view.name == name);
    let dropped = known.iter().filter(|(name, _)| !is_declared(name));
    lines.extend(dropped.map(|(name, _)| format!("the view {name} would be dropped")));
    lines
}
