//! Names: of collections, of fields with or without their collection, and of paths into a field.

use std::ops::Range;

use sqlparser::ast::{self, Ident, Spanned};
use sqlparser::tokenizer::Location;

use super::{Clause, Resolved, Resolver, invalid, not_yet, shortened, unknown};
use crate::catalog::CollectionInfo;
use crate::sql::expressions::Expr;
use crate::sql::values::OwnedValue;
use crate::sql::values::json::Step;

/// The name of the new document in DO UPDATE.
pub(super) const EXCLUDED: &str = "excluded";
/// Suffix of a parameter `excluded.FIELD` whose value is needed as JSON. No field's name contains it.
pub(super) const AS_JSON: char = '\0';

impl<'c> Resolver<'c> {
    /// The tables in scope.
    pub(super) fn seen(&self) -> Range<usize> {
        self.first_seen..self.logical.tables.len()
    }

    pub(super) fn table_named(&self, name: &str) -> Option<usize> {
        self.seen().find(|&table| self.logical.tables[table].alias.eq_ignore_ascii_case(name))
    }

    pub(super) fn info(&self, table: usize) -> &CollectionInfo {
        self.logical.tables[table].info(self.catalog)
    }

    /// The field's declared spelling, if the collection declares it. SQL ignores case and JSON does not, so an exact match takes
    /// precedence.
    pub(super) fn field(&self, table: usize, name: &str) -> Option<String> {
        let info = self.info(table);
        let exact = declared(info).find(|field| *field == name);
        exact.or_else(|| declared(info).find(|field| field.eq_ignore_ascii_case(name))).cloned()
    }

    /// A field of a table that the text names: a declared one, or any if the collection is open.
    pub(super) fn field_of(&self, table: usize, ident: &Ident) -> Resolved<String> {
        match self.field(table, &ident.value) {
            Some(name) => Ok(name),
            None if is_open_to(self.info(table), &ident.value) => Ok(ident.value.clone()),
            None => self.no_field(ident, &[table]),
        }
    }

    /// `field`, `table.field`, and either followed by a path.
    pub(super) fn name(&mut self, idents: &[Ident], more: Vec<Step>, clause: Clause) -> Resolved<Expr> {
        let Some((first, rest)) = idents.split_first() else { return invalid("an empty name", Location::empty()) };
        let at = first.span.start;
        if clause == Clause::Limit {
            return invalid("LIMIT and OFFSET take no fields", at);
        }
        if !rest.is_empty() && self.unseen.iter().any(|alias| alias.eq_ignore_ascii_case(&first.value)) {
            let message =
                format!("\"{}\" is out of scope: RETURNING returns fields of the changed document alone", first.value);
            return unknown(&message, at);
        }
        if self.has_excluded
            && first.value.eq_ignore_ascii_case(EXCLUDED)
            && let Some((field, rest)) = rest.split_first()
        {
            return self.excluded(field, rest.is_empty() && more.is_empty());
        }
        let is_whole = rest.is_empty() && more.is_empty();
        let meaning = match rest.split_first() {
            Some((field, _)) => self.qualified(first, field)?,
            None => self.unqualified(first, is_whole, clause)?,
        };
        let (table, field, rest) = match meaning {
            Meaning::Qualified(table, name) => (table, name, &rest[1..]),
            Meaning::Field(table, name) => (table, name, rest),
            Meaning::Alias(expr) => return Ok(expr),
            Meaning::Outer(level) => return self.outer(level, idents, &more),
        };
        if self.field(table, &field).is_none() {
            self.note_undeclared(&idents[idents.len() - rest.len() - 1], idents.len() > rest.len() + 1, clause);
        }
        let column = self.column(table, &field);
        if matches!(clause, Clause::Select | Clause::Having | Clause::OrderBy) {
            self.places.fields.push((column, at));
        }
        let mut steps: Vec<Step> = rest.iter().map(|ident| Step::Field(ident.value.clone())).collect();
        steps.extend(more);
        if steps.is_empty() {
            return Ok(Expr::Column(column));
        }
        self.logical.columns[column].inside = true;
        Ok(Expr::Path(column, steps))
    }

    /// The new document's value of a field.
    fn excluded(&mut self, field: &Ident, is_whole: bool) -> Resolved<Expr> {
        let at = field.span.start;
        if !is_whole {
            return not_yet("something inside a field of excluded (say json_extract)", at);
        }
        let name = self.field_of(0, field)?;
        // No parameter of a statement has a dot in its name.
        self.parameter(&format!(":{EXCLUDED}.{name}"), at)
    }

    /// `first.field`: a table, of this query or an enclosing one, comes before a path into a declared field. An undeclared name
    /// before a dot is refused: it is more often a wrong table than a field.
    fn qualified(&self, first: &Ident, field: &Ident) -> Resolved<Meaning> {
        let name = &first.value;
        if let Some(table) = self.table_named(name) {
            return Ok(Meaning::Qualified(table, self.field_of(table, field)?));
        }
        if let Some((level, table)) = self.table_around(name) {
            return match table.has(&field.value) {
                true => Ok(Meaning::Outer(level)),
                false => unknown(
                    &format!("no field \"{}\" in \"{name}\" of the enclosing query", field.value),
                    field.span.start,
                ),
            };
        }
        if let Some(found) = self.declared_here(first)? {
            return Ok(found);
        }
        if let Some(level) = self.level_that_declares(name) {
            return Ok(Meaning::Outer(level));
        }
        let mut message = format!("no collection \"{name}\" in FROM, and no field \"{name}\" is declared");
        if let Some(&table) = self.may_have(name).first() {
            let alias = &self.logical.tables[table].alias;
            message += &format!(
                ": a path into an undeclared field begins with its collection, as {alias}.{name}.{}",
                field.value
            );
        }
        unknown(&message, first.span.start)
    }

    /// A name without a collection. The order is SQLite's: fields of this query, its aliases, enclosing queries, the nearest
    /// first. But a query that declares the field comes before those that only may have it, and if several may have it, the name
    /// is refused. `is_whole`: no path follows.
    fn unqualified(&mut self, ident: &Ident, is_whole: bool, clause: Clause) -> Resolved<Meaning> {
        let name = &ident.value;
        if let Some(found) = self.declared_here(ident)? {
            return Ok(found);
        }
        let open = self.may_have(name);
        if is_whole && let Some(expr) = self.meant_alias(ident, !open.is_empty(), clause)? {
            return Ok(Meaning::Alias(expr));
        }
        let is_known = self.aliases.is_field(name);
        let is_own = !open.is_empty() && (is_known || is_whole && self.aliases.get(name).is_some());
        if !is_own
            && let Some(level) = self.level_that_declares(name).filter(|&level| open.is_empty() || level >= self.sealed)
        {
            return self.outer_or_own(ident, level, &open);
        }
        if is_whole && ident.quote_style == Some('"') && !is_known {
            return self.no_field(ident, &self.seen().collect::<Vec<_>>());
        }
        match open[..] {
            [table] => {
                if !is_own {
                    self.check_around(ident, &open)?;
                }
                Ok(Meaning::Field(table, name.clone()))
            }
            [] => match self.open_level(ident)? {
                Some(level) => Ok(Meaning::Outer(level)),
                None => self.no_field(ident, &self.seen().collect::<Vec<_>>()),
            },
            _ => self.in_several(ident),
        }
    }

    /// The one table in scope that declares the field.
    fn declared_here(&self, ident: &Ident) -> Resolved<Option<Meaning>> {
        let tables = self.seen().filter(|&table| !self.is_shared(table, &ident.value));
        let mut known = tables.filter_map(|table| Some(Meaning::Field(table, self.field(table, &ident.value)?)));
        let found = known.next();
        if known.next().is_some() {
            let name = &ident.value;
            let message = format!("\"{name}\" is ambiguous: several collections have it; qualify it with a collection");
            return invalid(&message, ident.span.start);
        }
        Ok(found)
    }

    /// Whether a table in scope declares a field of that name.
    pub(super) fn declares(&self, name: &str) -> bool {
        self.seen().any(|table| !self.is_shared(table, name) && self.field(table, name).is_some())
    }

    /// The tables in scope that may have a field of that name, although they do not declare it.
    pub(super) fn may_have(&self, name: &str) -> Vec<usize> {
        let tables = self.seen().filter(|&table| !self.is_shared(table, name));
        tables.filter(|&table| self.field(table, name).is_none() && is_open_to(self.info(table), name)).collect()
    }

    pub(super) fn in_several<T>(&self, ident: &Ident) -> Resolved<T> {
        invalid(&format!("\"{}\" may be in several collections: name one", ident.value), ident.span.start)
    }

    pub(super) fn no_field<T>(&self, ident: &Ident, tables: &[usize]) -> Resolved<T> {
        let name = &ident.value;
        let fields: Vec<&str> =
            tables.iter().flat_map(|&table| self.info(table).fields.iter().map(|field| field.name.as_str())).collect();
        let mut message = format!("no field \"{name}\"");
        if !fields.is_empty() {
            message += &format!("; there are: {}", fields.join(", "));
        }
        if is_row_id(name) {
            message += "; documents have no row numbers: take the key, or declare the field in the schema";
        } else if ident.quote_style == Some('"') {
            message += &format!("; a text has single quotes: '{}'", shortened(name));
            if let Some(&table) = self.may_have(name).first() {
                let alias = &self.logical.tables[table].alias;
                message += &format!(", and an undeclared field its collection: {alias}.{ident}");
            }
        }
        unknown(&message, ident.span.start)
    }

    /// `tags[0].name`, which sqlparser parses as a path of another dialect.
    pub(super) fn json_access(
        &mut self,
        root: &'c ast::Expr,
        path: &'c [ast::JsonPathElem],
        clause: Clause,
    ) -> Resolved<Expr> {
        let at = root.span().start;
        let mut steps = Vec::new();
        for element in path {
            steps.push(match element {
                ast::JsonPathElem::Dot { key, .. } => Step::Field(key.clone()),
                ast::JsonPathElem::Bracket { key } => self.item(key)?,
                _ => return not_yet("this form of path", at),
            });
        }
        match root {
            ast::Expr::Identifier(ident) => self.name(std::slice::from_ref(ident), steps, clause),
            ast::Expr::CompoundIdentifier(idents) => self.name(idents, steps, clause),
            _ => not_yet("a path on anything but a field", at),
        }
    }

    /// The subscript in brackets.
    fn item(&mut self, index: &'c ast::Expr) -> Resolved<Step> {
        let is_value = match index {
            ast::Expr::UnaryOp { expr, .. } => matches!(**expr, ast::Expr::Value(_)),
            other => matches!(other, ast::Expr::Value(_)),
        };
        if is_value && let Expr::Literal(OwnedValue::Integer(index)) = self.expr(index, Clause::Select)? {
            return Ok(Step::Item(index));
        }
        not_yet("a subscript other than a number", index.span().start)
    }

    /// `tags[0].name` and other forms that sqlparser calls a field access.
    pub(super) fn access(
        &mut self,
        root: &'c ast::Expr,
        chain: &'c [ast::AccessExpr],
        clause: Clause,
    ) -> Resolved<Expr> {
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
                    steps.push(self.item(index)?);
                }
                _ => return not_yet("this form of path", at),
            }
        }
        self.name(&idents, steps, clause)
    }
}

/// What a name stands for.
pub(super) enum Meaning {
    /// A field of a table of this query.
    Field(usize, String),
    /// A field of a table of this query, qualified by the table.
    Qualified(usize, String),
    Alias(Expr),
    /// A field of an enclosing query, by the query's number from outside.
    Outer(usize),
}

/// The fields that a collection declares: in its schema, as its key, or in another setting.
pub(super) fn declared(info: &CollectionInfo) -> impl Iterator<Item = &String> {
    let fields = info.fields.iter().map(|field| &field.name).chain(std::iter::once(&info.key.field));
    let indexed = info.indexes.iter().flat_map(|index| index.fields.iter().chain(&index.included));
    let others = info.unique.iter().flat_map(|unique| &unique.fields);
    let settings = indexed.chain(others).chain(info.references.iter().map(|reference| &reference.field));
    fields.chain(settings.filter(|_| !info.closed))
}

/// Whether a collection may have a field that it does not declare.
pub(super) fn is_open_to(info: &CollectionInfo, name: &str) -> bool {
    !info.closed && !is_row_id(name)
}

/// Whether SQLite reads this name as the number of a row. Such a field must be declared: in a statement, an undeclared field and the
/// number look alike.
pub(super) fn is_row_id(name: &str) -> bool {
    ["rowid", "_rowid_", "oid"].iter().any(|known| name.eq_ignore_ascii_case(known))
}
