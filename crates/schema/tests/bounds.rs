//! Schemas and documents whose checks would be unlimited work: the general checker stops within its limits.

use std::sync::LazyLock;

use proptest::prelude::*;
use schema::Schema;
use serde_json::{Value, json};

use crate::hostile_schemas::{check, documents, schemas, stored};

fn compile(schema: &Value) -> Result<Schema, String> {
    Schema::compile_full(&schema.to_string())
}

fn of_chain(length: usize, each: impl Fn(Value) -> Value, last: Value, root: Value) -> Value {
    let mut defs = serde_json::Map::new();
    for number in 0..length {
        defs.insert(format!("c{number}"), each(json!({"$ref": format!("#/$defs/c{}", number + 1)})));
    }
    defs.insert(format!("c{length}"), last);
    let mut root = root;
    root["$defs"] = Value::Object(defs);
    root["$ref"] = json!("#/$defs/c0");
    root
}

#[test]
fn every_schema_ends_over_every_large_document() {
    for bytes in [2 << 10, 60 << 10, 150 << 10] {
        let documents: Vec<_> = documents(bytes).into_iter().map(|(name, text)| (name, stored(&text))).collect();
        for (of_schema, schema) in schemas() {
            let schema = compile(&schema).unwrap_or_else(|why| panic!("{of_schema}: {why}"));
            for (of_document, stored) in &documents {
                if let Err(misfit) = check(&schema, stored) {
                    assert!(misfit.why.len() < 2000, "{of_schema}, {of_document}: {}", misfit.why.len());
                    assert!(!misfit.why.contains("failed"), "{of_schema}, {of_document}: {}", misfit.why);
                }
            }
        }
    }
}

#[track_caller]
fn check_refused(schema: &Value, expected: &str) {
    let why = compile(schema).expect_err("it is refused");
    assert!(why.contains(expected), "{why}");
}

#[test]
fn a_schema_that_doubles_with_each_definition_is_refused_before_it_is_compiled() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for root in [json!({}), json!({"unevaluatedProperties": false}), json!({"unevaluatedItems": false})] {
            check_refused(
                &of_chain(60, |next| json!({keyword: [next, next]}), json!({}), root),
                "unfolds to over 10000",
            );
        }
    }
    check_refused(
        &of_chain(60, |next| json!({"if": next, "then": next}), json!({}), json!({})),
        "unfolds to over 10000",
    );
    // Each of many schemas alone is within the limit.
    let each = |next| json!({"anyOf": [next, {}], "unevaluatedProperties": false});
    let many = (0..40).map(|n| json!({"properties": {n.to_string(): of_chain(60, each, json!({}), json!({}))}}));
    let many: Vec<Value> = many.collect();
    let text = json!({"items": many}).to_string();
    assert!(text.len() < 1 << 20);
    assert!(Schema::compile_full(&text).is_err());
}

#[test]
fn a_chain_of_references_on_one_value_has_a_bound_and_one_over_fields_has_none() {
    let on_one_value =
        |length| of_chain(length, |next| json!({"allOf": [next]}), json!({}), json!({"unevaluatedProperties": true}));
    assert!(compile(&on_one_value(60)).is_ok());
    for length in [130, 20_000] {
        check_refused(&on_one_value(length), "lead to one another");
        check_refused(&of_chain(length, |next| next, json!({}), json!({})), "lead to one another");
    }
    let over_fields = of_chain(5_000, |next| json!({"properties": {"a": next}}), json!({"type": "null"}), json!({}));
    let schema = compile(&over_fields).unwrap();
    assert!(check(&schema, &stored(r#"{"a":{"a":{"a":1}}}"#)).is_ok());
}

#[test]
fn a_schema_that_leads_back_to_itself_on_one_value_is_refused() {
    check_refused(&json!({"allOf": [{"$ref": "#"}]}), "leads back to itself");
    check_refused(
        &json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
        "leads back to itself",
    );
    check_refused(&json!({"$anchor": "here", "anyOf": [true, {"$ref": "#here"}]}), "leads back to itself");
    check_refused(&json!({"$id": "http://x/y.json", "if": {"$ref": "y.json"}}), "leads back to itself");
    assert!(compile(&json!({"items": {"$ref": "#"}, "properties": {"not": {"$ref": "#"}}})).is_ok());
}

#[test]
fn a_document_of_the_deepest_nesting_is_checked_by_a_recursive_schema() {
    let (_, schema) = schemas().swap_remove(0);
    let schema = compile(&schema).unwrap();
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let text = format!(r#"{{"id":{}1{}}}"#, open.repeat(126), close.repeat(126));
        assert_eq!(check(&schema, &stored(&text)), Ok(()));
    }
}

#[test]
fn a_recursive_schema_that_tries_much_at_each_level_is_stopped_and_says_so() {
    let tree = json!({"$ref": "#/$defs/node"});
    let branches: Vec<Value> = (0..6).map(|n| json!({"items": tree, "minItems": n})).collect();
    let schema = compile(&json!({"$defs": {"node": {"oneOf": branches}}, "properties": {"a": tree}})).unwrap();
    let text = format!(r#"{{"a":{}{}}}"#, "[".repeat(100), "]".repeat(100));
    let misfit = check(&schema, &stored(&text)).unwrap_err();
    assert!(misfit.why.contains("takes over 500000 steps"), "{}", misfit.why);
}

#[test]
fn a_pattern_that_backtracks_without_end_is_no_fit_in_small_and_in_large_documents() {
    let schema = compile(&json!({"properties": {"a": {"items": {"pattern": "^(?=(a+)+$)a"}}}})).unwrap();
    for (count, length) in [(1, 40), (40, 40), (3_000, 60), (1, 200_000)] {
        let text = format!("\"{}!\"", "a".repeat(length));
        let text = format!(r#"{{"a":[{}]}}"#, vec![text; count].join(","));
        assert!(check(&schema, &stored(&text)).is_err(), "{count} texts of {length}");
    }
    assert!(check(&schema, &stored(r#"{"a":["aaa","a"]}"#)).is_ok());
}

#[test]
fn a_long_value_is_not_repeated_in_the_message() {
    let schema = compile(&json!({"properties": {"a": {"items": {"type": "integer"}, "maxItems": 3}}})).unwrap();
    let misfit = check(&schema, &stored(&format!(r#"{{"a":["{}"]}}"#, "x".repeat(5_000)))).unwrap_err();
    assert_eq!((misfit.pointer.as_str(), misfit.why.as_str()), ("/a/0", "value is not of type integer"));
    let misfit = check(&schema, &stored(&format!(r#"{{"a":["{}"]}}"#, "x".repeat(100_000)))).unwrap_err();
    assert_eq!((misfit.pointer.as_str(), misfit.why.as_str()), ("", "it does not fit the JSON Schema"));
}

#[test]
fn elements_are_unique_by_what_they_are_worth_and_objects_whatever_their_order() {
    let schema = compile(&json!({"properties": {"a": {"uniqueItems": true}}})).unwrap();
    let unique = |elements: &str| check(&schema, &stored(&format!(r#"{{"a":[{elements}]}}"#))).is_ok();
    for different in [
        r#"1,"1",[1],{"1":1},true,null,1.5,-1"#,
        r#"{"a":1,"b":2},{"a":2,"b":1},{"a":1}"#,
        "9007199254740993,9007199254740992,9007199254740994",
        "[1,2],[2,1],[[1],2]",
        r#""a","A","\u0007""#,
    ] {
        assert!(unique(different), "{different}");
    }
    for equal in ["1,1.0", "0,-0.0", "1e2,100", r#"{"a":1,"b":[2.0]},{"b":[2],"a":1}"#, r#""é","\u00e9""#, "null,null"]
    {
        assert!(!unique(equal), "{equal}");
    }
    let many: Vec<String> = (0..50_000).map(|n| n.to_string()).collect();
    assert!(unique(&many.join(",")));
    assert!(!unique(&format!("{},31234.0", many.join(","))));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-4i64..8).prop_map(Value::from),
        // With fractions: the library accepts `1e30` as an integer, we do not.
        prop_oneof![Just(1.5), Just(-0.25), Just(2.5e-30), Just(0.01)].prop_map(Value::from),
        "[ab\"\\\\é]{0,4}".prop_map(Value::from),
        Just(json!("2020-01-01T00:00:00Z")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]{1,2}|id", inner, 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The schemas with their names, compiled once by the library and by us.
static COMPILED: LazyLock<Vec<(&str, jsonschema::Validator, Schema)>> = LazyLock::new(|| {
    let compiled = |(name, schema): (&'static str, Value)| {
        (name, jsonschema::validator_for(&schema).unwrap(), compile(&schema).unwrap())
    };
    schemas().into_iter().map(compiled).collect()
});

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn small_documents_are_checked_as_the_library_checks_parsed_ones(a in value(), b in value()) {
        let document = json!({"id": 1, "a": a, "b": b, "ab": [a, b, a]});
        let stored = stored(&document.to_string());
        for (name, library, schema) in COMPILED.iter() {
            let ours = check(schema, &stored);
            prop_assert_eq!(library.is_valid(&document), ours.is_ok(), "{}: {:?}", name, ours);
        }
    }
}
