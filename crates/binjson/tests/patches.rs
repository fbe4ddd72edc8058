//! Merge patch compared with a slow, simple twin, and the examples of RFC 7396.

use binjson::{Encoder, StoredDocument};
use proptest::prelude::*;
use serde_json::Value as Json;

fn patched(target: &str, patch: &str) -> String {
    let mut encoder = Encoder::new();
    let (mut stored_target, mut stored_patch, mut out) = (Vec::new(), Vec::new(), Vec::new());
    encoder.encode(target.as_bytes(), &mut stored_target).unwrap();
    encoder.encode(patch.as_bytes(), &mut stored_patch).unwrap();
    let target = StoredDocument::from_bytes(&stored_target).unwrap();
    let patch = StoredDocument::from_bytes(&stored_patch).unwrap();
    encoder.merge_patch(target, patch, &mut out).unwrap();
    String::from_utf8(StoredDocument::from_bytes(&out).unwrap().text().to_vec()).unwrap()
}

#[track_caller]
fn check_patch(target: &str, patch: &str, result: &str) {
    assert_eq!(patched(target, patch), result, "{target} with {patch}");
}

/// The pseudo code of RFC 7396, section 2.
fn merged(target: Json, patch: &Json) -> Json {
    let Json::Object(patch) = patch else { return patch.clone() };
    let mut target = if let Json::Object(fields) = target { fields } else { serde_json::Map::new() };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            let old = target.remove(key).unwrap_or(Json::Null);
            target.insert(key.clone(), merged(old, value));
        }
    }
    Json::Object(target)
}

#[test]
fn the_examples_of_the_rfc_hold() {
    check_patch(r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
    check_patch(r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#);
    check_patch(r#"{"a":"b"}"#, r#"{"a":null}"#, r#"{}"#);
    check_patch(r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#);
    check_patch(r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#);
    check_patch(r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#);
    check_patch(r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#);
    check_patch(r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#);
    check_patch(r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#);
    check_patch(r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#);
    check_patch(r#"{"a":"foo"}"#, "null", "null");
    check_patch(r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#);
    check_patch(r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#);
    check_patch(r#"[1,2]"#, r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#);
    check_patch("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#);
}

#[test]
fn kept_fields_stay_in_place_and_new_ones_follow_in_the_order_of_the_patch() {
    check_patch(
        r#"{"z":1,"b":{"y":2,"x":3},"a":4}"#,
        r#"{"n":5,"a":6,"m":7,"b":{"w":8,"x":9}}"#,
        r#"{"z":1,"b":{"y":2,"x":9,"w":8},"a":6,"n":5,"m":7}"#,
    );
    check_patch(r#"{"a\"":1.50}"#, r#"{"\u0061\u0022":1.5e0,"б":-0}"#, r#"{"a\"":1.5e0,"б":-0}"#);
    let many = |from: i32, to: i32| (from..to).map(|i| format!("\"f{i}\":{i}")).collect::<Vec<_>>().join(",");
    let result = format!("{{{}}}", many(0, 60));
    check_patch(&format!("{{{}}}", many(0, 30)), &format!("{{{},{}}}", many(30, 60), many(5, 25)), &result);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_patch_does_what_the_rfc_says(mut target in crate::support::object(40), patch in crate::support::object(40), shared in 0..20usize) {
        // Random keys seldom coincide: the target gets some of the patch's.
        if let (Json::Object(target), Json::Object(patch)) = (&mut target, &patch) {
            for (key, value) in patch.iter().take(shared) {
                let nested = value.as_object().map(|fields| fields.keys().step_by(2).map(|key| (key.clone(), Json::Bool(true))));
                target.insert(key.clone(), nested.map_or(Json::Null, |fields| Json::Object(fields.collect())));
            }
        }
        let found: Json = serde_json::from_str(&patched(&target.to_string(), &patch.to_string())).unwrap();
        prop_assert_eq!(found, merged(target, &patch));
    }
}
