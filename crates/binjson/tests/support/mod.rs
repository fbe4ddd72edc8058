//! Arbitrary JSON for the property tests.

#![allow(dead_code)] // Each test file takes what it needs.

use proptest::prelude::*;
use serde_json::{Map, Number, Value};

/// Strings with difficult characters: quotes, backslashes, control characters, Cyrillic, characters above U+FFFF.
pub(crate) fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z_]{1,12}",
        2 => "[а-яА-Я ]{0,24}",
        1 => r#"[a-z"\\/\x01-\x1f\x7f]{0,12}"#,
        1 => "[a-zа-я😀𝄞€]{0,40}",
    ]
}

/// A JSON value of bounded depth and size.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|number| Value::Number(number.into())),
        any::<u64>().prop_map(|number| Value::Number(number.into())),
        // Eighths of small integers: the other library also reads these back exactly.
        any::<i32>().prop_map(|number| Number::from_f64(f64::from(number) / 8.0).map_or(Value::Null, Value::Number)),
        string().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 200, 24, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..24).prop_map(Value::Array),
            prop::collection::vec((string(), inner), 0..24)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// An object with up to `fields` fields.
pub(crate) fn object(fields: usize) -> impl Strategy<Value = Value> {
    prop::collection::vec((string(), value()), 0..fields)
        .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
}

/// The same JSON with every non-ASCII character, and some ASCII ones, as `\uXXXX`.
pub(crate) fn with_unicode_escapes(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii() && character != '/' {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04X}"));
            }
        }
    }
    escaped
}
