//! The clauses of a query: the tables of FROM, the result columns, GROUP BY, ORDER BY, LIMIT. Joins: `joins.rs`.

use sqlparser::ast::{
    self, Distinct, GroupByExpr, Ident, LimitClause, OrderByKind, OrderBySort, SelectItem,
    SelectItemQualifiedWildcardKind, Spanned, TableFactor,
};
use sqlparser::tokenizer::Location;

use super::outer::Stands;
use super::queries::unstored;
use super::syntax::{plain_argument, single, unnested};
use super::{
    COLUMNS_MAX, Clause, Column, OutputColumn, QueryTable, Resolved, Resolver, RowSource, TABLES_MAX, expired, invalid,
    not_yet, unknown,
};
use crate::catalog::{FieldInfo, FieldKind};
use crate::error::there_are;
use crate::sql::expressions::expr::flatten;
use crate::sql::expressions::{Affinity, Expr, each};

impl<'c> Resolver<'c> {
    pub(super) fn table(&mut self, factor: &'c TableFactor, left_on: Option<Vec<Expr>>) -> Resolved<()> {
        let at = factor.span().start;
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor {
            return self.join_inside(table_with_joins, alias.as_ref(), left_on, at);
        }
        if let TableFactor::Derived { lateral: false, subquery, alias, sample: None } = factor {
            let asked = self.inner(subquery, false, Stands::From)?;
            let name = alias.as_ref().map_or("", |alias| &alias.name.value).to_owned();
            refuse_columns(alias.as_ref(), at)?;
            self.add_derived((asked.number, asked.outer), name, at)?;
            return self.joined_left(left_on);
        }
        let TableFactor::Table { name, alias, args, with_hints, version, partitions, sample, json_path, .. } = factor
        else {
            return not_yet("anything but a collection in FROM", at);
        };
        let plain = with_hints.is_empty() && version.is_none() && partitions.is_empty();
        if !plain || sample.is_some() || json_path.is_some() {
            return not_yet("this form of FROM", at);
        }
        let Some(ident) = single(name) else { return not_yet("a qualified collection name", at) };
        refuse_columns(alias.as_ref(), at)?;
        let named = alias.as_ref().map_or(&ident.value, |alias| &alias.name.value).clone();
        if let Some(args) = args {
            self.each(&ident.value, args, named, at)?;
            return self.joined_left(left_on);
        }
        if let Some(query) = self.named_query(&ident.value) {
            // A query of WITH sees neither its own name nor those after it.
            let before = self.named.iter().position(|table| std::ptr::eq(&*table.query, query)).unwrap_or(0);
            let all = self.named.clone();
            self.named.truncate(before);
            let sealed = std::mem::replace(&mut self.sealed, self.around.len());
            let asked = self.inner(query, false, Stands::From);
            (self.named, self.sealed) = (all, sealed);
            let asked = asked?;
            self.add_derived((asked.number, asked.outer), named, at)?;
            return self.joined_left(left_on);
        }
        let collection = self.collection_named(ident)?;
        self.add_table(QueryTable { origin: RowSource::Collection(collection), alias: named, left_on }, at)?;
        if self.hides_expired {
            self.hide_expired(collection);
        }
        Ok(())
    }

    /// Adds the predicate that hides expired documents that are not deleted yet.
    fn hide_expired(&mut self, collection: usize) {
        let Some(expire) = &self.catalog.collections[collection].expire else { return };
        let expire = expire.clone();
        let table = self.logical.tables.len() - 1;
        let column = Expr::Column(self.column(table, &expire.field));
        let condition = expired::is_live(column, &expire);
        match self.logical.tables[table].left_on.as_mut() {
            Some(on) => on.push(condition),
            None => self.logical.conditions.push(condition),
        }
    }

    /// The place of a collection in the catalog.
    pub(super) fn collection_named(&self, ident: &Ident) -> Resolved<usize> {
        let number = self
            .catalog
            .number(&ident.value)
            .or_else(|| self.catalog.collections.iter().position(|info| info.name.eq_ignore_ascii_case(&ident.value)));
        match number {
            Some(collection) => Ok(collection),
            None if self.catalog.views.iter().any(|view| view.name.eq_ignore_ascii_case(&ident.value)) => {
                not_yet(&format!("a write to the view \"{}\"", ident.value), ident.span.start)
            }
            None => {
                let names: Vec<&str> = self.catalog.collections.iter().map(|info| info.name.as_str()).collect();
                let message = format!("no collection \"{}\"; {}", ident.value, there_are(&names));
                unknown(&message, ident.span.start)
            }
        }
    }

    pub(super) fn add_table(&mut self, table: QueryTable, at: Location) -> Resolved<()> {
        let alias = &table.alias;
        if !alias.is_empty() && self.logical.tables.iter().any(|table| table.alias.eq_ignore_ascii_case(alias)) {
            return invalid(&format!("two collections are named \"{alias}\""), at);
        }
        if self.logical.tables.len() == TABLES_MAX {
            return invalid(&format!("more than {TABLES_MAX} collections"), at);
        }
        self.logical.tables.push(table);
        Ok(())
    }

    fn joined_left(&mut self, left_on: Option<Vec<Expr>>) -> Resolved<()> {
        if let Some(table) = self.logical.tables.last_mut() {
            table.left_on = left_on;
        }
        Ok(())
    }

    /// `json_each(JSON[, PATH])`, over a parameter or fields of the tables before it.
    fn each(&mut self, name: &str, args: &'c ast::TableFunctionArgs, alias: String, at: Location) -> Resolved<()> {
        if !name.eq_ignore_ascii_case("json_each") {
            return not_yet(&format!("{name}(…) in FROM (there is json_each)"), at);
        }
        let (json, path) = match &args.args[..] {
            [json] => (json, None),
            [json, path] => (json, Some(path)),
            _ => return invalid("json_each takes one or two arguments", at),
        };
        let json = self.expr(plain_argument(json, at)?, Clause::Where)?;
        let path = path.map(|path| self.expr(plain_argument(path, at)?, Clause::Where)).transpose()?;
        let field = |name: &str| FieldInfo { name: name.to_owned(), kind: FieldKind::Any, required: false };
        let info = Box::new(unstored("json_each", each::COLUMNS.into_iter().map(field).collect()));
        self.add_table(QueryTable { origin: RowSource::Each { json, path, info }, alias, left_on: None }, at)
    }

    pub(super) fn add_conditions(&mut self, condition: Expr) {
        flatten(condition, &mut self.logical.conditions);
    }

    pub(super) fn outputs(&mut self, select: &'c ast::Select, texts: &[&str]) -> Resolved<()> {
        self.logical.distinct = matches!(select.distinct, Some(Distinct::Distinct));
        self.logical.grouped = !matches!(&select.group_by, GroupByExpr::Expressions(list, _) if list.is_empty());
        self.items(&select.projection, texts)
    }

    /// The result columns.
    pub(super) fn items(&mut self, items: &'c [SelectItem], texts: &[&str]) -> Resolved<()> {
        for (place, item) in items.iter().enumerate() {
            let at = item.span().start;
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let resolved = self.expr(expr, Clause::Select)?;
                    let name = match &resolved {
                        Expr::Column(column) if !is_signed(expr) => self.logical.columns[*column].name.clone(),
                        _ => texts.get(place).map_or_else(|| expr.to_string(), |text| (*text).to_owned()),
                    };
                    self.check_item(&resolved)?;
                    self.output(name, resolved, at)?;
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let resolved = self.expr(expr, Clause::Select)?;
                    self.check_item(&resolved)?;
                    self.aliases.add(&alias.value, resolved.clone());
                    self.output(alias.value.clone(), resolved, at)?;
                }
                SelectItem::Wildcard(_) => {
                    for table in 0..self.logical.tables.len() {
                        self.wildcard(table, true, at)?;
                    }
                    if self.logical.tables.is_empty() {
                        return invalid("* without FROM", at);
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let table = single(name).and_then(|ident| self.table_named(&ident.value));
                    let Some(table) = table else { return unknown(&format!("no collection \"{name}\" in FROM"), at) };
                    self.wildcard(table, false, at)?;
                }
                _ => return not_yet("this form of result column", at),
            }
        }
        Ok(())
    }

    pub(super) fn output(&mut self, name: String, expr: Expr, at: Location) -> Resolved<()> {
        let name = if self.positional { self.logical.outputs.len().to_string() } else { self.untaken(name) };
        if self.logical.outputs.len() == COLUMNS_MAX {
            return invalid(&format!("more than {COLUMNS_MAX} result columns"), at);
        }
        match &expr {
            Expr::Column(column) => self.logical.columns[*column].bare = true,
            Expr::Path(column, _) => self.logical.columns[*column].inside = true,
            Expr::Outer(place) => self.logical.outer[*place].whole = true,
            _ => {}
        }
        self.logical.outputs.push(OutputColumn { name, expr });
        self.places.outputs.push(at);
        Ok(())
    }

    /// A result column's name, with a number appended if an earlier one has that name: `id`, `id:1`, `id:2`, as SQLite names
    /// the columns of a query in FROM.
    fn untaken(&self, mut name: String) -> String {
        let mut number = 0;
        while self.logical.outputs.iter().any(|output| output.name == name) {
            number += 1;
            let base = name.rsplit_once(':').filter(|(_, digits)| digits.bytes().all(|byte| byte.is_ascii_digit()));
            name = format!("{}:{number}", base.map_or(name.as_str(), |(base, _)| base));
        }
        name
    }

    /// The fields of a table as result columns. `of_all`: for the `*` of all tables, in which a field that USING shares appears
    /// once.
    pub(super) fn wildcard(&mut self, table: usize, of_all: bool, at: Location) -> Resolved<()> {
        let info = self.info(table);
        let names = info.fields.iter().map(|field| &field.name);
        let names: Vec<String> = names.filter(|name| !of_all || !self.is_shared(table, name)).cloned().collect();
        if matches!(self.logical.tables[table].origin, RowSource::Each { .. }) {
            return not_yet("* of json_each (name its columns)", at);
        }
        if info.fields.is_empty() {
            return invalid(&format!("* needs a schema, and collection \"{}\" has none", info.name), at);
        }
        for name in names {
            let column = self.column(table, &name);
            self.output(name, Expr::Column(column), at)?;
        }
        Ok(())
    }

    pub(super) fn column(&mut self, table: usize, name: &str) -> usize {
        let known = self.logical.columns.iter().position(|column| column.table == table && column.name == name);
        known.unwrap_or_else(|| {
            let kind = self.column_kind(table, name);
            self.logical.columns.push(Column { table, name: name.to_owned(), bare: false, inside: false, kind });
            self.logical.columns.len() - 1
        })
    }

    /// A column's affinity in comparisons: for a subquery, that of its result.
    pub(super) fn column_kind(&self, table: usize, name: &str) -> (Affinity, bool) {
        let RowSource::Inner { number, .. } = &self.logical.tables[table].origin else {
            return (Affinity::None, false);
        };
        let member = self.queries_beside(table)[*number].members.first();
        let output = member.and_then(|member| member.outputs.iter().find(|output| output.name == name));
        member.zip(output).map_or((Affinity::None, false), |(member, output)| member.kind(&output.expr))
    }

    pub(super) fn group(&mut self, select: &'c ast::Select) -> Resolved<()> {
        let at = select.span().start;
        match &select.group_by {
            GroupByExpr::All(_) => return not_yet("GROUP BY ALL", at),
            GroupByExpr::Expressions(list, modifiers) => {
                if !modifiers.is_empty() {
                    return not_yet("a modifier of GROUP BY", at);
                }
                for (expr, resolved) in list.iter().zip(self.group_terms(list)?) {
                    let mut has_aggregate = false;
                    resolved.walk(&mut |part| has_aggregate |= matches!(part, Expr::Aggregate(_)));
                    if has_aggregate {
                        return invalid("an aggregate is not allowed in GROUP BY", expr.span().start);
                    }
                    self.logical.group.push(resolved);
                }
            }
        }
        if let Some(having) = &select.having {
            self.logical.having = Some(self.expr(having, Clause::Having)?);
            self.places.having = Some(having.span().start);
        }
        let logical = &self.logical;
        self.logical.grouped = !logical.group.is_empty() || !logical.aggregates.is_empty() || logical.having.is_some();
        Ok(())
    }

    /// The terms of GROUP BY. Those that may be an alias or a field are resolved after the others.
    fn group_terms(&mut self, list: &'c [ast::Expr]) -> Resolved<Vec<Expr>> {
        let mut terms = Vec::with_capacity(list.len());
        for expr in list {
            terms.push(match (self.output_number(expr)?, self.open_group_term(expr)) {
                (Some(place), _) => Some(self.logical.outputs[place].expr.clone()),
                (None, Some(_)) => None,
                (None, None) => Some(self.expr(expr, Clause::GroupBy)?),
            });
        }
        let others: Vec<Expr> = terms.iter().flatten().cloned().collect();
        let both = |(expr, term): (&'c ast::Expr, Option<Expr>)| match (term, self.open_group_term(expr)) {
            (Some(term), _) => Ok(term),
            (None, Some(ident)) => self.group_term(ident, &others),
            (None, None) => self.expr(expr, Clause::GroupBy),
        };
        list.iter().zip(terms).map(both).collect()
    }

    /// A plain integer in GROUP BY or ORDER BY is the number of a result column.
    pub(super) fn output_number(&self, expr: &ast::Expr) -> Resolved<Option<usize>> {
        let ast::Expr::Value(value) = expr else { return Ok(None) };
        let ast::Value::Number(text, _) = &value.value else { return Ok(None) };
        let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
        match hex.map_or_else(|| text.parse(), |digits| usize::from_str_radix(digits, 16)) {
            Ok(place) if (1..=self.logical.outputs.len()).contains(&place) => Ok(Some(place - 1)),
            Ok(_) => invalid(&format!("there is no result column {text}"), expr.span().start),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn order(&mut self, query: &'c ast::Query) -> Resolved<()> {
        let Some(order) = &query.order_by else { return Ok(()) };
        let at = order.span().start;
        let OrderByKind::Expressions(list) = &order.kind else { return not_yet("ORDER BY ALL", at) };
        if order.interpolate.is_some() {
            return not_yet("INTERPOLATE", at);
        }
        for item in list {
            if item.with_fill.is_some() {
                return not_yet("WITH FILL", item.span().start);
            }
            let falling = match &item.options.sort {
                None | Some(OrderBySort::Asc) => false,
                Some(OrderBySort::Desc) => true,
                Some(_) => return not_yet("ORDER BY … USING", item.span().start),
            };
            let resolved = match self.output_number(&item.expr)? {
                Some(place) => self.logical.outputs[place].expr.clone(),
                None => match self.output_alias(&item.expr) {
                    Some(expr) => expr,
                    None => self.expr(&item.expr, Clause::OrderBy)?,
                },
            };
            // NULL is the least value. To sort it at the other end, a test for NULL precedes the term.
            if item.options.nulls_first == Some(falling) {
                self.logical.order.push((Expr::IsNull(Box::new(resolved.clone())), falling));
            }
            self.logical.order.push((resolved, falling));
            self.places.order.resize(self.logical.order.len(), item.span().start);
        }
        // An aggregate in ORDER BY makes one group of all rows, as an aggregate among the result columns does.
        self.logical.grouped |= !self.logical.aggregates.is_empty();
        Ok(())
    }

    pub(super) fn output_alias(&self, expr: &ast::Expr) -> Option<Expr> {
        let ast::Expr::Identifier(ident) = unnested(expr) else { return None };
        self.aliases.get(&ident.value).cloned()
    }

    pub(super) fn limit(&mut self, query: &'c ast::Query) -> Resolved<()> {
        let (limit, offset) = match &query.limit_clause {
            None => return Ok(()),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
                if !limit_by.is_empty() {
                    return not_yet("LIMIT … BY", query.span().start);
                }
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        };
        self.logical.limit = limit.map(|expr| self.expr(expr, Clause::Limit)).transpose()?;
        self.logical.offset = offset.map(|expr| self.expr(expr, Clause::Limit)).transpose()?;
        Ok(())
    }

    /// After grouping, only group keys and aggregates can be selected, filtered and ordered by.
    pub(super) fn check_groups(&mut self, at: Location) -> Resolved<()> {
        self.check_aliases()?;
        if !self.logical.grouped {
            return Ok(());
        }
        let group = std::mem::take(&mut self.logical.group);
        let (mut bare, mut from) = (None, at);
        let outputs = self.logical.outputs.iter_mut().map(|output| &mut output.expr).zip(&self.places.outputs);
        let having = self.logical.having.iter_mut().zip(&self.places.having);
        let order = self.logical.order.iter_mut().map(|(expr, _)| expr).zip(&self.places.order);
        for (expr, place) in outputs.chain(having).chain(order) {
            let was = bare;
            *expr = keyed(expr.clone(), &group, &mut bare);
            if was.is_some() {
                bare = was;
            } else if bare.is_some() {
                from = *place;
            }
        }
        self.logical.group = group;
        match bare {
            Some(column) => {
                let name = &self.logical.columns[column].name;
                let named = self.places.fields.iter().find(|(field, place)| *field == column && *place >= from);
                let at = named.map_or(from, |(_, place)| *place);
                invalid(&format!("\"{name}\" is neither in GROUP BY nor inside an aggregate"), at)
            }
            None => Ok(()),
        }
    }
}

fn refuse_columns(alias: Option<&ast::TableAlias>, at: Location) -> Resolved<()> {
    match alias.is_some_and(|alias| !alias.columns.is_empty()) {
        true => not_yet("a list of columns after an alias", at),
        false => Ok(()),
    }
}

/// An expression preceded by `+`, which changes nothing but the column's name.
fn is_signed(expr: &ast::Expr) -> bool {
    matches!(unnested(expr), ast::Expr::UnaryOp { op: ast::UnaryOperator::Plus, .. })
}

/// Replaces group keys in an expression that is evaluated after grouping; `bare` is set to a column that remains.
pub(super) fn keyed(expr: Expr, group: &[Expr], bare: &mut Option<usize>) -> Expr {
    if let Some(place) = group.iter().position(|key| *key == expr) {
        return Expr::GroupKey(place);
    }
    if let Expr::Column(column) | Expr::Path(column, _) = expr {
        *bare = Some(column);
    }
    expr.map_children(&mut |child| keyed(child, group, bare))
}
