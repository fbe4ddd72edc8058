//! The head of a reply: status line and fields, up to the blank line, in one pass over the lines.

use super::Fault;
use memchr::memchr;

/// Largest head in bytes, its blank line included.
pub const HEAD_BYTES_MAX: usize = 64 << 10;
/// Length of `HTTP/1.1 200`, the shortest status line.
const STATUS_LINE_BYTES_MIN: usize = 12;

/// How a body is delimited, according to the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    UntilEnd,
}

/// The relevant facts of a head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// Its length in bytes, the blank line included.
    pub(super) bytes: usize,
    pub(super) status: u16,
    pub(super) framing: Framing,
    pub(super) keeps_alive: bool,
}

/// Fields read so far.
struct Fields {
    length: Option<u64>,
    /// The last transfer coding; `Some(false)`: other than `chunked`.
    is_chunked: Option<bool>,
    keeps_alive: bool,
}

/// `None`: its end has not arrived.
pub(super) fn read(input: &[u8]) -> Result<Option<Head>, Fault> {
    let Some((status, is_1_1)) = status_line(input)? else { return Ok(None) };
    let mut fields = Fields { length: None, is_chunked: None, keeps_alive: is_1_1 };
    // The status line has no line feed before the end of its status.
    let mut at = STATUS_LINE_BYTES_MIN;
    let mut is_first = true;
    let window = &input[..input.len().min(HEAD_BYTES_MAX)];
    while let Some(length) = memchr(b'\n', &window[at..]) {
        let line = without_return(&window[at..at + length]);
        at += length + 1;
        if std::mem::take(&mut is_first) {
            // The rest of the status line: blank and reason.
            if !matches!(line.first(), None | Some(b' ')) {
                return Err(Fault::StatusLine);
            }
        } else if line.is_empty() {
            return Ok(Some(fields.head(at, status)));
        } else {
            fields.note(line)?;
        }
    }
    if window.len() == HEAD_BYTES_MAX { Err(Fault::HeadTooLong) } else { Ok(None) }
}

#[inline]
fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Status, and whether the version is 1.1. `None`: the line has not arrived.
#[inline]
fn status_line(input: &[u8]) -> Result<Option<(u16, bool)>, Fault> {
    const NAME: &[u8] = b"HTTP/1.";
    let Some(line) = input.first_chunk::<STATUS_LINE_BYTES_MIN>() else {
        let known = input.len().min(NAME.len());
        return if input[..known] == NAME[..known] { Ok(None) } else { Err(Fault::StatusLine) };
    };
    let [.., b'0'..=b'9', b' ', a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] = *line else {
        return Err(Fault::StatusLine);
    };
    if line[..NAME.len()] != *NAME {
        return Err(Fault::StatusLine);
    }
    let status = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
    Ok(Some((status, line[NAME.len()] != b'0')))
}

impl Fields {
    /// Only three fields matter. Their names begin with two letters, so that most lines are skipped at once.
    #[inline]
    fn note(&mut self, line: &[u8]) -> Result<(), Fault> {
        match line[0] {
            b'c' | b'C' | b't' | b'T' => self.note_framing(line),
            // A folded line would belong to the field before it, perhaps a relevant one (RFC 9112, 5.2).
            b' ' | b'\t' => Err(Fault::Field),
            _ => Ok(()),
        }
    }

    #[inline]
    fn note_framing(&mut self, line: &[u8]) -> Result<(), Fault> {
        if let Some(value) = value_of(line, b"content-length") {
            let length = number(value).ok_or(Fault::Field)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Fault::Field);
            }
            self.length = Some(length);
        } else if let Some(value) = value_of(line, b"transfer-encoding") {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            self.is_chunked = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        } else if let Some(value) = value_of(line, b"connection") {
            for option in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    self.keeps_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    self.keeps_alive = true;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn head(&self, bytes: usize, status: u16) -> Head {
        let framing = match (self.is_chunked, self.length) {
            (Some(true), _) => Framing::Chunked,
            (Some(false), _) | (None, None) => Framing::UntilEnd,
            (None, Some(length)) => Framing::Length(length),
        };
        // With both fields an intermediary may see another end (RFC 9112, 6.3).
        let is_ambiguous = self.is_chunked.is_some() && self.length.is_some();
        Head { bytes, status, framing, keeps_alive: self.keeps_alive && !is_ambiguous }
    }
}

/// The trimmed value of the field of this name.
#[inline]
fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

/// Decimal digits, at most nineteen: such a number fits without a check for each digit.
#[inline]
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |number: u64, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}
