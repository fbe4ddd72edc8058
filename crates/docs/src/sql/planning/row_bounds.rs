//! Row values as bounds of an index: the range of `(a, b) > (x, y)`, and the entries of `(a, b) IN ((1, 2), (3, 4))`.
//!
//! Comparisons of row values reach the planner as comparisons of their parts (`resolve/rows.rs`); users also write `a > x OR (a
//! = x AND b > y)` themselves. Both are recognised by their form.
//!
//! - An order comparison narrows a range by its leading parts, as far as the index has fields for them, including the key at
//!   its end. The predicate is still evaluated, because the range does not consider parts that are NULL.
//! - A list of rows is looked up by the parts that are consecutive in the index. The predicate is fulfilled if these are all
//!   parts.

use super::access::{Access, Candidate};
use super::candidates::{Bound, limits};
use super::planner::Planner;
use super::points::{Limit, Points, PointsOf, Sought};
use crate::catalog::{CollectionInfo, IndexInfo};
use crate::engine::Direction;
use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::resolve::TableSet;

/// As for other lists: worse than an index in which the same number of fields have one value.
const SCORE_TUPLES: u32 = 42;

/// The two sides of a comparison.
type Sides<'e> = (&'e Expr, &'e Expr);

/// A list of rows over fields of one table: for each row the values of the columns, in their order.
struct Rows<'a> {
    condition: usize,
    columns: Vec<&'a str>,
    rows: Vec<Vec<&'a Expr>>,
}

/// The parts of `(a, b, …) < (x, y, …)`, and the comparison that holds for the recognised parts.
fn ordered_parts(expr: &Expr) -> Option<(Comparison, Vec<Sides<'_>>)> {
    let Expr::Or(terms) = expr else { return None };
    let [Expr::Compare(strict, Affinity::None, a, b), Expr::And(same)] = &terms[..] else { return None };
    let [Expr::Compare(Comparison::Equal, Affinity::None, c, d), rest] = &same[..] else { return None };
    if a != c || b != d || !matches!(strict, Comparison::Less | Comparison::Greater) {
        return None;
    }
    let (comparison, behind) = match rest {
        Expr::Compare(comparison, Affinity::None, a, b) => (*comparison, vec![(&**a, &**b)]),
        other => ordered_parts(other).unwrap_or((strict.or_equal(), Vec::new())),
    };
    let parts = std::iter::once((&**a, &**b));
    match comparison == *strict || comparison == strict.or_equal() {
        true => Some((comparison, parts.chain(behind).collect())),
        false => Some((strict.or_equal(), parts.collect())),
    }
}

/// The equalities of each row of a list.
fn listed_parts(expr: &Expr) -> Option<Vec<Vec<Sides<'_>>>> {
    let Expr::Or(rows) = expr else { return None };
    let parts = rows.iter().map(|row| match row {
        Expr::And(parts) => parts.iter().map(equal_sides).collect(),
        _ => None,
    });
    parts.collect()
}

fn equal_sides(part: &Expr) -> Option<Sides<'_>> {
    let Expr::Compare(Comparison::Equal, Affinity::None, a, b) = part else { return None };
    Some((a, b))
}

impl<'a> Bound<'a> {
    /// The bound of a range over the first of `fields`. A row value also bounds the following fields.
    pub(super) fn limit(&self, info: &CollectionInfo, fields: &[String]) -> Limit {
        let sequence: Vec<&str> = fields.iter().chain([&info.key.field]).map(String::as_str).collect();
        let steps = sequence.windows(2).zip(&self.more);
        let fitting = steps.take_while(|(step, (column, _))| step[1] == *column);
        let more: Vec<Expr> = fitting.map(|(_, (_, value))| (*value).clone()).collect();
        let is_inclusive = matches!(self.comparison, Comparison::GreaterOrEqual | Comparison::LessOrEqual);
        let inclusive = is_inclusive || more.len() < self.more.len();
        Limit { value: self.value.clone(), more, inclusive }
    }
}

impl Planner<'_> {
    /// The name of the column, if the expression is a column of this table.
    fn own_column(&self, expr: &Expr, table: usize) -> Option<&str> {
        let Expr::Column(column) = expr else { return None };
        let column = &self.logical.columns[*column];
        (column.table == table).then_some(column.name.as_str())
    }

    fn is_known(&self, value: &Expr, placed: TableSet) -> bool {
        self.tables(value) & !placed == 0
    }

    /// A column of the table and its comparison value, if that value is known when the level runs.
    fn own_side<'e>(&'e self, (a, b): Sides<'e>, table: usize, placed: TableSet) -> Option<(&'e str, &'e Expr)> {
        let (column, value) = match self.own_column(a, table) {
            Some(column) => (column, b),
            None => (self.own_column(b, table)?, a),
        };
        self.is_known(value, placed).then_some((column, value))
    }

    /// The bound from a comparison of row values.
    pub(super) fn row_bound<'e>(
        &'e self,
        (condition, expr): (usize, &'e Expr),
        table: usize,
        placed: TableSet,
    ) -> Option<Bound<'e>> {
        let (comparison, parts) = ordered_parts(expr)?;
        let mirrored = self.own_column(parts.first()?.0, table).is_none();
        let known = parts.iter().map_while(|&(a, b)| {
            let (column, value) = if mirrored { (b, a) } else { (a, b) };
            let column = self.own_column(column, table)?;
            self.is_known(value, placed).then_some((column, value))
        });
        let known: Vec<(&str, &Expr)> = known.collect();
        let ((column, value), more) = known.split_first()?;
        let comparison = if mirrored { comparison.mirrored() } else { comparison };
        let comparison = if known.len() < parts.len() { comparison.or_equal() } else { comparison };
        Some(Bound { condition, column, comparison, value, more: more.to_vec(), narrows: true })
    }

    fn row_lists(&self, table: usize, placed: TableSet) -> Vec<Rows<'_>> {
        let conditions = self.conditions_of(table).iter().enumerate().filter(|(_, c)| c.tables >> table & 1 == 1);
        let lists = conditions.filter_map(|(condition, of)| {
            let parts = listed_parts(&of.expr)?;
            let rows = parts.into_iter().map(|parts| {
                let sides = parts.into_iter().map(|sides| self.own_side(sides, table, placed));
                sides.collect::<Option<Vec<(&str, &Expr)>>>()
            });
            let rows: Vec<Vec<(&str, &Expr)>> = rows.collect::<Option<_>>()?;
            let columns: Vec<&str> = rows.first()?.iter().map(|(column, _)| *column).collect();
            let in_order = |row: &Vec<(&str, _)>| row.iter().map(|(column, _)| *column).eq(columns.iter().copied());
            if !rows.iter().all(in_order) {
                return None;
            }
            let values = rows.into_iter().map(|row| row.into_iter().map(|(_, value)| value).collect());
            Some(Rows { condition, rows: values.collect(), columns })
        });
        lists.collect()
    }

    /// Access paths by lists of rows.
    pub(super) fn row_paths(&self, table: usize, placed: TableSet, bounds: &[Bound<'_>]) -> Vec<Candidate> {
        let (info, lists) = (self.info(table), self.row_lists(table, placed));
        let indexes = info.indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready());
        let paths = indexes.flat_map(|index| lists.iter().filter_map(move |list| row_path(info, index, bounds, list)));
        paths.collect()
    }
}

/// An index looked up by the rows of a list, after leading fields with one value each.
fn row_path(
    info: &CollectionInfo,
    (number, index): (usize, &IndexInfo),
    bounds: &[Bound<'_>],
    list: &Rows<'_>,
) -> Option<Candidate> {
    let (mut sought, mut fulfilled) = (Vec::new(), Vec::new());
    let mut fields = &index.fields[..];
    while let Some((field, rest)) = fields.split_first() {
        let equal = bounds.iter().find(|b| b.comparison == Comparison::Equal && b.column == field.as_str());
        let Some(bound) = equal else { break };
        sought.push(Sought::One(bound.value.clone()));
        fulfilled.push(bound.condition);
        fields = rest;
    }
    let places = places(fields, list);
    if places.is_empty() {
        return None;
    }
    let values = list.rows.iter().flat_map(|row| places.iter().map(|place| row[*place].clone()));
    sought.push(Sought::Tuples(values.collect(), places.len()));
    if places.len() == list.columns.len() {
        fulfilled.push(list.condition);
    }
    let (from, to) = limits(info, &fields[places.len()..], bounds, &mut fulfilled);
    let score = SCORE_TUPLES.saturating_sub(4 * (sought.len() + places.len() - 1) as u32);
    let of = PointsOf::Index { number, tree: index.tree };
    let points = Points { of, sought, from, to, direction: Direction::Forward };
    Some(Candidate::new(score, Access::Points(Box::new(points)), fulfilled))
}

/// For the leading fields of an index, their positions in the list's rows. The result ends before a field that the rows lack.
fn places(fields: &[String], list: &Rows<'_>) -> Vec<usize> {
    let mut places: Vec<usize> = Vec::new();
    for field in fields {
        let Some(place) = list.columns.iter().position(|column| *column == field.as_str()) else { break };
        if places.contains(&place) {
            break;
        }
        places.push(place);
    }
    places
}
