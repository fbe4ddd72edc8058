//! Damaged bytes, text or stored, give an error, nothing or a wrong value; never a panic, and never an endless loop.

use binjson::{FieldCache, FieldName, JsonValue, StoredDocument, encode};
use proptest::prelude::*;

/// The other parser turns numbers into doubles, and refuses numbers beyond their range.
fn out_of_their_range(result: &serde_json::Result<serde_json::Value>) -> bool {
    result.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"))
}

/// Bounds the traversal: damaged tables may describe a document larger than its bytes.
fn touch(value: JsonValue<'_>, depth: usize, budget: &mut usize) {
    if depth == 0 || *budget == 0 {
        return;
    }
    *budget -= 1;
    let _ = (value.kind(), value.as_i64(), value.as_f64(), value.as_bool(), value.as_str(), value.raw().len());
    let _ = (value.field("a").is_some(), value.field("a\"b").is_some(), value.is_empty());
    for index in [0, 1, 7, 1000, usize::MAX] {
        let _ = value.element(index);
    }
    let limit = value.raw().len();
    assert!(value.fields().take(limit + 1).count() <= limit, "no more fields than bytes");
    assert!(value.elements().take(limit + 1).count() <= limit, "no more elements than bytes");
    for (key, inner) in value.fields().take(8) {
        let _ = (key.as_str(), key == "a");
        touch(inner, depth - 1, budget);
    }
    for inner in value.elements().take(8) {
        touch(inner, depth - 1, budget);
    }
}

fn touch_document(bytes: &[u8], names: &[String]) {
    let Ok(document) = StoredDocument::from_bytes(bytes) else { return };
    let _ = (document.text().len(), document.shape(), document.is_object(), document.field_count());
    touch(document.root(), 5, &mut 200);
    let mut cache = FieldCache::default();
    for name in names {
        for _ in 0..2 {
            if let Some(value) = document.field_cached(name, &mut cache) {
                touch(value, 2, &mut 20);
            }
        }
        let _ = document.field(name);
        let prepared = FieldName::new(name);
        for _ in 0..2 {
            let _ = document.raw_named(&prepared, &mut cache).len();
        }
    }
    let mut out = Vec::new();
    let _ = binjson::merge_patch(document, document, &mut out);
}

/// With a damaged position of zero there is no byte before it, where the previous field's value would end.
#[test]
fn positions_of_zero_are_read_without_a_panic() {
    for text in [r#"{"a":1,"b":2,"c":3}"#, r#"{"c":1,"b":2,"a":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9}"#] {
        let mut encoded = Vec::new();
        encode(text.as_bytes(), &mut encoded).unwrap();
        let names: Vec<String> = ('a'..='j').map(String::from).collect();
        for place in 0..encoded.len() {
            for zeros in 1..=4 {
                let mut damaged = encoded.clone();
                damaged.iter_mut().skip(place).take(zeros).for_each(|byte| *byte = 0);
                touch_document(&damaged, &names);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_are_encoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut out = Vec::new();
        let accepted = encode(&bytes, &mut out).is_ok();
        prop_assert_eq!(accepted, serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
    }

    #[test]
    fn bytes_of_jsons_own_alphabet_are_judged_as_by_another_parser(text in r#"[\[\]{}:, 0-2e.\-"\\un]{0,40}"#) {
        let mut out = Vec::new();
        let ours = encode(text.as_bytes(), &mut out);
        let theirs = serde_json::from_str::<serde_json::Value>(&text);
        // Duplicate keys are refused only by our parser, numbers beyond a double only by the other one.
        let differs = matches!(ours, Err(error) if matches!(error.kind, binjson::JsonErrorKind::DuplicateKey | binjson::JsonErrorKind::NulCharacter))
            || out_of_their_range(&theirs);
        prop_assert!(differs || ours.is_ok() == theirs.is_ok(), "{}: {:?} {:?}", text, ours, theirs);
    }

    #[test]
    fn a_changed_text_is_judged_as_by_another_parser(value in crate::support::object(12), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = value.to_string().into_bytes();
        let place = place.index(text.len());
        text[place] = byte;
        let mut out = Vec::new();
        if encode(&text, &mut out).is_ok() {
            let theirs = serde_json::from_slice::<serde_json::Value>(&text);
            prop_assert!(theirs.is_ok() || out_of_their_range(&theirs), "{:?}", theirs);
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 1..300), low in 0..16u8) {
        bytes[0] = 0x10 | low;
        touch_document(&bytes, &["a".to_owned()]);
    }

    #[test]
    fn changed_documents_are_read_without_a_panic(
        value in crate::support::object(30),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = Vec::new();
        prop_assert!(encode(value.to_string().as_bytes(), &mut bytes).is_ok());
        let names: Vec<String> = value.as_object().into_iter().flatten().take(5).map(|(key, _)| key.clone()).collect();
        touch_document(&bytes[..cut.index(bytes.len())], &names);
        for (place, byte, in_front) in changes {
            let len = if in_front { bytes.len().min(40) } else { bytes.len() };
            bytes[place.index(len)] = byte;
        }
        touch_document(&bytes, &names);
    }
}

#[test]
fn the_header_is_checked() {
    let mut bytes = Vec::new();
    assert!(encode(br#"{"a":1}"#, &mut bytes).is_ok());
    for len in 0..bytes.len() - br#"{"a":1}"#.len() {
        assert!(StoredDocument::from_bytes(&bytes[..len]).is_err(), "cut to {len}");
    }
    bytes[0] += 0x10;
    assert!(StoredDocument::from_bytes(&bytes).is_err(), "a newer format");
}
