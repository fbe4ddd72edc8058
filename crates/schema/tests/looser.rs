//! Whether one schema accepts every document that another one accepts.

use binjson::{StoredDocument, encode};
use proptest::prelude::*;
use schema::{FieldNumbers, Names, Schema, is_looser};

const OLD: &str = r#"{"type":"object","additionalProperties":false,"required":["a"],"properties":{
    "a":{"type":"integer","minimum":0,"exclusiveMaximum":10},"b":{"type":"string","minLength":2,"maxLength":5},
    "c":{"enum":["x","y",1]}}}"#;

fn fits(schema: &Schema, text: &str) -> bool {
    let (names, mut stored) = (Names::default(), Vec::new());
    encode(text.as_bytes(), &mut stored).expect("a document");
    let document = StoredDocument::from_bytes(&stored).expect("a stored document");
    names.with_row(document, &mut FieldNumbers::default(), |row| schema.check(document, row, &names)).is_ok()
}

#[track_caller]
fn check(from: &str, to: &str, expected: bool) {
    let new = OLD.replacen(from, to, 1);
    assert_ne!(new, OLD, "{from}");
    assert!(Schema::compile(OLD).expect("a schema").is_plain(), "{from} → {to}");
    Schema::compile(&new).expect("a schema");
    assert_eq!(is_looser(&new, OLD), expected, "{from} → {to}");
    // The reverse change is tighter, unless the schemas are equivalent.
    assert!(!(expected && is_looser(OLD, &new)) || from == "\"y\",1", "{from} → {to}");
}

#[test]
fn what_takes_all_that_was_taken_is_looser_and_nothing_else_is() {
    assert!(is_looser(OLD, OLD));
    for (from, to, expected) in [
        ("\"additionalProperties\":false", "\"additionalProperties\":true", true),
        ("\"required\":[\"a\"]", "\"required\":[]", true),
        ("\"required\":[\"a\"]", "\"required\":[\"a\",\"b\"]", false),
        ("\"type\":\"integer\"", "\"type\":\"number\"", true),
        ("\"type\":\"integer\"", "\"type\":\"string\"", false),
        ("\"minimum\":0", "\"minimum\":-1", true),
        ("\"minimum\":0", "\"minimum\":1", false),
        ("\"minimum\":0", "\"exclusiveMinimum\":0", false),
        ("\"exclusiveMaximum\":10", "\"maximum\":10", true),
        ("\"exclusiveMaximum\":10", "\"exclusiveMaximum\":9.5", false),
        (",\"exclusiveMaximum\":10", "", true),
        ("\"minLength\":2", "\"minLength\":1", true),
        ("\"minLength\":2", "\"minLength\":3", false),
        ("\"maxLength\":5", "\"maxLength\":6", true),
        ("\"maxLength\":5", "\"maxLength\":4", false),
        ("\"y\",1", "\"y\",1.0", true),
        ("\"y\",1", "\"y\",1,null", true),
        ("\"y\",1", "\"y\"", false),
        ("{\"enum\":[\"x\",\"y\",1]}", "{}", true),
        ("\"c\":{", "\"d\":{\"type\":\"null\"},\"c\":{", true),
        ("\"c\":{", "\"d\":{},\"c\":{", true),
        (",\n    \"c\":{\"enum\":[\"x\",\"y\",1]}", "", false),
    ] {
        check(from, to, expected);
    }
}

#[test]
fn a_field_of_an_open_schema_may_have_been_anything() {
    let looser = |text: &str| is_looser(text, "{}");
    assert!(looser(r#"{"properties":{"a":{}}}"#));
    assert!(!looser(r#"{"properties":{"a":{"type":"integer"}}}"#));
    assert!(!looser(r#"{"properties":{"a":{"maxLength":9}}}"#));
    assert!(!looser(r#"{"additionalProperties":false}"#));
    assert!(!looser(r#"{"properties":{"a":{}},"required":["a"]}"#));
}

/// A schema for the general checker: each change beside a pattern, an array and a nested object.
const GENERAL: &str = r##"{"type":"object","additionalProperties":false,"required":["id"],"$defs":{"name":{"pattern":"^[a-z]+$"}},
    "properties":{"id":{"type":"string","pattern":"^[a-z]+$","maxLength":5},
    "tags":{"type":"array","items":{"type":"string","maxLength":9},"uniqueItems":true,"maxItems":3},
    "size":{"type":"object","properties":{"x":{"type":"integer"}},"additionalProperties":false},"by":{"$ref":"#/$defs/name"}}}"##;

#[test]
fn fields_beside_the_changed_one_may_have_any_keyword() {
    assert!(!Schema::compile(GENERAL).expect("a schema").is_plain());
    for (from, to, expected) in [
        ("\"size\":{", "\"lang\":{\"enum\":[\"en\"]},\"size\":{", true),
        ("\"maxLength\":5", "\"maxLength\":6", true),
        ("\"maxLength\":5", "\"maxLength\":4", false),
        (",\"pattern\":\"^[a-z]+$\",\"maxLength\"", ",\"maxLength\"", true),
        ("\"pattern\":\"^[a-z]+$\",\"maxLength\"", "\"pattern\":\"^[a-z]*$\",\"maxLength\"", false),
        ("{\"pattern\":\"^[a-z]+$\"}", "{\"pattern\":\"^[a-z]*$\"}", false),
        ("{\"type\":\"string\",\"maxLength\":9}", "{\"type\":[\"string\",\"null\"],\"maxLength\":9}", true),
        ("{\"type\":\"string\",\"maxLength\":9}", "{\"type\":\"string\",\"maxLength\":8}", false),
        (",\"uniqueItems\":true", "", true),
        (",\"uniqueItems\":true", ",\"uniqueItems\":false", false),
        (",\"maxItems\":3", "", true),
        (",\"maxItems\":3", ",\"maxItems\":2", false),
        ("{\"x\":{\"type\":\"integer\"}}", "{\"x\":{\"type\":\"number\"},\"y\":{}}", true),
        ("{\"x\":{\"type\":\"integer\"}},\"additionalProperties\":false", "{\"x\":{\"type\":\"integer\"}}", true),
        ("{\"x\":{\"type\":\"integer\"}}", "{}", false),
        ("\"type\":\"object\",\"properties\"", "\"type\":\"object\",\"required\":[\"x\"],\"properties\"", false),
        ("{\"$ref\":\"#/$defs/name\"}", "{}", true),
        (",\"by\":", ",\"more\":{\"$ref\":\"#/$defs/name\"},\"by\":", true),
    ] {
        let new = GENERAL.replacen(from, to, 1);
        assert_ne!(new, GENERAL, "{from}");
        Schema::compile(&new).unwrap_or_else(|why| panic!("{from} → {to}: {why}"));
        assert_eq!(is_looser(&new, GENERAL), expected, "{from} → {to}");
        assert!(!(expected && is_looser(GENERAL, &new)), "{from} → {to}");
    }
}

#[test]
fn where_subschemas_depend_on_one_another_nothing_is_decided() {
    let with = |more: &str, properties: &str| format!("{{{more}\"properties\":{{{properties}}}}}");
    for more in [
        "\"unevaluatedProperties\":false,",
        "\"patternProperties\":{\"^b\":{\"type\":\"null\"}},\"additionalProperties\":false,",
        "\"not\":{\"$ref\":\"#/properties/a\"},",
        "\"allOf\":[{\"$ref\":\"#a\"}],\"$defs\":{\"a\":{\"$anchor\":\"a\"}},",
    ] {
        let (old, new) = (with(more, "\"a\":{\"maxLength\":1}"), with(more, "\"a\":{\"maxLength\":2},\"b\":{}"));
        assert!(!is_looser(&new, &old), "{more}");
        assert!(is_looser(&old, &old), "{more}");
    }
}

/// A subschema: of one value, of an array, or of an object with up to two fields.
fn subschema() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("{}".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        Just(r##"{"$ref":"#/$defs/d"}"##.to_owned()),
        Just(r#"{"not":{"type":"integer"}}"#.to_owned()),
        Just(r#"{"enum":["a",1]}"#.to_owned()),
        Just(r#"{"enum":["a",1,null]}"#.to_owned()),
        Just(r#"{"type":"string","pattern":"^a"}"#.to_owned()),
        (0..3, prop::sample::select(vec![r#""integer""#, r#"["integer","string"]"#, r#""string""#]))
            .prop_map(|(max, types)| format!(r#"{{"type":{types},"maximum":{max},"maxLength":{max}}}"#)),
    ];
    leaf.prop_recursive(2, 8, 2, |inner| {
        let object = (inner.clone(), inner.clone(), prop::bool::ANY, 0..3).prop_map(|(a, b, closed, form)| {
            let required = if form == 1 { r#""required":["a"],"# } else { "" };
            let b = if form == 2 { String::new() } else { format!(r#","b":{b}"#) };
            format!(r#"{{{required}"properties":{{"a":{a}{b}}},"additionalProperties":{}}}"#, !closed)
        });
        let array = (inner, 1..3, prop::bool::ANY)
            .prop_map(|(items, max, unique)| format!(r#"{{"items":{items},"maxItems":{max},"uniqueItems":{unique}}}"#));
        prop_oneof![object, array]
    })
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["null", "0", "1", "3", r#""a""#, r#""ba""#, "true"]).prop_map(str::to_owned);
    leaf.prop_recursive(2, 8, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|all| format!("[{}]", all.join(","))),
            inner.clone().prop_map(|a| format!(r#"{{"a":{a}}}"#)),
            (inner.clone(), inner).prop_map(|(b, c)| format!(r#"{{"b":{b},"c":{c}}}"#)),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3_000) })]

    /// Each pair differs in one field of the three.
    #[test]
    fn what_fitted_the_old_schema_fits_a_looser_one(
        (kept, old, new) in (subschema(), subschema(), subschema()),
        closed in prop::bool::ANY,
        values in prop::collection::vec((value(), value()), 20),
    ) {
        let of = |a: &str| format!(
            r#"{{"$defs":{{"d":{{"type":"string"}}}},"properties":{{"a":{a},"b":{kept}}},"additionalProperties":{}}}"#, !closed
        );
        let (old, new) = (of(&old), of(&new));
        if is_looser(&new, &old) {
            let [before, after] = [&old, &new].map(|text| Schema::compile_full(text).expect("a schema"));
            for (a, b) in values {
                let document = format!(r#"{{"a":{a},"b":{b}}}"#);
                prop_assert!(!fits(&before, &document) || fits(&after, &document), "{document}: {old} to {new}");
            }
        }
    }
}
