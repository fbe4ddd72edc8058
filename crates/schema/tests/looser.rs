//! Whether one plain schema accepts every document that another one accepts.

use schema::Schema;

const OLD: &str = r#"{"type":"object","additionalProperties":false,"required":["a"],"properties":{
    "a":{"type":"integer","minimum":0,"exclusiveMaximum":10},"b":{"type":"string","minLength":2,"maxLength":5},
    "c":{"enum":["x","y",1]}}}"#;

#[track_caller]
fn check(from: &str, to: &str, expected: bool) {
    let new = OLD.replacen(from, to, 1);
    assert_ne!(new, OLD, "{from}");
    let (old, new) = (Schema::compile(OLD).expect("a schema"), Schema::compile(&new).expect("a schema"));
    assert!(old.is_plain() && new.is_plain(), "{from} → {to}");
    assert_eq!(new.is_looser_than(&old), expected, "{from} → {to}");
    // The reverse change is tighter, unless the schemas are equivalent.
    assert!(!(expected && old.is_looser_than(&new)) || from == "\"y\",1", "{from} → {to}");
}

#[test]
fn what_takes_all_that_was_taken_is_looser_and_nothing_else_is() {
    let same = Schema::compile(OLD).expect("a schema");
    assert!(same.is_looser_than(&Schema::compile(OLD).expect("a schema")));
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
    let open = Schema::compile("{}").expect("a schema");
    let looser = |text: &str| Schema::compile(text).expect("a schema").is_looser_than(&open);
    assert!(looser(r#"{"properties":{"a":{}}}"#));
    assert!(!looser(r#"{"properties":{"a":{"type":"integer"}}}"#));
    assert!(!looser(r#"{"properties":{"a":{"maxLength":9}}}"#));
    assert!(!looser(r#"{"additionalProperties":false}"#));
    assert!(!looser(r#"{"properties":{"a":{}},"required":["a"]}"#));
}
