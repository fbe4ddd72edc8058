//! `[views.NAME]`: a grouped query whose rows every write keeps up to date.

use super::Config;
use super::table::{Item, Table};
use crate::views::{VIEWS_MAX, compile};

/// A view as the file declares it. Its query is checked against the collections and the other views.
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
    let mut entries = table.entries();
    if entries.len() > VIEWS_MAX {
        table.mistake(format!("{} views", entries.len()), format!("up to {VIEWS_MAX}"));
        entries.truncate(VIEWS_MAX);
    }
    let catalog = if root.source().is_clean() { crate::outline(config).ok() } else { None };
    let read: Vec<Option<(ViewConfig, Item<'_>)>> = entries.iter().map(|item| read(item, config)).collect();
    let read: Vec<(ViewConfig, Item<'_>)> = read.into_iter().flatten().collect();
    if let Some(catalog) = catalog {
        let queries: Vec<(&str, &str)> = read.iter().map(|(view, _)| (&*view.name, &*view.query)).collect();
        for (definition, (_, query)) in compile(&queries, &catalog).definitions.into_iter().zip(&read) {
            if let Err(why) = definition {
                query.mistake(format!("`{}`: {why}", query.path()), "");
            }
        }
    }
    read.into_iter().map(|(view, _)| view).collect()
}

fn read<'t>(item: &Item<'t>, config: &Config) -> Option<(ViewConfig, Item<'t>)> {
    super::collection::check_name(item, "view");
    let name = item.name();
    if config.collections.iter().any(|collection| collection.name.eq_ignore_ascii_case(name)) {
        item.mistake_in_name(format!("a collection is named \"{name}\" already"), "a name of its own");
    }
    let table = item.table()?;
    table.check_keys(&["query"], &[]);
    let query = table.require("query")?;
    let text = query.text()?.to_string();
    Some((ViewConfig { name: name.to_string(), query: text }, query))
}
