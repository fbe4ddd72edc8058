//! Pages of a query by keyset: where a page ended is told by values, so that a page can begin behind them while writes go on.
//!
//! A query's ORDER BY is completed by the keys of its collections, which makes it total. What the last row of a page has
//! there is its place ([`Paged::write`] gives it); the next page is the same query with the condition that a row lies behind
//! that place. A row that was there all the time and whose values in ORDER BY did not change comes exactly once, whatever
//! was written in between.
//!
//! The values are selected as columns behind those of the text, which no sink sees. Where the first of them is in the
//! order of an index, or of the keys, the condition is a bound of that range.

use bumpalo::Bump;

use super::budget::{Budget, Outcome};
use super::error::{QueryError, SqlError, SqlErrorKind};
use super::expr::{Affinity, Comparison, Expr, Literal};
use super::parse;
use super::query::Query;
use super::resolve::{self, Column, Logical, Output};
use super::row::Field;
use super::run::Scratch;
use super::sink::{JsonRows, RowSink};
use super::value::{self, OwnedValue, Value};
use crate::catalog::{Catalog, FieldKind};
use crate::engine::View;

/// Most rows of a page.
pub const PAGE_ROWS_MAX: u64 = 10_000;

/// A query that gives a page. See the module's text.
#[derive(Debug)]
pub struct Paged {
    query: Query,
    /// Result columns of the text.
    columns: usize,
    rows_max: u64,
}

impl Paged {
    /// Prepares a page of at most so many rows behind a place, or from the beginning.
    pub fn prepare(
        sql: &str,
        catalog: &Catalog,
        rows_max: u64,
        after: Option<&[OwnedValue]>,
    ) -> Result<Paged, SqlError> {
        let parsed = parse::parse(sql)?;
        let catalog = catalog.with_views();
        let mut logical = resolve::resolve(sql, &parsed, &catalog)?;
        check(&logical, &catalog)?;
        let rows_max = rows_max.clamp(1, PAGE_ROWS_MAX);
        let columns = logical.outputs.len();
        complete_order(&mut logical, &catalog);
        if let Some(after) = after {
            if after.len() != logical.order.len() {
                return Err(refused("this place is of another query"));
            }
            let conditions = behind(&logical, &catalog, after);
            logical.conditions.extend(conditions);
        }
        let places = logical.order.iter().map(|(expr, _)| Output { name: String::new(), expr: expr.clone() });
        logical.outputs.extend(places.collect::<Vec<_>>());
        // One row more tells whether there is another page.
        let query = Query::of(logical, catalog).with_limit(rows_max + 1);
        Ok(Paged { query, columns, rows_max })
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }

    /// Runs it and appends its rows as JSON objects, with commas between them. Gives the place of the last one, where more
    /// follow.
    pub fn write(
        &self,
        view: &dyn View,
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(Outcome, Option<Vec<OwnedValue>>), QueryError> {
        let rows = self.query.json_rows(out, b',');
        let mut sink = Page { rows, paged: self, number: 0, place: Vec::new(), arena: Bump::new(), is_damaged: false };
        let outcome = self.query.execute(view, parameters, scratch, budget, &mut sink)?;
        if sink.is_damaged {
            return Err(QueryError::Damaged("a field that rows are ordered by"));
        }
        let more = sink.number > self.rows_max;
        Ok((Outcome { rows: outcome.rows.min(self.rows_max), ..outcome }, more.then_some(sink.place)))
    }
}

fn refused(message: &str) -> SqlError {
    parse::error(SqlErrorKind::NotYet, message, None)
}

/// What has pages: rows of collections, each of which its keys tell apart.
fn check(logical: &Logical, catalog: &Catalog) -> Result<(), SqlError> {
    let is_view = |name: &str| catalog.views.iter().any(|view| view.name == name);
    for (is_there, what) in [
        (logical.grouped, "pages of groups or aggregates are not supported yet"),
        (logical.distinct, "pages of DISTINCT are not supported yet"),
        (
            logical.tables.is_empty() || logical.tables.iter().any(|table| table.collection().is_none()),
            "pages of anything but collections are not supported yet",
        ),
        (logical.tables.iter().any(|table| is_view(&table.info(catalog).name)), "pages of views are not supported yet"),
        (
            logical.limit.is_some() || logical.offset.is_some(),
            "a query that is asked for by pages takes no LIMIT and OFFSET of its own",
        ),
    ] {
        if is_there {
            return Err(refused(what));
        }
    }
    Ok(())
}

/// Orders by the keys too, in the direction of the last term, so that an index whose order was asked for gives them.
fn complete_order(logical: &mut Logical, catalog: &Catalog) {
    let falling = logical.order.last().is_some_and(|(_, falling)| *falling);
    for table in 0..logical.tables.len() {
        let name = logical.tables[table].info(catalog).key.field.clone();
        let known = logical.columns.iter().position(|column| column.table == table && column.name == name);
        let column = known.unwrap_or_else(|| {
            let kind = (Affinity::None, false);
            logical.columns.push(Column { table, name, bare: false, inside: false, kind });
            logical.columns.len() - 1
        });
        let is_there = |(expr, _): &(Expr, bool)| matches!(expr, Expr::Column(other) if *other == column);
        if !logical.order.iter().any(is_there) {
            logical.order.push((Expr::Column(column), falling));
        }
    }
}

/// The conditions of rows behind a place. They say the same; the first is for the planner.
fn behind(logical: &Logical, catalog: &Catalog, place: &[OwnedValue]) -> Vec<Expr> {
    let terms = logical.order.iter().zip(place);
    let whole = terms.rev().fold(None, |rest: Option<Expr>, ((expr, falling), value)| {
        let beyond = beyond(expr, *falling, value);
        Some(match rest {
            None => beyond,
            Some(rest) => Expr::Or(vec![beyond, Expr::And(vec![same(expr, value), rest])]),
        })
    });
    let bound = logical.order.first().zip(place.first()).and_then(|((expr, falling), value)| {
        let is_bound = !value.value().is_null() && (!falling || !may_be_null(expr, logical, catalog));
        let comparison = if *falling { Comparison::LessOrEqual } else { Comparison::GreaterOrEqual };
        is_bound.then(|| compare(comparison, expr, value))
    });
    bound.into_iter().chain(whole).collect()
}

fn compare(comparison: Comparison, expr: &Expr, value: &OwnedValue) -> Expr {
    let literal = match value {
        OwnedValue::Null => Literal::Null,
        OwnedValue::Integer(integer) => Literal::Integer(*integer),
        OwnedValue::Real(real) => Literal::Real(*real),
        OwnedValue::Text(text) => Literal::Text(text.clone()),
    };
    Expr::Compare(comparison, Affinity::None, Box::new(expr.clone()), Box::new(Expr::Literal(literal)))
}

/// NULL stands before all other values.
fn beyond(expr: &Expr, falling: bool, value: &OwnedValue) -> Expr {
    let expr_box = || Box::new(expr.clone());
    match (value.value().is_null(), falling) {
        (true, false) => Expr::NotNull(expr_box()),
        (true, true) => Expr::integer(0),
        (false, false) => compare(Comparison::Greater, expr, value),
        (false, true) => Expr::Or(vec![compare(Comparison::Less, expr, value), Expr::IsNull(expr_box())]),
    }
}

fn same(expr: &Expr, value: &OwnedValue) -> Expr {
    match value.value().is_null() {
        true => Expr::IsNull(Box::new(expr.clone())),
        false => compare(Comparison::Equal, expr, value),
    }
}

fn may_be_null(expr: &Expr, logical: &Logical, catalog: &Catalog) -> bool {
    let Expr::Column(column) = expr else { return true };
    let Column { table, name, .. } = &logical.columns[*column];
    let (table, info) = (&logical.tables[*table], logical.tables[*table].info(catalog));
    let is_required = info.field(name).is_some_and(|field| field.required && field.kind != FieldKind::Any);
    table.left_on.is_some() || !(*name == info.key.field || is_required)
}

/// Takes a page's rows, and the place of its last one.
struct Page<'p> {
    rows: JsonRows<'p>,
    paged: &'p Paged,
    /// Of the row, from 1.
    number: u64,
    place: Vec<OwnedValue>,
    arena: Bump,
    is_damaged: bool,
}

impl RowSink for Page<'_> {
    fn begin_row(&mut self) {
        self.number += 1;
        if self.number <= self.paged.rows_max {
            self.rows.begin_row();
        }
    }

    fn field(&mut self, column: usize, field: Field<'_>) {
        if column < self.paged.columns {
            if self.number <= self.paged.rows_max {
                self.rows.field(column, field);
            }
        } else if self.number == self.paged.rows_max {
            let value = match field {
                Field::Json(json) => value::of_json(json, &self.arena).unwrap_or_else(|_| {
                    self.is_damaged = true;
                    Value::Null
                }),
                Field::Value(value) => value,
            };
            self.place.push(OwnedValue::new(&value));
        }
    }

    fn end_row(&mut self) {
        if self.number <= self.paged.rows_max {
            self.rows.end_row();
        }
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
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
