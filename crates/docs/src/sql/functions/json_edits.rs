//! Changes of JSON: `json_set`, `json_insert`, `json_replace`, `json_remove` and `json_patch`, as in SQLite.
//!
//! Texts are valid and minified, and so are the results: a change replaces a range of bytes. Every change copies the text,
//! which counts against the budget as any result does.

use bumpalo::collections::Vec as BumpVec;

use crate::sql::limits::Fault;
use crate::sql::values::json::{self, PathStep};
use crate::sql::values::{TextBuilder, Value, Workspace, value};

/// Which values [`put`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Only new ones.
    Insert,
    /// Only existing ones.
    Replace,
    /// Both.
    Set,
}

/// The text with a value at the path. It is unchanged if the edit excludes that, if the path leads through a value that is no
/// object or array, or if it leads beyond the place after an array's last element.
pub(crate) fn put<'a>(
    text: &'a [u8],
    path: &[u8],
    json: &[u8],
    edit: Edit,
    workspace: Workspace<'a>,
) -> Result<&'a [u8], Fault> {
    let steps = steps(path, workspace)?;
    let mut found = text;
    for (place, step) in steps.iter().enumerate() {
        // A step counted from the end counts the elements first.
        workspace.meter.tick_bytes(2 * found.len())?;
        match step.of(found) {
            Some(inner) => found = inner,
            None if edit == Edit::Replace => return Ok(text),
            None => return append(text, found, &steps[place..], json, workspace),
        }
    }
    if edit == Edit::Insert {
        return Ok(text);
    }
    let at = offset(text, found);
    let mut out = workspace.text();
    out.extend(&text[..at])?;
    out.extend(json)?;
    out.extend(&text[at + found.len()..])?;
    Ok(out.finish())
}

/// Appends a value to a container, nested in new objects and arrays for the remaining steps.
fn append<'a>(
    text: &'a [u8],
    container: &'a [u8],
    steps: &[PathStep<'_>],
    json: &[u8],
    workspace: Workspace<'a>,
) -> Result<&'a [u8], Fault> {
    let Some((first, inner)) = steps.split_first() else { return Ok(text) };
    let fits = match (*first, container.first()) {
        (PathStep::Field(_), Some(b'{')) => true,
        (PathStep::Item(index), Some(b'[')) => is_behind(index, json::items(container).count()),
        _ => false,
    };
    let is_first = |step: &PathStep<'_>| !matches!(*step, PathStep::Item(index) if !is_behind(index, 0));
    if !fits || !inner.iter().all(is_first) {
        return Ok(text);
    }
    let end = offset(text, container) + container.len() - 1;
    let mut out = workspace.text();
    out.extend(&text[..end])?;
    if container.len() > "{}".len() {
        out.push(b',')?;
    }
    if let PathStep::Field(name) = first {
        push_name(name, &mut out)?;
    }
    for step in inner {
        match step {
            PathStep::Field(name) => {
                out.push(b'{')?;
                push_name(name, &mut out)?;
            }
            PathStep::Item(_) => out.push(b'[')?,
        }
    }
    out.extend(json)?;
    for step in inner.iter().rev() {
        out.push(if matches!(step, PathStep::Field(_)) { b'}' } else { b']' })?;
    }
    out.extend(&text[end..])?;
    Ok(out.finish())
}

/// Whether an index is the place after the last element: `[#]`, or the number of elements.
fn is_behind(index: i64, elements: usize) -> bool {
    index == json::BEHIND_LAST || usize::try_from(index) == Ok(elements)
}

/// The text without the value at the path; `None` if the path is the whole text.
pub(crate) fn remove<'a>(text: &'a [u8], path: &[u8], workspace: Workspace<'a>) -> Result<Option<&'a [u8]>, Fault> {
    let steps = steps(path, workspace)?;
    let (mut container, mut found) = (None, text);
    for step in &steps {
        workspace.meter.tick_bytes(2 * found.len())?;
        let Some(inner) = step.of(found) else { return Ok(Some(text)) };
        container = Some(found);
        found = inner;
    }
    let Some(container) = container else { return Ok(None) };
    workspace.meter.tick_bytes(container.len())?;
    let name = json::fields(container).find(|(_, value)| std::ptr::eq(value.as_ptr(), found.as_ptr()));
    let (mut from, mut to) = (offset(text, name.map_or(found, |(name, _)| name)), offset(text, found) + found.len());
    // With the comma after it, or for the last member the comma before it.
    if text.get(to) == Some(&b',') {
        to += 1;
    } else if text[from - 1] == b',' {
        from -= 1;
    }
    let mut out = workspace.text_within(text.len())?;
    out.extend(&text[..from])?;
    out.extend(&text[to..])?;
    Ok(Some(out.finish()))
}

/// The target with a merge patch applied (RFC 7396). It recurses as deep as valid JSON nests: 128 levels.
pub(crate) fn patch<'a>(
    target: Option<&'a [u8]>,
    patch: &'a [u8],
    out: &mut TextBuilder<'a>,
    workspace: Workspace<'a>,
) -> Result<(), Fault> {
    if patch.first() != Some(&b'{') {
        return out.extend(patch);
    }
    let target = target.filter(|target| target.first() == Some(&b'{')).unwrap_or(b"{}");
    let meter = workspace.meter;
    out.push(b'{')?;
    let mut is_first = true;
    let mut begin = |name: &[u8], out: &mut TextBuilder<'a>| {
        if !std::mem::take(&mut is_first) {
            out.push(b',')?;
        }
        out.extend(name)?;
        out.push(b':')
    };
    for (name, old) in json::fields(target) {
        meter.tick_bytes(old.len() + patch.len())?;
        match field(patch, name, workspace)? {
            Some(b"null") => {}
            None => {
                begin(name, out)?;
                out.extend(old)?;
            }
            Some(new) => {
                begin(name, out)?;
                self::patch(Some(old), new, out, workspace)?;
            }
        }
    }
    for (name, new) in json::fields(patch).filter(|(_, new)| *new != b"null") {
        meter.tick_bytes(new.len() + target.len())?;
        if field(target, name, workspace)?.is_none() {
            begin(name, out)?;
            self::patch(None, new, out, workspace)?;
        }
    }
    out.push(b'}')
}

/// The value of an object's field, by its quoted name in another text.
fn field<'a>(object: &'a [u8], name: &'a [u8], workspace: Workspace<'a>) -> Result<Option<&'a [u8]>, Fault> {
    let Value::Text(name) = value::of_json(name, workspace)? else { return Ok(None) };
    Ok(std::str::from_utf8(name).ok().and_then(|name| PathStep::Field(name).of(object)))
}

/// The steps of a path, which is checked as a whole.
fn steps<'a, 'p>(path: &'p [u8], workspace: Workspace<'a>) -> Result<BumpVec<'a, PathStep<'p>>, Fault>
where
    'p: 'a,
{
    let mut rest = json::steps_of(path)?;
    // Each step has at least two bytes.
    let mut steps = workspace.list(rest.len() / 2)?;
    while !rest.is_empty() {
        let (step, after) = json::first_step(rest).ok_or(Fault::JsonPath)?;
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

fn push_name(name: &str, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    json::push_string(name.as_bytes(), out)?;
    out.push(b':')
}

/// The offset of a part in its text.
fn offset(text: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}
