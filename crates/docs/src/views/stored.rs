//! What the catalog's tree says about views: one row for each, by number.
//!
//! ```text
//!  view/N   {"name": NAME, "query": SQL, "state": "building" or "ready"}     its trees are view/N and view-values/N
//! ```
//!
//! When a database is opened, the declared views are compared with these rows. A row of the same query that is ready is kept. A
//! ready row of another query serves until the new one is built, and goes in the transaction that makes the new one ready. All
//! other rows go at once, with their trees: of what is no longer declared nobody would keep them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use store::Store;

use super::build::Heart;
use super::definition::Definition;
use super::view::{View, ViewState};
use super::{VIEWS_MAX, Views, table};
use crate::catalog::{Catalog, CollectionInfo};
use crate::config::Config;
use crate::engine::{Direction, KeyRange, TreeId};
use crate::error::OpenError;
use crate::stored_catalog::Rows;

/// The views of a database that is being opened, and what is to be written for them.
pub(crate) struct Resolved {
    pub(crate) views: Views,
    /// Rows to be written, in one step.
    pub(crate) rows: Rows,
    /// Rows to be removed in the same step.
    pub(crate) obsolete: Vec<String>,
}

/// The declared views as tables of queries, in the order in which [`resolve`] lists them.
pub(crate) fn tables(config: &Config, catalog: &Catalog) -> Result<Vec<CollectionInfo>, OpenError> {
    let views = config.views.iter().enumerate();
    views.map(|(place, view)| Ok(table::info(&view.name, &compile(&view.name, &view.query, catalog)?, place))).collect()
}

fn compile(name: &str, query: &str, catalog: &Catalog) -> Result<Definition, OpenError> {
    Definition::compile(query, catalog).map_err(|why| OpenError::Mismatch(format!("the view {name}: {why}")))
}

/// Compares the declared views with the stored ones.
pub(crate) fn resolve(
    store: &Store,
    snapshot: &store::Snapshot<'_>,
    config: &Config,
    catalog: &Catalog,
    stored: &Rows,
) -> Result<Resolved, OpenError> {
    if config.views.len() > VIEWS_MAX {
        return Err(OpenError::Mismatch(format!("{} views; there can be {VIEWS_MAX}", config.views.len())));
    }
    let known = read(stored);
    let mut resolved = Resolved { views: Views::default(), rows: Rows::new(), obsolete: Vec::new() };
    let (mut used, mut kept) = (known.keys().copied().collect::<Vec<u64>>(), Vec::new());
    for wanted in &config.views {
        let definition = compile(&wanted.name, &wanted.query, catalog)?;
        let same = |row: &&Row| row.name == wanted.name && row.query == wanted.query && row.is_ready;
        let found = known.iter().find(|(_, row)| same(row)).map(|(number, _)| *number);
        let collection = catalog.collections[definition.grouping.collection].tree;
        let (number, is_ready) = match found {
            Some(number) => (number, true),
            None => (fresh(store, snapshot, stored, &mut used)?, is_empty(snapshot, collection)?),
        };
        kept.push(number);
        let row = json!({ "name": wanted.name, "query": wanted.query, "state": state_name(is_ready) });
        resolved.rows.insert(format!("view/{number}"), row.to_string());
        let trees = trees(store, number)?;
        let view = View::new((&wanted.name, &wanted.query), definition, trees, is_ready);
        resolved.views.list.push(Arc::new(view));
    }
    for (number, row) in known.iter().filter(|(number, _)| !kept.contains(number)) {
        // What a changed definition replaces serves on, if it still can be kept.
        let replaced = resolved.views.list.iter().any(|view| view.name == row.name && !view.is_ready());
        let definition = Definition::compile(&row.query, catalog).ok().filter(|_| replaced && row.is_ready);
        match definition {
            Some(definition) => {
                let view = View::new((&row.name, &row.query), definition, trees(store, *number)?, true);
                resolved.views.list.push(Arc::new(view));
            }
            None => {
                resolved.obsolete.push(format!("view/{number}"));
                resolved.rows.extend(drops(*number));
            }
        }
    }
    resolved.rows.retain(|key, value| stored.get(key) != Some(value));
    Ok(resolved)
}

struct Row {
    name: String,
    query: String,
    is_ready: bool,
}

fn read(stored: &Rows) -> BTreeMap<u64, Row> {
    let rows = stored.iter().filter_map(|(key, row)| {
        let number = key.strip_prefix("view/")?.parse().ok()?;
        let row: Json = serde_json::from_str(row).ok()?;
        let text = |name: &str| row.get(name).and_then(Json::as_str).unwrap_or_default().to_string();
        Some((number, Row { name: text("name"), query: text("query"), is_ready: text("state") == "ready" }))
    });
    rows.collect()
}

fn state_name(is_ready: bool) -> &'static str {
    if is_ready { "ready" } else { "building" }
}

fn tree_names(number: u64) -> [String; 2] {
    [format!("view/{number}"), format!("view-values/{number}")]
}

fn trees(store: &Store, number: u64) -> Result<(u64, TreeId, TreeId), store::Error> {
    let [groups, values] = tree_names(number);
    Ok((number, store.tree(&groups)?, store.tree(&values)?))
}

/// The rows that have a view's trees emptied when the database is opened.
fn drops(number: u64) -> impl Iterator<Item = (String, String)> {
    tree_names(number).into_iter().map(|tree| (format!("drop/{tree}"), "{}".to_string()))
}

/// A number that no row uses, and whose trees are empty.
fn fresh(
    store: &Store,
    snapshot: &store::Snapshot<'_>,
    stored: &Rows,
    used: &mut Vec<u64>,
) -> Result<u64, store::Error> {
    let mut number = 0;
    loop {
        number += 1;
        let names = tree_names(number);
        if used.contains(&number) || names.iter().any(|tree| stored.contains_key(&format!("drop/{tree}"))) {
            continue;
        }
        let mut is_free = true;
        for name in &names {
            if let Some(tree) = store.existing_tree(name)? {
                is_free &= is_empty(snapshot, tree)?;
            }
        }
        if is_free {
            used.push(number);
            return Ok(number);
        }
    }
}

fn is_empty(snapshot: &store::Snapshot<'_>, tree: TreeId) -> Result<bool, store::Error> {
    let mut is_empty = true;
    crate::engine::View::scan(snapshot, tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
        is_empty = false;
        std::ops::ControlFlow::Break(())
    })?;
    Ok(is_empty)
}

/// Makes a built view the one that answers; the one that served before goes.
pub(crate) fn switch_in(heart: &Heart, view: &View) -> Result<(), store::Error> {
    let before: Vec<&Arc<View>> =
        heart.views.list.iter().filter(|other| other.name == view.name && other.is_ready()).collect();
    let row = json!({ "name": view.name, "query": view.query, "state": state_name(true) }).to_string();
    let catalog = heart.catalog_tree;
    heart.store.commit(&mut |tx| {
        tx.put(catalog, format!("view/{}", view.number).as_bytes(), row.as_bytes());
        for old in &before {
            tx.delete(catalog, format!("view/{}", old.number).as_bytes());
            // Writes that were prepared before may still change these trees: the next opening empties them for good.
            drops(old.number).for_each(|(key, value)| tx.put(catalog, key.as_bytes(), value.as_bytes()));
        }
        Ok(())
    })?;
    view.end();
    view.set_state(ViewState::Ready);
    for old in before {
        old.set_state(ViewState::Retired);
        for tree in [old.groups, old.values] {
            heart.store.commit(&mut |tx| {
                tx.delete_range(tree, KeyRange::ALL);
                Ok(())
            })?;
        }
    }
    Ok(())
}
