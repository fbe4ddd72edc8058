//! Schemas with all keywords, and documents that are expensive to check: each check ends within its limits.

use binjson::{StoredDocument, encode};
use schema::{FieldNumbers, Misfit, Names, Schema};
use serde_json::{Value, json};

/// Schemas, by their difficulty.
pub(crate) fn schemas() -> Vec<(&'static str, Value)> {
    let tree = json!({"$ref": "#/$defs/node"});
    let twice = |n: usize| json!({"allOf": [{"$ref": format!("#/$defs/d{n}")}, {"$ref": format!("#/$defs/d{n}")}]});
    let mut doubled: serde_json::Map<String, Value> = (0..10).map(|n| (format!("d{n}"), twice(n + 1))).collect();
    doubled.insert("d10".into(), json!({}));
    let nested = (0..50).fold(json!({"type": "object"}), |inner, _| json!({"anyOf": [inner, {"type": "array"}]}));
    let chain = (0..100).map(|n| (format!("c{n}"), json!({"$ref": format!("#/$defs/c{}", n + 1)})));
    let mut chain: serde_json::Map<String, Value> = chain.collect();
    chain.insert("c100".into(), json!({"required": ["nothing"]}));
    let names: Vec<Value> = (0..200).map(|n| json!(format!("^a{n}b*c"))).collect();
    vec![
        (
            "recursion",
            json!({"$defs": {"node": {"anyOf": [
            {"type": "object", "additionalProperties": tree}, {"type": "array", "items": tree},
            {"type": ["string", "number", "null", "boolean"]}]}}, "$ref": "#/$defs/node"}),
        ),
        (
            "recursion that says no",
            json!({"$defs": {"node": {"anyOf": [
            {"type": "object", "additionalProperties": tree, "maxProperties": 0}, {"type": "array", "items": tree, "maxItems": 0},
            {"const": "nothing"}]}}, "$ref": "#/$defs/node"}),
        ),
        (
            "recursion in two ways",
            json!({"$defs": {"node": {"oneOf": [
            {"additionalProperties": tree, "items": tree}, {"additionalProperties": tree, "items": tree, "minItems": 1}]}},
            "$ref": "#/$defs/node"}),
        ),
        (
            "doubling",
            json!({"$defs": Value::Object(doubled), "additionalProperties": {"items": {"$ref": "#/$defs/d0"}}}),
        ),
        ("a chain", json!({"$defs": Value::Object(chain), "additionalProperties": {"items": {"$ref": "#/$defs/c0"}}})),
        ("nests", json!({"additionalProperties": {"items": nested, "additionalProperties": nested}})),
        (
            "unevaluatedProperties",
            json!({"$defs": {"node": {"anyOf": [{"properties": {"a": tree}}, {"patternProperties": {"^b": tree}}],
            "allOf": [{"properties": {"z": true}}], "unevaluatedProperties": tree}}, "$ref": "#/$defs/node"}),
        ),
        (
            "unevaluatedItems",
            json!({"additionalProperties": {"prefixItems": [true], "contains": {"type": "string"},
            "anyOf": [{"contains": {"type": "integer"}}, {"contains": {"type": "array"}}], "unevaluatedItems": {"type": "object"}}}),
        ),
        (
            "uniqueItems",
            json!({"$defs": {"node": {"uniqueItems": true, "items": tree, "additionalProperties": tree}},
            "$ref": "#/$defs/node"}),
        ),
        (
            "contains",
            json!({"additionalProperties": {"contains": {"enum": [{"a": 1}, [2], "x"]}, "minContains": 2, "maxContains": 3}}),
        ),
        (
            "names",
            json!({"additionalProperties": {"propertyNames": {"anyOf": names.iter().map(|name| json!({"pattern": name}))
            .collect::<Vec<_>>()}}}),
        ),
        (
            "dependentSchemas",
            json!({"dependentSchemas": {"id": {"additionalProperties": {"dependentSchemas": {"a": {"maxProperties": 1}},
            "dependentRequired": {"b": ["c"]}}}}}),
        ),
        (
            "patterns",
            json!({"additionalProperties": {"patternProperties": {"^(a+)+$": {"pattern": "^(a+)+$"}},
            "pattern": "(x+x+)+y", "items": {"pattern": "^([a-z]+)*!$"}}}),
        ),
        (
            "patterns that backtrack",
            json!({"additionalProperties": {"pattern": "^(?=(a+)+$)(a|aa)+$",
            "items": {"pattern": "(?<!b)(a*)*\\1c"}, "propertyNames": {"pattern": "^(?!(a+)+!)"}}}),
        ),
        (
            "numbers",
            json!({"additionalProperties": {"items": {"multipleOf": 0.01, "minimum": -5, "exclusiveMaximum": 1e300}}}),
        ),
        (
            "formats",
            json!({"additionalProperties": {"format": "email", "contentEncoding": "base64",
            "items": {"format": "date-time"}}}),
        ),
        (
            "conditions",
            json!({"additionalProperties": {"items": {"if": {"minLength": 3}, "then": {"not": {"type": "array"}},
            "else": {"const": [1, {"a": 2}]}}}}),
        ),
    ]
}

/// Documents of about `bytes` bytes each.
pub(crate) fn documents(bytes: usize) -> Vec<(&'static str, String)> {
    let body = |inner: &dyn Fn(usize) -> String| {
        let mut text = String::new();
        let mut number = 0;
        while text.len() < bytes {
            if number > 0 {
                text.push(',');
            }
            text.push_str(&inner(number));
            number += 1;
        }
        text
    };
    let deep = "[".repeat(120) + "1" + &"]".repeat(120);
    let nested = "{\"a\":".repeat(120) + "{}" + &"}".repeat(120);
    vec![
        ("numbers", format!(r#"{{"id":1,"a":[{}]}}"#, body(&|n| n.to_string()))),
        ("ones", format!(r#"{{"id":1,"a":[{}]}}"#, body(&|_| "1".into()))),
        ("small objects", format!(r#"{{"id":1,"a":[{}]}}"#, body(&|n| format!(r#"{{"a":{n},"b":"x"}}"#)))),
        ("deep arrays", format!(r#"{{"id":1,"a":[{}]}}"#, body(&|_| deep.clone()))),
        ("deep objects", format!(r#"{{"id":1,"a":[{}]}}"#, body(&|_| nested.clone()))),
        ("fields", format!(r#"{{"id":1,"a":{{{}}}}}"#, body(&|n| format!(r#""a{n}":{n}"#)))),
        ("fields of fields", format!(r#"{{"id":1,"b":{{{}}}}}"#, body(&|n| format!(r#""b{n}":{{"a":{{"b":[]}}}}"#)))),
        ("a text", format!(r#"{{"id":1,"a":"{}!"}}"#, "a".repeat(bytes))),
        ("texts", format!(r#"{{"id":1,"a":[{}]}}"#, body(&|_| format!("\"{}!\"", "a".repeat(60))))),
        ("a name", format!(r#"{{"id":1,"a":{{"{}!":1}}}}"#, "a".repeat(bytes))),
        ("a number", format!(r#"{{"id":1,"a":[{}.5]}}"#, "9".repeat(bytes))),
        ("many fields", format!(r#"{{"id":1,{}}}"#, body(&|n| format!(r#""f{n}":[[],{{}}]"#)))),
    ]
}

/// The stored form of a text.
pub(crate) fn stored(text: &str) -> Vec<u8> {
    let mut stored = Vec::new();
    encode(text.as_bytes(), &mut stored).unwrap();
    stored
}

/// Checks a stored document.
pub(crate) fn check(schema: &Schema, stored: &[u8]) -> Result<(), Misfit> {
    let mut names = Names::default();
    for field in schema.fields() {
        names.add(&field.name).unwrap();
    }
    let document = StoredDocument::from_bytes(stored).unwrap();
    names.with_row(document, &mut FieldNumbers::default(), |row| schema.check(document, row, &names))
}
