//! What opening a folder with a configuration would change in the folder's catalog. For tools that only inspect a folder and
//! must not apply the file of another service, or an older one, to it. Nothing is changed here.
//!
//! A build that was stopped and would begin again is no difference, because the folder was opened with that file before. A
//! collection that was already undeclared at the last opening is no difference either ([`crate::opening::losses`]).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value as Json, json};
use store::Store;

use super::losses;
use super::open_error::OpenError;
use super::stored_catalog::{self, CATALOG_TREE, Rows};
use crate::config::{CollectionConfig, Config};
use crate::views;

/// Differences described in words; further ones are only counted.
pub const DIFFERENCES_MAX: usize = 20;

/// The fields of catalog rows that come from a declaration. A missing field counts as null.
const COMPARED: [&str; 7] = ["key", "type", "schema", "expire", "expire_after", "included", "target"];

/// The differences between a configuration and a folder's catalog.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// What opening would do, in words; empty: nothing.
    pub told: Vec<String>,
    /// The number of differences beyond [`DIFFERENCES_MAX`].
    pub more: usize,
}

impl Differences {
    /// Compares a configuration with the catalog of a store. An empty catalog has no differences: no configuration has opened
    /// the store, so nothing can be dropped or built.
    pub fn find(config: &Config, store: &Store) -> Result<Differences, OpenError> {
        let mut found = Differences::default();
        let Some(tree) = store.existing_tree(CATALOG_TREE)? else { return Ok(found) };
        let reader = store.reader()?;
        let snapshot = reader.snapshot();
        let stored = stored_catalog::read(&snapshot, tree)?;
        if !stored.is_empty() {
            found.compare_rows(config, &stored);
            for name in losses::undeclared(config, store, &snapshot, &stored)? {
                found.add(format!("the collection {name} would be dropped (its documents stay in the folder)"));
            }
            found.compare_views(config, &views::declared_in(&stored));
        }
        Ok(found)
    }

    /// Whether opening would change nothing.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    pub(crate) fn add(&mut self, what: String) {
        if self.told.len() < DIFFERENCES_MAX {
            self.told.push(what);
        } else {
            self.more += 1;
        }
    }

    fn compare_rows(&mut self, config: &Config, stored: &Rows) {
        let wanted = wanted_rows(config);
        for (key, wanted) in &wanted {
            let stored = stored.get(key).and_then(|row| serde_json::from_str::<Json>(row).ok());
            let Some((kind, _, name)) = part_of(key) else { continue };
            let Some(stored) = stored else {
                let done = if kind == "collection" { "made" } else { "built" };
                self.add(format!("the {kind} {name} would be {done}"));
                continue;
            };
            let other: Vec<&str> = COMPARED.into_iter().filter(|field| stored[field] != wanted[field]).collect();
            if !other.is_empty() {
                self.add(format!("the {kind} {name} would be changed ({})", other.join(", ")));
            }
        }
        for key in stored.keys().filter(|key| !wanted.contains_key(*key)) {
            let Some((kind, collection, name)) = part_of(key) else { continue };
            let is_declared = config.collections.iter().any(|declared| declared.name == collection);
            if kind == "reference" || (kind != "collection" && is_declared) {
                self.add(format!("the {kind} {name} would be dropped"));
            }
        }
    }

    fn compare_views(&mut self, config: &Config, stored: &BTreeMap<String, String>) {
        for wanted in &config.views {
            match stored.get(&wanted.name) {
                None => self.add(format!("the view {} would be built", wanted.name)),
                Some(query) if *query != wanted.query => {
                    self.add(format!("the view {} would be built anew, of another query", wanted.name));
                }
                Some(_) => {}
            }
        }
        for name in stored.keys().filter(|name| config.views.iter().all(|view| view.name != **name)) {
            self.add(format!("the view {name} would be dropped"));
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.told.join("; "))?;
        if self.more > 0 {
            write!(out, "; and {} more", self.more)?;
        }
        Ok(())
    }
}

/// The catalog rows that a configuration alone determines.
pub(crate) fn wanted_rows(config: &Config) -> BTreeMap<String, Json> {
    config.collections.iter().flat_map(|collection| rows_of(config, collection)).collect()
}

/// The catalog rows of one collection that its declaration alone determines.
fn rows_of(config: &Config, wanted: &CollectionConfig) -> Vec<(String, Json)> {
    let mut rows = vec![(stored_catalog::collection_row(wanted), stored_catalog::declared_row(wanted))];
    for fields in stored_catalog::index_fields(wanted, wanted.expire.as_ref()) {
        let included = stored_catalog::included(config, wanted, &fields);
        rows.push((stored_catalog::index_row(wanted, &fields), json!({ "included": included })));
    }
    rows.extend(wanted.unique.iter().map(|fields| (stored_catalog::unique_row(wanted, fields), json!({}))));
    let references = wanted.references.iter();
    rows.extend(references.map(|(field, target)| {
        let row = json!({ "target": target });
        (stored_catalog::reference_row(wanted, field), row)
    }));
    rows
}

/// The part that a row describes: its kind in words, its collection, and its name. `None` for rows that no declaration makes,
/// and for rows of views.
pub(crate) fn part_of(key: &str) -> Option<(&'static str, &str, String)> {
    let mut parts = key.splitn(3, '/');
    let (kind, collection) = (parts.next()?, parts.next()?);
    let of = parts.next().map(|fields| format!("{collection}({fields})"));
    match kind {
        "collection" => Some(("collection", collection, collection.to_string())),
        "index" => Some(("index", collection, of?)),
        "unique" => Some(("unique field", collection, of?)),
        "reference" => Some(("reference", collection, of?)),
        _ => None,
    }
}
