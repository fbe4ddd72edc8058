//! Estimates of the entries that an access path finds and of their cost, from the counts of the trees.
//!
//! The unit of cost is one entry of a sequential index scan, as measured on data in memory; only ratios matter. An equality
//! with a parameter is estimated by the average number of entries per value; a range with literal bounds is looked up in the
//! tree; everything else has a fixed selectivity ([`RANGE_SHARE`] and the others).

use std::ops::Bound;

use super::access::{Access, Candidate, Weight};
use super::condition::{Condition, hashed_side};
use super::known::{CountedRange, Coverage};
use super::planner::Planner;
use super::points::Limit;
use crate::catalog::ENTRIES_LEAST;
use crate::encoding::{Scalar, order};
use crate::engine::{Direction, KeyRange, TreeId};
use crate::sql::expressions::row::{as_key, of_scalar};
use crate::sql::expressions::{Comparison, Expr, FieldPlace};
use crate::sql::resolve::RowSource;

/// A document of a sequential scan.
const DOCUMENT: f64 = 3.0;
/// A document found by its key, somewhere in memory. Together with [`DOCUMENT`] this puts the point from which an index range
/// no longer pays at a quarter of the collection.
pub(super) const LOOKUP: f64 = 10.0;
/// Each value in an index entry.
const CARRIED: f64 = 0.02;
/// A seek to the beginning of a range.
pub(super) const SEEK: f64 = 5.0;
/// Keeping and hashing a row, besides reading it; and a lookup in the hash table.
const HASH_ROW: f64 = 6.0;
const PROBE: f64 = 3.0;
/// Sorting a row, for each doubling of their number.
const SORT_ROW: f64 = 0.25;

/// Selectivities of unknown predicates: one bound of a range, an equality, LIKE, and others.
const RANGE_SHARE: f64 = 0.25;
const EQUAL_SHARE: f64 = 0.1;
const LIKE_SHARE: f64 = 0.25;
const OTHER_SHARE: f64 = 0.5;
/// Entries with one value of the first field of an uncounted index, and the factor by which each further field reduces them.
const ALIKE: f64 = 10.0;
const ALIKE_LESS: f64 = 4.0;
/// Default numbers of elements of `json_each`, and of rows of a view.
const ELEMENTS: f64 = 10.0;
const VIEW_ROWS: f64 = 1_000.0;
/// Larger tables are not hashed if an index finds the rows.
const HASH_ROWS_MAX: f64 = 100_000.0;
/// A LIMIT that is known only at execution.
const LIMIT_ABOUT: f64 = 100.0;

/// The cost of sorting if only the first `kept` rows are wanted.
pub(super) fn sorting(rows: f64, kept: f64) -> f64 {
    rows * SORT_ROW * rows.min(kept).max(2.0).log2()
}

impl Planner<'_> {
    /// The number of rows of a table.
    pub(super) fn table_rows(&self, table: usize) -> f64 {
        match &self.logical.tables[table].origin {
            RowSource::Collection(_) => match self.known.trees.get(&self.info(table).tree) {
                Some(count) => count.entries.max(ENTRIES_LEAST),
                None => VIEW_ROWS,
            },
            RowSource::Inner { number, .. } => {
                self.plan.inner[*number].members.iter().map(|member| member.rows).sum::<f64>().max(1.0)
            }
            RowSource::Each { .. } => ELEMENTS,
        }
    }

    /// The number of an index's entries with the same values in its first `fields` fields.
    fn alike(&self, tree: TreeId, fields: usize, rows: f64) -> f64 {
        let Some(last) = fields.checked_sub(1) else { return rows };
        let counted = self.known.trees.get(&tree).and_then(|count| count.alike.get(last).copied());
        let guess = || ALIKE / ALIKE_LESS.powi(i32::try_from(last).unwrap_or(i32::MAX));
        counted.unwrap_or_else(guess).clamp(1.0, rows)
    }

    /// The share of the entries read that have the same values in the ORDER BY terms that the access path gives.
    pub(super) fn together(&self, table: usize, access: &Access, read: f64) -> f64 {
        let given = self.order_given(table, access, false);
        if given.direction.is_none() {
            return 1.0;
        }
        let info = self.info(table);
        let alike = match access.index().map(|number| &info.indexes[number]) {
            Some(index) if given.fields <= index.fields.len() => {
                self.alike(index.tree, given.fields, self.table_rows(table))
            }
            _ => 1.0,
        };
        (alike / read.max(1.0)).min(1.0)
    }

    /// How many rows of a table have one value of a field, if an index or the key determines it.
    fn rows_of_value(&self, table: usize, column: usize) -> Option<f64> {
        let (info, name) = (self.info(table), &self.logical.columns[column].name);
        if *name == info.key.field || info.unique.iter().any(|unique| unique.only() == Some(name.as_str())) {
            return Some(1.0);
        }
        let index = info.indexes.iter().find(|index| index.fields.first() == Some(name))?;
        Some(self.alike(index.tree, 1, self.table_rows(table)))
    }

    /// Fills in the cost of an access path.
    pub(super) fn weigh(&self, table: usize, candidate: &mut Candidate) {
        candidate.weight = match &candidate.access {
            Access::Key(_) => Weight { once: 0.0, each: LOOKUP, read: 1.0 },
            Access::Unique { .. } => Weight { once: 0.0, each: 2.0 * LOOKUP, read: 1.0 },
            Access::Index { number, tree, equal, from, to, .. } => {
                let read = self.index_rows(table, *tree, equal, (from.as_ref(), to.as_ref()));
                let entry = self.entry_weight(table, *number, &candidate.fulfilled);
                Weight { once: 0.0, each: SEEK + read * entry, read }
            }
            Access::Points(points) => self.points_weight(table, points, &candidate.fulfilled),
            Access::Scan { from, to, .. } => {
                let read = self.scan_rows(table, from.as_ref(), to.as_ref());
                Weight { once: 0.0, each: SEEK + read * DOCUMENT, read }
            }
            Access::Kept { .. } if candidate.keeps => self.kept_weight(table, candidate),
            Access::Kept { .. } | Access::Each { .. } => {
                let read = self.table_rows(table);
                Weight { once: read * DOCUMENT, each: read, read }
            }
        };
    }

    /// The cost of an index entry, with its document if it is fetched.
    pub(super) fn entry_weight(&self, table: usize, number: usize, fulfilled: &[usize]) -> f64 {
        let index = &self.info(table).indexes[number];
        let fetched = if self.covers(table, number, fulfilled) { 0.0 } else { LOOKUP };
        1.0 + CARRIED * (index.fields.len() + index.included.len()) as f64 + fetched
    }

    /// Whether an access path is excluded: hashing very many rows although an index finds them.
    pub(super) fn is_too_large(&self, table: usize, candidate: &Candidate, others: &[Candidate]) -> bool {
        let found = |other: &Candidate| match &other.access {
            Access::Index { equal, .. } => !equal.is_empty(),
            other => other.is_single(),
        };
        let rows = || if candidate.keeps { self.kept_rows(table) } else { self.table_rows(table) };
        matches!(candidate.access, Access::Kept { .. }) && rows() > HASH_ROWS_MAX && others.iter().any(found)
    }

    /// Rows that pass the table's own predicates.
    fn kept_rows(&self, table: usize) -> f64 {
        let own = self.conditions_of(table).iter().filter(|condition| condition.tables == 1 << table);
        own.fold(self.table_rows(table), |rows, condition| rows * self.share(condition)).max(1.0)
    }

    /// The cost of reading these rows by their best access path.
    fn reading(&self, table: usize) -> f64 {
        *self.known.reading[table].get_or_init(|| {
            let mut paths = self.access_paths(table, 0, true);
            paths.iter_mut().for_each(|path| self.weigh(table, path));
            paths.iter().map(|path| path.weight.once + path.weight.each).fold(f64::INFINITY, f64::min)
        })
    }

    fn kept_weight(&self, table: usize, candidate: &Candidate) -> Weight {
        let (all, kept) = (self.table_rows(table), self.kept_rows(table));
        let conditions = self.conditions_of(table);
        let sides = candidate.fulfilled.iter().filter_map(|place| hashed_side(&conditions[*place], table));
        let same = sides.fold(1.0, |share: f64, (side, _)| {
            let rows = match side {
                Expr::Column(column) => self.rows_of_value(table, *column),
                _ => None,
            };
            share * (rows.unwrap_or(ALIKE) / all)
        });
        let read = (kept * same).clamp(f64::MIN_POSITIVE, kept);
        Weight { once: self.reading(table) + kept * HASH_ROW, each: PROBE + read, read }
    }

    pub(super) fn index_rows(
        &self,
        table: usize,
        tree: TreeId,
        equal: &[Expr],
        (from, to): (Option<&Limit>, Option<&Limit>),
    ) -> f64 {
        let rows = self.table_rows(table);
        let literals: Vec<Scalar<'_>> = equal.iter().map_while(literal).collect();
        let is_known = literals.len() == equal.len()
            && [from, to].into_iter().flatten().all(|limit| literal(&limit.value).is_some());
        if is_known && (from.is_some() || to.is_some()) {
            let (low, high) = ends(&literals, from, to);
            if let Some(counted) = self.counted(tree, &low, &high) {
                return counted;
            }
        }
        let first = match literals.len() {
            0 => None,
            _ => {
                let (low, high) = ends(&literals, None, None);
                self.counted(tree, &low, &high)
            }
        };
        let found = match first {
            Some(counted) => counted * self.alike(tree, equal.len(), rows) / self.alike(tree, literals.len(), rows),
            None => self.alike(tree, equal.len(), rows),
        };
        let sides = i32::from(from.is_some()) + i32::from(to.is_some());
        (found * RANGE_SHARE.powi(sides)).max(1.0)
    }

    /// The tree's estimate of a range, if the tree is large enough.
    fn counted(&self, tree: TreeId, low: &[u8], high: &[u8]) -> Option<f64> {
        if low >= high && !high.is_empty() {
            return Some(1.0);
        }
        self.known.trees.get(&tree).filter(|count| count.entries >= ENTRIES_LEAST)?;
        let is_it = |counted: &&CountedRange| counted.tree == tree && counted.low == low && counted.high == high;
        if let Some(counted) = self.known.counted.borrow().iter().find(is_it) {
            return Some(counted.entries);
        }
        let to = if high.is_empty() { Bound::Unbounded } else { Bound::Excluded(high) };
        let counted = self.catalog.counts.range(tree, KeyRange { from: Bound::Included(low), to })?;
        let entries = (counted as f64).max(1.0);
        self.known.counted.borrow_mut().push(CountedRange { tree, low: low.to_vec(), high: high.to_vec(), entries });
        Some(entries)
    }

    fn scan_rows(&self, table: usize, from: Option<&Expr>, to: Option<&Expr>) -> f64 {
        let (rows, info) = (self.table_rows(table), self.info(table));
        let key = |side: Option<&Expr>| match side.map(literal) {
            None => Some(Vec::new()),
            Some(value) => as_key(of_scalar(value?), info.key.kind).map(|key| key.as_bytes().to_vec()),
        };
        if from.is_none() && to.is_none() {
            return rows;
        }
        if let (Some(low), Some(high)) = (key(from), key(to))
            && let Some(counted) = self.counted(info.tree, &low, &high)
        {
            return counted;
        }
        let sides = i32::from(from.is_some()) + i32::from(to.is_some());
        (rows * RANGE_SHARE.powi(sides)).max(1.0)
    }

    /// Whether an index covers all uses of a table's documents, given the fulfilled predicates.
    fn covers(&self, table: usize, number: usize, fulfilled: &[usize]) -> bool {
        let mut known = self.known.coverage.borrow_mut();
        let coverage = known.entry((table, number)).or_insert_with(|| self.coverage(table, number));
        !coverage.elsewhere && coverage.conditions.iter().all(|place| fulfilled.contains(place))
    }

    fn coverage(&self, table: usize, number: usize) -> Coverage {
        let (tree, direction) = (TreeId(0), Direction::Forward);
        let access = Access::Index { number, tree, equal: Vec::new(), from: None, to: None, direction };
        let needs = |expr: &Expr| {
            expr.uses_column(|column| {
                let is_own = self.logical.columns[column].table == table;
                is_own && self.place_in(&access, column) == FieldPlace::Document
            })
        };
        let needed_by = |condition: &Condition| condition.tables >> table & 1 == 1 && needs(&condition.expr);
        let own = self.conditions_of(table).iter().enumerate();
        let conditions = own.filter(|(_, condition)| needed_by(condition)).map(|(place, _)| place).collect();
        let arguments = self.logical.tables.iter().flat_map(|table| table.origin.expressions());
        let left = self.is_left(table);
        let mut others = self.left_on.iter().enumerate().filter(|(of, _)| !left || *of != table).flat_map(|(_, on)| on);
        let elsewhere = self.results().chain(arguments).any(needs)
            || others.any(needed_by)
            || left && self.conditions.iter().any(needed_by);
        Coverage { conditions, elsewhere }
    }

    /// The selectivity of a predicate, computed once.
    pub(super) fn share(&self, condition: &Condition) -> f64 {
        *condition.share.get_or_init(|| self.passing(&condition.expr))
    }

    /// The selectivity of a predicate.
    fn passing(&self, condition: &Expr) -> f64 {
        let value = |a: &Expr, b: &Expr| match (a, b) {
            (Expr::Column(column), _) | (_, Expr::Column(column)) => {
                let table = self.logical.columns[*column].table;
                self.rows_of_value(table, *column).map_or(EQUAL_SHARE, |rows| rows / self.table_rows(table))
            }
            _ => EQUAL_SHARE,
        };
        match condition {
            Expr::Compare(Comparison::Equal, _, a, b) | Expr::Is(true, _, a, b) => value(a, b),
            Expr::Compare(Comparison::NotEqual, ..) | Expr::Is(false, ..) | Expr::NotNull(_) => 1.0 - EQUAL_SHARE,
            Expr::Compare(..) => RANGE_SHARE,
            Expr::Between(..) => RANGE_SHARE * RANGE_SHARE,
            Expr::IsNull(_) => EQUAL_SHARE,
            Expr::Like(..) | Expr::Glob(..) => LIKE_SHARE,
            Expr::In(of, _, list) => {
                let one = list.first().map_or(0.0, |first| value(of, first));
                (one * list.len() as f64).min(OTHER_SHARE)
            }
            Expr::And(terms) => terms.iter().map(|term| self.passing(term)).product(),
            Expr::Or(terms) => terms.iter().map(|term| self.passing(term)).sum::<f64>().min(1.0),
            Expr::Not(term) => 1.0 - self.passing(term),
            _ => OTHER_SHARE,
        }
    }

    /// An upper bound of the wanted rows.
    pub(super) fn wanted_rows(&self) -> f64 {
        let number = |expr: &Option<Expr>, otherwise: f64| match expr {
            None => otherwise,
            Some(expr) => match literal(expr) {
                Some(Scalar::Integer(integer)) if integer >= 0 => integer as f64,
                Some(_) => f64::INFINITY,
                None => LIMIT_ABOUT,
            },
        };
        number(&self.plan.limit, f64::INFINITY) + number(&self.plan.offset, 0.0)
    }
}

/// The value of a literal other than NULL.
fn literal(expr: &Expr) -> Option<Scalar<'_>> {
    match expr {
        Expr::Literal(literal) if !literal.value().is_null() => literal.value().scalar(),
        _ => None,
    }
}

/// The key range in which an index has these values; an empty end means unbounded.
fn ends(equal: &[Scalar<'_>], from: Option<&Limit>, to: Option<&Limit>) -> (Vec<u8>, Vec<u8>) {
    let mut low = Vec::new();
    equal.iter().for_each(|value| order::lower(*value, &mut low));
    let mut high = low.clone();
    let side = |limit: Option<&Limit>, upper_if: bool, out: &mut Vec<u8>| match limit {
        None => false,
        Some(limit) => {
            let values: Vec<Scalar<'_>> = limit.values().map_while(literal).collect();
            let is_above = (limit.inclusive || values.len() <= limit.more.len()) == upper_if;
            values.iter().for_each(|value| order::lower(*value, out));
            if is_above && !values.is_empty() {
                order::raise(out);
            }
            true
        }
    };
    side(from, false, &mut low);
    if !side(to, true, &mut high) {
        high = if equal.is_empty() { Vec::new() } else { order::end_of(&high) };
    }
    (low, high)
}
