//! `pattern` and `patternProperties` are matched within the steps of a check.

use schema::{Misfit, Schema};
use serde_json::{Value, json};

use crate::hostile_schemas::{check, stored};

fn of_pattern(pattern: &str) -> Schema {
    Schema::declared(&json!({"properties": {"a": {"pattern": pattern}}}).to_string()).unwrap()
}

fn matched(schema: &Schema, text: &str) -> Result<(), Misfit> {
    check(schema, &stored(&json!({"a": text}).to_string()))
}

#[track_caller]
fn check_stopped(checked: Result<(), Misfit>) {
    let misfit = checked.unwrap_err();
    assert!(misfit.why.contains("takes over 500000 steps") && misfit.why.contains("`pattern`"), "{}", misfit.why);
}

/// Patterns whose bounded repeats overlap, and a part of a text that they match in many ways.
const WIDE: [(&str, &str); 6] = [
    (r"^(\w{1,50} ?){1,100}$", "a"),
    ("^(a{1,200}){1,200}$", "a"),
    ("^(a{1,50}){1,50}$", "a"),
    ("^([a-z]{1,30},?){1,50}$", "ab"),
    (r"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.){1,126}[a-z]{2,63}$", "a."),
    ("(x[ab]{1,100}){1,100}y", "xab"),
];

#[test]
fn a_pattern_with_repeats_that_overlap_stops_the_check() {
    for (pattern, part) in WIDE {
        let schema = of_pattern(pattern);
        for bytes in [100, 300, 1_000, 5_000, 100_000] {
            // It ends, after few steps or at the limit.
            let text = part.repeat(bytes / part.len()) + "!";
            let checked = matched(&schema, &text);
            assert!(checked.is_err(), "{pattern}, {bytes}");
        }
    }
    for (pattern, part) in &WIDE[..2] {
        check_stopped(matched(&of_pattern(pattern), &(part.repeat(2_000) + "!")));
    }
}

#[test]
fn usual_patterns_match_texts_of_any_usual_length() {
    let words = "word ".repeat(2_000);
    for (pattern, text) in [
        ("^[a-z0-9-]{1,64}$", "a-slug-".repeat(9)),
        ("^.{1,1000}$", "é".repeat(1_000)),
        ("^.{0,10000}$", "x".repeat(10_000)),
        ("^.{0,10000}$", "漢字かな".repeat(2_500)),
        (r"^\w+@\w+$", format!("{}@{}", "a".repeat(50_000), "b".repeat(50_000))),
        (r"^[^@\s]+@([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$", format!("me@{}org", "example.".repeat(30))),
        ("^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$", "0123abcd-0123-4567-89ab-0123456789ab".into()),
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-28".into()),
        (r"^\s*(.{1,2000})\s*$", "漢字かな".repeat(500)),
        (r"^(\w+\s?){1,30}$", "words ".repeat(30)),
        (r"^(\w{1,50} ?){1,100}$", "word ".repeat(60)),
        (r"^\p{L}{1,50}( \p{L}{1,50}){0,5}$", "Ünïcödé ".repeat(5) + "é"),
        ("[A-Z]{2,5}[0-9]{3,200}x", words.repeat(10) + "AB1234x"),
        ("[a-z ]{200}!", words.repeat(10) + "!"),
        (r"\bx\b", words.clone() + "x"),
        (r"\bé\b", words.clone() + "é"),
        (r"^[\s\S]*$", words.repeat(50)),
        (r"^(?!.*--)[a-z0-9-]{1,63}$", "a-slug-".repeat(9)),
        (&format!("^(?!.*({})).*$", vec!["rude"; 30].join("|")), words.clone()),
        (r"^(?!.*(spam|scam)).*[^ ](?<!!)$", words[..4_000].to_string() + "x"),
        (r"^(?=.*[a-z])(?=.*\d).{8,200}$", "password1".repeat(20)),
        (r"^((?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)+[A-Za-z]{2,6}$", "example.".repeat(31) + "org"),
        (r"^(?=.{1,253}$)(([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)\.)+[a-z]{2,63}$", "example.".repeat(30) + "org"),
    ] {
        let schema = of_pattern(pattern);
        assert_eq!(matched(&schema, &text), Ok(()), "{pattern}");
        let misfit = matched(&schema, &format!("{}\n\n!-", text.replace(['x', 'é'], "y"))).err();
        assert!(misfit.is_none_or(|misfit| !misfit.why.contains("steps")), "{pattern}");
    }
}

#[test]
fn a_pattern_that_looks_around_stops_the_check_if_its_repeats_overlap() {
    for pattern in ["^(?=a)(a{1,200}){1,200}$", "(?<!b)([a-z]{1,50} ?){1,100}$"] {
        check_stopped(matched(&of_pattern(pattern), &("a".repeat(1_000) + "!")));
    }
}

#[test]
fn a_pattern_that_looks_around_stops_the_check_if_its_automaton_has_too_many_states() {
    let mut number = 1u32;
    let mut letter = || {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if number >> 31 == 0 { 'a' } else { 'b' }
    };
    let text: String = (0..5_000).map(|_| letter()).collect();
    check_stopped(matched(&of_pattern("(?<!c)[ab]*a[ab]{20}c"), &text));
    check_stopped(matched(&of_pattern("(?<!c)[ab]*a[ab]{8}c"), &text.repeat(2)));
}

#[test]
fn names_are_matched_within_the_steps_too() {
    let named = |name: &str| stored(&json!({"a": {name: 1}}).to_string());
    for (pattern, part) in &WIDE[..2] {
        let name = part.repeat(2_000) + "!";
        for rules in [
            json!({"propertyNames": {"pattern": pattern}}),
            json!({"patternProperties": {*pattern: true}}),
            json!({"patternProperties": {*pattern: true}, "additionalProperties": false}),
            json!({"patternProperties": {*pattern: true, "(?!b)a": true}}),
        ] {
            let schema = Schema::declared(&json!({"properties": {"a": rules}}).to_string()).unwrap();
            check_stopped(check(&schema, &named(&name)));
        }
        let elsewhere =
            json!({"x-parts": [{"patternProperties": {*pattern: true}}], "properties": {"a": {"$ref": "#/x-parts/0"}}});
        check_stopped(check(&Schema::declared(&elsewhere.to_string()).unwrap(), &named(&name)));
    }
    let usual = json!({"properties": {"a": {
        "patternProperties": {"^(?!_)[a-z0-9_-]{1,64}$": true, "^[a-z0-9_-]{1,64}$": {"type": "integer"}, r"^\p{L}{1,50}$": {"type": "integer"}},
        "additionalProperties": false, "propertyNames": {"pattern": r"^[\w-]{1,64}$"},
    }}});
    let schema = Schema::declared(&usual.to_string()).unwrap();
    let names = |count: u32| (0..count).map(|number| (format!("a-name-of-usual-length-{number}"), json!(number)));
    let many = json!({"a": names(5_000).collect::<serde_json::Map<String, Value>>()});
    assert_eq!(check(&schema, &stored(&many.to_string())), Ok(()));
}

#[test]
fn a_text_that_does_not_match_is_shown_with_the_pattern() {
    let schema = of_pattern(r"^\d+$");
    let misfit = matched(&schema, "1x").unwrap_err();
    assert_eq!((misfit.pointer.as_str(), misfit.why.as_str()), ("/a", r#""1x" does not match "^\d+$""#));
    for bytes in [1_005, 2_000] {
        let misfit = matched(&schema, &"x".repeat(bytes)).unwrap_err();
        assert_eq!((misfit.pointer.as_str(), misfit.why.as_str()), ("/a", r#"value does not match "^\d+$""#));
    }
    let why = Schema::declared(r#"{"pattern": "("}"#).unwrap_err();
    assert!(why.contains("regex"), "{why}");
}
