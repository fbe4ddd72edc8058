//! Values that a step takes from its reply: by a JSON pointer, from a header field, or by a regular expression.

use crate::ammo::shown;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::Value;
use std::fmt;

/// Largest value in bytes.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;
/// Largest size of a compiled regular expression, in bytes.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// Where a value is in a reply.
#[derive(Clone, Debug)]
pub(crate) enum Take {
    /// JSON pointer (RFC 6901) into the body.
    Json(String),
    /// Name of a header field.
    Header(String),
    /// A regular expression on the body: its first group, or the whole match if it has none.
    Regex(Regex),
}

impl Take {
    /// Reads `json:/POINTER`, `header:NAME` or `regex:EXPRESSION`.
    pub(crate) fn parse(text: &str) -> Result<Take, String> {
        let expected = || format!("{:?}: write json:/POINTER, header:NAME or regex:EXPRESSION", shown(text));
        let (kind, argument) = text.split_once(':').ok_or_else(expected)?;
        match kind {
            "json" if argument.is_empty() || argument.starts_with('/') => Ok(Take::Json(argument.to_owned())),
            "json" => Err(format!("{:?}: a JSON pointer begins with /, as in json:/items/0/id", shown(text))),
            "header" if !argument.trim().is_empty() => Ok(Take::Header(argument.trim().to_owned())),
            "regex" => {
                let regex = RegexBuilder::new(argument).size_limit(REGEX_BYTES_MAX).build();
                // The parser's explanation has several lines, of which the last names the error.
                let reason = |error: regex::Error| error.to_string().lines().last().unwrap_or_default().to_owned();
                regex.map(Take::Regex).map_err(|error| format!("{:?}: {}", shown(text), reason(error)))
            }
            _ => Err(expected()),
        }
    }

    /// Replaces `value` by the reply's. The error says what is missing.
    pub(crate) fn take(&self, head: &[u8], body: &[u8], value: &mut String) -> Result<(), String> {
        value.clear();
        match self {
            Take::Json(pointer) => {
                let json: Value = serde_json::from_slice(body).map_err(|_| "the body is no JSON".to_owned())?;
                match json.pointer(pointer) {
                    None | Some(Value::Null) => return Err("the body has no such value".to_owned()),
                    Some(Value::String(text)) => value.push_str(text),
                    Some(other) => value.push_str(&other.to_string()),
                }
            }
            Take::Header(name) => {
                let found = field(head, name).ok_or_else(|| "the reply has no such field".to_owned())?;
                value.push_str(&String::from_utf8_lossy(found));
            }
            Take::Regex(regex) => {
                let groups = regex.captures(body).ok_or_else(|| "the body has no match".to_owned())?;
                let found = groups.get(1).or_else(|| groups.get(0)).map_or(&b""[..], |group| group.as_bytes());
                value.push_str(&String::from_utf8_lossy(found));
            }
        }
        if value.len() > VALUE_BYTES_MAX {
            value.clear();
            return Err(format!("the value is longer than {VALUE_BYTES_MAX} bytes"));
        }
        Ok(())
    }
}

/// The value of the first field of this name.
fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| line[colon + 1..].trim_ascii())
    })
}

impl fmt::Display for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Take::Json(pointer) => write!(f, "json:{pointer}"),
            Take::Header(name) => write!(f, "header:{name}"),
            Take::Regex(regex) => write!(f, "regex:{}", shown(regex.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nLocation: /users/7?a:b\r\nX-Empty:\r\n\r\n";

    fn taken(take: &str, body: &str) -> Result<String, String> {
        let mut value = "old".to_owned();
        Take::parse(take)?.take(HEAD, body.as_bytes(), &mut value)?;
        Ok(value)
    }

    #[test]
    fn values_are_taken_from_json_header_fields_and_matches() {
        let body = r#"{"token": "a\"b", "items": [{"id": 7}], "on": true, "none": null}"#;
        for (take, expected) in [
            ("json:/token", "a\"b"),
            ("json:/items/0/id", "7"),
            ("json:/items/0", "{\"id\":7}"),
            ("json:/on", "true"),
            ("header:location", "/users/7?a:b"),
            ("header: X-Empty", ""),
            (r#"regex:"id": (\d+)"#, "7"),
            ("regex:to+ken", "token"),
        ] {
            assert_eq!(taken(take, body).as_deref(), Ok(expected), "{take}");
        }
        assert_eq!(taken("json:", "[1]").as_deref(), Ok("[1]"));
    }

    #[test]
    fn what_is_missing_or_no_way_to_take_a_value_is_told() {
        for (take, body, part) in [
            ("json:/a", "{}", "no such value"),
            ("json:/a", r#"{"a":null}"#, "no such value"),
            ("json:/a", "<html>", "no JSON"),
            ("header:X", "", "no such field"),
            ("regex:(a)", "b", "no match"),
            ("json:a", "", "begins with /"),
            ("token", "", "write json:/POINTER, header:NAME or regex:EXPRESSION"),
            ("xpath:/a", "", "write json:/POINTER"),
            ("header: ", "", "write json:/POINTER"),
            ("regex:(", "", "unclosed group"),
        ] {
            let error = taken(take, body).unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{take}: {error}");
        }
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        assert!(taken("regex:x+", &long).unwrap_err().contains("longer than 65536 bytes"));
    }

    proptest! {
        #[test]
        fn any_reply_has_a_value_or_not(head in proptest::collection::vec(any::<u8>(), 0..40), body in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut value = String::new();
            for take in ["json:/0", "header:a", "regex:(.)"] {
                let _ = Take::parse(take).unwrap().take(&head, &body, &mut value);
            }
        }
    }
}
