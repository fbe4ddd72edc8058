//! Requests as JSON lines of other tools: yandex-tank's and Pandora's (`jsonline`), and vegeta's targets (`vegeta-json`).
//!
//! ```json
//! {"host": "example.com", "method": "POST", "uri": "/a", "tag": "update", "headers": {"X-A": "b"}, "body": "text"}
//! {"method": "POST", "url": "http://example.com/a", "header": {"X-A": ["b"]}, "body": "dGV4dA=="}
//! ```
//!
//! In `jsonline` only `uri` is needed. A `body` that is a JSON string is sent as its text, other JSON as it is written. In
//! `vegeta-json` `method` and `url` are needed, and `body` is in base64. Nothing is a template. An unknown key is an error.

use super::ndjson::{raw_body, without_line};
use super::request::{Defaults, Draft, PreparedRequest};
use super::template::Values;
use base64::Engine as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TankLine<'a> {
    #[serde(borrow)]
    host: Option<Cow<'a, str>>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    uri: Cow<'a, str>,
    #[serde(borrow)]
    tag: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    headers: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

/// Makes the request of one line of yandex-tank.
pub(crate) fn make_tank(
    line: &[u8],
    defaults: &Defaults,
    _values: &mut Values,
    request: &mut PreparedRequest,
) -> Result<(), String> {
    let line: TankLine<'_> = serde_json::from_slice(line).map_err(|error| without_line(&error))?;
    let (body, body_type) = raw_body(line.body)?;
    let method = line.method.as_deref().unwrap_or(if line.body.is_some() { "POST" } else { "GET" });
    let of_url = Draft::of_url(method, &line.uri);
    let draft = Draft {
        host: line.host.map(Cow::into_owned).or(of_url.host),
        headers: line.headers.into_iter().map(|(name, value)| (name.into_owned(), value.into_owned())).collect(),
        body: body.into_owned().into_bytes(),
        body_type,
        tag: line.tag.map(Cow::into_owned),
        method: of_url.method,
        target: of_url.target,
    };
    Ok(draft.encode(defaults, request)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VegetaLine<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    header: BTreeMap<Cow<'a, str>, Vec<Cow<'a, str>>>,
    #[serde(borrow)]
    body: Option<Cow<'a, str>>,
}

/// Makes the request of one line of vegeta.
pub(crate) fn make_vegeta(
    line: &[u8],
    defaults: &Defaults,
    _values: &mut Values,
    request: &mut PreparedRequest,
) -> Result<(), String> {
    let line: VegetaLine<'_> = serde_json::from_slice(line).map_err(|error| without_line(&error))?;
    let body = line.body.as_deref().map(|body| base64::engine::general_purpose::STANDARD.decode(body)).transpose();
    let body = body.map_err(|error| format!("body: it is not base64, as vegeta writes it: {error}"))?;
    let fields = line.header.into_iter().flat_map(|(name, values)| {
        values.into_iter().map(move |value| (name.clone().into_owned(), value.into_owned()))
    });
    let draft =
        Draft { headers: fields.collect(), body: body.unwrap_or_default(), ..Draft::of_url(&line.method, &line.url) };
    Ok(draft.encode(defaults, request)?)
}

#[cfg(test)]
mod lines {
    use super::{Defaults, PreparedRequest, Values, make_tank, make_vegeta};
    use crate::ammo::per_line::Make;
    use proptest::prelude::*;

    fn made(make: Make, line: &str) -> Result<(String, String), String> {
        let defaults = Defaults { host: "target".to_owned(), headers: Vec::new() };
        let mut request = PreparedRequest::default();
        make(line.as_bytes(), &defaults, &mut Values::new(1), &mut request)?;
        Ok((String::from_utf8_lossy(&request.bytes).into_owned(), request.tag))
    }

    #[test]
    fn a_line_of_yandex_tank_is_a_request() {
        let line = r#"{"host": "example.com", "method": "POST", "uri": "/api/url2?{seq}", "tag": "url2", "headers": {"User-agent": "Tank", "Connection": "close"}, "body": "{\"data\": \"{seq}\"}"}"#;
        let (bytes, tag) = made(make_tank, line).expect("a request");
        let head = "POST /api/url2?{seq} HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nUser-agent: Tank\r\nContent-Length: 17\r\n\r\n";
        assert_eq!((bytes, tag.as_str()), (format!("{head}{{\"data\": \"{{seq}}\"}}"), "url2"));
        let (bytes, tag) = made(make_tank, r#"{"uri": "/a"}"#).expect("a request");
        assert_eq!((bytes.as_str(), tag.as_str()), ("GET /a HTTP/1.1\r\nHost: target\r\n\r\n", "GET /a"));
        let (bytes, _) = made(make_tank, r#"{"uri": "/a", "body": {"a": 1.0}}"#).expect("a request");
        assert!(bytes.contains("Content-Type: application/json") && bytes.ends_with("{\"a\": 1.0}"), "{bytes}");
    }

    #[test]
    fn a_line_of_vegeta_is_a_request() {
        let line = r#"{"method":"POST", "url":"https://goku/1", "header":{"X-A":["b","c"]}, "body": "Rk9P"}"#;
        let (bytes, tag) = made(make_vegeta, line).expect("a request");
        let expected = "POST /1 HTTP/1.1\r\nHost: goku\r\nX-A: b\r\nX-A: c\r\nContent-Length: 3\r\n\r\nFOO";
        assert_eq!((bytes.as_str(), tag.as_str()), (expected, "POST /{int}"));
    }

    #[test]
    fn a_broken_line_says_what_is_wrong() {
        let (tank, vegeta): (Make, Make) = (make_tank, make_vegeta);
        for (make, line, part) in [
            (tank, r#"{"host": "a"}"#, "missing field `uri`"),
            (tank, r#"{"uri": "/a", "url": "/"}"#, "unknown field `url`"),
            (tank, r#"{"uri": "/a", "headers": ["a"]}"#, "expected a map"),
            (tank, r#"{"uri": "a b"}"#, "begins with /"),
            (vegeta, r#"{"url": "http://a/"}"#, "missing field `method`"),
            (vegeta, r#"{"method": "GET", "url": "http://a/", "body": "te xt"}"#, "not base64"),
            (vegeta, r#"{"method": "GET", "url": "http://a/", "header": {"A": "b"}}"#, "expected a sequence"),
        ] {
            let problem = made(make, line).expect_err(line);
            assert!(problem.contains(part) && !problem.contains("line"), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_request_or_an_error(line in r#"\{"(uri|url|method)":"[ -~]{0,9}"(,"(method|body|tag|headers|header|host)":[ -~]{0,12}){0,3}\}?"#) {
            let _ = (made(make_tank, &line), made(make_vegeta, &line));
        }
    }
}
