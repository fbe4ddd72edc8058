//! The keyword `format`: its name must be a known one.
//!
//! In JSON Schema 2020-12 a format is by default an annotation and is not checked against documents. So without this check a
//! misspelled name would never be noticed.

use std::ops::ControlFlow;

use serde_json::Value as Json;

use super::keywords;

/// The formats of JSON Schema (2020-12, section 7.3) and those that OpenAPI adds.
const FORMATS: [&str; 26] = [
    "date-time",
    "date",
    "time",
    "duration",
    "email",
    "idn-email",
    "hostname",
    "idn-hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uri-reference",
    "uri-template",
    "iri",
    "iri-reference",
    "uuid",
    "json-pointer",
    "relative-json-pointer",
    "regex",
    "int32",
    "int64",
    "float",
    "double",
    "byte",
    "binary",
    "password",
];

/// Checks the formats that a schema names.
pub(super) fn check(schema: &Json) -> Result<(), String> {
    let unknown = keywords::visit(schema, "", &mut |keywords, pointer| match keywords
        .get("format")
        .and_then(Json::as_str)
        .filter(|name| !FORMATS.contains(name))
    {
        Some(name) => ControlFlow::Break(format!("{pointer}/format is \"{name}\"; allowed: {}", FORMATS.join(", "))),
        None => ControlFlow::Continue(()),
    });
    unknown.break_value().map_or(Ok(()), Err)
}
