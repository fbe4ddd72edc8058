//! Parts of a schema that are valid but probably mistakes.
//!
//! JSON Schema ignores unknown keywords (2020-12, core, section 6.5), so a misspelled one checks nothing. Nor does it object to rules
//! that exclude each other, with which every document is refused.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use serde_json::{Map, Value as Json};

use super::keywords;

/// Largest number of reported parts.
pub const LINTS_MAX: usize = 20;
/// Largest number of changed letters between a keyword and a misspelled one.
const MISSPELLED_MAX: usize = 2;
/// Longest name that is compared with the keywords, in bytes.
const COMPARED_BYTES_MAX: usize = 40;
/// Keywords of a lower and an upper bound of the same quantity.
const BOUNDS: [(&str, &str); 5] = [
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minContains", "maxContains"),
];

pub(super) fn of(schema: &Json) -> Vec<String> {
    let (mut references, mut lints) = (Vec::new(), Vec::new());
    let _ = keywords::visit(schema, "", &mut |keywords, _| {
        references.extend(keywords.get("$ref").and_then(Json::as_str).map(str::to_owned));
        ControlFlow::Continue(())
    });
    let _ = keywords::visit(schema, "", &mut |keywords, pointer| {
        lints.extend(of_one(keywords, pointer, &references));
        if lints.len() < LINTS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    lints.truncate(LINTS_MAX);
    lints
}

/// The lints of one schema; its subschemas are not searched. An unknown keyword into which a `$ref` points holds schemas.
fn of_one(keywords: &Map<String, Json>, pointer: &str, references: &[String]) -> Vec<String> {
    let unknown =
        keywords.keys().filter(|name| !name.starts_with("x-") && !keywords::all().any(|known| known == *name));
    let mut lints = Vec::new();
    for name in unknown {
        let place = format!("{pointer}{}", super::pointer(name));
        let is_inside = |reference: &String| {
            let rest = reference.strip_prefix('#').and_then(|at| at.strip_prefix(&*place));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if !references.iter().any(is_inside) {
            let meant = meant(name).map(|known| format!(": `{known}`?")).unwrap_or_default();
            lints.push(format!("{place} is no keyword of JSON Schema and checks nothing{meant}"));
        }
    }
    for (low, high) in BOUNDS {
        if let (Some(least), Some(most)) = (keywords.get(low), keywords.get(high))
            && compare(least, most) == Some(Ordering::Greater)
        {
            lints.push(format!("{pointer}/{low} is {least} and {high} is {most}: no value fits both"));
        }
    }
    lints.extend(forbidden(keywords).map(|name| {
        format!(
            "{pointer}/required has {}, which `properties` does not have and `additionalProperties` forbids: no object fits both",
            Json::from(name)
        )
    }));
    lints
}

/// The keyword that a name is probably a misspelling of.
fn meant(name: &str) -> Option<&'static str> {
    if name.len() > COMPARED_BYTES_MAX {
        return None;
    }
    let differing = |known: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase());
    let closest = keywords::all().map(|known| (differing(known), known)).min()?;
    let is_near = closest.0 <= MISSPELLED_MAX && 2 * closest.0 < name.len();
    is_near.then_some(closest.1)
}

fn compare(one: &Json, other: &Json) -> Option<Ordering> {
    match (one.as_i64(), other.as_i64()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

/// Names that an object must have and may not have.
fn forbidden(keywords: &Map<String, Json>) -> impl Iterator<Item = &str> {
    let is_closed =
        keywords.get("additionalProperties") == Some(&Json::Bool(false)) && !keywords.contains_key("patternProperties");
    let properties = keywords.get("properties").and_then(Json::as_object);
    let required = keywords.get("required").and_then(Json::as_array).filter(|_| is_closed);
    let names = required.into_iter().flatten().filter_map(Json::as_str);
    names.filter(move |name| properties.is_none_or(|properties| !properties.contains_key(*name)))
}
