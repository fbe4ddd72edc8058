//! What a folder would lose under a configuration. This is checked before anything in it is changed.
//!
//! A folder's catalog names its collections, indexes, rules and views. A configuration that declares none of these collections
//! is refused: it most likely belongs to another service. A configuration that would drop parts of the folder is refused unless
//! [`Config::may_drop`] permits it.
//!
//! - Indexes, unique fields and references that were never in force are no loss, nor is a view that was never built.
//! - An index whose fields are the first ones of another index is no loss, because the longer one serves the same lookups.
//! - The documents of an undeclared collection stay in the folder. Nothing reads or changes them until a configuration declares
//!   the collection again. The collection's catalog row is marked ([`UNDECLARED`]), so the loss is reported only once.

use super::declared_rows::{part_of, wanted_rows};
use super::differences::Differences;
use super::open_error::{CollectionNames, DatabaseOpenError};
use super::stored_rows::{self, Rows, UNDECLARED, documents_tree, holds_any, parsed};
use crate::config::Config;
use crate::engine::{ReadView, Store};
use crate::views;

/// Returns what the configuration would drop, if that is permitted.
pub(crate) fn check(
    config: &Config,
    store: &Store,
    view: &impl ReadView,
    stored: &Rows,
) -> Result<Differences, DatabaseOpenError> {
    // Parts that an earlier opening has marked as dropped are lost already.
    let stored = stored_rows::after_drops(stored.clone());
    refuse_other_service(config, &stored)?;
    let lost = lost(config, store, view, &stored)?;
    if lost.is_empty() || config.may_drop { Ok(lost) } else { Err(DatabaseOpenError::WouldDrop(lost)) }
}

fn refuse_other_service(config: &Config, stored: &Rows) -> Result<(), DatabaseOpenError> {
    let held: Vec<&str> = stored.keys().filter_map(|key| key.strip_prefix("collection/")).collect();
    let declared: Vec<&str> = config.collections.iter().map(|collection| collection.name.as_str()).collect();
    if held.is_empty() || held.iter().any(|name| declared.contains(name)) {
        return Ok(());
    }
    Err(DatabaseOpenError::OtherService { held: CollectionNames::of(&held), declared: CollectionNames::of(&declared) })
}

fn lost(config: &Config, store: &Store, view: &impl ReadView, stored: &Rows) -> Result<Differences, DatabaseOpenError> {
    let mut lost = Differences::default();
    for name in undeclared(config, store, view, stored)? {
        lost.add(format!("the collection {name} (its documents stay in the folder)"));
    }
    let wanted = wanted_rows(config);
    let gone = stored.iter().filter(|(key, row)| !wanted.contains_key(*key) && !stored_rows::is_part(row));
    let is_contained = |key: &str| wanted.keys().any(|wanted| begins_index(key, wanted));
    let gone = gone.filter(|(key, _)| !is_contained(key));
    for (kind, collection, name) in gone.filter_map(|(key, _)| part_of(key)) {
        if config.collections.iter().any(|declared| declared.name == collection) {
            lost.add(format!("the {kind} {name}"));
        }
    }
    for name in views::built_in(stored).into_iter().filter(|name| config.views.iter().all(|view| view.name != *name)) {
        lost.add(format!("the view {name}"));
    }
    Ok(lost)
}

/// Whether one catalog row's index is a prefix of another's.
fn begins_index(shorter: &str, longer: &str) -> bool {
    shorter.starts_with("index/") && longer.strip_prefix(shorter).is_some_and(|more| more.starts_with(','))
}

/// Collections that have documents, were declared at the last opening, and no longer are.
pub(crate) fn undeclared(
    config: &Config,
    store: &Store,
    view: &impl ReadView,
    stored: &Rows,
) -> Result<Vec<String>, DatabaseOpenError> {
    let mut names = Vec::new();
    for (key, row) in stored {
        let Some(name) = key.strip_prefix("collection/") else { continue };
        let is_declared = config.collections.iter().any(|declared| declared.name == name);
        if !is_declared && parsed(row)[UNDECLARED] != true && holds_any(store, view, &documents_tree(name))? {
            names.push(name.to_string());
        }
    }
    Ok(names)
}
