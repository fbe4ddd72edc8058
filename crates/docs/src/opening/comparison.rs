//! What opening a folder with a configuration would change in the folder's catalog. For tools that only inspect a folder and
//! must not apply the file of another service, or an older one, to it. Nothing is changed here.
//!
//! A build that was stopped and would begin again is no difference, because the folder was opened with that file before. A
//! collection that was already undeclared at the last opening is no difference either ([`crate::opening::losses`]).

use std::collections::BTreeMap;

use super::declared_rows::{part_of, wanted_rows};
use super::differences::Differences;
use super::losses;
use super::open_error::DatabaseOpenError;
use super::stored_rows::{self, CATALOG_TREE, Rows, parsed};
use crate::config::Config;
use crate::engine::Store;
use crate::views;

/// The fields of catalog rows that come from a declaration, and the format of an index. A missing field counts as null.
const COMPARED: [&str; 8] = ["key", "type", "schema", "expire", "expire_after", "included", "format", "target"];

impl Differences {
    /// Compares a configuration with the catalog of a store. An empty catalog has no differences: no configuration has opened
    /// the store, so nothing can be dropped or built.
    pub fn find(config: &Config, store: &Store) -> Result<Differences, DatabaseOpenError> {
        let mut found = Differences::default();
        let Some(tree) = store.existing_tree(CATALOG_TREE)? else { return Ok(found) };
        let reader = store.reader()?;
        let snapshot = reader.snapshot();
        let stored = stored_rows::read(&snapshot, tree)?;
        if !stored.is_empty() {
            found.compare_rows(config, &stored);
            for name in losses::undeclared(config, store, &snapshot, &stored)? {
                found.add(format!("the collection {name} would be dropped (its documents stay in the folder)"));
            }
            found.compare_views(config, &views::declared_in(&stored));
        }
        Ok(found)
    }

    fn compare_rows(&mut self, config: &Config, stored: &Rows) {
        let wanted = wanted_rows(config);
        for (key, wanted) in &wanted {
            let Some((kind, _, name)) = part_of(key) else { continue };
            let Some(stored) = stored.get(key).map(|row| parsed(row)) else {
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
