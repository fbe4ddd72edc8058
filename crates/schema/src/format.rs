//! The keyword `format`: its name must be a known one.
//!
//! In JSON Schema 2020-12 a format is by default an annotation and is not checked against documents. So without this check a
//! misspelled name would never be noticed.

use serde_json::{Map, Value as Json};

use super::keywords::BY_NAME;

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
/// Keywords whose values are not schemas.
const VALUES: [&str; 5] = ["enum", "const", "default", "examples", "example"];

/// Checks the formats that a schema names. Recursion: as deep as JSON text nests ([`super::SCHEMA_DEPTH_MAX`]).
pub(super) fn check(schema: &Json, pointer: &str) -> Result<(), String> {
    match schema {
        Json::Array(schemas) => {
            let mut numbered = schemas.iter().enumerate();
            numbered.try_for_each(|(number, schema)| check(schema, &format!("{pointer}/{number}")))
        }
        Json::Object(keywords) => check_keywords(keywords, pointer),
        _ => Ok(()),
    }
}

fn check_keywords(keywords: &Map<String, Json>, pointer: &str) -> Result<(), String> {
    if let Some(name) = keywords.get("format").and_then(Json::as_str)
        && !FORMATS.contains(&name)
    {
        return Err(format!("{pointer}/format is \"{name}\"; allowed: {}", FORMATS.join(", ")));
    }
    for (keyword, value) in keywords.iter().filter(|(keyword, _)| !VALUES.contains(&keyword.as_str())) {
        let pointer = format!("{pointer}/{keyword}");
        match value.as_object().filter(|_| BY_NAME.contains(&keyword.as_str())) {
            Some(named) => {
                named.iter().try_for_each(|(name, schema)| check(schema, &format!("{pointer}/{name}")))?;
            }
            None => check(value, &pointer)?,
        }
    }
    Ok(())
}
