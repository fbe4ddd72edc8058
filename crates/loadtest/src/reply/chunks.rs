//! A chunked body (RFC 9112, 7.1): sizes, data, trailers. Extensions and trailers are skipped, within bounds.

use super::{BodyReceiver, Fault};
use memchr::memchr;

/// Longest line of a chunk's size, its extensions included, or of a trailer, in bytes.
const LINE_BYTES_MAX: usize = 4 << 10;
/// Largest size of all trailers, in bytes.
const TRAILER_BYTES_MAX: usize = 64 << 10;
/// Largest number of digits of a size: more would not fit into 64 bits.
const SIZE_DIGITS_MAX: usize = 16;

#[derive(Debug, Default)]
enum State {
    #[default]
    Size,
    Data {
        left: u64,
    },
    /// The line end after data.
    DataEnd,
    Trailers {
        bytes: usize,
    },
}

/// The state of reading a chunked body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    state: State,
}

impl Chunks {
    /// Reads on. Returns the consumed bytes, and whether the body has ended. Bytes that are not consumed are a
    /// part of a line.
    pub(super) fn read(&mut self, input: &[u8], body: &mut impl BodyReceiver) -> Result<(usize, bool), Fault> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match &mut self.state {
                State::Data { left } => {
                    let taken = (*left).min(rest.len() as u64) as usize;
                    body.push(&rest[..taken]);
                    *left -= taken as u64;
                    used += taken;
                    if *left > 0 {
                        return Ok((used, false));
                    }
                    self.state = State::DataEnd;
                }
                state => {
                    let Some((line, bytes)) = line(rest)? else {
                        return check_data_end(state, rest).map(|()| (used, false));
                    };
                    used += bytes;
                    if state.step(line, bytes)? {
                        return Ok((used, true));
                    }
                }
            }
        }
    }
}

impl State {
    /// Handles a line. `true`: it ends the body.
    fn step(&mut self, line: &[u8], bytes: usize) -> Result<bool, Fault> {
        *self = match self {
            Self::Size => match size(line)? {
                0 => Self::Trailers { bytes: 0 },
                left => Self::Data { left },
            },
            Self::DataEnd if line.is_empty() => Self::Size,
            Self::Trailers { .. } if line.is_empty() => return Ok(true),
            Self::Trailers { bytes: before } if *before + bytes <= TRAILER_BYTES_MAX => {
                Self::Trailers { bytes: *before + bytes }
            }
            _ => return Err(Fault::Chunk),
        };
        Ok(false)
    }
}

/// The next line without its end, and its length including the end. `None`: its end has not arrived.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, Fault> {
    match memchr(b'\n', &input[..input.len().min(LINE_BYTES_MAX)]) {
        Some(end) => Ok(Some((input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]), end + 1))),
        None if input.len() >= LINE_BYTES_MAX => Err(Fault::Chunk),
        None => Ok(None),
    }
}

/// After data only a line end may follow: another byte is an error at once, however long its line becomes.
fn check_data_end(state: &State, rest: &[u8]) -> Result<(), Fault> {
    if matches!(state, State::DataEnd) && !matches!(rest, [] | [b'\r']) { Err(Fault::Chunk) } else { Ok(()) }
}

/// The size of a chunk's line: hexadecimal digits, optionally followed by blanks and extensions.
fn size(line: &[u8]) -> Result<u64, Fault> {
    let before_extensions = line.split(|byte| *byte == b';').next().unwrap_or_default();
    let digits = before_extensions.trim_ascii_end();
    if digits.is_empty() || digits.len() > SIZE_DIGITS_MAX {
        return Err(Fault::Chunk);
    }
    digits.iter().try_fold(0, |size: u64, digit| match (*digit as char).to_digit(16) {
        Some(value) => Ok(size << 4 | u64::from(value)),
        None => Err(Fault::Chunk),
    })
}
