//! Correlated subqueries: the values that a subquery takes from enclosing queries.
//!
//! A name that a query does not declare is searched in the enclosing one, and so on outwards (`names.rs` has the order). If it is
//! found, it becomes an outer value of the subquery ([`Expr::Outer`]), similar to a parameter. The enclosing query passes the value where the inner
//! query is used ([`SubqueryUse`]). Queries between the two pass it on.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Location;

use super::names::{Meaning, declared, is_row_id};
use super::{Clause, Resolved, Resolver, invalid, not_yet};
use crate::sql::expressions::{Affinity, Expr, SubqueryUse};
use crate::sql::values::json::Step;

/// The affinity of a field whose values may be of any type.
const PLAIN: (Affinity, bool) = (Affinity::None, false);

/// Most enclosing queries of a correlated one.
pub(super) const AROUND_MAX: usize = 8;

/// A value that a query takes from an enclosing one.
#[derive(Clone, Debug)]
pub(crate) struct OuterField {
    idents: Vec<Ident>,
    steps: Vec<Step>,
    at: Location,
    /// Its affinity in comparisons; see [`super::Column::kind`].
    pub(crate) kind: (Affinity, bool),
    /// It is selected by itself, so that a path may continue into it.
    pub(super) whole: bool,
}

impl OuterField {
    /// Its name as written.
    pub(crate) fn name(&self) -> String {
        self.idents.iter().map(|ident| ident.value.as_str()).collect::<Vec<_>>().join(".")
    }

    fn is_same(&self, idents: &[Ident], steps: &[Step]) -> bool {
        self.idents.iter().map(|ident| &ident.value).eq(idents.iter().map(|ident| &ident.value)) && self.steps == steps
    }
}

/// An enclosing query.
#[derive(Clone, Debug)]
pub(super) struct Around {
    tables: Vec<AroundTable>,
    /// Its result columns' names by AS, where the subquery stands in a clause that sees them.
    aliases: Vec<String>,
}

impl Around {
    fn declares(&self, name: &str) -> bool {
        self.tables.iter().any(|table| table.kind(name).is_some())
    }

    fn has_alias(&self, name: &str) -> bool {
        self.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
    }

    /// The tables that have a field, or may have it.
    fn may_have(&self, name: &str) -> Vec<&AroundTable> {
        self.tables.iter().filter(|table| table.has(name)).collect()
    }
}

/// A table of an enclosing query.
#[derive(Clone, Debug)]
pub(super) struct AroundTable {
    alias: String,
    /// Its place in the catalog, if it is a collection.
    collection: Option<usize>,
    /// The declared fields, and their affinities in comparisons.
    fields: Vec<(String, (Affinity, bool))>,
    /// It may have other fields.
    is_open: bool,
}

impl AroundTable {
    fn kind(&self, name: &str) -> Option<(Affinity, bool)> {
        let exact = self.fields.iter().find(|(field, _)| field == name);
        let found = exact.or_else(|| self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)));
        found.map(|(_, kind)| *kind)
    }

    /// Whether it has the field, or may have it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.kind(name).is_some() || self.is_open && !is_row_id(name)
    }
}

/// The place of a subquery.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stands {
    /// In FROM, where the other tables of FROM are out of scope.
    From,
    /// In a clause that is evaluated for a row.
    In(Clause),
}

impl<'c> Resolver<'c> {
    /// The enclosing queries of a subquery, the outermost first.
    pub(super) fn around(&self, stands: Stands) -> Vec<Around> {
        let mut around = self.around.clone();
        if stands != Stands::From {
            let tables = self.seen().map(|table| self.seen_from_inside(table)).collect();
            around.push(Around { tables, aliases: self.aliases.names() });
        }
        around
    }

    fn seen_from_inside(&self, table: usize) -> AroundTable {
        let info = self.info(table);
        AroundTable {
            alias: self.logical.tables[table].alias.clone(),
            collection: self.logical.tables[table].collection(),
            fields: declared(info).map(|name| (name.clone(), self.column_kind(table, name))).collect(),
            is_open: !info.closed,
        }
    }

    /// The table of an enclosing query that a name before a dot means, and the query's number.
    pub(super) fn table_around(&self, alias: &str) -> Option<(usize, &AroundTable)> {
        let named = |around: &'_ Around| around.tables.iter().position(|table| table.alias.eq_ignore_ascii_case(alias));
        let level = self.around.iter().rposition(|around| named(around).is_some())?;
        Some((level, &self.around[level].tables[named(&self.around[level])?]))
    }

    /// The nearest enclosing query that declares a field.
    pub(super) fn level_that_declares(&self, name: &str) -> Option<usize> {
        self.around.iter().rposition(|around| around.declares(name))
    }

    /// The nearest enclosing query that may have an undeclared field, if no query before it has an alias of that name.
    pub(super) fn open_level(&self, ident: &Ident) -> Resolved<Option<usize>> {
        let name = &ident.value;
        let knows = |around: &Around| around.has_alias(name) || !around.may_have(name).is_empty();
        let Some(level) = self.around.iter().rposition(knows) else { return Ok(None) };
        let open: Vec<usize> = self.around[level].may_have(name).iter().filter_map(|table| table.collection).collect();
        if open.is_empty() {
            return Ok(None);
        }
        self.check_levels(ident, &open, level)?;
        Ok(Some(level))
    }

    /// Refuses an undeclared name that `own` tables of this query may have, if an enclosing query may have it too.
    pub(super) fn check_around(&self, ident: &Ident, own: &[usize]) -> Resolved<()> {
        let own: Vec<usize> = own.iter().filter_map(|&table| self.logical.tables[table].collection()).collect();
        self.check_levels(ident, &own, self.around.len())
    }

    /// Refuses a name that the enclosing queries with numbers below `level` might mean too. A collection that is among `own`, those
    /// of the query itself, is passed over: if its documents have the field, the query's own collection is meant.
    fn check_levels(&self, ident: &Ident, own: &[usize], level: usize) -> Resolved<()> {
        let name = &ident.value;
        for around in self.around.get(self.sealed..level).unwrap_or_default().iter().rev() {
            let is_other = |table: &&AroundTable| table.collection.is_none_or(|other| !own.contains(&other));
            let other = match around.may_have(name).into_iter().find(is_other) {
                Some(table) => format!("of \"{}\" in an enclosing one", table.alias),
                None if around.has_alias(name) => "a result column of an enclosing one".to_owned(),
                None => continue,
            };
            let message =
                format!("\"{name}\" may be a field of the inner query, or {other}: write its collection before it");
            return invalid(&message, ident.span.start);
        }
        Ok(())
    }

    /// The field of an enclosing query that declares it. If this query has a collection without a schema, the name is refused: its
    /// fields are declared nowhere, and SQLite would take a column of this query.
    pub(super) fn outer_or_own(&self, ident: &Ident, level: usize, open: &[usize]) -> Resolved<Meaning> {
        match open.iter().find(|&&table| self.info(table).fields.is_empty()) {
            None => Ok(Meaning::Outer(level)),
            Some(&table) => self.inner_or_outer(ident, table),
        }
    }

    /// Refuses a field of an enclosing query that this one names with its collection and without, if the name alone may be a field of
    /// this query: in `sku = goods.sku` nobody means `goods.sku` twice.
    fn check_doubled(&self, idents: &[Ident]) -> Resolved<()> {
        let Some(name) = idents.last() else { return Ok(()) };
        let alone = |idents: &[Ident]| matches!(idents, [_]);
        let is_other = |known: &&OuterField| {
            let named_alike = known.idents.last().is_some_and(|last| last.value.eq_ignore_ascii_case(&name.value));
            named_alike && alone(&known.idents) != alone(idents)
        };
        let Some(other) = self.logical.outer.iter().find(is_other) else { return Ok(()) };
        let written_alone = if alone(idents) { name } else { other.idents.last().unwrap_or(name) };
        match self.may_have(&name.value).first() {
            Some(&own) => self.inner_or_outer(written_alone, own),
            None => Ok(()),
        }
    }

    /// Refuses a result column made of fields of enclosing queries alone, if a collection of this query may have one of them too. In
    /// `sku IN (SELECT sku FROM orders)` SQLite would take a column of `orders`, and the enclosing query's makes no sense.
    pub(super) fn check_item(&self, resolved: &Expr) -> Resolved<()> {
        let (mut own, mut outer) = (false, Vec::new());
        resolved.walk(&mut |part| match part {
            Expr::Column(_) | Expr::Path(..) | Expr::Aggregate(_) | Expr::GroupKey(_) => own = true,
            Expr::Outer(place) => outer.push(*place),
            _ => {}
        });
        for place in outer.into_iter().filter(|_| !own) {
            if let [ident] = &self.logical.outer[place].idents[..]
                && let Some(&own) = self.may_have(&ident.value).first()
            {
                return self.inner_or_outer(ident, own);
            }
        }
        Ok(())
    }

    pub(super) fn inner_or_outer<T>(&self, ident: &Ident, own: usize) -> Resolved<T> {
        let (name, alias) = (&ident.value, &self.logical.tables[own].alias);
        let message = format!(
            "\"{name}\" is declared by an enclosing query, but \"{alias}\" may have a field of that name too: \
             write {alias}.{name}, or name the collection of the enclosing query"
        );
        invalid(&message, ident.span.start)
    }

    /// A name of an enclosing query, by the query's number, as an outer value.
    pub(super) fn outer(&mut self, level: usize, idents: &[Ident], steps: &[Step]) -> Resolved<Expr> {
        let at = idents.first().map_or(Location::empty(), |ident| ident.span.start);
        if level < self.sealed {
            return not_yet("a field of the enclosing query inside WITH (write the query where it is used)", at);
        }
        if self.around.len() > AROUND_MAX {
            return invalid(&format!("a subquery is at most {AROUND_MAX} queries deep if it uses their fields"), at);
        }
        self.check_doubled(idents)?;
        let kind = if steps.is_empty() { self.kind_around(level, idents) } else { PLAIN };
        Ok(self.outer_field(OuterField { idents: idents.to_vec(), steps: steps.to_vec(), at, kind, whole: false }))
    }

    /// The affinity in comparisons of a name of an enclosing query.
    fn kind_around(&self, level: usize, idents: &[Ident]) -> (Affinity, bool) {
        let tables = &self.around[level].tables;
        let kind = match idents {
            [field] => tables.iter().find_map(|table| table.kind(&field.value)),
            [table, field] => {
                let named = tables.iter().find(|known| known.alias.eq_ignore_ascii_case(&table.value));
                named.and_then(|table| table.kind(&field.value))
            }
            _ => None,
        };
        kind.unwrap_or(PLAIN)
    }

    fn outer_field(&mut self, field: OuterField) -> Expr {
        let outer = &mut self.logical.outer;
        let known = outer.iter().position(|known| known.is_same(&field.idents, &field.steps));
        Expr::Outer(known.unwrap_or_else(|| {
            outer.push(field);
            outer.len() - 1
        }))
    }

    /// The outer values that this query passes to an inner one.
    pub(super) fn use_of_subquery(&mut self, number: usize, stands: Stands) -> Resolved<SubqueryUse> {
        let fields = self.logical.inner[number].members.last().map(|member| member.outer.clone()).unwrap_or_default();
        let outer = fields.into_iter().map(|field| self.outer_value(field, stands)).collect::<Resolved<_>>()?;
        Ok(SubqueryUse { number, outer })
    }

    fn outer_value(&mut self, field: OuterField, stands: Stands) -> Resolved<Expr> {
        let OuterField { at, whole, .. } = field;
        let outer_field = match stands {
            Stands::From => self.outer_field(field),
            Stands::In(clause) => self.name(&field.idents, field.steps, clause)?,
        };
        match outer_field {
            Expr::Column(column) => self.logical.columns[column].inside |= whole,
            Expr::Outer(place) => self.logical.outer[place].whole |= whole,
            Expr::Path(..) => {}
            _ => return not_yet("a name that AS gives in the enclosing query, inside a subquery", at),
        }
        Ok(outer_field)
    }

    /// Refuses an aggregate whose arguments are all outer values: in SQLite it belongs to the enclosing query.
    pub(super) fn check_own<'e>(&self, mut parts: impl Iterator<Item = &'e Expr>, at: Location) -> Resolved<()> {
        let (mut own, mut outer) = (false, false);
        parts.by_ref().for_each(|expr| {
            expr.walk(&mut |part| {
                own |= matches!(part, Expr::Column(_) | Expr::Path(..));
                outer |= matches!(part, Expr::Outer(_));
            });
        });
        match outer && !own {
            true => not_yet("an aggregate of fields of the outer query inside an inner one", at),
            false => Ok(()),
        }
    }
}
