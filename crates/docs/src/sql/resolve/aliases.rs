//! Names that AS gives to result columns, beside fields of the same name.
//!
//! As in SQLite, a column of FROM comes before an alias, except that an ORDER BY term which is just an alias means the alias. The
//! aliases are visible everywhere but in the list of result columns itself. In an open collection a name that is not declared
//! may be a field all the same, or only the alias. There it means:
//!
//! 1. the field, if the query certainly uses it as one: in the list of result columns, or with its collection before it;
//! 2. the field, if the alias names a literal, because no query filters, groups or sorts by a literal on purpose;
//! 3. the alias, where GROUP BY would refuse the field: as a term of GROUP BY, and in HAVING and ORDER BY outside aggregates;
//! 4. otherwise neither: the query is refused, because one of the two readings would silently be NULL or another value.

use sqlparser::ast::{self, Ident};

use super::clauses::keyed;
use super::syntax::unnested;
use super::{Clause, Resolved, Resolver, invalid};
use crate::sql::expressions::Expr;

/// The aliases of a query, and the undeclared names that may collide with them.
#[derive(Default)]
pub(super) struct Aliases {
    list: Vec<(String, Expr)>,
    /// The list of result columns is complete.
    are_visible: bool,
    /// Undeclared names that certainly are fields.
    fields: Vec<String>,
    /// Undeclared names in FROM, each with the number of tables before it. They were taken for fields when no alias was known.
    in_from: Vec<(Ident, usize)>,
    /// Undeclared names that were taken for the alias.
    used: Vec<Ident>,
}

impl Aliases {
    pub(super) fn add(&mut self, alias: &str, expr: Expr) {
        self.list.push((alias.to_owned(), expr));
    }

    /// The value of an alias, once aliases are visible.
    pub(super) fn get(&self, name: &str) -> Option<&Expr> {
        let found = self.list.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name));
        found.filter(|_| self.are_visible).map(|(_, expr)| expr)
    }

    /// The aliases that a subquery sees.
    pub(super) fn names(&self) -> Vec<String> {
        let visible = if self.are_visible { &self.list[..] } else { &[] };
        visible.iter().map(|(alias, _)| alias.clone()).collect()
    }

    /// Whether an undeclared name certainly is a field.
    pub(super) fn is_field(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field == name)
    }
}

impl<'c> Resolver<'c> {
    /// Records the use of an undeclared field. `before`: the number of tables in FROM so far.
    pub(super) fn note_undeclared(&mut self, ident: &Ident, is_qualified: bool, clause: Clause) {
        let aliases = &mut self.aliases;
        if is_qualified || !aliases.are_visible && clause != Clause::Where {
            aliases.fields.push(ident.value.clone());
        } else if !aliases.are_visible {
            aliases.in_from.push((ident.clone(), self.logical.tables.len()));
        }
    }

    /// From now on aliases are visible. Names in FROM that were taken for fields are checked. There an alias over a later table is
    /// not meant: `SELECT value AS tags FROM goods, json_each(tags)`.
    pub(super) fn show_aliases(&mut self) -> Resolved<()> {
        self.aliases.are_visible = true;
        for (ident, before) in std::mem::take(&mut self.aliases.in_from) {
            let Some(expr) = self.aliases.get(&ident.value) else { continue };
            let is_later = expr.uses_column(|column| self.logical.columns[column].table >= before);
            if is_later || matches!(expr, Expr::Literal(_)) {
                self.aliases.fields.push(ident.value);
            } else if !self.aliases.is_field(&ident.value) {
                return self.field_or_alias(&ident);
            }
        }
        Ok(())
    }

    /// The alias that a name outside FROM and the result columns means; `None` if it means a field. No table declares the name;
    /// `is_possible`: one of them may have it.
    pub(super) fn meant_alias(&mut self, ident: &Ident, is_possible: bool, clause: Clause) -> Resolved<Option<Expr>> {
        let Some(expr) = self.aliases.get(&ident.value).cloned() else { return Ok(None) };
        let is_after_groups = clause == Clause::Having || clause == Clause::OrderBy && self.logical.grouped;
        if !is_possible {
            if has_aggregate(&expr) && !matches!(clause, Clause::Having | Clause::OrderBy) {
                return invalid(&format!("\"{}\" is an aggregate and not allowed here", ident.value), ident.span.start);
            }
            return Ok(Some(expr));
        }
        if self.aliases.is_field(&ident.value) || matches!(expr, Expr::Literal(_)) {
            return Ok(None);
        }
        let is_group_key = self.logical.columns.iter().any(|column| column.name == ident.value);
        if !is_after_groups || is_group_key {
            return self.field_or_alias(ident);
        }
        self.aliases.used.push(ident.clone());
        Ok(Some(expr))
    }

    /// The name, if a term of GROUP BY may be an alias or an undeclared field.
    pub(super) fn open_group_term(&self, term: &'c ast::Expr) -> Option<&'c Ident> {
        let ast::Expr::Identifier(ident) = unnested(term) else { return None };
        let is_open = !self.declares(&ident.value) && !self.may_have(&ident.value).is_empty();
        let is_both = is_open && !self.aliases.is_field(&ident.value) && self.aliases.get(&ident.value).is_some();
        is_both.then_some(ident)
    }

    /// Such a term. If the alias depends on the other terms alone, it does not change the groups: the field is meant, or neither
    /// exists and the groups are the same.
    pub(super) fn group_term(&mut self, ident: &Ident, others: &[Expr]) -> Resolved<Expr> {
        let Some(expr) = self.aliases.get(&ident.value).cloned() else { return self.field_or_alias(ident) };
        if has_aggregate(&expr) {
            return self.field_or_alias(ident);
        }
        let mut bare = None;
        keyed(expr.clone(), others, &mut bare);
        match (bare, &self.may_have(&ident.value)[..]) {
            (Some(_), _) => {
                self.aliases.used.push(ident.clone());
                Ok(expr)
            }
            (None, [table]) => Ok(Expr::Column(self.column(*table, &ident.value))),
            (None, _) => self.in_several(ident),
        }
    }

    /// Refuses a query in which a name was taken for the alias, and which elsewhere uses a field of that name.
    pub(super) fn check_aliases(&self) -> Resolved<()> {
        let is_field = |ident: &Ident| {
            self.logical.columns.iter().any(|column| column.name.eq_ignore_ascii_case(&ident.value))
                && !self.declares(&ident.value)
        };
        self.aliases.used.iter().find(|ident| is_field(ident)).map_or(Ok(()), |ident| self.field_or_alias(ident))
    }

    fn field_or_alias<T>(&self, ident: &Ident) -> Resolved<T> {
        let name = &ident.value;
        let open = self.may_have(name);
        let table = open.first().map_or("", |table| &self.logical.tables[*table].alias);
        let message = format!(
            "\"{name}\" is the name of a result column, but may be a field of \"{table}\" too, which does not declare it: \
             write {table}.{name} for the field, or give the result column another name"
        );
        invalid(&message, ident.span.start)
    }
}

fn has_aggregate(expr: &Expr) -> bool {
    let mut has = false;
    expr.walk(&mut |part| has |= matches!(part, Expr::Aggregate(_)));
    has
}
