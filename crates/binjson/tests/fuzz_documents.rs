//! Mutated JSON and stored documents: the same verdict as another parser's, stable encoding, terminating traversal.

use crate::fuzz_check::{check_pieces, check_stored, check_text};
use crate::mutation::{apply, edits};
use proptest::prelude::*;

const TEXTS: [&[u8]; 4] = [
    br#"{"id":1,"email":"a@b.c","first_name":"\u0416\u0430\u043d","tags":["x",{"y":[1,2.5,-0,1e9]}],"gender":null}"#,
    "{\"a\":{\"b\":{\"c\":[[[]],{},\"\\\"\\\\\\n\"]}},\"ключ\":\"\\ud83d\\ude00 😀\",\"t\":true,\"f\":false}"
        .as_bytes(),
    br#"[{"id":1},{"id":2,"v":[1,2]}, "x" , 3, null, [ ] ]"#,
    b"{\"id\":1}\n{\"id\":2,\"name\":\"x\"}\r\n\n  [1,2]\n",
];

const WORDS: [&[u8]; 34] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"[]",
    b"{}",
    b":",
    b",",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\ude00",
    b"\\u0000",
    b"\\u0022",
    b"\\u005C",
    b"\"a\":1,",
    b"\"\\u0061\":2,",
    b"-",
    b"0",
    b"1e",
    b"1E+400",
    b".5",
    b"18446744073709551616",
    b"null",
    b"true",
    b"nul",
    b" ",
    b"\n",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"\xff",
    b"\xf0\x9f\x98",
    "я".as_bytes(),
];

fn encoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(binjson::encode(text, &mut bytes).is_ok(), "a good text");
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_text_is_judged_as_by_another_parser(number in 0..TEXTS.len(), edits in edits(4)) {
        let text = apply(TEXTS[number], &edits, &WORDS);
        check_text(&text);
        check_pieces(&text);
    }

    #[test]
    fn a_soup_of_tokens_is_judged_as_by_another_parser(words in prop::collection::vec(prop::sample::select(&WORDS[..]), 0..24)) {
        check_text(&words.concat());
        check_text(&[b"\"", &words.concat()[..], b"\""].concat());
        check_pieces(&[b"[", &words.concat()[..], b"]"].concat());
    }

    #[test]
    fn a_mutated_document_is_walked_and_patched_to_an_end(number in 0..3usize, patch in 0..3usize, edits in edits(4), both in any::<bool>()) {
        let document = apply(&encoded(TEXTS[number]), &edits, &WORDS);
        let patch = encoded(TEXTS[patch]);
        let patch = if both { apply(&patch, &edits, &WORDS) } else { patch };
        check_stored(&document, &patch);
    }
}
