//! From sqlparser's tree to ours: every name becomes a column, a parameter or a function, or an error with a position.
//!
//! What comes out ([`Logical`]) says what is asked, not how it is found. Anything in the tree that is not taken over is
//! refused: no clause is ever ignored.

mod calls;
mod clauses;
mod expressions;
mod names;
mod rows;

use clauses::refuse_clauses;
use sqlparser::ast::{SetExpr, Spanned};
use sqlparser::tokenizer::Location;

use crate::catalog::Catalog;
use crate::sql::aggregate::AggregateCall;
use crate::sql::error::{SqlError, SqlErrorKind};
use crate::sql::expr::Expr;
use crate::sql::parse;

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

fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
