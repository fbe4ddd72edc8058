//! A grouped query over one table, compiled for the incremental maintenance of a view.
//!
//! Views use the internals of SQL only here: [`Grouping::compile`] turns text into expressions, [`Grouping::evaluate`] computes
//! them on a document. Anything that depends on more than the document (the time, parameters) is refused.

use std::cell::Cell;

use binjson::{FieldCache, FieldName, StoredDocument};
use bumpalo::Bump;
use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::Location;

use super::column_types::Inference;
use crate::catalog::Catalog;
use crate::encoding::KeyType;
use crate::engine::TreeId;
use crate::sql::expressions::{AggregateKind, ColumnSource, Expr, FieldPlace, Fixed, Frame, Scope};
use crate::sql::functions::Function;
use crate::sql::functions::dates::DateFunction;
use crate::sql::limits::{Budget, Fault, Meter, SqlError, SqlErrorKind};
use crate::sql::resolve::{self, Logical};
use crate::sql::syntax::parse;
use crate::sql::values::{FieldValue, JsonTypes, OwnedValue, Value, workspace};

/// Most values of a group's key.
pub(crate) const GROUP_MAX: usize = 16;
/// Most aggregates of a view.
pub(crate) const AGGREGATES_MAX: usize = 64;
/// Bytes that a view's expressions may compute for a document.
const COMPUTED_BYTES_MAX: usize = 4 << 20;
/// Sets of field caches of a thread, one for each view until there are more views.
const CACHE_SETS: usize = 16;
/// The value of `now` where a stored text contains it: outside every calendar, because the values of a view must not change
/// without a write.
const NO_TIME_MS: i64 = -(1 << 50);

/// The kinds of aggregates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupAggregate {
    Rows,
    Count,
    Sum,
    Avg,
    Total,
    Min,
    Max,
    Distinct,
}

/// A result column.
#[derive(Clone, Debug)]
pub(crate) enum GroupColumn {
    /// A value of the group's key, by its place.
    Group(usize),
    /// An aggregate of an argument, by the argument's place; COUNT(*) has none.
    Aggregate(GroupAggregate, Option<usize>),
}

/// The source of a grouped query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// A collection, by its place in the catalog.
    Collection(usize),
    /// The rows of a view, by its tree in the catalog.
    View(TreeId),
}

/// A grouped query over one table.
#[derive(Debug)]
pub(crate) struct Grouping {
    pub(crate) reads: Reads,
    /// The fields that it reads.
    pub(crate) columns: Vec<String>,
    pub(crate) outputs: Vec<(String, GroupColumn)>,
    sources: Vec<ColumnSource>,
    conditions: Vec<Expr>,
    group: Vec<Expr>,
    /// ROLLUP: each prefix of the key is a group too, down to the empty one.
    pub(crate) rolls_up: bool,
    arguments: Vec<Expr>,
    /// The types of each result column.
    pub(crate) types: Vec<JsonTypes>,
}

/// A value of a group's key: the value that is compared, and its JSON if it is a plain field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupValue<'a> {
    pub(crate) value: Value<'a>,
    pub(crate) json: Option<&'a [u8]>,
}

/// Memory that evaluations reuse. One for each thread.
#[derive(Default)]
pub(crate) struct Memory {
    arena: Bump,
    /// A write evaluates all views of its collection in turn. With one set for all, each view would find the places of the fields of
    /// the view before it, and search for its own.
    caches: [Vec<Cell<FieldCache>>; CACHE_SETS],
}

impl Grouping {
    /// Compiles a view's query.
    pub(crate) fn compile(sql: &str, catalog: &Catalog) -> Result<Grouping, SqlError> {
        let mut parsed = parse::parse(sql)?;
        let ast::SetExpr::Select(select) = &mut *parsed.query.body else {
            return refuse("a view is one SELECT … GROUP BY …", Some(parsed.query.body.span().start));
        };
        let rolls_up = take_rollup(select)?;
        let at = select.span().start;
        if let Some(having) = &select.having {
            let why = "a view takes no HAVING: put it into the queries over the view, as WHERE";
            return refuse(why, Some(having.span().start));
        }
        let places: Vec<Location> = select.projection.iter().map(|item| item.span().start).collect();
        let all = catalog.with_views();
        let logical = resolve::resolve_stored(sql, &parsed, &all)?;
        refuse_clauses(&logical, at)?;
        let Some(table) = logical.tables[0].collection() else {
            return refuse(
                "a view reads a collection or a view: subqueries and json_each are not supported in views",
                Some(at),
            );
        };
        let table = &all.collections[table];
        let mut grouping = Grouping {
            reads: catalog.number(&table.name).map_or(Reads::View(table.tree), Reads::Collection),
            columns: logical.columns.iter().map(|column| column.name.clone()).collect(),
            outputs: Vec::new(),
            sources: Vec::new(),
            conditions: logical.conditions.clone(),
            group: logical.group.clone(),
            rolls_up,
            arguments: Vec::new(),
            types: Vec::new(),
        };
        // A wildcard gives more outputs than items, but these are no aggregates, and all are in GROUP BY.
        let direct = logical.outputs.len() == places.len();
        for (number, output) in logical.outputs.iter().enumerate() {
            let at = if direct { places[number] } else { at };
            let found = grouping.output(&logical, &output.expr, at)?;
            grouping.types.push(grouping.types_of(&logical, &all, &output.expr));
            grouping.outputs.push((output.name.clone(), found));
        }
        grouping.check(&logical, at)?;
        let key = &table.key;
        grouping.sources =
            grouping.columns.iter().map(|name| source(name, (*name == key.field).then_some(key.kind))).collect();
        Ok(grouping)
    }

    fn output(&mut self, logical: &Logical, expr: &Expr, at: Location) -> Result<GroupColumn, SqlError> {
        let slot = match expr {
            Expr::GroupKey(place) => return Ok(GroupColumn::Group(*place)),
            Expr::Aggregate(slot) => *slot,
            _ => {
                let why = "a result of a view is an expression of its GROUP BY or one aggregate: \
                           compute with them in the queries over the view";
                return refuse(why, Some(at));
            }
        };
        let call = &logical.aggregates[slot];
        if call.filter.is_some() {
            return refuse("a view takes no FILTER: CASE inside the aggregate does the same", Some(at));
        }
        let kind = match call.kind {
            AggregateKind::CountRows => GroupAggregate::Rows,
            AggregateKind::Count if call.distinct => GroupAggregate::Distinct,
            AggregateKind::Sum | AggregateKind::Avg | AggregateKind::Total if call.distinct => {
                return refuse("a view supports DISTINCT in COUNT only", Some(at));
            }
            AggregateKind::Count => GroupAggregate::Count,
            AggregateKind::Sum => GroupAggregate::Sum,
            AggregateKind::Avg => GroupAggregate::Avg,
            AggregateKind::Total => GroupAggregate::Total,
            AggregateKind::Min => GroupAggregate::Min,
            AggregateKind::Max => GroupAggregate::Max,
            _ => return refuse("a view keeps COUNT, SUM, TOTAL, AVG, MIN, MAX and COUNT(DISTINCT …)", Some(at)),
        };
        let argument = call.argument.as_ref().map(|argument| {
            self.arguments.iter().position(|known| known == argument).unwrap_or_else(|| {
                self.arguments.push(argument.clone());
                self.arguments.len() - 1
            })
        });
        Ok(GroupColumn::Aggregate(kind, argument))
    }

    /// The types of a result. A value of the key that is a plain field is returned as it is stored.
    fn types_of(&self, logical: &Logical, catalog: &Catalog, expr: &Expr) -> JsonTypes {
        let inference = Inference::new(catalog, &|_| JsonTypes::VALUE);
        match expr {
            Expr::GroupKey(place) => {
                let types = inference.output(logical, &logical.group[*place]);
                if self.rolls_up { types.or(JsonTypes::NULL) } else { types }
            }
            Expr::Aggregate(slot) => {
                let has_rows = !self.rolls_up && !logical.group.is_empty();
                inference.aggregate(logical, &logical.aggregates[*slot], has_rows)
            }
            _ => JsonTypes::ANY,
        }
    }

    fn check(&self, logical: &Logical, at: Location) -> Result<(), SqlError> {
        if let Some(missing) = (0..self.group.len()).find(|place| {
            !self.outputs.iter().any(|(_, output)| matches!(output, GroupColumn::Group(of) if of == place))
        }) {
            let why = format!("the expression {} of GROUP BY must be among the results of a view", missing + 1);
            return refuse(&why, Some(at));
        }
        if self.group.len() > GROUP_MAX {
            return refuse(&format!("a view groups by up to {GROUP_MAX} expressions"), Some(at));
        }
        if logical.aggregates.len() > AGGREGATES_MAX || self.outputs.len() > AGGREGATES_MAX + GROUP_MAX {
            return refuse(&format!("a view has up to {AGGREGATES_MAX} aggregates"), Some(at));
        }
        let mut untimely = false;
        for expr in self.conditions.iter().chain(&self.group).chain(&self.arguments) {
            expr.walk(&mut |part| untimely |= asks_for_the_time(part));
        }
        if untimely {
            return refuse("a view cannot use the current time: its rows would change without a write", Some(at));
        }
        Ok(())
    }

    /// The number of values in a group's key.
    pub(crate) fn group_len(&self) -> usize {
        self.group.len()
    }

    /// Computes the group's values and the arguments of the aggregates on one document, and passes them to `take`. `None`: the
    /// document does not pass the view's WHERE. `view` is the view's number, which selects a set of field caches.
    pub(crate) fn evaluate<R>(
        &self,
        view: u64,
        document: StoredDocument<'_>,
        memory: &mut Memory,
        take: impl FnOnce(&[GroupValue<'_>], &[Value<'_>]) -> R,
    ) -> Result<Option<R>, Fault> {
        let meter = Meter::new(&Budget { memory_bytes_max: COMPUTED_BYTES_MAX, ..Budget::default() });
        workspace::reset(&mut memory.arena, &Meter::unbounded());
        // The caches may be another view's: a cached place is only a hint, and the field's name is compared.
        let caches = &mut memory.caches[view as usize % CACHE_SETS];
        caches.resize(self.sources.len().max(caches.len()), Cell::default());
        let arena = &memory.arena;
        let fixed = Fixed {
            sources: &self.sources,
            caches,
            parameters: &[],
            constants: &[],
            aggregates: &[],
            group: &[],
            outer: &[],
            relations: None,
            now_ms: NO_TIME_MS,
            meter: &meter,
        };
        let frame = Frame { level: 0, key: &[], value: &[], document: Some(document), absent: false, outer: None };
        let scope = Scope { frame: Some(&frame), fixed: &fixed, arena };
        for condition in &self.conditions {
            if !condition.passes(&scope)? {
                return Ok(None);
            }
        }
        let mut group = scope.workspace().list(self.group.len())?;
        for expr in &self.group {
            let (value, json) = match expr {
                Expr::Column(column) => {
                    let field = scope.cell(*column)?;
                    let json = if let FieldValue::Json(json) = field { Some(json) } else { None };
                    (field.decode(scope.workspace())?, json)
                }
                Expr::Path(column, steps) => (expr.evaluate(&scope)?, scope.stored_path(*column, steps)?),
                _ => (expr.evaluate(&scope)?, None),
            };
            group.push(GroupValue { value, json });
        }
        let mut arguments = scope.workspace().list(self.arguments.len())?;
        for expr in &self.arguments {
            arguments.push(expr.evaluate(&scope)?);
        }
        Ok(Some(take(&group, &arguments)))
    }
}

/// The table that a view's query reads, by name and position, according to its text.
pub(crate) fn named_in_from(sql: &str) -> Option<(String, Location)> {
    let parsed = parse::parse(sql).ok()?;
    let ast::SetExpr::Select(select) = &*parsed.query.body else { return None };
    let ast::TableFactor::Table { name, args: None, .. } = &select.from.first()?.relation else { return None };
    let ident = name.0.last()?.as_ident()?;
    Some((ident.value.clone(), ident.span.start))
}

fn refuse<T>(message: &str, at: Option<Location>) -> Result<T, SqlError> {
    Err(SqlError::at(SqlErrorKind::Invalid, message, at))
}

/// Replaces `GROUP BY ROLLUP (…)` by its list; returns whether it was one.
fn take_rollup(select: &mut ast::Select) -> Result<bool, SqlError> {
    let ast::GroupByExpr::Expressions(list, _) = &mut select.group_by else { return Ok(false) };
    let is_rollup = |expr: &ast::Expr| match expr {
        ast::Expr::Function(call) => call.name.to_string().eq_ignore_ascii_case("rollup"),
        _ => false,
    };
    let Some(place) = list.iter().position(is_rollup) else { return Ok(false) };
    let at = list[place].span().start;
    let ast::Expr::Function(call) = list.remove(place) else { return Ok(false) };
    let arguments = match call.args {
        ast::FunctionArguments::List(arguments) if list.is_empty() => arguments.args,
        _ => return refuse("ROLLUP must be the only item of GROUP BY, with all its expressions", Some(at)),
    };
    for argument in arguments {
        let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) = argument else {
            return refuse("ROLLUP takes expressions", Some(at));
        };
        list.push(expr);
    }
    if list.is_empty() { refuse("ROLLUP takes at least one expression", Some(at)) } else { Ok(true) }
}

/// Where a field is read: the collection's key has a type.
fn source(name: &str, key: Option<KeyType>) -> ColumnSource {
    let place = key.map_or(FieldPlace::Document, FieldPlace::DocumentKey);
    ColumnSource { level: 0, place, name: FieldName::new(name) }
}

fn refuse_clauses(logical: &Logical, at: Location) -> Result<(), SqlError> {
    let present = [
        (logical.tables.len() != 1, "a view reads one collection: joins are not supported in views"),
        (!logical.parameters.is_empty(), "a view takes no parameters"),
        (logical.distinct, "a view takes no DISTINCT: its groups are distinct"),
        (!logical.order.is_empty(), "a view takes no ORDER BY: put it into the queries over the view"),
        (logical.limit.is_some() || logical.offset.is_some(), "a view takes no LIMIT and no OFFSET"),
        (!logical.grouped, "a view needs GROUP BY or an aggregate"),
        (!logical.inner.is_empty(), "a view reads one collection: subqueries are not supported in views"),
    ];
    match present.iter().find(|(is, _)| *is) {
        Some((_, why)) => refuse(why, Some(at)),
        None => Ok(()),
    }
}

/// Whether it is a date function without a time value, or with `'now'`.
fn asks_for_the_time(expr: &Expr) -> bool {
    let Expr::Call(Function::Date(function), arguments) = expr else { return false };
    let is_now = |time: &Expr| match time {
        Expr::Literal(OwnedValue::Text(text)) => text.trim_ascii().eq_ignore_ascii_case(b"now"),
        _ => false,
    };
    match function {
        DateFunction::TimeDiff => arguments.iter().any(is_now),
        DateFunction::Strftime => arguments.get(1).is_none_or(is_now),
        _ => arguments.first().is_none_or(is_now),
    }
}
