//! Lists of URLs: on each line `URL`, or `METHOD URL`. Blank lines and lines that begin with `#` are comments.
//!
//! A URL is `http://HOST/PATH`, whose host becomes the request's `Host`, or a path. The command line decides which address is
//! connected to. Lines are templates (`template.rs`).

use super::request::{Defaults, Draft, PreparedRequest};
use super::template::{OtherBraces, Values};

/// Makes the request of one line.
pub(crate) fn make(
    line: &[u8],
    defaults: &Defaults,
    values: &mut Values,
    request: &mut PreparedRequest,
) -> Result<(), String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let line = values.fill(line, OtherBraces::Error)?;
    let mut words = line.split_ascii_whitespace();
    let draft = match (words.next(), words.next(), words.next()) {
        (Some(url), None, _) => Draft::of_url("GET", url),
        (Some(method), Some(url), None) => Draft::of_url(method, url),
        _ => return Err("expected URL, or METHOD URL".to_owned()),
    };
    Ok(draft.encode(defaults, request)?)
}

#[cfg(test)]
mod lines {
    use super::{Defaults, PreparedRequest, Values, make};

    fn made(line: &str) -> Result<(String, String), String> {
        let defaults = Defaults { host: "target".to_owned(), headers: Vec::new() };
        let (mut values, mut request) = (Values::new(1), PreparedRequest::default());
        make(line.as_bytes(), &defaults, &mut values, &mut request)?;
        Ok((String::from_utf8(request.bytes).expect("UTF-8"), request.tag))
    }

    #[test]
    fn a_line_is_a_url_or_a_method_and_a_url() {
        let get = "GET /users/1 HTTP/1.1\r\nHost: target\r\n\r\n".to_owned();
        assert_eq!(made("/users/{seq}"), Ok((get, "GET /users/{int}".to_owned())));
        let delete = "DELETE /a HTTP/1.1\r\nHost: b:1\r\n\r\n".to_owned();
        assert_eq!(made("DELETE  http://b:1/a"), Ok((delete, "DELETE /a".to_owned())));
    }

    #[test]
    fn a_broken_line_says_what_is_expected() {
        for (line, part) in [
            ("GET /a HTTP/1.1", "expected URL, or METHOD URL"),
            ("users", "begins with /"),
            ("G{T /a", "placeholder"),
            ("ftp://a/b", "begins with /"),
        ] {
            let problem = made(line).expect_err(line);
            assert!(problem.contains(part), "{problem}");
        }
    }
}
