//! Parts of schemas that are probably mistakes.

use schema::{LINTS_MAX, Schema, lints};

#[test]
fn a_misspelled_keyword_is_reported_wherever_a_schema_stands() {
    for (text, expected) in [
        (
            r#"{"properties": {"age": {"type": "integer", "minimun": 0}}}"#,
            "/properties/age/minimun is no keyword of JSON Schema and checks nothing: `minimum`?",
        ),
        (r#"{"requierd": ["id"]}"#, "/requierd is no keyword of JSON Schema and checks nothing: `required`?"),
        (
            r#"{"items": {"maxlength": 3}}"#,
            "/items/maxlength is no keyword of JSON Schema and checks nothing: `maxLength`?",
        ),
        (
            r#"{"anyOf": [true, {"nullable": true}]}"#,
            "/anyOf/1/nullable is no keyword of JSON Schema and checks nothing",
        ),
        (
            r#"{"$defs": {"a/b": {"not": {"~": 1}}}}"#,
            "/$defs/a~1b/not/~0 is no keyword of JSON Schema and checks nothing",
        ),
    ] {
        assert!(Schema::declared(text).is_ok(), "JSON Schema ignores it");
        assert_eq!(lints(text), [expected]);
    }
}

#[test]
fn rules_that_no_value_fits_are_reported() {
    for (text, expected) in [
        (
            r#"{"properties": {"a": {"minimum": 5, "maximum": 4.5}}}"#,
            "/properties/a/minimum is 5 and maximum is 4.5: no value fits both",
        ),
        (r#"{"minItems": 3, "maxItems": 2}"#, "/minItems is 3 and maxItems is 2: no value fits both"),
        (
            r#"{"properties": {"id": true}, "required": ["id", "name"], "additionalProperties": false}"#,
            "/required has \"name\", which `properties` does not have and `additionalProperties` forbids: no object fits both",
        ),
    ] {
        assert_eq!(lints(text), [expected]);
    }
}

#[test]
fn nothing_is_said_about_schemas_that_check_what_they_say() {
    for text in [
        "true",
        r#"{"properties": {"minimun": {"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740993}}}"#,
        r#"{"enum": [{"minimun": 1}], "examples": [{"minimun": 1}], "x-of-a-tool": {"minimun": 1}}"#,
        r#"{"required": ["x1"], "patternProperties": {"^x": true}, "additionalProperties": false}"#,
        r#"{"required": ["a"], "properties": {"a": false}}"#,
        r##"{"items": {"$ref": "#/components/schemas/user"}, "components": {"schemas": {"user": {"type": "object"}}}}"##,
        r#"{"dependentRequired": {"a": ["b"]}, "dependencies": {"a": ["b"]}, "discriminator": {"propertyName": "kind"}}"#,
    ] {
        assert!(Schema::declared(text).is_ok(), "{text}");
        assert_eq!(lints(text), [""; 0], "{text}");
    }
}

#[test]
fn the_number_of_lints_is_bounded() {
    let many: Vec<String> = (0..100).map(|number| format!("\"unknown{number}\": {{}}")).collect();
    assert_eq!(lints(&format!("{{{}}}", many.join(","))).len(), LINTS_MAX);
    let many: Vec<String> = (0..100).map(|number| format!("\"name{number}\": {{\"minimun\": 1}}")).collect();
    assert_eq!(lints(&format!("{{\"properties\": {{{}}}}}", many.join(","))).len(), LINTS_MAX);
    assert_eq!(lints("no schema"), [""; 0]);
}
