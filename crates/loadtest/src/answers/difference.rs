//! Differences between expected and received answers: all are counted, the first ones are kept.

use std::fmt;

/// Number of differences that are kept; further ones are only counted.
pub const DIFFERENCES_KEPT_MAX: usize = 100;
/// Bytes of a request or an answer that a difference keeps and shows.
pub const SHOWN_BYTES_MAX: usize = 1024;

/// An answer that differs from the expected one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the request in the run, from 0.
    pub index: u64,
    /// What differs: the status, or the path in the body.
    pub what: String,
    /// The request's bytes, cut to [`SHOWN_BYTES_MAX`].
    pub request: Vec<u8>,
    /// Expected status and body.
    pub expected: (u16, Option<Vec<u8>>),
    /// Received status and body.
    pub received: (u16, Vec<u8>),
}

/// The differences of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerDifferences {
    /// The first differences, at most [`DIFFERENCES_KEPT_MAX`].
    pub kept: Vec<Difference>,
    /// Number of differences.
    pub count: u64,
    /// Replies that were compared.
    pub compared: u64,
    /// Replies that could not be compared: longer than the engine keeps, or too late.
    pub uncompared: u64,
}

impl AnswerDifferences {
    /// Counts a difference, and keeps it if it is among the first.
    pub(crate) fn add(&mut self, difference: impl FnOnce() -> Difference) {
        self.count += 1;
        if self.kept.len() < DIFFERENCES_KEPT_MAX {
            self.kept.push(difference());
        }
    }
}

/// The beginning of a text that a difference keeps.
pub(crate) fn cut(bytes: &[u8]) -> Vec<u8> {
    bytes[..bytes.len().min(SHOWN_BYTES_MAX + 1)].to_vec()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let any = b"(any body)".to_vec();
        let head_end = memchr::memmem::find(&self.request, b"\r\n\r\n").unwrap_or(self.request.len());
        let line_end = memchr::memchr(b'\r', &self.request).unwrap_or(head_end);
        let body = self.request.get(head_end + 4..).unwrap_or_default();
        writeln!(f, "request {}: {}", self.index, self.what)?;
        writeln!(f, "  request   {} {}", Shown(&self.request[..line_end]), Shown(body))?;
        writeln!(f, "  expected  {} {}", self.expected.0, Shown(self.expected.1.as_ref().unwrap_or(&any)))?;
        write!(f, "  received  {} {}", self.received.0, Shown(&self.received.1))
    }
}

impl fmt::Display for AnswerDifferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kept.iter().try_for_each(|difference| writeln!(f, "{difference}"))?;
        write!(f, "{} of {} answers differ", self.count, self.compared)?;
        if self.count > self.kept.len() as u64 {
            write!(f, "; the first {} are shown", self.kept.len())?;
        }
        match self.uncompared {
            0 => Ok(()),
            count => write!(f, "; {count} could not be compared and count by their status"),
        }
    }
}

/// Bytes for a terminal: one line, without control characters, with a mark if they were cut.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(SHOWN_BYTES_MAX)];
        for character in String::from_utf8_lossy(shown).trim_end().chars() {
            match character.is_control() {
                true => write!(f, "{}", character.escape_default())?,
                false => write!(f, "{character}")?,
            }
        }
        f.write_str(if self.0.len() > SHOWN_BYTES_MAX { "…" } else { "" })
    }
}

#[cfg(test)]
mod showing {
    use super::{AnswerDifferences, DIFFERENCES_KEPT_MAX, Difference, SHOWN_BYTES_MAX, cut};

    fn difference(index: u64) -> Difference {
        Difference {
            index,
            what: "the bodies differ at $.id".to_owned(),
            request: b"POST /a HTTP/1.1\r\nHost: b\r\n\r\n{\"x\":\n1}\r\n".to_vec(),
            expected: (200, None),
            received: (200, cut(&[b'\x1b'; 2 * SHOWN_BYTES_MAX])),
        }
    }

    #[test]
    fn a_difference_shows_request_expected_and_received_without_control_characters() {
        let text = difference(3).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "request 3: the bodies differ at $.id");
        assert_eq!(lines[1], r#"  request   POST /a HTTP/1.1 {"x":\n1}"#);
        assert_eq!(lines[2], "  expected  200 (any body)");
        assert!(lines[3].starts_with(r"  received  200 \u{1b}") && lines[3].ends_with('…'), "{}", lines[3]);
        let whole = Difference { received: (200, cut(&[b'x'; SHOWN_BYTES_MAX])), ..difference(3) }.to_string();
        assert!(whole.ends_with('x'), "it was not cut: {whole}");
    }

    #[test]
    fn the_first_differences_are_kept_and_the_rest_is_counted() {
        let mut differences = AnswerDifferences { compared: 500, ..AnswerDifferences::default() };
        (0..150).for_each(|index| differences.add(|| difference(index)));
        assert_eq!((differences.kept.len(), differences.kept[99].index), (DIFFERENCES_KEPT_MAX, 99));
        let text = differences.to_string();
        assert!(text.ends_with("150 of 500 answers differ; the first 100 are shown"), "{text}");
    }
}
