//! Properties that must hold for any bytes as JSON or as a stored document; run by the tests here and by targets of `fuzz/`.

#![allow(dead_code)] // Each driver takes its part.

use binjson::{JsonErrorKind, JsonValue, StoredDocument, ValueScan, encode, merge_patch, skip_space, value_end};
use serde_json::Value as Json;

/// How deep and how far a damaged document is traversed: its tables may describe one larger than its bytes.
const WALK_DEPTH: usize = 6;
const WALK_VALUES: usize = 300;

fn stored(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    encode(text, &mut bytes).ok().map(|()| bytes)
}

/// JSON: the same verdict as another parser's, except for our own refusals; encoding the result again gives the same bytes.
pub(crate) fn check_text(text: &[u8]) {
    let mut bytes = Vec::new();
    let theirs = serde_json::from_slice::<Json>(text);
    if let Err(error) = encode(text, &mut bytes) {
        let ours_alone =
            matches!(error.kind, JsonErrorKind::DuplicateKey | JsonErrorKind::NulCharacter | JsonErrorKind::TooDeep);
        assert!(theirs.is_err() || ours_alone, "{error:?}: {}", String::from_utf8_lossy(text));
        assert!(error.offset <= text.len() && bytes.is_empty(), "{error:?}");
        return;
    }
    let document = StoredDocument::from_bytes(&bytes).expect("what was encoded");
    match theirs {
        // The other parser uses doubles; if digits are lost, the values are not compared.
        Ok(theirs) => assert_eq!(serde_json::from_slice::<Json>(document.text()).ok(), Some(theirs)),
        Err(error) => {
            let limit =
                ["number out of range", "recursion limit"].iter().any(|limit| error.to_string().starts_with(limit));
            assert!(limit, "{error}: {}", String::from_utf8_lossy(text));
        }
    }
    assert_eq!(stored(document.text()).as_deref(), Some(&bytes[..]));
    let mut patched = Vec::new();
    if document.is_object() && merge_patch(document, document, &mut patched).is_ok() {
        let text = StoredDocument::from_bytes(&patched).map(|document| document.text().to_vec());
        assert!(text.is_ok_and(|text| stored(&text).is_some()), "a patched text is a text");
    }
}

fn walk(value: JsonValue<'_>, depth: usize, left: &mut usize) {
    if depth == 0 || *left == 0 {
        return;
    }
    *left -= 1;
    let _ = (value.kind(), value.as_i64(), value.as_f64(), value.as_bool(), value.as_str(), value.field("a"));
    for index in [0, 7, usize::MAX] {
        let _ = value.element(index);
    }
    let bytes = value.raw().len();
    assert!(value.fields().take(bytes + 1).count() <= bytes, "no more fields than bytes");
    assert!(value.elements().take(bytes + 1).count() <= bytes, "no more elements than bytes");
    value.fields().take(8).for_each(|(_, inner)| walk(inner, depth - 1, left));
    value.elements().take(8).for_each(|inner| walk(inner, depth - 1, left));
}

/// Stored bytes with any damage: applying a patch and traversing must terminate.
pub(crate) fn check_stored(bytes: &[u8], patch: &[u8]) {
    let (Ok(document), Ok(patch)) = (StoredDocument::from_bytes(bytes), StoredDocument::from_bytes(patch)) else {
        return;
    };
    walk(document.root(), WALK_DEPTH, &mut WALK_VALUES.clone());
    let mut out = Vec::new();
    let _ = (merge_patch(document, patch, &mut out), merge_patch(patch, document, &mut out));
}

/// JSON that arrives in pieces: its first value ends where another parser sees the end, whatever the pieces.
pub(crate) fn check_pieces(text: &[u8]) {
    let text = &text[skip_space(text, 0)..];
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Json>();
    let is_valid = values.next().is_some_and(|value| value.is_ok());
    // A number or a word ends with the text, or before what follows it.
    let is_delimited = matches!(text.first(), Some(b'"' | b'{' | b'['));
    let whole = ValueScan::default().end_in(text);
    if is_valid && is_delimited {
        assert_eq!((whole, value_end(text, 0)), (Some(values.byte_offset()), whole));
    }
    for piece_bytes in [1, 2, 3, 7, 64] {
        let mut scan = ValueScan::default();
        let mut pieces = text.chunks(piece_bytes).enumerate();
        let end = pieces.find_map(|(number, piece)| Some(number * piece_bytes + scan.end_in(piece)?));
        assert_eq!(end, whole, "in pieces of {piece_bytes}");
    }
}
