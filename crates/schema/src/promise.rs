//! What a schema guarantees about top-level fields (its promise), for a query planner: names, kinds and presence.
//!
//! Only keywords directly in the schema count. They hold whatever else the schema contains, as all keywords of a schema apply.
//! The exception is `$ref`, which disables its neighbours in older drafts: a schema with it promises nothing.

use serde_json::{Map, Value as Json};

/// The promise of a schema about one top-level field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPromise {
    /// Its name.
    pub name: String,
    /// Its kind, if it is present and not null.
    pub kind: PromisedKind,
    /// Whether every document has it with a value other than null.
    pub required: bool,
}

/// The kinds of values a schema can promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromisedKind {
    /// Digits only, within 64 bits.
    Integer,
    /// Any number.
    Number,
    /// Text.
    Text,
    /// True or false.
    Boolean,
    /// Nothing is promised.
    Any,
}

/// The promises of a schema.
pub(crate) struct Promise {
    /// The named fields, in the order of the text.
    pub(crate) fields: Vec<FieldPromise>,
    /// Whether other fields are forbidden.
    pub(crate) closed: bool,
}

/// Reads a schema's promise; the text is needed for the order of the fields, which parsed JSON has lost.
pub(crate) fn of(text: &str, schema: &Json) -> Promise {
    let nothing = Promise { fields: Vec::new(), closed: false };
    let Some(object) = schema.as_object().filter(|object| !object.contains_key("$ref")) else {
        return nothing;
    };
    let Some(properties) = object.get("properties").and_then(Json::as_object) else {
        return nothing;
    };
    let required = object.get("required").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let fields = ordered_names(text).into_iter().filter_map(|name| {
        let property = properties.get(&name)?;
        let kind = property.as_object().map_or(PromisedKind::Any, kind);
        let required = kind != PromisedKind::Any && required.iter().any(|field| field.as_str() == Some(&name));
        Some(FieldPromise { name, kind, required })
    });
    let closed =
        object.get("additionalProperties") == Some(&Json::Bool(false)) && !object.contains_key("patternProperties");
    Promise { fields: fields.collect(), closed }
}

fn ordered_names(text: &str) -> Vec<String> {
    let mut stored = Vec::new();
    if binjson::encode(text.as_bytes(), &mut stored).is_err() {
        return Vec::new();
    }
    let Ok(document) = binjson::StoredDocument::from_bytes(&stored) else {
        return Vec::new();
    };
    let Some(properties) = document.field("properties") else {
        return Vec::new();
    };
    properties.fields().filter_map(|(name, _)| Some(name.as_str()?.into_owned())).collect()
}

fn kind(property: &Map<String, Json>) -> PromisedKind {
    if property.contains_key("$ref") {
        return PromisedKind::Any;
    }
    match property.get("type").and_then(Json::as_str) {
        Some("integer") => PromisedKind::Integer,
        Some("number") => PromisedKind::Number,
        Some("string") => PromisedKind::Text,
        Some("boolean") => PromisedKind::Boolean,
        Some(_) => PromisedKind::Any,
        None => match property.get("enum").and_then(Json::as_array) {
            Some(values) if values.iter().all(Json::is_string) => PromisedKind::Text,
            _ => PromisedKind::Any,
        },
    }
}
