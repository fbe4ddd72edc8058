//! From sqlparser's tree to ours: every name becomes a column, a parameter or a function, or an error with a position.
//!
//! What comes out ([`Logical`]) says what is asked, not how it is found. Anything in the tree that is not taken over is
//! refused: no clause is ever ignored.

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

pub(crate) use names::{AS_JSON, EXCLUDED};
use nested_join::NestedJoin;
use outer::{AroundTable, OuterField};

use crate::catalog::{Catalog, CollectionInfo};
use crate::sql::aggregate::AggregateCall;
use crate::sql::condition::TableSet;
use crate::sql::error::{SqlError, SqlErrorKind};
use crate::sql::expr::{Affinity, Expr};
use crate::sql::nesting::OPEN_MAX;
use crate::sql::parse;
use crate::sql::sets::Combine;

/// Most collections in one FROM.
pub const TABLES_MAX: usize = 64;
/// Most parameters of a query.
pub const PARAMETERS_MAX: usize = 64;
/// Most result columns.
pub const COLUMNS_MAX: usize = 256;
/// Most queries inside a query, whatever the depth.
pub const INNER_MAX: usize = 64;
/// Deepest expression: what the text may nest, and its operands. AND and OR over any number of terms count once.
const DEPTH_MAX: usize = OPEN_MAX + 8;

/// Where the rows of a table come from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// A collection, by its place in the catalog.
    Collection(usize),
    /// A query inside this one, by its number; what its columns are named; what it is told of queries around this one.
    Inner { number: usize, info: Box<CollectionInfo>, outer: Vec<Expr> },
    /// `json_each`.
    Each { json: Expr, path: Option<Expr>, info: Box<CollectionInfo> },
}

impl Origin {
    /// What its rows are found by: of rows of other tables, and of queries around this one.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let (json, path, outer) = match self {
            Origin::Each { json, path, .. } => (Some(json), path.as_ref(), &[][..]),
            Origin::Inner { outer, .. } => (None, None, &outer[..]),
            Origin::Collection(_) => (None, None, &[][..]),
        };
        json.into_iter().chain(path).chain(outer)
    }

    /// The same, to be changed.
    fn expressions_mut(&mut self) -> impl Iterator<Item = &mut Expr> {
        let (json, path, outer) = match self {
            Origin::Each { json, path, .. } => (Some(json), path.as_mut(), &mut [][..]),
            Origin::Inner { outer, .. } => (None, None, &mut outer[..]),
            Origin::Collection(_) => (None, None, &mut [][..]),
        };
        json.into_iter().chain(path).chain(outer)
    }
}

/// About how many bytes a query inside another has in memory, without its parts.
const INNER_BYTES: usize = 1024;

/// A query inside another: a part for each SELECT of a UNION and the like.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    pub(crate) members: Vec<Logical>,
    /// How each part's rows go with those before.
    pub(crate) combine: Vec<Combine>,
    /// Its rows are looked up by all their columns.
    pub(crate) sought: bool,
}

impl Inner {
    /// It is told of the row that asks.
    pub(crate) fn is_correlated(&self) -> bool {
        self.members.last().is_some_and(|member| !member.outer.is_empty())
    }

    /// Its result columns.
    pub(crate) fn width(&self) -> usize {
        self.members.first().map_or(0, |member| member.outputs.len())
    }
}

/// One table in FROM.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) origin: Origin,
    /// How the query names it.
    pub(crate) alias: String,
    /// A left join, with its ON; an inner join's ON is a condition as any other.
    pub(crate) left_on: Option<Vec<Expr>>,
}

impl Table {
    /// What it has: of a collection the catalog's word.
    pub(crate) fn info<'i>(&'i self, catalog: &'i Catalog) -> &'i CollectionInfo {
        match &self.origin {
            Origin::Collection(number) => &catalog.collections[*number],
            Origin::Inner { info, .. } | Origin::Each { info, .. } => info,
        }
    }

    /// About how many bytes it has in memory. Its expressions count elsewhere.
    fn bytes(&self) -> usize {
        let own = match &self.origin {
            Origin::Collection(_) => 0,
            Origin::Inner { info, .. } | Origin::Each { info, .. } => info.bytes(),
        };
        size_of::<Table>() + self.alias.len() + own
    }

    /// Its place in the catalog, if it is a collection.
    pub(crate) fn collection(&self) -> Option<usize> {
        match self.origin {
            Origin::Collection(number) => Some(number),
            _ => None,
        }
    }
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
    /// What it brings to a comparison, and whether that is as an expression and not as a field: so where an inner query
    /// computes it.
    pub(crate) kind: (Affinity, bool),
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
    /// Bits of the tables that stay behind all before them in the text: on the right of CROSS JOIN.
    pub(crate) crossed: TableSet,
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
    /// The queries inside, by number.
    pub(crate) inner: Vec<Inner>,
    /// What it is told of the queries around it, by number. The parts of a UNION share these: each knows its beginning.
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

    /// The same of a result column beside which the query stands: of UNION and the like it is that of the last part.
    pub(crate) fn kind_of_result(&self, place: usize) -> (Affinity, bool) {
        let parts = match &self.tables[..] {
            [Table { origin: Origin::Inner { number, .. }, .. }] => &self.inner[*number].members[..],
            _ => &[],
        };
        let of = parts.last().filter(|_| parts.len() > 1).unwrap_or(self);
        of.outputs.get(place).map_or((Affinity::None, true), |output| of.kind(&output.expr))
    }

    /// Visits the conditions and results, where a test for NULL may specialise a plan; of the queries inside too.
    pub(crate) fn each_tested(&self, visit: &mut dyn FnMut(&Expr)) {
        let on = self.tables.iter().filter_map(|table| table.left_on.as_ref()).flatten();
        self.conditions.iter().chain(on).for_each(&mut *visit);
        self.outputs.iter().for_each(|output| visit(&output.expr));
        self.inner.iter().flat_map(|inner| &inner.members).for_each(|member| member.each_tested(visit));
    }

    /// Visits all expressions, those of the queries inside too.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        self.each_own(visit);
        self.inner.iter().flat_map(|inner| &inner.members).for_each(|member| member.each(visit));
    }

    /// Visits all expressions but those of the queries inside.
    pub(crate) fn each_own(&self, visit: &mut dyn FnMut(&Expr)) {
        let on = self.tables.iter().filter_map(|table| table.left_on.as_ref()).flatten();
        on.chain(self.tables.iter().flat_map(|table| table.origin.expressions())).for_each(&mut *visit);
        self.conditions.iter().chain(&self.group).chain(&self.having).for_each(&mut *visit);
        self.outputs.iter().for_each(|output| visit(&output.expr));
        self.aggregates.iter().flat_map(AggregateCall::expressions).for_each(&mut *visit);
        self.order.iter().map(|(expr, _)| expr).chain(&self.limit).chain(&self.offset).for_each(&mut *visit);
    }

    /// Has the queries inside know the names of the parameters, which lie in the same slots there: for who shows their plans.
    pub(crate) fn hand_parameters_down(&mut self) {
        for member in self.inner.iter_mut().flat_map(|inner| &mut inner.members) {
            member.parameters.clone_from(&self.parameters);
            member.hand_parameters_down();
        }
    }

    /// Whether it reads, or a query inside it, a collection of which this holds.
    pub(crate) fn reads(&self, holds: &mut dyn FnMut(usize) -> bool) -> bool {
        self.tables.iter().filter_map(Table::collection).any(&mut *holds)
            || self.inner.iter().flat_map(|inner| &inner.members).any(|member| member.reads(holds))
    }

    /// Whether it uses a field of a collection, or a query inside it does.
    pub(crate) fn uses(&self, collection: usize, field: &str) -> bool {
        let is_it =
            |column: &Column| column.name == field && self.tables[column.table].collection() == Some(collection);
        self.columns.iter().any(is_it)
            || self.inner.iter().flat_map(|inner| &inner.members).any(|member| member.uses(collection, field))
    }

    /// About how many bytes it has in memory, with the queries inside.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = size_of::<Logical>();
        self.each_own(&mut |expr| bytes += expr.bytes());
        bytes += self.tables.iter().map(Table::bytes).sum::<usize>();
        bytes += self.columns.iter().map(|column| size_of::<Column>() + column.name.len()).sum::<usize>();
        bytes += self.outputs.iter().map(|output| size_of::<Output>() + output.name.len()).sum::<usize>();
        bytes += self.aggregates.len() * size_of::<AggregateCall>() + self.outer.len() * size_of::<OuterField>();
        bytes += self.parameters.iter().map(|name| size_of::<String>() + name.len()).sum::<usize>();
        let inside = self.inner.iter().flat_map(|inner| &inner.members).map(Logical::bytes);
        // A list that has grown has room for more, and the allocator rounds up.
        bytes / 2 * 3 + self.inner.len() * INNER_BYTES + inside.sum::<usize>()
    }

    /// The queries inside, however deep.
    fn inner_count(&self) -> usize {
        let members = self.inner.iter().flat_map(|inner| &inner.members);
        members.map(|member| 1 + member.inner_count()).sum()
    }
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

/// Where the text has what a mistake is told of only when all of it is known.
#[derive(Default)]
struct Places {
    outputs: Vec<Location>,
    having: Option<Location>,
    order: Vec<Location>,
    /// Columns, by their numbers, where they are named outside aggregates.
    fields: Vec<(usize, Location)>,
}

struct Resolver<'c> {
    catalog: &'c Catalog,
    logical: Logical,
    aliases: Vec<(String, Expr)>,
    places: Places,
    depth: usize,
    /// What WITH names.
    named: Vec<&'c ast::Cte>,
    /// The tables of the queries around, from the outermost one on.
    around: Vec<Vec<AroundTable>>,
    /// Of these, those that a query of WITH does not see: the ones around where it is used.
    sealed: usize,
    /// Tables of the statement that its RETURNING does not see. An open collection would take their names for its fields.
    unseen: Vec<String>,
    /// `excluded.FIELD` is the value of a new document that a stored one stands against: a parameter of that name.
    has_excluded: bool,
    /// Nobody names its result columns: they may be named alike.
    positional: bool,
    /// How many more queries may stand inside.
    inner_left: usize,
    /// Whether documents whose time has come are left out.
    hides_expired: bool,
    /// The first table that names are looked for in: inside the parentheses of a nested join those before it are not seen.
    first_seen: usize,
    /// Fields of tables on the right of USING and NATURAL, which without their table's name are those on the left.
    shared: Vec<(usize, String)>,
    /// Joins in parentheses behind LEFT JOIN, the innermost first.
    nested: Vec<NestedJoin>,
}

impl<'c> Resolver<'c> {
    fn new(catalog: &'c Catalog) -> Self {
        let (logical, aliases, named, around) = (Logical::default(), Vec::new(), Vec::new(), Vec::new());
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
    // The first SELECT of the text is the one whose columns are named, unless WITH stands before it.
    let texts = match parsed.query.with {
        None => parse::item_texts(sql, &parsed.tokens),
        Some(_) => Vec::new(),
    };
    Resolver::new(catalog).query(&parsed.query, &texts)
}

/// The same for a view, which keeps what is stored: nobody writes when a time comes.
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
