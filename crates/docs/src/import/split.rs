//! Cutting a stream into records while holding at most one batch and one record in memory.
//!
//! Accepted formats: `[…]`, `{"users": […], "visits": […]}`, records by line, and rows of CSV after a header. Only the brackets,
//! strings and quotes around records are scanned; the encoder later checks that a record is valid JSON, and reads the cells of
//! a row.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use binjson::ValueScan;

use super::csv::{Columns, RowScan};
use super::{ARRAY_NAME_BYTES_MAX, BATCH_BYTES, RECORD_BYTES_MAX};

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// The arrangement of records in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// In arrays.
    Json,
    /// One on each line.
    Lines,
    /// Rows of CSV.
    Rows {
        /** What stands between two fields. */
        delimiter: u8,
    },
    /// By line if the first byte is `{` and a collection is named, else in arrays.
    Guess {
        /** Whether a collection is named. */
        named: bool,
    },
}

/// Some records of one array.
pub(super) struct Batch {
    /// The source's number.
    pub(super) source: u32,
    /// Number of earlier batches of the source.
    pub(super) number: u64,
    /// The array's key.
    pub(super) array: Option<Arc<str>>,
    /// Of rows: what their fields are. [`Splitter`] leaves it to its caller, who knows the collection.
    pub(super) columns: Option<Arc<Columns>>,
    /// The records' texts, one after another.
    pub(super) bytes: Vec<u8>,
    /// The end of each record in `bytes`, and its place in the stream: line or byte.
    pub(super) records: Vec<(usize, u64)>,
}

/// Why a stream cannot be cut into records.
#[derive(Debug)]
pub(super) struct SplitError {
    pub(super) why: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Key,
    Array,
    Lines,
    Rows(u8),
    End,
}

/// A stream that is cut into records.
pub(super) struct Splitter<R> {
    input: R,
    format: Format,
    buffer: Vec<u8>,
    at: usize,
    /// Bytes of the stream before the buffer.
    base: u64,
    line: u64,
    ended: bool,
    state: State,
    in_object: bool,
    /// This array has had no record, or the object no array, so far: no comma is expected.
    first: bool,
    array: Option<Arc<str>>,
}

impl<R: Read> Splitter<R> {
    pub(super) fn new(input: R, format: Format) -> Self {
        Splitter {
            input,
            format,
            buffer: Vec::new(),
            at: 0,
            base: 0,
            line: 1,
            ended: false,
            state: State::Start,
            in_object: false,
            first: true,
            array: None,
        }
    }

    /// Whether places are lines.
    pub(super) fn counts_lines(&self) -> bool {
        matches!(self.state, State::Lines | State::Rows(_)) || self.format == Format::Lines
    }

    /// The header of rows of CSV, and what stands between its fields; of anything else none. Before the first record.
    pub(super) fn header(&mut self) -> Result<Option<(Vec<u8>, u8)>, SplitError> {
        let Format::Rows { delimiter } = self.format else { return Ok(None) };
        self.start()?;
        match self.row(delimiter)? {
            Some((row, _)) => Ok(Some((self.buffer[row].to_vec(), delimiter))),
            None => Err(self.error("the file is empty; its first line must name the fields")),
        }
    }

    /// Position in the stream up to which records were cut.
    pub(super) fn position(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The next records, all of one array; `None` at the end.
    pub(super) fn next(&mut self, source: u32) -> Result<Option<Batch>, SplitError> {
        let mut batch = Batch {
            source,
            number: 0,
            array: None,
            columns: None,
            bytes: Vec::with_capacity(BATCH_BYTES),
            records: Vec::new(),
        };
        while batch.bytes.len() < BATCH_BYTES {
            match self.state {
                State::Start => self.start()?,
                State::Key => {
                    // The next array begins another batch.
                    if !batch.records.is_empty() {
                        break;
                    }
                    self.key()?;
                }
                State::Array => self.element(&mut batch)?,
                State::Lines => {
                    if !self.record_line(&mut batch)? {
                        break;
                    }
                }
                State::Rows(delimiter) => {
                    let Some((row, line)) = self.row(delimiter)? else { break };
                    batch.bytes.extend_from_slice(&self.buffer[row]);
                    batch.records.push((batch.bytes.len(), line));
                }
                State::End => {
                    if batch.records.is_empty() && self.peek()?.is_some() {
                        return Err(self.error("something follows the JSON value"));
                    }
                    break;
                }
            }
        }
        Ok(if batch.records.is_empty() { None } else { Some(batch) })
    }

    fn start(&mut self) -> Result<(), SplitError> {
        // A byte order mark is not JSON, but files exported on Windows begin with one.
        while self.buffer.len() < 3 && !self.ended {
            self.fill(0)?;
        }
        if self.buffer.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        match self.format {
            Format::Lines => {
                self.state = State::Lines;
                return Ok(());
            }
            Format::Rows { delimiter } => {
                self.state = State::Rows(delimiter);
                return Ok(());
            }
            Format::Json | Format::Guess { .. } => {}
        }
        let first = self.peek()?;
        if first == Some(b'{') && self.format == (Format::Guess { named: true }) {
            self.state = State::Lines;
            return Ok(());
        }
        self.at += 1;
        self.state = match first {
            Some(b'[') => State::Array,
            Some(b'{') => {
                self.in_object = true;
                State::Key
            }
            _ => return Err(self.error("expected an array, or an object of arrays")),
        };
        Ok(())
    }

    /// `"users": [`, or the end of the object.
    fn key(&mut self) -> Result<(), SplitError> {
        let mut first = self.peek()?;
        if first == Some(b'}') {
            self.at += 1;
            self.state = State::End;
            return Ok(());
        }
        if self.array.is_some() {
            self.comma(first)?;
            first = self.peek()?;
        }
        if first != Some(b'"') {
            return Err(self.error("expected the name of a collection in double quotes"));
        }
        let end = self.scan_value()?;
        let name =
            std::str::from_utf8(&self.buffer[self.at + 1..end - 1]).ok().filter(|n| n.len() <= ARRAY_NAME_BYTES_MAX);
        let name: Arc<str> =
            name.ok_or_else(|| self.error("the name of a collection is too long or not UTF-8"))?.into();
        self.array = Some(Arc::clone(&name));
        self.at = end;
        for byte in [b':', b'['] {
            if self.peek()? != Some(byte) {
                return Err(self.error(&format!(
                    "expected an array of records: an object in a .json file is {{\"COLLECTION\": [documents]}}, and \"{name}\" \
                     has no array. Documents one on each line are a .ndjson file; of an API's page pass only its array"
                )));
            }
            self.at += 1;
        }
        self.state = State::Array;
        self.first = true;
        Ok(())
    }

    fn comma(&mut self, found: Option<u8>) -> Result<(), SplitError> {
        if found != Some(b',') {
            return Err(self.error("expected a comma, or the end"));
        }
        self.at += 1;
        Ok(())
    }

    fn element(&mut self, batch: &mut Batch) -> Result<(), SplitError> {
        let found = self.peek()?;
        if found == Some(b']') {
            self.at += 1;
            self.state = if self.in_object { State::Key } else { State::End };
            return Ok(());
        }
        if !self.first {
            self.comma(found)?;
            self.peek()?;
        }
        self.first = false;
        let end = self.scan_value()?;
        batch.array.clone_from(&self.array);
        self.take(batch, end, self.position());
        Ok(())
    }

    /// A line; `false` at the end.
    fn record_line(&mut self, batch: &mut Batch) -> Result<bool, SplitError> {
        let mut from = self.at;
        let end = loop {
            if let Some(newline) = self.buffer[from..].iter().position(|&byte| byte == b'\n') {
                break from + newline;
            }
            let scanned = self.buffer.len() - self.at;
            if !self.more(scanned)? {
                break self.buffer.len();
            }
            from = self.at + scanned;
        };
        let line = self.line;
        let at_end = end == self.buffer.len();
        let blank = self.buffer[self.at..end].iter().all(u8::is_ascii_whitespace);
        if blank {
            self.at = end;
        } else {
            self.take(batch, end, line);
        }
        if !at_end {
            self.at += 1;
            self.line += 1;
        }
        Ok(!at_end)
    }

    /// The next row that is not empty: where it stands in the buffer, without the end of its line, and in which line it
    /// begins. `None` at the end.
    fn row(&mut self, delimiter: u8) -> Result<Option<(Range<usize>, u64)>, SplitError> {
        loop {
            let (mut scan, mut scanned) = (RowScan::default(), 0);
            let length = loop {
                if let Some(length) = scan.run(&self.buffer[self.at + scanned..], delimiter) {
                    break scanned + length;
                }
                scanned = self.buffer.len() - self.at;
                if !self.more(scanned)? {
                    break scanned;
                }
            };
            if scan.is_open() {
                return Err(self.error("the file ends inside a quoted field of this row"));
            }
            let (start, line) = (self.at, self.line);
            let end = start + length;
            let text = &self.buffer[start..end];
            let row = start..end - usize::from(text.ends_with(b"\r"));
            let is_last = end == self.buffer.len();
            self.line += memchr::memchr_iter(b'\n', text).count() as u64 + u64::from(!is_last);
            self.at = if is_last { end } else { end + 1 };
            if !row.is_empty() {
                return Ok(Some((row, line)));
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    fn take(&mut self, batch: &mut Batch, end: usize, place: u64) {
        batch.bytes.extend_from_slice(&self.buffer[self.at..end]);
        batch.records.push((batch.bytes.len(), place));
        self.at = end;
    }

    /// The end of the value at `at`: strings and brackets are matched, any other value ends at a separator.
    fn scan_value(&mut self) -> Result<usize, SplitError> {
        let mut scan = ValueScan::default();
        let mut done = 0;
        loop {
            if let Some(length) = scan.end_in(&self.buffer[self.at + done..]) {
                let length = done + length;
                if length == 0 {
                    return Err(self.error("expected a record"));
                }
                return Ok(self.at + length);
            }
            done = self.buffer.len() - self.at;
            if !self.more(done)? {
                return Err(self.error("the file ends inside a record"));
            }
        }
    }

    /// The next byte that is not whitespace, without consuming it.
    fn peek(&mut self) -> Result<Option<u8>, SplitError> {
        loop {
            while let Some(&byte) = self.buffer.get(self.at) {
                if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                    return Ok(Some(byte));
                }
                self.at += 1;
            }
            if !self.more(0)? {
                return Ok(None);
            }
        }
    }

    /// Reads more, keeping the bytes from `at`; `held` of them belong to an unfinished record. `false`: the stream ended.
    fn more(&mut self, held: usize) -> Result<bool, SplitError> {
        if self.ended {
            return Ok(false);
        }
        if held > RECORD_BYTES_MAX {
            return Err(self.error(&format!("a record of more than {RECORD_BYTES_MAX} bytes")));
        }
        self.base += self.at as u64;
        self.buffer.drain(..self.at);
        self.at = 0;
        let before = self.buffer.len();
        self.fill(before)?;
        Ok(self.buffer.len() > before)
    }

    fn fill(&mut self, from: usize) -> Result<(), SplitError> {
        let from = from.max(self.buffer.len());
        self.buffer.resize(from + READ_BYTES, 0);
        loop {
            match self.input.read(&mut self.buffer[from..]) {
                Ok(count) => {
                    self.buffer.truncate(from + count);
                    self.ended = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.buffer.truncate(from);
                    return Err(SplitError { why: format!("cannot read on at byte {}: {error}", self.position()) });
                }
            }
        }
    }

    fn error(&self, why: &str) -> SplitError {
        let place =
            if self.counts_lines() { format!("line {}", self.line) } else { format!("byte {}", self.position()) };
        SplitError { why: format!("{place}: {why}") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the text in pieces of the given sizes.
    struct Pieces<'t> {
        text: &'t [u8],
        sizes: Vec<usize>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.sizes.pop().unwrap_or(1).clamp(1, buffer.len()).min(self.text.len());
            buffer[..size].copy_from_slice(&self.text[..size]);
            self.text = &self.text[size..];
            Ok(size)
        }
    }

    fn cut(text: &str, sizes: Vec<usize>, format: Format) -> Result<Vec<(String, String, u64)>, String> {
        let mut splitter = Splitter::new(Pieces { text: text.as_bytes(), sizes }, format);
        let mut found = Vec::new();
        while let Some(batch) = splitter.next(0).map_err(|error| error.why)? {
            let mut start = 0;
            for (end, place) in batch.records {
                let record = String::from_utf8(batch.bytes[start..end].to_vec()).unwrap();
                found.push((batch.array.as_deref().unwrap_or("").to_string(), record, place));
                start = end;
            }
        }
        Ok(found)
    }

    #[track_caller]
    fn check(text: &str, format: Format, expected: Result<&[(&str, &str, u64)], &str>) {
        for sizes in [vec![], vec![usize::MAX]] {
            let found = cut(text, sizes, format);
            let expected = expected.map(|records| {
                records.iter().map(|(array, record, at)| (array.to_string(), record.to_string(), *at)).collect()
            });
            assert_eq!(found, expected.map_err(str::to_string), "{text:?}");
        }
    }

    #[test]
    fn arrays_are_cut_into_records_with_their_places() {
        use Format::Json;
        check("[]", Json, Ok(&[]));
        check(
            " [ {\"a\":[1,\"]\"]} , 5,\"x\\\"]\" ] ",
            Json,
            Ok(&[("", "{\"a\":[1,\"]\"]}", 3), ("", "5", 19), ("", "\"x\\\"]\"", 21)]),
        );
        check("\u{feff}{\"u\":[1],\"v\" : [ ] , \"w\":[2]}", Json, Ok(&[("u", "1", 9), ("w", "2", 29)]));
        let no_array = "byte 5: expected an array of records: an object in a .json file is {\"COLLECTION\": [documents]}, and \"u\" has \
                        no array. Documents one on each line are a .ndjson file; of an API's page pass only its array";
        check("{\"u\":5}", Json, Err(no_array));
        check("[1", Json, Err("byte 1: the file ends inside a record"));
        check("[{\"a\":", Json, Err("byte 1: the file ends inside a record"));
        check("[1]x", Json, Err("byte 3: something follows the JSON value"));
        check("7", Json, Err("byte 1: expected an array, or an object of arrays"));
        check("", Json, Err("byte 1: expected an array, or an object of arrays"));
        check("[1 2]", Json, Err("byte 3: expected a comma, or the end"));
        check("{\"u\":[1] \"v\":[2]}", Json, Err("byte 9: expected a comma, or the end"));
        check("[1,]", Json, Err("byte 3: expected a record"));
        check("[,]", Json, Err("byte 1: expected a record"));
    }

    /// The header and the rows, each with its line.
    fn rows(text: &str, sizes: Vec<usize>) -> Result<Vec<(String, u64)>, String> {
        let mut splitter = Splitter::new(Pieces { text: text.as_bytes(), sizes }, Format::Rows { delimiter: b',' });
        let (header, _) = splitter.header().map_err(|error| error.why)?.unwrap();
        let mut found = vec![(String::from_utf8(header).unwrap(), 0)];
        while let Some(batch) = splitter.next(0).map_err(|error| error.why)? {
            let mut start = 0;
            for (end, line) in batch.records {
                found.push((String::from_utf8(batch.bytes[start..end].to_vec()).unwrap(), line));
                start = end;
            }
        }
        Ok(found)
    }

    #[test]
    fn rows_are_cut_behind_a_header_and_a_newline_in_quotes_is_no_end() {
        let check = |text: &str, expected: Result<&[(&str, u64)], &str>| {
            for sizes in [vec![], vec![usize::MAX]] {
                let expected = expected.map(|rows| rows.iter().map(|(row, line)| (row.to_string(), *line)).collect());
                assert_eq!(rows(text, sizes), expected.map_err(str::to_string), "{text:?}");
            }
        };
        check(
            "\u{feff}a,b\r\n1,\"x\ny\"\r\n\r\n\n2,5\"\n3,",
            Ok(&[("a,b", 0), ("1,\"x\ny\"", 2), ("2,5\"", 6), ("3,", 7)]),
        );
        check("\n\na", Ok(&[("a", 0)]));
        check("", Err("line 1: the file is empty; its first line must name the fields"));
        check("\r\n", Err("line 2: the file is empty; its first line must name the fields"));
        check("a\n1\n\"x\ny", Err("line 3: the file ends inside a quoted field of this row"));
    }

    #[test]
    fn lines_are_records_and_blank_ones_are_passed_over() {
        check("{\"a\":1}\r\n\n {\"b\":2}", Format::Lines, Ok(&[("", "{\"a\":1}\r", 1), ("", " {\"b\":2}", 3)]));
        check("{\"a\":1}\n", Format::Guess { named: true }, Ok(&[("", "{\"a\":1}", 1)]));
        check("{\"a\":[1]}\n", Format::Guess { named: false }, Ok(&[("a", "1", 6)]));
        check("", Format::Lines, Ok(&[]));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_end(text in "[\\[\\]{}\",: a\\\\\n]{0,30}", sizes in prop::collection::vec(1usize..9, 0..30)) {
            for format in [Format::Json, Format::Lines, Format::Guess { named: true }] {
                prop_assert_eq!(cut(&text, sizes.clone(), format), cut(&text, vec![usize::MAX], format));
            }
            prop_assert_eq!(rows(&text, sizes), rows(&text, vec![usize::MAX]));
        }
    }
}
