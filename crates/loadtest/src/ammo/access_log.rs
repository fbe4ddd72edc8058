//! Access logs in the common and the combined format (Apache, nginx): method and path of each request are replayed.
//!
//! ```text
//! 192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a?b=c HTTP/1.0" 200 2326 "http://referrer/" "agent"
//! ```
//!
//! Logs hold no bodies: a POST is sent with an empty one. The logged status, referrer and agent are ignored. Bytes that the
//! server escaped in the path (`\x22`, `\"`) are percent-encoded.

use super::request::{Defaults, Draft, PreparedRequest, shown};
use super::template::Values;
use std::fmt::Write as _;

/// Makes the request of one line.
pub(crate) fn make(
    line: &[u8],
    defaults: &Defaults,
    _values: &mut Values,
    request: &mut PreparedRequest,
) -> Result<(), String> {
    let line = String::from_utf8_lossy(line);
    let request_line =
        request_line(&line).ok_or("expected HOST - USER [TIME] \"METHOD PATH HTTP/1.1\" STATUS BYTES")?;
    let mut words = request_line.split(' ');
    let draft = match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), version, None) if version.is_none_or(|version| version.starts_with("HTTP/")) => {
            // In a target in absolute form the host is that of the logging server or a proxy; only the path is used.
            Draft { host: None, ..Draft::of_url(method, &unescaped(target)) }
        }
        _ => return Err(format!("{:?} is no request line", shown(request_line))),
    };
    Ok(draft.encode(defaults, request)?)
}

/// The text between the first two quotation marks after the time; a backslash escapes the next character.
pub(crate) fn request_line(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("] \"")?;
    let mut escaped = false;
    let end = rest.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some(&rest[..end])
}

/// `\xHH` (nginx, Apache) and `\"`, `\\` (Apache) as percent-encoding.
fn unescaped(target: &str) -> String {
    let mut out = String::with_capacity(target.len());
    let mut rest = target;
    while let Some(start) = rest.find('\\') {
        out.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        let hex = rest.strip_prefix('x').and_then(|hex| hex.get(..2));
        match hex.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit())) {
            Some(hex) => {
                out.push('%');
                out.push_str(hex);
                rest = &rest[3..];
            }
            None => {
                let escaped = rest.chars().next().filter(char::is_ascii).unwrap_or('\\');
                // Writing into a String does not fail.
                let _ = write!(out, "%{:02X}", u32::from(escaped));
                rest = rest.strip_prefix(escaped).unwrap_or(rest);
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod lines {
    use super::{Defaults, PreparedRequest, Values, make};
    use proptest::prelude::*;

    fn made(line: &str) -> Result<(String, String), String> {
        let defaults = Defaults { host: "target".to_owned(), headers: Vec::new() };
        let mut request = PreparedRequest::default();
        make(line.as_bytes(), &defaults, &mut Values::new(1), &mut request)?;
        Ok((request.method_and_target().1.to_owned(), request.tag))
    }

    #[track_caller]
    fn check(request_line: &str, target: &str) {
        for rest in ["200 2326", "404 - \"http://r/\" \"agent \\\"x\\\"\""] {
            let line = format!("192.0.2.1 - frank [10/Oct/2000:13:55:36 -0700] \"{request_line}\" {rest}");
            assert_eq!(made(&line).map(|(target, _)| target).as_deref(), Ok(target), "{line}");
        }
    }

    #[test]
    fn method_and_path_are_taken_from_common_and_combined_lines() {
        check("GET /a?b=c HTTP/1.0", "/a?b=c");
        check("GET http://a.example/b HTTP/1.1", "/b");
        check("GET /a", "/a");
        check(r#"GET /\xD0\xBF\"\\ HTTP/1.1"#, "/%D0%BF%22%5C");
    }

    #[test]
    fn a_line_without_a_request_line_is_an_error() {
        for line in [r#"a - - [t] "-" 400 0"#, r#"a - - [t] "\x16\x03" 400 0"#, "text", r#"a - - [t] "GET / HTTP/1.1"#]
        {
            assert!(made(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_an_error(line in r#"([a-z\[]{0,3}\] "(GET )?[ -~]{0,12}"?.{0,9})|.{0,30}"#) {
            let _ = made(&line);
        }
    }
}
