//! yandex-tank's lists of requests: `uri` (GETs) and `uripost` (POSTs with their bodies).
//!
//! ```text
//! [Host: example.org]              a header field of all requests behind it; a later line of that name replaces it
//! [Connection: close]
//! /?drg tag1                       uri: a path, and perhaps a tag
//!
//! 5 /route/?x=1 tag2               uripost: the size of the body in bytes, a path, and perhaps a tag
//! class                            the body; a line break behind it does not belong to it
//! ```
//!
//! Blank lines and lines that begin with `#` are skipped, but not inside a body. Each pass begins without header fields.

use super::Records;
use super::error::{AmmoError, AmmoPlace};
use super::lines::Lines;
use super::request::{Defaults, Draft, HEADERS_MAX, PreparedRequest, check_header, shown};
use super::template::Values;
use crate::source::REQUEST_BYTES_MAX;
use std::io::BufRead;

/// The header fields in force, as (name, value).
#[derive(Debug, Default)]
struct Fields(Vec<(String, String)>);

impl Fields {
    /// Notes a line `[NAME: VALUE]`. False: it is another line.
    fn note(&mut self, line: &[u8]) -> Result<bool, String> {
        if !line.starts_with(b"[") {
            return Ok(false);
        }
        let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        let expected = || format!("{:?}: a header field is a line [NAME: VALUE]", shown(line));
        let inner = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).ok_or_else(expected)?;
        let (name, value) = inner.split_once(':').ok_or_else(expected)?;
        let (name, value) = (name.trim(), value.trim());
        check_header(name, value)?;
        self.0.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        if self.0.len() == HEADERS_MAX {
            return Err(format!("more than {HEADERS_MAX} header fields"));
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(true)
    }

    fn draft(&self, method: &str, uri: &str, tag: Option<&str>) -> Draft {
        Draft { headers: self.0.clone(), tag: tag.map(str::to_owned), ..Draft::of_url(method, uri) }
    }
}

/// Reads the lines of `uri`.
pub(crate) struct Uri<R> {
    lines: Lines<R>,
    defaults: Defaults,
    fields: Fields,
}

impl<R: BufRead> Uri<R> {
    pub(crate) fn new(name: &str, reader: R, defaults: Defaults) -> Uri<R> {
        Uri { lines: Lines::new(name, reader), defaults, fields: Fields::default() }
    }
}

impl<R: BufRead + Send> Records for Uri<R> {
    fn next(&mut self, _values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError> {
        loop {
            let Some(line) = self.lines.next_entry()? else { return Ok(false) };
            let made = match self.fields.note(line) {
                Ok(true) => continue,
                Ok(false) => uri_draft(line, &self.fields).and_then(|draft| Ok(draft.encode(&self.defaults, request)?)),
                Err(reason) => Err(reason),
            };
            return made.map(|()| true).map_err(|reason| self.lines.error(reason));
        }
    }

    fn fault(&self, reason: String) -> AmmoError {
        self.lines.error(reason)
    }
}

fn uri_draft(line: &[u8], fields: &Fields) -> Result<Draft, String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let mut words = line.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(uri), tag, None) => Ok(fields.draft("GET", uri, tag)),
        _ => Err("expected URI, or URI TAG: a tag has no blanks".to_owned()),
    }
}

/// Reads the records of `uripost`.
pub(crate) struct UriPost<R> {
    lines: Lines<R>,
    defaults: Defaults,
    fields: Fields,
    /// The line of the record read last.
    place: AmmoPlace,
    body: Vec<u8>,
}

impl<R: BufRead> UriPost<R> {
    pub(crate) fn new(name: &str, reader: R, defaults: Defaults) -> UriPost<R> {
        let (lines, fields) = (Lines::new(name, reader), Fields::default());
        UriPost { lines, defaults, fields, place: AmmoPlace::Line(0), body: Vec::new() }
    }

    /// The next record without its body, and the size of that.
    fn next_head(&mut self) -> Result<Option<(Draft, usize)>, AmmoError> {
        loop {
            let Some(line) = self.lines.next_entry()? else { return Ok(None) };
            match self.fields.note(line) {
                Ok(true) => {}
                Err(reason) => return Err(self.lines.error(reason)),
                Ok(false) => {
                    let head = parse_head(line).map(|(size, uri, tag)| (self.fields.draft("POST", uri, tag), size));
                    let reason = || {
                        format!(
                            "{:?}: expected SIZE URI, or SIZE URI TAG. Is the SIZE of the record before it right?",
                            shown(&String::from_utf8_lossy(line))
                        )
                    };
                    let head = head.ok_or_else(reason);
                    // Without a size the next record cannot be found.
                    return head.map(Some).map_err(|reason| self.lines.last_error(reason));
                }
            }
        }
    }
}

impl<R: BufRead + Send> Records for UriPost<R> {
    fn next(&mut self, _values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError> {
        let Some((mut draft, size)) = self.next_head()? else { return Ok(false) };
        self.place = self.lines.place();
        self.lines.read_bytes(size, &mut self.body)?;
        draft.body.extend_from_slice(&self.body);
        draft.encode(&self.defaults, request).map(|()| true).map_err(|problem| self.fault(problem.into()))
    }

    fn fault(&self, reason: String) -> AmmoError {
        AmmoError::record(self.lines.name(), self.place, reason)
    }
}

/// Size of the body, URI and tag of a record's first line.
pub(crate) fn parse_head(line: &[u8]) -> Option<(usize, &str, Option<&str>)> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let (size, uri, tag) = (words.next()?, words.next()?, words.next());
    let size = Some(size).filter(|size| size.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    let is_record = size <= REQUEST_BYTES_MAX && uri.starts_with('/') && words.next().is_none();
    is_record.then_some((size, uri, tag))
}

#[cfg(test)]
mod records {
    use super::{AmmoError, Defaults, PreparedRequest, Records, Uri, UriPost, Values};
    use proptest::prelude::*;

    fn all(mut records: impl Records) -> Result<Vec<(String, String)>, AmmoError> {
        let (mut all, mut request) = (Vec::new(), PreparedRequest::default());
        while records.next(&mut Values::new(1), &mut request)? {
            all.push((String::from_utf8_lossy(&request.bytes).into_owned(), request.tag.clone()));
        }
        Ok(all)
    }

    fn defaults() -> Defaults {
        Defaults { host: "target".to_owned(), headers: Vec::new() }
    }

    fn uris(text: &str) -> Result<Vec<(String, String)>, AmmoError> {
        all(Uri::new("ammo", text.as_bytes(), defaults()))
    }

    fn posts(text: &str) -> Result<Vec<(String, String)>, AmmoError> {
        all(UriPost::new("ammo", text.as_bytes(), defaults()))
    }

    #[test]
    fn header_lines_hold_for_the_uris_behind_them_and_a_uri_may_have_a_tag() {
        let text = "[Connection: close] \n[Host: target.example.com]\n[Cookie: None]\n/?drg tag1\n/\n[cookie: test]\n/buy/?rt=0&station_to=7 tag2\n";
        let read = uris(text).expect("good");
        let head = "Host: target.example.com\r\nConnection: close\r\nCookie: ";
        assert_eq!(
            read,
            [
                (format!("GET /?drg HTTP/1.1\r\n{head}None\r\n\r\n"), "tag1".to_owned()),
                (format!("GET / HTTP/1.1\r\n{head}None\r\n\r\n"), "GET /".to_owned()),
                (
                    format!("GET /buy/?rt=0&station_to=7 HTTP/1.1\r\n{}test\r\n\r\n", head.replace("Cookie", "cookie")),
                    "tag2".to_owned()
                ),
            ]
        );
        // Text outside ASCII is percent-encoded, and braces are no placeholders.
        let read = uris("/a?name=Ü tag\n/{seq}\n").expect("good");
        assert!(read[0].0.starts_with("GET /a?name=%C3%9C HTTP/1.1\r\nHost: target\r\n"), "{read:?}");
        assert!(read[1].0.starts_with("GET /{seq} "), "{read:?}");
    }

    #[test]
    fn bodies_have_their_size_with_or_without_a_line_break_behind_them() {
        let text =
            "[User-Agent: Tank]\n5 /route/?a=1\nclass\n0 /empty\n10 /route/ hello\nhello!\nas\n[X: y]\n7 /c\nuripost";
        let read = posts(text).expect("good");
        let bodies: Vec<&str> = read.iter().map(|(bytes, _)| bytes.split_once("\r\n\r\n").expect("a head").1).collect();
        assert_eq!(bodies, ["class", "", "hello!\nas\n", "uripost"]);
        assert_eq!(read[2].1, "hello");
        assert!(
            read[0]
                .0
                .starts_with("POST /route/?a=1 HTTP/1.1\r\nHost: target\r\nUser-Agent: Tank\r\nContent-Length: 5\r\n")
        );
        assert!(!read[2].0.contains("X: y") && read[3].0.contains("User-Agent: Tank\r\nX: y\r\n"));
    }

    #[track_caller]
    fn check_fault(read: Result<Vec<(String, String)>, AmmoError>, line: u64, part: &str) {
        let said = read.expect_err("broken").to_string();
        assert!(said.starts_with(&format!("ammo, line {line}: ")) && said.contains(part), "{said}");
    }

    #[test]
    fn a_broken_line_is_an_error_with_its_number_and_what_is_expected() {
        check_fault(uris("/a\n[Cookie: a\n/b\n"), 2, "a header field is a line [NAME: VALUE]");
        check_fault(uris("[Cookie]\n"), 1, "[NAME: VALUE]");
        check_fault(uris("[a b: c]\n"), 1, "no name of a header field");
        check_fault(uris("\n/a tag1 tag2\n"), 2, "a tag has no blanks");
        check_fault(uris("users\n"), 1, "begins with /");
        check_fault(posts("3 /a\nabc\nx /b\n"), 3, "expected SIZE URI");
        check_fault(posts("5 /a\na\nb\nc\nx /b\n"), 5, "expected SIZE URI");
        check_fault(
            posts("2 /a\nabc\n2 /b\nxy\n"),
            2,
            "\"c\": expected SIZE URI, or SIZE URI TAG. Is the SIZE of the record before it right?",
        );
        check_fault(posts("[A: b]\n9 /a\nabc\n"), 2, "9 bytes announced, the file ends after 4");
        check_fault(posts("99999999999 /a\n"), 1, "expected SIZE URI");
    }

    proptest! {
        #[test]
        fn any_text_is_records_or_an_error(text in r"(\[[a-zA-Z: ]{0,8}\]?\n)?([0-9]{0,2} ?/[a-z ]{0,6}\n){0,4}.{0,20}") {
            let _ = (uris(&text), posts(&text));
        }

        #[test]
        fn bodies_that_are_written_are_read_again(bodies in proptest::collection::vec("[ -~\n]{0,30}", 0..8)) {
            let file: String = bodies.iter().map(|body| format!("{} /a\n{body}\n", body.len())).collect();
            let read: Vec<String> = posts(&file).expect("good").into_iter()
                .map(|(bytes, _)| bytes.split_once("\r\n\r\n").expect("a head").1.to_owned()).collect();
            prop_assert_eq!(read, bodies);
        }
    }
}
