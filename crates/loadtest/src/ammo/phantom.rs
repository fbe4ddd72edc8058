//! Phantom files: raw requests, each after a line with its length and an optional tag.
//!
//! ```text
//! LENGTH TAG\n
//! LENGTH bytes: one request of HTTP/1.0 or 1.1
//! ```
//!
//! The bytes are sent unchanged. LENGTH may include one line break after the body, as it does for almost all POSTs of the
//! contest's files: it is sent too, because servers received it there. Blank lines between records are skipped. LENGTH 0 ends the
//! file.
//!
//! A record must hold exactly one request; otherwise replies would be attributed to other requests. Its head must be complete,
//! and its body as long as `Content-Length` says. A chunked body is not checked.

use super::error::{AmmoError, AmmoPlace};
use super::request::{PreparedRequest, append_shape_of, method_and_target, says_close};
use super::template::Values;
use super::{Records, tag};
use crate::source::REQUEST_BYTES_MAX;
use std::io::{BufRead, Read};

/// Longest line before a request, in bytes: a length, and a tag.
const HEADER_BYTES_MAX: usize = 4096;
/// Largest number of header fields of a request.
const FIELDS_MAX: usize = 128;

/// Reads records of `reader`.
pub(crate) struct Phantom<R> {
    name: String,
    reader: R,
    /// Number of the record read last, from 1.
    number: u64,
    header: Vec<u8>,
}

impl<R: BufRead> Phantom<R> {
    pub(crate) fn new(name: &str, reader: R) -> Phantom<R> {
        Phantom { name: name.to_owned(), reader, number: 0, header: Vec::new() }
    }

    /// Reads up to the next line that is not blank; false at the end of the input.
    fn read_header(&mut self) -> Result<bool, AmmoError> {
        loop {
            self.header.clear();
            let limit = HEADER_BYTES_MAX as u64 + 1;
            let read = (&mut self.reader).take(limit).read_until(b'\n', &mut self.header);
            match read.map_err(|error| self.broken(format!("cannot be read: {error}")))? {
                0 => return Ok(false),
                bytes if bytes > HEADER_BYTES_MAX => {
                    return Err(self.broken(format!("its line of length and tag is over {HEADER_BYTES_MAX} bytes")));
                }
                _ if self.header.trim_ascii().is_empty() => {}
                _ => return Ok(true),
            }
        }
    }

    fn read_bytes(&mut self, length: usize, bytes: &mut Vec<u8>) -> Result<(), AmmoError> {
        bytes.clear();
        let read = (&mut self.reader).take(length as u64).read_to_end(bytes);
        read.map_err(|error| self.broken(format!("cannot be read: {error}")))?;
        match bytes.len() == length {
            true => Ok(()),
            false => Err(self.broken(format!("{length} bytes announced, the file ends after {}", bytes.len()))),
        }
    }

    /// An error after which the next record cannot be found.
    fn broken(&self, reason: String) -> AmmoError {
        AmmoError::input(&self.name, AmmoPlace::Record(self.number), reason)
    }
}

impl<R: BufRead + Send> Records for Phantom<R> {
    fn next(&mut self, _values: &mut Values, request: &mut PreparedRequest) -> Result<bool, AmmoError> {
        self.number += 1;
        if !self.read_header()? {
            return Ok(false);
        }
        let Some((length, named)) = parse_header(&self.header) else {
            return Err(self.broken(format!("no line LENGTH TAG, with LENGTH 0 to {REQUEST_BYTES_MAX}")));
        };
        if length == 0 {
            return Ok(false);
        }
        let named = named.to_owned();
        self.read_bytes(length, &mut request.bytes)?;
        let head = check(&request.bytes).map_err(|reason| self.fault(reason))?;
        request.closes = head.closes;
        request.tag.clear();
        match named.is_empty() {
            true => append_shape_of(&request.bytes, &mut request.tag),
            false => request.tag.push_str(tag::cut(&named)),
        }
        Ok(true)
    }

    fn fault(&self, reason: String) -> AmmoError {
        AmmoError::record(&self.name, AmmoPlace::Record(self.number), reason)
    }
}

/// Length and tag of a record's line; the tag is empty if there is none.
pub(crate) fn parse_header(line: &[u8]) -> Option<(usize, &str)> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let (length, tag) = line.split_once([' ', '\t']).unwrap_or((line, ""));
    let digits = length.bytes().all(|byte| byte.is_ascii_digit());
    let length = length.parse().ok().filter(|length| digits && *length <= REQUEST_BYTES_MAX)?;
    Some((length, tag.trim()))
}

/// Facts from the head of a raw request.
struct Head {
    closes: bool,
}

/// Checks that `bytes` are one request, followed by at most one line break.
fn check(bytes: &[u8]) -> Result<Head, String> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let head_bytes = match request.parse(bytes) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Err("its head does not end".to_owned()),
        Err(error) => return Err(format!("no request of HTTP/1.1: {error}")),
    };
    if method_and_target(bytes).is_none() {
        return Err("no line METHOD TARGET HTTP/1.1".to_owned());
    }
    let field = |name: &str| request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
    if field("transfer-encoding").is_none() {
        let length = field("content-length").map_or(Some(0), |field| content_length(field.value));
        let length = length.ok_or_else(|| "Content-Length is no number".to_owned())?;
        check_body(&bytes[head_bytes..], length)?;
    }
    let connection = field("connection").map(|field| field.value);
    // HTTP/1.0 closes unless the request says otherwise (RFC 9112, section 9.3).
    let closes = connection.map_or(request.version == Some(0), says_close);
    Ok(Head { closes })
}

fn content_length(value: &[u8]) -> Option<usize> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

fn check_body(body: &[u8], length: usize) -> Result<(), String> {
    match body.get(length..) {
        Some(b"" | b"\n" | b"\r\n") => Ok(()),
        Some(_) => Err(format!("{} bytes behind its head, Content-Length says {length}", body.len())),
        None => Err(format!("its body has {} bytes, Content-Length says {length}", body.len())),
    }
}

#[cfg(test)]
mod records {
    use super::{AmmoError, Phantom, PreparedRequest, Records, Values};
    use proptest::prelude::*;

    fn all(bytes: &[u8]) -> Result<Vec<PreparedRequest>, AmmoError> {
        let mut records = Phantom::new("ammo", bytes);
        let mut all = Vec::new();
        let mut request = PreparedRequest::default();
        while records.next(&mut Values::new(1), &mut request)? {
            all.push(request.clone());
        }
        Ok(all)
    }

    fn record(tag: &str, request: &str) -> String {
        format!("{}{tag}\n{request}", request.len())
    }

    const GET: &str = "GET /users/1 HTTP/1.1\r\nHost: a\r\n\r\n";
    const POST: &str = "POST /users/1 HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}\r\n";

    #[test]
    fn records_follow_one_another_with_or_without_blank_lines_and_a_length_of_zero_ends_them() {
        let text = [&record(" get", GET), "\n\r\n", &record("", POST), "0\n", &record("", GET)].concat();
        let all = all(text.as_bytes()).expect("good records");
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].bytes.as_slice(), all[0].tag.as_str(), all[0].closes), (GET.as_bytes(), "get", false));
        let post = (all[1].bytes.as_slice(), all[1].tag.as_str(), all[1].closes);
        assert_eq!(post, (POST.as_bytes(), "POST /users/{int}", true), "the stray line break is sent too");
    }

    #[track_caller]
    fn check_fault(text: &str, ends_input: bool, part: &str) {
        let error = all([&record("", GET), text].concat().as_bytes()).expect_err("broken");
        let said = error.to_string();
        assert!(said.starts_with("ammo, record 2: ") && said.contains(part), "{said}");
        assert_eq!(error.ends_input(), ends_input, "{said}");
    }

    #[test]
    fn a_broken_record_is_an_error_with_its_number() {
        check_fault("x tag\n", true, "LENGTH TAG");
        check_fault("-5 tag\n", true, "LENGTH TAG");
        check_fault("99999999999 tag\n", true, "LENGTH TAG");
        check_fault("40 tag\nGET / HTTP/1.1\r\n\r\n", true, "40 bytes announced, the file ends after 18");
        check_fault(&record("", "GET / HTTP/1.1\r\nHost: a\r\n"), false, "does not end");
        check_fault(&record("", "\0\0\0\0"), false, "no request");
        check_fault(&record("", &POST.replace("Length: 2", "Length: 9")), false, "Content-Length says 9");
        check_fault(&record("", &[GET, GET].concat()), false, "bytes behind its head");
    }

    proptest! {
        #[test]
        fn any_bytes_are_records_or_an_error(bytes in "[0-9 a\n]{0,6}(GET / HTTP/1.1\r\n\r\n)?.{0,30}") {
            let _ = all(bytes.as_bytes());
        }

        #[test]
        fn what_is_written_is_read_again(
            bodies in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..60), any::<bool>()), 0..8)
        ) {
            let requests: Vec<Vec<u8>> = bodies.iter().map(|(body, stray)| {
                let mut bytes = format!("POST /a HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
                bytes.extend_from_slice(body);
                bytes.extend_from_slice(if *stray { b"\r\n" } else { b"" });
                bytes
            }).collect();
            let file: Vec<u8> = requests.iter().flat_map(|bytes| {
                [format!("{} tag\n", bytes.len()).as_bytes(), bytes].concat()
            }).collect();
            let read: Vec<Vec<u8>> = all(&file).expect("good").into_iter().map(|request| request.bytes).collect();
            prop_assert_eq!(read, requests);
        }
    }
}
