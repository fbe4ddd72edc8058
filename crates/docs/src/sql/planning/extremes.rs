//! MIN or MAX as the only aggregate: the first or last entry of an index gives it, if the rows come in the order of the field.
//!
//! The query is planned as if it wanted the first row in that order. If an access path gives the order, the first row that
//! passes the predicates is the result, and the scan ends ([`Plan::first_only`]). Otherwise the aggregate scans all rows. This
//! is done only for the key, and for fields that are integers or texts by the schema. Of the equal integers 5 and 5.0 the result is
//! either.
//!
//! NULL sorts before all values and is ignored by MIN, so its range begins after NULL.

use super::condition::Condition;
use super::planner::Planner;
use crate::catalog::FieldKind;
use crate::sql::expressions::{Affinity, AggregateKind, Comparison, Expr};
use crate::sql::resolve::RowSource;
use crate::sql::values::OwnedValue;

#[cfg(doc)]
use super::plan::Plan;

impl Planner<'_> {
    /// Requests the order that a MIN or MAX needs, if the query has that form.
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

    /// Limits the query to the first row if the rows come in that order.
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

    /// The field, and whether the order is descending (MAX).
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
        let is_read = matches!(table.origin, RowSource::Collection(_)) && table.left_on.is_none();
        if !plain || !is_read {
            return None;
        }
        let info = self.info(source.table);
        // Of 5 and 5.0 a full scan returns the first in document order, an index the first in index order. The kind of the result matters
        // where a field may also have fractions.
        let kind = info.field(&source.name).map_or(FieldKind::Any, |field| field.kind);
        let is_typed = info.key.field == source.name || matches!(kind, FieldKind::Integer | FieldKind::Text);
        let mut indexes = info.indexes.iter().filter(|index| index.readiness.is_ready());
        let is_ordered = info.key.field == source.name || indexes.any(|index| index.fields.contains(&source.name));
        (is_typed && is_ordered).then_some((column, falling))
    }
}

/// True for every value, and not for NULL: no value is below the bound.
fn is_any(column: usize) -> Expr {
    let least = Expr::Literal(OwnedValue::Real(f64::NEG_INFINITY));
    Expr::Compare(Comparison::GreaterOrEqual, Affinity::None, Box::new(Expr::Column(column)), Box::new(least))
}

/// Whether a lower bound excludes only NULL.
pub(in crate::sql) fn is_least(value: &Expr) -> bool {
    matches!(value, Expr::Literal(OwnedValue::Real(real)) if *real == f64::NEG_INFINITY)
}
