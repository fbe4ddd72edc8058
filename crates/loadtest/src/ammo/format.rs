//! The formats of ammo, and their detection from an input's content.

use super::error::{AmmoError, AmmoPlace};
use super::{access_log, lines, phantom, request, tank, vegeta};
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Lines of an input in which marks of a format are looked for.
const LINES_MAX: usize = 1000;

/// A format of ammo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Raw requests, each after a line with its length and tag.
    Phantom,
    /// One line for each request: `URL`, or `METHOD URL`.
    Urls,
    /// One line for each request: a JSON object.
    Ndjson,
    /// The archive of requests that browsers export.
    Har,
    /// The access log of a server, in the common or the combined format.
    AccessLog,
    /// yandex-tank's list of paths with lines of header fields.
    Uri,
    /// yandex-tank's list of paths with bodies.
    UriPost,
    /// One line for each request: a JSON object with the keys of yandex-tank.
    JsonLine,
    /// vegeta's targets in its HTTP format.
    Vegeta,
    /// vegeta's targets in its JSON format.
    VegetaJson,
}

impl Format {
    /// All formats, in the order of the documentation.
    pub const ALL: [Format; 10] = [
        Format::Phantom,
        Format::Urls,
        Format::Ndjson,
        Format::Har,
        Format::AccessLog,
        Format::Uri,
        Format::UriPost,
        Format::JsonLine,
        Format::Vegeta,
        Format::VegetaJson,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Phantom => "phantom",
            Format::Urls => "urls",
            Format::Ndjson => "ndjson",
            Format::Har => "har",
            Format::AccessLog => "access-log",
            Format::Uri => "uri",
            Format::UriPost => "uripost",
            Format::JsonLine => "jsonline",
            Format::Vegeta => "vegeta",
            Format::VegetaJson => "vegeta-json",
        }
    }

    /// Whether requests are made from templates, so that two passes may differ.
    pub fn has_templates(self) -> bool {
        matches!(self, Format::Urls | Format::Ndjson)
    }

    /// Detects the format of an input from its beginning. `name` is the input's name in errors.
    pub(crate) fn found(name: &str, beginning: &[u8]) -> Result<Format, AmmoError> {
        let mut entries = beginning.split(|byte| *byte == b'\n').filter(|line| lines::is_entry(line));
        let Some(line) = entries.next().map(<[u8]>::trim_ascii) else {
            return Err(AmmoError::input(name, AmmoPlace::Whole, "it holds no request"));
        };
        let text = String::from_utf8_lossy(line);
        if text.starts_with('{') && !is_url_line(&text) {
            return Ok(if is_har(beginning) { Format::Har } else { json_format(line) });
        }
        if is_uripost(beginning) {
            return Ok(Format::UriPost);
        }
        if phantom::parse_header(line).is_some() {
            return Ok(Format::Phantom);
        }
        if access_log::request_line(&text).is_some() {
            return Ok(Format::AccessLog);
        }
        if is_uri_list(beginning) {
            return Ok(Format::Uri);
        }
        if is_url_line(&text) {
            return Ok(if has_parts_of_targets(beginning) { Format::Vegeta } else { Format::Urls });
        }
        Err(AmmoError::input(
            name,
            AmmoPlace::Whole,
            format!(
                "no format of ammo begins with {:?}; name one with --ammo-format: {}",
                request::shown(&text),
                Names
            ),
        ))
    }
}

/// A HAR's first key is `log`; a request in JSON has other keys.
fn is_har(beginning: &[u8]) -> bool {
    let rest = beginning.trim_ascii_start().strip_prefix(b"{").unwrap_or_default().trim_ascii_start();
    rest.strip_prefix(b"\"log\"").is_some_and(|rest| rest.trim_ascii_start().starts_with(b":"))
}

/// Which tool's JSON lines have such keys.
fn json_format(line: &[u8]) -> Format {
    let keys: BTreeMap<Cow<'_, str>, IgnoredAny> = serde_json::from_slice(line).unwrap_or_default();
    match keys {
        keys if keys.contains_key("path") => Format::Ndjson,
        keys if keys.contains_key("uri") => Format::JsonLine,
        keys if keys.contains_key("url") => Format::VegetaJson,
        _ => Format::Ndjson,
    }
}

/// Lines of the beginning, as far as a format is looked for.
fn first_lines(beginning: &[u8]) -> impl Iterator<Item = &[u8]> {
    beginning.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).take(LINES_MAX)
}

/// A line of yandex-tank with a header field.
fn is_bracketed(line: &[u8]) -> bool {
    line.starts_with(b"[") && line.contains(&b':')
}

/// The first line without brackets is SIZE URI, and no raw request follows, which would make it a phantom file whose tag begins with
/// a slash.
fn is_uripost(beginning: &[u8]) -> bool {
    let mut rest = beginning;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = rest[..end].trim_ascii();
        rest = &rest[end + 1..];
        if lines::is_entry(line) && !is_bracketed(line) {
            return tank::parse_head(line).is_some() && request::method_and_target(rest).is_none();
        }
    }
    false
}

/// Paths with lines of header fields or with tags; a list of paths alone is a list of URLs.
fn is_uri_list(beginning: &[u8]) -> bool {
    let mut has_mark = false;
    for line in first_lines(beginning).filter(|line| lines::is_entry(line)) {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (is_path, tag, more) = (line.starts_with(b"/"), words.nth(1), words.next());
        match is_bracketed(line) {
            true => has_mark = true,
            false if !is_path || more.is_some() => return false,
            false => has_mark |= tag.is_some(),
        }
    }
    has_mark
}

/// A header field or a body's file follows a line METHOD URL.
fn has_parts_of_targets(beginning: &[u8]) -> bool {
    let lines: Vec<&[u8]> = first_lines(beginning).filter(|line| !line.starts_with(b"#")).collect();
    lines.windows(2).any(|pair| vegeta::is_request_line(pair[0]) && vegeta::is_part(pair[1]))
}

fn is_url_line(line: &str) -> bool {
    let is_url = |word: &str| ["/", "http://", "https://", "{choice:"].iter().any(|start| word.starts_with(start));
    let mut words = line.split_ascii_whitespace();
    match (words.next(), words.next()) {
        (Some(url), None) => is_url(url),
        (Some(method), Some(url)) => is_url(url) && method.bytes().all(|byte| byte.is_ascii_uppercase()),
        _ => false,
    }
}

/// The names of all formats, for messages.
struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Format::ALL.map(Format::name).join(", "))
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        let found = Format::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| format!("{text:?} is no format of ammo: {Names}"))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod finding {
    use super::Format;
    use proptest::prelude::*;

    #[track_caller]
    fn check(beginning: &str, format: Format) {
        assert_eq!(Format::found("input", beginning.as_bytes()).expect("a format"), format);
    }

    #[test]
    fn each_format_is_found_by_its_first_line() {
        check("145 GET:/locations/<entity_id>\nGET /", Format::Phantom);
        check("\n18\nGET / HTTP/1.1\r\n\r\n", Format::Phantom);
        check("# mine\n\n/users/{int:1..3}\n", Format::Urls);
        check("DELETE http://a/b", Format::Urls);
        check("{choice:/a|/b}", Format::Urls);
        check("{\"path\": \"/\"}\n", Format::Ndjson);
        check("{\n  \"log\" : {", Format::Har);
        check("1.2.3.4 - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1", Format::AccessLog);
    }

    #[test]
    fn formats_of_other_tools_are_found_by_what_only_they_have() {
        check("[Connection: close]\n[Host: a]\n/?drg tag1\n/\n", Format::Uri);
        check("/a\n/b tag\n", Format::Uri);
        check("/a\n[Cookie: b]\n/c\n", Format::Uri);
        check("/a\n/b\n", Format::Urls);
        check("[Host: a]\n\n5 /route/?a tag\nclass\n", Format::UriPost);
        check("5 /route/\nclass\n", Format::UriPost);
        check("18 /tag\nGET / HTTP/1.1\r\n\r\n", Format::Phantom);
        check("{\"tag\": \"a\", \"host\": \"b\", \"method\": \"GET\", \"uri\": \"/\"}\n", Format::JsonLine);
        check("{\"method\": \"GET\", \"url\": \"http://a/\"}\n{", Format::VegetaJson);
        check("{\"path\": \"/\", \"body\": {\"url\": 1}}\n", Format::Ndjson);
        check("GET http://a/b\nX-A: c\n\nPOST http://a/\n", Format::Vegeta);
        check("# mine\nGET http://a/b\nPOST http://a/\n# of it\n@body.json\n", Format::Vegeta);
        check("GET http://a/b\nPOST http://a/\n", Format::Urls);
    }

    #[test]
    fn what_has_no_format_is_an_error_that_names_them() {
        for text in ["", "\n# only a comment\n", "users/1", "get /a b c"] {
            assert!(Format::found("input", text.as_bytes()).is_err(), "{text}");
        }
        let said = Format::found("input", b"users/1").expect_err("none").to_string();
        assert!(said.contains("phantom, urls, ndjson, har, access-log, uri, uripost, jsonline, vegeta"), "{said}");
    }

    #[test]
    fn a_format_is_parsed_by_its_name() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
        }
        assert!("csv".parse::<Format>().is_err());
    }

    proptest! {
        #[test]
        fn any_beginning_has_a_format_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Format::found("input", &bytes);
        }
    }
}
