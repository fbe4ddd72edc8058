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
        r#"{"enum": [{"format": "x"}], "default": {"format": "x"}, "const": {"format": "x"}}"#,
        r#"{"format": "int64"}"#,
        "true",
    ] {
        assert_eq!(told(schema), "", "{schema}");
    }
}
