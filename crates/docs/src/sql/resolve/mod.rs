//! From sqlparser's tree to ours: every name becomes a column, a parameter or a function, or an error with a position.
//!
//! The result ([`Logical`]) is the logical query, without access paths. Any part of the tree that is not handled is refused:
//! no clause is ever ignored.

mod aliases;
mod calls;
pub(crate) mod changes;
mod clauses;
mod expired;
mod expressions;
mod joins;
mod names;
mod nested_join;
mod outer;
mod queries;
mod rows;
mod syntax;

use sqlparser::ast;
use sqlparser::tokenizer::Location;

use aliases::Aliases;
use nested_join::NestedJoin;
use outer::{Around, OuterField};

use crate::catalog::{Catalog, CollectionInfo};
use crate::sql::expressions::{Affinity, AggregateCall, Expr};
use crate::sql::limits::{SqlError, SqlErrorKind};
use crate::sql::rows::Combine;
use crate::sql::syntax::{OPEN_MAX, parse};

/// Most collections in one FROM.
pub const TABLES_MAX: usize = 64;
/// A set of tables of one FROM, as a bit mask of their numbers.
pub(crate) type TableSet = u64;

const _: () = assert!(TABLES_MAX <= TableSet::BITS as usize);
/// Most parameters of a query.
pub const PARAMETERS_MAX: usize = 64;
/// Most result columns.
pub const COLUMNS_MAX: usize = 256;
/// Most queries inside a query, at any depth.
pub const INNER_MAX: usize = 64;
/// Deepest expression: the nesting that the text may have, and its operands. AND and OR over any number of terms count once.
const DEPTH_MAX: usize = OPEN_MAX + 8;

/// The source of a table's rows.
#[derive(Clone, Debug)]
pub(crate) enum RowSource {
    /// A collection, by its place in the catalog.
    Collection(usize),
    /// A subquery, by its number; `info` has its columns, `outer` the values that it takes from enclosing queries.
    Inner { number: usize, info: Box<CollectionInfo>, outer: Vec<Expr> },
    /// `json_each`.
    Each { json: Expr, path: Option<Expr>, info: Box<CollectionInfo> },
}

impl RowSource {
    /// The expressions on which its rows depend: over other tables and enclosing queries.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (json, path, outer) = match self {
            RowSource::Each { json, path, .. } => (Some(json), path.as_ref(), &[][..]),
            RowSource::Inner { outer, .. } => (None, None, &outer[..]),
            RowSource::Collection(_) => (None, None, &[][..]),
        };
        json.into_iter().chain(path).chain(outer)
    }

    /// The same, mutable.
    fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let (json, path, outer) = match self {
            RowSource::Each { json, path, .. } => (Some(json), path.as_mut(), &mut [][..]),
            RowSource::Inner { outer, .. } => (None, None, &mut outer[..]),
            RowSource::Collection(_) => (None, None, &mut [][..]),
        };
        json.into_iter().chain(path).chain(outer)
    }
}

/// Estimate of the bytes of a subquery, without its members.
const INNER_BYTES: usize = 1024;

/// A subquery, with a member for each SELECT of UNION, INTERSECT and EXCEPT.
#[derive(Clone, Debug, Default)]
pub(crate) struct InnerQuery {
    pub(crate) members: Vec<Logical>,
    /// How each member's rows are combined with those of the members before it.
    pub(crate) combine: Vec<Combine>,
    /// Its rows are looked up by all their columns.
    pub(crate) sought: bool,
}

impl InnerQuery {
    /// Whether it depends on the outer row.
    pub(crate) fn is_correlated(&self) -> bool {
        self.members.last().is_some_and(|member| !member.outer.is_empty())
    }

    /// The number of its result columns.
    pub(crate) fn width(&self) -> usize {
        self.members.first().map_or(0, |member| member.outputs.len())
    }
}

/// One table in FROM.
#[derive(Clone, Debug)]
pub(crate) struct QueryTable {
    pub(crate) origin: RowSource,
    /// Its name in the query.
    pub(crate) alias: String,
    /// The ON of a left join. The ON of an inner join is among the query's conditions.
    pub(crate) left_on: Option<Vec<Expr>>,
}

impl QueryTable {
    /// Its description: that of the catalog for a collection.
    pub(crate) fn info<'i>(&'i self, catalog: &'i Catalog) -> &'i CollectionInfo {
        match &self.origin {
            RowSource::Collection(number) => &catalog.collections[*number],
            RowSource::Inner { info, .. } | RowSource::Each { info, .. } => info,
        }
    }

    /// Estimate of its bytes in memory, without its expressions.
    fn bytes(&self) -> usize {
        let own = match &self.origin {
            RowSource::Collection(_) => 0,
            RowSource::Inner { info, .. } | RowSource::Each { info, .. } => info.bytes(),
        };
        size_of::<QueryTable>() + self.alias.len() + own
    }

    /// Its place in the catalog, if it is a collection.
    pub(crate) fn collection(&self) -> Option<usize> {
        match self.origin {
            RowSource::Collection(number) => Some(number),
            _ => None,
        }
    }
}

/// A field of a collection that the query uses.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) table: usize,
    pub(crate) name: String,
    /// It is selected by itself: its stored JSON is needed.
    pub(crate) bare: bool,
    /// A path into it is used, which needs its JSON.
    pub(crate) inside: bool,
    /// Its affinity in comparisons, and whether it counts as an expression and not as a field, as a subquery's computed column
    /// does.
    pub(crate) kind: (Affinity, bool),
}

#[derive(Clone, Debug)]
pub(crate) struct OutputColumn {
    pub(crate) name: String,
    pub(crate) expr: Expr,
}

/// A resolved query.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logical {
    pub(crate) tables: Vec<QueryTable>,
    /// Bits of the tables on the right of CROSS JOIN: they are placed after all that precede them in the text.
    pub(crate) crossed: TableSet,
    pub(crate) columns: Vec<Column>,
    pub(crate) parameters: Vec<String>,
    /// Predicates that must all be true.
    pub(crate) conditions: Vec<Expr>,
    pub(crate) outputs: Vec<OutputColumn>,
    pub(crate) distinct: bool,
    pub(crate) grouped: bool,
    pub(crate) group: Vec<Expr>,
    pub(crate) aggregates: Vec<AggregateCall>,
    pub(crate) having: Option<Expr>,
    /// Expressions, and whether descending.
    pub(crate) order: Vec<(Expr, bool)>,
    pub(crate) limit: Option<Expr>,
    pub(crate) offset: Option<Expr>,
    /// The subqueries, by number.
    pub(crate) inner: Vec<InnerQuery>,
    /// Fields of enclosing queries that it uses, by number. The members of a UNION share this list; each has a prefix of it.
    pub(crate) outer: Vec<OuterField>,
}

impl Logical {
    /// The affinity of an expression, and whether it is a computed value, not a field.
    pub(crate) fn kind(&self, expr: &Expr) -> (Affinity, bool) {
        match expr {
            Expr::Column(column) => self.columns[*column].kind,
            Expr::Path(..) => (Affinity::None, false),
            Expr::GroupKey(place) => self.kind(&self.group[*place]),
            Expr::Outer(place) => self.outer[*place].kind,
            Expr::ScalarInner(asked, place) => {
                let member = self.inner[asked.number].members.last();
                member.map_or((Affinity::None, true), |member| member.kind_of_result(*place))
            }
            other => (other.affinity(), true),
        }
    }

    /// The same for a result column of a query used as an operand. For UNION, INTERSECT and EXCEPT it is the kind of the last
    /// member's column.
    pub(crate) fn kind_of_result(&self, place: usize) -> (Affinity, bool) {
        let parts = match &self.tables[..] {
            [QueryTable { origin: RowSource::Inner { number, .. }, .. }] => &self.inner[*number].members[..],
            _ => &[],
        };
        let of = parts.last().filter(|_| parts.len() > 1).unwrap_or(self);
        of.outputs.get(place).map_or((Affinity::None, true), |output| of.kind(&output.expr))
    }

    /// Visits the expressions in which a test for NULL may specialise a plan, also in subqueries: predicates and results.
    pub(crate) fn each_tested(&self, visit: &mut dyn FnMut(&Expr)) {
        let on = self.tables.iter().filter_map(|table| table.left_on.as_ref()).flatten();
        self.conditions.iter().chain(on).for_each(&mut *visit);
        self.outputs.iter().for_each(|output| visit(&output.expr));
        self.inner.iter().flat_map(|inner| &inner.members).for_each(|member| member.each_tested(visit));
    }

    /// Visits all expressions, also in subqueries.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        self.each_own(visit);
        self.inner.iter().flat_map(|inner| &inner.members).for_each(|member| member.each(visit));
    }

    /// Visits all expressions except those in subqueries.
    pub(crate) fn each_own(&self, visit: &mut dyn FnMut(&Expr)) {
        let on = self.tables.iter().filter_map(|table| table.left_on.as_ref()).flatten();
        on.chain(self.tables.iter().flat_map(|table| table.origin.expressions())).for_each(&mut *visit);
        self.conditions.iter().chain(&self.group).chain(&self.having).for_each(&mut *visit);
        self.outputs.iter().for_each(|output| visit(&output.expr));
        self.aggregates.iter().flat_map(AggregateCall::expressions).for_each(&mut *visit);
        self.order.iter().map(|(expr, _)| expr).chain(&self.limit).chain(&self.offset).for_each(&mut *visit);
    }

    /// Copies the parameters' names into the subqueries, whose slots are the same: EXPLAIN shows them.
    pub(crate) fn hand_parameters_down(&mut self) {
        for member in self.inner.iter_mut().flat_map(|inner| &mut inner.members) {
            member.parameters.clone_from(&self.parameters);
            member.hand_parameters_down();
        }
    }

    /// Whether it, or a subquery, reads a collection for which `holds` returns true.
    pub(crate) fn reads(&self, holds: &mut dyn FnMut(usize) -> bool) -> bool {
        self.tables.iter().filter_map(QueryTable::collection).any(&mut *holds)
            || self.inner.iter().flat_map(|inner| &inner.members).any(|member| member.reads(holds))
    }

    /// Whether it, or a subquery, uses a field of a collection.
    pub(crate) fn uses(&self, collection: usize, field: &str) -> bool {
        let is_it =
            |column: &Column| column.name == field && self.tables[column.table].collection() == Some(collection);
        self.columns.iter().any(is_it)
            || self.inner.iter().flat_map(|inner| &inner.members).any(|member| member.uses(collection, field))
    }

    /// Estimate of its bytes in memory, with its subqueries.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = size_of::<Logical>();
        self.each_own(&mut |expr| bytes += expr.bytes());
        bytes += self.tables.iter().map(QueryTable::bytes).sum::<usize>();
        bytes += self.columns.iter().map(|column| size_of::<Column>() + column.name.len()).sum::<usize>();
        bytes += self.outputs.iter().map(|output| size_of::<OutputColumn>() + output.name.len()).sum::<usize>();
        bytes += self.aggregates.len() * size_of::<AggregateCall>() + self.outer.len() * size_of::<OuterField>();
        bytes += self.parameters.iter().map(|name| size_of::<String>() + name.len()).sum::<usize>();
        let inside = self.inner.iter().flat_map(|inner| &inner.members).map(Logical::bytes);
        // Half is added for spare capacity of lists and the allocator's rounding.
        bytes / 2 * 3 + self.inner.len() * INNER_BYTES + inside.sum::<usize>()
    }

    /// The number of subqueries at any depth.
    fn inner_count(&self) -> usize {
        let members = self.inner.iter().flat_map(|inner| &inner.members);
        members.map(|member| 1 + member.inner_count()).sum()
    }
}

type Resolved<T> = Result<T, SqlError>;

fn not_yet<T>(what: &str, at: Location) -> Resolved<T> {
    Err(SqlError::at(SqlErrorKind::NotYet, &format!("{what} is not supported yet"), Some(at)))
}

fn invalid<T>(message: &str, at: Location) -> Resolved<T> {
    Err(SqlError::at(SqlErrorKind::Invalid, message, Some(at)))
}

fn unknown<T>(message: &str, at: Location) -> Resolved<T> {
    Err(SqlError::at(SqlErrorKind::UnknownName, message, Some(at)))
}

/// The clause of an expression, which determines the allowed names and calls.
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

/// Positions for errors that are found only when the whole query is known.
#[derive(Default)]
struct Places {
    outputs: Vec<Location>,
    having: Option<Location>,
    order: Vec<Location>,
    /// Columns, by their numbers, with the positions of their names outside aggregates.
    fields: Vec<(usize, Location)>,
}

struct Resolver<'c> {
    catalog: &'c Catalog,
    logical: Logical,
    aliases: Aliases,
    places: Places,
    depth: usize,
    /// The queries of WITH.
    named: Vec<&'c ast::Cte>,
    /// The enclosing queries, the outermost first.
    around: Vec<Around>,
    /// How many of these levels, beginning with the outermost, are out of scope. A query of WITH does not see the queries that
    /// enclose its use.
    sealed: usize,
    /// Tables of a statement that its RETURNING cannot use. Without this check, their names could mean declared fields.
    unseen: Vec<String>,
    /// `excluded.FIELD` is allowed: a parameter of that name, with the value of the new document that conflicts with a stored
    /// one.
    has_excluded: bool,
    /// Its result columns are used by position, so their names may be equal.
    positional: bool,
    /// How many more subqueries are allowed.
    inner_left: usize,
    /// Whether expired documents are hidden.
    hides_expired: bool,
    /// The first table in scope. Inside a nested join in parentheses, the tables before it are out of scope.
    first_seen: usize,
    /// Fields of tables on the right of USING and NATURAL: unqualified, they mean those on the left.
    shared: Vec<(usize, String)>,
    /// Joins in parentheses after LEFT JOIN, the innermost first.
    nested: Vec<NestedJoin>,
}

impl<'c> Resolver<'c> {
    fn new(catalog: &'c Catalog) -> Self {
        let (logical, aliases, named, around) = (Logical::default(), Aliases::default(), Vec::new(), Vec::new());
        let (positional, hides_expired, sealed, has_excluded) = (false, true, 0, false);
        let (places, depth, inner_left, unseen) = (Places::default(), 0, INNER_MAX, Vec::new());
        let (first_seen, shared, nested) = (0, Vec::new(), Vec::new());
        Resolver {
            catalog,
            logical,
            aliases,
            places,
            depth,
            named,
            around,
            sealed,
            unseen,
            has_excluded,
            positional,
            inner_left,
            hides_expired,
            first_seen,
            shared,
            nested,
        }
    }
}

/// Resolves a parsed query.
pub(crate) fn resolve(sql: &str, parsed: &parse::Parsed, catalog: &Catalog) -> Resolved<Logical> {
    // Result columns get their names from the first SELECT of the text, unless WITH precedes it.
    let texts = match parsed.query.with {
        None => parse::item_texts(sql, &parsed.tokens),
        Some(_) => Vec::new(),
    };
    Resolver::new(catalog).query(&parsed.query, &texts)
}

/// The same for a view, which keeps expired documents until they are deleted: no write happens when they expire.
pub(crate) fn resolve_stored(sql: &str, parsed: &parse::Parsed, catalog: &Catalog) -> Resolved<Logical> {
    let texts = parse::item_texts(sql, &parsed.tokens);
    let mut resolver = Resolver::new(catalog);
    resolver.hides_expired = false;
    resolver.query(&parsed.query, &texts)
}

fn shortened(text: &str) -> String {
    const SHOWN_MAX: usize = 60;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
