//! `[views.NAME]`: a grouped query whose result every write keeps up to date.

use super::table::{ConfigTable, Item};
use super::{Config, ViewConfig, names};
use crate::views::{VIEWS_MAX, compile};

/// Reads all views of the file, after the collections. Returns those that could be read, and the names of everything with
/// mistakes so far.
pub(crate) fn read_all(root: &ConfigTable<'_>, config: &Config) -> (Vec<ViewConfig>, Vec<String>) {
    let mut doubtful = config.doubtful.clone();
    let Some(table) = root.get("views").and_then(|item| item.table()) else { return (Vec::new(), doubtful) };
    let mut entries = table.entries();
    if entries.len() > VIEWS_MAX {
        table.mistake(format!("{} views", entries.len()), format!("up to {VIEWS_MAX}"));
        entries.truncate(VIEWS_MAX);
    }
    let mut views: Vec<(ViewConfig, Item<'_>)> = Vec::new();
    for item in &entries {
        let before = root.source().mistakes();
        views.extend(read(item, config));
        if root.source().mistakes() > before {
            doubtful.push(item.name().to_string());
        }
    }
    check_queries(&views, config, &mut doubtful);
    (views.into_iter().map(|(view, _)| view).collect(), doubtful)
}

/// Records the mistakes of queries. A query that names a view or collection with mistakes of its own is skipped. If views with
/// mistakes name one another in a cycle, all their mistakes are recorded.
fn check_queries(views: &[(ViewConfig, Item<'_>)], config: &Config, doubtful: &mut Vec<String>) {
    let Ok(catalog) = crate::outline(config) else { return };
    let queries: Vec<(&str, &str)> = views.iter().map(|(view, _)| (&*view.name, &*view.query)).collect();
    let definitions = compile(&queries, &catalog).definitions.into_iter();
    let failed: Vec<_> = definitions.zip(views).filter_map(|(made, view)| Some((made.err()?, view))).collect();
    let failed_names: Vec<String> = failed.iter().map(|(_, (view, _))| view.name.clone()).collect();
    let names_known = |query: &str| doubtful.iter().any(|name| names(query, name));
    let own: Vec<_> = failed.into_iter().filter(|(_, (view, _))| !names_known(&view.query)).collect();
    let names_other = |view: &ViewConfig| {
        own.iter().any(|(_, (other, _))| other.name != view.name && names(&view.query, &other.name))
    };
    let is_knot = own.iter().all(|(_, (view, _))| names_other(view));
    for (why, (_, item)) in own.iter().filter(|(_, (view, _))| is_knot || !names_other(view)) {
        item.mistake(format!("`{}`: {why}", item.path()), "");
    }
    doubtful.extend(failed_names);
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
