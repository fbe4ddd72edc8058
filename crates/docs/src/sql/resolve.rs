//! From sqlparser's tree to ours: every name becomes a column, a parameter or a function, or an error with a position.
//!
//! What comes out ([`Logical`]) says what is asked, not how it is found. Anything in the tree that is not taken over is
//! refused: no clause is ever ignored.

use sqlparser::ast::OrderBySort;
use sqlparser::ast::{
    self, BinaryOperator, Distinct, GroupByExpr, Ident, JoinConstraint, JoinOperator, LimitClause, ObjectName,
    OrderByKind, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Spanned, TableFactor, UnaryOperator,
};
use sqlparser::tokenizer::Location;

use super::aggregate::{AGGREGATES, AggregateKind};
use super::error::{SqlError, SqlErrorKind};
use super::expr::{Affinity, Arithmetic, CastType, Comparison, Expr, Literal};
use super::functions::{FUNCTIONS, Function};
use super::json::Step;
use super::{dates, format, number, parse};
use crate::catalog::{Catalog, CollectionInfo};

/// Most collections in one FROM.
pub const TABLES_MAX: usize = 8;
/// Most parameters of a query.
pub const PARAMETERS_MAX: usize = 64;
/// Most result columns.
pub const COLUMNS_MAX: usize = 256;
/// Deepest expression. AND and OR over any number of terms count once.
const DEPTH_MAX: usize = 128;

/// One collection in FROM.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its place in the catalog.
    pub(crate) collection: usize,
    /// How the query names it.
    pub(crate) alias: String,
    /// A left join, with its ON; an inner join's ON is a condition as any other.
    pub(crate) left_on: Option<Vec<Expr>>,
}

/// A field of a collection that the query uses.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) table: usize,
    pub(crate) name: String,
    /// It is selected by itself: its stored text is wanted.
    pub(crate) bare: bool,
    /// Something inside it is wanted: only its JSON will do.
    pub(crate) inside: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) name: String,
    pub(crate) expr: Expr,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AggregateCall {
    pub(crate) kind: AggregateKind,
    pub(crate) argument: Option<Expr>,
}

/// What a query asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logical {
    pub(crate) tables: Vec<Table>,
    pub(crate) columns: Vec<Column>,
    pub(crate) parameters: Vec<String>,
    /// All must hold.
    pub(crate) conditions: Vec<Expr>,
    pub(crate) outputs: Vec<Output>,
    pub(crate) distinct: bool,
    pub(crate) grouped: bool,
    pub(crate) group: Vec<Expr>,
    pub(crate) aggregates: Vec<AggregateCall>,
    pub(crate) having: Option<Expr>,
    /// Expressions, and whether falling.
    pub(crate) order: Vec<(Expr, bool)>,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
}

type Resolved<T> = Result<T, SqlError>;

fn not_yet<T>(what: &str, at: Location) -> Resolved<T> {
    Err(parse::error(SqlErrorKind::NotYet, &format!("{what} is not supported yet"), Some(at)))
}

fn invalid<T>(message: &str, at: Location) -> Resolved<T> {
    Err(parse::error(SqlErrorKind::Invalid, message, Some(at)))
}

fn unknown<T>(message: &str, at: Location) -> Resolved<T> {
    Err(parse::error(SqlErrorKind::UnknownName, message, Some(at)))
}

/// Where an expression stands; which names and calls are allowed there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clause {
    Select,
    Where,
    GroupBy,
    Having,
    OrderBy,
    Aggregate,
    Limit,
}

struct Resolver<'c> {
    catalog: &'c Catalog,
    logical: Logical,
    aliases: Vec<(String, Expr)>,
    depth: usize,
}

/// Resolves a parsed query.
pub(crate) fn resolve(sql: &str, parsed: &parse::Parsed, catalog: &Catalog) -> Resolved<Logical> {
    let mut resolver = Resolver { catalog, logical: Logical::default(), aliases: Vec::new(), depth: 0 };
    let query = &*parsed.query;
    let SetExpr::Select(select) = &*query.body else { return not_yet("this form of query", query.span().start) };
    refuse_clauses(query, select)?;
    resolver.from(&select.from)?;
    resolver.outputs(select, &parse::item_texts(sql, &parsed.tokens))?;
    if let Some(selection) = &select.selection {
        let condition = resolver.expr(selection, Clause::Where)?;
        resolver.add_conditions(condition);
    }
    resolver.group(select)?;
    resolver.order(query)?;
    resolver.limit(query)?;
    resolver.check_groups(select.span().start)?;
    Ok(resolver.logical)
}

/// Clauses of other dialects, and those of SQLite that wait.
fn refuse_clauses(query: &ast::Query, select: &ast::Select) -> Resolved<()> {
    let at = query.span().start;
    let present = [
        (query.with.is_some(), "WITH"),
        (query.fetch.is_some(), "FETCH"),
        (!query.locks.is_empty(), "FOR UPDATE"),
        (query.for_clause.is_some(), "FOR"),
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (!query.pipe_operators.is_empty(), "|>"),
        (select.top.is_some(), "TOP"),
        (select.exclude.is_some(), "EXCLUDE"),
        (select.into.is_some(), "INTO"),
        (!select.lateral_views.is_empty(), "LATERAL VIEW"),
        (select.prewhere.is_some(), "PREWHERE"),
        (!select.connect_by.is_empty(), "CONNECT BY"),
        (!select.cluster_by.is_empty(), "CLUSTER BY"),
        (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
        (!select.sort_by.is_empty(), "SORT BY"),
        (!select.named_window.is_empty(), "WINDOW"),
        (select.qualify.is_some(), "QUALIFY"),
        (select.value_table_mode.is_some(), "SELECT AS VALUE"),
        (select.select_modifiers.is_some(), "a modifier of SELECT"),
        (matches!(select.distinct, Some(Distinct::On(_))), "DISTINCT ON"),
        (select.flavor != ast::SelectFlavor::Standard, "FROM before SELECT"),
    ];
    match present.iter().find(|(is, _)| *is) {
        Some((_, what)) => not_yet(what, at),
        None => Ok(()),
    }
}

impl Resolver<'_> {
    fn from(&mut self, from: &[ast::TableWithJoins]) -> Resolved<()> {
        for item in from {
            self.table(&item.relation, None)?;
            for join in &item.joins {
                self.join(join)?;
            }
        }
        Ok(())
    }

    fn join(&mut self, join: &ast::Join) -> Resolved<()> {
        let at = join.span().start;
        let (left, constraint) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) | JoinOperator::CrossJoin(constraint) => {
                (false, constraint)
            }
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (true, constraint),
            _ => return not_yet("this kind of join", at),
        };
        if join.global {
            return not_yet("GLOBAL", at);
        }
        self.table(&join.relation, left.then(Vec::new))?;
        let condition = match constraint {
            JoinConstraint::On(on) => self.expr(on, Clause::Where)?,
            JoinConstraint::None => return Ok(()),
            JoinConstraint::Using(_) => return not_yet("USING", at),
            JoinConstraint::Natural => return not_yet("NATURAL JOIN", at),
        };
        match self.logical.tables.last_mut().and_then(|table| table.left_on.as_mut()) {
            Some(on) => flatten(condition, on),
            None => self.add_conditions(condition),
        }
        Ok(())
    }

    fn table(&mut self, factor: &TableFactor, left_on: Option<Vec<Expr>>) -> Resolved<()> {
        let at = factor.span().start;
        let TableFactor::Table { name, alias, args, with_hints, version, partitions, sample, json_path, .. } = factor
        else {
            return not_yet("anything but a collection in FROM", at);
        };
        let plain = args.is_none() && with_hints.is_empty() && version.is_none() && partitions.is_empty();
        if !plain || sample.is_some() || json_path.is_some() {
            return not_yet("this form of FROM", at);
        }
        let Some(ident) = single(name) else { return not_yet("a qualified collection name", at) };
        let number = self
            .catalog
            .number(&ident.value)
            .or_else(|| self.catalog.collections.iter().position(|info| info.name.eq_ignore_ascii_case(&ident.value)));
        let Some(collection) = number else {
            let names: Vec<&str> = self.catalog.collections.iter().map(|info| info.name.as_str()).collect();
            let message = format!("no collection \"{}\"; there are: {}", ident.value, names.join(", "));
            return unknown(&message, ident.span.start);
        };
        if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
            return not_yet("a list of columns after an alias", at);
        }
        let alias = alias.as_ref().map_or(&ident.value, |alias| &alias.name.value).clone();
        if self.logical.tables.iter().any(|table| table.alias.eq_ignore_ascii_case(&alias)) {
            return invalid(&format!("two collections are named \"{alias}\""), at);
        }
        if self.logical.tables.len() == TABLES_MAX {
            return invalid(&format!("more than {TABLES_MAX} collections"), at);
        }
        self.logical.tables.push(Table { collection, alias, left_on });
        Ok(())
    }

    fn add_conditions(&mut self, condition: Expr) {
        flatten(condition, &mut self.logical.conditions);
    }

    fn outputs(&mut self, select: &ast::Select, texts: &[&str]) -> Resolved<()> {
        self.logical.distinct = matches!(select.distinct, Some(Distinct::Distinct));
        for (place, item) in select.projection.iter().enumerate() {
            let at = item.span().start;
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let resolved = self.expr(expr, Clause::Select)?;
                    let name = match (&resolved, expr) {
                        (Expr::Column(column), _) => self.logical.columns[*column].name.clone(),
                        _ => texts.get(place).map_or_else(|| expr.to_string(), |text| (*text).to_owned()),
                    };
                    self.output(name, resolved, at)?;
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let resolved = self.expr(expr, Clause::Select)?;
                    self.aliases.push((alias.value.clone(), resolved.clone()));
                    self.output(alias.value.clone(), resolved, at)?;
                }
                SelectItem::Wildcard(_) => {
                    for table in 0..self.logical.tables.len() {
                        self.wildcard(table, at)?;
                    }
                    if self.logical.tables.is_empty() {
                        return invalid("* without FROM", at);
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let table = single(name).and_then(|ident| self.table_named(&ident.value));
                    let Some(table) = table else { return unknown(&format!("no collection \"{name}\" in FROM"), at) };
                    self.wildcard(table, at)?;
                }
                _ => return not_yet("this form of result column", at),
            }
        }
        Ok(())
    }

    fn output(&mut self, name: String, expr: Expr, at: Location) -> Resolved<()> {
        if self.logical.outputs.iter().any(|output| output.name == name) {
            return invalid(&format!("two result columns are named \"{name}\": name one with AS"), at);
        }
        if self.logical.outputs.len() == COLUMNS_MAX {
            return invalid(&format!("more than {COLUMNS_MAX} result columns"), at);
        }
        match &expr {
            Expr::Column(column) => self.logical.columns[*column].bare = true,
            Expr::Path(column, _) => self.logical.columns[*column].inside = true,
            _ => {}
        }
        self.logical.outputs.push(Output { name, expr });
        Ok(())
    }

    fn wildcard(&mut self, table: usize, at: Location) -> Resolved<()> {
        let info = &self.catalog.collections[self.logical.tables[table].collection];
        if info.fields.is_empty() {
            return invalid(&format!("* needs a schema, and collection \"{}\" has none", info.name), at);
        }
        for field in &info.fields {
            let column = self.column(table, &field.name);
            self.output(field.name.clone(), Expr::Column(column), at)?;
        }
        Ok(())
    }

    fn column(&mut self, table: usize, name: &str) -> usize {
        let columns = &mut self.logical.columns;
        columns.iter().position(|column| column.table == table && column.name == name).unwrap_or_else(|| {
            columns.push(Column { table, name: name.to_owned(), bare: false, inside: false });
            columns.len() - 1
        })
    }

    fn group(&mut self, select: &ast::Select) -> Resolved<()> {
        let at = select.span().start;
        match &select.group_by {
            GroupByExpr::All(_) => return not_yet("GROUP BY ALL", at),
            GroupByExpr::Expressions(list, modifiers) => {
                if !modifiers.is_empty() {
                    return not_yet("a modifier of GROUP BY", at);
                }
                for expr in list {
                    let resolved = match self.output_number(expr)? {
                        Some(place) => self.logical.outputs[place].expr.clone(),
                        None => self.expr(expr, Clause::GroupBy)?,
                    };
                    self.logical.group.push(resolved);
                }
            }
        }
        if let Some(having) = &select.having {
            self.logical.having = Some(self.expr(having, Clause::Having)?);
        }
        let logical = &self.logical;
        self.logical.grouped = !logical.group.is_empty() || !logical.aggregates.is_empty() || logical.having.is_some();
        Ok(())
    }

    /// A plain integer in GROUP BY or ORDER BY counts result columns.
    fn output_number(&self, expr: &ast::Expr) -> Resolved<Option<usize>> {
        let ast::Expr::Value(value) = expr else { return Ok(None) };
        let ast::Value::Number(text, _) = &value.value else { return Ok(None) };
        match text.parse::<usize>() {
            Ok(place) if (1..=self.logical.outputs.len()).contains(&place) => Ok(Some(place - 1)),
            Ok(_) => invalid(&format!("there is no result column {text}"), expr.span().start),
            Err(_) => Ok(None),
        }
    }

    fn order(&mut self, query: &ast::Query) -> Resolved<()> {
        let Some(order) = &query.order_by else { return Ok(()) };
        let at = order.span().start;
        let OrderByKind::Expressions(list) = &order.kind else { return not_yet("ORDER BY ALL", at) };
        if order.interpolate.is_some() {
            return not_yet("INTERPOLATE", at);
        }
        for item in list {
            if item.options.nulls_first.is_some() || item.with_fill.is_some() {
                return not_yet("NULLS FIRST and NULLS LAST", item.span().start);
            }
            let falling = match &item.options.sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(_) => return not_yet("ORDER BY … USING", item.span().start),
            };
            let resolved = match self.output_number(&item.expr)? {
                Some(place) => self.logical.outputs[place].expr.clone(),
                None => match self.output_alias(&item.expr) {
                    Some(expr) => expr,
                    None => self.expr(&item.expr, Clause::OrderBy)?,
                },
            };
            self.logical.order.push((resolved, falling));
        }
        Ok(())
    }

    fn output_alias(&self, expr: &ast::Expr) -> Option<Expr> {
        let ast::Expr::Identifier(ident) = expr else { return None };
        self.alias(&ident.value)
    }

    fn alias(&self, name: &str) -> Option<Expr> {
        self.aliases.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, expr)| expr.clone())
    }

    fn limit(&mut self, query: &ast::Query) -> Resolved<()> {
        let (limit, offset) = match &query.limit_clause {
            None => return Ok(()),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
                if !limit_by.is_empty() {
                    return not_yet("LIMIT … BY", query.span().start);
                }
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        };
        self.logical.limit = limit.map(|expr| self.expr(expr, Clause::Limit)).transpose()?;
        self.logical.offset = offset.map(|expr| self.expr(expr, Clause::Limit)).transpose()?;
        Ok(())
    }

    /// After grouping only group keys and aggregates are left to select, filter and order by (rule 7).
    fn check_groups(&mut self, at: Location) -> Resolved<()> {
        if !self.logical.grouped {
            return Ok(());
        }
        let group = std::mem::take(&mut self.logical.group);
        let mut bare = None;
        for output in &mut self.logical.outputs {
            output.expr = keyed(output.expr.clone(), &group, &mut bare);
        }
        for (expr, _) in &mut self.logical.order {
            *expr = keyed(expr.clone(), &group, &mut bare);
        }
        self.logical.having = self.logical.having.take().map(|having| keyed(having, &group, &mut bare));
        self.logical.group = group;
        match bare {
            Some(column) => {
                let name = &self.logical.columns[column].name;
                invalid(&format!("\"{name}\" is neither in GROUP BY nor inside an aggregate"), at)
            }
            None => Ok(()),
        }
    }

    // ---- expressions -------------------------------------------------------------------------------------------

    fn expr(&mut self, expr: &ast::Expr, clause: Clause) -> Resolved<Expr> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!("the expression nests deeper than {DEPTH_MAX}");
            return Err(parse::error(SqlErrorKind::Limit, &message, Some(expr.span().start)));
        }
        let resolved = self.expr_inside(expr, clause);
        self.depth -= 1;
        resolved
    }

    fn boxed(&mut self, expr: &ast::Expr, clause: Clause) -> Resolved<Box<Expr>> {
        self.expr(expr, clause).map(Box::new)
    }

    fn list(&mut self, list: &[ast::Expr], clause: Clause) -> Resolved<Vec<Expr>> {
        list.iter().map(|expr| self.expr(expr, clause)).collect()
    }

    fn expr_inside(&mut self, expr: &ast::Expr, clause: Clause) -> Resolved<Expr> {
        use ast::Expr as E;
        let at = expr.span().start;
        Ok(match expr {
            E::Nested(inner) => self.expr(inner, clause)?,
            E::Identifier(ident) => self.name(std::slice::from_ref(ident), Vec::new(), clause)?,
            E::CompoundIdentifier(idents) => self.name(idents, Vec::new(), clause)?,
            E::CompoundFieldAccess { root, access_chain } => self.access(root, access_chain, clause)?,
            E::JsonAccess { value, path } => self.json_access(value, &path.path, clause)?,
            E::Value(value) => self.literal(&value.value, value.span.start)?,
            E::UnaryOp { op, expr: inner } => self.unary(*op, inner, clause, at)?,
            E::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => self.chain(expr, op, clause)?,
            E::BinaryOp { left, op, right } => self.binary(left, op, right, clause)?,
            E::IsNull(inner) => Expr::IsNull(self.boxed(inner, clause)?),
            E::IsNotNull(inner) => Expr::NotNull(self.boxed(inner, clause)?),
            E::IsTrue(inner) => Expr::IsTruth(self.boxed(inner, clause)?, true, true),
            E::IsNotTrue(inner) => Expr::IsTruth(self.boxed(inner, clause)?, true, false),
            E::IsFalse(inner) => Expr::IsTruth(self.boxed(inner, clause)?, false, true),
            E::IsNotFalse(inner) => Expr::IsTruth(self.boxed(inner, clause)?, false, false),
            E::IsDistinctFrom(a, b) => self.is(a, b, false, clause)?,
            E::IsNotDistinctFrom(a, b) => self.is(a, b, true, clause)?,
            E::InList { expr: inner, list, negated } => {
                let inner = self.boxed(inner, clause)?;
                let affinity = inner.affinity();
                negate(*negated, Expr::In(inner, affinity, self.list(list, clause)?))
            }
            E::Between { expr: inner, negated, low, high } => {
                let (e, low, high) = (self.boxed(inner, clause)?, self.boxed(low, clause)?, self.boxed(high, clause)?);
                let (a, b) = (between(&e, &low), between(&e, &high));
                negate(*negated, Expr::Between(e, a, low, b, high))
            }
            E::Like { negated, any: false, expr: inner, pattern, escape_char } => {
                let escape = escape_char.as_ref().map(|escape| self.escape(escape, clause)).transpose()?;
                negate(*negated, Expr::Like(self.boxed(inner, clause)?, self.boxed(pattern, clause)?, escape))
            }
            E::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), clause)?
            }
            E::Cast { kind: ast::CastKind::Cast, expr: inner, data_type, format: None } => {
                let to = cast_type(&data_type.to_string(), at)?;
                Expr::Cast(to, self.boxed(inner, clause)?)
            }
            E::Function(function) => self.function(function, clause)?,
            E::Substring { expr: inner, substring_from, substring_for, .. } => {
                let mut arguments = vec![self.expr(inner, clause)?];
                let from = substring_from.as_deref();
                arguments.push(from.map_or(Ok(Expr::integer(1)), |from| self.expr(from, clause))?);
                if let Some(count) = substring_for {
                    arguments.push(self.expr(count, clause)?);
                }
                Expr::Call(Function::Substr, arguments)
            }
            E::Trim { expr: inner, trim_where: None, trim_what: None, trim_characters } => {
                let mut arguments = vec![self.expr(inner, clause)?];
                arguments.extend(self.list(trim_characters.as_deref().unwrap_or_default(), clause)?);
                if arguments.len() > 2 {
                    return invalid("TRIM takes one or two arguments", at);
                }
                Expr::Call(Function::Trim, arguments)
            }
            E::Subquery(_) | E::InSubquery { .. } | E::Exists { .. } => return not_yet("a query inside a query", at),
            E::Collate { .. } => return not_yet("COLLATE", at),
            E::Tuple(_) => return not_yet("a row value", at),
            _ => return not_yet(&format!("\"{}\"", shortened(&expr.to_string())), at),
        })
    }

    /// `a AND b AND c` as one list: the tree is deep on its left, the list is flat.
    fn chain(&mut self, expr: &ast::Expr, wanted: &BinaryOperator, clause: Clause) -> Resolved<Expr> {
        let mut terms = Vec::new();
        let mut rest = expr;
        while let ast::Expr::BinaryOp { left, op, right } = rest
            && op == wanted
        {
            terms.push(&**right);
            rest = left;
        }
        terms.push(rest);
        terms.reverse();
        let terms = terms.into_iter().map(|term| self.expr(term, clause)).collect::<Resolved<Vec<_>>>()?;
        Ok(if *wanted == BinaryOperator::And { Expr::And(terms) } else { Expr::Or(terms) })
    }

    fn escape(&mut self, escape: &ast::Expr, clause: Clause) -> Resolved<Box<Expr>> {
        let resolved = self.expr(escape, clause)?;
        if let Expr::Literal(Literal::Text(text)) = &resolved
            && super::pattern::length(text) != 1
        {
            return invalid("ESCAPE takes one character", escape.span().start);
        }
        Ok(Box::new(resolved))
    }

    fn is(&mut self, a: &ast::Expr, b: &ast::Expr, same: bool, clause: Clause) -> Resolved<Expr> {
        let (a, b) = (self.boxed(a, clause)?, self.boxed(b, clause)?);
        let affinity = between(&a, &b);
        Ok(Expr::Is(same, affinity, a, b))
    }

    fn unary(&mut self, op: UnaryOperator, inner: &ast::Expr, clause: Clause, at: Location) -> Resolved<Expr> {
        // The least integer has no positive twin to negate.
        if op == UnaryOperator::Minus
            && let ast::Expr::Value(value) = inner
            && let ast::Value::Number(text, false) = &value.value
        {
            return Ok(match number_literal(&text.replace('_', "")) {
                _ if text == "9223372036854775808" => Expr::integer(i64::MIN),
                Some(Literal::Integer(integer)) => Expr::integer(-integer),
                Some(Literal::Real(real)) => Expr::Literal(Literal::Real(-real)),
                _ => return not_yet(&format!("the number {text}"), at),
            });
        }
        let inner = self.boxed(inner, clause)?;
        Ok(match op {
            UnaryOperator::Minus => Expr::Arithmetic(Arithmetic::Subtract, Box::new(Expr::integer(0)), inner),
            UnaryOperator::Plus => *inner,
            UnaryOperator::Not => Expr::Not(inner),
            UnaryOperator::BitwiseNot => Expr::BitNot(inner),
            other => return not_yet(&format!("the operator {other}"), at),
        })
    }

    fn binary(&mut self, left: &ast::Expr, op: &BinaryOperator, right: &ast::Expr, clause: Clause) -> Resolved<Expr> {
        use BinaryOperator as B;
        let at = left.span().start;
        let (a, b) = (self.boxed(left, clause)?, self.boxed(right, clause)?);
        let comparison = match op {
            B::Eq => Some(Comparison::Equal),
            B::NotEq => Some(Comparison::NotEqual),
            B::Lt => Some(Comparison::Less),
            B::LtEq => Some(Comparison::LessOrEqual),
            B::Gt => Some(Comparison::Greater),
            B::GtEq => Some(Comparison::GreaterOrEqual),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let affinity = between(&a, &b);
            return Ok(Expr::Compare(comparison, affinity, a, b));
        }
        let arithmetic = match op {
            B::Plus => Arithmetic::Add,
            B::Minus => Arithmetic::Subtract,
            B::Multiply => Arithmetic::Multiply,
            B::Divide => Arithmetic::Divide,
            B::Modulo => Arithmetic::Remainder,
            B::BitwiseAnd => Arithmetic::And,
            B::BitwiseOr => Arithmetic::Or,
            B::PGBitwiseShiftLeft => Arithmetic::ShiftLeft,
            B::PGBitwiseShiftRight => Arithmetic::ShiftRight,
            B::StringConcat => return Ok(Expr::Concat(a, b)),
            B::Arrow => return Ok(Expr::Arrow(false, a, b)),
            B::LongArrow => return Ok(Expr::Arrow(true, a, b)),
            B::Glob => return Ok(Expr::Glob(a, b)),
            other => return not_yet(&format!("the operator {other}"), at),
        };
        Ok(Expr::Arithmetic(arithmetic, a, b))
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        conditions: &[ast::CaseWhen],
        last: Option<&ast::Expr>,
        clause: Clause,
    ) -> Resolved<Expr> {
        let last = Box::new(match last {
            Some(last) => self.expr(last, clause)?,
            None => Expr::Literal(Literal::Null),
        });
        let operand = operand.map(|operand| self.boxed(operand, clause)).transpose()?;
        let mut arms = Vec::new();
        for arm in conditions {
            arms.push((self.expr(&arm.condition, clause)?, self.expr(&arm.result, clause)?));
        }
        Ok(match operand {
            None => Expr::Case(arms, last),
            Some(operand) => {
                let arms = arms.into_iter().map(|(when, then)| (between(&operand, &when), when, then)).collect();
                Expr::CaseOf(operand, arms, last)
            }
        })
    }

    fn literal(&mut self, value: &ast::Value, at: Location) -> Resolved<Expr> {
        Ok(Expr::Literal(match value {
            ast::Value::Null => Literal::Null,
            ast::Value::Boolean(truth) => Literal::Integer(i64::from(*truth)),
            ast::Value::SingleQuotedString(text) => Literal::Text(text.as_bytes().into()),
            ast::Value::Number(text, false) => match number_literal(&text.replace('_', "")) {
                Some(literal) => literal,
                None => return not_yet(&format!("the number {text}"), at),
            },
            ast::Value::Placeholder(name) => return self.parameter(name, at),
            other => return not_yet(&format!("the literal {}", shortened(&other.to_string())), at),
        }))
    }

    fn parameter(&mut self, name: &str, at: Location) -> Resolved<Expr> {
        let Some(name) = name.strip_prefix(':').filter(|name| !name.is_empty()) else {
            return not_yet("a parameter other than :name", at);
        };
        let parameters = &mut self.logical.parameters;
        if let Some(slot) = parameters.iter().position(|parameter| parameter == name) {
            return Ok(Expr::Parameter(slot));
        }
        if parameters.len() == PARAMETERS_MAX {
            return invalid(&format!("more than {PARAMETERS_MAX} parameters"), at);
        }
        parameters.push(name.to_owned());
        Ok(Expr::Parameter(parameters.len() - 1))
    }

    fn function(&mut self, function: &ast::Function, clause: Clause) -> Resolved<Expr> {
        let at = function.span().start;
        let name = single(&function.name).map(|ident| ident.value.to_ascii_lowercase()).unwrap_or_default();
        if function.filter.is_some() || function.over.is_some() || !function.within_group.is_empty() {
            return not_yet("FILTER, OVER or WITHIN GROUP", at);
        }
        let (no_parameters, no_nulls) =
            (matches!(function.parameters, ast::FunctionArguments::None), function.null_treatment.is_none());
        let ast::FunctionArguments::List(list) = &function.args else {
            return not_yet(&format!("\"{}\" without parentheses", shortened(&name)), at);
        };
        if !no_parameters || !no_nulls || !list.clauses.is_empty() {
            return not_yet("this form of call", at);
        }
        let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        let star = matches!(&list.args[..], [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)]);
        let aggregate = AGGREGATES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        let scalar_extreme = matches!(name.as_str(), "min" | "max") && list.args.len() > 1;
        if let Some(kind) = aggregate.filter(|_| !scalar_extreme) {
            if distinct {
                return not_yet(&format!("{}(DISTINCT …)", name.to_uppercase()), at);
            }
            let empty_count = name == "count" && list.args.is_empty();
            return self.aggregate(kind, if star || empty_count { None } else { Some(&list.args) }, &name, clause, at);
        }
        if distinct || star {
            return invalid(&format!("{name} takes neither DISTINCT nor *"), at);
        }
        let mut arguments = Vec::new();
        for argument in &list.args {
            arguments.push(self.expr(plain_argument(argument, at)?, clause)?);
        }
        call(&name, arguments, at)
    }

    fn aggregate(
        &mut self,
        kind: AggregateKind,
        arguments: Option<&[ast::FunctionArg]>,
        name: &str,
        clause: Clause,
        at: Location,
    ) -> Resolved<Expr> {
        if !matches!(clause, Clause::Select | Clause::Having | Clause::OrderBy) {
            return invalid(&format!("the aggregate {name} is not allowed here"), at);
        }
        let call = match arguments {
            None if kind == AggregateKind::Count => AggregateCall { kind: AggregateKind::CountRows, argument: None },
            Some([argument]) => {
                let argument = self.expr(plain_argument(argument, at)?, Clause::Aggregate)?;
                AggregateCall { kind, argument: Some(argument) }
            }
            _ => return invalid(&format!("the aggregate {name} takes one argument"), at),
        };
        let aggregates = &mut self.logical.aggregates;
        let slot = aggregates.iter().position(|known| *known == call).unwrap_or_else(|| {
            aggregates.push(call);
            aggregates.len() - 1
        });
        Ok(Expr::Aggregate(slot))
    }

    // ---- names -------------------------------------------------------------------------------------------------

    fn table_named(&self, name: &str) -> Option<usize> {
        self.logical.tables.iter().position(|table| table.alias.eq_ignore_ascii_case(name))
    }

    fn info(&self, table: usize) -> &CollectionInfo {
        &self.catalog.collections[self.logical.tables[table].collection]
    }

    /// The field's own spelling, if the collection may have it: SQL does not tell cases apart, JSON does, so the exact
    /// name goes first.
    fn field(&self, table: usize, name: &str) -> Option<String> {
        let info = self.info(table);
        let declared = || info.fields.iter().map(|field| &field.name).chain(std::iter::once(&info.key.field));
        let exact = declared().find(|field| *field == name);
        exact.or_else(|| declared().find(|field| field.eq_ignore_ascii_case(name))).cloned()
    }

    /// `field`, `table.field`, and either with a path behind.
    fn name(&mut self, idents: &[Ident], more: Vec<Step>, clause: Clause) -> Resolved<Expr> {
        let Some((first, rest)) = idents.split_first() else { return invalid("an empty name", Location::empty()) };
        let at = first.span.start;
        if clause == Clause::Limit {
            return invalid("LIMIT and OFFSET take no fields", at);
        }
        let (table, field, rest) = match (self.table_named(&first.value), rest.split_first()) {
            (Some(table), Some((field, rest))) => {
                let name = match self.field(table, &field.value) {
                    Some(name) => name,
                    None if !self.info(table).closed => field.value.clone(),
                    None => return self.no_field(&field.value, &[table], field.span.start),
                };
                (table, name, rest)
            }
            _ => match self.unqualified(first, rest.is_empty() && more.is_empty(), clause)? {
                Unqualified::Alias(expr) => return Ok(expr),
                Unqualified::Field(table, name) => (table, name, rest),
            },
        };
        let column = self.column(table, &field);
        let mut steps: Vec<Step> = rest.iter().map(|ident| Step::Field(ident.value.clone())).collect();
        steps.extend(more);
        if steps.is_empty() {
            return Ok(Expr::Column(column));
        }
        self.logical.columns[column].inside = true;
        Ok(Expr::Path(column, steps))
    }

    fn unqualified(&self, ident: &Ident, whole: bool, clause: Clause) -> Resolved<Unqualified> {
        let at = ident.span.start;
        let tables: Vec<usize> = (0..self.logical.tables.len()).collect();
        let known: Vec<(usize, String)> =
            tables.iter().filter_map(|&table| Some((table, self.field(table, &ident.value)?))).collect();
        if known.len() > 1 {
            return invalid(&format!("\"{}\" is in several collections: name one", ident.value), at);
        }
        if let Some((table, name)) = known.into_iter().next() {
            return Ok(Unqualified::Field(table, name));
        }
        let alias = self.alias(&ident.value).filter(|_| whole && clause != Clause::Select);
        if let Some(expr) = alias {
            let mut aggregates = false;
            expr.walk(&mut |part| aggregates |= matches!(part, Expr::Aggregate(_)));
            if aggregates && !matches!(clause, Clause::Having | Clause::OrderBy) {
                return invalid(&format!("\"{}\" is an aggregate and not allowed here", ident.value), at);
            }
            return Ok(Unqualified::Alias(expr));
        }
        let open: Vec<usize> = tables.iter().copied().filter(|&table| !self.info(table).closed).collect();
        match open[..] {
            [table] => Ok(Unqualified::Field(table, ident.value.clone())),
            [] => self.no_field(&ident.value, &tables, at),
            _ => invalid(&format!("\"{}\" may be in several collections: name one", ident.value), at),
        }
    }

    fn no_field<T>(&self, name: &str, tables: &[usize], at: Location) -> Resolved<T> {
        let fields: Vec<&str> =
            tables.iter().flat_map(|&table| self.info(table).fields.iter().map(|field| field.name.as_str())).collect();
        match fields.is_empty() {
            true => unknown(&format!("no field \"{name}\""), at),
            false => unknown(&format!("no field \"{name}\"; there are: {}", fields.join(", ")), at),
        }
    }

    /// `tags[0].name`, which sqlparser takes for a path of another dialect.
    fn json_access(&mut self, root: &ast::Expr, path: &[ast::JsonPathElem], clause: Clause) -> Resolved<Expr> {
        let at = root.span().start;
        let mut steps = Vec::new();
        for element in path {
            steps.push(match element {
                ast::JsonPathElem::Dot { key, .. } => Step::Field(key.clone()),
                ast::JsonPathElem::Bracket { key } => match self.expr(key, Clause::Limit)? {
                    Expr::Literal(Literal::Integer(index)) => Step::Item(index),
                    _ => return not_yet("a subscript other than a number", at),
                },
                _ => return not_yet("this form of path", at),
            });
        }
        match root {
            ast::Expr::Identifier(ident) => self.name(std::slice::from_ref(ident), steps, clause),
            ast::Expr::CompoundIdentifier(idents) => self.name(idents, steps, clause),
            _ => not_yet("a path on anything but a field", at),
        }
    }

    /// `tags[0].name` and what else sqlparser calls a field access.
    fn access(&mut self, root: &ast::Expr, chain: &[ast::AccessExpr], clause: Clause) -> Resolved<Expr> {
        let at = root.span().start;
        let mut idents = match root {
            ast::Expr::Identifier(ident) => vec![ident.clone()],
            ast::Expr::CompoundIdentifier(idents) => idents.clone(),
            _ => return not_yet("a path on anything but a field", at),
        };
        let mut steps = Vec::new();
        for access in chain {
            match access {
                ast::AccessExpr::Dot(ast::Expr::Identifier(ident)) if steps.is_empty() => idents.push(ident.clone()),
                ast::AccessExpr::Dot(ast::Expr::Identifier(ident)) => steps.push(Step::Field(ident.value.clone())),
                ast::AccessExpr::Subscript(ast::Subscript::Index { index }) => {
                    match self.expr(index, Clause::Limit)? {
                        Expr::Literal(Literal::Integer(index)) => steps.push(Step::Item(index)),
                        _ => return not_yet("a subscript other than a number", at),
                    }
                }
                _ => return not_yet("this form of path", at),
            }
        }
        self.name(&idents, steps, clause)
    }
}

enum Unqualified {
    Alias(Expr),
    Field(usize, String),
}

fn single(name: &ObjectName) -> Option<&Ident> {
    match &name.0[..] {
        [part] => part.as_ident(),
        _ => None,
    }
}

fn flatten(condition: Expr, into: &mut Vec<Expr>) {
    match condition {
        Expr::And(terms) => terms.into_iter().for_each(|term| flatten(term, into)),
        other => into.push(other),
    }
}

fn negate(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

/// What a comparison converts to: a number beside a CAST to one, text where a CAST to it meets no field. A field alone
/// converts nothing and is not made text.
fn between(a: &Expr, b: &Expr) -> Affinity {
    let field = |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::Path(..));
    match (a.affinity(), b.affinity()) {
        (Affinity::Numeric, _) | (_, Affinity::Numeric) => Affinity::Numeric,
        (Affinity::Text, _) if !field(b) => Affinity::Text,
        (_, Affinity::Text) if !field(a) => Affinity::Text,
        _ => Affinity::None,
    }
}

/// Replaces group keys in an expression that is evaluated after grouping; notes a column that is left.
fn keyed(expr: Expr, group: &[Expr], bare: &mut Option<usize>) -> Expr {
    if let Some(place) = group.iter().position(|key| *key == expr) {
        return Expr::GroupKey(place);
    }
    if let Expr::Column(column) | Expr::Path(column, _) = expr {
        *bare = Some(column);
    }
    expr.map_children(&mut |child| keyed(child, group, bare))
}

fn number_literal(text: &str) -> Option<Literal> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok().map(|bits| Literal::Integer(bits as i64));
    }
    if text.bytes().all(|b| b.is_ascii_digit())
        && let Ok(integer) = text.parse()
    {
        return Some(Literal::Integer(integer));
    }
    let prefix = number::real_prefix(text.as_bytes());
    (prefix.any && prefix.whole).then_some(Literal::Real(prefix.real))
}

/// The affinity of a type's name, by SQLite's rules.
fn cast_type(name: &str, at: Location) -> Resolved<CastType> {
    let name = name.to_ascii_uppercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    Ok(match () {
        () if has(&["INT"]) => CastType::Integer,
        () if has(&["CHAR", "CLOB", "TEXT"]) => CastType::Text,
        () if has(&["BLOB"]) || name.is_empty() => return not_yet("BLOB", at),
        () if has(&["REAL", "FLOA", "DOUB"]) => CastType::Real,
        () => CastType::Numeric,
    })
}

fn plain_argument(argument: &ast::FunctionArg, at: Location) -> Resolved<&ast::Expr> {
    match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(expr),
        _ => not_yet("this form of argument", at),
    }
}

/// A scalar call, its arguments checked against the table of functions.
fn call(name: &str, mut arguments: Vec<Expr>, at: Location) -> Resolved<Expr> {
    let count = arguments.len();
    match (name, count) {
        ("coalesce", 2..) | ("ifnull", 2) => return Ok(Expr::Coalesce(arguments)),
        ("iif" | "if", 2..) => {
            let last = if count % 2 == 1 { arguments.pop() } else { None };
            let mut arms = Vec::new();
            let mut rest = arguments.into_iter();
            while let (Some(when), Some(then)) = (rest.next(), rest.next()) {
                arms.push((when, then));
            }
            return Ok(Expr::Case(arms, Box::new(last.unwrap_or(Expr::Literal(Literal::Null)))));
        }
        ("like", 2 | 3) => {
            let escape = if count == 3 { arguments.pop().map(Box::new) } else { None };
            let (text, wanted) = (arguments.pop(), arguments.pop());
            if let (Some(text), Some(wanted)) = (text, wanted) {
                return Ok(Expr::Like(Box::new(text), Box::new(wanted), escape));
            }
            return invalid("LIKE takes two or three arguments", at);
        }
        _ => {}
    }
    let Some(&(_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
        let special = matches!(name, "coalesce" | "ifnull" | "iif" | "if" | "like");
        if special {
            return invalid(&format!("wrong number of arguments to {name}"), at);
        }
        return unknown(&format!("no function \"{}\" in this version", shortened(name)), at);
    };
    if !(least..=most).contains(&count) {
        return invalid(&format!("wrong number of arguments to {name}: {count}"), at);
    }
    check_literals(function, &arguments, at)?;
    Ok(Expr::Call(function, arguments))
}

/// What a call's literal arguments already show to be unsupported.
fn check_literals(function: Function, arguments: &[Expr], at: Location) -> Resolved<()> {
    let text = |argument: &Expr| match argument {
        Expr::Literal(Literal::Text(text)) => Some(text.to_vec()),
        _ => None,
    };
    match function {
        Function::Printf => match text(&arguments[0]).and_then(|text| format::unsupported(&text)) {
            Some(conversion) => not_yet(&format!("the conversion %{conversion}"), at),
            None => Ok(()),
        },
        Function::Date(_) => match arguments.iter().filter_map(text).find(|text| dates::unsupported_modifier(text)) {
            Some(modifier) => not_yet(&format!("the modifier '{}'", String::from_utf8_lossy(&modifier)), at),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
