//! NDJSON: on each line one request as a JSON object.
//!
//! ```json
//! {"method": "POST", "path": "/users/1", "headers": {"X-A": "b"}, "body": {"mark": 3}, "tag": "update"}
//! ```
//!
//! `path` is a path or a URL. `method` defaults to GET, or to POST if there is a body. `headers` is an object, or a list of pairs
//! if a name is repeated. A `body` that is a JSON string is sent as its text; any other JSON is sent as written, with
//! `Content-Type: application/json`. Path, values of header fields and body are templates (`template.rs`). An unknown key is an
//! error.

use super::request::{Defaults, Draft, PreparedRequest};
use super::template::{OtherBraces, Values};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(borrow, default)]
    headers: Headers<'a>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
    #[serde(borrow)]
    tag: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Headers<'a> {
    Object(#[serde(borrow)] BTreeMap<Cow<'a, str>, Cow<'a, str>>),
    Pairs(#[serde(borrow)] Vec<(Cow<'a, str>, Cow<'a, str>)>),
}

impl Default for Headers<'_> {
    fn default() -> Self {
        Headers::Pairs(Vec::new())
    }
}

/// Makes the request of one line.
pub(crate) fn make(
    line: &[u8],
    defaults: &Defaults,
    values: &mut Values,
    request: &mut PreparedRequest,
) -> Result<(), String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| without_line(&error))?;
    let (body, body_type) = body(line.body, values)?;
    let method = line.method.as_deref().unwrap_or(if line.body.is_some() { "POST" } else { "GET" });
    let draft = Draft {
        headers: headers(line.headers, values)?,
        body,
        body_type,
        tag: line.tag.map(Cow::into_owned),
        ..Draft::of_url(method, &values.fill(&line.path, OtherBraces::Error)?)
    };
    Ok(draft.encode(defaults, request)?)
}

fn headers(headers: Headers<'_>, values: &mut Values) -> Result<Vec<(String, String)>, String> {
    let pairs = match headers {
        Headers::Object(fields) => fields.into_iter().collect(),
        Headers::Pairs(fields) => fields,
    };
    let mut filled =
        |(name, value): (Cow<'_, str>, Cow<'_, str>)| Ok((name.into_owned(), values.fill(&value, OtherBraces::Text)?));
    pairs.into_iter().map(&mut filled).collect()
}

/// The bytes of a body, and their type if they are JSON.
fn body(body: Option<&RawValue>, values: &mut Values) -> Result<(Vec<u8>, Option<&'static str>), String> {
    let (text, body_type) = raw_body(body)?;
    Ok((values.fill(&text, OtherBraces::Text)?.into_bytes(), body_type))
}

/// The text of a body, and its type: a JSON string is its text, other JSON is as it is written.
pub(crate) fn raw_body(body: Option<&RawValue>) -> Result<(Cow<'_, str>, Option<&'static str>), String> {
    let Some(body) = body.map(RawValue::get) else { return Ok((Cow::Borrowed(""), None)) };
    Ok(match body.starts_with('"') {
        true => (serde_json::from_str::<Cow<'_, str>>(body).map_err(|error| without_line(&error))?, None),
        false => (Cow::Borrowed(body), Some("application/json")),
    })
}

/// The error's text without its position in the JSON text, which is a single line: the file's line is reported instead.
pub(crate) fn without_line(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    format!("{text} (column {column})")
}

#[cfg(test)]
mod lines {
    use super::{Defaults, PreparedRequest, Values, make};
    use proptest::prelude::*;

    fn made(line: &str) -> Result<(String, String), String> {
        let defaults = Defaults { host: "target".to_owned(), headers: Vec::new() };
        let (mut values, mut request) = (Values::new(1), PreparedRequest::default());
        make(line.as_bytes(), &defaults, &mut values, &mut request)?;
        Ok((String::from_utf8(request.bytes).expect("UTF-8"), request.tag))
    }

    #[test]
    fn json_goes_out_as_it_is_written_and_text_as_its_text() {
        let (bytes, tag) = made(r#"{"path":"/users/1","body":{"a":1.0, "b":"{seq}"}}"#).expect("a request");
        let head = "POST /users/1 HTTP/1.1\r\nHost: target\r\nContent-Type: application/json\r\nContent-Length: 18\r\n";
        assert_eq!(bytes, format!("{head}\r\n{{\"a\":1.0, \"b\":\"1\"}}"));
        assert_eq!(tag, "POST /users/{int}");
        let (bytes, _) = made(r#"{"method":"PUT","path":"/a","body":"a\nb{seq:5}"}"#).expect("a request");
        assert_eq!(bytes, "PUT /a HTTP/1.1\r\nHost: target\r\nContent-Length: 4\r\n\r\na\nb5");
    }

    #[test]
    fn headers_are_an_object_or_pairs_and_a_tag_may_be_named() {
        let (bytes, tag) = made(r#"{"path":"/","headers":{"X":"{seq}"},"tag":"root"}"#).expect("a request");
        assert_eq!((bytes.as_str(), tag.as_str()), ("GET / HTTP/1.1\r\nHost: target\r\nX: 1\r\n\r\n", "root"));
        let (bytes, _) = made(r#"{"path":"/","headers":[["X","1"],["X","2"]]}"#).expect("a request");
        assert_eq!(bytes, "GET / HTTP/1.1\r\nHost: target\r\nX: 1\r\nX: 2\r\n\r\n");
    }

    #[test]
    fn a_broken_line_says_what_is_wrong() {
        for (line, part) in [
            ("{", "EOF"),
            ("[1]", "invalid"),
            ("{}", "missing field `path`"),
            (r#"{"path":"/","uri":"/"}"#, "unknown field `uri`"),
            (r#"{"path":"/{x}"}"#, "placeholder"),
            (r#"{"path":"/","headers":{"a b":"c"}}"#, "header field"),
        ] {
            let problem = made(line).expect_err(line);
            assert!(problem.contains(part) && !problem.contains("line"), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_an_error(line in r#"\{"path":"[ -~]{0,9}"(,"(method|body|tag|headers|x)":[ -~]{0,12}){0,3}\}?"#) {
            let _ = made(&line);
        }

        #[test]
        fn any_body_text_comes_out(text in "[^{]{0,30}") {
            let line = serde_json::json!({"path": "/", "body": text}).to_string();
            let (bytes, _) = made(&line).expect("a request");
            let end = format!("\r\n\r\n{text}");
            prop_assert!(bytes.ends_with(&end));
        }
    }
}
