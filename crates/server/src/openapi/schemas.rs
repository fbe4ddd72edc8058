//! JSON Schemas of parameters, keys, documents and result columns.

use super::Schemas;
use crate::config::{AFTER, LIMIT, PageConfig, SORT, SortConfig};
use docs::catalog::{Catalog, CollectionInfo};
use docs::config::{Parameter, ParameterDefault, ParameterKind, ParameterValue};
use docs::key::KeyType;
use docs::sql::{ColumnType, JsonTypes};
use serde_json::{Value as Json, json};

/// The schema of one value. Generators of clients take `const` for texts, numbers and booleans alone.
pub(super) fn fixed_value(value: &Json) -> Json {
    match value {
        Json::Null => json!({ "type": "null" }),
        Json::Object(fields) => {
            let names: Vec<&String> = fields.keys().collect();
            let properties: Schemas = fields.iter().map(|(name, value)| (name.clone(), fixed_value(value))).collect();
            json!({ "type": "object", "additionalProperties": false, "required": names, "properties": properties })
        }
        Json::Array(elements) => {
            let count = elements.len();
            json!({ "type": "array", "items": {}, "minItems": count, "maxItems": count })
        }
        plain => json!({ "const": plain }),
    }
}

/// The name of the schema of a problem document. The dot distinguishes it from collections.
pub(super) const PROBLEM: &str = "sapsan.problem";

/// A reference to a named schema.
pub(super) fn schema_of(name: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Names a schema, and returns a reference to it. A reference has a name already.
pub(super) fn named(name: String, schema: Json, schemas: &mut Schemas) -> Json {
    if schema.get("$ref").is_some() {
        return schema;
    }
    let reference = schema_of(&name);
    schemas.insert(name, schema);
    reference
}

/// `?sort=NAME`, if a query has several orders.
pub(super) fn sort_parameter(sort: &[SortConfig]) -> Option<Json> {
    let names: Vec<&str> = sort.iter().map(|way| way.name.as_str()).collect();
    let first = names.first()?;
    let schema = json!({ "type": "string", "enum": names, "default": first });
    let description = "the order of the rows";
    Some(json!({ "name": SORT, "in": "query", "required": false, "description": description, "schema": schema }))
}

pub(super) fn page_parameters(page: PageConfig) -> [Json; 2] {
    let limit = json!({ "type": "integer", "minimum": 1, "maximum": page.max, "default": page.limit });
    let after = json!({ "type": "string", "minLength": 1 });
    let parameter = |name: &str, what: &str, schema: Json| json!({ "name": name, "in": "query", "required": false, "description": what, "schema": schema });
    [
        parameter(LIMIT, "rows of the page", limit),
        parameter(AFTER, "the cursor that the page before came with; without it the first page", after),
    ]
}

/// The types of a parameter's values in SQL.
pub(crate) fn parameter_types(parameter: &Parameter) -> JsonTypes {
    let types = match parameter.kind {
        ParameterKind::Integer => JsonTypes::INTEGER,
        ParameterKind::Number => JsonTypes::NUMBER,
        ParameterKind::Text => JsonTypes::STRING,
        ParameterKind::Boolean => JsonTypes::BOOLEAN,
    };
    let is_there = parameter.required || parameter.default != ParameterDefault::Missing;
    if is_there { types } else { types.or(JsonTypes::NULL) }
}

pub(super) fn parameter_schema(parameter: &Parameter) -> Json {
    let kind = match parameter.kind {
        ParameterKind::Integer => "integer",
        ParameterKind::Number => "number",
        ParameterKind::Text => "string",
        ParameterKind::Boolean => "boolean",
    };
    let mut schema = json!({ "type": kind });
    if !parameter.values.is_empty() {
        schema["enum"] = parameter.values.iter().map(json_of).collect();
    }
    for (name, bound) in [("minimum", parameter.min), ("maximum", parameter.max)] {
        if let Some(bound) = bound {
            schema[name] = Json::from(bound);
        }
    }
    if let ParameterDefault::Value(value) = &parameter.default {
        schema["default"] = json_of(value);
    }
    schema
}

fn json_of(value: &ParameterValue) -> Json {
    match value {
        ParameterValue::Integer(integer) => Json::from(*integer),
        ParameterValue::Number(number) => Json::from(*number),
        ParameterValue::Text(text) => Json::from(text.as_str()),
        ParameterValue::Boolean(boolean) => Json::from(*boolean),
    }
}

pub(super) fn key_schema(kind: KeyType) -> Json {
    match kind {
        KeyType::U32 => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        KeyType::I64 => json!({ "type": "integer", "format": "int64" }),
        KeyType::String => json!({ "type": "string", "minLength": 1 }),
    }
}

/// The schema of a result column: its types; for a field that is an array or object, its schema in the collection.
pub(super) fn column_schema(column: &ColumnType, catalog: &Catalog) -> Json {
    let nested = JsonTypes::ARRAY.or(JsonTypes::OBJECT);
    if column.types.has(nested) {
        let property = column.field.as_ref().and_then(|(collection, field)| property(collection, field, catalog));
        return match property {
            Some(property) if column.types.has(JsonTypes::NULL) => json!({ "anyOf": [property, { "type": "null" }] }),
            Some(property) => property,
            None => json!({}),
        };
    }
    match &column.types.names()[..] {
        [name] => json!({ "type": name }),
        [_, "null"] | ["null", _] => json!({ "type": column.types.names() }),
        // Generators of clients take no list of several types beside null.
        names => json!({ "anyOf": names.iter().map(|name| json!({ "type": name })).collect::<Vec<Json>>() }),
    }
}

/// A reference to the schema of a collection's field.
fn property(collection: &str, field: &str, catalog: &Catalog) -> Option<Json> {
    let schema: Json = serde_json::from_str(catalog.collection(collection)?.schema.as_ref()?).ok()?;
    schema.get("properties")?.get(field)?;
    let pointer = field.replace('~', "~0").replace('/', "~1");
    // A reference is a URI: for a name that does not fit one, only the types are given.
    let is_plain = pointer.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    is_plain.then(|| schema_of(&format!("{collection}/properties/{pointer}")))
}

/// The current schema of a collection's documents.
pub(super) fn stored(info: &CollectionInfo) -> Json {
    match &info.schema {
        Some(text) => schema_text(text, &info.name),
        None => json!({ "type": "object" }),
    }
}

/// A schema's text as part of the document, under a name: its internal references are adjusted.
pub(super) fn schema_text(text: &str, name: &str) -> Json {
    let mut schema: Json = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
    move_references(&mut schema, name);
    schema
}

fn move_references(schema: &mut Json, name: &str) {
    match schema {
        Json::Object(fields) => {
            if let Some(Json::String(target)) = fields.get_mut("$ref")
                && let Some(inside) = target.strip_prefix('#')
            {
                *target = format!("#/components/schemas/{name}{inside}");
            }
            fields.values_mut().for_each(|value| move_references(value, name));
        }
        Json::Array(items) => items.iter_mut().for_each(|value| move_references(value, name)),
        _ => {}
    }
}

pub(super) fn problem() -> Json {
    json!({
        "type": "object",
        "description": "A problem document (RFC 9457)",
        "required": ["title", "status"],
        "properties": {
            "title": { "type": "string" },
            "status": { "type": "integer", "minimum": 400, "maximum": 599 },
            "detail": { "type": "string" },
        },
    })
}
