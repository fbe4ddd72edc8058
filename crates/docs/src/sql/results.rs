//! What becomes of a row that passed: to the sink, kept for sorting, or taken into its group.

use super::error::{Fault, QueryError};
use super::execute::{End, Flow, Run};
use super::expr::Expr;
use super::row::{Field, Frame, Scope};
use super::sink::{RowSink, check_finite};
use super::sort::{self, SortBuffer};
use super::value::Value;

/// Bytes that a group or distinct row costs beside its own.
pub(super) const GROUP_OVERHEAD_BYTES: usize = 64;

impl<S: RowSink + ?Sized> Run<'_, S> {
    pub(super) fn emit(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        if self.plan.grouped {
            return self.fold(frame);
        }
        let plan = self.plan;
        if plan.distinct && !self.is_new(frame)? {
            return Ok(());
        }
        if !plan.order.is_empty() {
            return self.collect(frame);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Ok(());
        }
        self.sink.begin_row();
        let scope = Scope { frame, fixed: self.fixed, arena: self.arena };
        for (column, expr) in plan.outputs.iter().enumerate() {
            let field = output(expr, &scope)?;
            check_finite(field, self.sink)?;
            self.sink.field(column, field);
        }
        self.end_row()
    }

    #[inline(always)]
    pub(super) fn end_row(&mut self) -> Flow {
        self.sink.end_row();
        self.outcome.rows += 1;
        if self.sink.bytes() > self.budget.output_bytes_max {
            let limit = self.budget.output_bytes_max as u64;
            return Err(QueryError::Limit { what: "bytes of result", limit }.into());
        }
        if self.outcome.rows >= self.wanted { Err(End::Enough) } else { Ok(()) }
    }

    /// DISTINCT: whether such a row was not there before.
    fn is_new(&mut self, frame: Option<&Frame<'_>>) -> Result<bool, QueryError> {
        let mut key = std::mem::take(self.key);
        key.clear();
        for expr in &self.plan.outputs {
            sort::push_key(expr.evaluate(&self.scope(frame))?, false, &mut key)?;
        }
        let new = !self.distinct.contains(&key[..]);
        if new {
            self.distinct_bytes += key.len() + GROUP_OVERHEAD_BYTES;
            self.check_memory(self.distinct_bytes)?;
            self.distinct.insert(key.as_slice().into());
        }
        *self.key = key;
        Ok(new)
    }

    pub(super) fn check_memory(&self, bytes: usize) -> Result<(), QueryError> {
        let limit = self.budget.memory_bytes_max;
        let bytes = match self.part {
            None => bytes,
            Some(part) => part.add_bytes(bytes.saturating_sub(self.counted.1.replace(bytes))),
        };
        if bytes > limit {
            return Err(QueryError::Limit { what: "bytes of groups", limit: limit as u64 });
        }
        Ok(())
    }

    /// Keeps a row for sorting.
    fn collect(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let plan = self.plan;
        self.sort.begin();
        for (expr, falling) in &plan.order {
            let scope = Scope { frame, fixed: self.fixed, arena: self.arena };
            sort::push_key(expr.evaluate(&scope)?, *falling, self.sort.bytes())?;
        }
        self.sort.end_key();
        for expr in &plan.outputs {
            let field = output(expr, &Scope { frame, fixed: self.fixed, arena: self.arena })?;
            sort::push_field(field, self.sort.bytes());
        }
        self.sort.end(self.keep(), self.budget.memory_bytes_max)?;
        if self.part.is_some() {
            self.check_memory(self.sort.size())?;
        }
        Ok(())
    }

    /// How many sorted rows are wanted at most.
    pub(super) fn keep(&self) -> Option<usize> {
        let keep = self.wanted.checked_add(self.skip)?;
        usize::try_from(keep).ok().filter(|&keep| keep < usize::MAX / 4)
    }

    pub(super) fn finish_sort(&mut self) -> Result<(), QueryError> {
        let sort = std::mem::take(self.sort);
        let result = self.write_sorted(sort);
        *self.sort = result?;
        Ok(())
    }

    fn write_sorted(&mut self, mut sort: SortBuffer) -> Result<SortBuffer, QueryError> {
        sort.sort();
        let skip = usize::try_from(self.skip).unwrap_or(usize::MAX);
        for mut row in sort.rows().skip(skip) {
            self.sink.begin_row();
            for column in 0..self.plan.outputs.len() {
                let field = sort::take_field(&mut row);
                check_finite(field, self.sink)?;
                self.sink.field(column, field);
            }
            match self.end_row() {
                Ok(()) => {}
                Err(End::Enough) => break,
                Err(End::Error(error)) => return Err(*error),
            }
        }
        Ok(sort)
    }
}

/// A result column: a field as stored, anything else as its value.
#[inline]
pub(super) fn output<'a>(expr: &'a Expr, scope: &Scope<'a>) -> Result<Field<'a>, Fault> {
    match expr {
        Expr::Column(column) => scope.cell(*column),
        Expr::Path(column, steps) => {
            Ok(scope.stored_path(*column, steps)?.map_or(Field::Value(Value::Null), Field::Json))
        }
        other => other.evaluate(scope).map(Field::Value),
    }
}
