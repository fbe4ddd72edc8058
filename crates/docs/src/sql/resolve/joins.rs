//! The joins of FROM: their predicates, and the fields that USING and NATURAL share.
//!
//! - Tables keep the order of the text. The ON of an inner join becomes a predicate of the query; a left join keeps its own.
//! - `USING (f)` is an equality of the first `f` on either side. Unqualified, `f` then means the left one, and `*` has it once;
//!   `table.f` and `table.*` still have the table's own. NATURAL is USING with all fields that both sides declare.
//! - Parentheses around a join change nothing, except after LEFT JOIN (`nested_join.rs`).

use std::ops::Range;

use sqlparser::ast::{self, Ident, JoinConstraint, JoinOperator, Spanned};
use sqlparser::tokenizer::Location;

use super::syntax::single;
use super::{Clause, Resolved, Resolver, invalid, not_yet, unknown};
use crate::sql::expressions::expr::flatten;
use crate::sql::expressions::{Comparison, Expr};

impl<'c> Resolver<'c> {
    pub(super) fn from(&mut self, from: &'c [ast::TableWithJoins]) -> Resolved<()> {
        for item in from {
            self.table(&item.relation, None)?;
            item.joins.iter().try_for_each(|join| self.join(join))?;
        }
        Ok(())
    }

    pub(super) fn join(&mut self, join: &'c ast::Join) -> Resolved<()> {
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
        let right = self.logical.tables.len();
        self.table(&join.relation, left.then(Vec::new))?;
        if matches!(join.join_operator, JoinOperator::CrossJoin(_)) {
            (right..self.logical.tables.len()).for_each(|table| self.logical.crossed |= 1 << table);
        }
        let conditions = match constraint {
            JoinConstraint::On(on) => vec![self.expr(on, Clause::Where)?],
            JoinConstraint::None => Vec::new(),
            JoinConstraint::Using(names) => {
                names.iter().map(|name| self.using(name, right)).collect::<Resolved<_>>()?
            }
            JoinConstraint::Natural => self.natural(right, at)?,
        };
        conditions.into_iter().for_each(|condition| self.add_join_condition(condition, left, right));
        Ok(())
    }

    /// Adds a predicate of the join whose right side begins with the table `right`.
    fn add_join_condition(&mut self, condition: Expr, left: bool, right: usize) {
        if !left {
            return self.add_conditions(condition);
        }
        if let Some(nested) = self.nested_join_at(right) {
            return nested.add_on(condition);
        }
        if let Some(on) = self.logical.tables[right].left_on.as_mut() {
            flatten(condition, on);
        }
    }

    fn using(&mut self, name: &ast::ObjectName, right: usize) -> Resolved<Expr> {
        let at = name.span().start;
        let Some(ident) = single(name) else { return invalid("USING takes names of fields alone", at) };
        self.share(ident, right)
    }

    /// The equality of USING for one field. From now on the right field is hidden by the left one.
    fn share(&mut self, ident: &Ident, right: usize) -> Resolved<Expr> {
        let (before, behind) = (self.first_seen..right, right..self.logical.tables.len());
        let (left, right) = (self.first_field(ident, before)?, self.first_field(ident, behind)?);
        let a = Expr::Column(self.column(left.0, &left.1));
        let b = Expr::Column(self.column(right.0, &right.1));
        self.shared.push(right);
        self.note_undeclared(ident, true, Clause::Where);
        Ok(Expr::Compare(Comparison::Equal, self.affinity(&a, &b), Box::new(a), Box::new(b)))
    }

    /// The first of `tables` that declares the field, or else the only one that may have it; and the field's name in the declared
    /// spelling.
    fn first_field(&self, ident: &Ident, tables: Range<usize>) -> Resolved<(usize, String)> {
        let name = &ident.value;
        if let Some(declared) = tables.clone().find_map(|table| Some((table, self.field(table, name)?))) {
            return Ok(declared);
        }
        match self.may_have(name).into_iter().filter(|table| tables.contains(table)).collect::<Vec<_>>()[..] {
            [table] => Ok((table, name.clone())),
            [] => unknown(&format!("USING: \"{name}\" is not in both sides of the join"), ident.span.start),
            _ => {
                let message =
                    format!("USING: \"{name}\" may be in several collections: say ON, with the collections' names");
                invalid(&message, ident.span.start)
            }
        }
    }

    /// The equalities of all fields that both sides declare.
    fn natural(&mut self, right: usize, at: Location) -> Resolved<Vec<Expr>> {
        if let Some(table) = self.seen().find(|&table| self.info(table).fields.is_empty()) {
            let message = format!("NATURAL JOIN needs a schema, and collection \"{}\" has none", self.info(table).name);
            return invalid(&message, at);
        }
        let mut names: Vec<String> = Vec::new();
        for field in (right..self.logical.tables.len()).flat_map(|table| &self.info(table).fields) {
            let known = |table| self.info(table).fields.iter().any(|other| other.name == field.name);
            if !names.contains(&field.name) && (self.first_seen..right).any(known) {
                names.push(field.name.clone());
            }
        }
        names.into_iter().map(|name| self.share(&Ident::new(name), right)).collect()
    }

    /// Whether a table's field is hidden by one on the left.
    pub(super) fn is_shared(&self, table: usize, name: &str) -> bool {
        self.shared.iter().any(|(other, field)| *other == table && field.eq_ignore_ascii_case(name))
    }
}
