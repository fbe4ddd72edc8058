//! Folds rows into the aggregates of their group, and computes the groups' results at the end.

use bumpalo::Bump;

use super::run::{End, Flow, GROUP_OVERHEAD_BYTES, Groups, Run};
use super::spilling::{Distinct, late_row};
use crate::sql::expressions::aggregate::AggregateState;
use crate::sql::expressions::{Expr, Fixed, Frame, Scope};
use crate::sql::limits::{QueryError, ROW_UNITS};
use crate::sql::rows::RowSink;
use crate::sql::values::{FieldValue, Value, Workspace, sort, workspace};

impl<S: RowSink + ?Sized> Run<'_, S> {
    /// Folds a row into its group's aggregates.
    pub(super) fn fold(&mut self, frame: Option<&Frame<'_>>) -> Flow {
        let plan = self.plan;
        let start = if plan.group.is_empty() { 0 } else { self.group_of(frame)? * plan.aggregates.len() };
        let scope = Scope { frame, fixed: self.fixed, arena: self.arena };
        let mut grown = 0;
        for (place, call) in plan.aggregates.iter().enumerate() {
            if let Some(filter) = &call.filter
                && !filter.passes(&scope)?
            {
                continue;
            }
            let value = match &call.argument {
                Some(argument) => argument.operand(&scope)?,
                None => Value::Null,
            };
            scope.fixed.meter.weigh(value)?;
            let state = &mut self.states[start + place];
            if call.is_plain() {
                match value {
                    Value::Text(_) => {
                        let before = state.extreme_bytes();
                        state.step(call.kind, value);
                        grown += state.extreme_bytes().saturating_sub(before);
                    }
                    _ => state.step(call.kind, value),
                }
                continue;
            }
            let separator = match &call.separator {
                Some(separator) => separator.evaluate(&scope)?.to_text(scope.workspace())?.unwrap_or_default(),
                None => b",",
            };
            let compared = match call.compared() {
                Some(compared) => compared.evaluate(&scope)?,
                None => value,
            };
            grown +=
                state.step_rare(call, (value, compared), (separator, self.groups.next_value), scope.workspace())?;
            self.groups.next_value += 1;
        }
        if grown > 0 {
            self.groups.bytes += grown;
            self.check_groups()?;
        }
        if self.is_full {
            self.spill_groups()?;
        }
        if plan.first_only { Err(End::Enough) } else { Ok(()) }
    }

    fn group_of(&mut self, frame: Option<&Frame<'_>>) -> Result<usize, QueryError> {
        let plan = self.plan;
        let mut key = std::mem::take(self.key);
        key.clear();
        let mut room = self.fixed.meter.row_room();
        for expr in &plan.group {
            let value = expr.evaluate(&self.scope(frame))?;
            room.take(FieldValue::Value(value))?;
            sort::push_key(value, false, &mut key)?;
        }
        let place = match self.groups.places.get(&key[..]) {
            Some(&place) => place,
            None => {
                let mut fields = Vec::new();
                for expr in &plan.group {
                    let field = expr.field(&self.scope(frame))?;
                    room.take(field)?;
                    sort::push_field(field, &mut fields);
                }
                let states: usize = plan.aggregates.iter().map(|call| AggregateState::bytes(call.kind)).sum();
                self.groups.bytes += key.len() + fields.len() + states + GROUP_OVERHEAD_BYTES;
                self.check_groups()?;
                self.groups.arrivals.push(self.groups.next_arrival);
                self.groups.next_arrival += 1;
                let place = self.groups.fields.len();
                self.groups.places.insert(key.as_slice().into(), place);
                self.groups.fields.push(fields.into_boxed_slice());
                self.states.resize_with((place + 1) * plan.aggregates.len(), AggregateState::default);
                place
            }
        };
        *self.key = key;
        Ok(place)
    }

    pub(super) fn finish_groups(&mut self) -> Flow {
        if !self.group_runs.is_empty() {
            return self.finish_spilled_groups();
        }
        let held = self.groups.bytes;
        let groups = std::mem::replace(&mut self.groups, Groups { bytes: held, ..Groups::default() });
        let states = std::mem::take(self.states);
        let width = self.plan.aggregates.len();
        let count = if self.plan.group.is_empty() { 1 } else { groups.fields.len() };
        let flow = (0..count).try_for_each(|group| {
            let fields = groups.fields.get(group).map_or(&[][..], |fields| fields);
            self.finish_group(fields, &states[group * width..(group + 1) * width])
        });
        *self.states = states;
        flow
    }

    pub(super) fn finish_group(&mut self, fields: &[u8], states: &[AggregateState]) -> Flow {
        // Moved out, so that the group's values can be allocated in it while the run is used.
        let mut arena = std::mem::take(self.arena);
        workspace::empty(&mut arena, self.fixed.meter);
        let flow = self.finish_group_in(&arena, fields, states);
        *self.arena = arena;
        flow
    }

    fn finish_group_in(&mut self, arena: &Bump, mut fields: &[u8], states: &[AggregateState]) -> Flow {
        let plan = self.plan;
        let workspace = Workspace::new(arena, self.fixed.meter);
        workspace.meter.tick(ROW_UNITS)?;
        let mut stored = workspace.list(plan.group.len())?;
        let mut group = workspace.list(plan.group.len())?;
        for _ in &plan.group {
            let field = sort::take_field(&mut fields);
            stored.push(field);
            group.push(field.decode(workspace)?);
        }
        let mut aggregates = workspace.list(plan.aggregates.len())?;
        for (state, call) in states.iter().zip(&plan.aggregates) {
            aggregates.push(state.finish(call.kind, workspace)?);
        }
        let fixed = Fixed { aggregates: &aggregates, group: &group, ..*self.fixed };
        let scope = Scope { frame: None, fixed: &fixed, arena };
        if let Some(having) = &plan.having
            && !having.passes(&scope)?
        {
            return Ok(());
        }
        let mut outputs = workspace.list(plan.outputs.len())?;
        for expr in &plan.outputs {
            outputs.push(match expr {
                Expr::GroupKey(place) => stored[*place],
                other => FieldValue::Value(other.evaluate(&scope)?),
            });
        }
        self.finish_output(&outputs, &scope)
    }

    fn finish_output(&mut self, outputs: &[FieldValue<'_>], scope: &Scope<'_>) -> Flow {
        let plan = self.plan;
        if plan.distinct {
            let (mut key, mut room) = (Vec::new(), scope.fixed.meter.row_room());
            for field in outputs {
                let value = field.decode(scope.workspace())?;
                room.take(FieldValue::Value(value))?;
                sort::push_key(value, false, &mut key)?;
            }
            match self.note_distinct(&key)? {
                Distinct::New => {}
                Distinct::Known => return Ok(()),
                Distinct::Late => {
                    let row = late_row(&plan.order, outputs.iter().map(|field| Ok(*field)), scope)?;
                    return Ok(self.keep_late(&key, &row)?);
                }
            }
        }
        if !plan.order.is_empty() {
            let mut room = scope.fixed.meter.row_room();
            outputs.iter().try_for_each(|field| room.take(*field))?;
            let keep = self.keep();
            let rows = self.sort.buffer();
            rows.begin();
            for (expr, falling) in &plan.order {
                let value = expr.evaluate(scope)?;
                room.take(FieldValue::Value(value))?;
                sort::push_key(value, *falling, rows.bytes())?;
            }
            rows.end_key();
            outputs.iter().for_each(|field| sort::push_field(*field, rows.bytes()));
            rows.end(keep, self.fixed.meter)?;
            return Ok(self.check_sort()?);
        }
        self.give_fields(outputs.iter().copied())
    }
}
