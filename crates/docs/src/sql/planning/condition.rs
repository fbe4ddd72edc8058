//! A predicate during planning, with the properties that the planner uses again and again: the tables whose fields it uses, and
//! its selectivity.

use std::cell::OnceCell;

use crate::sql::expressions::{Affinity, Comparison, Expr};
use crate::sql::resolve::{Column, TableSet};

/// The tables whose fields an expression uses.
pub(in crate::sql) fn tables_of(expr: &Expr, columns: &[Column]) -> TableSet {
    let mut tables = 0;
    expr.each_column(&mut |column| tables |= 1 << columns[column].table);
    tables
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) expr: Expr,
    pub(super) tables: TableSet,
    /// Of a comparison: the tables of its left and of its right side. Of IN with a list: the tables of the left operand and of
    /// the list.
    pub(super) sides: (TableSet, TableSet),
    /// Its selectivity, computed on first use ([`super::planner::Planner::share`]).
    pub(super) share: OnceCell<f64>,
}

impl Condition {
    pub(super) fn new(expr: Expr, columns: &[Column]) -> Condition {
        let of = |expr: &Expr| tables_of(expr, columns);
        let sides = match &expr {
            Expr::Compare(_, _, a, b) => (of(a), of(b)),
            Expr::In(sought, _, list) => (of(sought), list.iter().fold(0, |tables, value| tables | of(value))),
            _ => (0, 0),
        };
        Condition { tables: of(&expr), expr, sides, share: OnceCell::new() }
    }

    /// It uses only fields of this table, and no inner or outer query: the document alone decides whether it passes.
    pub(super) fn is_of(&self, table: usize) -> bool {
        self.tables == 1 << table && !self.expr.has_inner() && !self.expr.has_outer()
    }
}

/// For an equality between a table and others: the side by which the table's rows can be hashed, and the other one.
pub(super) fn hashed_side(condition: &Condition, table: usize) -> Option<(&Expr, &Expr)> {
    let Expr::Compare(Comparison::Equal, Affinity::None, a, b) = &condition.expr else { return None };
    let (own, (left, right)): (TableSet, _) = (1 << table, condition.sides);
    let (side, value, other) = match (left == own, right == own) {
        (true, false) => (a, b, right),
        (false, true) => (b, a, left),
        _ => return None,
    };
    (other != 0 && other & own == 0 && !side.has_inner() && !side.has_outer()).then_some((side, value))
}
