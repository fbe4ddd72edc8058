//! The stored catalog of views: one row for each, by number.
//!
//! ```text
//!  view/N            {"name": NAME, "query": SQL, "fields": [FIELD, …], "state": "building" or "ready"}
//!                      its trees are view/N and view-values/N; for a view over a view with "over": the number of the lower view
//!  view-progress/N   progress of the build of a view over a view, or a mark that the view is built (chain.rs)
//! ```
//!
//! When a database is opened, the declared views are compared with these rows. A ready view with the same query is kept if the
//! names in it mean the same fields, which depends on the schema: a name that no field has in this case means the field that
//! differs in case only. (A row of an older format has no fields, and is kept.) A
//! ready view with another query serves until the new view is built, and its row is removed in the transaction that makes the
//! new one ready. A view over a view also counts as changed if its lower view has changed; both old views serve until both new
//! ones are built. All other rows are removed at once, with their trees, because no write would maintain them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::chain::{ANSWERS, PROGRESS, progress_key, progress_name};
use super::database_core::DatabaseCore;
use super::definition::Definition;
use super::order::{self, CHAIN_MAX};
use super::view::View;
use super::{VIEWS_MAX, Views, table};
use crate::catalog::{Catalog, CollectionInfo};
use crate::config::Config;
use crate::engine::{self, Direction, KeyRange, Store, TreeId};
use crate::opening::{DROP, DatabaseOpenError, Rows};

/// The views of a database that is being opened, and the catalog changes for them.
pub(crate) struct ResolvedViews {
    pub(crate) views: Views,
    /// Rows to be written, in one step.
    pub(crate) rows: Rows,
    /// Rows to be removed in the same step.
    pub(crate) obsolete: Vec<String>,
}

/// The declared views as tables for queries, in the order of [`resolve`].
pub(crate) fn tables(config: &Config, catalog: &Catalog) -> Result<Vec<Arc<CollectionInfo>>, DatabaseOpenError> {
    let (definitions, _) = compile_all(config, catalog)?;
    let views = config.views.iter().zip(&definitions).enumerate();
    Ok(views.map(|(place, (view, definition))| Arc::new(table::info(&view.name, definition, place))).collect())
}

/// All definitions, and their places in an order in which each one comes after the view that it reads.
fn compile_all(config: &Config, catalog: &Catalog) -> Result<(Vec<Definition>, Vec<usize>), DatabaseOpenError> {
    let views: Vec<(&str, &str)> = config.views.iter().map(|view| (&*view.name, &*view.query)).collect();
    let compiled = order::compile(&views, catalog);
    let named = views.iter().zip(compiled.definitions);
    let definitions = named.map(|((name, _), definition)| {
        definition.map_err(|why| DatabaseOpenError::Mismatch(format!("the view {name}: {why}")))
    });
    Ok((definitions.collect::<Result<Vec<Definition>, DatabaseOpenError>>()?, compiled.by))
}

/// Compares the declared views with the stored ones.
pub(crate) fn resolve(
    (store, catalog_tree): (&Store, TreeId),
    snapshot: &engine::StoreSnapshot<'_>,
    config: &Config,
    catalog: &Catalog,
    stored: &Rows,
) -> Result<ResolvedViews, DatabaseOpenError> {
    if config.views.len() > VIEWS_MAX {
        return Err(DatabaseOpenError::Mismatch(format!("{} views; there can be {VIEWS_MAX}", config.views.len())));
    }
    let known = read(stored);
    let mut resolved = ResolvedViews { views: Views::new(catalog_tree), rows: Rows::new(), obsolete: Vec::new() };
    let (definitions, by) = compile_all(config, catalog)?;
    let mut definitions: Vec<Option<Definition>> = definitions.into_iter().map(Some).collect();
    let mut views: Vec<Option<Arc<View>>> = config.views.iter().map(|_| None).collect();
    let mut used = known.keys().copied().collect::<Vec<u64>>();
    for place in by {
        let Some(definition) = definitions[place].take() else { continue };
        let wanted = &config.views[place];
        let lower = definition.lower().and_then(|lower| views[lower].clone());
        let over = lower.as_ref().map(|lower| lower.number);
        let same = |row: &&Row| {
            let is_same = row.name == wanted.name && row.query == wanted.query && row.over == over;
            is_same && row.is_ready && row.has_meaning(&definition)
        };
        let found = known.iter().find(|(_, row)| same(row)).map(|(number, _)| *number);
        let (number, is_ready) = match found {
            Some(number) => (number, true),
            None => {
                let is_ready = reads_nothing(snapshot, catalog, &definition, lower.as_deref())?;
                (fresh(store, snapshot, stored, &mut used)?, is_ready)
            }
        };
        let row = row((&wanted.name, &wanted.query), &definition.grouping.columns, is_ready, over);
        resolved.rows.insert(format!("view/{number}"), row);
        let trees = trees(store, number)?;
        views[place] = Some(Arc::new(View::new((&wanted.name, &wanted.query), definition, trees, is_ready)));
    }
    resolved.views.list = views.into_iter().flatten().collect();
    replaced(store, catalog, &known, &mut resolved)?;
    for (number, of) in &known {
        if !resolved.views.list.iter().any(|view| view.number == *number) {
            // Marked as building in the step that drops its trees, so that it does not count as ready if the row itself is not
            // removed.
            resolved.rows.insert(
                format!("view/{number}"),
                row((&of.name, &of.query), of.fields.as_deref().unwrap_or_default(), false, of.over),
            );
            resolved.obsolete.push(format!("view/{number}"));
            resolved.rows.extend(drops(*number));
        }
    }
    // Builds begin anew. The progress rows of ready views stay: readers of older configurations still need them.
    let answering: BTreeSet<String> =
        known.iter().filter(|(_, row)| row.is_ready).map(|(number, _)| progress_name(*number)).collect();
    let is_over = |key: &&String| key.starts_with(PROGRESS) && !answering.contains(*key);
    resolved.obsolete.extend(stored.keys().filter(is_over).cloned());
    resolved.rows.retain(|key, value| stored.get(key) != Some(value));
    Ok(resolved)
}

/// Whether the collection or view that a view reads is empty, so that the view has no rows.
fn reads_nothing(
    snapshot: &engine::StoreSnapshot<'_>,
    catalog: &Catalog,
    definition: &Definition,
    lower: Option<&View>,
) -> Result<bool, engine::StoreError> {
    match (definition.collection(), lower) {
        (Some(collection), _) => is_empty(snapshot, catalog.collections[collection].tree),
        (None, Some(lower)) if lower.is_ready() && lower.definition.always().is_none() => {
            is_empty(snapshot, lower.groups)
        }
        _ => Ok(false),
    }
}

/// Adds the old versions of changed views that can still be maintained, each after the view that it reads.
fn replaced(
    store: &Store,
    catalog: &Catalog,
    known: &BTreeMap<u64, Row>,
    resolved: &mut ResolvedViews,
) -> Result<(), engine::StoreError> {
    for _ in 0..=CHAIN_MAX {
        for (number, row) in known {
            let list = &resolved.views.list;
            let is_replaced = list.iter().any(|view| view.name == row.name && !view.is_ready());
            if !row.is_ready || !is_replaced || list.iter().any(|view| view.number == *number) {
                continue;
            }
            let mut all = Catalog { views: Vec::new(), ..catalog.clone() };
            if let Some(over) = row.over {
                let lower = list.iter().position(|view| view.number == over && view.is_ready());
                let Some(lower) = lower else { continue };
                all.views.push(Arc::new(table::info(&list[lower].name, &list[lower].definition, lower)));
            }
            let Ok(definition) = Definition::compile(&row.query, &all) else { continue };
            if !row.has_meaning(&definition) {
                continue;
            }
            let view = View::new((&row.name, &row.query), definition, trees(store, *number)?, true);
            resolved.views.list.push(Arc::new(view));
        }
    }
    Ok(())
}

/// The query of each view that the last configuration declared, by name: the new query if a view is being replaced.
pub(crate) fn declared_in(stored: &Rows) -> BTreeMap<String, String> {
    let mut rows: Vec<Row> = read(stored).into_values().collect();
    rows.sort_by_key(|row| !row.is_ready);
    rows.into_iter().map(|row| (row.name, row.query)).collect()
}

/// The names of the views that are built.
pub(crate) fn built_in(stored: &Rows) -> BTreeSet<String> {
    read(stored).into_values().filter(|row| row.is_ready).map(|row| row.name).collect()
}

struct Row {
    name: String,
    query: String,
    /// The fields that its query reads.
    fields: Option<Vec<String>>,
    is_ready: bool,
    /// The number of the view that it reads.
    over: Option<u64>,
}

impl Row {
    /// Whether the names in its query mean the same fields as in this definition of the same query.
    fn has_meaning(&self, definition: &Definition) -> bool {
        self.fields.as_ref().is_none_or(|fields| *fields == definition.grouping.columns)
    }
}

fn row((name, query): (&str, &str), fields: &[String], is_ready: bool, over: Option<u64>) -> String {
    let state = if is_ready { "ready" } else { "building" };
    let mut row = json!({ "name": name, "query": query, "fields": fields, "state": state });
    if let Some(over) = over {
        row["over"] = json!(over);
    }
    row.to_string()
}

fn read(stored: &Rows) -> BTreeMap<u64, Row> {
    let rows = stored.iter().filter_map(|(key, row)| {
        let number = key.strip_prefix("view/")?.parse().ok()?;
        let row: Json = serde_json::from_str(row).ok()?;
        let text = |name: &str| row.get(name).and_then(Json::as_str).unwrap_or_default().to_string();
        let over = row.get("over").and_then(Json::as_u64);
        let fields = row.get("fields").and_then(|fields| serde_json::from_value(fields.clone()).ok());
        let is_ready = text("state") == "ready";
        Some((number, Row { name: text("name"), query: text("query"), fields, is_ready, over }))
    });
    rows.collect()
}

fn tree_names(number: u64) -> [String; 2] {
    [format!("view/{number}"), format!("view-values/{number}")]
}

fn trees(store: &Store, number: u64) -> Result<(u64, TreeId, TreeId), engine::StoreError> {
    let [groups, values] = tree_names(number);
    Ok((number, store.tree(&groups)?, store.tree(&values)?))
}

/// The rows because of which the next opening empties a view's trees.
fn drops(number: u64) -> impl Iterator<Item = (String, String)> {
    tree_names(number).into_iter().map(|tree| (format!("{DROP}{tree}"), "{}".to_string()))
}

/// A number that no row uses, and whose trees are empty.
fn fresh(
    store: &Store,
    snapshot: &engine::StoreSnapshot<'_>,
    stored: &Rows,
    used: &mut Vec<u64>,
) -> Result<u64, engine::StoreError> {
    let mut number = 0;
    loop {
        number += 1;
        let names = tree_names(number);
        if used.contains(&number) || names.iter().any(|tree| stored.contains_key(&format!("{DROP}{tree}"))) {
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

fn is_empty(snapshot: &engine::StoreSnapshot<'_>, tree: TreeId) -> Result<bool, engine::StoreError> {
    let mut is_empty = true;
    crate::engine::ReadView::scan(snapshot, tree, KeyRange::ALL, Direction::Forward, &mut |_, _| {
        is_empty = false;
        std::ops::ControlFlow::Break(())
    })?;
    Ok(is_empty)
}

/// Makes built views answer queries, all at once, and removes their predecessors and the views that read these.
pub(crate) fn switch_in(core: &DatabaseCore, built: &[Arc<View>]) -> Result<(), engine::StoreError> {
    let list = &core.views.list;
    let is_built = |view: &Arc<View>| built.iter().any(|of| Arc::ptr_eq(of, view));
    let mut old: Vec<usize> = Vec::new();
    for _ in 0..=CHAIN_MAX {
        for (place, view) in list.iter().enumerate().filter(|(_, view)| view.is_ready()) {
            let is_replaced = built.iter().any(|new| new.name == view.name);
            let stands_on_old = view.definition.lower().is_some_and(|lower| old.contains(&lower));
            if !old.contains(&place) && !is_built(view) && (is_replaced || stands_on_old) {
                old.push(place);
            }
        }
    }
    let old: Vec<&Arc<View>> = old.into_iter().map(|place| &list[place]).collect();
    let catalog = core.catalog_tree;
    core.store.commit(&mut |tx| {
        for view in built {
            let over = view.definition.lower().map(|lower| list[lower].number);
            let row = row((&view.name, &view.query), &view.definition.grouping.columns, true, over);
            tx.put(catalog, format!("view/{}", view.number).as_bytes(), row.as_bytes());
            tx.put(catalog, &progress_key(view), ANSWERS);
        }
        for old in &old {
            tx.delete(catalog, format!("view/{}", old.number).as_bytes());
            // Writes that were prepared before may still change these trees, so the next opening empties them again.
            drops(old.number).for_each(|(key, value)| tx.put(catalog, key.as_bytes(), value.as_bytes()));
        }
        Ok(())
    })?;
    for view in built {
        view.end();
        view.readiness.complete();
    }
    old.iter().for_each(|old| old.readiness.drop_it());
    for old in old {
        if let Err(error) = empty(&core.store, old) {
            // The `drop/` rows remain: the next opening empties the trees. The new view answers in any case.
            tracing::error!(view = old.name, %error, "the rows of a view that was replaced cannot be removed yet");
        }
    }
    Ok(())
}

fn empty(store: &Store, view: &View) -> Result<(), engine::StoreError> {
    let remove = |tree| {
        store.commit(&mut |tx| {
            tx.delete_range(tree, KeyRange::ALL);
            Ok(())
        })
    };
    remove(view.groups)?;
    remove(view.values)?;
    Ok(())
}
