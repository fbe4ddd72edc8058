//! Refused texts with the reason and the place; and a similar text that is accepted.

use binjson::JsonErrorKind as Kind;
use binjson::{DEPTH_MAX, JsonError, StoredDocument, TEXT_BYTES_MAX, encode};

#[track_caller]
fn check_refused(text: impl AsRef<[u8]>, kind: Kind, offset: usize) {
    let text = text.as_ref();
    let mut out = b"before".to_vec();
    let shown = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
    assert_eq!(encode(text, &mut out), Err(JsonError { kind, offset }), "{shown}");
    assert_eq!(out, b"before", "a refused text leaves nothing behind");
}

#[track_caller]
fn check_accepted(text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    let shown = String::from_utf8_lossy(&text[..text.len().min(80)]).into_owned();
    let mut out = Vec::new();
    encode(text, &mut out).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let found: serde_json::Value = serde_json::from_slice(StoredDocument::from_bytes(&out).unwrap().text()).unwrap();
    assert_eq!(found, serde_json::from_slice::<serde_json::Value>(text).unwrap(), "{shown}");
}

#[test]
fn any_kind_of_value_may_be_a_document() {
    for text in
        ["null", "true", "false", "0", "-1.5e3", "\"\"", "\"x\"", "[]", "{}", " [ ] ", "\t{\r\n}\n", "[[[]],{}]"]
    {
        check_accepted(text);
    }
}

#[test]
fn a_text_that_ends_too_early_is_refused() {
    for text in ["", " ", "{", "[", "[1", "[1,", "{\"a\"", "{\"a\":", "{\"a\":1", "{\"a\":1,", "\"", "\"abc", "\"\\"] {
        check_refused(text, Kind::UnexpectedEnd, text.len());
    }
}

#[test]
fn misplaced_structure_is_refused_where_it_stands() {
    for (text, offset) in [
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[1}", 2),
        ("]", 0),
        (":", 0),
        (",", 0),
        ("{\"a\" 1}", 5),
        ("{\"a\":}", 5),
        ("{\"a\":1]", 6),
        ("{\"a\"::1}", 5),
        ("[\"a\":1]", 4),
        ("{\"a\":1 \"b\":2}", 7),
        ("'a'", 0),
        ("[a]", 1),
        ("[1;2]", 2),
        ("/*c*/1", 0),
        ("[1,//c\n2]", 3),
        ("\u{a0}1", 0),
        ("\u{c}1", 0),
        ("[\u{b}1]", 1),
    ] {
        check_refused(text, Kind::UnexpectedByte, offset);
    }
    for (text, offset) in [("{1:2}", 1), ("{a:1}", 1), ("{\"a\":1,}", 7), ("{,}", 1), ("{null:1}", 1), ("{'a':1}", 1)] {
        check_refused(text, Kind::ExpectedKey, offset);
    }
    check_refused("\u{feff}1", Kind::ByteOrderMark, 0);
}

#[test]
fn words_are_exact() {
    for (text, offset) in [("nul]", 3), ("True", 0), ("nULL", 1), ("falze", 3), ("undefined", 0)] {
        check_refused(text, Kind::UnexpectedByte, offset);
    }
    check_refused("[tru", Kind::UnexpectedEnd, 4);
    check_refused("truex", Kind::TrailingBytes, 4);
}

#[test]
fn numbers_follow_the_grammar() {
    for text in ["0", "-0", "0.0", "-0.0", "1e1", "1E+1", "1e-1", "0e0", "1.5E-7", "10", "9007199254740993"] {
        check_accepted(text);
    }
    for text in [
        "01",
        "-01",
        "00",
        "-",
        "1.",
        "1.e1",
        "-.5",
        "1e",
        "1e+",
        "1E-",
        "0x",
        ".5",
        "+1",
        "NaN",
        "Infinity",
        "-Infinity",
    ] {
        let mut out = Vec::new();
        let kind = encode(text.as_bytes(), &mut out).unwrap_err().kind;
        let trailing = text == "0x";
        assert_eq!(kind, if trailing { Kind::TrailingBytes } else { Kind::BadNumber }, "{text}");
    }
    check_refused("[1,-]", Kind::BadNumber, 3);
    check_refused("[1.2.3]", Kind::UnexpectedByte, 4);
    check_refused("[1-2]", Kind::UnexpectedByte, 2);
}

#[test]
fn numbers_of_any_length_are_kept() {
    for number in ["123456789012345678901234567890", "1e400", "-1E-400", "0.1000000000000000055511151231257827"] {
        let mut out = Vec::new();
        encode(number.as_bytes(), &mut out).unwrap();
        assert_eq!(StoredDocument::from_bytes(&out).unwrap().text(), number.as_bytes());
    }
}

#[test]
fn control_characters_must_be_escaped() {
    for code in 0..0x20u8 {
        check_refused([b"[\"a".as_slice(), &[code], b"\"]"].concat(), Kind::ControlCharacter, 3);
        check_refused(
            [&[b' '; 30], b"\"twenty bytes in front".as_slice(), &[code], b"\""].concat(),
            Kind::ControlCharacter,
            52,
        );
    }
    check_accepted("\"\u{7f}\u{80}\u{2028}\"");
}

#[test]
fn escapes_are_those_of_json() {
    check_accepted(r#""\"\\\/\b\f\n\r\t\u0001\u00e9\uD834\uDD1E\uFFFF""#);
    for text in [
        r#""\x41""#,
        r#""\a""#,
        r#""\'""#,
        r#""\0""#,
        r#""\U0041""#,
        r#""\u12""#,
        r#""\u12g4""#,
        r#""\u-123""#,
        "\"\\\u{e9}\"",
    ] {
        check_refused(text, Kind::BadEscape, 1);
    }
    check_refused(r#"{"ab\u00zz":1}"#, Kind::BadEscape, 4);
}

#[test]
fn a_nul_character_is_refused() {
    check_refused(r#"["a\u0000"]"#, Kind::NulCharacter, 3);
    check_refused(r#"{"\u0000":1}"#, Kind::NulCharacter, 2);
}

#[test]
fn half_of_a_surrogate_pair_is_refused() {
    for text in [
        r#""\uD800""#,
        r#""\uDC00""#,
        r#""\uD800\uD800""#,
        r#""\uD800x""#,
        r#""\uD800\n""#,
        r#""\uDC00\uD800""#,
        r#""\uDBFF\u0041""#,
    ] {
        check_refused(text, Kind::LoneSurrogate, 1);
    }
    check_accepted(r#""\uD800\uDC00\uDBFF\uDFFF""#);
}

#[test]
fn text_that_is_not_utf8_is_refused_wherever_it_stands() {
    for bad in [
        b"\xff".as_slice(),
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf5",
        b"\x80",
        b"\xc3",
        b"\xe2\x82",
        b"\xf0\x9f\x98",
    ] {
        check_refused([b"\"".as_slice(), bad, b"\""].concat(), Kind::BadUtf8, 1);
        check_refused([b"{\"".as_slice(), bad, b"\":1}"].concat(), Kind::BadUtf8, 2);
        check_refused([&[b' '; 100], bad].concat(), Kind::BadUtf8, 100);
    }
    check_refused(b"\xff\xfe[\x00]\x00", Kind::BadUtf8, 0);
}

#[test]
fn the_same_key_twice_is_refused_at_every_level_and_under_every_escape() {
    check_refused(r#"{"a":1,"a":2}"#, Kind::DuplicateKey, 7);
    check_refused(r#"{"":1,"":1}"#, Kind::DuplicateKey, 6);
    check_refused(r#"{"a":1,"\u0061":2}"#, Kind::DuplicateKey, 7);
    check_refused(r#"{"\u0061":1,"a":2}"#, Kind::DuplicateKey, 12);
    check_refused(r#"{ "a/b" : 1 , "a\/b" : 2 }"#, Kind::DuplicateKey, 14);
    check_refused(r#"{"Ж\"":1,"\u0416\u0022":2}"#, Kind::DuplicateKey, 10);
    check_refused(r#"[{"x":{"a":1,"b":2,"a":3}}]"#, Kind::DuplicateKey, 19);
    check_accepted(r#"{"a":{"a":{"a":1}},"b":{"a":[{"a":1},{"a":2}]},"A":1,"a ":1,"\u00e1":2,"a\u0301":3}"#);
    check_accepted(r#"{"a\"":1,"a":2,"a\\":3}"#);
}

#[test]
fn the_same_key_twice_is_refused_among_thousands() {
    for (count, twin) in [(70, 0), (300, 299), (5_000, 17)] {
        let mut text = String::from("{");
        for index in 0..count {
            text.push_str(&format!("\"k{index}\":{index}, "));
        }
        check_accepted(format!("{text}\"last\":0}}"));
        check_refused(format!("{text}\"\\u006b{twin}\":0}}"), Kind::DuplicateKey, text.len());
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |open: &str, close: &str, depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
    check_accepted(nested("[", "]", DEPTH_MAX - 10));
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[ ", " ]")] {
        let mut out = Vec::new();
        encode(nested(open, close, DEPTH_MAX).as_bytes(), &mut out).unwrap();
        check_refused(nested(open, close, DEPTH_MAX + 1), Kind::TooDeep, open.len() * DEPTH_MAX);
        check_refused(open.repeat(1_000_000), Kind::TooDeep, open.len() * DEPTH_MAX);
    }
    // Depth counts the open brackets, not all brackets so far.
    check_accepted(format!("[{}1]", "[[]],".repeat(1000)));
}

#[test]
fn what_follows_the_value_is_refused() {
    for (text, offset) in
        [("1 2", 2), ("{}{}", 2), ("[]]", 2), ("\"a\"\"b\"", 3), ("null,", 4), ("{} x", 3), ("1\0", 1)]
    {
        check_refused(text, Kind::TrailingBytes, offset);
    }
}

#[test]
fn size_is_bounded() {
    let mut text = vec![b' '; TEXT_BYTES_MAX];
    text[0] = b'1';
    let mut out = Vec::new();
    encode(&text, &mut out).unwrap();
    text.push(b' ');
    check_refused(text, Kind::TooLarge, TEXT_BYTES_MAX);
}

#[test]
fn errors_say_what_and_where() {
    let mut out = Vec::new();
    let error = encode(br#"{"a":1,"a":2}"#, &mut out).unwrap_err();
    assert_eq!(error.to_string(), "the same key twice in one object at byte 7");
}

#[test]
fn a_text_that_is_no_json_at_all_is_told_how_json_begins() {
    let told = |text: &str| encode(text.as_bytes(), &mut Vec::new()).expect_err(text).to_string();
    assert!(told("sku=tea").contains("at byte 0: JSON begins with {"), "{}", told("sku=tea"));
    assert_eq!(told("[x]"), "unexpected character at byte 1");
}
