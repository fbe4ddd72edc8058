//! Which table comes first, which next, and through which way each: what costs least, by the counts.
//!
//! All orders are tried that may still be better than the best so far, the one that looks best at each step first. Where that
//! would be more than [`WAYS_MAX`] ways to weigh, each further step takes what looks best there. A query's plan depends on its
//! text and the counts alone.

use super::access::Candidate;
use super::estimate;
use super::plan::Estimate;
use super::planner::Planner;

/// Ways that are weighed for one query: some hundred microseconds.
const WAYS_MAX: usize = 2_000;

/// One table's place among the loops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) table: usize,
    /// The number of the way, see [`Planner::ways`].
    pub(super) way: usize,
    pub(super) estimate: Estimate,
}

/// An order that is not complete.
#[derive(Clone, Default)]
struct Begun {
    steps: Vec<Step>,
    placed: u32,
    /// What is spent before the first row, and for rows.
    once: f64,
    each: f64,
    rows: f64,
    /// The tables placed give one row at most; and those but the first do.
    single: bool,
    inner_single: bool,
    /// The first table's entries come in the order asked for, if all others find one entry.
    ordered: Option<(bool, bool)>,
}

struct Search {
    best: Option<(f64, Vec<Step>)>,
    ways_left: usize,
    tables: usize,
    wanted: f64,
}

impl Planner<'_> {
    /// The best order found; empty where there is none.
    pub(super) fn join_order(&self) -> Vec<Step> {
        let tables = self.logical.tables.len() - self.plan.implied.len();
        let wanted = if self.plan.first_only { 1.0 } else { self.wanted_rows() };
        let mut search = Search { best: None, ways_left: WAYS_MAX, tables, wanted };
        let begun = Begun { rows: 1.0, single: true, inner_single: true, ..Begun::default() };
        self.go_on(&begun, &mut search);
        search.best.map(|(_, steps)| steps).unwrap_or_default()
    }

    fn go_on(&self, begun: &Begun, search: &mut Search) {
        if begun.steps.len() == search.tables {
            let cost = self.cost(begun, search.wanted);
            if search.best.as_ref().is_none_or(|(best, _)| cost < *best) {
                search.best = Some((cost, begun.steps.clone()));
            }
            return;
        }
        let mut next = Vec::new();
        for table in 0..self.logical.tables.len() {
            let open = begun.placed >> table & 1 == 0 && !self.plan.implied.contains(&table);
            if open && self.is_ready(table, begun.placed) {
                next.extend(self.steps_to(table, begun));
            }
        }
        search.ways_left = search.ways_left.saturating_sub(next.len());
        next.sort_by(|a, b| (a.once + a.each).total_cmp(&(b.once + b.each)));
        for begun in next {
            // Where few rows are wanted, an order may in the end cost less than its parts.
            let hopeless = search.wanted.is_infinite()
                && search.best.as_ref().is_some_and(|(best, _)| begun.once + begun.each >= *best);
            if !hopeless {
                self.go_on(&begun, search);
            }
            if search.ways_left == 0 && search.best.is_some() {
                return;
            }
        }
    }

    /// The order with a table more: of the outermost table by each way, of another by the best.
    fn steps_to(&self, table: usize, begun: &Begun) -> Vec<Begun> {
        let mut ways = self.ways(table, begun.placed, begun.single);
        ways.iter_mut().for_each(|way| self.weigh(table, way));
        let fits = |way: &Candidate| !self.is_too_large(table, way, &ways);
        let steps = ways.iter().enumerate().filter(|(_, way)| fits(way));
        let mut steps: Vec<Begun> = steps.map(|(number, way)| self.step_to(table, (number, way), begun)).collect();
        if !begun.steps.is_empty() {
            steps.sort_by(|a, b| (a.once + a.each).total_cmp(&(b.once + b.each)));
            steps.truncate(1);
        }
        steps
    }

    fn step_to(&self, table: usize, (number, way): (usize, &Candidate), begun: &Begun) -> Begun {
        let (weight, own) = (way.weight, 1u32 << table);
        let left = self.logical.tables[table].left_on.is_some();
        let placed = begun.placed | own;
        let is_new = |tables: u32| tables & own != 0 && tables & !placed == 0;
        let share = |conditions: &[super::expr::Expr], fulfilled: &[usize]| {
            let conditions = conditions.iter().enumerate();
            let open =
                conditions.filter(|(place, condition)| !fulfilled.contains(place) && is_new(self.tables(condition)));
            open.map(|(_, condition)| self.passing(condition)).product::<f64>()
        };
        let read = begun.rows * weight.read;
        let mut rows = read;
        if left {
            rows = (rows * share(&self.left_on[table], &way.fulfilled)).max(begun.rows) * share(&self.conditions, &[]);
        } else {
            rows *= share(&self.conditions, &way.fulfilled);
        }
        let estimate = Estimate { loops: begun.rows, read, rows };
        let is_single = way.access.is_single();
        let ordered = begun.ordered.or_else(|| {
            let order_of = |inner_single| self.order_of(table, &way.access, inner_single).is_some();
            (!self.plan.order.is_empty()).then(|| (order_of(true), order_of(false)))
        });
        let mut steps = begun.steps.clone();
        steps.push(Step { table, way: number, estimate });
        Begun {
            inner_single: begun.inner_single && (begun.steps.is_empty() || is_single),
            steps,
            placed,
            once: begun.once + weight.once,
            each: begun.each + begun.rows * weight.each,
            rows,
            single: begun.single && is_single,
            ordered,
        }
    }

    /// What a complete order costs, with sorting, and without what is not read where the first rows suffice.
    fn cost(&self, begun: &Begun, wanted: f64) -> f64 {
        let first_only = self.plan.first_only;
        let gathers = self.plan.grouped && !first_only || self.plan.distinct;
        let ordered = match begun.ordered {
            _ if gathers || self.plan.order.is_empty() => !gathers,
            _ if begun.single => true,
            Some((if_single, otherwise)) => {
                if begun.inner_single {
                    if_single
                } else {
                    otherwise
                }
            }
            None => true,
        };
        let sort = if ordered || first_only || self.plan.order.is_empty() {
            0.0
        } else {
            estimate::sorting(begun.rows, wanted)
        };
        let share = if ordered { (wanted / begun.rows.max(f64::MIN_POSITIVE)).min(1.0) } else { 1.0 };
        begun.once + begun.each * share + sort
    }
}
