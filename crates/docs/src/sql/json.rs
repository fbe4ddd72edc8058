//! Reaching inside a stored value by its JSON text: `->`, `->>` and dotted paths.
//!
//! Texts from documents are minified and well formed; text that a query made may be anything, so every step is checked.
//! Nesting is bounded by [`DEPTH_MAX`], and skipping a value does not recurse.

use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;

use super::error::Fault;
use super::value::{self, Value};

/// Deepest nesting that is walked.
const DEPTH_MAX: usize = 1000;

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A field of an object.
    Field(String),
    /// An element of an array; negative ones count from the end, −1 being the last.
    Item(i64),
}

fn spaces(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// The end of the string that starts at `at`.
fn string_end(text: &[u8], at: usize) -> Option<usize> {
    let mut i = at + 1;
    loop {
        match text.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

/// The end of the value that starts at `at`, without checking what is inside beyond its brackets.
fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => {
            let (mut depth, mut i) = (0usize, at);
            loop {
                match text.get(i)? {
                    b'"' => {
                        i = string_end(text, i)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                i += 1;
                match depth {
                    0 => return Some(i),
                    DEPTH_MAX.. => return None,
                    _ => {}
                }
            }
        }
        _ => {
            let is_end = |b: &u8| matches!(b, b',' | b'}' | b']' | b':' | b' ' | b'\t' | b'\n' | b'\r');
            let length = text[at..].iter().position(is_end).unwrap_or(text.len() - at);
            (length > 0).then_some(at + length)
        }
    }
}

/// The value that one step leads to.
pub(crate) fn step<'a>(text: &'a [u8], step: &Step) -> Option<&'a [u8]> {
    match step {
        Step::Field(name) => field(text, name.as_bytes()),
        Step::Item(index) => item(text, *index),
    }
}

fn field<'a>(text: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut at = spaces(text, 0);
    if text.get(at) != Some(&b'{') {
        return None;
    }
    let arena = Bump::new(); // Takes memory only where a key has escapes.
    at = spaces(text, at + 1);
    while text.get(at) == Some(&b'"') {
        let end = string_end(text, at)?;
        let colon = spaces(text, end);
        let start = spaces(text, colon + 1);
        let value_end = value_end(text, start)?;
        if matches!(value::of_json(&text[at..end], &arena), Ok(Value::Text(key)) if key == name) {
            return Some(&text[start..value_end]);
        }
        at = spaces(text, value_end);
        if text.get(at) != Some(&b',') {
            return None;
        }
        at = spaces(text, at + 1);
    }
    None
}

fn item(text: &[u8], index: i64) -> Option<&[u8]> {
    let index =
        if index < 0 { items(text).count().checked_sub(index.unsigned_abs() as usize)? } else { index as usize };
    items(text).nth(index)
}

/// The elements of an array; none of anything else.
pub(crate) fn items(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let open = spaces(text, 0);
    let mut at = if text.get(open) == Some(&b'[') { spaces(text, open + 1) } else { text.len() };
    std::iter::from_fn(move || {
        let end = value_end(text, at).filter(|_| text[at] != b']')?;
        let value = &text[at..end];
        at = spaces(text, end);
        at = if text.get(at) == Some(&b',') { spaces(text, at + 1) } else { text.len() };
        Some(value)
    })
}

/// The names and values of an object's fields, the names as written; none of anything else.
pub(crate) fn fields(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let open = spaces(text, 0);
    let mut at = if text.get(open) == Some(&b'{') { spaces(text, open + 1) } else { text.len() };
    std::iter::from_fn(move || {
        if text.get(at) != Some(&b'"') {
            return None;
        }
        let end = string_end(text, at)?;
        let start = spaces(text, spaces(text, end) + 1);
        let stop = value_end(text, start)?;
        let field = (&text[at..end], &text[start..stop]);
        at = spaces(text, stop);
        at = if text.get(at) == Some(&b',') { spaces(text, at + 1) } else { text.len() };
        Some(field)
    })
}

/// Whether a text is JSON, as RFC 8259 has it.
pub(crate) fn is_valid(text: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok()
}

/// Valid JSON without the whitespace around it.
pub(crate) fn trimmed(text: &[u8]) -> &[u8] {
    let start = spaces(text, 0);
    value_end(text, start).map_or(text, |end| &text[start..end])
}

/// Valid JSON without the whitespace between its parts.
pub(crate) fn minified<'a>(text: &'a [u8], arena: &'a Bump) -> &'a [u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    if !text.iter().any(is_space) {
        return text;
    }
    let mut out = BumpVec::with_capacity_in(text.len(), arena);
    let (mut inside, mut escaped) = (false, false);
    for &byte in text {
        if inside || !is_space(&byte) {
            out.push(byte);
        }
        if !escaped && byte == b'"' {
            inside = !inside;
        }
        escaped = inside && !escaped && byte == b'\\';
    }
    out.into_bump_slice()
}

/// What `json_type` calls a value.
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

/// The steps of SQLite's path text: `$.a[1]."b c"[#-1]`.
pub(crate) fn parse_path(path: &[u8]) -> Option<Vec<Step>> {
    let path = std::str::from_utf8(path).ok()?;
    let mut rest = path.strip_prefix('$')?;
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix(".\"") {
            let (name, after) = quoted.split_once('"')?;
            steps.push(Step::Field(name.to_owned()));
            rest = after;
        } else if let Some(named) = rest.strip_prefix('.') {
            let end = named.find(['.', '[']).unwrap_or(named.len());
            let name = Some(&named[..end]).filter(|name| !name.is_empty())?;
            steps.push(Step::Field(name.to_owned()));
            rest = &named[end..];
        } else {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(Step::Item(match index.strip_prefix("#-") {
                Some(from_end) => -from_end.parse::<i64>().ok().filter(|&n| n > 0)?,
                None if index == "#" => i64::MAX, // Behind the last: nothing is there.
                None => index.parse::<u32>().ok()?.into(),
            }));
            rest = after;
        }
    }
    Some(steps)
}

/// `left -> right` (`as_text` false) and `left ->> right`.
pub(crate) fn arrow<'a>(left: Value<'a>, right: Value<'a>, as_text: bool, arena: &'a Bump) -> Result<Value<'a>, Fault> {
    if left.is_null() || right.is_null() {
        return Ok(Value::Null);
    }
    let text = left.to_text(arena).unwrap_or_default();
    if !is_valid(text) {
        return Err(Fault::Json);
    }
    let found = match right {
        Value::Integer(index) => step(text, &Step::Item(index)),
        Value::Text(path) if path.first() == Some(&b'$') => {
            let steps = parse_path(path).ok_or(Fault::Json)?;
            steps.iter().try_fold(text, |text, s| step(text, s))
        }
        other => {
            let name = other.to_text(arena).unwrap_or_default();
            let name = std::str::from_utf8(name).map_err(|_| Fault::Json)?;
            step(text, &Step::Field(name.to_owned()))
        }
    };
    match found {
        None => Ok(Value::Null),
        Some(json) if as_text && !matches!(json.first(), Some(b'{' | b'[')) => value::of_json(json, arena),
        Some(json) => Ok(Value::Text(minified(json, arena))),
    }
}
