//! Predicates rewritten so that access paths match them: as a list of values, or as one value.
//!
//! In a filter only truth counts, so `a = 1 OR a IN (2, 3)` is `a IN (1, 2, 3)`, and a list of one value is an equality.

use crate::sql::expressions::{Affinity, Comparison, Expr};

/// The same predicate: as a list if it is an OR over one field, as an equality if the list has one value.
pub(super) fn as_list(condition: Expr) -> Expr {
    let condition = match condition {
        Expr::Or(terms) => match common_field(&terms) {
            Some(field) => {
                let values = terms.into_iter().flat_map(|term| values(term, field)).collect();
                Expr::In(Box::new(Expr::Column(field)), Affinity::None, values)
            }
            None => Expr::Or(terms),
        },
        other => other,
    };
    match condition {
        Expr::In(field, Affinity::None, mut list) if list.len() == 1 && matches!(*field, Expr::Column(_)) => {
            let value = Box::new(list.swap_remove(0));
            Expr::Compare(Comparison::Equal, Affinity::None, field, value)
        }
        other => other,
    }
}

/// The field that all terms compare with values.
fn common_field(terms: &[Expr]) -> Option<usize> {
    let fields = terms.first().map(fields).unwrap_or_default();
    fields.into_iter().find(|field| terms.iter().all(|term| self::fields(term).contains(field)))
}

/// The fields for which a term is a list of values.
fn fields(term: &Expr) -> Vec<usize> {
    let column = |expr: &Expr| match expr {
        Expr::Column(column) => Some(*column),
        _ => None,
    };
    match term {
        Expr::Compare(Comparison::Equal, Affinity::None, a, b) => column(a).into_iter().chain(column(b)).collect(),
        Expr::In(of, Affinity::None, _) => column(of).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// The values that a term compares with the field.
fn values(term: Expr, field: usize) -> Vec<Expr> {
    match term {
        Expr::Compare(_, _, a, b) => vec![if *a == Expr::Column(field) { *b } else { *a }],
        Expr::In(_, _, list) => list,
        _ => Vec::new(),
    }
}
