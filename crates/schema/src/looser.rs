//! Whether a schema accepts every document that another one accepts: then the change from one to the other needs no check of stored
//! documents.
//!
//! Both schemas are compared as JSON, keyword by keyword. A keyword that is unknown here must be the same in both. The result is
//! `false` if the comparison cannot decide.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use super::plain::{Bound, Constant, REMARKS, Rule};

/// Keywords of one value, which [`Rule`] compares.
const OF_VALUES: [&str; 9] =
    ["type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"];
/// Keywords that only refuse values, independently of all others: without them a schema accepts more.
const REMOVABLE: [&str; 10] = [
    "pattern",
    "format",
    "multipleOf",
    "uniqueItems",
    "propertyNames",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "dependentRequired",
];
const OF_OBJECTS: [&str; 3] = ["properties", "required", "additionalProperties"];
/// Keywords whose result depends on other keywords or on the place of a subschema, so that subschemas cannot be compared alone.
const ENTANGLED: [&str; 7] = [
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
];
/// References into these are unaffected by changes elsewhere: the definitions themselves must be the same in both schemas.
const DEFINITIONS: [&str; 2] = ["#/$defs/", "#/definitions/"];

/// Whether `new` accepts all that `old` accepts.
pub(crate) fn is_looser(new: &Json, old: &Json) -> bool {
    new == old || !is_entangled(new) && !is_entangled(old) && accepts_all_of(new, old)
}

/// Whether any subschema has a keyword of [`ENTANGLED`], an identifier of its own, or a reference to anything but a definition. A
/// property of such a name counts too.
fn is_entangled(schema: &Json) -> bool {
    match schema {
        Json::Object(fields) => fields.iter().any(|(name, value)| match name.as_str() {
            "$ref" => !value.as_str().is_some_and(|to| DEFINITIONS.iter().any(|base| to.starts_with(base))),
            "$id" | "id" => value.is_string(),
            name => ENTANGLED.contains(&name) || is_entangled(value),
        }),
        Json::Array(elements) => elements.iter().any(is_entangled),
        _ => false,
    }
}

/// Recursion ends with the depth of the JSON, which its parser bounds.
fn accepts_all_of(new: &Json, old: &Json) -> bool {
    match (new, old) {
        _ if new == old => true,
        (Json::Bool(true), _) | (_, Json::Bool(false)) => true,
        (Json::Object(new), _) if new.keys().all(|key| is_remark(key)) => true,
        (Json::Object(new), Json::Bool(true)) => object_accepts(new, &Map::new()),
        (Json::Object(new), Json::Object(old)) => object_accepts(new, old),
        _ => false,
    }
}

fn object_accepts(new: &Map<String, Json>, old: &Map<String, Json>) -> bool {
    let all = || new.keys().chain(old.keys()).map(String::as_str);
    let is_compared = |key: &str| OF_VALUES.contains(&key) || OF_OBJECTS.contains(&key) || key == "items";
    let rest = all()
        .filter(|key| !is_compared(key) && !is_remark(key))
        .all(|key| is_same_in(new, old, &[key]) || REMOVABLE.contains(&key) && !new.contains_key(key));
    rest && (is_same_in(new, old, &OF_VALUES) || value_accepts(new, old))
        && (is_same_in(new, old, &OF_OBJECTS) || properties_accept(new, old))
        && (is_same_in(new, old, &["items"]) || items_accept(new, old))
}

fn value_accepts(new: &Map<String, Json>, old: &Map<String, Json>) -> bool {
    let rule = |schema: &Map<String, Json>| {
        let own = schema.iter().filter(|(key, _)| OF_VALUES.contains(&key.as_str()));
        Rule::compile(&Json::Object(own.map(|(key, value)| (key.clone(), value.clone())).collect()), false)
    };
    rule(new).zip(rule(old)).is_some_and(|(new, old)| takes_all_of(&new, &old))
}

/// What a schema says about an object's fields. Fields that it does not name are subject to `others`.
struct Properties<'s> {
    named: Option<&'s Map<String, Json>>,
    required: BTreeSet<&'s str>,
    others: &'s Json,
}

const ANYTHING: Json = Json::Bool(true);

impl<'s> Properties<'s> {
    /// `None` if it says it in a form that is not compared.
    fn of(schema: &'s Map<String, Json>) -> Option<Properties<'s>> {
        let named = match schema.get("properties") {
            None => None,
            Some(named) => Some(named.as_object()?),
        };
        let required = match schema.get("required") {
            None => BTreeSet::new(),
            Some(names) => names.as_array()?.iter().map(Json::as_str).collect::<Option<_>>()?,
        };
        let others = schema.get("additionalProperties").unwrap_or(&ANYTHING);
        (!schema.contains_key("patternProperties")).then_some(Properties { named, required, others })
    }

    fn names(&self) -> impl Iterator<Item = &'s String> {
        self.named.iter().flat_map(|named| named.keys())
    }

    fn of_field(&self, name: &str) -> &'s Json {
        self.named.and_then(|named| named.get(name)).unwrap_or(self.others)
    }
}

fn properties_accept(new: &Map<String, Json>, old: &Map<String, Json>) -> bool {
    let (Some(new), Some(old)) = (Properties::of(new), Properties::of(old)) else { return false };
    accepts_all_of(new.others, old.others)
        && new.required.is_subset(&old.required)
        && new.names().chain(old.names()).all(|name| accepts_all_of(new.of_field(name), old.of_field(name)))
}

fn items_accept(new: &Map<String, Json>, old: &Map<String, Json>) -> bool {
    let is_tuple = |schema: &Map<String, Json>| {
        schema.contains_key("prefixItems") || schema.get("items").is_some_and(Json::is_array)
    };
    !is_tuple(new)
        && !is_tuple(old)
        && accepts_all_of(new.get("items").unwrap_or(&ANYTHING), old.get("items").unwrap_or(&ANYTHING))
}

fn is_remark(key: &str) -> bool {
    REMARKS.contains(&key)
}

fn is_same_in(new: &Map<String, Json>, old: &Map<String, Json>, keys: &[&str]) -> bool {
    keys.iter().all(|key| new.get(*key) == old.get(*key))
}

fn takes_all_of(new: &Rule, old: &Rule) -> bool {
    let values = match (&new.values, &old.values) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(new), Some(old)) => old.iter().all(|value| new.iter().any(|other| same(other, value))),
    };
    values
        && (old.required || !new.required)
        && old.types & !new.types == 0
        && new.length_min <= old.length_min
        && new.length_max >= old.length_max
        && is_within(old.min.as_ref(), new.min.as_ref(), Ordering::Greater)
        && is_within(old.max.as_ref(), new.max.as_ref(), Ordering::Less)
}

/// Whether the new bound admits every number that the old one admits; `side` is where admitted numbers lie.
fn is_within(old: Option<&Bound>, new: Option<&Bound>, side: Ordering) -> bool {
    match (old, new) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(old), Some(new)) => match old.number.compare(new.number) {
            Ordering::Equal => old.exclusive || !new.exclusive,
            order => order == side,
        },
    }
}

fn same(a: &Constant, b: &Constant) -> bool {
    match (a, b) {
        (Constant::Null, Constant::Null) => true,
        (Constant::Boolean(a), Constant::Boolean(b)) => a == b,
        (Constant::Number(a), Constant::Number(b)) => a.compare(*b) == Ordering::Equal,
        (Constant::Text(a), Constant::Text(b)) => a == b,
        _ => false,
    }
}
