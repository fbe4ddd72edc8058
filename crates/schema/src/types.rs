//! The types of JSON Schema as bits.

use serde_json::{Map, Value as Json};

/// null.
pub const NULL: u8 = 1;
/// True or false.
pub const BOOLEAN: u8 = 2;
/// Whole and within 64 bits.
pub const INTEGER: u8 = 4;
/// Every other number.
pub const REAL: u8 = 8;
/// Text.
pub const STRING: u8 = 16;
/// An array.
pub const ARRAY: u8 = 32;
/// An object.
pub const OBJECT: u8 = 64;
/// Every type.
pub const ANY: u8 = 127;

const TYPES: [(&str, u8); 7] = [
    ("null", NULL),
    ("boolean", BOOLEAN),
    ("integer", INTEGER),
    ("number", INTEGER | REAL),
    ("string", STRING),
    ("array", ARRAY),
    ("object", OBJECT),
];

/// The value of the keyword `type`; `None` where it has a name that is no type.
pub(super) fn types(value: &Json) -> Option<u8> {
    let bits = |name: &Json| TYPES.iter().find(|(known, _)| name == known).map(|(_, bits)| *bits);
    match value {
        Json::Array(names) => names.iter().try_fold(0, |all, name| Some(all | bits(name)?)),
        name => bits(name),
    }
}

/// The names of types, for messages. `number` covers both number kinds.
pub fn type_names(types: u8) -> String {
    let named = |bits: u8| bits != INTEGER || types & REAL == 0;
    let names = TYPES.iter().filter(|(_, bits)| types & bits == *bits && named(*bits)).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(" or ")
}

/// The types that a schema permits for a top-level field, by `type`, else by the values of `enum` or `const`. [`ANY`] if it has none
/// of these for the field, or has them elsewhere (`$ref`, `anyOf`).
pub fn of_field(schema: &Json, name: &str) -> u8 {
    let property = schema.get("properties").and_then(|properties| properties.get(name)).and_then(Json::as_object);
    property.and_then(declared).unwrap_or(ANY)
}

/// Whether a schema requires a top-level field.
pub fn is_required(schema: &Json, name: &str) -> bool {
    let names = schema.get("required").and_then(Json::as_array);
    names.is_some_and(|names| names.iter().any(|required| required == name))
}

fn declared(property: &Map<String, Json>) -> Option<u8> {
    if let Some(value) = property.get("type") {
        return types(value);
    }
    let constant = property.get("const").map(std::slice::from_ref);
    let values = property.get("enum").and_then(Json::as_array).map(Vec::as_slice).or(constant)?;
    Some(values.iter().fold(0, |all, value| all | of_value(value)))
}

fn of_value(value: &Json) -> u8 {
    match value {
        Json::Null => NULL,
        Json::Bool(_) => BOOLEAN,
        Json::Number(number) if number.is_i64() => INTEGER,
        Json::Number(_) => INTEGER | REAL,
        Json::String(_) => STRING,
        Json::Array(_) => ARRAY,
        Json::Object(_) => OBJECT,
    }
}
