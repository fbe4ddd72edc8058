//! Cases by the categories in which parsers are commonly compared: texts that every parser accepts, texts that every parser
//! refuses, and the cases that RFC 8259 leaves to the implementation, with our choice. A refusal is checked with its place.

use binjson::JsonErrorKind::{self as Kind, *};
use binjson::{JsonError, StoredDocument, encode};

/// The stored text, or the reason and place of the refusal.
fn stored(text: &[u8]) -> Result<String, (Kind, usize)> {
    let mut out = Vec::new();
    match encode(text, &mut out) {
        Ok(()) => Ok(String::from_utf8(StoredDocument::from_bytes(&out).unwrap().text().to_vec()).unwrap()),
        Err(JsonError { kind, offset }) => Err((kind, offset)),
    }
}

/// Each first text is accepted, and stored as the second.
#[track_caller]
fn check_accepted(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(stored(text.as_bytes()).as_deref(), Ok(*expected), "{text:?}");
        // The result is the same between other values, and with whitespace around.
        let framed = format!("\t[ {text}\r\n, {{ \"k\" : {text} }} ] ");
        assert_eq!(stored(framed.as_bytes()), Ok(format!("[{expected},{{\"k\":{expected}}}]")), "{framed:?}");
    }
}

/// Each text is accepted and stored byte for byte.
#[track_caller]
fn check_kept(texts: &[&str]) {
    let cases: Vec<_> = texts.iter().map(|text| (*text, *text)).collect();
    check_accepted(&cases);
}

#[track_caller]
fn check_refused(kind: Kind, cases: &[(&str, usize)]) {
    for (text, place) in cases {
        assert_eq!(stored(text.as_bytes()), Err((kind, *place)), "{text:?}");
        // After whitespace each text is refused for the same reason, at a later offset.
        let later = format!("{}{text}", " \n".repeat(20));
        assert_eq!(stored(later.as_bytes()), Err((kind, place + 40)), "{later:?}");
    }
}

#[track_caller]
fn check_bytes_refused(kind: Kind, cases: &[(&[u8], usize)]) {
    for (bytes, place) in cases {
        assert_eq!(stored(bytes), Err((kind, *place)), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn accepted_structures() {
    check_kept(&["[]", "{}", "[[]]", "[{}]", "[[],[],{}]", "[null]", "[1,null,true,\"x\"]", "[[[[1]]],[]]", "[\"\"]"]);
    check_kept(&["{\"\":0}", "{\"a\":{}}", "{\"a\":[],\"b\":[{}]}", "{\"a\":\"b\",\"c\":\"b\"}", "{\"b\":1,\"a\":2}"]);
    check_kept(&["true", "false", "null", "0", "\"\"", "{\"long key with spaces and, commas: and colons\":1}"]);
    check_accepted(&[("[ ]", "[]"), ("[ 1\n,\t2 ]", "[1,2]"), ("{ \"a\" :\r\n[ ] }", "{\"a\":[]}")]);
}

#[test]
fn accepted_numbers() {
    check_kept(&["0", "-0", "1", "-1", "10", "1234567890123456789", "-9223372036854775808", "18446744073709551615"]);
    check_kept(&[
        "0.0",
        "-0.0",
        "0.5",
        "1.50",
        "123.456789",
        "3.141592653589793238462643383279",
        "0.000000000000000001",
    ]);
    check_kept(&[
        "0e1",
        "0e+1",
        "0E-01",
        "1e1",
        "1E1",
        "1e+22",
        "1E-22",
        "1.5e3",
        "-1.5E+003",
        "123e65",
        "20e1",
        "1e00",
    ]);
}

#[test]
fn accepted_strings() {
    check_kept(&["\"a\"", "\" \"", "\"/\"", "\"a/*b*/c//d\"", "\"[{,:}]\"", "\"null\"", "\"\u{7f}\"", "\"\u{80}\""]);
    check_kept(&["\"é\"", "\"€\"", "\"𝄞\"", "\"\u{2028}\u{2029}\"", "\"\u{feff}\"", "\"\u{fffe}\"", "\"\u{10ffff}\""]);
    check_kept(&[r#""\"""#, r#""\\""#, r#""\b\f\n\r\t""#, r#""\\u0061""#, r#""\\\"\\""#, r#""\u0001""#, r#""\u001f""#]);
    check_accepted(&[
        (r#""\/""#, "\"/\""),
        (r#""\u0060\u012a\u12AB""#, "\"`Īካ\""),
        (r#""\uD834\uDd1e""#, "\"𝄞\""),
        (r#""\uDBFF\uDFFF""#, "\"\u{10ffff}\""),
        (r#""\u0022\u005c""#, r#""\"\\""#),
        (r#""\u000A\u0009""#, r#""\n\t""#),
        (r#""\u000b""#, r#""\u000b""#),
        (r#""\uFFFF\uFDD0""#, "\"\u{ffff}\u{fdd0}\""),
        (r#""a\u200cb\u2064""#, "\"a\u{200c}b\u{2064}\""),
    ]);
}

#[test]
fn refused_arrays() {
    check_refused(
        UnexpectedByte,
        &[
            ("[1 true]", 3),
            ("[,]", 1),
            ("[,1]", 1),
            ("[1,,2]", 3),
            ("[1,]", 3),
            ("[\"\",]", 4),
            ("[\"x\"\"y\"]", 4),
            ("[\"a\":1]", 4),
            ("[x]", 1),
            ("[3[4]]", 2),
            ("[*]", 1),
            ("[}", 1),
            ("]", 0),
            ("[1\u{a0}]", 2),
            ("[\u{ff0c}]", 1),
            ("[\u{c}]", 1),
        ],
    );
    check_refused(
        UnexpectedEnd,
        &[("[", 1), ("[1", 2), ("[1,", 3), ("[\"a\"", 4), ("[[1]", 4), ("[1,\n1\n", 6), ("[{}", 3)],
    );
    check_refused(TrailingBytes, &[("[]]", 2), ("[1],", 3), ("[1]x", 3), ("[][]", 2), ("[1]\0", 3)]);
}

#[test]
fn refused_objects() {
    check_refused(
        ExpectedKey,
        &[
            ("{,}", 1),
            ("{1:1}", 1),
            ("{a:1}", 1),
            ("{'a':1}", 1),
            ("{null:null}", 1),
            ("{[]:1}", 1),
            ("{\"a\":1,}", 7),
            ("{\"a\":1,,\"b\":2}", 7),
            ("{\"a\":1,2}", 7),
            ("{]", 1),
            ("{\\u0061\":1}", 1),
        ],
    );
    check_refused(
        UnexpectedByte,
        &[
            ("{\"a\"}", 4),
            ("{\"a\",1}", 4),
            ("{\"a\" 1}", 5),
            ("{\"a\"=1}", 4),
            ("{\"a\":}", 5),
            ("{\"a\":1 \"b\":2}", 7),
            ("{\"a\":1]", 6),
            ("{\"a\":1:2}", 6),
            ("{\"a\"::1}", 5),
            ("{\"a\":/*c*/1}", 5),
            ("}", 0),
        ],
    );
    check_refused(
        UnexpectedEnd,
        &[("{", 1), ("{\"a\"", 4), ("{\"a\":", 5), ("{\"a\":1", 6), ("{\"a\":1,", 7), ("{\"a", 3)],
    );
    check_refused(TrailingBytes, &[("{}}", 2), ("{\"a\":1}#", 7), ("{}//", 2), ("{\"a\":1}\"", 7)]);
}

#[test]
fn refused_numbers() {
    let places: Vec<_> = [
        "-",
        "--1",
        "+1",
        "+-1",
        "-a",
        "- 1",
        ".1",
        "-.1",
        ".",
        "1.",
        "1.e1",
        "-2.",
        "01",
        "-01",
        "00",
        "-00",
        "012",
        "0e",
        "0e+",
        "0E",
        "1e",
        "1e+",
        "1e-",
        "1.5e",
        "1ee1",
        "1e.5",
        "1e+-1",
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "+Inf",
    ]
    .map(|text| (text, 0))
    .into();
    check_refused(BadNumber, &places);
    check_refused(BadNumber, &[("[1,-]", 3), ("{\"a\":-x}", 5), ("[0,01]", 3), ("[-1.]", 1)]);
    check_refused(
        UnexpectedByte,
        &[
            ("[1.2.3]", 4),
            ("[0x1]", 2),
            ("[1a]", 2),
            ("[1e1e1]", 4),
            ("[1+2]", 2),
            ("[1_000]", 2),
            ("[1 000]", 3),
            ("[\u{ff11}]", 1),
            ("[inf]", 1),
        ],
    );
    check_refused(TrailingBytes, &[("0x42", 1), ("1,000", 1), ("1.0.0", 3), ("2e3f", 3), ("1]", 1)]);
}

#[test]
fn refused_words() {
    check_refused(
        UnexpectedByte,
        &[("True", 0), ("FALSE", 0), ("Null", 0), ("nul1", 3), ("fals3", 4), ("[trux]", 4), ("no", 1)],
    );
    check_refused(UnexpectedEnd, &[("t", 1), ("tru", 3), ("fals", 4), ("n", 1), ("[nul", 4)]);
    check_refused(TrailingBytes, &[("nulll", 4), ("true1", 4), ("false\"", 5)]);
}

#[test]
fn refused_strings() {
    check_refused(UnexpectedEnd, &[("\"", 1), ("\"abc", 4), ("\"\\", 2), ("\"a\\\"", 4), ("[\"x", 3)]);
    check_refused(
        BadEscape,
        &[
            (r#""\x00""#, 1),
            (r#""\a""#, 1),
            (r#""\v""#, 1),
            (r#""\'""#, 1),
            (r#""\0""#, 1),
            (r#""\ ""#, 1),
            ("\"\\\n\"", 1),
            (r#""\u""#, 1),
            (r#""\u1""#, 1),
            (r#""\u00A""#, 1),
            (r#""\uqqqq""#, 1),
            (r#""\U0041""#, 1),
            (r#""\u{41}""#, 1),
            (r#""a\u+123""#, 2),
            ("\"\\🌀\"", 1),
        ],
    );
    check_refused(
        ControlCharacter,
        &[("\"\n\"", 1), ("\"a\tb\"", 2), ("\"\0\"", 1), ("\"a\u{1f}\"", 2), ("{\"\r\":1}", 2)],
    );
    check_refused(
        UnexpectedByte,
        &[("'x'", 0), ("`x`", 0), ("\u{201c}x\u{201d}", 0), ("abc", 0), ("\\n", 0), ("[\\\"x\\\"]", 1)],
    );
    check_refused(TrailingBytes, &[("\"\"\"", 2), ("\"a\"b", 3), ("\"a\\\\\"b", 5)]);
}

#[test]
fn refused_encodings() {
    check_bytes_refused(
        BadUtf8,
        &[
            (b"\xff", 0),
            (b"[\"\x80\"]", 2),           // a continuation byte alone
            (b"\"\xc3\"", 1),             // truncated
            (b"\"\xe2\x82\"", 1),         // truncated third byte
            (b"\"\xc0\xaf\"", 1),         // a slash in two bytes
            (b"\"\xe0\x80\xaf\"", 1),     // in three
            (b"\"\xed\xa0\x80\"", 1),     // half of a surrogate pair
            (b"\"\xf4\x90\x80\x80\"", 1), // beyond the last character
            (b"\"\xfc\x80\x80\x80\x80\x80\"", 1),
            (b"[\"caf\xe9\"]", 5), // Latin-1
            (b"{\"\xb9\":\"0\"}", 2),
            (b"[1]\xe5", 3),
        ],
    );
    // UTF-16 and UTF-32 are no UTF-8, with or without a mark in front.
    check_bytes_refused(BadUtf8, &[(b"\xff\xfe[\0]\0", 0), (b"\xfe\xff\0[\0]", 0)]);
    check_bytes_refused(UnexpectedByte, &[(b"[\0]\0", 1), (b"\0[\0]", 0), (b"[\0\0\0]\0\0\0", 1)]);
}

#[test]
fn refused_documents_without_a_value() {
    check_refused(UnexpectedEnd, &[("", 0), (" ", 1), ("\r\n\t", 3)]);
    check_refused(
        UnexpectedByte,
        &[("<null>", 0), ("/**/", 0), ("#", 0), ("\u{2060}", 0), ("(1)", 0), (";", 0), ("&", 0)],
    );
    check_refused(TrailingBytes, &[("1 1", 2), ("{}{}", 2), ("null\u{b}", 4), ("true // yes", 5), ("\"a\" \"b\"", 4)]);
}

#[test]
fn chosen_numbers_of_any_size_and_precision_are_kept_as_text() {
    check_kept(&["123123123123123123123123123123", "-100000000000000000000", "18446744073709551616"]);
    check_kept(&["1e400", "-1e9999", "1e-400", "0.4e006", "1.7976931348623159e308", "123123e100000", "-0e-0"]);
    check_kept(&["0.1000000000000000055511151231257827021181583404541015625", "9007199254740993.0"]);
}

#[test]
fn chosen_half_surrogates_are_refused_at_their_escape() {
    check_refused(
        LoneSurrogate,
        &[
            (r#""\uD800""#, 1),
            (r#""\uDFAA""#, 1),
            (r#""ab\uDADA""#, 3),
            (r#""\uD888\u1234""#, 1),
            (r#""\uDd1e\uD834""#, 1),
            (r#""\uD800\uD800\n""#, 1),
            (r#""\uD800abc""#, 1),
            (r#""\uD834\uDD1E\uD834""#, 13),
            (r#"{"\uDEAD":1}"#, 2),
        ],
    );
    check_refused(BadEscape, &[(r#""\u00""#, 1)]);
}

#[test]
fn chosen_marks_nul_and_twins_are_refused() {
    // A mark is one only where the text begins.
    check_bytes_refused(ByteOrderMark, &[("\u{feff}{}".as_bytes(), 0), ("\u{feff}".as_bytes(), 0)]);
    check_refused(UnexpectedByte, &[(" \u{feff}{}", 1)]);
    check_refused(NulCharacter, &[(r#""\u0000""#, 1), (r#"["a\u0000"]"#, 3), (r#"{"\u0000":1}"#, 2)]);
    check_refused(
        DuplicateKey,
        &[
            (r#"{"a":1,"a":1}"#, 7),
            (r#"{"a":1,"b":2,"\u0061":3}"#, 13),
            (r#"{"":1,"":2}"#, 6),
            (r#"[{"k":{"x":1,"x":2}}]"#, 13),
        ],
    );
    // Strings that look equal are not equal: no normalization is done.
    check_kept(&["{\"é\":1,\"e\u{301}\":2}", "{\"a\":1,\"A\":2,\"a \":3}"]);
}

#[test]
fn chosen_depth_is_128_and_refused_at_the_bracket_that_goes_beyond() {
    for (open, close) in [("[", "]"), ("{\"\":", "}")] {
        let nested = |depth: usize| format!("{}0{}", open.repeat(depth), close.repeat(depth));
        assert_eq!(stored(nested(128).as_bytes()), Ok(nested(128)));
        let (text, place) = (nested(129), open.len() * 128);
        check_refused(TooDeep, &[(text.as_str(), place)]);
        let open = open.repeat(100_000);
        check_refused(TooDeep, &[(open.as_str(), place)]);
    }
}
