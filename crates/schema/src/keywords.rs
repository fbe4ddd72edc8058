//! The keywords of JSON Schema 2020-12, of its earlier drafts and of OpenAPI, and a walk through the subschemas of a schema.

use std::ops::ControlFlow;

use serde_json::{Map, Value as Json};

/// Keywords whose values are schemas; in earlier drafts `items` may be a list of them.
const SCHEMA: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose values are lists of schemas.
const SCHEMA_LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose values are schemas by user-defined names.
pub(super) const BY_NAME: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// All other keywords.
const OTHER: [&str; 45] = [
    "$anchor",
    "$comment",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$recursiveAnchor",
    "$recursiveRef",
    "$ref",
    "$schema",
    "$vocabulary",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependentRequired",
    "deprecated",
    "description",
    "discriminator",
    "enum",
    "example",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "externalDocs",
    "format",
    "id",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "readOnly",
    "required",
    "title",
    "type",
    "uniqueItems",
    "writeOnly",
    "xml",
];

/// All keywords.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    [&SCHEMA[..], &SCHEMA_LIST, &BY_NAME, &OTHER].into_iter().flatten().copied()
}

/// A function that receives a schema and its JSON pointer.
type Visitor<'v> = dyn FnMut(&Map<String, Json>, &str) -> ControlFlow<()> + 'v;

/// Calls `visitor` for a schema and each of its subschemas until it breaks. Recursion: as deep as JSON text nests
/// ([`super::SCHEMA_DEPTH_MAX`]).
pub(super) fn visit(schema: &Json, pointer: &str, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
    let Json::Object(keywords) = schema else { return ControlFlow::Continue(()) };
    visitor(keywords, pointer)?;
    for (keyword, value) in keywords {
        let pointer = format!("{pointer}/{keyword}");
        match value {
            Json::Object(named) if BY_NAME.contains(&&**keyword) => {
                for (name, schema) in named {
                    visit(schema, &format!("{pointer}{}", super::pointer(name)), visitor)?;
                }
            }
            Json::Array(schemas) if SCHEMA_LIST.contains(&&**keyword) || keyword == "items" => {
                for (number, schema) in schemas.iter().enumerate() {
                    visit(schema, &format!("{pointer}/{number}"), visitor)?;
                }
            }
            schema if SCHEMA.contains(&&**keyword) => visit(schema, &pointer, visitor)?,
            _ => {}
        }
    }
    ControlFlow::Continue(())
}

/// The place of the first `default` of a schema or its subschemas, as a JSON pointer.
pub(super) fn default(schema: &Json) -> Option<String> {
    let mut found = None;
    let _ = visit(schema, "", &mut |keywords, pointer| {
        if !keywords.contains_key("default") {
            return ControlFlow::Continue(());
        }
        found = Some(format!("{pointer}/default"));
        ControlFlow::Break(())
    });
    found
}
