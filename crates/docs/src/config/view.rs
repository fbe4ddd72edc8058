//! `[views.NAME]`: a grouped query whose rows every write keeps up to date.

use super::Config;
use super::table::{Item, Table};
use crate::sql::unstored;
use crate::views::VIEWS_MAX;
use crate::views::definition::Definition;

/// A view as the file declares it. Its query is checked against the collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewConfig {
    /// Its name.
    pub name: String,
    /// Its query.
    pub query: String,
}

/// Reads all views of the file. The collections were read before, without a mistake, or queries are not checked.
pub(crate) fn read_all(root: &Table<'_>, config: &Config) -> Vec<ViewConfig> {
    let Some(table) = root.get("views").and_then(|item| item.table()) else { return Vec::new() };
    let entries = table.entries();
    if entries.len() > VIEWS_MAX {
        table.mistake(format!("{} views", entries.len()), format!("up to {VIEWS_MAX}"));
    }
    let mut catalog = if root.source().is_clean() { crate::outline(config).ok() } else { None };
    if let Some(catalog) = &mut catalog {
        // By name alone: a view that reads another is told so.
        catalog.views = entries.iter().map(|item| unstored(item.name(), Vec::new())).collect();
    }
    entries.iter().filter_map(|item| read(item, config, catalog.as_ref())).collect()
}

fn read(item: &Item<'_>, config: &Config, catalog: Option<&crate::catalog::Catalog>) -> Option<ViewConfig> {
    super::collection::check_name(item, "view");
    let name = item.name();
    if config.collections.iter().any(|collection| collection.name.eq_ignore_ascii_case(name)) {
        item.mistake_in_name(format!("a collection is named \"{name}\" already"), "a name of its own");
    }
    let table = item.table()?;
    table.check_keys(&["query"], &[]);
    let query = table.require("query")?;
    let text = query.text()?;
    if let Some(Err(why)) = catalog.map(|catalog| Definition::compile(text, catalog)) {
        query.mistake(format!("`{}`: {why}", query.path()), "");
    }
    Some(ViewConfig { name: name.to_string(), query: text.to_string() })
}
