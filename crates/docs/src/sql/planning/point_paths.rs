//! Access paths by several values of a key, a unique field, or the first fields of an index: the candidates and their costs.
//!
//! If two fields of an index have lists, all combinations of their values are looked up. So each shorter prefix of the fields
//! is a candidate of its own, and the counts decide which is best.

use super::access::{Access, Candidate, Weight};
use super::candidates::{Bound, limits};
use super::estimate::{LOOKUP, SEEK};
use super::planner::Planner;
use super::points::{Points, PointsOf, Sought};
use crate::catalog::{CollectionInfo, IndexInfo, UniqueInfo};
use crate::engine::{Direction, TreeId};
use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::resolve::TableSet;
use crate::sql::values::OwnedValue;

const SCORE_KEYS: u32 = 10;
const SCORE_UNIQUE: u32 = 11;
/// Worse than an index in which the same number of fields have one value.
const SCORE_INDEX: u32 = 42;
/// The rows of a subquery, whose number is unknown.
const SCORE_ROWS: u32 = 70;
/// Most combinations of literals that are looked up when the plan is made. If there are more, the first ones are a sample.
const COMBINATIONS_ASKED_MAX: usize = 16;

/// A predicate that a column of the table equals one of several values.
struct OneOf<'a> {
    condition: usize,
    column: &'a str,
    sought: Sought,
}

impl Planner<'_> {
    fn one_of(&self, table: usize, placed: TableSet) -> Vec<OneOf<'_>> {
        let own = |column: usize| {
            let column = &self.logical.columns[column];
            (column.table == table).then_some(column.name.as_str())
        };
        let conditions = self.conditions_of(table).iter().enumerate().filter(|(_, c)| c.tables >> table & 1 == 1);
        let found = conditions.filter_map(|(number, condition)| match &condition.expr {
            Expr::In(of, Affinity::None, list) => {
                let Expr::Column(column) = **of else { return None };
                let is_known = condition.sides.1 & !placed == 0;
                Some((number, own(column).filter(|_| is_known)?, Sought::List(list.clone())))
            }
            // The rows of a correlated query depend on a row of this table, so they cannot be used to find it.
            Expr::InInner(values, asked) if asked.outer.is_empty() => match values[..] {
                [(Affinity::None, Expr::Column(column))] => Some((number, own(column)?, Sought::Rows(asked.number))),
                _ => None,
            },
            _ => None,
        });
        found.map(|(condition, column, sought)| OneOf { condition, column, sought }).collect()
    }

    /// The candidates by several values.
    pub(super) fn point_paths(&self, table: usize, placed: TableSet, bounds: &[Bound<'_>]) -> Vec<Candidate> {
        let (info, lists) = (self.info(table), self.one_of(table, placed));
        if lists.is_empty() {
            return Vec::new();
        }
        let mut paths = Vec::new();
        let whole = |of: PointsOf, list: &OneOf<'_>, score: u32| {
            let (sought, direction) = (vec![list.sought.clone()], Direction::Forward);
            candidate(Points { of, sought, from: None, to: None, direction }, score, vec![list.condition])
        };
        for list in &lists {
            if list.column == info.key.field {
                paths.push(whole(PointsOf::Key, list, SCORE_KEYS));
            }
            let is_it = |unique: &&UniqueInfo| unique.readiness.is_ready() && unique.only() == Some(list.column);
            for unique in info.unique.iter().filter(is_it) {
                let of = PointsOf::Unique { tree: unique.tree, field: list.column.to_owned() };
                paths.push(whole(of, list, SCORE_UNIQUE));
            }
        }
        for (number, index) in info.indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready()) {
            paths.extend(index_paths(info, (number, index), bounds, &lists));
        }
        paths
    }

    /// The cost of an access path by several values.
    pub(super) fn points_weight(&self, table: usize, points: &Points, fulfilled: &[usize]) -> Weight {
        let rows = self.table_rows(table);
        let combinations: f64 = points.sought.iter().map(|sought| self.values_of(sought)).product();
        let (seek, each_entry, read) = match &points.of {
            PointsOf::Key => (LOOKUP, 0.0, combinations),
            PointsOf::Unique { .. } => (2.0 * LOOKUP, 0.0, combinations),
            PointsOf::Index { number, tree } => {
                let found = self.rows_of_points(table, *tree, points);
                (SEEK, self.entry_weight(table, *number, fulfilled), combinations * found)
            }
        };
        let read = read.min(rows);
        Weight { once: 0.0, each: combinations * seek + read * each_entry, read }
    }

    /// Estimate of the number of values to look up.
    fn values_of(&self, sought: &Sought) -> f64 {
        match sought {
            Sought::One(_) => 1.0,
            Sought::List(list) => list.len() as f64,
            Sought::Tuples(values, width) => (values.len() / width) as f64,
            Sought::Rows(inner) => {
                self.plan.inner[*inner].members.iter().map(|member| member.rows).sum::<f64>().max(1.0)
            }
        }
    }

    /// Average number of entries that one combination finds.
    fn rows_of_points(&self, table: usize, tree: TreeId, points: &Points) -> f64 {
        // Any constant stands for a value that is unknown during planning.
        let unknown = Expr::Constant(0);
        let mut combinations: Vec<Vec<Expr>> = vec![Vec::new()];
        for sought in &points.sought {
            let values = match sought {
                Sought::Rows(_) => std::slice::from_ref(&unknown),
                known => known.expressions(),
            };
            let longer = combinations.iter().flat_map(|begun| {
                values.chunks(sought.width()).map(|values| begun.iter().chain(values).cloned().collect())
            });
            combinations = longer.take(COMBINATIONS_ASKED_MAX).collect();
        }
        let limits = (points.from.as_ref(), points.to.as_ref());
        let found = combinations.iter().map(|equal| match equal.iter().any(is_null) {
            true => 0.0,
            false => self.index_rows(table, tree, equal, limits),
        });
        found.sum::<f64>() / combinations.len().max(1) as f64
    }
}

fn is_null(value: &Expr) -> bool {
    matches!(value, Expr::Literal(OwnedValue::Null))
}

fn candidate(points: Points, score: u32, fulfilled: Vec<usize>) -> Candidate {
    Candidate::new(score, Access::Points(Box::new(points)), fulfilled)
}

/// Candidates for prefixes of the index's fields: with all usable lists, with one fewer, and so on.
fn index_paths(
    info: &CollectionInfo,
    (number, index): (usize, &IndexInfo),
    bounds: &[Bound<'_>],
    lists: &[OneOf<'_>],
) -> Vec<Candidate> {
    let in_index = index.fields.iter().filter(|field| lists.iter().any(|list| list.column == field.as_str())).count();
    let paths = (1..=in_index).filter_map(|lists_max| {
        let (mut sought, mut fulfilled, mut taken) = (Vec::new(), Vec::new(), 0);
        for field in &index.fields {
            let equal = bounds.iter().find(|b| b.comparison == Comparison::Equal && b.column == field.as_str());
            let list = lists.iter().find(|list| list.column == field.as_str() && taken < lists_max);
            let (value, condition) = match (equal, list) {
                (Some(bound), _) => (Sought::One(bound.value.clone()), bound.condition),
                (None, Some(list)) => {
                    taken += 1;
                    (list.sought.clone(), list.condition)
                }
                (None, None) => break,
            };
            sought.push(value);
            fulfilled.push(condition);
        }
        if taken < lists_max {
            return None;
        }
        let (from, to) = limits(info, &index.fields[sought.len()..], bounds, &mut fulfilled);
        let ranges = u32::from(from.is_some()) + u32::from(to.is_some());
        let score = match sought.iter().any(|sought| matches!(sought, Sought::Rows(_))) {
            true => SCORE_ROWS,
            false => SCORE_INDEX.saturating_sub(4 * sought.len() as u32 + ranges),
        };
        let of = PointsOf::Index { number, tree: index.tree };
        Some(candidate(Points { of, sought, from, to, direction: Direction::Forward }, score, fulfilled))
    });
    paths.collect()
}
