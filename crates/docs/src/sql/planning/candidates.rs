//! Candidates for a table's access path, and the order of rows that each gives.
//!
//! Without counts a candidate is scored by its kind, best first: a key, a unique field, an index (more bound fields are
//! better), a hash, a range of keys, a scan. With counts, the costs of all candidates are compared (`estimate.rs`,
//! `join_order.rs`).

use super::access::{Access, Candidate, Weight};
use super::condition::hashed_side;
use super::planner::Planner;
use super::points::{Limit, PointsOf, Sought};
use crate::catalog::{CollectionInfo, IndexInfo};
use crate::engine::Direction;
use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::resolve::{RowSource, TableSet};

const SCORE_KEY: u32 = 0;
const SCORE_UNIQUE: u32 = 1;
const SCORE_INDEX: u32 = 40;
/// Reading a collection once into a hash table: for joins that no index supports.
const SCORE_HASH: u32 = 60;
const SCORE_KEY_RANGE: u32 = 80;
/// Reading a collection once and looping over the rows that pass its own predicates.
const SCORE_KEPT: u32 = 90;
/// A scan that its own predicates filter comes before a scan that returns every row.
const SCORE_FILTERED: u32 = 99;
const SCORE_SCAN: u32 = 100;

/// A comparison of a column of the table with a value that is known when the level runs.
pub(super) struct Bound<'a> {
    pub(super) condition: usize,
    pub(super) column: &'a str,
    pub(super) comparison: Comparison,
    pub(super) value: &'a Expr,
    /// For a comparison of row values: the following columns and their values (`row_bounds.rs`).
    pub(super) more: Vec<(&'a str, &'a Expr)>,
    /// The bound only narrows the range: its predicate must still be evaluated.
    pub(super) narrows: bool,
}

impl Planner<'_> {
    fn bounds(&self, table: usize, placed: TableSet) -> Vec<Bound<'_>> {
        let mut bounds = Vec::new();
        let own: TableSet = 1 << table;
        let column_of = |side: &Expr| match side {
            Expr::Column(column) => Some(&self.logical.columns[*column]).filter(|column| column.table == table),
            _ => None,
        };
        for (number, condition) in self.conditions_of(table).iter().enumerate() {
            if condition.tables & own == 0 {
                continue;
            }
            let Expr::Compare(comparison, Affinity::None, a, b) = &condition.expr else {
                bounds.extend(self.row_bound((number, &condition.expr), table, placed));
                continue;
            };
            if *comparison == Comparison::NotEqual {
                continue;
            }
            let (left, right) = condition.sides;
            let sides = [(a, b, right, *comparison), (b, a, left, comparison.mirrored())];
            let known = sides.into_iter().filter(|(_, _, tables, _)| tables & !placed == 0);
            let bound = known.into_iter().find_map(|(side, value, _, comparison)| {
                let column = column_of(side)?.name.as_str();
                Some(Bound { condition: number, column, comparison, value, more: Vec::new(), narrows: false })
            });
            bounds.extend(bound);
        }
        bounds
    }

    pub(super) fn candidate(&self, table: usize, placed: TableSet) -> Candidate {
        match &self.logical.tables[table].origin {
            RowSource::Collection(_) => {
                let found = self.entries_candidate(table, placed);
                let single = self.plan.levels.iter().all(|level| level.access.is_single());
                let kept = (found.score >= SCORE_HASH).then(|| self.kept_candidate(table, placed, single)).flatten();
                kept.filter(|kept| kept.score <= found.score).unwrap_or(found)
            }
            RowSource::Inner { number, outer, .. } => {
                let single = self.plan.levels.iter().all(|level| level.access.is_single());
                self.inner_candidate(table, (*number, outer), placed, single)
            }
            RowSource::Each { json, path, .. } => each_candidate(json, path),
        }
    }

    /// The rows of a subquery, looked up by a hash if possible.
    fn inner_candidate(
        &self,
        table: usize,
        (number, outer_values): (usize, &[Expr]),
        placed: TableSet,
        single: bool,
    ) -> Candidate {
        let Some(mut candidate) = self.hash_candidate(table, placed, single) else {
            let access = Access::Kept { inner: number, hash: None, keys: Vec::new(), outer: outer_values.to_vec() };
            return Candidate::new(SCORE_SCAN, access, Vec::new());
        };
        if let Access::Kept { inner, outer, .. } = &mut candidate.access {
            (*inner, *outer) = (number, outer_values.to_vec());
        }
        candidate
    }

    /// All access paths of a table that may be the best. `single`: the placed tables give at most one row.
    pub(super) fn access_paths(&self, table: usize, placed: TableSet, single: bool) -> Vec<Candidate> {
        match &self.logical.tables[table].origin {
            RowSource::Collection(_) => self.collection_ways(table, placed, single),
            RowSource::Inner { number, outer, .. } => {
                vec![self.inner_candidate(table, (*number, outer), placed, single)]
            }
            RowSource::Each { json, path, .. } => vec![each_candidate(json, path)],
        }
    }

    fn collection_ways(&self, table: usize, placed: TableSet, single: bool) -> Vec<Candidate> {
        let (info, bounds) = (self.info(table), self.bounds(table, placed));
        if let Some(found) = self.single_candidate(info, &bounds) {
            return vec![found];
        }
        let kept = self.kept_candidate(table, placed, single);
        let indexes = info.indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready());
        let mut paths = Vec::with_capacity(info.indexes.len() + 2);
        let scan = scan_candidate(info, &bounds);
        // If the table can be read once and kept, it is not scanned again for each outer row.
        if kept.is_none() || !scan.access.is_whole() {
            paths.push(scan);
        }
        for (number, index) in indexes {
            match index_candidate(info, number, index, &bounds) {
                Some(found) => paths.push(found),
                None if kept.is_some() => {}
                None => {
                    let (equal, direction) = (Vec::new(), Direction::Forward);
                    let access = Access::Index { number, tree: index.tree, equal, from: None, to: None, direction };
                    paths.push(Candidate::new(SCORE_SCAN, access, Vec::new()));
                }
            }
        }
        paths.extend(self.point_paths(table, placed, &bounds));
        paths.extend(self.row_paths(table, placed, &bounds));
        paths.extend(kept);
        paths
    }

    /// Reads the table once and keeps its rows: hashed, if an equality with the placed tables exists; otherwise, if the table's
    /// own predicates filter it, as a list of the rows that pass. It is worth its memory only if the placed tables give more
    /// than one row.
    fn kept_candidate(&self, table: usize, placed: TableSet, single: bool) -> Option<Candidate> {
        if placed == 0 || single {
            return None;
        }
        self.hash_candidate(table, placed, single).or_else(|| {
            let is_filtered = self.conditions_of(table).iter().any(|condition| condition.is_of(table));
            let access = Access::Kept { inner: usize::MAX, hash: None, keys: Vec::new(), outer: Vec::new() };
            is_filtered.then(|| Candidate { keeps: true, ..Candidate::new(SCORE_KEPT, access, Vec::new()) })
        })
    }

    /// Reads the table once into a hash table.
    fn hash_candidate(&self, table: usize, placed: TableSet, single: bool) -> Option<Candidate> {
        if placed == 0 || single {
            return None;
        }
        let (own, whole): (TableSet, _) =
            (1 << table, matches!(self.logical.tables[table].origin, RowSource::Collection(_)));
        let mut fulfilled = Vec::new();
        for (number, condition) in self.conditions_of(table).iter().enumerate() {
            if condition.tables & own == 0 || condition.tables & !(placed | own) != 0 {
                continue;
            }
            let Some((side, _)) = hashed_side(condition, table) else { continue };
            // Rows of a subquery are hashed by plain columns only.
            if whole || matches!(side, Expr::Column(_)) {
                fulfilled.push(number);
            }
        }
        let access = Access::Kept { inner: usize::MAX, hash: None, keys: Vec::new(), outer: Vec::new() };
        let keeps = !fulfilled.is_empty();
        keeps.then(|| Candidate { keeps, ..Candidate::new(SCORE_HASH, access, fulfilled) })
    }

    fn entries_candidate(&self, table: usize, placed: TableSet) -> Candidate {
        let (info, bounds) = (self.info(table), self.bounds(table, placed));
        if let Some(found) = self.single_candidate(info, &bounds) {
            return found;
        }
        let indexes = info.indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready());
        let best = indexes.filter_map(|(number, index)| index_candidate(info, number, index, &bounds));
        let best = best.chain(self.point_paths(table, placed, &bounds)).chain(self.row_paths(table, placed, &bounds));
        best.min_by_key(|candidate| candidate.score).unwrap_or_else(|| {
            let mut scan = scan_candidate(info, &bounds);
            if scan.access.is_whole() && self.conditions_of(table).iter().any(|condition| condition.is_of(table)) {
                scan.score = SCORE_FILTERED;
            }
            scan
        })
    }

    /// An access path that finds at most one document.
    fn single_candidate(&self, info: &CollectionInfo, bounds: &[Bound<'_>]) -> Option<Candidate> {
        let equal = |field: &str| bounds.iter().find(|b| b.comparison == Comparison::Equal && b.column == field);
        if let Some(bound) = equal(&info.key.field) {
            return Some(Candidate::new(SCORE_KEY, Access::Key(bound.value.clone()), vec![bound.condition]));
        }
        let mut unique = info.unique.iter().filter(|unique| unique.readiness.is_ready());
        unique.find_map(|unique| {
            let bounds = unique.fields.iter().map(|field| equal(field)).collect::<Option<Vec<_>>>()?;
            let (fields, values) = (unique.fields.clone(), bounds.iter().map(|bound| bound.value.clone()).collect());
            let access = Access::Unique { tree: unique.tree, fields, values };
            Some(Candidate::new(SCORE_UNIQUE, access, bounds.iter().map(|bound| bound.condition).collect()))
        })
    }

    /// Uses the outermost level's own order for ORDER BY if possible; with LIMIT, at least for its leading terms.
    pub(super) fn use_order(&mut self) {
        if self.plan.order.is_empty() {
            return;
        }
        let gathers = self.plan.grouped && !self.plan.first_only || self.plan.distinct;
        if gathers || self.plan.levels.is_empty() {
            return;
        }
        let single = self.plan.levels.iter().all(|level| level.access.is_single());
        let direction = if single { Some(Direction::Forward) } else { self.order_direction() };
        if let Some(direction) = direction {
            self.plan.levels[0].access.turn(direction);
            self.plan.order.clear();
            self.plan.ordered = true;
            return;
        }
        let level = &self.plan.levels[0];
        let given = self.order_given(level.table, &level.access, false);
        if let Some(direction) = given.direction.filter(|_| self.plan.limit.is_some() && !self.plan.first_only) {
            self.plan.levels[0].access.turn(direction);
            self.plan.sorted_by = given.terms;
        }
    }

    /// The direction in which the outermost level's entries are in the requested order, if there is one.
    fn order_direction(&mut self) -> Option<Direction> {
        let level = &self.plan.levels[0];
        let inner_single = self.plan.levels[1..].iter().all(|level| level.access.is_single());
        let order_of = |access: &Access| self.order_of(level.table, access, inner_single);
        if let Some(direction) = order_of(&level.access) {
            return Some(direction);
        }
        // If only the first rows are wanted, the scan of an index in that order replaces a full scan.
        let whole = level.access.is_whole();
        let few = self.plan.limit.is_some() || self.plan.first_only;
        if !whole || !few || self.catalog.counts.are_kept() {
            return None;
        }
        let indexes = &self.info(level.table).indexes;
        let ready = indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready());
        let found = ready.into_iter().find_map(|(number, index)| {
            let (equal, direction) = (Vec::new(), Direction::Forward);
            let access = Access::Index { number, tree: index.tree, equal, from: None, to: None, direction };
            let direction = order_of(&access)?;
            Some((access, direction, index.fields.len()))
        });
        let (access, direction, key_place) = found?;
        let level = &mut self.plan.levels[0];
        (level.access, level.key_place) = (access, key_place);
        Some(direction)
    }

    /// The direction in which the outermost table's entries are in the requested order, if there is one. `inner_single`: all
    /// other levels find at most one entry.
    pub(super) fn order_of(&self, table: usize, access: &Access, inner_single: bool) -> Option<Direction> {
        let given = self.order_given(table, access, inner_single);
        given.is_whole.then(|| given.direction.unwrap_or(Direction::Forward))
    }

    /// The part of the requested order that the outermost table's entries have.
    pub(super) fn order_given(&self, table: usize, access: &Access, inner_single: bool) -> OrderGiven {
        let info = self.info(table);
        let fields: &[String] = match (access, access.index()) {
            (_, Some(number)) => &info.indexes[number].fields,
            (Access::Scan { .. }, None) => &[],
            (Access::Points(points), None) if matches!(points.of, PointsOf::Key) => &[],
            _ => return OrderGiven::default(),
        };
        let sequence: Vec<&str> = fields.iter().chain(std::iter::once(&info.key.field)).map(String::as_str).collect();
        let fixed = fixed_fields(access);
        let (mut next, mut direction, mut terms) = (0, None, 0);
        for (expr, falling) in &self.plan.order {
            while fixed.get(next) == Some(&true) {
                next += 1;
            }
            if next == sequence.len() && inner_single {
                terms = self.plan.order.len(); // The key is unique: the remaining terms do not matter.
                break;
            }
            let Expr::Column(column) = expr else { break };
            let column = &self.logical.columns[*column];
            if column.table != table {
                break;
            }
            let is_fixed = |(field, fixed): (&&str, &bool)| *fixed && *field == column.name;
            if sequence.iter().zip(&fixed).any(is_fixed) {
                terms += 1;
                continue;
            }
            let wanted = if *falling { Direction::Backward } else { Direction::Forward };
            let fits = sequence.get(next) == Some(&column.name.as_str());
            if !fits || direction.is_some_and(|direction| direction != wanted) {
                break;
            }
            direction = Some(wanted);
            next += 1;
            terms += 1;
        }
        OrderGiven { terms, is_whole: terms == self.plan.order.len(), direction, fields: next }
    }
}

/// The part of a requested order that an access path gives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OrderGiven {
    /// Number of leading ORDER BY terms by which its entries are sorted.
    pub(super) terms: usize,
    /// These are all terms, or the remaining ones cannot matter.
    pub(super) is_whole: bool,
    /// The scan direction for that order; `None`: these terms have one value each.
    pub(super) direction: Option<Direction>,
    /// Leading fields of the scanned tree, including the document key at an index's end, that the terms and equalities cover.
    pub(super) fields: usize,
}

/// For each leading field of the scanned tree: whether all entries have the same value.
fn fixed_fields(access: &Access) -> Vec<bool> {
    match access {
        Access::Index { equal, .. } => vec![true; equal.len()],
        Access::Points(points) => {
            let fields = points.sought.iter().flat_map(|sought| std::iter::repeat_n(sought, sought.width()));
            fields.map(|sought| matches!(sought, Sought::One(_))).collect()
        }
        _ => Vec::new(),
    }
}

fn index_candidate(info: &CollectionInfo, number: usize, index: &IndexInfo, bounds: &[Bound<'_>]) -> Option<Candidate> {
    let (mut equal, mut fulfilled) = (Vec::new(), Vec::new());
    for field in &index.fields {
        let found = bounds.iter().find(|b| b.comparison == Comparison::Equal && b.column == field.as_str());
        let Some(bound) = found else { break };
        equal.push(bound.value.clone());
        fulfilled.push(bound.condition);
    }
    let (from, to) = limits(info, &index.fields[equal.len()..], bounds, &mut fulfilled);
    let ranges = u32::from(from.is_some()) + u32::from(to.is_some());
    if equal.is_empty() && ranges == 0 {
        return None;
    }
    let score = if equal.is_empty() { SCORE_KEY_RANGE - ranges } else { SCORE_INDEX - 4 * equal.len() as u32 - ranges };
    let access = Access::Index { number, tree: index.tree, equal, from, to, direction: Direction::Forward };
    Some(Candidate::new(score, access, fulfilled))
}

/// The lower and the upper bound of an index range that begins with these fields. Predicates that the bounds guarantee are
/// added to `fulfilled`. Of two bounds, the one of row values is preferred if it also covers following fields.
pub(super) fn limits(
    info: &CollectionInfo,
    fields: &[String],
    bounds: &[Bound<'_>],
    fulfilled: &mut Vec<usize>,
) -> (Option<Limit>, Option<Limit>) {
    let Some(field) = fields.first() else { return (None, None) };
    let own = bounds.iter().filter(|bound| bound.column == field && bound.comparison != Comparison::Equal);
    let mut own: Vec<(&Bound<'_>, Limit)> = own.map(|bound| (bound, bound.limit(info, fields))).collect();
    own.sort_by_key(|(bound, limit)| (limit.more.is_empty(), bound.narrows));
    let (mut from, mut to) = (None, None);
    for (bound, limit) in own {
        let is_low = matches!(bound.comparison, Comparison::Greater | Comparison::GreaterOrEqual);
        let side = if is_low { &mut from } else { &mut to };
        if side.is_none() {
            *side = Some(limit);
            fulfilled.extend((!bound.narrows).then_some(bound.condition));
        }
    }
    (from, to)
}

fn each_candidate(json: &Expr, path: &Option<Expr>) -> Candidate {
    Candidate::new(SCORE_SCAN, Access::Each { json: json.clone(), path: path.clone() }, Vec::new())
}

fn scan_candidate(info: &CollectionInfo, bounds: &[Bound<'_>]) -> Candidate {
    let side = |low: Comparison, also: Comparison| {
        let mut found = bounds.iter().filter(|b| b.column == info.key.field);
        found.find(|b| b.comparison == low || b.comparison == also).map(|bound| bound.value.clone())
    };
    let from = side(Comparison::Greater, Comparison::GreaterOrEqual);
    let to = side(Comparison::Less, Comparison::LessOrEqual);
    let score = if from.is_some() || to.is_some() { SCORE_KEY_RANGE + 1 } else { SCORE_SCAN };
    Candidate::new(score, Access::Scan { from, to, direction: Direction::Forward }, Vec::new())
}

impl Candidate {
    pub(super) fn new(score: u32, access: Access, fulfilled: Vec<usize>) -> Candidate {
        Candidate { score, access, fulfilled, keeps: false, weight: Weight::default() }
    }
}
