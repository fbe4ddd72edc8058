//! Whether two bodies are equal.
//!
//! Equal bytes are. Otherwise both must be JSON, and are compared as values: the order of keys does not matter, that of arrays
//! does, numbers are compared by value (`1`, `1.0` and `1e0` are equal). Integers of 64 bits are compared exactly, other numbers
//! as doubles. If a key is repeated, its last value counts. JSON nested deeper than `serde_json` accepts (128 levels) is compared
//! by bytes.

use serde_json::{Map, Number, Value};

/// The first difference between `received` and `expected`. `None`: they are equal.
pub(crate) fn difference(expected: &[u8], received: &[u8]) -> Option<String> {
    if expected == received {
        return None;
    }
    let json = |bytes| serde_json::from_slice::<Value>(bytes).ok();
    let (Some(expected), Some(received)) = (json(expected), json(received)) else {
        return Some("the bodies differ".to_owned());
    };
    let mut path = "$".to_owned();
    differs(&expected, &received, &mut path).then(|| format!("the bodies differ at {path}"))
}

/// Whether two values differ; if so, `path` is that of the first difference.
fn differs(expected: &Value, received: &Value, path: &mut String) -> bool {
    match (expected, received) {
        (Value::Object(expected), Value::Object(received)) => objects_differ(expected, received, path),
        (Value::Array(expected), Value::Array(received)) => arrays_differ(expected, received, path),
        (Value::Number(expected), Value::Number(received)) => !same_number(expected, received),
        _ => expected != received,
    }
}

fn objects_differ(expected: &Map<String, Value>, received: &Map<String, Value>, path: &mut String) -> bool {
    let missing = expected.keys().find(|key| !received.contains_key(*key));
    let unknown = received.keys().find(|key| !expected.contains_key(*key));
    if let Some(key) = missing.or(unknown) {
        path.push_str(&format!(".{key}"));
        return true;
    }
    expected.iter().any(|(key, value)| {
        received
            .get(key)
            .is_some_and(|received| inside(path, &format!(".{key}"), |path| differs(value, received, path)))
    })
}

fn arrays_differ(expected: &[Value], received: &[Value], path: &mut String) -> bool {
    for (index, (expected, received)) in expected.iter().zip(received).enumerate() {
        if inside(path, &format!("[{index}]"), |path| differs(expected, received, path)) {
            return true;
        }
    }
    if expected.len() != received.len() {
        path.push_str(&format!("[{}]", expected.len().min(received.len())));
    }
    expected.len() != received.len()
}

/// Compares one level down; the step stays in the path if there is a difference.
fn inside(path: &mut String, step: &str, differs: impl FnOnce(&mut String) -> bool) -> bool {
    let length = path.len();
    path.push_str(step);
    let found = differs(path);
    if !found {
        path.truncate(length);
    }
    found
}

fn same_number(a: &Number, b: &Number) -> bool {
    let integer = |number: &Number| number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.as_f64() == b.as_f64(),
    }
}

#[cfg(test)]
mod bodies {
    use super::difference;
    use proptest::prelude::*;
    use serde_json::Value;

    #[track_caller]
    fn check(expected: &str, received: &str, difference_at: Option<&str>) {
        assert_eq!(difference(expected.as_bytes(), received.as_bytes()).as_deref(), difference_at);
    }

    #[test]
    fn json_is_compared_as_json() {
        check(r#"{"a": 1, "b": [1.0, "\u043f"]}"#, r#"{"b":[1,"п"],"a":1e0}"#, None);
        check(r#"[1, 2]"#, r#"[2, 1]"#, Some("the bodies differ at $[0]"));
        check(r#"[1, 2]"#, r#"[1]"#, Some("the bodies differ at $[1]"));
        check(r#"{"v":[{"m":1},{"m":2}]}"#, r#"{"v":[{"m":1},{"m":3}]}"#, Some("the bodies differ at $.v[1].m"));
        check(r#"{"a":1}"#, r#"{"a":1,"b":2}"#, Some("the bodies differ at $.b"));
        check(r#"{"id":125}"#, r#"{"id":"125"}"#, Some("the bodies differ at $.id"));
        check("0", "-0.0", None);
        check("3.25", "3.250", None);
    }

    #[test]
    fn integers_are_compared_exactly() {
        check("9007199254740993", "9007199254740992", Some("the bodies differ at $"));
        check("18446744073709551615", "18446744073709551615.0", None);
        check("-1", "18446744073709551615", Some("the bodies differ at $"));
    }

    #[test]
    fn what_is_no_json_is_compared_by_bytes() {
        check("a", "a", None);
        check("a", "a ", Some("the bodies differ"));
        check("", "{}", Some("the bodies differ"));
        let deep = "[".repeat(100_000);
        check(&deep, &format!("{deep} "), Some("the bodies differ"));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,5}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]{0,2}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_is_equal_to_itself_however_it_is_laid_out(value in json()) {
            let (short, long) = (value.to_string(), format!("{value:#}"));
            prop_assert_eq!(difference(short.as_bytes(), long.as_bytes()), None);
        }

        #[test]
        fn values_without_numbers_differ_where_serde_says_so(a in json(), b in json()) {
            let says = difference(a.to_string().as_bytes(), b.to_string().as_bytes());
            prop_assert!(says.is_some() || a == b || a.to_string().contains(|c: char| c.is_ascii_digit()));
            prop_assert!(a != b || says.is_none());
        }
    }
}
