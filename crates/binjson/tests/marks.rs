//! A mark is found under its own name by every kind of field lookup, and is not part of the JSON.

use binjson::{FieldCache, FieldName, MARK_MAX, MARK_NAME, StoredDocument, encode, merge_patch, set_mark};

fn stored(text: &str, mark: Option<u64>) -> Vec<u8> {
    let mut out = b"before".to_vec();
    encode(text.as_bytes(), &mut out).unwrap();
    if let Some(mark) = mark {
        set_mark(&mut out, 6, mark);
    }
    out.split_off(6)
}

/// The results of all kinds of field lookups.
fn found<'d>(document: &StoredDocument<'d>, name: &str) -> [Option<&'d [u8]>; 4] {
    let (prepared, mut cache) = (FieldName::new(name), FieldCache::default());
    let raw = document.raw_named(&prepared, &mut cache);
    [
        document.field(name).map(|value| value.raw()),
        document.field_cached(name, &mut cache).map(|value| value.raw()),
        document.field_named(&prepared, &mut cache).map(|value| value.raw()),
        (!raw.is_empty()).then_some(raw),
    ]
}

#[track_caller]
fn check(text: &str, mark: u64, digits: &str) {
    let (plain, marked) = (stored(text, None), stored(text, Some(mark)));
    let (plain, marked) = (StoredDocument::from_bytes(&plain).unwrap(), StoredDocument::from_bytes(&marked).unwrap());
    assert_eq!(plain.mark().map(|mark| mark.raw()), None);
    assert_eq!(marked.mark().map(|mark| mark.raw()), Some(digits.as_bytes()));
    assert_eq!(marked.mark().and_then(|mark| mark.as_i64()), digits.parse().ok());
    assert_eq!(found(&plain, MARK_NAME), [None; 4]);
    assert_eq!(found(&marked, MARK_NAME), [marked.is_object().then_some(digits.as_bytes()); 4]);
    assert_eq!((marked.text(), marked.field_count()), (plain.text(), plain.field_count()));
    for ((name, ours), (other, theirs)) in marked.fields().zip(plain.fields()) {
        assert_eq!((name, ours.raw()), (other, theirs.raw()));
        let name = name.as_str().unwrap();
        assert_eq!(found(&marked, &name), [Some(theirs.raw()); 4]);
        assert_eq!(ours.fields().count(), theirs.fields().count());
        assert_eq!(
            ours.elements().map(|e| e.raw()).collect::<Vec<_>>(),
            theirs.elements().map(|e| e.raw()).collect::<Vec<_>>()
        );
    }
    assert_eq!(found(&marked, "nobody"), [None; 4]);
    assert!(stored(text, None).len() + 10 == marked.as_bytes().len());
}

#[test]
fn a_mark_is_found_under_its_name_and_changes_nothing_else() {
    let long = format!(
        "{{\"list\":[{}1],\"inner\":{{\"a\":{{\"b\":[1,2]}}}},\"text\":\"{}\"}}",
        "12345678,".repeat(90),
        "x".repeat(70_000)
    );
    let wide: Vec<String> = (0..400).map(|number| format!("\"field{number}\":{number}")).collect();
    let wide = format!("{{{}}}", wide.join(","));
    for text in
        ["{}", "{\"a\":1}", "{\"mark\":1,\"a\\\\u0000mark\":2,\"\\\"\":3}", "[1,2]", "7", "null", &long[..], &wide[..]]
    {
        check(text, 0, "0000000000");
        check(text, 1_800_000_000, "1800000000");
        check(text, MARK_MAX, "9999999999");
        check(text, u64::MAX, "9999999999");
    }
}

#[test]
fn a_mark_is_set_once_and_not_kept_by_a_patch() {
    let mut marked = stored("{\"a\":1}", Some(5));
    let before = marked.clone();
    set_mark(&mut marked, 0, 6);
    assert_eq!(marked, before);
    set_mark(&mut Vec::new(), 0, 6);
    let (patch, mut merged) = (stored("{\"b\":2}", None), Vec::new());
    let document = |bytes| StoredDocument::from_bytes(bytes).unwrap();
    merge_patch(document(&marked), document(&patch), &mut merged).unwrap();
    assert_eq!(merged, stored("{\"a\":1,\"b\":2}", None));
}

#[test]
fn damaged_marks_are_none_and_never_a_panic() {
    let marked = stored("{\"a\":{\"b\":1}}", Some(1_800_000_000));
    for place in 0..marked.len() {
        for byte in [0, b'{', b'[', b'"', 0xff, marked[place] ^ 0x80] {
            let mut damaged = marked.clone();
            damaged[place] = byte;
            let read = StoredDocument::from_bytes(&damaged);
            assert_eq!(StoredDocument::text_of(&damaged).ok(), read.ok().map(|document| document.text()));
            let Ok(document) = read else { continue };
            if let Some(mark) = document.mark() {
                assert!(mark.as_i64().is_some() && mark.fields().count() == 0);
            }
            found(&document, MARK_NAME);
        }
    }
    for end in 0..marked.len() {
        assert!(
            StoredDocument::from_bytes(&marked[..end])
                .ok()
                .and_then(|document| document.mark())
                .is_none_or(|_| end > 10)
        );
    }
}
