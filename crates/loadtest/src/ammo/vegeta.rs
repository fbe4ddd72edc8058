//! vegeta's targets in their HTTP format.
//!
//! ```text
//! GET https://example.com/a          the method and the URL
//! Header-X: 123                      header fields
//! @/path/to/body/file                the body, from a file
//!                                    a blank line between requests; none is needed between requests of one line
//! POST https://example.com/b
//! ```
//!
//! Lines that begin with `#` are skipped. A body's file is found from the current folder, as vegeta does, and read when its request
//! is made. Connections go to the address of the command line; a URL's host becomes the field `Host`.

use super::Records;
use super::error::{AmmoError, AmmoPlace};
use super::lines::Lines;
use super::request::{Defaults, Draft, PreparedRequest, check_header, shown};
use super::template::Values;
use crate::source::REQUEST_BYTES_MAX;
use std::io::{BufRead, Read};
use std::path::Path;

/// Reads the targets of `reader`.
pub(crate) struct Vegeta<R> {
    lines: Lines<R>,
    defaults: Defaults,
    /// The first line of the next target, if it was read already.
    ahead: Option<Vec<u8>>,
    /// The first line of the target read last.
    place: AmmoPlace,
}

impl<R: BufRead> Vegeta<R> {
    pub(crate) fn new(name: &str, reader: R, defaults: Defaults) -> Vegeta<R> {
        Vegeta { lines: Lines::new(name, reader), defaults, ahead: None, place: AmmoPlace::Line(0) }
    }

    /// The next target. `None`: there are no more.
    fn draft(&mut self) -> Result<Option<Draft>, AmmoError> {
        let first = match self.ahead.take() {
            Some(ahead) => Some(ahead),
            None => self.lines.next_entry()?.map(<[u8]>::to_vec),
        };
        let Some(first) = first else { return Ok(None) };
        self.place = self.lines.place();
        let mut draft = request_line(&first).map_err(|reason| self.lines.error(reason))?;
        let mut is_first = true;
        while let Some(line) = self.lines.next()? {
            let line = line.trim_ascii();
            match line.first() {
                None => break,
                Some(b'#') => continue,
                Some(b'@') => {
                    draft.body = read_body(&line[1..]).map_err(|reason| self.lines.error(reason))?;
                    break;
                }
                _ if is_first && is_request_line(line) => {
                    self.ahead = Some(line.to_vec());
                    break;
                }
                _ => draft.headers.push(field(line).map_err(|reason| self.lines.error(reason))?),
            }
            is_first = false;
        }
        Ok(Some(draft))
    }
}

impl<R: BufRead + Send> Records for Vegeta<R> {
    fn next(&mut self, _values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError> {
        let Some(draft) = self.draft()? else { return Ok(false) };
        draft.encode(&self.defaults, request).map(|()| true).map_err(|problem| self.fault(problem.into()))
    }

    fn fault(&self, reason: String) -> AmmoError {
        AmmoError::record(self.lines.name(), self.place, reason)
    }
}

fn request_line(line: &[u8]) -> Result<Draft, String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let mut words = line.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(method), Some(url), None) => Ok(Draft::of_url(method, url)),
        _ => Err(format!("{:?}: expected METHOD URL", shown(line))),
    }
}

/// Whether a line is a method and a URL.
pub(crate) fn is_request_line(line: &[u8]) -> bool {
    let method = line.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    method > 0 && line.get(method).is_some_and(u8::is_ascii_whitespace)
}

/// Name and value of a line `NAME: VALUE`.
fn field(line: &[u8]) -> Result<(String, String), String> {
    let line = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    if is_request_line(line.as_bytes()) {
        return Err(format!("{:?}: put a blank line before the next request", shown(line)));
    }
    let expected = || format!("{:?}: expected a header field NAME: VALUE, a body @FILE, or a blank line", shown(line));
    let (name, value) = line.split_once(':').ok_or_else(expected)?;
    let (name, value) = (name.trim(), value.trim());
    check_header(name, value)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Whether a line is a part of a target behind its first line.
pub(crate) fn is_part(line: &[u8]) -> bool {
    line.len() > 1 && line.starts_with(b"@") || field(line).is_ok()
}

fn read_body(path: &[u8]) -> Result<Vec<u8>, String> {
    let path = std::str::from_utf8(path).map_err(|_| "the body's file: not UTF-8".to_owned())?;
    let (path, shown) = (Path::new(path), shown(path));
    let unreadable = |error: std::io::Error| format!("the body's file {shown:?} cannot be read: {error}");
    // Before it is opened: opening a pipe waits for a writer.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(format!("the body's file {shown:?} is not a regular file"));
    }
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    // One byte more shows that it is too long; the encoder refuses it.
    file.take(REQUEST_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod targets {
    use super::{AmmoError, Defaults, PreparedRequest, Records, Values, Vegeta};
    use proptest::prelude::*;

    fn all(text: &str) -> Result<Vec<String>, AmmoError> {
        let defaults = Defaults { host: "target".to_owned(), headers: Vec::new() };
        let (mut records, mut request) = (Vegeta::new("ammo", text.as_bytes(), defaults), PreparedRequest::default());
        let mut all = Vec::new();
        while records.next(&mut Values::new(1), &mut request)? {
            all.push(String::from_utf8_lossy(&request.bytes).into_owned());
        }
        Ok(all)
    }

    #[test]
    fn targets_have_header_fields_and_bodies_from_files() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "{\"a\":1}\n").expect("written");
        let text = format!(
            "# mine\nGET https://foo.bar/a/b/c\nHeader-X: 123\n# a comment\nHeader-Y: 321\n\nPOST /d\nHeader-X: 123\n@{}\nGET http://foo.bar\nGET /e?{{seq}}\n",
            file.path().display()
        );
        let head = |line: &str, host: &str| format!("{line} HTTP/1.1\r\nHost: {host}\r\n");
        assert_eq!(
            all(&text).expect("good"),
            [
                head("GET /a/b/c", "foo.bar") + "Header-X: 123\r\nHeader-Y: 321\r\n\r\n",
                head("POST /d", "target") + "Header-X: 123\r\nContent-Length: 8\r\n\r\n{\"a\":1}\n",
                head("GET /", "foo.bar") + "\r\n",
                head("GET /e?{seq}", "target") + "\r\n",
            ]
        );
    }

    #[track_caller]
    fn check_fault(text: &str, line: u64, part: &str) {
        let said = all(text).expect_err("broken").to_string();
        assert!(said.starts_with(&format!("ammo, line {line}: ")) && said.contains(part), "{said}");
    }

    #[test]
    fn a_broken_line_is_an_error_with_its_number_and_what_to_do() {
        check_fault("GET\n", 1, "expected METHOD URL");
        check_fault("GET /a\nHeader\n", 2, "expected a header field NAME: VALUE, a body @FILE, or a blank line");
        check_fault("GET /a\nX: 1\nGET http://b/\n", 3, "put a blank line before the next request");
        check_fault("\nGET /a\nX: 1\n@no/such.file\n", 4, "\"no/such.file\" cannot be read");
        check_fault("POST /a\n@/\n", 2, "\"/\" is not a regular file");
        check_fault("GET /a\n\nget users\nX: 1\n", 3, "begins with /");
    }

    proptest! {
        #[test]
        fn any_text_is_targets_or_an_error(text in r"([A-Z]{0,4} ?/[a-z ]{0,6}\n([a-zA-Z]{0,3}: ?[a-z]{0,3}\n)?\n?){0,4}.{0,20}") {
            let _ = all(&text);
        }
    }
}
