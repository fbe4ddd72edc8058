//! `json_each(JSON[, PATH])`: the elements of an array, the fields of an object, or a single value, as rows.
//!
//! The columns are SQLite's, except `id` and `parent`, which are positions in SQLite's internal encoding.

use super::expr::Expr;
use super::row::Scope;
use crate::sql::limits::{Fault, OF_JSON_EACH, QueryError, ROW_UNITS};
use crate::sql::values::sort::push_field;
use crate::sql::values::{FieldValue, Value, Workspace, json, value};

/// The columns, in the order of a row.
pub(crate) const COLUMNS: [&str; 6] = ["key", "value", "type", "atom", "fullkey", "path"];

/// Bytes of a row besides its texts.
const ROW_OVERHEAD_BYTES: usize = 64;

/// Puts the rows one after the other into `rows`, and their ends into `ends`. These and the rows of outer tables, `around`
/// bytes, may together have at most `bytes_max` bytes.
pub(in crate::sql) fn rows<'a>(
    json: &'a Expr,
    path: Option<&'a Expr>,
    scope: &Scope<'a>,
    (around, bytes_max): (usize, usize),
    rows: &mut Vec<u8>,
    ends: &mut Vec<usize>,
) -> Result<(), QueryError> {
    rows.clear();
    ends.clear();
    let workspace = scope.workspace();
    let Some(text) = json.evaluate(scope)?.to_text(workspace)? else { return Ok(()) };
    let root = match path.map(|path| path.evaluate(scope)).transpose()? {
        None => &b"$"[..],
        Some(path) => match path.to_text(workspace)? {
            Some(path) => path,
            None => return Ok(()),
        },
    };
    workspace.meter.tick_bytes(2 * text.len())?;
    if !json::is_valid(text) {
        return Err(Fault::Json.into());
    }
    let Some(found) = json::at_path(json::trimmed(text), root, workspace.meter)? else { return Ok(()) };
    let mut row = |key: Value<'_>, full: &[u8], value: &[u8]| {
        workspace.meter.tick(ROW_UNITS)?;
        // The row has its value at most twice, and both paths.
        let bytes = 2 * value.len() + full.len() + root.len() + ROW_OVERHEAD_BYTES;
        if around + rows.len() + bytes > bytes_max.saturating_sub(ends.len() * size_of::<usize>()) {
            return Err(QueryError::Limit { what: OF_JSON_EACH, limit: bytes_max as u64 });
        }
        workspace.meter.tick_bytes(bytes)?;
        push_row(key, value, (full, root), workspace, rows)?;
        ends.push(rows.len());
        Ok(())
    };
    let mut full = Vec::new();
    match found.first() {
        Some(b'{') => json::fields(found).try_for_each(|(name, value)| {
            let key = value::of_json(name, workspace)?;
            full.clear();
            full.extend_from_slice(root);
            full.push(b'.');
            let inner = name.get(1..name.len().max(2) - 1).unwrap_or_default();
            full.extend_from_slice(if is_plain(inner) { inner } else { name });
            row(key, &full, value)
        }),
        Some(b'[') => json::items(found).enumerate().try_for_each(|(place, value)| {
            full.clear();
            full.extend_from_slice(root);
            full.extend_from_slice(format!("[{place}]").as_bytes());
            row(Value::Integer(place as i64), &full, value)
        }),
        _ => row(Value::Null, root, found),
    }
}

/// Whether a path shows this name without quotes.
fn is_plain(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_alphabetic) && name.iter().all(u8::is_ascii_alphanumeric)
}

fn push_row(
    key: Value<'_>,
    json: &[u8],
    (full, path): (&[u8], &[u8]),
    workspace: Workspace<'_>,
    rows: &mut Vec<u8>,
) -> Result<(), Fault> {
    let nested = matches!(json.first(), Some(b'{' | b'['));
    let value = if nested { Value::Text(json::minified(json, workspace)?) } else { value::of_json(json, workspace)? };
    let atom = if nested { Value::Null } else { value };
    for column in [key, value, Value::text(json::type_name(json)), atom, Value::Text(full), Value::Text(path)] {
        push_field(FieldValue::Value(column), rows);
    }
    Ok(())
}
