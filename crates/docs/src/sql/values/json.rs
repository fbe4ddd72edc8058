//! Access to parts of a value by its JSON text: `->`, `->>` and paths.
//!
//! Stored texts are minified and well formed; texts that a query computes may be anything, so every step is checked. Skipping a
//! value does not recurse.

use binjson::{skip_space, string_end, value_end};
use bumpalo::Bump;

use super::value::{self, Value};
use super::workspace::{TextBuilder, Workspace};
use crate::sql::limits::{Fault, Meter};

/// Most bytes of an escape in a string, which may denote one byte.
const ESCAPE_BYTES_MAX: usize = 6;

/// The index `[#]`: the position after the last element, which has no value.
pub(crate) const BEHIND_LAST: i64 = i64::MAX;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field of an object.
    Field(String),
    /// An element of an array; negative indexes count from the end, −1 is the last.
    Item(i64),
}

/// A step of a path that is computed at execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathStep<'p> {
    /// See [`Step::Field`].
    Field(&'p str),
    /// See [`Step::Item`].
    Item(i64),
}

impl Step {
    /// The same, borrowed.
    pub(crate) fn as_path_step(&self) -> PathStep<'_> {
        match self {
            Step::Field(name) => PathStep::Field(name),
            Step::Item(index) => PathStep::Item(*index),
        }
    }
}

impl PathStep<'_> {
    /// The value at this step.
    pub(crate) fn of<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        match *self {
            PathStep::Field(name) => field(text, name.as_bytes()),
            PathStep::Item(index) => item(text, index),
        }
    }
}

/// The value at one step of a constant path.
pub(crate) fn step<'a>(text: &'a [u8], step: &Step) -> Option<&'a [u8]> {
    step.as_path_step().of(text)
}

fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut at = skip_space(text, 0);
    if text.get(at) != Some(&b'{') {
        return None;
    }
    let mut arena = Bump::new(); // Allocates only for a key with escapes.
    let meter = Meter::unbounded();
    at = skip_space(text, at + 1);
    while text.get(at) == Some(&b'"') {
        let end = string_end(text, at)?;
        let colon = skip_space(text, end);
        let start = skip_space(text, colon + 1);
        let value_end = value_end(text, start)?;
        // With escapes a text is at most six times as long.
        if end - at <= ESCAPE_BYTES_MAX * name.len() + 2 {
            let key = value::of_json(&text[at..end], Workspace::new(&arena, &meter));
            if matches!(key, Ok(Value::Text(key)) if key == name) {
                return Some(&text[start..value_end]);
            }
            arena.reset();
        }
        at = skip_space(text, value_end);
        if text.get(at) != Some(&b',') {
            return None;
        }
        at = skip_space(text, at + 1);
    }
    None
}

fn item(text: &[u8], index: i64) -> Option<&[u8]> {
    let index =
        if index < 0 { items(text).count().checked_sub(index.unsigned_abs() as usize)? } else { index as usize };
    items(text).nth(index)
}

/// The elements of an array; none for any other value.
pub(crate) fn items(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let open = skip_space(text, 0);
    let mut at = if text.get(open) == Some(&b'[') { skip_space(text, open + 1) } else { text.len() };
    std::iter::from_fn(move || {
        let end = value_end(text, at).filter(|_| text[at] != b']')?;
        let value = &text[at..end];
        at = skip_space(text, end);
        at = if text.get(at) == Some(&b',') { skip_space(text, at + 1) } else { text.len() };
        Some(value)
    })
}

/// The names and values of an object's fields, names as written; none for any other value.
pub(crate) fn fields(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let open = skip_space(text, 0);
    let mut at = if text.get(open) == Some(&b'{') { skip_space(text, open + 1) } else { text.len() };
    std::iter::from_fn(move || {
        if text.get(at) != Some(&b'"') {
            return None;
        }
        let end = string_end(text, at)?;
        let start = skip_space(text, skip_space(text, end) + 1);
        let stop = value_end(text, start)?;
        let field = (&text[at..end], &text[start..stop]);
        at = skip_space(text, stop);
        at = if text.get(at) == Some(&b',') { skip_space(text, at + 1) } else { text.len() };
        Some(field)
    })
}

/// Whether a text is JSON by RFC 8259, and nested no deeper than documents may be.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    is_shallow(text) && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// Whether its containers are nested no deeper than in a document.
fn is_shallow(text: &[u8]) -> bool {
    let (mut depth, mut at) = (0usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                // A string without an end is no JSON: nothing behind it matters.
                at = string_end(text, at).unwrap_or(text.len());
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > binjson::DEPTH_MAX {
            return false;
        }
        at += 1;
    }
    true
}

/// Valid JSON without the whitespace around it.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    let start = skip_space(text, 0);
    value_end(text, start).map_or(text, |end| &text[start..end])
}

/// Valid JSON without the whitespace between its parts.
pub(crate) fn minified<'a>(text: &'a [u8], workspace: Workspace<'a>) -> Result<&'a [u8], Fault> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    workspace.meter.tick_bytes(text.len())?;
    if !text.iter().any(is_space) {
        return Ok(text);
    }
    let mut out = workspace.text_within(text.len())?;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let end = if *byte == b'"' { string_end(text, at).unwrap_or(text.len()) } else { at + 1 };
        if !is_space(byte) {
            out.extend(&text[at..end])?;
        }
        at = end;
    }
    Ok(out.finish())
}

/// The name of a value's type in `json_type`.
pub(crate) fn type_name(json: &[u8]) -> &'static str {
    match json.first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "text",
        Some(b't') => "true",
        Some(b'f') => "false",
        Some(b'n') | None => "null",
        Some(_) if json.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) => "real",
        Some(_) => "integer",
    }
}

/// The value at a path in SQLite's syntax, `$.a[1]."b c"[#-1]`; `None` if there is none. The whole path is checked before the
/// first step.
pub(crate) fn at_path<'a>(text: &'a [u8], path: &[u8], meter: &Meter<'_>) -> Result<Option<&'a [u8]>, Fault> {
    along(text, steps_of(path)?, meter)
}

/// The value at the steps of a path, without its `$`.
fn along<'a>(text: &'a [u8], path: &str, meter: &Meter<'_>) -> Result<Option<&'a [u8]>, Fault> {
    let mut rest = path;
    while !rest.is_empty() {
        (_, rest) = first_step(rest).ok_or_else(|| malformed(path, rest))?;
    }
    let (mut found, mut rest) = (text, path);
    while let Some((step, after)) = first_step(rest) {
        // A step counted from the end counts the elements first.
        meter.tick_bytes(2 * found.len())?;
        let Some(inner) = step.of(found) else { return Ok(None) };
        (found, rest) = (inner, after);
    }
    Ok(Some(found))
}

/// The part of a path after `$`.
pub(crate) fn steps_of(path: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(path).ok().and_then(|path| path.strip_prefix('$')).ok_or(Fault::JsonPath(1))
}

/// The fault of steps whose rest does not begin with a step. The characters of the whole path are counted, with its `$`.
pub(crate) fn malformed(steps: &str, rest: &str) -> Fault {
    let read = steps[..steps.len() - rest.len()].chars().count();
    Fault::JsonPath(u32::try_from(read).unwrap_or(u32::MAX).saturating_add(2))
}

/// Where a constant path is malformed: its first character that does not fit, from 1.
pub(crate) fn mistake_in(path: &[u8]) -> Option<u32> {
    match at_path(b"null", path, &Meter::unbounded()) {
        Err(Fault::JsonPath(at)) => Some(at),
        _ => None,
    }
}

/// The first step, and the rest.
pub(crate) fn first_step(rest: &str) -> Option<(PathStep<'_>, &str)> {
    if let Some(quoted) = rest.strip_prefix(".\"") {
        let (name, after) = quoted.split_once('"')?;
        return Some((PathStep::Field(name), after));
    }
    if let Some(named) = rest.strip_prefix('.') {
        let end = named.find(['.', '[']).unwrap_or(named.len());
        let name = Some(&named[..end]).filter(|name| !name.is_empty())?;
        return Some((PathStep::Field(name), &named[end..]));
    }
    let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
    let index = match index.strip_prefix("#-") {
        Some(from_end) => -digits(from_end).filter(|&n| n > 0)?,
        None if index == "#" => BEHIND_LAST,
        None => digits(index)?,
    };
    Some((PathStep::Item(index), after))
}

/// An index. No array has an element at one that exceeds 64 bits.
fn digits(index: &str) -> Option<i64> {
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| index.parse().unwrap_or(BEHIND_LAST - 1))
}

/// `left -> right` (`as_text` false) and `left ->> right`.
pub(crate) fn arrow<'a>(
    left: Value<'a>,
    right: Value<'a>,
    as_text: bool,
    workspace: Workspace<'a>,
) -> Result<Value<'a>, Fault> {
    if left.is_null() || right.is_null() {
        return Ok(Value::Null);
    }
    let text = left.to_text(workspace)?.unwrap_or_default();
    workspace.meter.tick_bytes(2 * text.len())?;
    if !is_valid(text) {
        return Err(Fault::Json);
    }
    let found = match right {
        Value::Integer(index) => PathStep::Item(index).of(text),
        other => match other.to_text(workspace)?.unwrap_or_default() {
            path @ [b'$', ..] => at_path(text, path, workspace.meter)?,
            // As in SQLite, an index in brackets is a step and any other text a name.
            name => match std::str::from_utf8(name).map_err(|_| Fault::NotUtf8)? {
                steps if steps.len() > "[]".len() && steps.starts_with('[') && steps.ends_with(']') => {
                    along(text, steps, workspace.meter)?
                }
                "" => return Err(Fault::JsonPath(1)),
                name => PathStep::Field(name).of(text),
            },
        },
    };
    match found {
        None => Ok(Value::Null),
        Some(json) if as_text && !matches!(json.first(), Some(b'{' | b'[')) => value::of_json(json, workspace),
        Some(json) => Ok(Value::Text(minified(json, workspace)?)),
    }
}

/// Appends a text as a JSON string.
pub(in crate::sql) fn push_string(text: &[u8], out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    out.push(b'"')?;
    for &byte in text {
        match binjson::escape_of(byte) {
            Some((escape, bytes)) => out.extend(&escape[..bytes])?,
            None => out.push(byte)?,
        }
    }
    out.push(b'"')
}
