//! The types that a schema allows for a field.

use schema::types::{ANY, BOOLEAN, INTEGER, NULL, REAL, STRING, is_required, of_field, type_names};
use serde_json::Value as Json;

#[test]
fn a_fields_types_come_from_type_or_from_its_values() {
    let schema: Json = serde_json::from_str(
        r##"{"required": ["a"], "properties": {"a": {"type": ["integer", "null"]}, "b": {"enum": ["x", 1]},
            "c": {"const": true}, "d": {"$ref": "#/x"}, "e": true}}"##,
    )
    .unwrap();
    let found: Vec<u8> = ["a", "b", "c", "d", "e", "f"].iter().map(|name| of_field(&schema, name)).collect();
    assert_eq!(found, [INTEGER | NULL, STRING | INTEGER, BOOLEAN, ANY, ANY, ANY]);
    assert!(is_required(&schema, "a") && !is_required(&schema, "b"));
    assert_eq!(type_names(INTEGER | REAL | NULL), "null or number");
}
