//! Pages of a query by keyset. A page ends at the ORDER BY values of its last row, and the next page begins after these values.
//! So writes between two requests do not shift the pages.
//!
//! A query's ORDER BY is completed to a total order (`keyset.rs`). The values of a page's last row in that order are its
//! position ([`Paged::write`] returns it). The next page is the same query with the predicate that a row comes after that
//! position. A row that exists all the time, and whose ORDER BY values do not change, is returned exactly once, whatever else
//! is written meanwhile.
//!
//! ORDER BY values that are not result columns are selected after the columns of the text, and no sink sees them. If an index
//! or the keys have the order of the first ORDER BY term, the predicate is a bound of that range.

use std::sync::Arc;

use bumpalo::Bump;

use super::keyset;
use super::query::PreparedQuery;
use crate::catalog::Catalog;
use crate::engine::ReadView;
use crate::sql::execution::Scratch;
use crate::sql::expressions::Expr;
use crate::sql::limits::{Budget, ExecutionCounts, Meter, QueryError, SqlError};
use crate::sql::resolve::{self, OutputColumn};
use crate::sql::rows::sink::is_infinite;
use crate::sql::rows::{INFINITE, JsonRows, RowSink};
use crate::sql::syntax::parse;
use crate::sql::values::{FieldValue, OwnedValue, Value, Workspace, value};

/// Most rows of a page.
pub const PAGE_ROWS_MAX: u64 = 10_000;

/// A query that is read in pages, prepared once for all of them. A page ends at the ORDER BY values of its last row, and the
/// next page begins after these.
#[derive(Debug)]
pub struct Paged {
    first: PreparedQuery,
    next: PreparedQuery,
    /// Number of result columns of the text.
    columns: usize,
    /// Number of parameters of the text; after them come those of the position, then the limit.
    parameters: usize,
    /// For each term of the order, the column with its value.
    places: Vec<usize>,
}

/// The requested page.
#[derive(Clone, Copy, Debug)]
pub struct PageAt<'w> {
    /// Most rows: at least one, at most [`PAGE_ROWS_MAX`].
    pub rows_max: u64,
    /// The position of the previous page's end; `None` for the first page.
    pub after: Option<&'w [OwnedValue]>,
}

impl PageAt<'_> {
    fn rows_max(&self) -> u64 {
        self.rows_max.clamp(1, PAGE_ROWS_MAX)
    }
}

impl Paged {
    /// Estimate of its bytes in memory, without its plans.
    pub fn bytes(&self) -> usize {
        self.first.bytes() + self.next.bytes() + self.places.len() * size_of::<usize>()
    }

    /// Prepares a query whose rows can be totally ordered; any other is refused with a position.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<Paged, SqlError> {
        let parsed = parse::parse(sql)?;
        let catalog = catalog.with_views();
        let mut logical = resolve::resolve(sql, &parsed, &catalog)?;
        let (columns, parameters) = (logical.outputs.len(), logical.parameters.len());
        keyset::complete(&mut logical, &catalog, &parsed.query)?;
        let mut places = Vec::new();
        for (expr, _) in &logical.order {
            let known = logical.outputs.iter().position(|output| output.expr == *expr);
            places.push(known.unwrap_or_else(|| {
                logical.outputs.push(OutputColumn { name: String::new(), expr: expr.clone() });
                logical.outputs.len() - 1
            }));
        }
        let mut next = logical.clone();
        keyset::behind(&mut next, &catalog);
        let [first, next] = [logical, next].map(|mut logical| {
            // One more row shows whether there is another page.
            logical.limit = Some(Expr::Parameter(logical.parameters.len()));
            logical.parameters.push("rows max".to_owned());
            PreparedQuery::of(logical, catalog.clone())
        });
        Ok(Paged { first, next, columns, parameters, places })
    }

    /// The query of the first page, or of later ones.
    pub fn query(&self, is_first: bool) -> &PreparedQuery {
        if is_first { &self.first } else { &self.next }
    }

    /// The names of the text's parameters, by slot.
    pub fn parameters(&self) -> &[String] {
        &self.first.parameters()[..self.parameters]
    }

    /// The names of the result columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.first.columns().take(self.columns)
    }

    /// The plan for these values in one line of ASCII, and whether it scans a whole collection.
    pub fn plan_line(&self, parameters: &[Value<'_>], wanted: PageAt<'_>) -> (Arc<str>, bool) {
        let values = self.values(parameters, wanted).unwrap_or_default();
        self.query(wanted.after.is_none()).plan_line(&values)
    }

    /// Runs it and appends its rows as JSON objects, separated by commas. Returns the position of the last one if more follow.
    /// `parameters` are the values of the text's parameters, by slot.
    pub fn write(
        &self,
        (view, wanted): (&dyn ReadView, PageAt<'_>),
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(ExecutionCounts, Option<Vec<OwnedValue>>), QueryError> {
        let (values, rows_max) = (self.values(parameters, wanted)?, wanted.rows_max());
        let query = self.query(wanted.after.is_none());
        let mut sink = Page {
            rows: query.json_rows(out, b','),
            paged: self,
            rows_max,
            number: 0,
            place: vec![OwnedValue::Null; self.places.len()],
            arena: Bump::new(),
            is_damaged: false,
            is_infinite: false,
        };
        let outcome = query.execute(view, &values, scratch, budget, &mut sink)?;
        if sink.is_infinite {
            return Err(QueryError::Value(INFINITE));
        }
        if sink.is_damaged {
            return Err(QueryError::Damaged("a field that rows are ordered by"));
        }
        let more = sink.number > rows_max;
        Ok((ExecutionCounts { rows: outcome.rows.min(rows_max), ..outcome }, more.then_some(sink.place)))
    }

    /// The values of all parameters.
    fn values<'v>(&self, parameters: &[Value<'v>], wanted: PageAt<'v>) -> Result<Vec<Value<'v>>, QueryError> {
        if parameters.len() != self.parameters {
            return Err(QueryError::Parameters { expected: self.parameters, given: parameters.len() });
        }
        if wanted.after.is_some_and(|after| after.len() != self.places.len()) {
            return Err(QueryError::Value("this position is of another query"));
        }
        let place = wanted.after.into_iter().flatten().map(OwnedValue::value);
        let most = Value::Integer(wanted.rows_max() as i64 + 1);
        Ok(parameters.iter().copied().chain(place).chain(std::iter::once(most)).collect())
    }
}

/// Writes a page's rows, and records the position of the last one.
struct Page<'p> {
    rows: JsonRows<'p>,
    paged: &'p Paged,
    rows_max: u64,
    /// The number of the current row, from 1.
    number: u64,
    place: Vec<OwnedValue>,
    arena: Bump,
    is_damaged: bool,
    /// A visible result is infinite, which JSON cannot represent.
    is_infinite: bool,
}

impl Page<'_> {
    fn note(&mut self, column: usize, field: FieldValue<'_>) {
        // The values of only one row.
        let meter = Meter::unbounded();
        let workspace = Workspace::new(&self.arena, &meter);
        let value = match field {
            FieldValue::Json(json) => value::of_json(json, workspace).unwrap_or_else(|_| {
                self.is_damaged = true;
                Value::Null
            }),
            FieldValue::Value(value) => value,
        };
        let here = self.paged.places.iter().zip(&mut self.place).filter(|(place, _)| **place == column);
        here.for_each(|(_, place)| *place = OwnedValue::new(&value));
    }
}

impl RowSink for Page<'_> {
    fn begin_row(&mut self) {
        self.number += 1;
        if self.number <= self.rows_max {
            self.rows.begin_row();
        }
    }

    fn field(&mut self, column: usize, field: FieldValue<'_>) {
        if self.number == self.rows_max {
            self.note(column, field);
        }
        if column < self.paged.columns && self.number <= self.rows_max {
            self.is_infinite |= is_infinite(field);
            self.rows.field(column, field);
        }
    }

    fn end_row(&mut self) {
        if self.number <= self.rows_max {
            self.rows.end_row();
        }
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// Hidden ORDER BY values may be infinite: a stored 1e400 does not stop the pages.
    fn takes_infinite(&self) -> bool {
        true
    }
}

/// Appends the encoding of a position.
pub fn encode_place(place: &[OwnedValue], out: &mut Vec<u8>) {
    place.iter().for_each(|value| crate::sql::values::sort::push_field(FieldValue::Value(value.value()), out));
}

/// Decodes what [`encode_place`] wrote. `None` if these bytes are no position.
pub fn decode_place(mut bytes: &[u8]) -> Option<Vec<OwnedValue>> {
    let whole = bytes;
    let mut place = Vec::new();
    while !bytes.is_empty() {
        match crate::sql::values::sort::take_field(&mut bytes) {
            FieldValue::Value(Value::Text(text)) if std::str::from_utf8(text).is_err() => return None,
            FieldValue::Value(Value::Real(real)) if real.is_nan() => return None,
            FieldValue::Value(value) => place.push(OwnedValue::new(&value)),
            FieldValue::Json(_) => return None,
        }
    }
    // Refuses bytes that are truncated, or differ from their canonical encoding.
    let mut again = Vec::with_capacity(whole.len());
    encode_place(&place, &mut again);
    (again == whole).then_some(place)
}
