//! JSON written piece by piece.

use binjson::{JsonWriter, ObjectWriter, StoredDocument, append_f64, append_string, encode};
use proptest::prelude::*;

#[test]
fn commas_stand_between_values_and_nowhere_else() {
    let mut out = Vec::new();
    let mut writer = JsonWriter::new(&mut out);
    writer.begin_object().key("rows").begin_array();
    writer.begin_object().key("a").i64(-1).key("b").null().end_object();
    writer.begin_array().end_array().begin_object().end_object();
    writer.end_array().key("more").bool(true).key("avg").f64(3.5).key("n").u64(u64::MAX).end_object();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"rows":[{"a":-1,"b":null},[],{}],"more":true,"avg":3.5,"n":18446744073709551615}"#
    );
}

#[test]
fn an_object_is_closed_at_its_end() {
    let mut out = Vec::new();
    let mut object = ObjectWriter::new(&mut out);
    object.string("s", "Ж\"\n\u{1}").i64("i", i64::MIN).f64("f", 0.1).bool("b", false).null("n").raw("r", b"[1]");
    object.end();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        r#"{"s":"Ж\"\n\u0001","i":-9223372036854775808,"f":0.1,"b":false,"n":null,"r":[1]}"#
    );
}

#[test]
fn a_value_of_a_document_goes_into_a_reply_as_it_is_stored() {
    let (mut stored, mut out) = (Vec::new(), Vec::new());
    encode(br#"{"a":{"b":[1.50,"\u0416"]}}"#, &mut stored).unwrap();
    let document = StoredDocument::from_bytes(&stored).unwrap();
    JsonWriter::new(&mut out).value(document.field("a").unwrap());
    assert_eq!(String::from_utf8(out).unwrap(), r#"{"b":[1.50,"Ж"]}"#);
}

#[test]
fn doubles_that_json_lacks_become_null() {
    let written = |number: f64| {
        let mut out = Vec::new();
        append_f64(&mut out, number);
        String::from_utf8(out).unwrap()
    };
    let found = [3.0, -0.0, 1e300, f64::NAN, f64::INFINITY].map(written);
    assert_eq!(found, ["3.0", "-0.0", "1e300", "null", "null"]);
}

proptest! {
    #[test]
    fn any_string_is_written_as_it_is_stored(string in crate::support::string()) {
        let (mut written, mut stored) = (Vec::new(), Vec::new());
        append_string(&mut written, &string);
        prop_assert_eq!(serde_json::from_slice::<String>(&written).unwrap(), string);
        encode(&written, &mut stored).unwrap();
        prop_assert_eq!(StoredDocument::from_bytes(&stored).unwrap().text(), written);
    }
}
