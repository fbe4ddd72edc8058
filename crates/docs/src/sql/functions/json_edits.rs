//! Changes of JSON: `json_set`, `json_insert`, `json_replace`, `json_remove` and `json_patch`, as in SQLite.
//!
//! Texts are valid and minified, and so are the results: a change replaces a range of bytes. Every change copies the text,
//! which counts against the budget as any result does.

use bumpalo::Bump;
use bumpalo::collections::Vec as BumpVec;

use crate::sql::limits::{Fault, Meter};
use crate::sql::values::json::{self, PathStep};
use crate::sql::values::value::compare;
use crate::sql::values::{TextBuilder, Workspace, value};

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
    // Each field of the patch changes the first field of its name, as in SQLite: names may occur more than once on both sides.
    let mut fields = workspace.list(json::fields(target).count() + json::fields(patch).count())?;
    fields.extend(json::fields(target));
    for (name, new) in json::fields(patch) {
        workspace.meter.tick_bytes(new.len() + size_of_val(&fields[..]))?;
        let place = place_of(name, &fields, workspace)?;
        if new == b"null" {
            place.map(|place| fields.remove(place));
            continue;
        }
        let value = match new.first() {
            Some(b'{') => {
                let mut text = workspace.text();
                self::patch(place.map(|place| fields[place].1), new, &mut text, workspace)?;
                text.finish()
            }
            _ => new,
        };
        match place {
            Some(place) => fields[place].1 = value,
            None => fields.push((name, value)),
        }
    }
    out.push(b'{')?;
    for (place, (name, value)) in fields.iter().enumerate() {
        if place > 0 {
            out.push(b',')?;
        }
        out.extend(name)?;
        out.push(b':')?;
        out.extend(value)?;
    }
    out.push(b'}')
}

/// The place of the first field with a name; names are compared as texts, whatever their escapes.
fn place_of<'a>(
    name: &'a [u8],
    fields: &[(&'a [u8], &'a [u8])],
    workspace: Workspace<'a>,
) -> Result<Option<usize>, Fault> {
    let has_escape = |name: &[u8]| name.contains(&b'\\');
    let mut decoded = Bump::new(); // Allocates only for a name with escapes.
    let (meter, is_escaped) = (Meter::unbounded(), has_escape(name));
    for (place, (known, _)) in fields.iter().enumerate() {
        let mut is_same = name == *known;
        if !is_same && (is_escaped || has_escape(known)) {
            workspace.meter.tick_bytes(name.len() + known.len())?;
            decoded.reset();
            let text = |name| value::of_json(name, Workspace::new(&decoded, &meter));
            is_same = compare(text(name)?, text(known)?).is_eq();
        }
        if is_same {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

/// The steps of a path, which is checked as a whole.
fn steps<'a, 'p>(path: &'p [u8], workspace: Workspace<'a>) -> Result<BumpVec<'a, PathStep<'p>>, Fault>
where
    'p: 'a,
{
    let all = json::steps_of(path)?;
    let mut rest = all;
    // Each step has at least two bytes.
    let mut steps = workspace.list(rest.len() / 2)?;
    while !rest.is_empty() {
        let (step, after) = json::first_step(rest).ok_or_else(|| json::malformed(all, rest))?;
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
