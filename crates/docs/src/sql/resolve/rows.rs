//! Row values: `(a, b) < (c, d)`, BETWEEN and IN of rows, rewritten as comparisons of their parts.
//!
//! The order of two rows is that of their first different parts; a NULL before that makes the result unknown. The rewritten
//! form has the same result: `a < c OR (a = c AND b < d)`.

use sqlparser::ast::{self, Spanned};

use super::syntax::{parts, query};
use super::{Clause, Logical, Resolved, Resolver, invalid};
use crate::sql::expressions::{Affinity, Comparison, Expr};

/// Most values of a row: an order comparison nests as deep as the rows are long.
const PARTS_MAX: usize = 32;

impl<'c> Resolver<'c> {
    /// The parts of both sides, in pairs.
    fn pairs(&mut self, left: &'c ast::Expr, right: &'c ast::Expr, clause: Clause) -> Resolved<Vec<(Expr, Expr)>> {
        let place = if parts(left).is_some() { right } else { left };
        let (left, right) = (self.row(left, place, clause)?, self.row(right, place, clause)?);
        if left.len() != right.len() {
            let message = format!("a row of {} values is compared with one of {}", left.len(), right.len());
            return invalid(&message, place.span().start);
        }
        Ok(left.into_iter().zip(right).collect())
    }

    /// The values of a row: those in its parentheses, or the first row of a query.
    fn row(&mut self, row: &'c ast::Expr, place: &ast::Expr, clause: Clause) -> Resolved<Vec<Expr>> {
        match (parts(row), query(row)) {
            (Some(parts), _) if parts.len() > PARTS_MAX => {
                invalid(&format!("a row of more than {PARTS_MAX} values"), row.span().start)
            }
            (Some(parts), _) => self.list(parts, clause),
            (None, Some(query)) => self.row_query(query, clause),
            (None, None) => invalid("a row value is compared with a row value", place.span().start),
        }
    }

    pub(super) fn row_comparison(
        &mut self,
        left: &'c ast::Expr,
        comparison: Comparison,
        right: &'c ast::Expr,
        clause: Clause,
    ) -> Resolved<Expr> {
        let pairs = self.pairs(left, right, clause)?;
        Ok(match comparison {
            Comparison::Equal => all_equal(&pairs, &self.logical),
            Comparison::NotEqual => Expr::Not(Box::new(all_equal(&pairs, &self.logical))),
            _ => ordered(&pairs, comparison, &self.logical),
        })
    }

    pub(super) fn row_is(&mut self, a: &'c ast::Expr, b: &'c ast::Expr, same: bool, clause: Clause) -> Resolved<Expr> {
        let pairs = self.pairs(a, b, clause)?;
        let parts = pairs.into_iter().map(|(a, b)| Expr::Is(true, self.affinity(&a, &b), Box::new(a), Box::new(b)));
        let all = Expr::And(parts.collect());
        Ok(if same { all } else { Expr::Not(Box::new(all)) })
    }

    pub(super) fn row_in_list(&mut self, row: &'c ast::Expr, list: &'c [ast::Expr], clause: Clause) -> Resolved<Expr> {
        let mut any = Vec::with_capacity(list.len());
        for other in list {
            any.push(self.row_comparison(row, Comparison::Equal, other, clause)?);
        }
        Ok(if any.is_empty() { Expr::integer(0) } else { Expr::Or(any) })
    }
}

fn compare(comparison: Comparison, a: &Expr, b: &Expr, logical: &Logical) -> Expr {
    let affinity = Affinity::between(logical.kind(a), logical.kind(b));
    Expr::Compare(comparison, affinity, Box::new(a.clone()), Box::new(b.clone()))
}

fn all_equal(pairs: &[(Expr, Expr)], logical: &Logical) -> Expr {
    Expr::And(pairs.iter().map(|(a, b)| compare(Comparison::Equal, a, b, logical)).collect())
}

/// An order comparison: before the last parts only a strict difference decides.
fn ordered(pairs: &[(Expr, Expr)], comparison: Comparison, logical: &Logical) -> Expr {
    let strict = match comparison {
        Comparison::LessOrEqual => Comparison::Less,
        Comparison::GreaterOrEqual => Comparison::Greater,
        other => other,
    };
    match pairs {
        [] => Expr::integer(1),
        [(a, b)] => compare(comparison, a, b, logical),
        [(a, b), rest @ ..] => Expr::Or(vec![
            compare(strict, a, b, logical),
            Expr::And(vec![compare(Comparison::Equal, a, b, logical), ordered(rest, comparison, logical)]),
        ]),
    }
}
