//! Changing JSON: `json_set`, `json_insert`, `json_replace`, `json_remove` and `json_patch`, as SQLite has them.
//!
//! A text is valid and minified when it comes here, and so is each result: what is changed is a range of its bytes. Every change
//! copies the text, which counts against the budget as any result does.

use bumpalo::collections::Vec as BumpVec;

use super::error::Fault;
use super::json::{self, PathStep};
use super::value::{self, Value};
use super::workspace::{TextBuilder, Workspace};

/// Which values [`put`] puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// Where there is none yet.
    Insert,
    /// In the place of another.
    Replace,
    /// Both.
    Set,
}

/// The text with a value at the path. As it is where the edit does not put one there, or where the path leads through what is no object
/// or array, or beyond the place behind an array's last element.
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
        // A step from the end counts the elements first.
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

/// Puts a value behind the last member of a container, inside as many new objects and arrays as steps are left.
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

/// Whether an index is that of the place behind the last of so many elements: `[#]`, or their number.
fn is_behind(index: i64, elements: usize) -> bool {
    index == json::BEHIND_LAST || usize::try_from(index) == Ok(elements)
}

/// The text without what lies at the path; `None`: without all of it.
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
    // With the comma behind it, or that before the last.
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

/// The target with a merge patch (RFC 7396). Nested as deep as valid JSON is: 128 times.
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

/// The value of an object's field, by its name as another text has it.
fn field<'a>(object: &'a [u8], name: &'a [u8], workspace: Workspace<'a>) -> Result<Option<&'a [u8]>, Fault> {
    let Value::Text(name) = value::of_json(name, workspace)? else { return Ok(None) };
    Ok(std::str::from_utf8(name).ok().and_then(|name| PathStep::Field(name).of(object)))
}

/// The steps of a path, all of which are checked.
fn steps<'a, 'p>(path: &'p [u8], workspace: Workspace<'a>) -> Result<BumpVec<'a, PathStep<'p>>, Fault>
where
    'p: 'a,
{
    let mut rest = json::steps_of(path)?;
    // Each takes two bytes at least.
    let mut steps = workspace.list(rest.len() / 2)?;
    while !rest.is_empty() {
        let (step, after) = json::first_step(rest).ok_or(Fault::JsonPath)?;
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

fn push_name(name: &str, out: &mut TextBuilder<'_>) -> Result<(), Fault> {
    super::json_calls::push_string(name.as_bytes(), out)?;
    out.push(b':')
}

/// Where a part of a text begins.
fn offset(text: &[u8], part: &[u8]) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}
