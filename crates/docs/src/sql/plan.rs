//! How a query is run: one level of nested loops for each collection, with the way in which its entries are found, and where
//! each condition and field is taken care of. Made by `planner.rs`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::access::Access;
use super::aggregate::{AggregateCall, AggregateKind};
use super::compiled::Compiled;
use super::constants::Repeatable;
use super::expr::Expr;
use super::points::Points;
use super::row::Source;
use super::sets::Combine;
use crate::engine::TreeId;
use crate::key::KeyType;

/// What a level of a plan is thought to do in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Estimate {
    /// How often it is begun: rows of the level outside.
    pub(crate) loops: f64,
    /// Entries looked at.
    pub(crate) read: f64,
    /// Rows that go on.
    pub(crate) rows: f64,
}

/// One collection's part of the nested loops.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) table: usize,
    /// Its place in the catalog, if it is a collection.
    pub(crate) collection: Option<usize>,
    pub(crate) tree: TreeId,
    pub(crate) key: KeyType,
    pub(crate) access: Access,
    /// An index entry does not tell all: its document is fetched.
    pub(crate) fetch: bool,
    /// The place of the document's key in an index entry's key.
    pub(crate) key_place: usize,
    /// Conditions that need no fetched document, then those that do.
    pub(crate) before: Vec<Expr>,
    pub(crate) after: Vec<Expr>,
    /// A left join: a row without fields where nothing is found; then these conditions of WHERE.
    pub(crate) left: bool,
    pub(crate) beyond: Vec<Expr>,
    /// What it is thought to do, where counts tell.
    pub(crate) estimate: Option<Estimate>,
}

/// How one query runs with one set of present optional parameters.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) levels: Vec<Level>,
    /// By column.
    pub(crate) sources: Vec<Source>,
    /// Computed once for an execution.
    pub(crate) constants: Vec<Expr>,
    /// For each constant: what its earlier results are found again by, where they are worth it.
    pub(crate) repeatable: Vec<Option<Repeatable>>,
    /// Conditions without fields.
    pub(crate) first: Vec<Expr>,
    pub(crate) outputs: Vec<Expr>,
    pub(crate) distinct: bool,
    pub(crate) grouped: bool,
    pub(crate) group: Vec<Expr>,
    pub(crate) aggregates: Vec<AggregateCall>,
    pub(crate) having: Option<Expr>,
    /// Empty where the rows come in order by themselves.
    pub(crate) order: Vec<(Expr, bool)>,
    /// ORDER BY was asked for and needs no sort.
    pub(crate) ordered: bool,
    /// So many of its first terms rise, or fall, from row to row as they are found: with LIMIT the rows that are wanted are complete
    /// once one comes that is behind them in these.
    pub(crate) sorted_by: usize,
    /// The first row decides its one aggregate: MIN or MAX, in the order of the field.
    pub(crate) first_only: bool,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    /// Joined collections left out: a reference guarantees the partner, and none of its fields is used.
    pub(crate) implied: Vec<usize>,
    /// Queries whose rows are kept, by number: those that the text has, then collections joined by a hash.
    pub(crate) inner: Vec<InnerPlan>,
    /// About how many rows it gives.
    pub(crate) rows: f64,
    /// Numbers it among all plans, so that the field caches of an inner query are found again.
    pub(crate) number: usize,
    /// The same, if it is of the shape that runs without a walk of expressions.
    pub(crate) compiled: Option<Box<Compiled>>,
    /// It, or a query inside it, reads a collection whole.
    pub(crate) scans: bool,
    /// EXPLAIN in one line, and whether a collection is read whole; made when it is first asked for.
    pub(crate) line: OnceLock<(Arc<str>, bool)>,
}

/// A query inside a plan.
#[derive(Clone, Debug)]
pub(crate) struct InnerPlan {
    /// More than one for UNION and the like.
    pub(crate) members: Vec<Plan>,
    /// How each one's rows go with those before.
    pub(crate) combine: Vec<Combine>,
    /// It is told of the row that asks, and asked for each.
    pub(crate) is_correlated: bool,
    /// The columns that its rows are found by, for each hash.
    pub(crate) hashes: Vec<Vec<usize>>,
    /// The collection that is read for a join; `None` for a query of the text.
    pub(crate) joined: Option<usize>,
}

/// What a plan's line takes, about.
const LINE_BYTES: usize = 256;

/// Numbers plans and queries, so that a thread's scratch tells their field caches apart.
static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// The next number.
pub(crate) fn number() -> usize {
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

impl Plan {
    /// It and the plans inside it.
    pub(crate) fn each_mut(&mut self, change: &mut dyn FnMut(&mut Plan)) {
        change(self);
        self.inner.iter_mut().flat_map(|inner| &mut inner.members).for_each(|member| member.each_mut(change));
    }

    /// About how many bytes it has in memory, the plans inside it included.
    pub(crate) fn bytes(&self) -> usize {
        let expressions =
            self.expressions().chain(&self.constants).chain(&self.first).chain(&self.limit).chain(&self.offset);
        let known = self.compiled.iter().flat_map(|compiled| &compiled.known);
        let expressions: usize = expressions.chain(known).map(Expr::bytes).sum();
        let compiled = self.compiled.as_ref().map_or(0, |compiled| compiled.bytes());
        let lists = self.levels.len() * (size_of::<Level>() + size_of::<Points>())
            + self.sources.iter().map(|source| size_of::<Source>() + source.name.stored().len()).sum::<usize>()
            + self.repeatable.len() * (size_of::<Repeatable>() + size_of::<usize>())
            + self.implied.len() * size_of::<usize>();
        let inner = self.inner.iter().flat_map(|inner| &inner.members).map(Plan::bytes);
        let inner = inner.sum::<usize>() + self.inner.len() * size_of::<InnerPlan>();
        // A list that has grown has room for more, and the allocator rounds up. The line that EXPLAIN shows comes later.
        size_of::<Plan>() + LINE_BYTES + (expressions + compiled + lists) / 2 * 3 + inner
    }

    /// About how many entries the outermost level looks at for its first rows; `None`: nobody knows, or it needs all.
    pub(crate) fn reads_for(&self, rows: usize) -> Option<f64> {
        let (first, last) = (self.levels.first()?.estimate?, self.levels.last()?.estimate?);
        let share = rows as f64 / last.rows.max(f64::MIN_POSITIVE);
        (self.ordered && !self.distinct).then_some(first.read * share)
    }

    /// Whether a row may end an execution with an error of its own: what an expression says of it, or what is kept of it. Not
    /// counted is a stored text that is longer than all that may be computed.
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

    /// All expressions that an execution evaluates for rows.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let levels = self.levels.iter().flat_map(|level| {
            level.before.iter().chain(&level.after).chain(&level.beyond).chain(level.access.expressions())
        });
        let aggregates = self.aggregates.iter().flat_map(AggregateCall::expressions);
        let order = self.order.iter().map(|(expr, _)| expr);
        levels.chain(&self.outputs).chain(&self.group).chain(aggregates).chain(&self.having).chain(order)
    }
}
