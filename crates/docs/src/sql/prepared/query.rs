//! A prepared query. It is parsed and resolved once, planned on demand for each set of present optional parameters, and
//! executed many times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::analysis::{self, Analysis};
use super::compared::{ParameterUses, field_kind};
use super::explain;
use super::means::Means;
use crate::catalog::{Catalog, CollectionInfo, FieldKind, Readiness, RuleState, TreeCount};
use crate::engine::{ReadView, TreeId};
use crate::sql::execution::{Scratch, inner};
use crate::sql::expressions::constants::Repeatables;
use crate::sql::expressions::{Affinity, Comparison, Expr, FieldPlace};
use crate::sql::functions::Function;
use crate::sql::limits::{Budget, ExecutionCounts, QueryError, SqlError};
use crate::sql::planning::plan_space::{PlanInUse, Plans};
use crate::sql::planning::{FirstRange, Plan, plan, plan_compiler, planner};
use crate::sql::resolve::{self, Logical};
use crate::sql::rows::{JsonRows, RowShape, RowSink};
use crate::sql::syntax::parse;
use crate::sql::values::Value;

/// Most optional parameters that plans are specialised for: the first ones. The others are tested for each row.
pub const SPECIALISED_MAX: usize = 8;
/// Bit in a plan's key: the plan is for a state that may lack indexes built since the database was opened.
const EARLY: u32 = 1 << SPECIALISED_MAX;
/// Estimate of what a [`RowShape`] keeps for each column besides its name.
const SHAPE_BYTES: usize = 64;
/// The counts have not been read yet.
const NO_EPOCH: u64 = u64::MAX;

/// A prepared query, shared by threads. Each thread brings its own [`Scratch`].
pub struct PreparedQuery {
    number: usize,
    pub(super) catalog: Catalog,
    pub(super) logical: Logical,
    /// Slots of the parameters that the text tests for NULL.
    optional: Vec<usize>,
    /// Keyed by the bits of the present optional parameters, and [`EARLY`].
    plans: Plans,
    /// Epoch of the counts with which the plans were last compared.
    epoch: AtomicU64,
    /// Counts of the trees that the query may read, from which the current plans were made. `None` until they are first read.
    counts: Mutex<Option<Vec<(TreeId, TreeCount)>>>,
    /// Readiness of the indexes and unique fields that were not ready when the database was opened.
    waits_for: Vec<Readiness>,
    shape: RowShape,
    repeatables: Repeatables,
    /// Its plans are never compiled.
    interpreted: bool,
}

/// Fields that an index should carry so that queries need not fetch documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedIncluded {
    /// The collection's name.
    pub collection: String,
    /// The index's fields.
    pub index: Vec<String>,
    /// The fields to carry.
    pub fields: Vec<String>,
}

impl PreparedQuery {
    /// Prepares a query against a catalog.
    pub fn prepare(sql: &str, catalog: &Catalog) -> Result<PreparedQuery, SqlError> {
        let parsed = parse::parse(sql)?;
        let catalog = catalog.with_views();
        Ok(PreparedQuery::of(resolve::resolve(sql, &parsed, &catalog)?, catalog))
    }

    /// A query from a resolved statement, against this catalog.
    pub(crate) fn of(mut logical: Logical, mut catalog: Catalog) -> PreparedQuery {
        logical.hand_parameters_down();
        for (number, info) in catalog.collections.iter_mut().enumerate() {
            CollectionInfo::narrow(info, &|field| logical.uses(number, field));
        }
        let optional = optional_parameters(&logical);
        let ready = catalog.collections.iter().flat_map(|info| {
            let unique = info.unique.iter().map(|unique| &unique.readiness);
            info.indexes.iter().map(|index| &index.readiness).chain(unique)
        });
        let waits_for = ready.filter(|readiness| readiness.becomes_ready()).cloned().collect();
        let plans = Plans::new(catalog.plans.clone());
        let shape = RowShape::new(logical.outputs.iter().map(|output| output.name.as_str()));
        PreparedQuery {
            number: plan::number(),
            catalog,
            logical,
            optional,
            plans,
            epoch: AtomicU64::new(NO_EPOCH),
            counts: Mutex::default(),
            waits_for,
            shape,
            repeatables: Repeatables::default(),
            interpreted: false,
        }
    }

    /// The same query with at most `rows_max` rows, even if its own LIMIT is higher.
    pub fn with_limit(mut self, rows_max: u64) -> PreparedQuery {
        let most = Expr::integer(i64::try_from(rows_max).unwrap_or(i64::MAX));
        self.logical.limit = Some(match self.logical.limit.take() {
            None => most,
            // A negative LIMIT means no limit.
            Some(own) => {
                let negative =
                    Expr::Compare(Comparison::Less, Affinity::None, Box::new(own.clone()), Box::new(Expr::integer(0)));
                let least = Expr::Call(Function::Min, vec![own, most.clone()]);
                Expr::Case(vec![(negative, most)], Box::new(least))
            }
        });
        // A plan made earlier would keep the old limit.
        self.plans.forget();
        self
    }

    /// The same query with plans that are never compiled. Tests compare its results with the compiled ones, which are equal.
    pub fn interpreted(mut self) -> PreparedQuery {
        self.interpreted = true;
        self.plans.forget();
        self
    }

    /// Whether the plan is compiled when the named optional parameters are present.
    pub fn is_compiled(&self, present: &[&str]) -> bool {
        self.plan_with(present).compiled.is_some()
    }

    /// Estimate of its bytes in memory. Plans are not included: they count in their own space.
    pub fn bytes(&self) -> usize {
        // Only views were copied by `narrow`; other collections are shared with the catalog.
        let copied = self.catalog.collections.iter().filter(|info| info.is_view());
        let catalog = self.catalog.collections.len() * size_of::<Arc<CollectionInfo>>();
        let shape: usize = self.logical.outputs.iter().map(|output| SHAPE_BYTES + output.name.len()).sum();
        let catalog = catalog + copied.map(|info| info.bytes()).sum::<usize>();
        let waits = self.waits_for.len() * size_of::<Readiness>();
        size_of::<PreparedQuery>()
            + self.logical.bytes()
            + shape
            + catalog
            + waits
            + self.optional.len() * size_of::<usize>()
    }

    /// Whether it calls a date function, so that [`Budget::now_ms`] may affect the result.
    pub fn uses_clock(&self) -> bool {
        let mut uses = false;
        let mut note = |expr: &Expr| expr.walk(&mut |part| uses |= matches!(part, Expr::Call(Function::Date(_), _)));
        self.logical.each(&mut note);
        uses
    }

    /// Calls `look` with the range that the plan without optional parameters scans first. Most executions scan that range
    /// first.
    #[inline]
    pub fn with_first_range<R>(&self, scratch: &mut Scratch, look: impl FnOnce(Option<FirstRange<'_>>) -> R) -> R {
        let key = self.key(0, u64::MAX);
        let plan = self.near_plan(key, scratch);
        let looked = look(FirstRange::of(&plan));
        scratch.near.put(self.number, key, plan);
        looked
    }

    /// The names of the parameters, by slot.
    pub fn parameters(&self) -> &[String] {
        &self.logical.parameters
    }

    /// The uses of a parameter, by the kinds of the fields with which it is compared.
    pub fn compared(&self, name: &str) -> ParameterUses {
        self.slot(name).map_or_else(ParameterUses::default, |slot| self.compared_or_given(slot, |_| FieldKind::Any))
    }

    /// The same for a query whose result columns are assigned to fields of the kinds that `given` returns.
    pub(crate) fn compared_or_given(&self, slot: usize, given: impl Fn(usize) -> FieldKind) -> ParameterUses {
        let mut compared = ParameterUses::of(&self.logical, &self.catalog, slot);
        let columns = self.logical.outputs.iter().enumerate();
        let parameters = columns.filter(|(_, output)| output.expr == Expr::Parameter(slot));
        parameters.for_each(|(column, _)| compared.beside(given(column)));
        compared
    }

    /// The kind that a field of a collection always has. `collection` is its place in the catalog.
    pub(crate) fn kind_of(&self, collection: usize, field: &str) -> FieldKind {
        field_kind(&self.catalog.collections[collection], field)
    }

    /// The slot of a parameter.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.logical.parameters.iter().position(|parameter| parameter == name)
    }

    /// The names of the result columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.logical.outputs.iter().map(|output| output.name.as_str())
    }

    /// A sink for [`PreparedQuery::execute`] that appends rows as JSON objects, with a byte between them.
    pub fn json_rows<'o>(&'o self, out: &'o mut Vec<u8>, separator: u8) -> JsonRows<'o> {
        JsonRows::new(&self.shape, out, separator)
    }

    /// Runs the query. `parameters` are values by slot, NULL for omitted ones.
    pub fn execute(
        &self,
        view: &dyn ReadView,
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<ExecutionCounts, QueryError> {
        self.execute_into(view, parameters, scratch, budget, sink)
    }

    /// The same, compiled for a kind of sink. The executor exists twice: for rows written as JSON, the usual reply, where a call
    /// for each column costs; and for all other sinks, by dynamic dispatch.
    fn execute_into<S: RowSink + ?Sized>(
        &self,
        view: &dyn ReadView,
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        sink: &mut S,
    ) -> Result<ExecutionCounts, QueryError> {
        let key = self.key(self.present(parameters)?, view.ready_by());
        let plan = self.near_plan(key, scratch);
        let outcome = inner::execute(&plan, self.number, view, parameters, scratch, budget, sink);
        scratch.near.put(self.number, key, plan);
        outcome
    }

    /// Runs it and appends its rows as a JSON array of objects. After an error `out` holds what was written so far.
    pub fn write_array(
        &self,
        view: &dyn ReadView,
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, QueryError> {
        out.push(b'[');
        let outcome = self.execute_into(view, parameters, scratch, budget, &mut self.json_rows(out, b','))?;
        out.push(b']');
        Ok(outcome)
    }

    /// Runs it and appends its rows as JSON objects, one on each line.
    pub fn write_lines(
        &self,
        view: &dyn ReadView,
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, QueryError> {
        let outcome = self.execute_into(view, parameters, scratch, budget, &mut self.json_rows(out, b'\n'))?;
        if outcome.rows > 0 {
            out.push(b'\n');
        }
        Ok(outcome)
    }

    /// Runs it and appends its first row as a JSON object, or nothing if there is no row ([`ExecutionCounts::rows`] is the
    /// count).
    pub fn write_row(
        &self,
        view: &dyn ReadView,
        parameters: &[Value<'_>],
        scratch: &mut Scratch,
        budget: &Budget<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ExecutionCounts, QueryError> {
        let start = out.len();
        let mut sink = FirstRow { rows: JsonRows::new(&self.shape, out, b','), done: false };
        let outcome = self.execute(view, parameters, scratch, budget, &mut sink);
        if outcome.is_err() {
            out.truncate(start);
        }
        outcome
    }

    /// The bits of the optional parameters that are present.
    #[inline]
    fn present(&self, parameters: &[Value<'_>]) -> Result<u32, QueryError> {
        let (expected, given) = (self.logical.parameters.len(), parameters.len());
        if expected != given {
            return Err(QueryError::Parameters { expected, given });
        }
        let present = self.optional.iter().enumerate();
        Ok(present.fold(0, |bits, (bit, &slot)| bits | u32::from(!parameters[slot].is_null()) << bit))
    }

    /// The key of the plan for the current counts. `ready_by` is the [`ReadView::ready_by`] of the state that is read.
    #[inline]
    fn key(&self, present: u32, ready_by: u64) -> u32 {
        if self.waits_for.iter().any(|readiness| readiness.is_maintained() && !readiness.is_ready_by(ready_by)) {
            return present | EARLY;
        }
        if self.catalog.counts.epoch() != self.epoch.load(Ordering::Acquire) {
            self.look_at_counts();
        }
        present
    }

    /// The plan of a key: from the plans that the thread used last, or from the query's list.
    #[inline]
    fn near_plan(&self, key: u32, scratch: &mut Scratch) -> PlanInUse {
        scratch.near.take(self.number, key).unwrap_or_else(|| self.plan_of(key))
    }

    fn plan_of(&self, key: u32) -> PlanInUse {
        self.plans.get(key, || match key & EARLY {
            0 => self.made(&self.catalog, key),
            _ => self.made(&self.early_catalog(), key & !EARLY),
        })
    }

    fn plan(&self, parameters: &[Value<'_>], ready_by: u64) -> Result<PlanInUse, QueryError> {
        Ok(self.plan_of(self.key(self.present(parameters)?, ready_by)))
    }

    /// Drops the plans if the counts of the trees that the query reads have changed much since the plans were made.
    #[cold]
    fn look_at_counts(&self) {
        let (epoch, now) = (self.catalog.counts.epoch(), self.counts());
        let mut known = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let has_moved = |then: &[(TreeId, TreeCount)]| {
            now.iter().any(|(tree, now)| {
                let then = then.iter().find(|(other, _)| other == tree);
                then.is_none_or(|(_, then)| now.has_moved(then))
            })
        };
        if known.as_deref().is_none_or(has_moved) {
            *known = Some(now);
            self.plans.forget();
        }
        self.epoch.store(epoch, Ordering::Release);
    }

    /// The counts of all trees that the query may read.
    fn counts(&self) -> Vec<(TreeId, TreeCount)> {
        let mut counts = Vec::new();
        self.logical.reads(&mut |collection| {
            let info = &self.catalog.collections[collection];
            let trees = std::iter::once(info.tree).chain(info.indexes.iter().map(|index| index.tree));
            counts.extend(trees.filter_map(|tree| Some((tree, self.catalog.counts.of(tree)?))));
            false
        });
        counts
    }

    /// The catalog without the indexes and unique fields that were not ready when the database was opened.
    fn early_catalog(&self) -> Catalog {
        let mut catalog = self.catalog.clone();
        for info in &mut catalog.collections {
            let info = Arc::make_mut(info);
            let unique = info.unique.iter_mut().map(|unique| &mut unique.readiness);
            let all = info.indexes.iter_mut().map(|index| &mut index.readiness).chain(unique);
            all.filter(|readiness| readiness.becomes_ready())
                .for_each(|readiness| *readiness = Readiness::of(RuleState::Declared));
        }
        catalog
    }

    fn made(&self, catalog: &Catalog, present: u32) -> Plan {
        let mut plan = planner::plan(&self.logical, catalog, &self.optional, present);
        plan.each_mut(&mut |plan| {
            plan.repeatable = plan.constants.iter().map(|constant| self.repeatables.of(constant)).collect();
            if !self.interpreted {
                plan.compiled = plan_compiler::compile(plan).map(Box::new);
            }
        });
        plan.scans = !explain::scans(&plan, catalog).is_empty();
        plan
    }

    /// The plan used when the named optional parameters are present.
    fn plan_with(&self, present: &[&str]) -> PlanInUse {
        let slots = self.optional.iter().enumerate();
        let bits = slots.filter(|(_, slot)| present.contains(&self.logical.parameters[**slot].as_str()));
        self.plan_of(self.key(bits.fold(0, |bits, (bit, _)| bits | 1 << bit), u64::MAX))
    }

    /// The plan used when the named optional parameters are present, one step on each line.
    pub fn explain(&self, present: &[&str]) -> String {
        explain::text(&self.plan_with(present), &self.logical, &self.catalog, &Means::default(), None)
    }

    /// Runs it for EXPLAIN ANALYZE on one thread. Its rows are counted and dropped.
    pub fn analyze(
        &self,
        view: &dyn ReadView,
        parameters: &[Value<'_>],
        budget: &Budget<'_>,
    ) -> Result<Analysis, QueryError> {
        analysis::analyze(&*self.plan(parameters, view.ready_by())?, view, parameters, budget)
    }

    /// The plan for these values with these means, one step on each line; with `analysis`, also what the execution did.
    pub fn explain_run(
        &self,
        parameters: &[Value<'_>],
        means: &Means<'_>,
        analysis: Option<&Analysis>,
    ) -> Result<String, QueryError> {
        Ok(explain::text(&*self.plan(parameters, u64::MAX)?, &self.logical, &self.catalog, means, analysis))
    }

    /// The plan used when the named optional parameters are present, as JSON.
    pub fn explain_json(&self, present: &[&str]) -> serde_json::Value {
        explain::json(&self.plan_with(present), &self.logical, &self.catalog, &Means::default(), None)
    }

    /// The plan for these values as JSON, with its estimates; with `analysis`, also what the execution did.
    pub fn explain_run_json(
        &self,
        parameters: &[Value<'_>],
        means: &Means<'_>,
        analysis: Option<&Analysis>,
    ) -> Result<serde_json::Value, QueryError> {
        Ok(explain::json(&*self.plan(parameters, u64::MAX)?, &self.logical, &self.catalog, means, analysis))
    }

    /// The plan for these values in one line of ASCII, and whether it scans a whole collection.
    pub fn plan_line(&self, parameters: &[Value<'_>]) -> (Arc<str>, bool) {
        let Ok(plan) = self.plan(parameters, u64::MAX) else { return ("".into(), false) };
        let (line, scans) = plan.line.get_or_init(|| {
            let (line, scans) = explain::line(&plan, &self.logical, &self.catalog);
            (line.into(), scans)
        });
        (Arc::clone(line), *scans)
    }

    /// The collections that this plan scans whole, without a key or an index. The caller may log a warning.
    pub fn scans(&self, present: &[&str]) -> Vec<&str> {
        explain::scans(&self.plan_with(present), &self.catalog)
    }

    /// Whether it reads any table.
    pub(crate) fn reads_any(&self) -> bool {
        !self.logical.tables.is_empty() || !self.logical.inner.is_empty()
    }

    /// Visits the collections that it reads, by their places in the catalog; some may come more than once.
    pub(crate) fn each_collection(&self, visit: &mut dyn FnMut(usize)) {
        self.logical.reads(&mut |collection| {
            visit(collection);
            false
        });
    }

    /// Whether it reads a view of this catalog, on which it was prepared.
    pub(crate) fn reads_views(&self, catalog: &Catalog) -> bool {
        let is_view = |name: &str| catalog.views.iter().any(|view| view.name == name);
        self.logical.reads(&mut |collection| is_view(&self.catalog.collections[collection].name))
    }

    /// The fields that indexes should include so that no plan of this query fetches a document through them.
    pub fn wanted_included(&self) -> Vec<WantedIncluded> {
        let mut wanted: Vec<WantedIncluded> = Vec::new();
        for present in 0..1 << self.optional.len() {
            // Each plan is used once here, and none is kept.
            let plan = planner::plan(&self.logical, &self.catalog, &self.optional, present);
            for (number, level) in plan.levels.iter().enumerate() {
                let Some(index) = level.access.index() else { continue };
                for (source, column) in plan.sources.iter().zip(&self.logical.columns) {
                    let here = source.level == number && column.table == level.table;
                    let missing = matches!(source.place, FieldPlace::Document | FieldPlace::Included(_));
                    if here && missing && plan_uses(&plan, &self.logical, &column.name, column.table) {
                        let info = self.logical.tables[level.table].info(&self.catalog);
                        want(&mut wanted, &info.name, &info.indexes[index].fields, &column.name);
                    }
                }
            }
        }
        wanted
    }
}

impl std::fmt::Debug for PreparedQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query").field("number", &self.number).field("parameters", &self.logical.parameters).finish()
    }
}

fn want(wanted: &mut Vec<WantedIncluded>, collection: &str, index: &[String], field: &str) {
    let place = wanted.iter().position(|w| w.collection == collection && w.index == index).unwrap_or_else(|| {
        wanted.push(WantedIncluded { collection: collection.to_owned(), index: index.to_vec(), fields: Vec::new() });
        wanted.len() - 1
    });
    let fields = &mut wanted[place].fields;
    if !fields.iter().any(|known| known == field) {
        fields.push(field.to_owned());
    }
}

/// Whether a plan's expressions still use a field: a predicate that an index fulfils is no longer among them.
fn plan_uses(plan: &Plan, logical: &Logical, name: &str, table: usize) -> bool {
    let is_it = |column: usize| {
        let column = &logical.columns[column];
        column.table == table && column.name == name
    };
    plan.expressions().any(|expr| expr.uses_column(is_it))
}

/// The parameters that a predicate tests for NULL, in the order of their first test, at most [`SPECIALISED_MAX`].
fn optional_parameters(logical: &Logical) -> Vec<usize> {
    let mut optional = Vec::new();
    let mut note = |expr: &Expr| {
        expr.walk(&mut |part| {
            if let Expr::IsNull(inner) | Expr::NotNull(inner) = part
                && let Expr::Parameter(slot) = **inner
                && !optional.contains(&slot)
            {
                optional.push(slot);
            }
        });
    };
    logical.each_tested(&mut note);
    optional.truncate(SPECIALISED_MAX);
    optional
}

/// Writes the first row and ignores the others.
struct FirstRow<'o> {
    rows: JsonRows<'o>,
    done: bool,
}

impl RowSink for FirstRow<'_> {
    #[inline(always)]
    fn begin_row(&mut self) {
        if !self.done {
            self.rows.begin_row();
        }
    }
    #[inline(always)]
    fn field(&mut self, column: usize, field: crate::sql::values::FieldValue<'_>) {
        if !self.done {
            self.rows.field(column, field);
        }
    }
    #[inline(always)]
    fn end_row(&mut self) {
        if !self.done {
            self.rows.end_row();
        }
        self.done = true;
    }
    fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}
