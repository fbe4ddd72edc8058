//! Counts the subschemas that apply to one value through `allOf`, `$ref` and similar keywords, each as often as it is reached.
//!
//! If each definition refers twice to the next one, the number doubles with each definition: a file of 1 KB unfolds to more
//! subschemas than can be compiled or applied. So the number is computed and limited before the library sees a schema.
//! Subschemas of fields and elements are not unfolded: each applies to a value of its own, which is counted when it is checked
//! ([`super::meter`]).

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

/// Limit of subschemas that apply to one value.
const SUBSCHEMAS_MAX: u64 = 10_000;
/// Limit of their sum over all schemas with `unevaluatedProperties` or `unevaluatedItems`, which are compiled unfolded.
const UNEVALUATED_MAX: u64 = 50_000;
/// Longest chain of subschemas that reach one another on one value.
const CHAIN_MAX: usize = 128;
/// The count of a schema of the standard itself.
const STANDARD: u64 = 100;
/// Keywords that lead to other subschemas on the same value, or are only informative.
const IDLE: [&str; 28] = [
    "$anchor",
    "$comment",
    "$defs",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$schema",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "deprecated",
    "description",
    "else",
    "examples",
    "id",
    "if",
    "not",
    "oneOf",
    "readOnly",
    "then",
    "title",
    "writeOnly",
    "dependencies",
    "dependentSchemas",
];

/// Result for a schema within the limits.
#[derive(Debug)]
pub(super) struct Unfolding {
    /// The largest number of subschemas that apply to one value without accessing it.
    pub(super) idle: u64,
    /// Whether the schema has `unevaluatedProperties` or `unevaluatedItems`.
    pub(super) has_unevaluated: bool,
}

type Object = Map<String, Json>;

/// Counts a schema's subschemas; an error if there are too many.
pub(super) fn of(schema: &Json) -> Result<Unfolding, String> {
    let mut places = Places::new(schema);
    places.enter(schema, schema);
    let mut counted = Counted { places: &places, by_object: HashMap::new() };
    let (mut idle, mut unevaluated) = (0, 0);
    for object in &places.objects {
        let Count { subschemas: count, idle: idle_here, .. } = counted.count(object, 0)?;
        idle = idle_here.max(idle);
        if object.contains_key("unevaluatedProperties") || object.contains_key("unevaluatedItems") {
            unevaluated += count;
        }
        if unevaluated > UNEVALUATED_MAX {
            return Err(format!(
                "its schemas with `unevaluatedProperties` or `unevaluatedItems` unfold to over {UNEVALUATED_MAX} subschemas"
            ));
        }
    }
    Ok(Unfolding { idle, has_unevaluated: unevaluated > 0 })
}

/// Every object of a schema's text, and the names that references use.
struct Places<'s> {
    root: &'s Json,
    objects: Vec<&'s Object>,
    /// The enclosing schema with an `$id`, by an object's address.
    bases: HashMap<usize, &'s Json>,
    anchors: HashMap<&'s str, Vec<&'s Json>>,
    /// Schemas by the last segment of their `$id`.
    identified: HashMap<&'s str, Vec<&'s Json>>,
}

fn address(object: &Object) -> usize {
    std::ptr::from_ref(object) as usize
}

impl<'s> Places<'s> {
    fn new(root: &'s Json) -> Places<'s> {
        let (bases, anchors, identified) = (HashMap::new(), HashMap::new(), HashMap::new());
        Places { root, objects: Vec::new(), bases, anchors, identified }
    }

    /// Recursion: as deep as JSON text nests ([`super::SCHEMA_DEPTH_MAX`]).
    fn enter(&mut self, value: &'s Json, base: &'s Json) {
        match value {
            Json::Array(values) => values.iter().for_each(|value| self.enter(value, base)),
            Json::Object(object) => {
                let id = object.get("$id").or_else(|| object.get("id")).and_then(Json::as_str);
                let id = id.filter(|id| !id.starts_with('#'));
                let base = if id.is_some() { value } else { base };
                if let Some(id) = id {
                    self.identified.entry(last_part(id)).or_default().push(value);
                }
                for anchor in ["$anchor", "$dynamicAnchor", "$id", "id"] {
                    if let Some(name) = object.get(anchor).and_then(Json::as_str) {
                        self.anchors.entry(name.trim_start_matches('#')).or_default().push(value);
                    }
                }
                self.bases.insert(address(object), base);
                self.objects.push(object);
                object.values().for_each(|value| self.enter(value, base));
            }
            _ => {}
        }
    }

    /// The possible targets of a reference. Extra targets do no harm.
    fn targets(&self, from: &Object, reference: &str) -> Vec<&'s Json> {
        let (file, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let bases = match file {
            "" => vec![self.bases.get(&address(from)).copied().unwrap_or(self.root), self.root],
            file => self.identified.get(last_part(file)).cloned().unwrap_or_default(),
        };
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return self.anchors.get(fragment).cloned().unwrap_or_default();
        }
        let pointer = percent_decoded(fragment);
        let mut targets: Vec<&Json> = bases.into_iter().filter_map(|base| base.pointer(&pointer)).collect();
        targets.dedup_by(|one, other| std::ptr::eq(*one, *other));
        targets
    }
}

fn last_part(id: &str) -> &str {
    let id = id.split('#').next().unwrap_or_default();
    id.rsplit(['/', ':']).next().unwrap_or_default()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let hex = (first == b'%').then(|| behind.get(..2)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

struct Counted<'p, 's> {
    places: &'p Places<'s>,
    /// By an object's address; `None` while it is being counted.
    by_object: HashMap<usize, Option<Count>>,
}

/// The subschemas that a schema applies to one value.
#[derive(Clone, Copy)]
struct Count {
    subschemas: u64,
    /// Those that do not access the value.
    idle: u64,
    /// Their longest chain.
    longest: usize,
}

impl<'s> Counted<'_, 's> {
    /// Counts the subschemas that apply to the same value. Recursion: up to [`CHAIN_MAX`].
    fn count(&mut self, object: &'s Object, above: usize) -> Result<Count, String> {
        let too_long = || {
            let what = "of its subschemas lead to one another on one value (`$ref`, `allOf`, ...)";
            Err(format!("over {CHAIN_MAX} {what}"))
        };
        match self.by_object.get(&address(object)) {
            _ if above > CHAIN_MAX => return too_long(),
            Some(Some(known)) if above + known.longest > CHAIN_MAX => return too_long(),
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err("it leads back to itself on one value (`$ref`, `allOf`, ...)".to_string()),
            None => {}
        }
        self.by_object.insert(address(object), None);
        let is_idle = object.keys().all(|keyword| IDLE.contains(&keyword.as_str()));
        let mut count = Count { subschemas: 1, idle: u64::from(is_idle), longest: 0 };
        for target in self.led_to(object) {
            let below = match target.as_object() {
                Some(target) => self.count(target, above + 1)?,
                None => Count { subschemas: 1, idle: 1, longest: 0 },
            };
            count.subschemas += below.subschemas;
            count.idle += below.idle;
            count.longest = count.longest.max(below.longest + 1);
            if count.subschemas > SUBSCHEMAS_MAX {
                let what = "subschemas for one value (`$ref`, `allOf`, ...)";
                return Err(format!("it unfolds to over {SUBSCHEMAS_MAX} {what}"));
            }
        }
        if object.get("$ref").and_then(Json::as_str).is_some_and(|reference| reference.contains("json-schema.org/")) {
            count.subschemas += STANDARD;
        }
        self.by_object.insert(address(object), Some(count));
        Ok(count)
    }

    /// The subschemas that a schema applies to the same value.
    fn led_to(&self, object: &'s Object) -> Vec<&'s Json> {
        let mut led_to = Vec::new();
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(reference) = object.get(keyword).and_then(Json::as_str) {
                led_to.extend(self.places.targets(object, reference));
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            led_to.extend(object.get(keyword).and_then(Json::as_array).into_iter().flatten());
        }
        led_to.extend(["not", "if", "then", "else"].iter().filter_map(|keyword| object.get(*keyword)));
        for keyword in ["dependentSchemas", "dependencies"] {
            led_to.extend(object.get(keyword).and_then(Json::as_object).into_iter().flat_map(Map::values));
        }
        led_to.retain(|target| target.is_object() || target.is_boolean());
        led_to
    }
}
