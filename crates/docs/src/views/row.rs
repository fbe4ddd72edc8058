//! One row of a view by the values of its GROUP BY columns.
//!
//! The result is the same as that of the query `SELECT * FROM view WHERE column = value AND …`. A lookup by the group's key
//! costs a fraction of the query, and a transaction records one key as read instead of a range.

use std::cell::Cell;

use super::Views;
use super::definition::Definition;
use super::table::Rendered;
use crate::encoding::{KEY_BYTES_MAX, Scalar, order};
use crate::engine;
use crate::sql::{QueryError, Value};

/// A thread's working memory is freed after a row if it holds more than this.
const ROW_KEPT_BYTES: usize = 64 << 10;

thread_local! {
    static ROW: Cell<Option<Box<Rendered>>> = const { Cell::new(None) };
}

/// The number of a declared view in its database. It belongs to one [`crate::DocumentDatabase`], as a [`crate::CollectionId`]
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewId(pub usize);

/// Appends the row of a group as the text of a JSON object. `false`: there is no such group, and nothing is appended.
pub(crate) fn append(
    views: &Views,
    (id, group): (ViewId, &[Value<'_>]),
    engine: &impl engine::ReadView,
    out: &mut Vec<u8>,
) -> Result<bool, QueryError> {
    let view = views.serving(id.0, engine)?;
    let definition = &view.definition;
    if definition.grouping.rolls_up {
        return Err(QueryError::Value("the GROUP BY columns of a view with ROLLUP do not identify a row"));
    }
    let expected = definition.grouping.group_len();
    if group.len() != expected {
        return Err(QueryError::Parameters { expected, given: group.len() });
    }
    let Some(key) = key_of(definition, group) else { return Ok(false) };
    let state = engine.get(view.groups, &key)?;
    if state.is_none() && expected > 0 {
        return Ok(false);
    }
    with_memory(|row| {
        row.render(view, engine, &|_| true, &key, &state.unwrap_or_default())?;
        row.object(definition, out);
        Ok(true)
    })
}

/// Runs `work` with this thread's memory.
pub(super) fn with_memory<R>(work: impl FnOnce(&mut Rendered) -> R) -> R {
    let mut row = ROW.take().unwrap_or_default();
    let result = work(&mut row);
    if row.held_bytes() <= ROW_KEPT_BYTES {
        ROW.set(Some(row));
    }
    result
}

/// The key of a group. `None`: no group has these values, because NULL equals nothing, or because the key is too long.
fn key_of(definition: &Definition, group: &[Value<'_>]) -> Option<Vec<u8>> {
    if group.is_empty() {
        return definition.always();
    }
    let mut key = Vec::with_capacity(64);
    for value in group {
        match value.scalar()? {
            Scalar::Null => return None,
            Scalar::Real(real) if real.is_nan() => return None,
            scalar => order::lower(scalar, &mut key),
        }
    }
    (key.len() <= KEY_BYTES_MAX).then_some(key)
}
