//! The formats of ammo, and their detection from an input's content.

use super::error::{AmmoError, AmmoPlace};
use super::{access_log, lines, phantom, request};
use std::fmt;
use std::str::FromStr;

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
}

impl Format {
    /// All formats, in the order of the documentation.
    pub const ALL: [Format; 5] = [Format::Phantom, Format::Urls, Format::Ndjson, Format::Har, Format::AccessLog];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Format::Phantom => "phantom",
            Format::Urls => "urls",
            Format::Ndjson => "ndjson",
            Format::Har => "har",
            Format::AccessLog => "access-log",
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
            return Ok(if is_har(beginning) { Format::Har } else { Format::Ndjson });
        }
        if phantom::parse_header(line).is_some() {
            return Ok(Format::Phantom);
        }
        if access_log::request_line(&text).is_some() {
            return Ok(Format::AccessLog);
        }
        if is_url_line(&text) {
            return Ok(Format::Urls);
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
    fn what_has_no_format_is_an_error_that_names_them() {
        for text in ["", "\n# only a comment\n", "users/1", "get /a b c"] {
            assert!(Format::found("input", text.as_bytes()).is_err(), "{text}");
        }
        let said = Format::found("input", b"users/1").expect_err("none").to_string();
        assert!(said.contains("phantom, urls, ndjson, har, access-log"), "{said}");
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
