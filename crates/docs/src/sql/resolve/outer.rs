//! Correlated subqueries: the values that a subquery takes from enclosing queries.
//!
//! A name that is unknown in a query is searched in the enclosing one, and so on outwards. If it is found, it becomes an outer
//! value of the subquery ([`Expr::Outer`]), similar to a parameter. The enclosing query passes the value where the inner
//! query is used ([`SubqueryUse`]). Queries between the two pass it on.

use sqlparser::ast::Ident;
use sqlparser::tokenizer::Location;

use super::{Clause, Resolved, Resolver, invalid, not_yet};
use crate::sql::expressions::{Affinity, Expr, SubqueryUse};
use crate::sql::values::json::Step;

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

/// A table of an enclosing query.
#[derive(Clone, Debug)]
pub(super) struct AroundTable {
    alias: String,
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
    /// The tables in scope of a subquery.
    pub(super) fn around(&self, stands: Stands) -> Vec<Vec<AroundTable>> {
        let mut around = self.around.clone();
        if stands != Stands::From {
            around.push(self.seen().map(|table| self.seen_from_inside(table)).collect());
        }
        around
    }

    fn seen_from_inside(&self, table: usize) -> AroundTable {
        let info = self.info(table);
        let names = info.fields.iter().map(|field| &field.name).chain(std::iter::once(&info.key.field));
        AroundTable {
            alias: self.logical.tables[table].alias.clone(),
            fields: names.map(|name| (name.clone(), self.column_kind(table, name))).collect(),
            is_open: !info.closed,
        }
    }

    /// The enclosing query that knows a name, and the name's affinity in comparisons.
    fn kind_around(&self, idents: &[Ident]) -> Option<(usize, (Affinity, bool))> {
        const PLAIN: (Affinity, bool) = (Affinity::None, false);
        let (first, rest) = idents.split_first()?;
        let named = |table: &&AroundTable| table.alias.eq_ignore_ascii_case(&first.value);
        let mut levels = self.around.iter().enumerate().rev();
        let qualified = levels.clone().find_map(|(level, tables)| Some((level, tables.iter().find(named)?)));
        if let (Some((level, table)), Some(field)) = (qualified, rest.first()) {
            let kind = table.kind(&field.value).or_else(|| table.is_open.then_some(PLAIN));
            if let Some(kind) = kind {
                return Some((level, if rest.len() == 1 { kind } else { PLAIN }));
            }
        }
        levels.find_map(|(level, tables)| {
            let declared = tables.iter().find_map(|table| table.kind(&first.value));
            let kind = declared.or_else(|| tables.iter().any(|table| table.is_open).then_some(PLAIN))?;
            Some((level, if rest.is_empty() { kind } else { PLAIN }))
        })
    }

    /// Whether a name before a dot is a table of an enclosing query.
    pub(super) fn is_table_around(&self, alias: &str) -> bool {
        self.around.iter().flatten().any(|table| table.alias.eq_ignore_ascii_case(alias))
    }

    /// A name of an enclosing query as an outer value; `None` if no enclosing query has it.
    pub(super) fn outer(&mut self, idents: &[Ident], steps: &[Step], at: Location) -> Resolved<Option<Expr>> {
        let Some((level, kind)) = self.kind_around(idents) else { return Ok(None) };
        if level < self.sealed {
            return not_yet("a field of the enclosing query inside WITH (write the query where it is used)", at);
        }
        if self.around.len() > AROUND_MAX {
            return invalid(&format!("a subquery is at most {AROUND_MAX} queries deep if it uses their fields"), at);
        }
        let kind = if steps.is_empty() { kind } else { (Affinity::None, false) };
        Ok(Some(self.outer_field(OuterField {
            idents: idents.to_vec(),
            steps: steps.to_vec(),
            at,
            kind,
            whole: false,
        })))
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
