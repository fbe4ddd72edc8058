//! Subqueries: in FROM, IN and EXISTS, scalar ones, those of WITH, and the members of UNION, EXCEPT and INTERSECT.
//!
//! Each is resolved by itself, with the parameters of the whole text and the values that it takes from enclosing queries
//! (`outer.rs`). UNION, EXCEPT and INTERSECT become a query over the rows of their members, so ORDER BY and LIMIT work as in
//! any query.

use sqlparser::ast::{self, SetExpr, SetOperator, SetQuantifier, Spanned};
use sqlparser::tokenizer::Location;

use super::outer::Stands;
use super::syntax::{refuse_clauses, refuse_query_clauses};
use super::{
    Clause, INNER_MAX, InnerQuery, Logical, OutputColumn, QueryTable, Resolved, Resolver, RowSource, invalid, not_yet,
};
use crate::catalog::{CollectionInfo, FieldInfo, FieldKind, KeyInfo};
use crate::encoding::KeyType;
use crate::engine::TreeId;
use crate::sql::expressions::{Affinity, Expr, SubqueryUse};
use crate::sql::rows::Combine;

impl<'c> Resolver<'c> {
    /// Resolves a whole query. `texts` are the names of its unnamed result columns. The parameters known so far become those of
    /// the result.
    pub(super) fn query(mut self, mut query: &'c ast::Query, texts: &[&str]) -> Resolved<Logical> {
        refuse_query_clauses(query)?;
        // Additional parentheses change nothing.
        while let SetExpr::Query(inside) = &*query.body
            && query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
        {
            query = inside;
            refuse_query_clauses(query)?;
        }
        if let Some(with) = &query.with {
            self.with(with)?;
        }
        match &*query.body {
            SetExpr::Select(select) => {
                refuse_clauses(select)?;
                self.from(&select.from)?;
                self.outputs(select, texts)?;
                self.show_aliases()?;
                if let Some(selection) = &select.selection {
                    let condition = self.expr(selection, Clause::Where)?;
                    self.add_conditions(condition);
                }
                self.group(select)?;
            }
            SetExpr::SetOperation { .. } => {
                let parts = self.parts(&query.body, texts)?;
                let number = self.add_inner(parts, query.span().start)?;
                let outer = self.use_of_subquery(number, Stands::From)?.outer;
                self.add_derived((number, outer), String::new(), query.span().start)?;
                self.wildcard(0, false, query.span().start)?;
                self.names_of_members(number);
                self.show_aliases()?;
            }
            SetExpr::Query(_) => return not_yet("a query in parentheses here", query.span().start),
            SetExpr::Values(_) => return not_yet("VALUES outside INSERT", query.span().start),
            _ => return not_yet("this form of query", query.span().start),
        }
        self.order(query)?;
        self.limit(query)?;
        self.check_groups(query.body.span().start)?;
        self.fold_nested_joins();
        Ok(self.logical)
    }

    /// Lets ORDER BY name a column of UNION and the like as any of its SELECTs does; the first that has the name decides.
    fn names_of_members(&mut self, number: usize) {
        for member in &self.logical.inner[number].members {
            for (output, column) in member.outputs.iter().zip(&self.logical.outputs) {
                self.aliases.add(&output.name, column.expr.clone());
            }
        }
    }

    fn with(&mut self, with: &'c ast::With) -> Resolved<()> {
        if with.recursive {
            return not_yet("WITH RECURSIVE", with.span().start);
        }
        for table in &with.cte_tables {
            if !table.alias.columns.is_empty() || table.from.is_some() {
                return not_yet("a list of columns in WITH (name them in its query)", table.alias.name.span.start);
            }
            self.named.push(table);
        }
        Ok(())
    }

    /// The members of UNION, EXCEPT and INTERSECT, in the order of the text. As in SQLite all have the same precedence:
    /// whatever tree the parser makes, its leaves and operators without parentheses are in the order of the text.
    fn parts(&mut self, body: &'c SetExpr, texts: &[&str]) -> Resolved<InnerQuery> {
        let (mut parts, mut open) = (InnerQuery::default(), vec![(Combine::Append, body)]);
        while let Some((combine, body)) = open.pop() {
            let at = body.span().start;
            match body {
                SetExpr::SetOperation { left, op, set_quantifier, right } => {
                    open.push((combine_of(*op, *set_quantifier, at)?, right));
                    open.push((combine, left));
                }
                SetExpr::Select(select) => {
                    let texts = if parts.members.is_empty() { texts } else { &[] };
                    self.part(select, (combine, texts), &mut parts)?;
                }
                SetExpr::Query(_) => {
                    return not_yet(&format!("a query in parentheses beside {} (name it in WITH)", combine.name()), at);
                }
                _ => return not_yet(&format!("this form of a part of {}", combine.name()), at),
            }
        }
        Ok(parts)
    }

    fn part(
        &mut self,
        select: &'c ast::Select,
        (combine, texts): (Combine, &[&str]),
        parts: &mut InnerQuery,
    ) -> Resolved<()> {
        let at = select.span().start;
        refuse_clauses(select)?;
        if parts.members.len() == INNER_MAX {
            return invalid(&format!("more than {INNER_MAX} queries inside a query"), at);
        }
        let positional = self.positional;
        let outer = parts.members.last().map(|before| before.outer.clone()).unwrap_or_default();
        let member = self.inside(|inner| {
            inner.positional = positional;
            inner.logical.outer = outer;
            inner.from(&select.from)?;
            inner.outputs(select, texts)?;
            inner.show_aliases()?;
            if let Some(selection) = &select.selection {
                let condition = inner.expr(selection, Clause::Where)?;
                inner.add_conditions(condition);
            }
            inner.group(select)?;
            inner.check_groups(at)?;
            inner.fold_nested_joins();
            Ok(())
        })?;
        if parts.members.first().is_some_and(|first| first.outputs.len() != member.outputs.len()) {
            return invalid(&format!("the parts of {} have different numbers of result columns", combine.name()), at);
        }
        parts.members.push(member);
        parts.combine.push(combine);
        Ok(())
    }

    /// Runs `resolve` on a resolver of a subquery.
    fn inside(&mut self, resolve: impl FnOnce(&mut Resolver<'c>) -> Resolved<()>) -> Resolved<Logical> {
        let mut inner = self.inner_resolver(Stands::From);
        let result = resolve(&mut inner);
        self.logical.parameters = std::mem::take(&mut inner.logical.parameters);
        self.inner_left = inner.inner_left;
        result.map(|()| inner.logical)
    }

    fn inner_resolver(&mut self, stands: Stands) -> Resolver<'c> {
        let mut inner = Resolver::new(self.catalog);
        inner.named.clone_from(&self.named);
        inner.logical.parameters = std::mem::take(&mut self.logical.parameters);
        inner.depth = self.depth;
        inner.inner_left = self.inner_left;
        inner.hides_expired = self.hides_expired;
        inner.around = self.around(stands);
        inner.sealed = self.sealed;
        inner
    }

    /// Resolves a subquery; returns its number and its outer values.
    pub(super) fn inner(&mut self, query: &'c ast::Query, sought: bool, stands: Stands) -> Resolved<SubqueryUse> {
        let at = query.span().start;
        let mut inner = self.inner_resolver(stands);
        inner.positional = sought;
        let mut logical = inner.query(query, &[])?;
        self.logical.parameters = std::mem::take(&mut logical.parameters);
        self.inner_left = self.inner_left.saturating_sub(logical.inner_count());
        let number =
            self.add_inner(InnerQuery { members: vec![logical], combine: vec![Combine::Append], sought }, at)?;
        self.use_of_subquery(number, stands)
    }

    fn add_inner(&mut self, inner: InnerQuery, at: Location) -> Resolved<usize> {
        let Some(left) = self.inner_left.checked_sub(inner.members.len()) else {
            return invalid(&format!("more than {INNER_MAX} queries inside a query"), at);
        };
        self.inner_left = left;
        self.logical.inner.push(inner);
        Ok(self.logical.inner.len() - 1)
    }

    /// Adds the rows of a subquery as a table of FROM.
    pub(super) fn add_derived(
        &mut self,
        (number, outer): (usize, Vec<Expr>),
        alias: String,
        at: Location,
    ) -> Resolved<()> {
        let names = self.logical.inner[number].members.first().map(|member| &member.outputs);
        let fields = names.into_iter().flatten().map(|output| FieldInfo {
            name: output.name.clone(),
            kind: FieldKind::Any,
            required: false,
        });
        let info = Box::new(unstored(&alias, fields.collect()));
        self.add_table(QueryTable { origin: RowSource::Inner { number, info, outer }, alias, left_on: None }, at)
    }

    /// `values IN (SELECT …)`.
    pub(super) fn in_query(
        &mut self,
        values: &'c [ast::Expr],
        query: &'c ast::Query,
        clause: Clause,
    ) -> Resolved<Expr> {
        let at = query.span().start;
        let values = self.list(values, clause)?;
        let asked = self.inner(query, true, Stands::In(clause))?;
        let member = &self.logical.inner[asked.number].members[0];
        if member.outputs.len() != values.len() {
            let message = format!("IN compares {} values with {} result columns", values.len(), member.outputs.len());
            return invalid(&message, at);
        }
        let columns: Vec<(Affinity, bool)> =
            (0..member.outputs.len()).map(|place| member.kind_of_result(place)).collect();
        let sides = values.into_iter().zip(columns);
        let pairs = sides.map(|(value, column)| (Affinity::between(self.logical.kind(&value), column), value));
        Ok(Expr::InInner(pairs.collect(), asked))
    }

    /// A scalar subquery: the one value of its first row.
    pub(super) fn scalar_query(&mut self, query: &'c ast::Query, clause: Clause) -> Resolved<Expr> {
        match <[Expr; 1]>::try_from(self.row_query(query, clause)?) {
            Ok([value]) => Ok(value),
            Err(_) => invalid("a query that is used as a value has one result column", query.span().start),
        }
    }

    /// The values of a query's first row.
    pub(super) fn row_query(&mut self, query: &'c ast::Query, clause: Clause) -> Resolved<Vec<Expr>> {
        let asked = self.inner(query, false, Stands::In(clause))?;
        let member = &mut self.logical.inner[asked.number].members[0];
        member.limit.get_or_insert_with(|| Expr::integer(1));
        Ok((0..member.outputs.len()).map(|place| Expr::ScalarInner(asked.clone(), place)).collect())
    }

    pub(super) fn exists(&mut self, query: &'c ast::Query, clause: Clause) -> Resolved<Expr> {
        let asked = self.inner(query, false, Stands::In(clause))?;
        let member = &mut self.logical.inner[asked.number].members[0];
        member.limit.get_or_insert_with(|| Expr::integer(1));
        member.order.clear();
        if !member.distinct {
            member.outputs = vec![OutputColumn { name: String::new(), expr: Expr::integer(1) }];
        }
        Ok(Expr::ExistsInner(asked))
    }

    /// The query of WITH with this name.
    pub(super) fn named_query(&self, name: &str) -> Option<&'c ast::Query> {
        let found = self.named.iter().rev().find(|table| table.alias.name.value.eq_ignore_ascii_case(name));
        found.map(|table| &*table.query)
    }
}

/// The effect of an operator between two SELECTs.
fn combine_of(op: SetOperator, quantifier: SetQuantifier, at: Location) -> Resolved<Combine> {
    match (op, quantifier) {
        (SetOperator::Union, SetQuantifier::All) => Ok(Combine::Append),
        (SetOperator::Union, SetQuantifier::None) => Ok(Combine::Union),
        (SetOperator::Except, SetQuantifier::None) => Ok(Combine::Except),
        (SetOperator::Intersect, SetQuantifier::None) => Ok(Combine::Intersect),
        (op, SetQuantifier::None) => not_yet(&op.to_string(), at),
        (op, quantifier) => not_yet(&format!("{op} {quantifier}"), at),
    }
}

/// A description of a table that is no collection, with its columns.
pub(super) fn unstored(name: &str, fields: Vec<FieldInfo>) -> CollectionInfo {
    CollectionInfo {
        name: name.to_owned(),
        tree: TreeId(u32::MAX),
        // No name in a query contains this character.
        key: KeyInfo { field: "\0".to_owned(), kind: KeyType::I64, generate: None },
        schema: None,
        fields,
        closed: true,
        indexes: Vec::new(),
        unique: Vec::new(),
        references: Vec::new(),
        expire: None,
        identity: None,
    }
}
