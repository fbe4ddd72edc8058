//! Composes reply heads from prepared parts, without formatting machinery.
//!
//! For the most frequent reply, 200 with `application/json`, the whole head is prepared, for each number of digits of its length,
//! and prepared again when the second changes. Such a head is one copy into the connection's write queue, and the digits are put
//! in place.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

use crate::status::Status;

/// The content type whose heads are prepared.
pub(crate) const JSON: &str = "application/json";
const NS_PER_SECOND: u64 = 1_000_000_000;
/// Most digits of a length for which a head is prepared; longer bodies cost much more than their heads.
const READY_DIGITS_MAX: usize = 6;
/// Most bytes of the fields that a service adds to one reply.
const FIELDS_BYTES_MAX: usize = 16 << 10;
/// The longest line of an entity tag that is a number: the field's name, quotes and line end, and twenty digits.
const NUMBERED_TAG_BYTES_MAX: usize = 30;
const LINE_END: &[u8; 2] = b"\r\n";
const TAG_START: &[u8; 7] = b"ETag: \"";
const TAG_END: &[u8; 3] = b"\"\r\n";

/// How the request determines the form of its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) http10: bool,
    /// The connection stays open after this reply.
    pub(crate) persistent: bool,
    /// The request was HEAD: the head has the body's length, and the body is not sent.
    pub(crate) head_only: bool,
}

/// How the end of the reply is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Known(u64),
    /// Known, and only `copied` bytes of the body are copied after the head.
    Spliced {
        bytes: u64,
        copied: usize,
    },
    Chunked,
    UntilClose,
}

/// Header fields of the application. In a prepared head they follow the length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeaderFields<'f> {
    /// Whole lines.
    pub(crate) lines: &'f [u8],
    /// The entity tag, if it is a number and not among the lines.
    pub(crate) tag: Option<u64>,
}

impl<'f> HeaderFields<'f> {
    pub(crate) fn of(lines: &'f [u8]) -> HeaderFields<'f> {
        HeaderFields { lines, tag: None }
    }

    fn bytes_max(self) -> usize {
        self.lines.len() + self.tag.map_or(0, |_| NUMBERED_TAG_BYTES_MAX)
    }

    #[inline]
    fn append_to(self, out: &mut Vec<u8>) {
        if !self.lines.is_empty() {
            out.extend_from_slice(self.lines);
        }
        if let Some(number) = self.tag {
            append_tag(out, number);
        }
    }
}

impl Length {
    /// The body's length, and how many of its bytes are copied after the head, if the length is known.
    #[inline]
    fn known(self) -> Option<(u64, usize)> {
        match self {
            Length::Known(bytes) => Some((bytes, bytes as usize)),
            Length::Spliced { bytes, copied } => Some((bytes, copied)),
            Length::Chunked | Length::UntilClose => None,
        }
    }
}

/// Composer of one loop.
#[derive(Debug)]
pub(crate) struct Composer {
    with_date: bool,
    /// `Date: ...` with its line end; empty without Date.
    date_line: Vec<u8>,
    /// The prepared heads of the most frequent reply, without the blank line; their lengths have one zero, two zeros, and so on.
    json_heads: [Vec<u8>; READY_DIGITS_MAX],
    next_second_ns: u64,
}

impl Composer {
    pub(crate) fn new(with_date: bool) -> Self {
        let mut composer =
            Composer { with_date, date_line: Vec::new(), json_heads: Default::default(), next_second_ns: 0 };
        composer.set_date(SystemTime::now());
        composer
    }

    /// Updates Date if its second is over on the loop's clock.
    #[inline]
    pub(crate) fn tick(&mut self, now_ns: u64) {
        if self.with_date && now_ns >= self.next_second_ns {
            let now = SystemTime::now();
            let within = now.duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()));
            self.next_second_ns = now_ns + NS_PER_SECOND - within;
            self.set_date(now);
        }
    }

    #[cold]
    fn set_date(&mut self, now: SystemTime) {
        self.date_line.clear();
        if self.with_date {
            // Writing to a Vec cannot fail, and after the first time does not allocate.
            let _ = write!(self.date_line, "Date: {}\r\n", HttpDate::from(now));
        }
        for (index, head) in self.json_heads.iter_mut().enumerate() {
            head.clear();
            head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
            head.extend_from_slice(&self.date_line);
            head.extend_from_slice(b"Content-Type: application/json\r\nContent-Length: ");
            head.extend(std::iter::repeat_n(b'0', index + 1));
            head.extend_from_slice(LINE_END);
        }
    }

    /// Appends a reply's head. `content_type` may be empty. Reserves room for the body too.
    #[inline]
    pub(crate) fn head(
        &self,
        out: &mut Vec<u8>,
        shape: Shape,
        status: Status,
        content_type: &str,
        fields: HeaderFields<'_>,
        length: Length,
    ) {
        if let Some((bytes, copied)) = length.known()
            && status == Status(200)
            && shape.persistent
            && !shape.http10
            && content_type == JSON
            && let Some(head) = self.json_heads.get(tens_in(bytes))
        {
            out.reserve(head.len() + fields.bytes_max() + LINE_END.len() + copied);
            out.extend_from_slice(head);
            let end = out.len() - LINE_END.len();
            put_digits(&mut out[..end], bytes);
            fields.append_to(out);
            out.extend_from_slice(LINE_END);
        } else {
            self.any_head(out, shape, status, content_type, fields, length);
        }
    }

    #[inline(never)]
    fn any_head(
        &self,
        out: &mut Vec<u8>,
        shape: Shape,
        status: Status,
        content_type: &str,
        fields: HeaderFields<'_>,
        length: Length,
    ) {
        append_status_line(out, status);
        out.extend_from_slice(&self.date_line);
        append_content_type(out, content_type);
        fields.append_to(out);
        match length {
            // RFC 9110 section 8.6: no length with 204, and with 304 only the length of the body that was not sent.
            _ if !has_body(status) => {}
            Length::Known(bytes) | Length::Spliced { bytes, .. } => {
                let mut digits = itoa::Buffer::new();
                append_all(out, &[b"Content-Length: ", digits.format(bytes).as_bytes(), b"\r\n"]);
            }
            Length::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            Length::UntilClose => {}
        }
        out.extend_from_slice(match (shape.persistent, shape.http10) {
            (true, false) => b"".as_slice(),
            (true, true) => b"Connection: keep-alive\r\n",
            (false, _) => b"Connection: close\r\n",
        });
        out.extend_from_slice(b"\r\n");
    }
}

/// Number of decimal digits after the first; [`READY_DIGITS_MAX`] also for longer numbers.
#[inline]
fn tens_in(number: u64) -> usize {
    const TENS: [u64; READY_DIGITS_MAX] = [10, 100, 1_000, 10_000, 100_000, 1_000_000];
    TENS.iter().map(|tens| usize::from(number >= *tens)).sum()
}

/// Overwrites the zeros at the end of `out` with a number.
#[inline]
fn put_digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return;
        }
    }
}

/// Whether a reply of this status may have a body.
pub(crate) fn has_body(status: Status) -> bool {
    !matches!(status.0, 204 | 304)
}

/// The status that is sent: an invalid number becomes 500.
pub(crate) fn checked(status: Status) -> Status {
    if (200..=599).contains(&status.0) { status } else { Status(500) }
}

fn append_all(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn append_status_line(out: &mut Vec<u8>, status: Status) {
    let mut digits = itoa::Buffer::new();
    append_all(out, &[b"HTTP/1.1 ", digits.format(status.0).as_bytes(), b" ", status.reason().as_bytes(), b"\r\n"]);
}

/// Appends a header field of the application as a line. Returns `false`, and appends nothing, if the field would break the head
/// or contradict the server's own fields.
pub(crate) fn append_field(fields: &mut Vec<u8>, name: &str, value: &str) -> bool {
    const OURS: [&str; 5] = ["content-length", "transfer-encoding", "connection", "date", "content-type"];
    let fits = fields.len() + name.len() + value.len() + 4 <= FIELDS_BYTES_MAX;
    let name_is_token = !name.is_empty() && name.bytes().all(crate::parsing::chunked::is_token);
    // Without an early end, so that several bytes are compared at once.
    let value_is_clean =
        value.bytes().fold(true, |is_clean, byte| is_clean & ((byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))));
    let ours = OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours));
    if !fits || !name_is_token || !value_is_clean || ours {
        return false;
    }
    // Grown once for the whole line.
    fields.reserve(name.len() + value.len() + 4);
    append_all(fields, &[name.as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
    true
}

/// Appends lines that [`append_field`] has checked. Returns `false`, and appends nothing, if all fields would exceed their limit.
#[inline]
pub(crate) fn append_lines(fields: &mut Vec<u8>, lines: &[u8]) -> bool {
    let fits = fields.len() + lines.len() <= FIELDS_BYTES_MAX;
    if fits {
        fields.extend_from_slice(lines);
    }
    fits
}

/// Appends the line of an entity tag that is a number in quotes. Beyond the limit of all fields it is left out, as other fields
/// are.
#[inline]
pub(crate) fn append_numbered_tag(fields: &mut Vec<u8>, number: u64) {
    if fields.len() + NUMBERED_TAG_BYTES_MAX <= FIELDS_BYTES_MAX {
        // The fields of a late reply begin without capacity: grown once, not twice.
        fields.reserve(NUMBERED_TAG_BYTES_MAX);
        append_tag(fields, number);
    }
}

#[inline]
fn append_tag(out: &mut Vec<u8>, number: u64) {
    append_all(out, &[TAG_START, itoa::Buffer::new().format(number).as_bytes(), TAG_END]);
}

/// Appends the line of a content type, unless it is empty or would break the head.
pub(crate) fn append_content_type(fields: &mut Vec<u8>, content_type: &str) {
    if !content_type.is_empty() && content_type.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        append_all(fields, &[b"Content-Type: ", content_type.as_bytes(), b"\r\n"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbered_tag_is_in_quotes_and_bounded() {
        for number in [0, 7, u64::MAX] {
            let mut fields = Vec::new();
            append_numbered_tag(&mut fields, number);
            assert_eq!(fields, format!("ETag: \"{number}\"\r\n").into_bytes());
            assert!(fields.len() <= NUMBERED_TAG_BYTES_MAX);
        }
        let mut full = vec![b'x'; FIELDS_BYTES_MAX - NUMBERED_TAG_BYTES_MAX + 1];
        append_numbered_tag(&mut full, 7);
        assert!(full.ends_with(b"x"));
    }

    const PLAIN: Shape = Shape { http10: false, persistent: true, head_only: false };

    #[track_caller]
    fn check(shape: Shape, status: u16, content_type: &str, fields: &str, length: Length, expected: &str) {
        let mut out = b"before ".to_vec();
        Composer::new(false).head(
            &mut out,
            shape,
            Status(status),
            content_type,
            HeaderFields::of(fields.as_bytes()),
            length,
        );
        assert_eq!(String::from_utf8(out).unwrap(), format!("before {expected}"));
    }

    #[test]
    fn the_head_made_beforehand_is_the_one_made_by_parts() {
        let composer = Composer::new(true);
        for bytes in [0, 1, 9, 10, 12, 99, 100, 101, 999, 1000, 54_321, 99_999, 100_000, 999_999, 1_000_000, 1 << 30] {
            let (mut fast, mut slow) = (b"before".to_vec(), b"before".to_vec());
            composer.head(&mut fast, PLAIN, Status(200), JSON, HeaderFields::default(), Length::Known(bytes));
            composer.any_head(&mut slow, PLAIN, Status(200), JSON, HeaderFields::default(), Length::Known(bytes));
            let (fast, slow) = (String::from_utf8(fast).unwrap(), String::from_utf8(slow).unwrap());
            assert_eq!(fast, slow);
            assert!(fast.contains("\r\nDate: ") && fast.contains(&format!("Content-Length: {bytes}\r\n")));
            // With fields the lines are the same in another order.
            let fields = HeaderFields { lines: b"A: b\r\n", tag: Some(7) };
            let (mut fast, mut slow) = (b"before".to_vec(), b"before".to_vec());
            composer.head(&mut fast, PLAIN, Status(200), JSON, fields, Length::Known(bytes));
            composer.any_head(&mut slow, PLAIN, Status(200), JSON, fields, Length::Known(bytes));
            let lines = |head: Vec<u8>| {
                let text = String::from_utf8(head).unwrap();
                assert!(text.ends_with("\r\n\r\n") && text.matches("\r\n\r\n").count() == 1, "{text}");
                let mut lines: Vec<String> = text.split("\r\n").map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(lines(fast), lines(slow));
        }
    }

    #[test]
    fn heads_say_how_the_reply_ends_and_what_becomes_of_the_connection() {
        let json = "Content-Type: application/json\r\n";
        check(PLAIN, 404, "", "", Length::Known(0), "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        check(PLAIN, 204, "", "Allow: GET\r\n", Length::Known(0), "HTTP/1.1 204 No Content\r\nAllow: GET\r\n\r\n");
        check(
            PLAIN,
            200,
            JSON,
            "",
            Length::Chunked,
            &format!("HTTP/1.1 200 OK\r\n{json}Transfer-Encoding: chunked\r\n\r\n"),
        );
        let close = Shape { persistent: false, ..PLAIN };
        check(close, 200, "", "", Length::UntilClose, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        let old = Shape { http10: true, ..PLAIN };
        check(
            old,
            200,
            JSON,
            "",
            Length::Known(5),
            &format!("HTTP/1.1 200 OK\r\n{json}Content-Length: 5\r\nConnection: keep-alive\r\n\r\n"),
        );
        check(PLAIN, 299, "", "", Length::Known(1), "HTTP/1.1 299 \r\nContent-Length: 1\r\n\r\n");
    }

    #[test]
    fn fields_that_would_break_the_head_are_left_out() {
        let mut fields = Vec::new();
        assert!(append_field(&mut fields, "ETag", "\"1\""));
        for (name, value) in [("a", "b\r\nc: d"), ("a", "b\n"), ("a", "\0"), ("a b", "c"), ("", "c"), ("a:", "b")] {
            assert!(!append_field(&mut fields, name, value), "{name:?} {value:?}");
        }
        for name in ["Content-Length", "transfer-encoding", "Connection"] {
            assert!(!append_field(&mut fields, name, "5"));
        }
        assert!(!append_field(&mut fields, "a", &"b".repeat(20 << 10)));
        assert_eq!(fields, b"ETag: \"1\"\r\n");
    }

    #[test]
    fn the_date_changes_with_the_second_and_not_before() {
        let mut composer = Composer::new(true);
        composer.tick(5);
        let next = composer.next_second_ns;
        assert!(next > 5 && next <= 5 + NS_PER_SECOND);
        composer.date_line = b"kept".to_vec();
        composer.tick(next - 1);
        assert_eq!(composer.date_line, b"kept");
        composer.tick(next);
        assert!(composer.date_line.starts_with(b"Date: "));
    }
}
