//! Lines of an input, one at a time, with their numbers and a bound on their length.
//!
//! Line feeds and carriage returns at the end do not belong to a line. The last line may lack its line feed.

use super::error::{AmmoError, AmmoPlace};
use crate::source::REQUEST_BYTES_MAX;
use std::io::{BufRead, Read};

/// Longest line in bytes. A line holds one request, so the bound of a request applies.
pub(crate) const LINE_BYTES_MAX: usize = REQUEST_BYTES_MAX;

/// Reads lines from `reader`.
pub(crate) struct Lines<R> {
    name: String,
    reader: R,
    /// Number of the line in `line`, from 1; 0 before the first.
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// `name` is the input's name in errors.
    pub(crate) fn new(name: &str, reader: R) -> Lines<R> {
        Lines { name: name.to_owned(), reader, number: 0, line: Vec::new() }
    }

    /// The next line. `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, AmmoError> {
        self.line.clear();
        // The limit has room for the line end, and one byte more that shows that a line exceeds the bound.
        let limit = LINE_BYTES_MAX as u64 + 3;
        let read = (&mut self.reader).take(limit).read_until(b'\n', &mut self.line);
        self.number += 1;
        match read {
            Err(error) => Err(self.last_error(format!("cannot be read: {error}"))),
            Ok(0) => Ok(None),
            Ok(_) => {
                let length = length_without_end(&self.line);
                self.line.truncate(length);
                if length > LINE_BYTES_MAX {
                    return Err(self.last_error(format!("longer than {LINE_BYTES_MAX} bytes")));
                }
                Ok(Some(&self.line))
            }
        }
    }

    /// The next line that is neither blank nor a comment, trimmed.
    pub(crate) fn next_entry(&mut self) -> Result<Option<&[u8]>, AmmoError> {
        Ok(self.next_whole_entry()?.map(<[u8]>::trim_ascii))
    }

    /// The same with the blanks at its end, which may belong to its last field.
    pub(crate) fn next_whole_entry(&mut self) -> Result<Option<&[u8]>, AmmoError> {
        loop {
            match self.next()? {
                None => return Ok(None),
                Some(line) if is_entry(line) => break,
                Some(_) => {}
            }
        }
        Ok(Some(self.line.trim_ascii_start()))
    }

    /// Replaces `bytes` by the next `length` bytes, which may have line ends.
    pub(crate) fn read_bytes(&mut self, length: usize, bytes: &mut Vec<u8>) -> Result<(), AmmoError> {
        bytes.clear();
        let read = (&mut self.reader).take(length as u64).read_to_end(bytes);
        read.map_err(|error| self.last_error(format!("cannot be read: {error}")))?;
        if bytes.len() < length {
            return Err(self.last_error(format!("{length} bytes announced, the file ends after {}", bytes.len())));
        }
        self.number += memchr::memchr_iter(b'\n', bytes).count() as u64;
        Ok(())
    }

    /// The input's name in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Number of the line read last, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The place of the line read last.
    pub(crate) fn place(&self) -> AmmoPlace {
        AmmoPlace::Line(self.number)
    }

    /// An error in the line read last.
    pub(crate) fn error(&self, reason: impl Into<String>) -> AmmoError {
        AmmoError::record(&self.name, self.place(), reason)
    }

    /// An error in the line read last, after which nothing more can be read.
    pub(crate) fn last_error(&self, reason: String) -> AmmoError {
        AmmoError::input(&self.name, self.place(), reason)
    }
}

/// Blank lines and lines that begin with `#` are comments.
pub(crate) fn is_entry(line: &[u8]) -> bool {
    line.trim_ascii_start().first().is_some_and(|first| *first != b'#')
}

/// Length of `line` without its line feed and the carriage return before that.
fn length_without_end(line: &[u8]) -> usize {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line).len()
}

#[cfg(test)]
mod reading {
    use super::{LINE_BYTES_MAX, Lines};

    fn all(text: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new("input", text);
        let mut all = Vec::new();
        while let Some(line) = lines.next().expect("readable") {
            all.push(line.to_vec());
        }
        all
    }

    #[test]
    fn ends_of_lines_are_cut_off_and_the_last_may_lack_its_own() {
        assert_eq!(all(b"a\r\nb\n\nc"), [&b"a"[..], b"b", b"", b"c"]);
        assert_eq!(all(b"a\n"), [b"a"]);
    }

    #[test]
    fn entries_leave_comments_out_and_keep_their_line_numbers() {
        let mut lines = Lines::new("input", &b"# first\n\n  /a \n#\n/b"[..]);
        assert_eq!(lines.next_entry().expect("readable"), Some(&b"/a"[..]));
        assert_eq!(lines.number(), 3);
        assert_eq!(lines.next_entry().expect("readable"), Some(&b"/b"[..]));
        assert_eq!(lines.number(), 5);
        assert_eq!(lines.next_entry().expect("readable"), None);
    }

    #[test]
    fn a_line_over_the_bound_is_an_error_with_its_number() {
        let mut text = b"/a\n".to_vec();
        text.resize(text.len() + LINE_BYTES_MAX, b'x');
        assert_eq!(all(&text).len(), 2);
        text.push(b'x');
        let mut lines = Lines::new("input", text.as_slice());
        lines.next().expect("the first line");
        let error = lines.next().expect_err("too long").to_string();
        assert!(error.starts_with("input, line 2: longer than"), "{error}");
    }
}
