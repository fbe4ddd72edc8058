//! Views declared by a test, and the comparison with their queries, run from scratch.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use docs::DocumentDatabase;
use docs::config::Config;
use docs::sql::{Budget, Scratch};
use serde_json::Value as Json;

use crate::service::config;

/// Names and queries.
pub(crate) type Views = Vec<(&'static str, &'static str)>;

/// A configuration with these collections and views.
pub(crate) fn with_views(collections: &str, views: &[(&str, &str)]) -> Config {
    let views = views.iter().map(|(name, query)| format!("[views.{name}]\nquery = \"\"\"{query}\"\"\"\n"));
    let mut config = config(&(collections.to_string() + &views.collect::<String>()));
    config.build_threads = 2;
    config
}

/// The result of a query, sorted.
pub(crate) fn try_rows(database: &DocumentDatabase, sql: &str) -> Result<Vec<Json>, String> {
    let query = database.prepare_query(sql).map_err(|why| why.to_string())?;
    let session = database.session().unwrap();
    let (now, mut out) = (session.now(), Vec::new());
    let run = query.write_array(now.view(), &[], &mut Scratch::new(), &Budget::default(), &mut out);
    run.map_err(|why| why.to_string())?;
    let mut rows: Vec<Json> = serde_json::from_slice(&out).unwrap();
    rows.sort_by_cached_key(Json::to_string);
    Ok(rows)
}

#[track_caller]
pub(crate) fn rows(database: &DocumentDatabase, sql: &str) -> Vec<Json> {
    try_rows(database, sql).unwrap_or_else(|why| panic!("{sql}: {why}"))
}

/// Compares each view with its query. Views with ROLLUP are checked by verification alone.
#[track_caller]
pub(crate) fn check(database: &DocumentDatabase, views: &Views) {
    for (name, query) in views {
        // COUNT(DISTINCT) of reals counts 1 and 1.0 once, as the view does.
        if !query.contains("ROLLUP") {
            assert_eq!(rows(database, &format!("SELECT * FROM {name}")), rows(database, query), "{name}: {query}");
        }
        let report = database.verify_view(name).unwrap().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
