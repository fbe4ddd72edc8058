//! Names: of collections, of fields with or without their collection, and of paths into a field.

use std::ops::Range;

use sqlparser::ast::{self, Ident, Spanned};
use sqlparser::tokenizer::Location;

use super::{Clause, Resolved, Resolver, invalid, not_yet, unknown};
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

    /// The field's declared spelling, if the collection has it. SQL ignores case and JSON does not, so an exact match takes
    /// precedence.
    pub(super) fn field(&self, table: usize, name: &str) -> Option<String> {
        let info = self.info(table);
        let declared = || info.fields.iter().map(|field| &field.name).chain(std::iter::once(&info.key.field));
        let exact = declared().find(|field| *field == name);
        exact.or_else(|| declared().find(|field| field.eq_ignore_ascii_case(name))).cloned()
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
        let (table, field, rest) = match (self.table_named(&first.value), rest.split_first()) {
            (Some(table), Some((field, rest))) => {
                let name = match self.field(table, &field.value) {
                    Some(name) => name,
                    None if !self.info(table).closed => field.value.clone(),
                    None => return self.no_field(&field.value, &[table], field.span.start),
                };
                (table, name, rest)
            }
            (None, Some(_)) if self.is_table_around(&first.value) && !self.declares(&first.value) => {
                return match self.outer(idents, &more, at)? {
                    Some(found) => Ok(found),
                    None => self.no_field(&first.value, &self.seen().collect::<Vec<_>>(), at),
                };
            }
            (None, Some(_)) if self.field_unknown(&first.value) => {
                if let Some(found) = self.outer(idents, &more, at)? {
                    return Ok(found);
                }
                return self.no_field(&first.value, &self.seen().collect::<Vec<_>>(), at);
            }
            _ => match self.unqualified(first, rest.is_empty() && more.is_empty(), clause)? {
                Unqualified::Alias(expr) => return Ok(expr),
                Unqualified::Unknown => {
                    return match self.outer(idents, &more, at)? {
                        Some(found) => Ok(found),
                        None => self.no_field(&first.value, &self.seen().collect::<Vec<_>>(), at),
                    };
                }
                Unqualified::Field(table, name) => (table, name, rest),
            },
        };
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
        let name = match self.field(0, &field.value) {
            Some(name) => name,
            None if !self.info(0).closed => field.value.clone(),
            None => return self.no_field(&field.value, &[0], at),
        };
        // No parameter of a statement has a dot in its name.
        self.parameter(&format!(":{EXCLUDED}.{name}"), at)
    }

    /// Whether a table in scope declares a field of that name.
    fn declares(&self, name: &str) -> bool {
        self.seen().any(|table| self.field(table, name).is_some())
    }

    /// Whether no table in scope can have a field of that name.
    fn field_unknown(&self, name: &str) -> bool {
        self.seen().all(|table| self.info(table).closed && self.field(table, name).is_none())
    }

    fn unqualified(&self, ident: &Ident, whole: bool, clause: Clause) -> Resolved<Unqualified> {
        let at = ident.span.start;
        let tables: Vec<usize> = self.seen().filter(|&table| !self.is_shared(table, &ident.value)).collect();
        let known: Vec<(usize, String)> =
            tables.iter().filter_map(|&table| Some((table, self.field(table, &ident.value)?))).collect();
        if known.len() > 1 {
            return invalid(
                &format!("\"{}\" is ambiguous: several collections have it; qualify it with a collection", ident.value),
                at,
            );
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
            [] => Ok(Unqualified::Unknown),
            _ => invalid(&format!("\"{}\" may be in several collections: name one", ident.value), at),
        }
    }

    pub(super) fn no_field<T>(&self, name: &str, tables: &[usize], at: Location) -> Resolved<T> {
        let fields: Vec<&str> =
            tables.iter().flat_map(|&table| self.info(table).fields.iter().map(|field| field.name.as_str())).collect();
        match fields.is_empty() {
            true => unknown(&format!("no field \"{name}\""), at),
            false => unknown(&format!("no field \"{name}\"; there are: {}", fields.join(", ")), at),
        }
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

enum Unqualified {
    Alias(Expr),
    Field(usize, String),
    Unknown,
}
