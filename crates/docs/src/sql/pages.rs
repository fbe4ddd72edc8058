//! Pages of a query by keyset: where a page ended is told by values, so that a page can begin behind them while writes go on.
//!
//! A query's ORDER BY is completed so that it tells all rows apart (`keyset.rs`). What the last row of a page has there is
//! its place ([`Paged::write`] gives it); the next page is the same query with the condition that a row lies behind
//! that place. A row that was there all the time and whose values in ORDER BY did not change comes exactly once, whatever
//! was written in between.
//!
//! Values that are not among the results are selected behind those of the text, and no sink sees them. Where the first of
//! them is in the order of an index, or of the keys, the condition is a bound of that range.

use std::sync::Arc;

use bumpalo::Bump;

use super::budget::{Budget, Meter, Outcome};
use super::error::{QueryError, SqlError};
use super::expr::Expr;
use super::keyset;
use super::parse;
use super::query::Query;
use super::resolve::{self, Output};
use super::row::Field;
use super::run::Scratch;
use super::sink::{INFINITE, JsonRows, RowSink, is_infinite};
use super::value::{self, OwnedValue, Value};
use super::workspace::Workspace;
use crate::catalog::Catalog;
use crate::engine::View;

/// Most rows of a page.
pub const PAGE_ROWS_MAX: u64 = 10_000;

/// A query that gives pages, prepared once for all of them. See the module's text.
#[derive(Debug)]
pub struct Paged {
    first: Query,
    next: Query,
    /// Result columns of the text.
    columns: usize,
    /// Parameters of the text: behind them those of the place, then the limit.
    parameters: usize,
    /// For each term of the order, the column that has its value.
    places: Vec<usize>,
}

/// Which page is wanted.
#[derive(Clone, Copy, Debug)]
pub struct PageAt<'w> {
    /// Most rows: at least one, at most [`PAGE_ROWS_MAX`].
    pub rows_max: u64,
    /// Where the page before ended; without it the first page is wanted.
    pub after: Option<&'w [OwnedValue]>,
}

impl PageAt<'_> {
    fn rows_max(&self) -> u64 {
        self.rows_max.clamp(1, PAGE_ROWS_MAX)
    }
}

impl Paged {
    /// About how many bytes it has in memory, but for its plans.
    pub fn bytes(&self) -> usize {
        self.first.bytes() + self.next.bytes() + self.places.len() * size_of::<usize>()
    }

    /// Prepares a query whose rows something tells apart; any other is refused with its place.
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
                logical.outputs.push(Output { name: String::new(), expr: expr.clone() });
                logical.outputs.len() - 1
            }));
        }
        let mut next = logical.clone();
        keyset::behind(&mut next, &catalog);
        let [first, next] = [logical, next].map(|mut logical| {
            // One row more tells whether there is another page.
            logical.limit = Some(Expr::Parameter(logical.parameters.len()));
            logical.parameters.push("rows max".to_owned());
            Query::of(logical, catalog.clone())
        });
        Ok(Paged { first, next, columns, parameters, places })
    }

    /// The query of the first page, or of those behind it.
    pub fn query(&self, is_first: bool) -> &Query {
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

    /// What the plan for these values does, in one line of ASCII, and whether it reads a collection whole.
    pub fn plan_line(&self, parameters: &[Value<'_>], wanted: PageAt<'_>) -> (Arc<str>, bool) {
        let values = self.values(parameters, wanted).unwrap_or_default();
        self.query(wanted.after.is_none()).plan_line(&values)
    }

    /// Runs it and appends its rows as JSON objects, with commas between them. Gives the place of the last one, where more
    /// follow. `parameters` are the values of the text's, by slot.
    pub fn write(
        &self,
        (view, wanted): (&dyn View, PageAt<'_>),
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(Outcome, Option<Vec<OwnedValue>>), QueryError> {
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
        Ok((Outcome { rows: outcome.rows.min(rows_max), ..outcome }, more.then_some(sink.place)))
    }

    /// The values of all parameters.
    fn values<'v>(&self, parameters: &[Value<'v>], wanted: PageAt<'v>) -> Result<Vec<Value<'v>>, QueryError> {
        if parameters.len() != self.parameters {
            return Err(QueryError::Parameters { expected: self.parameters, given: parameters.len() });
        }
        if wanted.after.is_some_and(|after| after.len() != self.places.len()) {
            return Err(QueryError::Value("this place is of another query"));
        }
        let place = wanted.after.into_iter().flatten().map(OwnedValue::value);
        let most = Value::Integer(wanted.rows_max() as i64 + 1);
        Ok(parameters.iter().copied().chain(place).chain(std::iter::once(most)).collect())
    }
}

/// Takes a page's rows, and the place of its last one.
struct Page<'p> {
    rows: JsonRows<'p>,
    paged: &'p Paged,
    rows_max: u64,
    /// Of the row, from 1.
    number: u64,
    place: Vec<OwnedValue>,
    arena: Bump,
    is_damaged: bool,
    /// A result that is shown is no number in JSON.
    is_infinite: bool,
}

impl Page<'_> {
    fn note(&mut self, column: usize, field: Field<'_>) {
        // Of one row.
        let meter = Meter::unbounded();
        let workspace = Workspace::new(&self.arena, &meter);
        let value = match field {
            Field::Json(json) => value::of_json(json, workspace).unwrap_or_else(|_| {
                self.is_damaged = true;
                Value::Null
            }),
            Field::Value(value) => value,
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

    fn field(&mut self, column: usize, field: Field<'_>) {
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

    /// What rows are ordered by may be infinite, for it is not shown: one stored 1e400 ends no page.
    fn takes_infinite(&self) -> bool {
        true
    }
}

/// Appends a place, for whoever hands it out.
pub fn encode_place(place: &[OwnedValue], out: &mut Vec<u8>) {
    place.iter().for_each(|value| super::sort::push_field(Field::Value(value.value()), out));
}

/// Reads what [`encode_place`] wrote. `None`: these bytes are no place.
pub fn decode_place(mut bytes: &[u8]) -> Option<Vec<OwnedValue>> {
    let whole = bytes;
    let mut place = Vec::new();
    while !bytes.is_empty() {
        match super::sort::take_field(&mut bytes) {
            Field::Value(Value::Text(text)) if std::str::from_utf8(text).is_err() => return None,
            Field::Value(Value::Real(real)) if real.is_nan() => return None,
            Field::Value(value) => place.push(OwnedValue::new(&value)),
            Field::Json(_) => return None,
        }
    }
    // Bytes that are cut short, or not as they would be written, are none of ours.
    let mut again = Vec::with_capacity(whole.len());
    encode_place(&place, &mut again);
    (again == whole).then_some(place)
}
