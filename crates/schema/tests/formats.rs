//! A declared schema names only known formats.

use schema::Schema;

/// The error of a schema in a configuration file; empty if there is none.
#[track_caller]
fn told(schema: &str) -> String {
    Schema::declared(schema).err().unwrap_or_default()
}

#[test]
fn an_unknown_format_is_told_with_its_place_wherever_a_schema_stands() {
    for (schema, place) in [
        (r#"{"properties": {"mail": {"type": "string", "format": "emial"}}}"#, "/properties/mail/format"),
        (r#"{"properties": {"format": {"format": "emial"}}}"#, "/properties/format/format"),
        (r#"{"items": {"anyOf": [{"format": "uri"}, {"format": "emial"}]}}"#, "/items/anyOf/1/format"),
        (r#"{"$defs": {"enum": {"format": "emial"}}}"#, "/$defs/enum/format"),
        (r#"{"components": {"schemas": {"mail": {"format": "emial"}}}}"#, "/components/schemas/mail/format"),
    ] {
        let told = told(schema);
        assert!(told.starts_with(&format!("{place} is \"emial\"; allowed: date-time, ")), "{told}");
        assert!(Schema::compile(schema).is_ok(), "a schema of the catalog may name any format");
    }
}

#[test]
fn what_is_no_keyword_is_not_looked_at() {
    for schema in [
        r#"{"properties": {"format": {"type": "string"}, "at": {"format": "date-time"}}}"#,
        r#"{"enum": [{"format": "x"}], "examples": [{"format": "x"}], "const": {"format": "x"}}"#,
        r#"{"format": "int64"}"#,
        "true",
    ] {
        assert_eq!(told(schema), "", "{schema}");
    }
}

#[test]
fn a_default_is_refused_wherever_a_schema_stands() {
    for (schema, place) in [
        (r#"{"properties": {"state": {"type": "string", "default": "open"}}}"#, "/properties/state/default"),
        (r#"{"default": {}}"#, "/default"),
        (r#"{"items": {"anyOf": [{"type": "string"}, {"default": null}]}}"#, "/items/anyOf/1/default"),
        (r##"{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"default": 1}}}"##, "/$defs/a/default"),
    ] {
        let told = told(schema);
        assert!(told.starts_with(&format!("{place} would be ignored")), "{told}");
        assert!(Schema::compile(schema).is_ok(), "a schema of the catalog may have defaults");
    }
    // A field of this name, and a value that is no schema.
    assert_eq!(
        told(r#"{"properties": {"default": {"type": "string"}}, "const": {"default": 1}, "x-a": {"default": 1}}"#),
        ""
    );
}
