//! `steps` of an endpoint: statements in one transaction, each with its expectation and the answer if that fails.

use docs::config::{ConfigTable, Item};
use docs::statements::STEPS_MAX;
use std::ops::Range;

const KEYS: [&str; 4] = ["sql", "expect", "else", "detail"];
/// The status of a failed expectation, unless `else` sets one.
const OTHERWISE: u16 = 409;
/// Bytes of a `detail`.
pub(super) const DETAIL_BYTES_MAX: usize = 1024;

/// One step, as written; its SQL is not prepared yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepConfig {
    /// The statement.
    pub sql: String,
    /// Expectation about the result: an expression over `rows`.
    pub expect: Option<String>,
    /// The status if the expectation fails.
    pub otherwise: u16,
    /// The detail of that reply.
    pub detail: Option<String>,
    /// Bytes of the statement and of the expectation in the file, for mistakes found later.
    pub spans: [Range<usize>; 2],
}

/// Reads the list. If there are mistakes, they are recorded and the result is `None`.
pub(super) fn read(item: &Item<'_>) -> Option<Vec<StepConfig>> {
    let items = item.list()?;
    if items.is_empty() || items.len() > STEPS_MAX {
        item.mistake(format!("{} steps", items.len()), format!("1 to {STEPS_MAX}"));
        return None;
    }
    let steps: Vec<StepConfig> = items.iter().filter_map(|item| read_one(&item.table()?)).collect();
    (steps.len() == items.len()).then_some(steps)
}

fn read_one(table: &ConfigTable<'_>) -> Option<StepConfig> {
    table.check_keys(&KEYS, &[]);
    let sql = table.require("sql")?;
    let expect = table.get("expect");
    let status = table.get("else").and_then(|item| item.integer(400..=599));
    let detail = table.get("detail").and_then(|item| Some((item.text()?.to_owned(), item)));
    if let Some((text, item)) = detail.as_ref().filter(|(text, _)| text.len() > DETAIL_BYTES_MAX) {
        item.mistake(format!("`{}` has {} bytes", item.path(), text.len()), format!("at most {DETAIL_BYTES_MAX}"));
    }
    if expect.is_none()
        && let Some(item) = table.get("else").or_else(|| table.get("detail"))
    {
        item.mistake(format!("`{}` without `expect`", item.path()), "expect = \"rows > 0\", or neither");
    }
    let spans = [sql.span(), expect.as_ref().map_or(sql.span(), |item| item.span())];
    let expect = match &expect {
        None => None,
        Some(item) => Some(item.text()?.to_owned()),
    };
    Some(StepConfig {
        sql: sql.text()?.to_owned(),
        expect,
        otherwise: status.and_then(|status| u16::try_from(status).ok()).unwrap_or(OTHERWISE),
        detail: detail.map(|(text, _)| text),
        spans,
    })
}
