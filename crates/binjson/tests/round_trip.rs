//! The stored document equals the sent one: same values, same numbers, same order; and every field is found.

use binjson::{Encoder, FieldCache, FieldName, JsonErrorKind, JsonKind, StoredDocument, encode};
use proptest::prelude::*;
use serde_json::Value as Json;

fn stored(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(text, &mut out).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)));
    out
}

#[track_caller]
fn check_text(sent: &str, text: &str) {
    let bytes = stored(sent.as_bytes());
    let found = StoredDocument::from_bytes(&bytes).unwrap().text();
    assert_eq!(std::str::from_utf8(found).unwrap(), text);
}

/// Compares a value with the same value read by another library, through every access method.
fn check_value(ours: binjson::JsonValue<'_>, theirs: &Json) {
    let parsed: Json = serde_json::from_slice(ours.raw()).unwrap();
    assert_eq!(&parsed, theirs);
    match theirs {
        Json::Null => assert_eq!(ours.kind(), JsonKind::Null),
        Json::Bool(value) => assert_eq!((ours.kind(), ours.as_bool()), (JsonKind::Bool, Some(*value))),
        Json::Number(number) => {
            assert_eq!(ours.as_i64(), number.as_i64());
            assert_eq!(ours.as_f64(), number.as_f64());
            assert_eq!(ours.kind() == JsonKind::Number, number.is_f64());
        }
        Json::String(string) => {
            assert_eq!(ours.kind(), JsonKind::String);
            assert_eq!(ours.as_str().as_deref(), Some(string.as_str()));
        }
        Json::Array(elements) => {
            assert_eq!((ours.kind(), ours.len()), (JsonKind::Array, elements.len()));
            assert_eq!(ours.elements().count(), elements.len());
            for (index, (ours_in, theirs_in)) in ours.elements().zip(elements).enumerate() {
                check_value(ours_in, theirs_in);
                assert_eq!(ours.element(index).unwrap().raw(), ours_in.raw());
            }
            assert!(ours.element(elements.len()).is_none());
        }
        Json::Object(fields) => {
            assert_eq!((ours.kind(), ours.len()), (JsonKind::Object, fields.len()));
            assert_eq!(ours.fields().count(), fields.len());
            for (key, value) in fields {
                check_value(ours.field(key).unwrap_or_else(|| panic!("no field {key:?}")), value);
                let named = ours.field_named(&FieldName::new(key)).map(|value| value.raw());
                assert_eq!(named, ours.field(key).map(|value| value.raw()));
            }
            for (key, value) in ours.fields() {
                assert_eq!(ours.field(&key.as_str().unwrap()).unwrap().raw(), value.raw());
            }
            assert!(ours.field("no such field").is_none());
        }
    }
}

fn check_document(sent: &str, theirs: &Json) {
    let bytes = stored(sent.as_bytes());
    let document = StoredDocument::from_bytes(&bytes).unwrap();
    let minified = serde_json::to_string(theirs).unwrap();
    assert_eq!(std::str::from_utf8(document.text()).unwrap(), minified);
    assert_eq!(document.is_object(), theirs.is_object());
    check_value(document.root(), theirs);
    if let Json::Object(fields) = theirs {
        let (mut cache, mut named_cache, mut raw_cache) = Default::default();
        for (key, value) in fields {
            check_value(document.field(key).unwrap(), value);
            for _ in 0..2 {
                let cached = document.field_cached(key, &mut cache).unwrap();
                assert_eq!(cached.raw(), document.field(key).unwrap().raw());
                let named = document.field_named(&FieldName::new(key), &mut named_cache).unwrap();
                assert_eq!(named.raw(), cached.raw());
                assert_eq!(document.raw_named(&FieldName::new(key), &mut raw_cache), cached.raw());
            }
        }
        assert!(document.field_cached("no such field", &mut cache).is_none());
        assert!(document.raw_named(&FieldName::new("no such field"), &mut raw_cache).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_value_comes_back_whatever_its_whitespace_and_escapes(value in crate::support::value()) {
        let minified = serde_json::to_string(&value).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        check_document(&minified, &value);
        check_document(&pretty, &value);
        check_document(&crate::support::with_unicode_escapes(&pretty), &value);
        prop_assert_eq!(stored(minified.as_bytes()), stored(crate::support::with_unicode_escapes(&pretty).as_bytes()));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn large_objects_come_back(value in crate::support::object(700)) {
        check_document(&serde_json::to_string_pretty(&value).unwrap(), &value);
    }
}

#[test]
fn numbers_and_the_order_of_keys_stay_exactly_as_sent() {
    check_text(
        " { \"z\" : 1.10 , \"a\" : -0 , \"b\" : 1E+05, \"c\":[ -0.0 , 123456789012345678901234567890 ] } ",
        r#"{"z":1.10,"a":-0,"b":1E+05,"c":[-0.0,123456789012345678901234567890]}"#,
    );
}

#[test]
fn strings_are_stored_unescaped_but_for_what_json_forbids() {
    check_text(r#""\u0416\u0436\/\u0041\uD83D\uDE00""#, "\"Жж/A😀\"");
    check_text(r#""\u0022\u005C\u000a\u001F\u0008\u007f""#, "\"\\\"\\\\\\n\\u001f\\b\u{7f}\"");
    check_text(r#"{"\u0061\"":"\u0062"}"#, r#"{"a\"":"b"}"#);
}

#[test]
fn minus_zero_is_an_integer_and_minus_zero_point_zero_is_not() {
    let bytes = stored(b"[-0,-0.0,9223372036854775807,9223372036854775808,-9223372036854775808,1e3]");
    let root = StoredDocument::from_bytes(&bytes).unwrap().root();
    let found: Vec<_> = root.elements().map(|value| (value.kind(), value.as_i64())).collect();
    let expected = [
        (JsonKind::Integer, Some(0)),
        (JsonKind::Number, None),
        (JsonKind::Integer, Some(i64::MAX)),
        (JsonKind::Integer, None),
        (JsonKind::Integer, Some(i64::MIN)),
        (JsonKind::Number, None),
    ];
    assert_eq!(found, expected);
    assert!(root.element(1).unwrap().as_f64().unwrap().is_sign_negative());
}

#[test]
fn a_key_with_quotes_is_never_taken_for_the_text_that_looks_like_it() {
    let bytes = stored(br#"{"a":1,"b":2,"c\"d":3}"#);
    let document = StoredDocument::from_bytes(&bytes).unwrap();
    let mut cache = FieldCache::default();
    for name in [r#"a":1,"b"#, r#"c\"d"#, "c\\", ""] {
        assert!(document.field(name).is_none(), "{name}");
        assert!(document.field_cached(name, &mut cache).is_none(), "{name}");
        assert!(document.field_named(&FieldName::new(name), &mut cache).is_none(), "{name}");
        assert!(document.raw_named(&FieldName::new(name), &mut cache).is_empty(), "{name}");
    }
    assert_eq!(document.field("c\"d").unwrap().as_i64(), Some(3));
}

#[test]
fn a_cache_goes_on_being_right_where_a_field_is_missing_now_and_then() {
    let whole = stored(br#"{"id":1,"place":"x","views":2}"#);
    let without = stored(br#"{"id":1,"views":3}"#);
    let (name, mut cache) = (FieldName::new("views"), FieldCache::default());
    let mut read = |bytes| {
        let text = StoredDocument::from_bytes(bytes).unwrap().raw_named(&name, &mut cache);
        (text.to_vec(), cache)
    };
    let learnt = (read(&whole), read(&without));
    assert_eq!((learnt.0.0.as_slice(), learnt.1.0.as_slice()), (b"2".as_slice(), b"3".as_slice()));
    for _ in 0..2 {
        assert_eq!((read(&whole).1, read(&without).1), (learnt.1.1, learnt.1.1), "nothing had to be searched again");
    }
}

#[test]
fn documents_of_one_shape_have_one_fingerprint() {
    let shape = |text: &[u8]| StoredDocument::from_bytes(&stored(text)).unwrap().shape();
    assert_eq!(shape(br#"{"id":1,"name":"a"}"#), shape(br#"{ "id": 234567, "name": [1,2,{}] }"#));
    assert_ne!(shape(br#"{"id":1,"name":"a"}"#), shape(br#"{"name":"a","id":1}"#));
    assert_ne!(shape(br#"{"id":1,"name":"a"}"#), shape(br#"{"id":1,"mane":"a"}"#));
}

#[test]
fn a_long_text_is_asked_for_while_it_is_read_and_given_up_where_nobody_wants_it() {
    let members: Vec<String> = (0..20_000).map(|number| format!("\"k{number}\":{number}")).collect();
    let elements = "[1,2],".repeat(40_000);
    for text in [format!("{{{}}}", members.join(",")), format!("[{elements}0]")] {
        let read_until = |wanted: usize| {
            let (asked, mut out) = (std::cell::Cell::new(0), vec![7]);
            let is_wanted = || asked.replace(asked.get() + 1) < wanted;
            let result = Encoder::new().encode_while(text.as_bytes(), &mut out, &is_wanted);
            (result.map_err(|error| error.kind), asked.get(), out)
        };
        let (result, asked, out) = read_until(usize::MAX);
        assert_eq!((result, &out[1..]), (Ok(()), &stored(text.as_bytes())[..]));
        assert!((text.len() >> 15..=text.len() >> 14).contains(&asked), "{asked} of {}", text.len());
        for wanted in 0..asked {
            assert_eq!(read_until(wanted), (Err(JsonErrorKind::Unwanted), wanted + 1, vec![7]));
        }
    }
}
