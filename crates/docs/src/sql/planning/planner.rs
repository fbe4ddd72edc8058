//! From a resolved query to its plan: the join order, the access path of each collection, and the level at which each predicate
//! and field is evaluated.
//!
//! A plan is made for one set of present optional parameters. `:p IS NULL` is then known, so `(:p IS NULL OR x > :p)` is either
//! dropped or a bound of an index range. Collections nest in the chosen order: each level finds its entries for one row of the
//! outer levels. Inner joins are ordered by cost (`join_order.rs`); a left join comes after the tables that its ON names.
//!
//! A predicate that an access path fulfils exactly is dropped. Every other one is evaluated at the first level that has all its
//! fields, and before the document is fetched if the index entry covers it.

use std::sync::OnceLock;

use binjson::FieldName;

use super::access::{Access, Candidate};
use super::alternatives::as_list;
use super::condition::{Condition, hashed_side, tables_of};
use super::known::Known;
use super::plan::{InnerPlan, Level, Plan, number};
use super::prefix;
use crate::catalog::{Catalog, CollectionInfo, FieldKind};
use crate::sql::expressions::expr::flatten;
use crate::sql::expressions::json_calls::may_be_json;
use crate::sql::expressions::{Affinity, AggregateCall, ColumnSource, Comparison, Expr, FieldPlace, each};
use crate::sql::functions::{Function, JsonFunction};
use crate::sql::resolve::{Column, Logical, OutputColumn, QueryTable, RowSource, TableSet};
use crate::sql::rows::Combine;
use crate::sql::values::OwnedValue;

/// Makes the plan for the optional parameters whose bits are set in `present`; `optional` lists their slots.
pub(crate) fn plan(logical: &Logical, catalog: &Catalog, optional: &[usize], present: u32) -> Plan {
    let known = |slot: usize| optional.iter().position(|&o| o == slot).map(|bit| present >> bit & 1 == 1);
    let specialised = |expr: &Expr| simplify(expr.clone(), &known);
    let ranged = |condition: Expr| prefix::with_range(condition, logical, catalog);
    let mut conditions = Vec::new();
    for condition in &logical.conditions {
        flatten(filter(specialised(condition)), &mut conditions);
    }
    let prepared = |conditions: Vec<Expr>| -> Vec<Condition> {
        let conditions = conditions.into_iter().map(as_list).flat_map(ends_of_between).flat_map(ranged);
        conditions.map(|condition| Condition::new(condition, &logical.columns)).collect()
    };
    let conditions = prepared(conditions);
    let left_on = logical.tables.iter().map(|table| {
        let mut on = Vec::new();
        for condition in table.left_on.iter().flatten() {
            flatten(filter(specialised(condition)), &mut on);
        }
        prepared(on)
    });
    let inner = logical.inner.iter().map(|inner| InnerPlan {
        members: inner.members.iter().map(|member| plan(member, catalog, optional, present)).collect(),
        combine: inner.combine.clone(),
        is_correlated: inner.is_correlated(),
        hashes: if inner.sought { vec![(0..inner.width()).collect()] } else { Vec::new() },
        joined: None,
    });
    let mut planner = Planner {
        logical,
        catalog,
        optional: (optional, present),
        left_on: left_on.collect(),
        conditions,
        known: Known::of(logical, catalog),
        plan: Plan {
            levels: Vec::new(),
            sources: Vec::new(),
            constants: Vec::new(),
            repeatable: Vec::new(),
            first: Vec::new(),
            outputs: logical.outputs.iter().map(|output| specialised(&output.expr)).collect(),
            distinct: logical.distinct,
            grouped: logical.grouped,
            group: logical.group.iter().map(&specialised).collect(),
            aggregates: logical.aggregates.iter().map(|call| call.map(specialised)).collect(),
            having: logical.having.as_ref().map(&specialised),
            order: logical.order.iter().map(|(expr, falling)| (specialised(expr), *falling)).collect(),
            ordered: false,
            sorted_by: 0,
            first_only: false,
            limit: logical.limit.as_ref().map(&specialised),
            offset: logical.offset.as_ref().map(&specialised),
            implied: Vec::new(),
            inner: inner.collect(),
            rows: 0.0,
            number: number(),
            compiled: None,
            scans: false,
            line: OnceLock::new(),
        },
    };
    planner.drop_implied();
    planner.begin_extreme();
    planner.nest();
    planner.note_rows();
    planner.use_order();
    planner.end_extreme();
    planner.place_conditions();
    planner.place_columns();
    planner.split_conditions();
    planner.hoist_constants();
    planner.plan
}

/// Replaces the tests for NULL of known parameters by their results, and simplifies the expressions around them.
fn simplify(expr: Expr, known: &dyn Fn(usize) -> Option<bool>) -> Expr {
    match expr.map_children(&mut |child| simplify(child, known)) {
        Expr::IsNull(inner) => match is_present(&inner, known) {
            Some(present) => Expr::integer(i64::from(!present)),
            None => Expr::IsNull(inner),
        },
        Expr::NotNull(inner) => match is_present(&inner, known) {
            Some(present) => Expr::integer(i64::from(present)),
            None => Expr::NotNull(inner),
        },
        Expr::And(terms) => connect(terms, true),
        Expr::Or(terms) => connect(terms, false),
        other => other,
    }
}

/// `field BETWEEN a AND b` as its two comparisons: each may be a bound of a range.
fn ends_of_between(condition: Expr) -> Vec<Expr> {
    match condition {
        Expr::Between(value, Affinity::None, low, Affinity::None, high) if matches!(*value, Expr::Column(_)) => {
            let compare = |comparison, value, end| Expr::Compare(comparison, Affinity::None, value, end);
            let low = compare(Comparison::GreaterOrEqual, value.clone(), low);
            vec![low, compare(Comparison::LessOrEqual, value, high)]
        }
        other => vec![other],
    }
}

fn is_present(expr: &Expr, known: &dyn Fn(usize) -> Option<bool>) -> Option<bool> {
    match expr {
        Expr::Parameter(slot) => known(*slot),
        _ => None,
    }
}

fn truth(expr: &Expr) -> Option<bool> {
    match expr {
        Expr::Literal(OwnedValue::Integer(integer)) => Some(*integer != 0),
        _ => None,
    }
}

/// AND (`neutral` true) or OR of terms. Terms of the neutral truth value are dropped; a term of the opposite one is the result.
fn connect(terms: Vec<Expr>, neutral: bool) -> Expr {
    let mut kept = Vec::new();
    for term in terms {
        match truth(&term) {
            Some(truth) if truth == neutral => {}
            Some(_) => return Expr::integer(i64::from(!neutral)),
            None => kept.push(term),
        }
    }
    match kept.len() {
        0 => Expr::integer(i64::from(neutral)),
        // A single remaining term keeps the connective, which converts it to a truth value.
        _ if neutral => Expr::And(kept),
        _ => Expr::Or(kept),
    }
}

/// In a filter only truth counts, so a connective around one term is dropped.
fn filter(expr: Expr) -> Expr {
    match expr {
        Expr::And(mut terms) | Expr::Or(mut terms) if terms.len() == 1 => filter(terms.remove(0)),
        Expr::And(terms) => Expr::And(terms.into_iter().map(filter).collect()),
        other => other,
    }
}

pub(super) struct Planner<'a> {
    pub(super) logical: &'a Logical,
    pub(super) catalog: &'a Catalog,
    /// Slots of the optional parameters, and the bits of the present ones.
    optional: (&'a [usize], u32),
    pub(super) left_on: Vec<Vec<Condition>>,
    pub(super) conditions: Vec<Condition>,
    /// Counts of the trees.
    pub(super) known: Known,
    pub(super) plan: Plan,
}

impl Planner<'_> {
    pub(super) fn info(&self, table: usize) -> &CollectionInfo {
        self.logical.tables[table].info(self.catalog)
    }

    /// The tables whose fields an expression uses.
    pub(super) fn tables(&self, expr: &Expr) -> TableSet {
        tables_of(expr, &self.logical.columns)
    }

    /// The predicates from which a table's access path may be chosen: ON for a left join, otherwise WHERE.
    pub(super) fn conditions_of(&self, table: usize) -> &[Condition] {
        if self.is_left(table) { &self.left_on[table] } else { &self.conditions }
    }

    pub(super) fn is_left(&self, table: usize) -> bool {
        self.logical.tables[table].left_on.is_some()
    }

    /// The tables that are joined.
    pub(super) fn joined(&self) -> TableSet {
        let all = (0..self.logical.tables.len()).fold(0, |all, table| all | 1 << table);
        self.plan.implied.iter().fold(all, |all, table| all & !(1 << table))
    }

    /// All expressions except the predicates of WHERE and of inner joins.
    pub(super) fn results(&self) -> impl Iterator<Item = &Expr> {
        let plan = &self.plan;
        let aggregates = plan.aggregates.iter().flat_map(AggregateCall::expressions);
        let order = plan.order.iter().map(|(expr, _)| expr);
        plan.outputs.iter().chain(&plan.group).chain(aggregates).chain(&plan.having).chain(order)
    }

    // ---- joins that need no look -------------------------------------------------------------------------------

    /// Drops inner joins on a declared reference if no other expression uses the target's fields: the reference guarantees that
    /// the partner exists, and its key that there is only one.
    fn drop_implied(&mut self) {
        let arguments = self.logical.tables.iter().flat_map(|table| table.origin.expressions());
        let elsewhere = self.results().chain(arguments).fold(0, |tables, expr| tables | self.tables(expr));
        let elsewhere = self.left_on.iter().flatten().fold(elsewhere, |tables, on| tables | on.tables);
        for table in 0..self.logical.tables.len() {
            if self.is_left(table) || elsewhere >> table & 1 == 1 {
                continue;
            }
            let mut users = (0..self.conditions.len()).filter(|&c| self.conditions[c].tables >> table & 1 == 1);
            let (Some(condition), None) = (users.next(), users.next()) else { continue };
            if let Some(column) = self.reference(table, &self.conditions[condition].expr) {
                let is_there = Expr::NotNull(Box::new(Expr::Column(column)));
                self.conditions[condition] = Condition::new(is_there, &self.logical.columns);
                self.plan.implied.push(table);
            }
        }
        let is_sure = |planner: &Self, condition: &Condition| match &condition.expr {
            Expr::NotNull(inner) => match **inner {
                Expr::Column(column) => planner.is_required(column),
                _ => false,
            },
            _ => false,
        };
        let sure: Vec<bool> = self.conditions.iter().map(|condition| is_sure(self, condition)).collect();
        let mut sure = sure.into_iter();
        self.conditions.retain(|_| !sure.next().unwrap_or(false));
    }

    /// The column that refers to the table's key, if the predicate is nothing but that equality.
    fn reference(&self, table: usize, condition: &Expr) -> Option<usize> {
        let Expr::Compare(Comparison::Equal, Affinity::None, a, b) = condition else { return None };
        let (Expr::Column(a), Expr::Column(b)) = (&**a, &**b) else { return None };
        let columns = &self.logical.columns;
        let (target, from) = if columns[*a].table == table { (*a, *b) } else { (*b, *a) };
        let (key, referring) = (&columns[target], &columns[from]);
        if key.table != table || referring.table == table || key.name != self.info(table).key.field {
            return None;
        }
        let RowSource::Collection(collection) = &self.logical.tables[table].origin else { return None };
        let references = &self.info(referring.table).references;
        references.iter().any(|r| r.field == referring.name && r.target == *collection).then_some(from)
    }

    /// The schema requires the field (or it is the key), and no left join can make the row NULL.
    fn is_required(&self, column: usize) -> bool {
        let column = &self.logical.columns[column];
        let table = &self.logical.tables[column.table];
        let required = self.info(column.table).field(&column.name).is_some_and(|field| field.required);
        table.left_on.is_none() && (required || self.info(column.table).key.field == column.name)
    }

    // ---- the order of collections ------------------------------------------------------------------------------

    fn nest(&mut self) {
        let mut placed: TableSet = 0;
        if self.catalog.counts.are_kept() {
            for step in self.join_order() {
                let single = self.plan.levels.iter().all(|level| level.access.is_single());
                let candidate = self.access_paths(step.table, placed, single).swap_remove(step.path);
                self.add_level(step.table, candidate);
                placed |= 1 << step.table;
                if let Some(level) = self.plan.levels.last_mut() {
                    level.estimate = Some(step.estimate);
                }
            }
        }
        let joined = self.joined();
        while placed != joined {
            let open = (0..self.logical.tables.len()).filter(|&table| (joined & !placed) >> table & 1 == 1);
            let best = open
                .filter(|&table| self.is_ready(table, placed))
                .map(|table| (table, self.candidate(table, placed)))
                .min_by_key(|(_, candidate)| candidate.score);
            let Some((table, candidate)) = best else { return };
            self.add_level(table, candidate);
            placed |= 1 << table;
        }
    }

    /// Estimates the plan's result rows, for the planning of the enclosing query.
    fn note_rows(&mut self) {
        let rows = self.plan.levels.last().and_then(|level| level.estimate).map_or(1.0, |estimate| estimate.rows);
        let gathered = match (self.plan.grouped, self.plan.group.is_empty()) {
            (true, true) => 1.0,
            (true, false) => rows.sqrt(),
            (false, _) => rows,
        };
        self.plan.rows = gathered.min(self.wanted_rows());
    }

    pub(super) fn is_ready(&self, table: usize, placed: TableSet) -> bool {
        self.needs(table) & !placed == 0 && (placed != 0 || !self.is_left(table))
    }

    /// The tables that must be placed before this one: the sources of its rows' values, the tables that CROSS JOIN keeps before
    /// it, and the tables that its ON names.
    pub(super) fn needs(&self, table: usize) -> TableSet {
        let arguments = self.logical.tables[table].origin.expressions();
        let needs = arguments.fold(self.crossed_before(table), |tables, expr| tables | self.tables(expr));
        if self.is_left(table) {
            return self.left_on[table].iter().fold(needs, |tables, on| tables | on.tables) & !(1 << table);
        }
        needs
    }

    /// The tables that CROSS JOIN keeps before this one: all that precede it in the text.
    fn crossed_before(&self, table: usize) -> TableSet {
        if self.logical.crossed >> table & 1 == 0 {
            return 0;
        }
        self.joined() & ((1 << table) - 1)
    }

    fn add_level(&mut self, table: usize, mut candidate: Candidate) {
        if candidate.keeps {
            self.add_kept(table, &mut candidate);
        }
        let left = self.is_left(table);
        let conditions = if left { &mut self.left_on[table] } else { &mut self.conditions };
        let mut number = 0;
        conditions.retain(|_| {
            number += 1;
            !candidate.fulfilled.contains(&(number - 1))
        });
        let info = self.info(table);
        let key_place = candidate.access.index().map_or(0, |number| info.indexes[number].fields.len());
        let level = Level {
            table,
            collection: self.logical.tables[table].collection(),
            tree: info.tree,
            key: info.key.kind,
            access: candidate.access,
            fetch: false,
            key_place,
            before: Vec::new(),
            after: Vec::new(),
            left,
            beyond: Vec::new(),
            estimate: None,
        };
        self.plan.levels.push(level);
    }

    /// Plans to keep the rows of a table for a join, with a hash if they are looked up by values. Of a subquery all columns
    /// are kept; of a collection the used fields of the documents that pass its own predicates.
    fn add_kept(&mut self, table: usize, candidate: &mut Candidate) {
        let conditions = self.conditions_of(table);
        let hashed = candidate.fulfilled.iter().filter_map(|place| hashed_side(&conditions[*place], table));
        let (sides, values): (Vec<Expr>, Vec<Expr>) = hashed.map(|(side, value)| (side.clone(), value.clone())).unzip();
        let Access::Kept { inner, hash, keys, .. } = &mut candidate.access else { return };
        *keys = values;
        let place = match self.logical.tables[table].origin {
            RowSource::Collection(collection) => {
                let (logical, columns) = self.kept_collection(table, &sides, &mut candidate.fulfilled);
                let (optional, present) = self.optional;
                let member = plan(&logical, self.catalog, optional, present);
                let (members, combine) = (vec![member], vec![Combine::Append]);
                let (is_correlated, hashes, joined) = (false, Vec::new(), Some(collection));
                self.plan.inner.push(InnerPlan { members, combine, is_correlated, hashes, joined });
                *inner = self.plan.inner.len() - 1;
                columns
            }
            _ => {
                let place = |side: &Expr| match side {
                    Expr::Column(column) => self.row_place(*column),
                    _ => 0,
                };
                sides.iter().map(place).collect()
            }
        };
        if !place.is_empty() {
            let hashes = &mut self.plan.inner[*inner].hashes;
            hashes.push(place);
            *hash = Some(hashes.len() - 1);
        }
    }

    /// The query that reads a collection for a join: its columns in their order, then the hashed expressions. Returns the
    /// positions of these expressions. Predicates that the query evaluates are added to `fulfilled`.
    fn kept_collection(&self, table: usize, sides: &[Expr], fulfilled: &mut Vec<usize>) -> (Logical, Vec<usize>) {
        let source = &self.logical.tables[table];
        let columns = &self.logical.columns;
        let number = |column: usize| columns[..column].iter().filter(|other| other.table == table).count();
        let own = |expr: &Expr| expr.clone().renumbered(&number);
        let mut logical = Logical::default();
        logical.tables.push(QueryTable { origin: source.origin.clone(), alias: source.alias.clone(), left_on: None });
        // The rows are kept for all rows of the outer query, so only predicates over this table alone belong to the query.
        for (place, condition) in self.conditions_of(table).iter().enumerate().filter(|(_, c)| c.is_of(table)) {
            logical.conditions.push(own(&condition.expr));
            fulfilled.push(place);
        }
        for column in columns.iter().filter(|column| column.table == table) {
            let expr = Expr::Column(logical.columns.len());
            logical.columns.push(Column { table: 0, ..column.clone() });
            logical.outputs.push(OutputColumn { name: column.name.clone(), expr });
        }
        let mut places = Vec::new();
        for side in sides {
            let expr = own(side);
            places.push(logical.outputs.iter().position(|output| output.expr == expr).unwrap_or_else(|| {
                logical.outputs.push(OutputColumn { name: String::new(), expr });
                logical.outputs.len() - 1
            }));
        }
        (logical, places)
    }

    /// The place of a column in a kept row.
    fn row_place(&self, column: usize) -> usize {
        let columns = &self.logical.columns;
        let Column { table, name, .. } = &columns[column];
        match &self.logical.tables[*table].origin {
            RowSource::Collection(_) => columns[..column].iter().filter(|other| other.table == *table).count(),
            RowSource::Inner { info, .. } => info.fields.iter().position(|field| field.name == *name).unwrap_or(0),
            RowSource::Each { .. } => each::COLUMNS.iter().position(|known| known == name).unwrap_or(0),
        }
    }

    // ---- conditions and fields ---------------------------------------------------------------------------------

    /// Assigns each predicate to the first level that has all its fields.
    fn place_conditions(&mut self) {
        let conditions = std::mem::take(&mut self.conditions);
        for Condition { expr: condition, tables, .. } in conditions {
            if truth(&condition) == Some(true) {
                continue;
            }
            let mut missing = tables;
            let level = self.plan.levels.iter().position(|level| {
                missing &= !(1 << level.table);
                missing == 0
            });
            match level {
                _ if tables == 0 => self.plan.first.push(condition),
                Some(number) if self.plan.levels[number].left => self.plan.levels[number].beyond.push(condition),
                Some(number) => self.plan.levels[number].before.push(condition),
                None => self.plan.first.push(condition),
            }
        }
        for number in 0..self.plan.levels.len() {
            let table = self.plan.levels[number].table;
            let on = std::mem::take(&mut self.left_on[table]).into_iter().map(|on| on.expr);
            self.plan.levels[number].before.extend(on.filter(|on| truth(on) != Some(true)));
        }
    }

    /// Chooses for each column the cheapest source.
    fn place_columns(&mut self) {
        let used = self.plan.used_columns(self.logical.columns.len());
        for (number, column) in self.logical.columns.iter().enumerate() {
            let level = self.plan.levels.iter().position(|level| level.table == column.table);
            let place = level.map_or(FieldPlace::Document, |level| self.place(level, number));
            if let Some(level) = level
                && used[number]
                && place == FieldPlace::Document
                && self.plan.levels[level].access.index().is_some()
            {
                self.plan.levels[level].fetch = true;
            }
            self.plan.sources.push(ColumnSource {
                level: level.unwrap_or(0),
                place,
                name: FieldName::new(&column.name),
            });
        }
    }

    fn place(&self, level: usize, number: usize) -> FieldPlace {
        self.place_in(&self.plan.levels[level].access, number)
    }

    /// The source of a column under this access path of its table.
    pub(super) fn place_in(&self, access: &Access, number: usize) -> FieldPlace {
        let column = &self.logical.columns[number];
        let info = self.info(column.table);
        if matches!(access, Access::Kept { .. } | Access::Each { .. }) {
            return FieldPlace::Row(self.row_place(number));
        }
        let is_key = column.name == info.key.field && !column.inside;
        let Some(number) = access.index() else {
            return if is_key { FieldPlace::Key(info.key.kind) } else { FieldPlace::Document };
        };
        let index = &info.indexes[number];
        if is_key {
            return FieldPlace::IndexKey { place: index.fields.len(), included: index.included.len() };
        }
        // An index entry does not store how a fraction, a boolean or an array was written.
        let kind = info.field(&column.name).map_or(FieldKind::Any, |field| field.kind);
        let is_typed = !column.inside && (!column.bare || matches!(kind, FieldKind::Integer | FieldKind::Text));
        if let Some(place) = index.fields.iter().position(|field| *field == column.name).filter(|_| is_typed) {
            return FieldPlace::IndexKey { place, included: index.included.len() };
        }
        match index.included.iter().position(|field| *field == column.name) {
            Some(place) => FieldPlace::Included(place),
            None => FieldPlace::Document,
        }
    }

    /// If a document is fetched, predicates that need it are evaluated after that.
    fn split_conditions(&mut self) {
        for number in 0..self.plan.levels.len() {
            if !self.plan.levels[number].fetch {
                continue;
            }
            let conditions = std::mem::take(&mut self.plan.levels[number].before);
            for condition in conditions {
                let needs = condition.uses_column(|column| {
                    let source = &self.plan.sources[column];
                    source.level == number && source.place == FieldPlace::Document
                });
                let level = &mut self.plan.levels[number];
                if needs { level.after.push(condition) } else { level.before.push(condition) }
            }
        }
    }

    /// Moves subexpressions that depend on no row out of the expressions evaluated for rows.
    fn hoist_constants(&mut self) {
        let plan = &mut self.plan;
        let constants = &mut plan.constants;
        let mut hoist_in = |expr: &mut Expr| {
            let taken = std::mem::replace(expr, Expr::Literal(OwnedValue::Null));
            *expr = hoist(taken, constants);
        };
        for level in &mut plan.levels {
            level.before.iter_mut().chain(&mut level.after).chain(&mut level.beyond).for_each(&mut hoist_in);
            level.access.expressions_mut().into_iter().for_each(&mut hoist_in);
        }
        plan.outputs.iter_mut().chain(&mut plan.group).chain(&mut plan.having).for_each(&mut hoist_in);
        plan.aggregates.iter_mut().flat_map(AggregateCall::expressions_mut).for_each(&mut hoist_in);
        plan.order.iter_mut().for_each(|(expr, _)| hoist_in(expr));
    }
}

fn hoist(expr: Expr, constants: &mut Vec<Expr>) -> Expr {
    if matches!(expr, Expr::Literal(_) | Expr::Parameter(_) | Expr::Constant(_) | Expr::Outer(_)) {
        return expr;
    }
    if matches!(expr, Expr::Call(Function::Json(JsonFunction::AsStored), _)) {
        return expr;
    }
    let mut varies = false;
    expr.walk(&mut |part| {
        let row = matches!(part, Expr::Column(_) | Expr::Path(..) | Expr::Aggregate(_) | Expr::GroupKey(_));
        // A subquery runs when its rows are first requested, which may be never.
        varies |= row || matches!(part, Expr::InInner(..) | Expr::ScalarInner(..) | Expr::ExistsInner(_));
    });
    if varies && matches!(expr, Expr::Call(Function::Json(_), _)) {
        // A constant would no longer show that the argument is JSON.
        return expr.map_children(&mut |child| if may_be_json(&child) { child } else { hoist(child, constants) });
    }
    if varies {
        return expr.map_children(&mut |child| hoist(child, constants));
    }
    let slot = constants.iter().position(|known| *known == expr).unwrap_or_else(|| {
        constants.push(expr);
        constants.len() - 1
    });
    Expr::Constant(slot)
}
