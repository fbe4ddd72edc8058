//! Pages of declared queries: `page = { limit = 20, max = 100 }` in an endpoint.
//!
//! A request's `limit` is the number of rows, up to `max`, and `after` is the cursor of the page before (`cursor.rs`). The reply
//! is `{"items":[…],"after":CURSOR}`, with null after the last page; `wrap` gives `items` another name. The statement is prepared
//! once for all pages (`docs::sql::Paged`).

use super::cursor::{self, StatementChecksum};
use crate::config::{AFTER, LIMIT, PageConfig};
use crate::failure::{Failure, FailureKind};
use docs::catalog::Catalog;
use docs::sql::{Budget, ExecutionCounts, OwnedValue, PageAt, Paged, QueryError, Scratch, SqlError, Value};
use http::query;
use std::sync::Arc;

/// Default name of the rows, without `wrap`.
pub(crate) const ITEMS: &str = "items";
/// Limit of a cursor, so that it fits into a request's target: the target's default limit is 8 KiB, and it contains more.
const CURSOR_BYTES_MAX: usize = 6 << 10;

/// A declared query that returns pages.
pub(crate) struct Pages {
    paged: Paged,
    config: PageConfig,
    /// Checksum of the statement.
    asked: StatementChecksum,
}

/// The requested page.
#[derive(Clone)]
pub(crate) struct Page {
    rows_max: u64,
    after: Option<Vec<OwnedValue>>,
    asked: StatementChecksum,
}

impl Page {
    /// `asked` identifies the query to which the cursor belongs.
    pub(crate) fn new(rows_max: u64, after: Option<Vec<OwnedValue>>, asked: StatementChecksum) -> Page {
        Page { rows_max, after, asked }
    }

    pub(crate) fn at(&self) -> PageAt<'_> {
        PageAt { rows_max: self.rows_max, after: self.after.as_deref() }
    }

    /// Closes a page after its rows, with the cursor if there are more rows. Returns the bytes of the cursor.
    pub(crate) fn close(&self, end: Option<Vec<OwnedValue>>, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(b"],\"after\":");
        let Some(cursor) = end.map(|end| cursor::write(&end, self.asked)) else {
            out.extend_from_slice(b"null}");
            return 0;
        };
        out.extend_from_slice(format!("\"{cursor}\"}}").as_bytes());
        cursor.len()
    }
}

impl Pages {
    /// Approximate bytes of memory, without its plans.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Pages>() + self.paged.bytes()
    }

    pub(crate) fn prepare(sql: &str, page: PageConfig, catalog: &Catalog) -> Result<Pages, SqlError> {
        Ok(Pages { paged: Paged::prepare(sql, catalog)?, config: page, asked: StatementChecksum::of(sql) })
    }

    /// The requested page; `values` are those of the statement that the request gave.
    pub(crate) fn wanted<'v>(&self, text: &str, values: impl Iterator<Item = &'v Value<'v>>) -> Result<Page, Failure> {
        let invalid = |detail: String| Failure::new(FailureKind::Invalid, detail);
        let asked = values.fold(self.asked, |asked, value| asked.and_value(value));
        let rows_max = match parameter(text, LIMIT)? {
            None => self.config.limit,
            Some(limit) => {
                let number = limit.parse().ok().filter(|rows| (1..=self.config.max).contains(rows));
                number.ok_or_else(|| {
                    invalid(format!("parameter `limit` is `{limit}`; allowed: 1 to {}", self.config.max))
                })?
            }
        };
        let after = match parameter(text, AFTER)? {
            None => None,
            Some(text) => Some(cursor::read(&text, asked).ok_or_else(|| {
                invalid("parameter `after` is no cursor of this list with these parameters".to_owned())
            })?),
        };
        Ok(Page::new(rows_max, after, asked))
    }

    /// Runs the query and appends a page after the beginning of its rows: the rows, and the end.
    pub(crate) fn write(
        &self,
        (now, page): (&docs::Moment<'_>, &Page),
        values: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, QueryError> {
        let (outcome, end) = self.paged.write((now.view(), page.at()), values, scratch, budget, out)?;
        if page.close(end, out) > CURSOR_BYTES_MAX {
            let limit = CURSOR_BYTES_MAX as u64;
            return Err(QueryError::Limit { what: "bytes of a cursor, which holds what rows are ordered by", limit });
        }
        Ok(outcome)
    }

    /// How the page's rows are found, in one line, and whether a whole collection is read.
    pub(crate) fn plan_line(&self, page: &Page, values: &[Value<'_>]) -> (Arc<str>, bool) {
        self.paged.plan_line(values, page.at())
    }
}

/// A page was requested as lines or CSV.
pub(crate) fn not_json() -> Failure {
    Failure::new(FailureKind::Invalid, "a page is JSON: its cursor stands beside its rows")
}

/// A parameter's text; of repeated ones the first counts.
fn parameter(text: &str, name: &str) -> Result<Option<String>, Failure> {
    let refused = |why: String| Failure::new(FailureKind::Invalid, format!("parameter `{name}` {why}"));
    let mut decoded = Vec::new();
    let is_named = |given: &str, decoded: &mut Vec<u8>| query::decode(given, decoded).is_ok_and(|given| given == name);
    let Some((_, value)) = query::pairs(text).find(|(given, _)| is_named(given, &mut decoded)) else { return Ok(None) };
    let value = query::decode(value, &mut decoded).map_err(|error| refused(error.to_string()))?;
    if value.is_empty() { Err(refused("is empty".to_owned())) } else { Ok(Some(value.to_owned())) }
}
