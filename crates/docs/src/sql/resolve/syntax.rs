//! Checks of the syntax tree before names are resolved: refused clauses, and the forms of expressions that have parts.

use sqlparser::ast::{self, Distinct, Ident, ObjectName, Spanned};
use sqlparser::tokenizer::Location;

use super::{Resolved, not_yet};

/// Refuses clauses around SELECT of other dialects.
pub(super) fn refuse_query_clauses(query: &ast::Query) -> Resolved<()> {
    let present = [
        (query.fetch.is_some(), "FETCH"),
        (!query.locks.is_empty(), "FOR UPDATE"),
        (query.for_clause.is_some(), "FOR"),
        (query.settings.is_some(), "SETTINGS"),
        (query.format_clause.is_some(), "FORMAT"),
        (!query.pipe_operators.is_empty(), "|>"),
    ];
    refuse(&present, query.span().start)
}

fn refuse(present: &[(bool, &str)], at: Location) -> Resolved<()> {
    match present.iter().find(|(is, _)| *is) {
        Some((_, what)) => not_yet(what, at),
        None => Ok(()),
    }
}

/// Refuses clauses of other dialects, and those of SQLite that are not implemented.
pub(super) fn refuse_clauses(select: &ast::Select) -> Resolved<()> {
    let present = [
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
    refuse(&present, select.span().start)
}

/// A name without qualifier.
pub(super) fn single(name: &ObjectName) -> Option<&Ident> {
    match &name.0[..] {
        [part] => part.as_ident(),
        _ => None,
    }
}

/// An argument that is neither named nor `*`.
pub(super) fn plain_argument(argument: &ast::FunctionArg, at: Location) -> Resolved<&ast::Expr> {
    match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(expr),
        _ => not_yet("this form of argument", at),
    }
}

/// An expression without the parentheses around it.
pub(super) fn unnested(mut expr: &ast::Expr) -> &ast::Expr {
    while let ast::Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// The query of a scalar or row subquery.
pub(super) fn query(expr: &ast::Expr) -> Option<&ast::Query> {
    match expr {
        ast::Expr::Subquery(query) => Some(query),
        ast::Expr::Nested(inner) => self::query(inner),
        _ => None,
    }
}

/// The parts of a row value.
pub(super) fn parts(expr: &ast::Expr) -> Option<&[ast::Expr]> {
    match expr {
        ast::Expr::Tuple(parts) => Some(parts),
        ast::Expr::Nested(inner) => parts(inner),
        _ => None,
    }
}
