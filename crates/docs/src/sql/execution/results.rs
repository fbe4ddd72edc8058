//! Delivers rows that have passed all predicates: to the sink, into the sort buffer, or into a group.

use super::run::{End, Flow, Run};
use super::spilling::{Distinct, late_row};
use crate::sql::expressions::{Frame, Scope};
use crate::sql::limits::{QueryError, RESULT, ROW_UNITS};
use crate::sql::rows::RowSink;
use crate::sql::rows::sink::check_finite;
use crate::sql::values::{FieldValue, RowRoom, sort};

impl<'e, S: RowSink + ?Sized> Run<'e, S> {
    pub(super) fn emit(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        if self.plan.grouped {
            return self.fold(frame);
        }
        let plan = self.plan;
        if plan.distinct {
            if self.part.is_some() {
                return self.hand_over(frame);
            }
            if !self.is_new(frame)? {
                return Ok(());
            }
        }
        if !plan.order.is_empty() {
            return self.collect(frame);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        let mut room = self.result_room();
        self.sink.begin_row();
        let scope = Scope { frame, fixed: self.fixed, arena: self.arena };
        for (column, expr) in plan.outputs.iter().enumerate() {
            let field = expr.field(&scope)?;
            check_finite(field, self.sink)?;
            room.take_written(field)?;
            self.sink.field(column, field);
        }
        self.end_row()
    }

    /// Room in the result for a row.
    #[inline(always)]
    pub(super) fn result_room(&self) -> RowRoom<'e> {
        RowRoom::of_result(self.budget, (self.sink.bytes(), self.sink.takes_infinite()), self.fixed.meter)
    }

    #[inline(always)]
    pub(super) fn end_row(&mut self) -> Flow {
        self.sink.end_row_at(self.outcome.rows_read);
        self.outcome.rows += 1;
        if self.sink.bytes() > self.budget.output_bytes_max {
            let limit = self.budget.output_bytes_max as u64;
            return Err(QueryError::Limit { what: RESULT, limit }.into());
        }
        if !self.sink.is_wanted() {
            return Err(QueryError::Unwanted.into());
        }
        if self.outcome.rows >= self.wanted { Err(End::Enough) } else { Ok(()) }
    }

    /// DISTINCT: whether no equal row was seen before. If that is unknown yet, the row is kept and decided later.
    fn is_new(&mut self, frame: Option<&Frame<'_>>) -> Result<bool, QueryError> {
        let mut key = std::mem::take(self.key);
        key.clear();
        let mut room = self.fixed.meter.row_room();
        for expr in &self.plan.outputs {
            let value = expr.evaluate(&self.scope(frame))?;
            room.take(FieldValue::Value(value))?;
            sort::push_key(value, false, &mut key)?;
        }
        let new = match self.note_distinct(&key)? {
            Distinct::New => true,
            Distinct::Known => false,
            Distinct::Late => {
                let outputs = self.plan.outputs.iter();
                let row =
                    late_row(&self.plan.order, outputs.map(|expr| expr.field(&self.scope(frame))), &self.scope(frame))?;
                self.keep_late(&key, &row)?;
                false
            }
        };
        *self.key = key;
        Ok(new)
    }

    /// Adds a row to the sort buffer.
    fn collect(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let (plan, mut room) = (self.plan, self.fixed.meter.row_room());
        self.sort.buffer().begin();
        let start = self.sort.buffer().bytes().len();
        for (place, (expr, falling)) in plan.order.iter().enumerate() {
            let scope = Scope { frame, fixed: self.fixed, arena: self.arena };
            let value = expr.evaluate(&scope)?;
            room.take(FieldValue::Value(value))?;
            sort::push_key(value, *falling, self.sort.buffer().bytes())?;
            if place + 1 == plan.sorted_by && self.is_complete_before(start) {
                self.sort.buffer().cancel();
                return Err(End::Enough);
            }
        }
        self.sort.buffer().end_key();
        for expr in &plan.outputs {
            let field = expr.field(&Scope { frame, fixed: self.fixed, arena: self.arena })?;
            room.take(field)?;
            sort::push_field(field, self.sort.buffer().bytes());
        }
        let keep = self.keep();
        self.sort.buffer().end(keep, self.fixed.meter)?;
        Ok(self.check_sort()?)
    }

    /// Whether the wanted rows are complete before this one, whose leading sort terms are in the buffer from `start` on. Rows
    /// come sorted by these terms, so they are complete once as many rows as wanted had smaller values.
    fn is_complete_before(&mut self, start: usize) -> bool {
        let keep = self.keep();
        let first_terms = &self.sort.buffer().bytes()[start..];
        if self.collected.first_terms != first_terms {
            self.collected.first_terms.clear();
            self.collected.first_terms.extend_from_slice(first_terms);
            if keep.is_some_and(|keep| self.collected.rows >= keep as u64) {
                return true;
            }
        }
        self.collected.rows += 1;
        false
    }

    /// How many sorted rows are wanted at most.
    pub(super) fn keep(&self) -> Option<usize> {
        let keep = self.wanted.checked_add(self.skip)?;
        usize::try_from(keep).ok().filter(|&keep| keep < usize::MAX / 4)
    }

    pub(super) fn finish_sort(&mut self) -> Flow {
        let mut sort = std::mem::take(self.sort);
        let flow = sort.each(self.keep(), self.budget, |_, fields| self.give_kept(fields));
        *self.sort = sort;
        flow
    }

    /// Passes a kept row to the sink.
    pub(super) fn give_kept(&mut self, mut fields: &[u8]) -> Flow {
        self.fixed.meter.tick(ROW_UNITS)?;
        self.give_fields((0..self.plan.outputs.len()).map(|_| sort::take_field(&mut fields)))
    }

    /// Passes the fields of a row to the sink.
    #[inline]
    pub(super) fn give_fields<'f>(&mut self, fields: impl Iterator<Item = FieldValue<'f>>) -> Flow {
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        let mut room = self.result_room();
        self.sink.begin_row();
        for (column, field) in fields.enumerate() {
            check_finite(field, self.sink)?;
            room.take_written(field)?;
            self.sink.field(column, field);
        }
        self.end_row()
    }
}
