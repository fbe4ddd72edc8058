//! Schemas: the plain checker and the general one agree; an `integer` is whole and within 64 bits, however it is written.

use binjson::{StoredDocument, encode};
use proptest::prelude::*;
use schema::{FieldNumbers, Names, Schema};

const PLAIN: &str = r#"{"type":"object","additionalProperties":false,"required":["id","name"],"properties":{
    "id":{"type":"integer","minimum":0,"maximum":4294967295},
    "name":{"type":"string","minLength":1,"maxLength":3},
    "sex":{"enum":["m","f",1,null,true]},
    "real":{"type":["number","null"],"exclusiveMinimum":-1.5,"maximum":9007199254740993},
    "any":{},
    "flag":{"type":"boolean","const":true},
    "box":{"type":["array","object"]}}}"#;

const OPEN: &str =
    r#"{"properties":{"id":{"minimum":2,"exclusiveMinimum":2},"name":{"maxLength":2}},"required":["id"]}"#;

fn fits(schema: &Schema, text: &str) -> Result<(), String> {
    let mut names = Names::default();
    for field in schema.fields() {
        names.add(&field.name).unwrap();
    }
    names.add("other").unwrap();
    let mut stored = Vec::new();
    encode(text.as_bytes(), &mut stored).unwrap();
    let document = StoredDocument::from_bytes(&stored).unwrap();
    let mut shape = FieldNumbers::default();
    names
        .with_row(document, &mut shape, |row| schema.check(document, row, &names))
        .map_err(|misfit| format!("{}: {}", misfit.pointer, misfit.why))
}

#[track_caller]
fn check(text: &str, expected: Result<(), &str>) {
    let schema = Schema::compile(PLAIN).unwrap();
    assert!(schema.is_plain());
    assert_eq!(fits(&schema, text), expected.map_err(str::to_string), "{text}");
}

#[test]
fn a_misfit_names_the_field_and_what_is_allowed() {
    check(r#"{"id":1,"name":"ж\"я"}"#, Ok(()));
    check(r#"{"id":1}"#, Err(r#"/name: the field "name" is missing"#));
    check(
        r#"{"id":1,"name":null}"#,
        Err(r#"/name: null does not fit "name": string, at least 1 characters, at most 3 characters"#),
    );
    check(r#"{"id":-1,"name":"a"}"#, Err(r#"/id: -1 does not fit "id": integer, at least 0, at most 4294967295"#));
    check(r#"{"id":1.5,"name":"a"}"#, Err(r#"/id: 1.5 does not fit "id": integer, at least 0, at most 4294967295"#));
    check(r#"{"id":1,"name":"a","x/y":1}"#, Err(r#"/x~1y: the field "x/y" is not allowed"#));
    check(r#"{"id":1,"name":"a","other":1}"#, Err(r#"/other: the field "other" is not allowed"#));
    check(r#"{"id":1,"name":"a","sex":"x"}"#, Err(r#"/sex: "x" does not fit "sex": one of "m", "f", 1, null, true"#));
}

#[test]
fn integers_are_whole_and_within_64_bits_for_both_checkers() {
    for schema in [Schema::compile(PLAIN).unwrap(), Schema::compile_full(PLAIN).unwrap()] {
        for (id, good) in [
            ("1", true),
            ("-0", true),
            ("1.0", true),
            ("1e3", true),
            ("500e-2", true),
            ("-0.0", true),
            ("1.5", false),
            ("5e-1", false),
            ("5.0000000000000000001", false),
            ("-1.0", false),
            ("4294967296.0", false),
            ("99999999999999999999", false),
        ] {
            assert_eq!(
                fits(&schema, &format!(r#"{{"id":{id},"name":"a"}}"#)).is_ok(),
                good,
                "{id} {}",
                schema.is_plain()
            );
        }
    }
}

#[test]
fn the_digits_are_told_of_an_integer_that_a_real_would_round() {
    let text = r#"{"properties":{"n":{"type":["integer","null"],"minimum":6},"m":{"type":"number","maximum":1}}}"#;
    for schema in [Schema::compile(text).unwrap(), Schema::compile_full(text).unwrap()] {
        for (document, ending) in [
            (r#"{"n":9007199254740993.0}"#, Some("; write 9007199254740993")),
            (r#"{"n":9223372036854775807.0}"#, Some("; write 9223372036854775807")),
            (r#"{"n":5.0}"#, None),
            (r#"{"n":5.5}"#, None),
            (r#"{"n":1e300}"#, None),
            (r#"{"n":"5"}"#, None),
            (r#"{"m":5.0}"#, None),
        ] {
            let why = fits(&schema, document).unwrap_err();
            assert_eq!(why.find("; write").map(|at| &why[at..]), ending, "{document}: {why}");
        }
    }
}

#[test]
fn a_number_is_shown_as_it_was_sent() {
    let text = r#"{"properties":{"n":{"type":"integer"},"m":{"maximum":10},"l":{"items":{"multipleOf":3}}}}"#;
    for schema in [Schema::compile(text).unwrap(), Schema::compile_full(text).unwrap()] {
        for (document, number) in [
            (r#"{"n":1.50}"#, "1.50 "),
            (r#"{"n":-1e400}"#, "-1e400 "),
            (r#"{"m":1e2}"#, "1e2 "),
            (r#"{"m":18446744073709551616}"#, "18446744073709551616 "),
            (r#"{"l":[3,7.00]}"#, "7.00 "),
        ] {
            let why = fits(&schema, document).unwrap_err();
            assert!(why.contains(number), "{document}: {why}");
        }
    }
}

#[test]
fn a_schema_outside_the_plain_kind_is_still_checked() {
    let text = r#"{"type":"object","properties":{"id":{"type":"integer"},"mail":{"type":"string","pattern":"^[a-z]+@"},
        "tags":{"type":"array","items":{"type":"integer"}}},"required":["id"]}"#;
    let schema = Schema::compile(text).unwrap();
    assert!(!schema.is_plain());
    assert!(fits(&schema, r#"{"id":1,"mail":"a@b","tags":[1,2]}"#).is_ok());
    assert!(fits(&schema, r#"{"id":1,"mail":"@b"}"#).unwrap_err().starts_with("/mail: "));
    assert!(fits(&schema, r#"{"id":1,"tags":[1,2.0]}"#).is_ok());
    assert!(fits(&schema, r#"{"id":1,"tags":[1,2.5]}"#).unwrap_err().starts_with("/tags/1: "));
}

#[test]
fn what_is_no_schema_is_told() {
    for text in ["{", r#"{"type":"strin"}"#, r#"{"properties":{"id":{"minimum":"x"}}}"#, r#"{"pattern":"("}"#] {
        assert!(Schema::compile(text).is_err(), "{text}");
    }
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_string()),
        Just("true".to_string()),
        Just("false".to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        (-3i64..6).prop_map(|n| n.to_string()),
        (-3i64..6).prop_map(|n| format!("{n}.0")),
        (-30i64..60).prop_map(|n| format!("{}e-1", n)),
        prop_oneof![
            Just("-0"),
            Just("1e999"),
            Just("-1.5"),
            Just("4294967296"),
            Just("9007199254740993"),
            Just("9007199254740994"),
            Just("18446744073709551616")
        ]
        .prop_map(str::to_string),
        r#"[mfя"\\\n😀]{0,4}"#.prop_map(|text| serde_json::to_string(&text).unwrap()),
        Just("[1]".to_string()),
        Just(r#"{"id":1}"#.to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn the_plain_checker_agrees_with_the_general_one(
        fields in prop::collection::btree_map("id|name|sex|real|any|flag|box|other|new", value(), 0..6),
        good in any::<bool>(),
    ) {
        let mut fields = fields;
        if good {
            fields.insert("id".to_string(), "7".to_string());
            fields.insert("name".to_string(), "\"я\"".to_string());
        }
        let members: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let text = format!("{{{}}}", members.join(","));
        for schema in [PLAIN, OPEN] {
            let plain = Schema::compile(schema).unwrap();
            prop_assert!(plain.is_plain());
            let full = Schema::compile_full(schema).unwrap();
            let (plain, full) = (fits(&plain, &text), fits(&full, &text));
            prop_assert_eq!(plain.is_ok(), full.is_ok(), "{} plain {:?} full {:?}", text, plain, full);
        }
    }
}
