//! Reader of answers files: the contest's form and NDJSON, distinguished by each line's first character.
//!
//! ```text
//! GET\t/users/1\t200\t{"id": 1}              method, path, status, body; without the last tab any body is right
//! {"method": "GET", "path": "/users/1", "status": 200, "body": {"id": 1}}
//! ```
//!
//! In NDJSON, a `body` that is a JSON string is that text, any other JSON is compared as JSON; without `body` any body is right.
//! `method` may be omitted for GET.

use super::expected::Expected;
use crate::ammo::{AmmoError, Lines, Reader, without_line};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// The lines of one answers file.
pub(crate) struct AnswerLines {
    name: String,
    lines: Lines<Reader>,
}

impl AnswerLines {
    pub(crate) fn new(name: &str, reader: Reader) -> AnswerLines {
        AnswerLines { name: name.to_owned(), lines: Lines::new(name, reader) }
    }

    /// The next answer. `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Expected>, AmmoError> {
        let Some(line) = self.lines.next_whole_entry()? else { return Ok(None) };
        let parsed = parse(line);
        parsed.map(Some).map_err(|reason| self.lines.error(reason))
    }

    /// The file's name in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Number of the line read last.
    pub(crate) fn number(&self) -> u64 {
        self.lines.number()
    }

    /// An error in the line read last.
    pub(crate) fn fault(&self, reason: String) -> AmmoError {
        self.lines.error(reason)
    }
}

/// Reads one line.
pub(crate) fn parse(line: &[u8]) -> Result<Expected, String> {
    if line.starts_with(b"{") { parse_json(line) } else { parse_tabs(line) }
}

fn parse_tabs(line: &[u8]) -> Result<Expected, String> {
    let expected =
        || "expected METHOD, PATH, STATUS and, where it matters, the body, with tabs between them".to_owned();
    let mut parts = line.splitn(4, |byte| *byte == b'\t');
    let mut text = || parts.next().and_then(|part| std::str::from_utf8(part).ok()).ok_or_else(expected);
    let (method, target, status) = (text()?.to_owned(), text()?.to_owned(), text()?.trim());
    let status = checked(status.parse().map_err(|_| format!("{status:?} is no status"))?)?;
    let body = parts.next().filter(|body| !body.is_empty()).map(<[u8]>::to_vec);
    Ok(Expected { method, target, status, body })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    status: u16,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

fn parse_json(line: &[u8]) -> Result<Expected, String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| without_line(&error))?;
    let body = match line.body.map(RawValue::get) {
        Some(text) if text.starts_with('"') => {
            Some(serde_json::from_str::<String>(text).map_err(|error| without_line(&error))?.into_bytes())
        }
        other => other.map(|text| text.as_bytes().to_vec()),
    };
    let method = line.method.map_or_else(|| "GET".to_owned(), Cow::into_owned);
    Ok(Expected { method, target: line.path.into_owned(), status: checked(line.status)?, body })
}

/// A final status (RFC 9110, section 15).
fn checked(status: u16) -> Result<u16, String> {
    match status {
        200..=599 => Ok(status),
        _ => Err(format!("the status {status} is not between 200 and 599")),
    }
}

#[cfg(test)]
mod lines {
    use super::{AnswerLines, Expected, parse};
    use proptest::prelude::*;

    fn expected(method: &str, target: &str, status: u16, body: Option<&str>) -> Expected {
        let body = body.map(|body| body.as_bytes().to_vec());
        Expected { method: method.to_owned(), target: target.to_owned(), status, body }
    }

    #[test]
    fn both_forms_say_the_same() {
        let body = Some(r#"{"id":	1}"#);
        assert_eq!(parse(b"GET\t/users/1?a=b\t200\t{\"id\":\t1}"), Ok(expected("GET", "/users/1?a=b", 200, body)));
        let line = r#"{"path":"/users/1?a=b","status":200,"body":{"id":	1}}"#;
        assert_eq!(parse(line.as_bytes()), Ok(expected("GET", "/users/1?a=b", 200, body)));
    }

    #[test]
    fn a_body_may_be_missing_or_text() {
        assert_eq!(parse(b"POST\t/a\t404"), Ok(expected("POST", "/a", 404, None)));
        assert_eq!(parse(b"POST\t/a\t404\t"), Ok(expected("POST", "/a", 404, None)));
        let line = r#"{"method":"PUT","path":"/a","status":204,"body":""}"#;
        assert_eq!(parse(line.as_bytes()), Ok(expected("PUT", "/a", 204, Some(""))));
        let line = r#"{"path":"/a","status":200,"body":"a\n"}"#;
        assert_eq!(parse(line.as_bytes()), Ok(expected("GET", "/a", 200, Some("a\n"))));
    }

    #[test]
    fn blanks_at_the_end_belong_to_the_body() {
        let text = "  GET\t/a\t200\ttext \t\r\nGET\t/a\t200 \n";
        let mut lines = AnswerLines::new("answers", Box::new(std::io::Cursor::new(text)));
        assert_eq!(lines.next().expect("an answer"), Some(expected("GET", "/a", 200, Some("text \t"))));
        assert_eq!(lines.next().expect("an answer"), Some(expected("GET", "/a", 200, None)));
    }

    #[test]
    fn a_broken_line_is_an_error_with_its_number() {
        for (line, part) in [
            ("GET /a 200", "tabs between them"),
            ("GET\t/a", "tabs between them"),
            ("GET\t/a\tok", "no status"),
            ("GET\t/a\t100", "between 200 and 599"),
            (r#"{"path":"/a"}"#, "missing field `status`"),
        ] {
            let text = format!("GET\t/\t200\n{line}\n");
            let mut lines = AnswerLines::new("answers", Box::new(std::io::Cursor::new(text)));
            lines.next().expect("a good line");
            let error = lines.next().expect_err(line).to_string();
            assert!(error.starts_with("answers, line 2: ") && error.contains(part), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_an_answer_or_an_error(line in "(GET\t)?[ -~\t]{0,30}|\\{[ -~]{0,30}") {
            let _ = parse(line.as_bytes());
        }
    }
}
