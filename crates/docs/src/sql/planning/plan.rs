//! The plan of a query: one level of nested loops for each collection, with its access path, and the level at which each
//! predicate and field is evaluated. Made by `planner.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::access::Access;
use super::compiled_plan::CompiledPlan;
use super::points::Points;
use crate::encoding::KeyType;
use crate::engine::TreeId;
use crate::sql::expressions::constants::Repeatable;
use crate::sql::expressions::{AggregateCall, AggregateKind, ColumnSource, Expr};
use crate::sql::rows::Combine;

/// Estimates of a level's work in one execution.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// How often its access path is opened: rows of the outer levels.
    pub(crate) loops: f64,
    /// Entries scanned.
    pub(crate) read: f64,
    /// Rows that pass its predicates.
    pub(crate) rows: f64,
}

/// The level of one table in the nested loops.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) table: usize,
    /// The collection's place in the catalog, if it is a collection.
    pub(crate) collection: Option<usize>,
    pub(crate) tree: TreeId,
    pub(crate) key: KeyType,
    pub(crate) access: Access,
    /// The index entry does not cover the query: its document is fetched.
    pub(crate) fetch: bool,
    /// The place of the document's key in an index entry's key.
    pub(crate) key_place: usize,
    /// Predicates that need no fetched document, then those that do.
    pub(crate) before: Vec<Expr>,
    pub(crate) after: Vec<Expr>,
    /// A left join: a row of NULLs if nothing matches. `beyond` are predicates of WHERE, evaluated after that.
    pub(crate) left: bool,
    pub(crate) beyond: Vec<Expr>,
    /// Its estimates, if counts are kept.
    pub(crate) estimate: Option<Estimate>,
}

/// How a query runs with one set of present optional parameters.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) levels: Vec<Level>,
    /// By column.
    pub(crate) sources: Vec<ColumnSource>,
    /// Computed once per execution.
    pub(crate) constants: Vec<Expr>,
    /// For each constant: the key under which earlier results are kept, if that is worth it.
    pub(crate) repeatable: Vec<Option<Repeatable>>,
    /// Predicates without fields.
    pub(crate) first: Vec<Expr>,
    pub(crate) outputs: Vec<Expr>,
    pub(crate) distinct: bool,
    pub(crate) grouped: bool,
    pub(crate) group: Vec<Expr>,
    pub(crate) aggregates: Vec<AggregateCall>,
    pub(crate) having: Option<Expr>,
    /// Empty if the rows are already in order.
    pub(crate) order: Vec<(Expr, bool)>,
    /// ORDER BY is fulfilled without a sort.
    pub(crate) ordered: bool,
    /// Number of leading ORDER BY terms by which the rows are already sorted when they are scanned. With LIMIT, the scan ends
    /// at the first row that is behind all wanted rows in these terms.
    pub(crate) sorted_by: usize,
    /// The first row determines its only aggregate, MIN or MAX: rows come in the order of its field.
    pub(crate) first_only: bool,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    /// Joined collections that are not read: a reference guarantees the partner, and none of its fields is used.
    pub(crate) implied: Vec<usize>,
    /// Queries whose rows are kept, by number: the subqueries of the text, then collections that are read once for a join.
    pub(crate) inner: Vec<InnerPlan>,
    /// Estimate of its result rows.
    pub(crate) rows: f64,
    /// Its number among all plans and queries, by which the field caches of a subquery are found.
    pub(crate) number: usize,
    /// The compiled form, if the plan has a supported shape: it runs without walking expression trees.
    pub(crate) compiled: Option<Box<CompiledPlan>>,
    /// It, or a query inside it, scans a whole collection.
    pub(crate) scans: bool,
    /// EXPLAIN in one line, and whether a whole collection is scanned; made on first use.
    pub(crate) line: OnceLock<(Arc<str>, bool)>,
}

/// A query inside a plan.
#[derive(Clone, Debug)]
pub(crate) struct InnerPlan {
    /// Several for UNION, INTERSECT and EXCEPT.
    pub(crate) members: Vec<Plan>,
    /// How each member's rows are combined with those of the members before it.
    pub(crate) combine: Vec<Combine>,
    /// It depends on the outer row, and is evaluated for each.
    pub(crate) is_correlated: bool,
    /// For each hash: the columns of its key.
    pub(crate) hashes: Vec<Vec<usize>>,
    /// The collection that is read for a join; `None` for a subquery of the text.
    pub(crate) joined: Option<usize>,
}

/// Estimate of the bytes of a plan's EXPLAIN line.
const LINE_BYTES: usize = 256;

/// Numbers of plans and queries, by which a thread's scratch keeps their field caches separate.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// The next number.
pub(crate) fn number() -> usize {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Plan {
    /// Calls `change` on it and on all plans inside it.
    pub(crate) fn each_mut(&mut self, change: &mut dyn FnMut(&mut Plan)) {
        change(self);
        self.inner.iter_mut().flat_map(|inner| &mut inner.members).for_each(|member| member.each_mut(change));
    }

    /// Estimate of its bytes in memory, with the plans inside it.
    pub(crate) fn bytes(&self) -> usize {
        let expressions =
            self.expressions().chain(&self.constants).chain(&self.first).chain(&self.limit).chain(&self.offset);
        let known = self.compiled.iter().flat_map(|compiled| &compiled.known);
        let expressions: usize = expressions.chain(known).map(Expr::bytes).sum();
        let compiled = self.compiled.as_ref().map_or(0, |compiled| compiled.bytes());
        let lists = self.levels.len() * (size_of::<Level>() + size_of::<Points>())
            + self.sources.iter().map(|source| size_of::<ColumnSource>() + source.name.stored().len()).sum::<usize>()
            + self.repeatable.len() * (size_of::<Repeatable>() + size_of::<usize>())
            + self.implied.len() * size_of::<usize>();
        let inner = self.inner.iter().flat_map(|inner| &inner.members).map(Plan::bytes);
        let inner = inner.sum::<usize>() + self.inner.len() * size_of::<InnerPlan>();
        // Half is added for spare capacity of lists and the allocator's rounding. The EXPLAIN line is made later.
        size_of::<Plan>() + LINE_BYTES + (expressions + compiled + lists) / 2 * 3 + inner
    }

    /// Estimate of the entries that the outermost level scans for the first `rows` rows. `None`: unknown, or it needs all
    /// entries.
    pub(crate) fn reads_for(&self, rows: usize) -> Option<f64> {
        let (first, last) = (self.levels.first()?.estimate?, self.levels.last()?.estimate?);
        let share = rows as f64 / last.rows.max(f64::MIN_POSITIVE);
        (self.ordered && !self.distinct).then_some(first.read * share)
    }

    /// Whether a row can end an execution with an error: in an expression, or by a limit on the data kept for it. Stored texts
    /// that are longer than the limit of computed texts are not considered.
    pub(crate) fn rows_may_fail(&self) -> bool {
        let is_counted =
            |call: &AggregateCall| call.is_plain() && !matches!(call.kind, AggregateKind::Min | AggregateKind::Max);
        let keeps = self.distinct || !self.group.is_empty() || !self.order.is_empty();
        let reads_elements = self.levels.iter().any(|level| matches!(level.access, Access::Each { .. }));
        let mut fails = keeps || reads_elements || !self.aggregates.iter().all(is_counted);
        let mut note = |part: &Expr| {
            let makes = matches!(part, Expr::Call(..) | Expr::Concat(..) | Expr::Arrow(..) | Expr::Cast(..));
            fails |= makes || matches!(part, Expr::Like(..) | Expr::Glob(..) | Expr::InInner(..));
        };
        self.expressions().for_each(|expr| expr.walk(&mut note));
        fails
    }

    /// Which of its `columns` columns the expressions evaluated for rows use.
    pub(super) fn used_columns(&self, columns: usize) -> Vec<bool> {
        let mut used = vec![false; columns];
        self.expressions().for_each(|expr| expr.each_column(&mut |column| used[column] = true));
        used
    }

    /// All expressions that are evaluated for rows.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let levels = self.levels.iter().flat_map(|level| {
            level.before.iter().chain(&level.after).chain(&level.beyond).chain(level.access.expressions())
        });
        let aggregates = self.aggregates.iter().flat_map(AggregateCall::expressions);
        let order = self.order.iter().map(|(expr, _)| expr);
        levels.chain(&self.outputs).chain(&self.group).chain(aggregates).chain(&self.having).chain(order)
    }
}
