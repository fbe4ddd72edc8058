//! Which way of finding a collection's entries is best, and whether it gives the order asked for.
//!
//! Where nothing is counted a way is scored by its kind alone: a key before a unique field, an index by how many of its fields
//! are bound, a hash, a range of keys, a scan. Where counts are kept, all ways are weighed (`estimate.rs`, `join_order.rs`).

use super::access::{Access, Candidate, Limit, Weight};
use super::expr::{Affinity, Comparison, Expr};
use super::planner::Planner;
use super::points::{PointsOf, Sought};
use super::resolve::Origin;
use crate::catalog::{CollectionInfo, FieldKind, IndexInfo};
use crate::engine::Direction;

const SCORE_KEY: u32 = 0;
const SCORE_UNIQUE: u32 = 1;
const SCORE_INDEX: u32 = 40;
/// Reading a collection once and finding its rows by a hash: what joins do that no index helps.
const SCORE_HASH: u32 = 60;
const SCORE_KEY_RANGE: u32 = 80;
const SCORE_SCAN: u32 = 100;

/// One side of a comparison is a column of the table, the other is known by then.
pub(super) struct Bound<'a> {
    pub(super) condition: usize,
    pub(super) column: &'a str,
    pub(super) comparison: Comparison,
    pub(super) value: &'a Expr,
}

impl Planner<'_> {
    fn bounds(&self, table: usize, placed: u32) -> Vec<Bound<'_>> {
        let left = self.logical.tables[table].left_on.is_some();
        let conditions = if left { &self.left_on[table] } else { &self.conditions };
        let mut bounds = Vec::new();
        let add = |condition: usize, comparison: Comparison, side: &Expr, value: &'_ Expr| {
            let Expr::Column(column) = side else { return None };
            let column = &self.logical.columns[*column];
            let known = self.tables(value) & !placed == 0;
            (column.table == table && known).then_some((condition, column.name.as_str(), comparison))
        };
        for (number, condition) in conditions.iter().enumerate() {
            match condition {
                Expr::Compare(comparison, Affinity::None, a, b) if *comparison != Comparison::NotEqual => {
                    let sides = [(a, b, *comparison), (b, a, comparison.mirrored())];
                    for (side, value, comparison) in sides {
                        if let Some((condition, column, comparison)) = add(number, comparison, side, value) {
                            bounds.push(Bound { condition, column, comparison, value });
                            break;
                        }
                    }
                }
                _ => {}
            }
        }
        bounds
    }

    pub(super) fn candidate(&self, table: usize, placed: u32) -> Candidate {
        match &self.logical.tables[table].origin {
            Origin::Collection(_) => {
                let found = self.entries_candidate(table, placed);
                let single = self.plan.levels.iter().all(|level| level.access.is_single());
                if found.score < SCORE_HASH {
                    found
                } else {
                    self.hash_candidate(table, placed, single).unwrap_or(found)
                }
            }
            Origin::Inner { number, outer, .. } => {
                let single = self.plan.levels.iter().all(|level| level.access.is_single());
                self.inner_candidate(table, (*number, outer), placed, single)
            }
            Origin::Each { json, path, .. } => each_candidate(json, path),
        }
    }

    /// The rows of an inner query, found by a hash where that is possible.
    fn inner_candidate(&self, table: usize, (number, told): (usize, &[Expr]), placed: u32, single: bool) -> Candidate {
        let Some(mut candidate) = self.hash_candidate(table, placed, single) else {
            let access = Access::Kept { inner: number, hash: None, keys: Vec::new(), outer: told.to_vec() };
            return Candidate::new(SCORE_SCAN, access, Vec::new());
        };
        if let Access::Kept { inner, outer, .. } = &mut candidate.access {
            (*inner, *outer) = (number, told.to_vec());
        }
        candidate
    }

    /// All ways to find a table's entries that may be the best. `single`: the tables placed give one row at most.
    pub(super) fn ways(&self, table: usize, placed: u32, single: bool) -> Vec<Candidate> {
        match &self.logical.tables[table].origin {
            Origin::Collection(_) => self.collection_ways(table, placed, single),
            Origin::Inner { number, outer, .. } => vec![self.inner_candidate(table, (*number, outer), placed, single)],
            Origin::Each { json, path, .. } => vec![each_candidate(json, path)],
        }
    }

    fn collection_ways(&self, table: usize, placed: u32, single: bool) -> Vec<Candidate> {
        let (info, bounds) = (self.info(table), self.bounds(table, placed));
        if let Some(found) = self.single_candidate(info, &bounds) {
            return vec![found];
        }
        let indexes = info.indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready());
        let mut ways = vec![scan_candidate(info, &bounds)];
        for (number, index) in indexes {
            ways.push(index_candidate(info, number, index, &bounds).unwrap_or_else(|| {
                let (equal, direction) = (Vec::new(), Direction::Forward);
                let access = Access::Index { number, tree: index.tree, equal, from: None, to: None, direction };
                Candidate::new(SCORE_SCAN, access, Vec::new())
            }));
        }
        ways.extend(self.point_ways(table, placed, &bounds));
        ways.extend(self.hash_candidate(table, placed, single));
        ways
    }

    /// The table read once and found by a hash over what equals something of the tables placed. Worth its memory only where
    /// these give more than one row.
    fn hash_candidate(&self, table: usize, placed: u32, single: bool) -> Option<Candidate> {
        if placed == 0 || single {
            return None;
        }
        let (own, whole) = (1u32 << table, matches!(self.logical.tables[table].origin, Origin::Collection(_)));
        let left = self.logical.tables[table].left_on.is_some();
        let conditions = if left { &self.left_on[table] } else { &self.conditions };
        let (mut keys, mut sides, mut fulfilled) = (Vec::new(), Vec::new(), Vec::new());
        for (number, condition) in conditions.iter().enumerate() {
            let Expr::Compare(Comparison::Equal, Affinity::None, a, b) = condition else { continue };
            let pair = [(a, b), (b, a)].into_iter().find(|(side, value)| {
                let other = self.tables(value);
                self.tables(side) == own && other != 0 && other & !placed == 0 && !side.has_inner() && !side.has_outer()
            });
            // The rows of an inner query are hashed by their columns only.
            if let Some((side, value)) = pair.filter(|(side, _)| whole || matches!(***side, Expr::Column(_))) {
                keys.push((**value).clone());
                sides.push((**side).clone());
                fulfilled.push(number);
            }
        }
        let access = Access::Kept { inner: usize::MAX, hash: None, keys, outer: Vec::new() };
        (!sides.is_empty()).then(|| Candidate { sides, ..Candidate::new(SCORE_HASH, access, fulfilled) })
    }

    fn entries_candidate(&self, table: usize, placed: u32) -> Candidate {
        let (info, bounds) = (self.info(table), self.bounds(table, placed));
        if let Some(found) = self.single_candidate(info, &bounds) {
            return found;
        }
        let indexes = info.indexes.iter().enumerate().filter(|(_, index)| index.readiness.is_ready());
        let best = indexes.filter_map(|(number, index)| index_candidate(info, number, index, &bounds));
        let best = best.chain(self.point_ways(table, placed, &bounds));
        best.min_by_key(|candidate| candidate.score).unwrap_or_else(|| scan_candidate(info, &bounds))
    }

    /// A way that finds one document at most.
    fn single_candidate(&self, info: &CollectionInfo, bounds: &[Bound<'_>]) -> Option<Candidate> {
        let equal = |field: &str| bounds.iter().find(|b| b.comparison == Comparison::Equal && b.column == field);
        if let Some(bound) = equal(&info.key.field) {
            return Some(Candidate::new(SCORE_KEY, Access::Key(bound.value.clone()), vec![bound.condition]));
        }
        let mut unique = info.unique.iter().filter(|unique| unique.readiness.is_ready());
        unique.find_map(|unique| {
            let bound = equal(&unique.field)?;
            let (field, value) = (unique.field.clone(), bound.value.clone());
            let access = Access::Unique { tree: unique.tree, field, value };
            Some(Candidate::new(SCORE_UNIQUE, access, vec![bound.condition]))
        })
    }

    /// Takes ORDER BY from the outermost level's own order where that is possible.
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
        let Some(direction) = direction else { return };
        match &mut self.plan.levels[0].access {
            Access::Index { direction: own, .. } | Access::Scan { direction: own, .. } => *own = direction,
            Access::Points(points) => points.direction = direction,
            _ => {}
        }
        self.plan.order.clear();
        self.plan.ordered = true;
    }

    /// The direction in which the outermost level's entries come in the order asked for, if they can.
    fn order_direction(&mut self) -> Option<Direction> {
        let level = &self.plan.levels[0];
        let inner_single = self.plan.levels[1..].iter().all(|level| level.access.is_single());
        let order_of = |access: &Access| self.order_of(level.table, access, inner_single);
        if let Some(direction) = order_of(&level.access) {
            return Some(direction);
        }
        // A whole scan may as well go through an index, if the first rows are all that is wanted.
        let whole = matches!(level.access, Access::Scan { from: None, to: None, .. });
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

    /// The direction in which the entries of the outermost table come in the order asked for, if they can. `inner_single`: all
    /// others find one entry at most.
    pub(super) fn order_of(&self, table: usize, access: &Access, inner_single: bool) -> Option<Direction> {
        let info = self.info(table);
        let fields: &[String] = match (access, access.index()) {
            (_, Some(number)) => &info.indexes[number].fields,
            (Access::Scan { .. }, None) => &[],
            (Access::Points(points), None) if matches!(points.of, PointsOf::Key) => &[],
            _ => return None,
        };
        let sequence: Vec<&str> = fields.iter().chain(std::iter::once(&info.key.field)).map(String::as_str).collect();
        let fixed = fixed_fields(access);
        let (mut next, mut direction, mut exact) = (0, None, true);
        for (expr, falling) in &self.plan.order {
            while fixed.get(next) == Some(&true) {
                // Of 5 and 5.0, which one value finds, each has its own order of what follows.
                exact &= of_one_kind(info, sequence[next]);
                next += 1;
            }
            if next == sequence.len() && inner_single {
                break; // The key has decided: no two rows are left to order.
            }
            let Expr::Column(column) = expr else { return None };
            let column = &self.logical.columns[*column];
            if column.table != table {
                return None;
            }
            let is_fixed = |(field, fixed): (&&str, &bool)| *fixed && *field == column.name;
            if sequence.iter().zip(&fixed).any(is_fixed) {
                continue;
            }
            let wanted = if *falling { Direction::Backward } else { Direction::Forward };
            let fits = sequence.get(next) == Some(&column.name.as_str()) && exact;
            if !fits || direction.is_some_and(|direction| direction != wanted) {
                return None;
            }
            direction = Some(wanted);
            // 5 and 5.0 are equal, yet lie apart in the index: what follows is then not in order.
            exact &= next + 1 == sequence.len() || of_one_kind(info, sequence[next]);
            next += 1;
        }
        Some(direction.unwrap_or(Direction::Forward))
    }
}

/// For each first field of what is read in order: whether all entries have one value there.
fn fixed_fields(access: &Access) -> Vec<bool> {
    match access {
        Access::Index { equal, .. } => vec![true; equal.len()],
        Access::Points(points) => points.sought.iter().map(|sought| matches!(sought, Sought::One(_))).collect(),
        _ => Vec::new(),
    }
}

/// Whether values of the field that are equal are also of one kind, so that they lie together in an index.
pub(super) fn of_one_kind(info: &CollectionInfo, field: &str) -> bool {
    let kind = info.field(field).map_or(FieldKind::Any, |field| field.kind);
    info.keeps_equal_together()
        || field == info.key.field
        || matches!(kind, FieldKind::Integer | FieldKind::Text | FieldKind::Boolean)
}

fn index_candidate(info: &CollectionInfo, number: usize, index: &IndexInfo, bounds: &[Bound<'_>]) -> Option<Candidate> {
    let (mut equal, mut fulfilled, mut exact) = (Vec::new(), Vec::new(), true);
    for field in &index.fields {
        let found = bounds.iter().find(|b| b.comparison == Comparison::Equal && b.column == field.as_str());
        let Some(bound) = found.filter(|_| exact) else { break };
        equal.push(bound.value.clone());
        fulfilled.push(bound.condition);
        exact = of_one_kind(info, field);
    }
    let next = index.fields.get(equal.len()).filter(|_| exact);
    let (from, to) = next.map_or((None, None), |field| limits(field, bounds, &mut fulfilled));
    let ranges = u32::from(from.is_some()) + u32::from(to.is_some());
    if equal.is_empty() && ranges == 0 {
        return None;
    }
    let score = if equal.is_empty() { SCORE_KEY_RANGE - ranges } else { SCORE_INDEX - 4 * equal.len() as u32 - ranges };
    let access = Access::Index { number, tree: index.tree, equal, from, to, direction: Direction::Forward };
    Some(Candidate::new(score, access, fulfilled))
}

/// The bounds of a field's range, whose conditions become fulfilled.
pub(super) fn limits(field: &str, bounds: &[Bound<'_>], fulfilled: &mut Vec<usize>) -> (Option<Limit>, Option<Limit>) {
    let (mut from, mut to) = (None, None);
    for bound in bounds.iter().filter(|bound| bound.column == field) {
        let (side, inclusive) = match bound.comparison {
            Comparison::Greater => (&mut from, false),
            Comparison::GreaterOrEqual => (&mut from, true),
            Comparison::Less => (&mut to, false),
            Comparison::LessOrEqual => (&mut to, true),
            _ => continue,
        };
        if side.is_none() {
            *side = Some((bound.value.clone(), inclusive));
            fulfilled.push(bound.condition);
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
        Candidate { score, access, fulfilled, sides: Vec::new(), weight: Weight::default() }
    }
}
