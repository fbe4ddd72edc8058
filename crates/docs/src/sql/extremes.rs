//! MIN or MAX alone: the first or last entry of an index has it, where the rows come in the order of the field.
//!
//! The query is planned as if it asked for its first row in that order. Where a way gives the order, the first row that passes
//! decides, and nothing more is read ([`Plan::first_only`]); where none does, the aggregate takes all rows as any other.
//! Only where equal values are written alike: for integers and texts, as the schema says.
//! NULL comes before all values and is none of them, so MIN begins behind it.

use super::aggregate::AggregateKind;
use super::condition::Condition;
use super::expr::{Affinity, Comparison, Expr, Literal};
use super::planner::Planner;
use super::resolve::Origin;
use crate::catalog::FieldKind;

#[cfg(doc)]
use super::plan::Plan;

impl Planner<'_> {
    /// Asks for the order that a MIN or MAX needs, if the query is of that form.
    pub(super) fn begin_extreme(&mut self) {
        let Some((column, falling)) = self.extreme() else { return };
        self.plan.first_only = true;
        self.plan.order = vec![(Expr::Column(column), falling)];
        let source = &self.logical.columns[column];
        if !falling && source.name != self.info(source.table).key.field {
            let condition = Condition::new(is_any(column), &self.logical.columns);
            self.conditions.push(condition);
        }
    }

    /// Keeps to the first row if the rows come in the order.
    pub(super) fn end_extreme(&mut self) {
        if !self.plan.first_only {
            return;
        }
        self.plan.first_only = std::mem::take(&mut self.plan.ordered);
        let order = std::mem::take(&mut self.plan.order);
        if let ([(Expr::Column(column), _)], false) = (&order[..], self.plan.first_only) {
            let added = is_any(*column);
            self.conditions.retain(|condition| condition.expr != added);
        }
    }

    /// The field, and whether the greatest value is wanted.
    fn extreme(&self) -> Option<(usize, bool)> {
        let [call] = &self.plan.aggregates[..] else { return None };
        let falling = match call.kind {
            AggregateKind::Min => false,
            AggregateKind::Max => true,
            _ => return None,
        };
        let Some(Expr::Column(column)) = call.argument else { return None };
        let plain = call.is_plain() && self.plan.group.is_empty() && self.plan.order.is_empty() && !self.plan.distinct;
        let source = &self.logical.columns[column];
        let table = &self.logical.tables[source.table];
        let is_read = matches!(table.origin, Origin::Collection(_)) && table.left_on.is_none();
        if !plain || !is_read {
            return None;
        }
        let info = self.info(source.table);
        // 5 and 5.0 are equal, and which of them is met first tells the order of documents, not that of an index.
        let kind = info.field(&source.name).map_or(FieldKind::Any, |field| field.kind);
        let is_told = info.key.field == source.name || matches!(kind, FieldKind::Integer | FieldKind::Text);
        let mut indexes = info.indexes.iter().filter(|index| index.readiness.is_ready());
        let is_ordered = info.key.field == source.name || indexes.any(|index| index.fields.contains(&source.name));
        (is_told && is_ordered).then_some((column, falling))
    }
}

/// Holds for all but NULL: there is no value below it.
fn is_any(column: usize) -> Expr {
    let least = Expr::Literal(Literal::Real(f64::NEG_INFINITY));
    Expr::Compare(Comparison::GreaterOrEqual, Affinity::None, Box::new(Expr::Column(column)), Box::new(least))
}

/// Whether a lower bound leaves out NULL alone.
pub(super) fn is_least(value: &Expr) -> bool {
    matches!(value, Expr::Literal(Literal::Real(real)) if *real == f64::NEG_INFINITY)
}
