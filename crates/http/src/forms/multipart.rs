//! Parts of a multipart form (RFC 7578, RFC 2046 section 5.1), read from a body that arrives in pieces.
//!
//! ```text
//!  --BOUNDARY CR LF  head CR LF CR LF  data  CR LF --BOUNDARY CR LF  …  CR LF --BOUNDARY-- CR LF
//!  `---- delimiter line ---'           `any bytes'
//! ```
//!
//! [`MultipartParser`] is given bytes as they arrive, cut anywhere, and reports their meaning: a part's head, some of its data,
//! its end. Data is neither copied nor gathered. Between two pieces the parser keeps the head that is being read, and the number
//! of bytes of a delimiter with which the data so far ends. A delimiter contains a CR only at its front, so after a mismatch
//! exactly those bytes are data, and none of them is scanned again.
//!
//! It is strict where two servers could interpret a body in two ways: the body begins with the boundary (a preamble is refused,
//! and so is a wrong boundary at once), lines end with CR LF, only blanks follow a boundary on its line, only blanks
//! and line ends follow the last one, and a delimiter inside a head is an error. Nested `multipart/mixed`, which RFC 7578 deprecates, is data
//! like any other.
//!
//! Why not a library: those of Rust pull their bytes from an asynchronous stream or a blocking reader, and bound neither the
//! number of parts nor an incomplete head (multer 3.1 buffers whatever its stream has). `memchr` searches, `httparse` reads
//! header fields.

use std::fmt;

use memchr::memmem::Finder;

use super::boundary::Boundary;
use super::multipart_fault::MultipartFault;
use super::part_head::{self, PartHead};
use super::shown;

/// Limits of a multipart form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipartLimits {
    /// Parts.
    pub parts_max: usize,
    /// Bytes of one part's head: the parser holds no more.
    pub head_bytes_max: usize,
    /// Bytes of a field's name, and of a file's name.
    pub name_bytes_max: usize,
    /// Bytes of a part that is no file.
    pub field_bytes_max: u64,
    /// Bytes of the body.
    pub bytes_max: u64,
}

impl Default for MultipartLimits {
    fn default() -> MultipartLimits {
        MultipartLimits {
            parts_max: 64,
            head_bytes_max: 4 << 10,
            name_bytes_max: 256,
            field_bytes_max: 256 << 10,
            bytes_max: 32 << 20,
        }
    }
}

/// A piece of a form, reported by the parser.
#[derive(Debug, PartialEq, Eq)]
pub enum PartEvent<'p> {
    /// A part begins.
    Begin(PartHead),
    /// The next bytes of its data, never none.
    Data(&'p [u8]),
    /// It is complete.
    End,
}

/// Why a multipart form is refused: the fault, the part, and about which byte of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartError {
    /// What is wrong.
    pub fault: MultipartFault,
    /// Number of the part from 1; 0 before the first.
    pub part: usize,
    /// Its name, shortened; empty if it is unknown.
    pub name: String,
    /// The byte of the body, from 0: where the fault was found, or where the faulty head begins.
    pub at: u64,
}

impl MultipartError {
    /// Whether a limit was exceeded: 413. Otherwise the form is malformed: 400.
    pub fn is_too_large(&self) -> bool {
        use MultipartFault::{FieldTooLarge, HeadTooLarge, NameTooLong, TooLarge, TooManyHeadFields, TooManyParts};
        matches!(
            self.fault,
            TooManyParts(_) | TooLarge(_) | FieldTooLarge(_) | HeadTooLarge(_) | TooManyHeadFields(_) | NameTooLong(_)
        )
    }
}

impl fmt::Display for MultipartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MultipartError { fault, part, name, at } = self;
        match (part, name.as_str()) {
            (0, _) => write!(f, "{fault} (byte {at})"),
            (part, "") => write!(f, "{fault} (part {part}, byte {at})"),
            (part, name) => write!(f, "{fault} (part {part}, \"{name}\", byte {at})"),
        }
    }
}

impl std::error::Error for MultipartError {}

/// State of the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first boundary.
    Start,
    /// After a boundary, on its line.
    BoundaryLine(LineState),
    Head,
    Data,
    /// After the last boundary.
    End,
}

/// Position within the line of a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineState {
    Begin,
    Dash,
    Padding,
    CarriageReturn,
}

/// See the module's documentation. After an error it cannot be used any more.
pub struct MultipartParser {
    limits: MultipartLimits,
    finder: Finder<'static>,
    state: State,
    /// Length of the front of the delimiter with which the pushed bytes end.
    matched: usize,
    /// That many bytes of it were never sent: a delimiter at the very beginning of the body, or of a part's data, needs no line
    /// end before it.
    unsent: usize,
    head: Vec<u8>,
    /// The byte of the body where it begins.
    head_at: u64,
    /// The current part, from 1.
    part: usize,
    name: String,
    is_file: bool,
    /// Bytes of its data.
    data_bytes: u64,
    /// Bytes pushed before the current piece.
    at: u64,
}

impl MultipartParser {
    /// A parser of a form whose Content-Type names this boundary.
    pub fn new(boundary: &Boundary, limits: &MultipartLimits) -> MultipartParser {
        let finder = Finder::new(&boundary.delimiter()).into_owned();
        MultipartParser {
            limits: *limits,
            finder,
            state: State::Start,
            matched: 2,
            unsent: 2,
            head: Vec::new(),
            head_at: 0,
            part: 0,
            name: String::new(),
            is_file: false,
            data_bytes: 0,
            at: 0,
        }
    }

    /// Bytes of memory that it holds of the body.
    pub fn held_bytes(&self) -> usize {
        self.head.capacity()
    }

    /// Reads the next bytes of the body, and reports them.
    ///
    /// # Errors
    ///
    /// The form is malformed or exceeds its limits. Events reported before the error are valid.
    pub fn push(&mut self, piece: &[u8], on_event: &mut impl FnMut(PartEvent<'_>)) -> Result<(), MultipartError> {
        if self.at + piece.len() as u64 > self.limits.bytes_max {
            return Err(self.error(MultipartFault::TooLarge(self.limits.bytes_max), 0));
        }
        let mut rest = piece;
        while !rest.is_empty() {
            let place = piece.len() - rest.len();
            if self.state == State::Head && self.head.is_empty() {
                self.head_at = self.at + place as u64;
            }
            let read = match self.state {
                State::Start => self.read_start(rest),
                State::BoundaryLine(line) => self.read_line(line, rest[0]),
                State::Head => self.read_head(rest, on_event),
                State::Data => self.read_data(rest, on_event),
                State::End => read_end(rest),
            };
            let used = read.map_err(|fault| self.error(fault, place))?;
            rest = &rest[used..];
        }
        self.at += piece.len() as u64;
        Ok(())
    }

    /// Ends the body.
    ///
    /// # Errors
    ///
    /// The last boundary is missing.
    pub fn finish(&self) -> Result<(), MultipartError> {
        if self.state == State::End { Ok(()) } else { Err(self.error(MultipartFault::Unfinished, 0)) }
    }

    #[cold]
    fn error(&self, fault: MultipartFault, place: usize) -> MultipartError {
        let in_part = matches!(self.state, State::Data);
        let name = if in_part { shown(&self.name) } else { String::new() };
        let at = if self.state == State::Head { self.head_at } else { self.at + place as u64 };
        MultipartError { fault, part: self.part, name, at }
    }

    /// The first boundary, with or without a line end before it.
    fn read_start(&mut self, rest: &[u8]) -> Result<usize, MultipartFault> {
        if rest[0] == b'\r' && self.matched == self.unsent && self.unsent > 0 {
            (self.matched, self.unsent) = (0, 0);
        }
        let used = self.match_delimiter(rest);
        if self.matched == self.delimiter().len() {
            self.state = State::BoundaryLine(LineState::Begin);
        } else if used < rest.len() {
            return Err(MultipartFault::NoBoundary);
        }
        Ok(used)
    }

    /// Reads one byte behind a boundary.
    fn read_line(&mut self, line: LineState, byte: u8) -> Result<usize, MultipartFault> {
        self.state = match (line, byte) {
            (LineState::Begin, b'-') => State::BoundaryLine(LineState::Dash),
            (LineState::Dash, b'-') => State::End,
            (LineState::Begin | LineState::Padding, b' ' | b'\t') => State::BoundaryLine(LineState::Padding),
            (LineState::Begin | LineState::Padding, b'\r') => State::BoundaryLine(LineState::CarriageReturn),
            (LineState::CarriageReturn, b'\n') => {
                if self.part == self.limits.parts_max {
                    return Err(MultipartFault::TooManyParts(self.limits.parts_max));
                }
                self.part += 1;
                self.head.clear();
                State::Head
            }
            _ => return Err(MultipartFault::BoundaryLine),
        };
        Ok(1)
    }

    /// Gathers a head up to its empty line.
    fn read_head(&mut self, rest: &[u8], on_event: &mut impl FnMut(PartEvent<'_>)) -> Result<usize, MultipartFault> {
        let before = self.head.len();
        let room = self.limits.head_bytes_max - before;
        self.head.extend_from_slice(&rest[..room.min(rest.len())]);
        if self.head.starts_with(b"\r\n") {
            return Err(MultipartFault::NameMissing);
        }
        let from = before.saturating_sub(3);
        let Some(end) = memchr::memmem::find(&self.head[from..], b"\r\n\r\n").map(|found| from + found + 4) else {
            // All room is used, and it does not contain the end.
            let is_full = self.head.len() == self.limits.head_bytes_max;
            let used = self.head.len() - before;
            return if is_full { Err(MultipartFault::HeadTooLarge(self.limits.head_bytes_max)) } else { Ok(used) };
        };
        self.head.truncate(end);
        if self.finder.find(&self.head).is_some() || self.head.starts_with(&self.delimiter()[2..]) {
            return Err(MultipartFault::BoundaryInHead);
        }
        let head = part_head::parse(&self.head, self.limits.name_bytes_max)?;
        self.name.clone_from(&head.name);
        (self.is_file, self.data_bytes) = (head.file_name.is_some(), 0);
        // The empty line is also the line end of a delimiter, if the part has no data.
        (self.matched, self.unsent) = (2, 2);
        self.state = State::Data;
        on_event(PartEvent::Begin(head));
        Ok(end - before)
    }

    /// Reads data up to the next delimiter.
    fn read_data(&mut self, rest: &[u8], on_event: &mut impl FnMut(PartEvent<'_>)) -> Result<usize, MultipartFault> {
        if self.matched > 0 {
            let used = self.match_delimiter(rest);
            if self.matched < self.delimiter().len() && used < rest.len() {
                let range = self.unsent..self.matched;
                self.count_data(range.len())?;
                if !range.is_empty() {
                    on_event(PartEvent::Data(&self.finder.needle()[range]));
                }
                self.matched = 0;
            }
            self.end_part_if_matched(on_event);
            return Ok(used);
        }
        self.unsent = 0;
        let (data, matched) = match self.finder.find(rest) {
            Some(data) => (data, self.delimiter().len()),
            None => {
                let data = rest.len() - front_at_end(rest, self.delimiter());
                (data, rest.len() - data)
            }
        };
        self.count_data(data)?;
        if data > 0 {
            on_event(PartEvent::Data(&rest[..data]));
        }
        self.matched = matched;
        self.end_part_if_matched(on_event);
        Ok(data + matched)
    }

    fn end_part_if_matched(&mut self, on_event: &mut impl FnMut(PartEvent<'_>)) {
        if self.matched == self.delimiter().len() {
            self.state = State::BoundaryLine(LineState::Begin);
            on_event(PartEvent::End);
        }
    }

    fn count_data(&mut self, bytes: usize) -> Result<(), MultipartFault> {
        self.data_bytes += bytes as u64;
        let is_too_large = !self.is_file && self.data_bytes > self.limits.field_bytes_max;
        if is_too_large { Err(MultipartFault::FieldTooLarge(self.limits.field_bytes_max)) } else { Ok(()) }
    }

    /// Matches the delimiter further against `rest`; returns the number of bytes.
    fn match_delimiter(&mut self, rest: &[u8]) -> usize {
        let missing = &self.finder.needle()[self.matched..];
        let used = missing.iter().zip(rest).take_while(|(expected, byte)| expected == byte).count();
        self.matched += used;
        used
    }

    fn delimiter(&self) -> &[u8] {
        self.finder.needle()
    }
}

impl fmt::Debug for MultipartParser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultipartParser").field("state", &self.state).field("part", &self.part).finish_non_exhaustive()
    }
}

/// After the last boundary only empty lines are allowed.
fn read_end(rest: &[u8]) -> Result<usize, MultipartFault> {
    let is_empty = rest.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    if is_empty { Ok(rest.len()) } else { Err(MultipartFault::Trailing) }
}

/// Length of the longest proper front of `delimiter` with which `data` ends.
fn front_at_end(data: &[u8], delimiter: &[u8]) -> usize {
    let tail = &data[data.len() - data.len().min(delimiter.len() - 1)..];
    // A carriage return occurs only at its front, so the last one decides.
    let found = memchr::memrchr(b'\r', tail).filter(|&at| delimiter.starts_with(&tail[at..]));
    found.map_or(0, |at| tail.len() - at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: MultipartLimits =
        MultipartLimits { parts_max: 3, head_bytes_max: 200, name_bytes_max: 20, field_bytes_max: 40, bytes_max: 2000 };

    /// The parts of a body that is pushed in pieces of this size.
    fn read(body: &[u8], piece: usize, limits: &MultipartLimits) -> Result<Vec<(PartHead, Vec<u8>)>, MultipartError> {
        let boundary = Boundary::of(b"multipart/form-data; boundary=XX").unwrap();
        let mut parser = MultipartParser::new(&boundary, limits);
        let (mut parts, mut complete) = (Vec::new(), 0);
        for piece in body.chunks(piece) {
            parser.push(piece, &mut |event| match event {
                PartEvent::Begin(head) => parts.push((head, Vec::new())),
                PartEvent::Data(data) => {
                    assert!(!data.is_empty() && complete + 1 == parts.len());
                    parts.last_mut().unwrap().1.extend_from_slice(data);
                }
                PartEvent::End => complete += 1,
            })?;
            assert!(parser.held_bytes() <= 2 * limits.head_bytes_max);
        }
        parser.finish()?;
        assert_eq!(parts.len(), complete);
        Ok(parts)
    }

    /// Each part as `<name>data` or `<name|file>data`, or the error: the same however the body is cut.
    fn describe(body: &[u8]) -> Result<String, MultipartError> {
        let read = |piece| {
            let parts = read(body, piece, &SMALL)?;
            let part = |(head, data): &(PartHead, Vec<u8>)| {
                let file = head.file_name.as_ref().map_or_else(String::new, |name| format!("|{name}"));
                format!("<{}{file}>{}", head.name, String::from_utf8_lossy(data))
            };
            Ok::<_, MultipartError>(parts.iter().map(part).collect::<String>())
        };
        let whole = read(body.len().max(1));
        for piece in 1..body.len() {
            match (&whole, read(piece)) {
                // The byte at which a fault is found depends on the pieces.
                (Err(whole), Err(cut)) => assert_eq!(whole.fault, cut.fault, "pieces of {piece}"),
                (whole, cut) => assert_eq!(*whole, cut, "pieces of {piece}"),
            }
        }
        whole
    }

    #[track_caller]
    fn check(body: &str, expected: &str) {
        assert_eq!(describe(body.as_bytes()).as_deref(), Ok(expected), "{body:?}");
    }

    #[track_caller]
    fn check_fault(body: &str, fault: MultipartFault, at: u64) {
        let error = describe(body.as_bytes()).expect_err("a wrong form");
        assert_eq!((error.fault, error.at), (fault, at), "{body:?}: {error}");
    }

    /// A part without its delimiters.
    fn part(name: &str, data: &str) -> String {
        format!("Content-Disposition: form-data; name={name}\r\n\r\n{data}")
    }

    #[test]
    fn parts_are_read_in_their_order_however_the_body_is_cut() {
        let (a, b) = (part("a", "one"), part("a; filename=x", "two\r\n\r\n--X\r\r\n-"));
        check(&format!("--XX\r\n{a}\r\n--XX\r\n{b}\r\n--XX--\r\n"), "<a>one<a|x>two\r\n\r\n--X\r\r\n-");
        check(&format!("\r\n--XX \t\r\n{a}\r\n--XX--"), "<a>one");
        check(&format!("--XX\r\n{a}\r\n--XX-- \r\n\r\n"), "<a>one");
    }

    #[test]
    fn a_form_may_have_no_parts_and_a_part_no_data() {
        check("--XX--\r\n", "");
        let (empty, none) = (part("a", ""), part("b", ""));
        check(&format!("--XX\r\n{empty}\r\n--XX\r\n{none}--XX--"), "<a><b>");
    }

    #[test]
    fn data_that_looks_like_a_delimiter_is_data() {
        for data in ["\r\n", "\r\n--X", "\r\r\n\n", "\n--XX", "--X", "-", "\r\n\r\n--X\r\n--", "x--XX--", "\r--XX"] {
            check(&format!("--XX\r\n{}\r\n--XX--", part("a", data)), &format!("<a>{data}"));
        }
    }

    #[test]
    fn nested_parts_are_data() {
        let nested = "--YY\r\nContent-Disposition: file\r\n\r\nx\r\n--YY--";
        check(&format!("--XX\r\n{}\r\n--XX--", part("a; filename=b", nested)), &format!("<a|b>{nested}"));
    }

    #[test]
    fn a_body_without_its_boundaries_is_refused() {
        check_fault("", MultipartFault::Unfinished, 0);
        check_fault("--YY\r\n", MultipartFault::NoBoundary, 0);
        check_fault("preamble\r\n--XX\r\n", MultipartFault::NoBoundary, 0);
        check_fault("\r\n\r\n--XX--", MultipartFault::NoBoundary, 0);
        check_fault("\n--XX--", MultipartFault::NoBoundary, 0);
        let a = part("a", "one");
        check_fault(&format!("--XX\r\n{a}"), MultipartFault::Unfinished, 6 + a.len() as u64);
        check_fault(&format!("--XX\r\n{a}\r\n--XX"), MultipartFault::Unfinished, 12 + a.len() as u64);
        check_fault(&format!("--XX\r\n{a}\r\n--YY--\r\n"), MultipartFault::Unfinished, 16 + a.len() as u64);
    }

    #[test]
    fn a_line_that_begins_with_the_boundary_is_one() {
        for line in ["--XXX\r\n", "--XX\n", "--XX-\r\n", "--XX \n", "--XX\rx"] {
            let error = describe(format!("{line}{}\r\n--XX--", part("a", "one")).as_bytes()).unwrap_err();
            assert_eq!(error.fault, MultipartFault::BoundaryLine, "{line:?}");
        }
        check_fault("--XX--\r\nmore", MultipartFault::Trailing, 6);
        check_fault("--XX--x", MultipartFault::Trailing, 6);
    }

    #[test]
    fn a_boundary_inside_of_a_head_is_refused() {
        check_fault("--XX\r\n--XX: x\r\n\r\n", MultipartFault::BoundaryInHead, 6);
        check_fault("--XX\r\nA: b\r\n--XX: c\r\n\r\n", MultipartFault::BoundaryInHead, 6);
        check_fault("--XX\r\n\r\ndata\r\n--XX--", MultipartFault::NameMissing, 6);
    }

    #[test]
    fn numbers_and_lengths_have_limits() {
        let parts =
            |count: usize| format!("--XX\r\n{}\r\n", vec![part("a", ""); count].join("\r\n--XX\r\n")) + "--XX--";
        check(&parts(3), "<a><a><a>");
        let error = describe(parts(4).as_bytes()).unwrap_err();
        assert_eq!((error.fault, error.part), (MultipartFault::TooManyParts(3), 3));
        let of = |head: &str, data: usize| format!("--XX\r\n{}\r\n--XX--", part(head, &"x".repeat(data)));
        check(&of("a", 40), &format!("<a>{}", "x".repeat(40)));
        let error = describe(of("a", 41).as_bytes()).unwrap_err();
        assert_eq!((error.fault, error.name.as_str()), (MultipartFault::FieldTooLarge(40), "a"));
        check(&of("a; filename=b", 900), &format!("<a|b>{}", "x".repeat(900)));
        let error = describe(of("a; filename=b", 2000).as_bytes()).unwrap_err();
        assert_eq!(error.fault, MultipartFault::TooLarge(2000));
        let error = describe(of(&format!("a\r\nA: {}", "x".repeat(200)), 1).as_bytes()).unwrap_err();
        assert_eq!(error.fault, MultipartFault::HeadTooLarge(200));
        assert!(error.is_too_large());
        // A head of exactly the limit is accepted.
        let head = part(&format!("a\r\nA: {}", "x".repeat(200 - part("a\r\nA: ", "").len())), "");
        check(&format!("--XX\r\n{head}\r\n--XX--"), "<a>");
    }

    #[test]
    fn an_error_says_what_and_where() {
        let second = format!("--XX\r\n{}\r\n--XX\r\nA: b\r\n\r\n", part("a", "one"));
        let error = describe(second.as_bytes()).unwrap_err();
        let message = "the part has no name: send Content-Disposition: form-data; name=\"…\" (part 2, byte 59)";
        assert_eq!(error.to_string(), message);
        let error = describe(format!("--XX\r\n{}", part("a", "one")).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "the form ends before its last boundary (part 1, \"a\", byte 51)");
        assert_eq!(
            describe(b"x").unwrap_err().to_string(),
            "the form does not begin with the boundary that its Content-Type names (byte 0)"
        );
    }

    #[test]
    fn a_large_file_goes_through_without_being_held() {
        let boundary = Boundary::of(b"multipart/form-data; boundary=XX").unwrap();
        let limits = MultipartLimits { bytes_max: u64::MAX, ..MultipartLimits::default() };
        let mut parser = MultipartParser::new(&boundary, &limits);
        let mut bytes = 0;
        let mut count = |event: PartEvent<'_>| {
            if let PartEvent::Data(data) = event {
                bytes += data.len();
            }
        };
        parser.push(format!("--XX\r\n{}", part("a; filename=b", "")).as_bytes(), &mut count).unwrap();
        let piece = b"\r\n--X".repeat(10_000);
        for _ in 0..100 {
            parser.push(&piece, &mut count).unwrap();
            assert!(parser.held_bytes() <= SMALL.head_bytes_max);
        }
        parser.push(b"\r\n--XX--", &mut count).unwrap();
        parser.finish().unwrap();
        assert_eq!(bytes, 100 * piece.len());
    }
}
