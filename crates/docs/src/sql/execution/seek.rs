//! Looks up points: sorts the values of each field, then reads one range or document for each combination of values.
//!
//! A combination that finds nothing counts as a row read, so that a long list of misses exhausts the budget too.

use super::nest::push_limit;
use super::point_keys::PointKeys;
use super::run::{Flow, LevelKeys, Run};
use crate::encoding::{KeyType, Scalar, order};
use crate::sql::expressions::Frame;
use crate::sql::expressions::row::as_key;
use crate::sql::limits::{Fault, LOOKED_UP, QueryError, ROW_UNITS};
use crate::sql::planning::{Level, Points, PointsOf, Sought};
use crate::sql::rows::{RowSink, relation};
use crate::sql::values::{FieldValue, RowArena, Value};

/// The encoding of looked-up values.
#[derive(Clone, Copy)]
enum Encoding {
    /// As document keys.
    Key(KeyType),
    /// As index keys.
    Ordered,
}

impl<S: RowSink + ?Sized> Run<'_, S> {
    /// Calls the next level for each entry that the points find.
    pub(super) fn points(
        &mut self,
        number: usize,
        level: &Level,
        points: &Points,
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
        found: &mut bool,
    ) -> Flow {
        if !self.gather_points(points, level.key, outer, keys)? {
            return Ok(());
        }
        let held = self.fixed.meter.hold_keys(keys.points.size())?;
        while keys.points.advance(points.direction) {
            let read = self.outcome.rows_read;
            match &points.of {
                PointsOf::Key => {
                    keys.key.clear();
                    keys.points.append(&mut keys.key);
                    self.document(number, level, &keys.key, outer, found)?;
                }
                PointsOf::Unique { tree, .. } => {
                    keys.from.clear();
                    keys.points.append(&mut keys.from);
                    if let Some(key) = self.view.get(*tree, &keys.from)? {
                        self.document(number, level, &key, outer, found)?;
                    }
                }
                PointsOf::Index { tree, .. } => {
                    keys.set_point();
                    self.index_entries(number, level, (*tree, points.direction), outer, keys, found)?;
                }
            }
            self.count_miss(number, read)?;
        }
        self.fixed.meter.set_levels(held);
        Ok(())
    }

    /// Counts a combination as a row read if no row was read since `read`.
    pub(super) fn count_miss(&mut self, number: usize, read: u64) -> Flow {
        if self.outcome.rows_read > read {
            return Ok(());
        }
        self.note_read(number);
        self.count_row()
    }

    /// Encodes and sorts the values. Returns false if no entry can match.
    pub(super) fn gather_points(
        &self,
        points: &Points,
        kind: KeyType,
        outer: Option<&Frame<'_>>,
        keys: &mut LevelKeys,
    ) -> Result<bool, QueryError> {
        let keys = &mut keys.points;
        keys.clear();
        let encoding = match points.of {
            PointsOf::Key => Encoding::Key(kind),
            PointsOf::Unique { .. } | PointsOf::Index { .. } => Encoding::Ordered,
        };
        let mut room = self.fixed.meter.row_room();
        for sought in &points.sought {
            for values in sought.expressions().chunks(sought.width()) {
                keys.push(|out| {
                    for value in values {
                        let value = value.evaluate(&self.scope(outer))?;
                        room.take(FieldValue::Value(value))?;
                        if !encode(value, encoding, out)? {
                            return Ok(false);
                        }
                    }
                    Ok::<_, Fault>(true)
                })?;
            }
            if let Sought::Rows(inner) = sought {
                self.gather_rows(*inner, encoding, keys)?;
            }
            if !keys.end_field(self.fixed.meter)? {
                return Ok(false);
            }
        }
        self.gather_limits(points, outer, keys)
    }

    fn gather_rows(&self, inner: usize, encoding: Encoding, keys: &mut PointKeys) -> Result<(), QueryError> {
        let relation = self.fixed.relations.ok_or(Fault::Plan)?.get(inner)?;
        let mut arena = RowArena::new(self.fixed.meter);
        for row in 0..relation.len() {
            self.fixed.meter.tick(ROW_UNITS)?;
            let value = relation::of_row(relation.row(row), 0, arena.next())?;
            keys.push(|out| encode(value, encoding, out))?;
            if keys.size() + relation.size() > self.budget.memory_bytes_max {
                let limit = self.budget.memory_bytes_max as u64;
                return Err(QueryError::Limit { what: LOOKED_UP, limit });
            }
        }
        Ok(())
    }

    /// Makes the suffixes of each range's ends from the bounds of the next field. Returns false if no entry can match.
    fn gather_limits(
        &self,
        points: &Points,
        outer: Option<&Frame<'_>>,
        keys: &mut PointKeys,
    ) -> Result<bool, QueryError> {
        let (low, high) = (&mut keys.low, &mut keys.high);
        let (scope, mut room) = (self.scope(outer), self.fixed.meter.row_room());
        for (limit, upper_if, out) in [(&points.from, false, &mut *low), (&points.to, true, &mut *high)] {
            let Some(limit) = limit else { continue };
            if !push_limit(limit, upper_if, &scope, &mut room, out)? {
                return Ok(false);
            }
        }
        if points.from.is_none() && points.to.is_some() {
            // NULL sorts below every bound, but satisfies none.
            order::upper(Scalar::Null, low);
        }
        if points.to.is_none() {
            order::raise(high);
        }
        Ok(low < high)
    }
}

/// Appends a value. Returns false if no stored value can equal it.
fn encode(value: Value<'_>, encoding: Encoding, out: &mut Vec<u8>) -> Result<bool, Fault> {
    match encoding {
        Encoding::Key(kind) => Ok(as_key(value, kind).map(|key| out.extend_from_slice(key.as_bytes())).is_some()),
        Encoding::Ordered if value.is_null() => Ok(false),
        Encoding::Ordered => {
            order::lower(value.scalar().ok_or(Fault::NotUtf8)?, out);
            Ok(true)
        }
    }
}
