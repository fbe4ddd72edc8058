//! Join order: which table comes first, which next, and through which access path each, at the least cost by the counts.
//!
//! Orders grow by one table at a time, all of one length together. Of the partial orders with the same tables, and with the
//! same properties that matter for the remaining tables ([`Begun::kind`]), only the cheapest is kept. Of these, the cheapest
//! few ([`STEPS_MAX`]) are kept. Usual joins have so few table sets that none is dropped. For larger joins the time is bounded,
//! and the order is good but not always the best. A plan depends only on the query's text and the counts.
//!
//! If all rows are wanted, a partial order that costs more than a known complete order is dropped. The first complete order is
//! found greedily, by adding the cheapest table each time.
//!
//! The cost of a table's access paths depends only on which of its neighbours are placed: the tables that a predicate or its ON
//! names beside it. So access paths are costed once for each set of placed neighbours, and a step takes some nanoseconds.

use hashbrown::HashMap;

use super::condition::Condition;
use super::estimate;
use super::plan::Estimate;
use super::planner::Planner;
use crate::sql::expressions::{Comparison, Expr};
use crate::sql::resolve::TableSet;

/// Approximate limit of the extensions of partial orders tried for one query: about a millisecond. It determines how many
/// orders of each length are kept; up to ten tables, all sets are.
const STEPS_MAX: usize = 40_000;
/// At least so many orders of each length are kept.
const BEGUN_LEAST: usize = 8;
/// Limit of the neighbour sets for which access paths are costed, about a microsecond each. Beyond it one order of each length
/// is kept.
const WEIGHED_MAX: usize = 1_000;
/// In joins of more tables than this, a table that no predicate joins with the placed ones waits until no others are left:
/// cross products of small tables look cheap until they are joined with a large one.
const MULTIPLIED_MAX: usize = 8;
/// Divisor of the estimated rows of a plan that reads the first table until LIMIT rows with a given value are found. The
/// estimate holds for an average value. If the given value is rare or absent, such a plan reads the whole table, while an index
/// finds its few rows.
const FEWER_EQUAL: f64 = 8.0;

/// One table's place in the join order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) table: usize,
    /// The number of the access path, see [`Planner::access_paths`].
    pub(super) path: usize,
    pub(super) estimate: Estimate,
}

/// A partial join order.
#[derive(Clone, Copy)]
struct Begun {
    last: Step,
    /// The place of the order without its last table, among all kept orders.
    before: Option<usize>,
    placed: TableSet,
    /// Cost before the first row, and cost for the rows.
    once: f64,
    each: f64,
    rows: f64,
    /// Whether the placed tables give at most one row, and whether all but the first do.
    single: bool,
    inner_single: bool,
    /// Whether the first table's entries are in the requested order: if all other levels find one entry each, and if not.
    ordered: (bool, bool),
    /// The share of the first table's entries that have equal values in the leading terms of the requested order; 1: no order.
    together: f64,
    /// The first table's entries are filtered by an equality that its access path does not fulfil.
    searched: bool,
}

impl Begun {
    fn cost(&self) -> f64 {
        self.once + self.each
    }

    /// Orders of the same tables and kind differ only in their cost.
    fn kind(&self) -> (TableSet, [bool; 5]) {
        let comes = self.together < 1.0;
        (self.placed, [self.single, self.inner_single, self.ordered.0, self.ordered.1, comes])
    }
}

/// A costed access path.
#[derive(Clone, Copy)]
struct Weighed {
    number: usize,
    once: f64,
    each: f64,
    read: f64,
    /// Shares of the entries read that pass the ON of a left join, and the predicates that become complete with this table.
    on: f64,
    passing: f64,
    single: bool,
}

/// The table, its placed neighbours, whether any table is placed, and whether the placed ones give at most one row.
type Situation = (usize, TableSet, bool, bool);

struct Search<'p, 'q> {
    planner: &'p Planner<'q>,
    tables: Vec<usize>,
    needs: Vec<TableSet>,
    near: Vec<TableSet>,
    weighed: Vec<Vec<Weighed>>,
    places: HashMap<Situation, usize>,
    wanted: f64,
    /// Partial orders that cost more are dropped.
    cost_max: f64,
}

impl Planner<'_> {
    /// The best order found; empty if there is none.
    pub(super) fn join_order(&self) -> Vec<Step> {
        let wanted = if self.plan.first_only { 1.0 } else { self.wanted_rows() };
        let mut search = Search::new(self, wanted);
        if !wanted.is_finite() {
            search.cost_max = search.first_whole_cost();
        }
        let begun_max = (STEPS_MAX / search.tables.len().pow(2).max(1)).max(BEGUN_LEAST);
        let mut all: Vec<Begun> = Vec::new();
        let mut front = 0..0;
        for length in 0..search.tables.len() {
            let mut next = Vec::new();
            match length {
                0 => search.first_steps(&mut next),
                _ => front.clone().for_each(|place| search.steps_from(place, &all[place], &mut next)),
            }
            let most = if search.places.len() < WEIGHED_MAX { begun_max } else { 1 };
            let start = all.len();
            search.best_of(&next, most, &mut all);
            front = start..all.len();
        }
        let complete = all[front].iter();
        let Some(best) = complete.min_by(|a, b| self.whole_cost(a, wanted).total_cmp(&self.whole_cost(b, wanted)))
        else {
            return Vec::new();
        };
        let mut steps: Vec<Step> =
            std::iter::successors(Some(best), |begun| begun.before.map(|place| &all[place])).map(|b| b.last).collect();
        steps.reverse();
        steps
    }

    /// Whether a table's scanned rows are filtered by an equality that its access path does not fulfil.
    fn searches(&self, table: usize, fulfilled: &[usize]) -> bool {
        let conditions = self.conditions_of(table).iter().enumerate();
        let mut open = conditions.filter(|(place, condition)| condition.is_of(table) && !fulfilled.contains(place));
        open.any(|(_, condition)| matches!(condition.expr, Expr::Compare(Comparison::Equal, ..)))
    }

    /// The cost of a complete order, including its sort. If the first rows suffice, only the work for them counts.
    fn whole_cost(&self, begun: &Begun, wanted: f64) -> f64 {
        let first_only = self.plan.first_only;
        let gathers = self.plan.grouped && !first_only || self.plan.distinct;
        let (if_single, otherwise) = begun.ordered;
        let ordered = match gathers || self.plan.order.is_empty() {
            true => !gathers,
            false => begun.single || if begun.inner_single { if_single } else { otherwise },
        };
        let sort = if ordered || first_only || self.plan.order.is_empty() {
            0.0
        } else {
            estimate::sorting(begun.rows, wanted)
        };
        // If rows come sorted by the leading ORDER BY terms, they are read until the wanted rows are complete.
        let share = match ordered {
            true => first_share(begun, wanted),
            false if gathers => 1.0,
            false => (first_share(begun, wanted) + begun.together).min(1.0),
        };
        begun.once + begun.each * share + sort
    }
}

/// The share of an order's work for the first rows.
fn first_share(begun: &Begun, wanted: f64) -> f64 {
    let expected = if begun.searched { begun.rows / FEWER_EQUAL } else { begun.rows };
    (wanted / expected.max(f64::MIN_POSITIVE)).min(1.0)
}

fn cheapest(orders: &[Begun]) -> Option<Begun> {
    orders.iter().copied().min_by(|a, b| a.cost().total_cmp(&b.cost()))
}

impl<'p, 'q> Search<'p, 'q> {
    fn new(planner: &'p Planner<'q>, wanted: f64) -> Self {
        let (count, joined) = (planner.logical.tables.len(), planner.joined());
        let tables: Vec<usize> = (0..count).filter(|table| joined >> table & 1 == 1).collect();
        let mut near: Vec<TableSet> = (0..count).map(|table| planner.needs(table)).collect();
        for condition in &planner.conditions {
            let of = tables.iter().filter(|table| condition.tables >> **table & 1 == 1);
            of.for_each(|table| near[*table] |= condition.tables);
        }
        near.iter_mut().enumerate().for_each(|(table, near)| *near &= !(1 << table));
        let needs = (0..count).map(|table| planner.needs(table)).collect();
        Search {
            planner,
            tables,
            needs,
            near,
            weighed: Vec::new(),
            places: HashMap::new(),
            wanted,
            cost_max: f64::INFINITY,
        }
    }

    /// The cost of the greedy order, which adds the cheapest table each time; infinite if it cannot be completed.
    fn first_whole_cost(&mut self) -> f64 {
        let mut next = Vec::new();
        self.first_steps(&mut next);
        for _ in 1..self.tables.len() {
            let Some(begun) = cheapest(&next) else { return f64::INFINITY };
            next.clear();
            self.steps_from(0, &begun, &mut next);
        }
        cheapest(&next).map_or(f64::INFINITY, |begun| self.planner.whole_cost(&begun, self.wanted))
    }

    /// The orders of one table, one for each access path.
    fn first_steps(&mut self, next: &mut Vec<Begun>) {
        let planner = self.planner;
        for table in self.tables.clone().into_iter().filter(|table| planner.is_ready(*table, 0)) {
            let weighed = self.weighed(table, 0, true);
            let paths = planner.access_paths(table, 0, true);
            for path in &self.weighed[weighed] {
                let access = &paths[path.number].access;
                let asks = !planner.plan.order.is_empty();
                let order_of = |inner_single| asks && planner.order_of(table, access, inner_single).is_some();
                let together = if asks { planner.together(table, access, path.read) } else { 1.0 };
                let nothing = Begun {
                    last: Step { table, path: path.number, estimate: Estimate::default() },
                    before: None,
                    placed: 0,
                    once: 0.0,
                    each: 0.0,
                    rows: 1.0,
                    single: true,
                    inner_single: true,
                    ordered: (order_of(true), order_of(false)),
                    together,
                    searched: planner.searches(table, &paths[path.number].fulfilled),
                };
                next.push(Begun { inner_single: true, ..self.step(table, path, &nothing, None) });
            }
        }
    }

    /// Extends an order by each possible table with its best access path. If few rows are wanted, the order is also extended
    /// with the access path that is best for the first rows.
    fn steps_from(&mut self, place: usize, begun: &Begun, next: &mut Vec<Begun>) {
        let is_open = |table: &usize| begun.placed >> table & 1 == 0 && self.needs[*table] & !begun.placed == 0;
        let mut open: Vec<usize> = self.tables.iter().copied().filter(is_open).collect();
        let is_near = |table: &usize| self.near[*table] & begun.placed != 0;
        if self.tables.len() > MULTIPLIED_MAX && open.iter().any(is_near) {
            open.retain(is_near);
        }
        for table in open {
            let weighed = self.weighed(table, begun.placed, begun.single);
            let steps = || self.weighed[weighed].iter().map(|path| self.step(table, path, begun, Some(place)));
            let best = steps().min_by(|a, b| a.cost().total_cmp(&b.cost()));
            if self.wanted.is_finite() {
                let first = steps().min_by(|a, b| self.first_cost(a).total_cmp(&self.first_cost(b)));
                next.extend(first.filter(|first| best.is_none_or(|best| best.last.path != first.last.path)));
            }
            next.extend(best);
        }
    }

    /// The cost of a partial order until the first rows are found.
    fn first_cost(&self, begun: &Begun) -> f64 {
        begun.once + begun.each * first_share(begun, self.wanted)
    }

    fn step(&self, table: usize, path: &Weighed, begun: &Begun, before: Option<usize>) -> Begun {
        let read = begun.rows * path.read;
        let rows = match self.planner.is_left(table) {
            true => (read * path.on).max(begun.rows) * path.passing,
            false => read * path.passing,
        };
        let estimate = Estimate { loops: begun.rows, read, rows };
        Begun {
            last: Step { table, path: path.number, estimate },
            before,
            placed: begun.placed | 1 << table,
            once: begun.once + path.once,
            each: begun.each + begun.rows * path.each,
            rows,
            single: begun.single && path.single,
            inner_single: begun.inner_single && path.single,
            ordered: begun.ordered,
            together: begun.together,
            searched: begun.searched,
        }
    }

    /// The place of a table's costed access paths in this situation.
    fn weighed(&mut self, table: usize, placed: TableSet, single: bool) -> usize {
        let situation = (table, placed & self.near[table], placed != 0, single);
        if let Some(place) = self.places.get(&situation) {
            return *place;
        }
        let planner = self.planner;
        let mut paths = planner.access_paths(table, placed, single);
        paths.iter_mut().for_each(|path| planner.weigh(table, path));
        let (own, left): (TableSet, _) = (1 << table, planner.is_left(table));
        let with_it = placed | own;
        let complete = |conditions: &[Condition]| -> Vec<(usize, f64)> {
            let conditions = conditions.iter().enumerate();
            let new = conditions.filter(|(_, c)| c.tables & own != 0 && c.tables & !with_it == 0);
            new.map(|(place, condition)| (place, planner.share(condition))).collect()
        };
        let (on, conditions) = (left.then(|| complete(&planner.left_on[table])), complete(&planner.conditions));
        let share = |conditions: &[(usize, f64)], fulfilled: &[usize]| {
            let open = conditions.iter().filter(|(place, _)| !fulfilled.contains(place));
            open.map(|(_, share)| share).product::<f64>()
        };
        let fits = paths.iter().enumerate().filter(|(_, path)| !planner.is_too_large(table, path, &paths));
        let weighed = fits.map(|(number, path)| Weighed {
            number,
            once: path.weight.once,
            each: path.weight.each,
            read: path.weight.read,
            on: on.as_ref().map_or(1.0, |on| share(on, &path.fulfilled)),
            passing: share(&conditions, if left { &[] } else { &path.fulfilled }),
            single: path.access.is_single(),
        });
        self.weighed.push(weighed.collect());
        self.places.insert(situation, self.weighed.len() - 1);
        self.weighed.len() - 1
    }

    /// Appends the partial orders that are kept: the cheapest of each kind, at most `most`. If few rows are wanted, a complete
    /// order may cost less than its parts, so the cheapest by the cost of the first rows are kept as well.
    fn best_of(&self, next: &[Begun], most: usize, all: &mut Vec<Begun>) {
        // With very many tables, the prefixes of the greedy order may have been dropped.
        let is_any_within = next.iter().any(|begun| begun.cost() <= self.cost_max);
        let cost_max = if is_any_within { self.cost_max } else { f64::INFINITY };
        let mut keep = |cost: &dyn Fn(&Begun) -> f64| {
            let mut best: HashMap<_, usize> = HashMap::with_capacity(next.len());
            for (place, begun) in next.iter().enumerate().filter(|(_, begun)| begun.cost() <= cost_max) {
                let known = best.entry(begun.kind()).or_insert(place);
                if cost(begun) < cost(&next[*known]) {
                    *known = place;
                }
            }
            let mut best: Vec<(f64, usize)> = best.into_values().map(|place| (cost(&next[place]), place)).collect();
            best.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            all.extend(best.into_iter().take(most).map(|(_, place)| next[place]));
        };
        keep(&Begun::cost);
        if self.wanted.is_finite() {
            keep(&|begun| self.first_cost(begun));
        }
    }
}
