//! A join in parentheses after LEFT JOIN: `a LEFT JOIN (b JOIN c ON …) ON …`.
//!
//! A row of `a` without a match gets one row of NULLs for `b` and `c` together, so the parentheses matter. They become a
//! subquery, whose result columns are the fields of `b` and `c` that are used elsewhere.
//!
//! - During name resolution `b` and `c` are ordinary tables, so that names, `*` and paths need no special rules. Inside the
//!   parentheses only their own tables are in scope, and they have their own list of subqueries.
//! - At the end ([`Resolver::fold_nested_joins`]) the tables become one. Columns keep their numbers: a column of `b` or `c`
//!   becomes the subquery's column of that name, so no expression outside changes.

use std::ops::Range;

use sqlparser::ast;
use sqlparser::tokenizer::Location;

use super::outer::OuterField;
use super::queries::unstored;
use super::{
    Column, INNER_MAX, InnerQuery, Logical, OutputColumn, QueryTable, Resolved, Resolver, RowSource, TableSet, invalid,
    not_yet,
};
use crate::catalog::{FieldInfo, FieldKind};
use crate::sql::expressions::Expr;
use crate::sql::expressions::expr::flatten;
use crate::sql::rows::Combine;

/// See the module documentation.
pub(super) struct NestedJoin {
    tables: Range<usize>,
    /// The predicates of the joins inside.
    conditions: Vec<Expr>,
    /// The subqueries between the parentheses.
    inner: Vec<InnerQuery>,
    /// The predicates of its ON.
    on: Vec<Expr>,
}

impl NestedJoin {
    pub(super) fn add_on(&mut self, condition: Expr) {
        flatten(condition, &mut self.on);
    }

    /// Adjusts the table numbers after other tables were folded into one.
    fn shift(&mut self, folded: &Range<usize>) {
        let gone = folded.len() - 1;
        if self.tables.start >= folded.end {
            self.tables.start -= gone;
        }
        if self.tables.end >= folded.end {
            self.tables.end -= gone;
        }
    }
}

impl<'c> Resolver<'c> {
    /// A join in parentheses. After LEFT JOIN `left_on` is present; otherwise the parentheses are ignored.
    pub(super) fn join_inside(
        &mut self,
        inside: &'c ast::TableWithJoins,
        alias: Option<&ast::TableAlias>,
        left_on: Option<Vec<Expr>>,
        at: Location,
    ) -> Resolved<()> {
        if let Some(alias) = alias {
            return not_yet("a name for a join in parentheses", alias.name.span.start);
        }
        if left_on.is_some() && !inside.joins.is_empty() {
            return self.nested_join(inside, at);
        }
        self.table(&inside.relation, left_on)?;
        inside.joins.iter().try_for_each(|join| self.join(join))
    }

    fn nested_join(&mut self, inside: &'c ast::TableWithJoins, at: Location) -> Resolved<()> {
        let Some(left) = self.inner_left.checked_sub(1) else {
            return invalid(&format!("more than {INNER_MAX} queries inside a query"), at);
        };
        self.inner_left = left;
        let start = self.logical.tables.len();
        let first_seen = std::mem::replace(&mut self.first_seen, start);
        let around = (std::mem::take(&mut self.logical.conditions), std::mem::take(&mut self.logical.inner));
        self.table(&inside.relation, None)?;
        inside.joins.iter().try_for_each(|join| self.join(join))?;
        let conditions = std::mem::replace(&mut self.logical.conditions, around.0);
        let inner = std::mem::replace(&mut self.logical.inner, around.1);
        self.first_seen = first_seen;
        self.nested.push(NestedJoin { tables: start..self.logical.tables.len(), conditions, inner, on: Vec::new() });
        Ok(())
    }

    /// The nested join that begins with this table; the outermost, if there are several.
    pub(super) fn nested_join_at(&mut self, table: usize) -> Option<&mut NestedJoin> {
        self.nested.last_mut().filter(|nested| nested.tables.start == table)
    }

    pub(super) fn has_nested_joins(&self) -> bool {
        !self.nested.is_empty()
    }

    /// The list of subqueries to which a table's number refers.
    pub(super) fn queries_beside(&self, table: usize) -> &[InnerQuery] {
        let nested = self.nested.iter().find(|nested| nested.tables.contains(&table));
        nested.map_or(&self.logical.inner, |nested| &nested.inner)
    }

    /// Turns the nested joins into subqueries. Called when all names are resolved.
    pub(super) fn fold_nested_joins(&mut self) {
        let mut nested = std::mem::take(&mut self.nested).into_iter();
        while let Some(join) = nested.next() {
            let mut around: Vec<NestedJoin> = nested.collect();
            self.fold(join, &mut around);
            nested = around.into_iter();
        }
    }

    /// `around`: the nested joins not folded yet, beginning with those that contain this one.
    fn fold(&mut self, join: NestedJoin, around: &mut [NestedJoin]) {
        let (logical, tables) = (&mut self.logical, join.tables);
        let inside: Vec<QueryTable> = logical.tables.drain(tables.clone()).collect();
        let used = used_columns(
            logical,
            around.iter().flat_map(|nested| nested.conditions.iter().chain(&nested.on)),
            &join.on,
        );
        let alias = inside.iter().map(|table| table.alias.as_str()).collect::<Vec<_>>().join(", ");
        let crossed = logical.crossed;
        let mut member = Logical {
            tables: inside,
            crossed: crossed >> tables.start & low_bits(tables.len()),
            conditions: join.conditions,
            inner: join.inner,
            ..Logical::default()
        };
        let behind = crossed.checked_shr(tables.end as u32).unwrap_or(0);
        logical.crossed = crossed & low_bits(tables.start) | behind.checked_shl(tables.start as u32 + 1).unwrap_or(0);
        move_columns(&mut logical.columns, &tables, &used, &mut member);
        let outer = outer_values(&mut member, &logical.outer);
        let fields = member.outputs.iter().map(|output| output.name.clone());
        let field = |name: String| FieldInfo { name, kind: FieldKind::Any, required: false };
        let info = Box::new(unstored(&alias, fields.map(field).collect()));
        around.iter_mut().for_each(|nested| nested.shift(&tables));
        let beside = around.iter_mut().find(|nested| nested.tables.contains(&tables.start));
        let queries = beside.map_or(&mut logical.inner, |nested| &mut nested.inner);
        queries.push(InnerQuery { members: vec![member], combine: vec![Combine::Append], sought: false });
        let origin = RowSource::Inner { number: queries.len() - 1, info, outer };
        logical.tables.insert(tables.start, QueryTable { origin, alias, left_on: Some(join.on) });
    }
}

/// The columns used by a query without its nested join, and by the expressions `beside` it.
fn used_columns<'e>(logical: &Logical, beside: impl Iterator<Item = &'e Expr>, on: &'e [Expr]) -> Vec<bool> {
    let mut used = vec![false; logical.columns.len()];
    let mut note = |expr: &Expr| expr.each_column(&mut |column| used[column] = true);
    logical.each_own(&mut note);
    beside.chain(on).for_each(note);
    used
}

/// The outer values of the new subquery: all those of the enclosing query, if it uses any.
fn outer_values(member: &mut Logical, around: &[OuterField]) -> Vec<Expr> {
    let mut has_outer = false;
    member.each_own(&mut |expr| has_outer |= expr.has_outer());
    if !has_outer {
        return Vec::new();
    }
    member.outer = around.to_vec();
    (0..around.len()).map(Expr::Outer).collect()
}

fn low_bits(count: usize) -> TableSet {
    1u64.checked_shl(count as u32).map_or(TableSet::MAX, |bit| bit - 1)
}

/// Moves the columns of `tables` into the subquery. The columns used elsewhere become its result columns, and the enclosing
/// query's columns refer to them.
fn move_columns(columns: &mut [Column], tables: &Range<usize>, used: &[bool], member: &mut Logical) {
    let mut numbers = vec![0; columns.len()];
    for (number, column) in columns.iter_mut().enumerate() {
        if column.table >= tables.end {
            column.table -= tables.len() - 1;
        } else if tables.contains(&column.table) {
            let own = Column { table: column.table - tables.start, bare: used[number], ..column.clone() };
            numbers[number] = member.columns.len();
            column.name = untaken(format!("{}.{}", member.tables[own.table].alias, own.name), &member.outputs);
            column.table = tables.start;
            if used[number] {
                let expr = Expr::Column(member.columns.len());
                member.outputs.push(OutputColumn { name: column.name.clone(), expr });
            }
            member.columns.push(own);
        }
    }
    if member.outputs.is_empty() {
        member.outputs.push(OutputColumn { name: String::new(), expr: Expr::integer(1) });
    }
    let own = |expr: &mut Expr| {
        let taken = std::mem::replace(expr, Expr::integer(0));
        *expr = taken.renumbered(&|column| numbers[column]);
    };
    member.conditions.iter_mut().for_each(own);
    for table in &mut member.tables {
        table.left_on.iter_mut().flatten().for_each(own);
        table.origin.expressions_mut().for_each(own);
    }
}

/// A name that no result column has yet.
fn untaken(name: String, outputs: &[OutputColumn]) -> String {
    let is_taken = |name: &str| outputs.iter().any(|output| output.name == name);
    if is_taken(&name) { format!("{name}:{}", outputs.len()) } else { name }
}
