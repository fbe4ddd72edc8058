//! `[guards.NAME]`: a SELECT that must return a row before an endpoint that names it does anything.
//!
//! Its parameters come only from header fields, cookies and `[params]`, so that it means the same in every endpoint.
//! The columns of its row are parameters of the endpoint; no other parameter may have such a name (`lifecycle::loading`).

use super::steps::{DETAIL_BYTES_MAX, StepConfig};
use docs::config::{ConfigTable, Item, Parameter, ParameterPlace};
use std::ops::Range;
use std::sync::Arc;

const KEYS: [&str; 4] = ["sql", "params", "else", "detail"];
/// The status if it returns no row, unless `else` sets one.
const OTHERWISE: u16 = 401;
/// Limit of guards of a file.
const GUARDS_MAX: usize = 64;
/// Limit of parameters of a guard.
const PARAMETERS_MAX: usize = 16;

/// One guard, as written; its SQL is not prepared yet.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardConfig {
    /// Its name.
    pub name: String,
    /// The query.
    pub sql: String,
    /// Its parameters, taken from the request.
    pub params: Vec<Parameter>,
    /// The status if it returns no row.
    pub otherwise: u16,
    /// The detail of that reply.
    pub detail: String,
    /// Bytes of the query in the file, for mistakes found later.
    pub span: Range<usize>,
}

impl GuardConfig {
    /// As the first of an endpoint's steps.
    pub(super) fn step(&self) -> StepConfig {
        StepConfig {
            sql: self.sql.clone(),
            expect: Some("rows > 0".to_owned()),
            otherwise: self.otherwise,
            detail: Some(self.detail.clone()),
            spans: [self.span.clone(), self.span.clone()],
        }
    }

    /// The guard that an endpoint names.
    pub(super) fn named(item: &Item<'_>, guards: &[Arc<GuardConfig>]) -> Option<Arc<GuardConfig>> {
        if guards.is_empty() {
            item.mistake("the file has no guard of this name, nor any other", "the NAME of a table [guards.NAME]");
            return None;
        }
        let words: Vec<(&str, &Arc<GuardConfig>)> = guards.iter().map(|guard| (guard.name.as_str(), guard)).collect();
        item.word(&words).map(Arc::clone)
    }
}

/// Reads all guards of the file.
pub(crate) fn read_all(root: &ConfigTable<'_>) -> Vec<Arc<GuardConfig>> {
    let Some(table) = root.get("guards").and_then(|item| item.table()) else { return Vec::new() };
    let mut entries = table.entries();
    if entries.len() > GUARDS_MAX {
        table.mistake(format!("{} guards", entries.len()), format!("up to {GUARDS_MAX}"));
        entries.truncate(GUARDS_MAX);
    }
    entries.iter().filter_map(|item| read(item).map(Arc::new)).collect()
}

fn read(item: &Item<'_>) -> Option<GuardConfig> {
    let table = item.table()?;
    table.check_keys(&KEYS, &[]);
    let name = item.name().to_owned();
    let sql = table.require("sql");
    let params = table.get("params").and_then(|item| item.table()).map(|table| read_params(&table));
    let otherwise = table.get("else").and_then(|item| item.integer(400..=499));
    let detail = table.get("detail").and_then(|item| Some((item.text()?.to_owned(), item)));
    if let Some((text, item)) = detail.as_ref().filter(|(text, _)| text.len() > DETAIL_BYTES_MAX) {
        item.mistake(format!("`{}` has {} bytes", item.path(), text.len()), format!("at most {DETAIL_BYTES_MAX}"));
    }
    let sql = sql?;
    Some(GuardConfig {
        sql: sql.text()?.to_owned(),
        params: params.unwrap_or_default(),
        otherwise: otherwise.and_then(|status| u16::try_from(status).ok()).unwrap_or(OTHERWISE),
        detail: detail.map_or_else(|| format!("the guard `{name}` gives no row"), |(text, _)| text),
        span: sql.span(),
        name,
    })
}

fn read_params(table: &ConfigTable<'_>) -> Vec<Parameter> {
    let mut entries = table.entries();
    if entries.len() > PARAMETERS_MAX {
        table.mistake(format!("{} parameters", entries.len()), format!("up to {PARAMETERS_MAX}"));
        entries.truncate(PARAMETERS_MAX);
    }
    let read = |item: &Item<'_>| {
        let before = item.source().mistakes();
        let parameter = Parameter::read(item);
        if parameter.from == ParameterPlace::Query && item.source().mistakes() == before {
            let what = format!("`{}` comes from the query, where it would be the endpoint's", item.path());
            item.mistake(what, "from = \"header:NAME\" or \"cookie:NAME\"");
        }
        parameter
    };
    entries.iter().map(read).collect()
}
