//! Keyset pagination: a total order of a query's rows, and the predicate that a row comes after a position in it.
//!
//! What identifies a row: in a collection its key, in a view and in a query with GROUP BY the GROUP BY values, with DISTINCT all
//! columns. [`complete`] appends these to ORDER BY. The query is refused with its
//! position if nothing identifies the rows, or if two executions may compute different ORDER BY values for the same rows. For
//! example, a group of 5 and 5.0 shows the value that was found first.
//!
//! A position is a value for each term of that order. The predicate ([`behind`]) takes them as parameters after those of the
//! text, so that one prepared query serves all pages:
//!
//! ```text
//!  ORDER BY a, b      a > :1 OR (a = :1 AND b > :2)      and for the planner: a >= :1
//! ```
//!
//! NULL sorts before all other values. If a term may be NULL, its parameter may be NULL too, and plans are specialised for
//! that. With GROUP BY, the predicate filters the input rows if all terms are GROUP BY values; otherwise it filters the groups.

use sqlparser::ast::{self, Spanned};
use sqlparser::tokenizer::Location;

use crate::catalog::{Catalog, FieldKind};
use crate::sql::expressions::{Affinity, AggregateKind, Comparison, Expr};
use crate::sql::limits::{SqlError, SqlErrorKind};
use crate::sql::planning::condition::tables_of;
use crate::sql::resolve::{Column, Logical, RowSource};

/// Most terms of the completed order of pages. It bounds the nesting of the predicates.
pub(super) const TERMS_MAX: usize = 64;

/// Completes ORDER BY, in the direction of its last term, so that an index in the requested order gives the rest too.
pub(super) fn complete(logical: &mut Logical, catalog: &Catalog, query: &ast::Query) -> Result<(), SqlError> {
    if logical.limit.is_some() || logical.offset.is_some() {
        return refuse("a query that is read in pages takes no LIMIT and OFFSET of its own", place_of_limit(query));
    }
    let body = Some(query.body.span().start);
    if logical.grouped && logical.group.is_empty() {
        return refuse("an aggregate without GROUP BY is one row, and has no pages", body);
    }
    let ordered = query.order_by.as_ref().map(|order| order.span().start);
    if logical.grouped {
        check_groups(logical, ordered, body)?;
    }
    let rest = if logical.distinct {
        check_distinct(logical, ordered)?;
        logical.outputs.iter().map(|output| output.expr.clone()).collect()
    } else if logical.grouped {
        (0..logical.group.len()).map(Expr::GroupKey).collect()
    } else {
        keys(logical, catalog, query)?
    };
    let falling = logical.order.last().is_some_and(|(_, falling)| *falling);
    for expr in rest {
        if !logical.order.iter().any(|(known, _)| *known == expr) {
            logical.order.push((expr, falling));
        }
    }
    if logical.order.len() > TERMS_MAX {
        let told = format!("pages are in an order of up to {TERMS_MAX} terms; this one takes {}", logical.order.len());
        return refuse(&told, ordered.or(body));
    }
    Ok(())
}

/// Adds a parameter for each term's value, and the predicates that a row comes after the position. The first is redundant: it
/// is the bound that the planner uses.
pub(super) fn behind(logical: &mut Logical, catalog: &Catalog) {
    let first = logical.parameters.len();
    // A parameter's name in a query never has a space.
    logical.parameters.extend((0..logical.order.len()).map(|term| format!("after {term}")));
    let terms: Vec<Term> =
        logical.order.iter().zip(first..).map(|(o, slot)| Term::of(o, slot, logical, catalog)).collect();
    let whole = terms.iter().rev().fold(None, |rest: Option<Expr>, term| {
        Some(match rest {
            None => term.beyond(),
            Some(rest) => Expr::Or(vec![term.beyond(), Expr::And(vec![term.same(), rest])]),
        })
    });
    let bound = terms.first().and_then(Term::bound);
    let outermost = outermost(&terms, &logical.columns);
    let of_rows = !logical.grouped || logical.order.iter().all(|(expr, _)| is_key(expr));
    let bound = bound.filter(|_| of_rows || logical.order.first().is_some_and(|(expr, _)| is_key(expr)));
    let group = &logical.group;
    let conditions: Vec<Expr> = bound
        .into_iter()
        .chain(outermost)
        .chain(whole.clone().filter(|_| of_rows))
        .map(|e| ungrouped(e, group))
        .collect();
    logical.conditions.extend(conditions);
    if !of_rows {
        let own = logical.having.take();
        logical.having = match (own, whole) {
            (Some(own), Some(whole)) => Some(Expr::And(vec![own, whole])),
            (own, whole) => own.or(whole),
        };
    }
}

/// If the order begins with several terms of one table and continues with others: the predicate that a row of that table is at
/// the position or after it, so that rows before it are not joined.
fn outermost(terms: &[Term<'_>], columns: &[Column]) -> Option<Expr> {
    let table = |term: &Term<'_>| match term.expr {
        Expr::Column(column) => Some(columns[*column].table),
        _ => None,
    };
    let first = table(terms.first()?)?;
    let own = terms.iter().take_while(|term| table(term) == Some(first)).count();
    if own < 2 || own == terms.len() {
        return None;
    }
    terms[..own].iter().rev().fold(None, |rest: Option<Expr>, term| {
        Some(match rest {
            None => Expr::Or(vec![term.beyond(), term.same()]),
            Some(rest) => Expr::Or(vec![term.beyond(), Expr::And(vec![term.same(), rest])]),
        })
    })
}

fn refuse<T>(message: &str, at: Option<Location>) -> Result<T, SqlError> {
    Err(SqlError::at(SqlErrorKind::NotYet, message, at))
}

fn place_of_limit(query: &ast::Query) -> Option<Location> {
    let (limit, offset) = match query.limit_clause.as_ref()? {
        ast::LimitClause::LimitOffset { limit, offset, .. } => (limit.as_ref(), offset.as_ref().map(|o| &o.value)),
        ast::LimitClause::OffsetCommaLimit { offset, limit } => (Some(limit), Some(offset)),
    };
    limit.or(offset).map(|expr| expr.span().start)
}

/// Whether an expression is a GROUP BY value, or the test of one for NULL (from NULLS FIRST or LAST).
fn is_key(expr: &Expr) -> bool {
    match expr {
        Expr::GroupKey(_) => true,
        Expr::IsNull(inner) => is_key(inner),
        _ => false,
    }
}

/// Whether an expression over a group has the same value, whichever rows of the group are found first.
fn is_settled(expr: &Expr, logical: &Logical) -> bool {
    let kind = |slot: usize| logical.aggregates[slot].kind;
    match expr {
        Expr::GroupKey(_) => true,
        Expr::IsNull(inner) => is_settled(inner, logical),
        // Of equal values of different kinds, MIN and MAX return the first.
        Expr::Aggregate(slot) => !kind(*slot).joins_texts(),
        other => {
            let mut settled = true;
            other.walk(&mut |part| match part {
                Expr::Aggregate(slot) => {
                    use AggregateKind::{Avg, Count, CountRows, Sum, Total};
                    settled &= match kind(*slot) {
                        CountRows | Count | Avg | Total => true,
                        Sum => !logical.aggregates[*slot].distinct,
                        _ => false,
                    };
                }
                Expr::GroupKey(_) => settled = false,
                _ => {}
            });
            settled
        }
    }
}

fn check_groups(logical: &Logical, ordered: Option<Location>, body: Option<Location>) -> Result<(), SqlError> {
    let why = "pages of groups are ordered only by expressions of GROUP BY and by plain aggregates: a value computed from \
               them may depend on the row that was found first";
    if !logical.order.iter().all(|(expr, _)| is_settled(expr, logical)) {
        return refuse(why, ordered);
    }
    let outputs = logical.outputs.iter().map(|output| &output.expr);
    if logical.distinct && !outputs.into_iter().all(|expr| is_settled(expr, logical)) {
        return refuse(why, body);
    }
    Ok(())
}

fn check_distinct(logical: &Logical, ordered: Option<Location>) -> Result<(), SqlError> {
    let is_shown = |expr: &Expr| logical.outputs.iter().any(|output| output.expr == *expr);
    let is_known = |expr: &Expr| match expr {
        Expr::IsNull(inner) => is_shown(inner) || is_shown(expr),
        expr => is_shown(expr),
    };
    if logical.order.iter().all(|(expr, _)| is_known(expr)) {
        return Ok(());
    }
    let why = "with DISTINCT, pages are in the order of selected columns: other values may differ among equal rows";
    refuse(why, ordered)
}

/// The columns that identify the rows of FROM.
fn keys(logical: &mut Logical, catalog: &Catalog, query: &ast::Query) -> Result<Vec<Expr>, SqlError> {
    let body = query.body.span().start;
    if logical.tables.is_empty() {
        return refuse("a query without FROM is one row, and has no pages", Some(body));
    }
    let places = places_of_tables(&query.body);
    let mut keys: Vec<(usize, Vec<String>)> = Vec::new();
    for table in 0..logical.tables.len() {
        let source = &logical.tables[table];
        let Some(names) = source.info(catalog).identity.clone() else {
            let what = match &source.origin {
                RowSource::Each { .. } => "json_each".to_owned(),
                RowSource::Inner { .. } => "a query in FROM, or of UNION ALL,".to_owned(),
                RowSource::Collection(number) => {
                    format!("the view \"{}\" with ROLLUP", catalog.collections[*number].name)
                }
            };
            let at = if places.len() == logical.tables.len() { places[table] } else { body };
            return refuse(
                &format!("{what} has no pages: nothing identifies its rows (DISTINCT and GROUP BY do)"),
                Some(at),
            );
        };
        keys.push((table, names));
    }
    // If ORDER BY uses only one table, its key comes first: then its access path can give the whole order of its terms.
    let ordered = logical.order.iter().fold(0, |tables, (expr, _)| tables | tables_of(expr, &logical.columns));
    keys.sort_by_key(|(table, _)| ordered != 1 << table);
    let keys = keys.into_iter().flat_map(|(table, names)| names.into_iter().map(move |name| (table, name)));
    Ok(keys.map(|(table, name)| Expr::Column(column(logical, table, name))).collect())
}

fn places_of_tables(body: &ast::SetExpr) -> Vec<Location> {
    let ast::SetExpr::Select(select) = body else { return Vec::new() };
    let relations = select
        .from
        .iter()
        .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
    relations.map(|relation| relation.span().start).collect()
}

fn column(logical: &mut Logical, table: usize, name: String) -> usize {
    let known = logical.columns.iter().position(|column| column.table == table && column.name == name);
    known.unwrap_or_else(|| {
        let kind = (Affinity::None, false);
        logical.columns.push(Column { table, name, bare: false, inside: false, kind });
        logical.columns.len() - 1
    })
}

/// An expression over groups as one over the input rows.
fn ungrouped(expr: Expr, group: &[Expr]) -> Expr {
    match expr {
        Expr::GroupKey(place) => group[place].clone(),
        other => other.map_children(&mut |child| ungrouped(child, group)),
    }
}

/// One term of the order, and the parameter with its value.
struct Term<'l> {
    expr: &'l Expr,
    falling: bool,
    slot: usize,
    may_be_null: bool,
}

impl<'l> Term<'l> {
    fn of((expr, falling): &'l (Expr, bool), slot: usize, logical: &Logical, catalog: &Catalog) -> Term<'l> {
        Term { expr, falling: *falling, slot, may_be_null: may_be_null(expr, logical, catalog) }
    }

    fn place(&self) -> Box<Expr> {
        Box::new(Expr::Parameter(self.slot))
    }

    fn expr(&self) -> Box<Expr> {
        Box::new(self.expr.clone())
    }

    fn compare(&self, comparison: Comparison) -> Expr {
        Expr::Compare(comparison, Affinity::None, self.expr(), self.place())
    }

    fn beyond(&self) -> Expr {
        let further = self.compare(if self.falling { Comparison::Less } else { Comparison::Greater });
        let of_null = match (self.may_be_null, self.falling) {
            (false, _) => return further,
            (true, false) => [Expr::IsNull(self.place()), Expr::NotNull(self.expr())],
            (true, true) => [Expr::NotNull(self.place()), Expr::IsNull(self.expr())],
        };
        Expr::Or(vec![further, Expr::And(of_null.into())])
    }

    fn same(&self) -> Expr {
        match self.may_be_null {
            true => Expr::Is(true, Affinity::None, self.expr(), self.place()),
            false => self.compare(Comparison::Equal),
        }
    }

    /// A range bound that holds for all rows at the position and after it.
    fn bound(&self) -> Option<Expr> {
        match (self.falling, self.may_be_null) {
            (false, false) => Some(self.compare(Comparison::GreaterOrEqual)),
            (false, true) => Some(Expr::Or(vec![Expr::IsNull(self.place()), self.compare(Comparison::GreaterOrEqual)])),
            (true, false) => Some(self.compare(Comparison::LessOrEqual)),
            (true, true) => None,
        }
    }
}

fn may_be_null(expr: &Expr, logical: &Logical, catalog: &Catalog) -> bool {
    let column = match expr {
        Expr::Column(column) => *column,
        Expr::GroupKey(place) => return may_be_null(&logical.group[*place], logical, catalog),
        Expr::IsNull(_) | Expr::NotNull(_) => return false,
        _ => return true,
    };
    let Column { table, name, .. } = &logical.columns[column];
    let (table, info) = (&logical.tables[*table], logical.tables[*table].info(catalog));
    let is_required = info.field(name).is_some_and(|field| field.required && field.kind != FieldKind::Any);
    table.left_on.is_some() || !(*name == info.key.field || is_required)
}
