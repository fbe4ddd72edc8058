//! Decoder of chunked bodies: bounded sizes and extensions, strict CR LF, bounded trailers.
//!
//! ```text
//! body    = *( size [ extensions ] CRLF data CRLF ) "0" [ extensions ] CRLF *( trailer-line CRLF ) CRLF
//! ```
//!
//! Extensions and trailers are checked, counted and dropped. Servers that skipped extensions up to a bare LF, or without a bound,
//! were open to request smuggling and to denial of service; here both are answered with 400.

use crate::parsing::refusal::Refusal;

/// Digits of a chunk size. More digits, even zeros, are an error.
const SIZE_DIGITS_MAX: u32 = 16;
/// Bytes of extensions in one whole body.
const EXTENSION_BYTES_MAX: usize = 4 << 10;
/// Bytes of all trailer lines.
const TRAILER_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size { digits: u32 },
    Extension { named: bool },
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

/// Decoder of one chunked body.
#[derive(Debug)]
pub(crate) struct Chunked {
    state: State,
    size: u64,
    extension_bytes: usize,
    trailer_bytes: usize,
}

impl Chunked {
    pub(crate) fn new() -> Self {
        Chunked { state: State::Size { digits: 0 }, size: 0, extension_bytes: 0, trailer_bytes: 0 }
    }

    /// Whether the body is complete, trailers included.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Decodes `input`, appends data to `body` (at most `body_bytes_max` in all), and returns how many bytes of `input` were
    /// used: all, or those up to the body's end.
    pub(crate) fn decode(&mut self, input: &[u8], body: &mut Vec<u8>, body_bytes_max: usize) -> Result<usize, Refusal> {
        let mut at = 0;
        loop {
            at += self.skip_to_data(&input[at..])?;
            if self.state == State::Data && self.size > body_bytes_max.saturating_sub(body.len()) as u64 {
                return Err(Refusal::BodyTooLarge);
            }
            let data = self.data(&input[at..]);
            if data.is_empty() {
                return Ok(at);
            }
            body.extend_from_slice(data);
            at += data.len();
            self.took(data.len());
        }
    }

    /// Skips bytes before chunk data and returns their number: all, or those up to the data or the body's end.
    pub(crate) fn skip_to_data(&mut self, input: &[u8]) -> Result<usize, Refusal> {
        let mut at = 0;
        while at < input.len() && !matches!(self.state, State::Data | State::Done) {
            self.state = self.step(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// The front of this input that is data of the current chunk.
    pub(crate) fn data<'i>(&self, input: &'i [u8]) -> &'i [u8] {
        if self.state != State::Data {
            return &[];
        }
        &input[..self.size.min(input.len() as u64) as usize]
    }

    /// Marks bytes of data as taken.
    pub(crate) fn took(&mut self, bytes: usize) {
        self.size = self.size.saturating_sub(bytes as u64);
        if self.size == 0 && self.state == State::Data {
            self.state = State::DataReturn;
        }
    }

    fn step(&mut self, byte: u8) -> Result<State, Refusal> {
        match self.state {
            State::Size { digits } => self.size_byte(byte, digits),
            State::Extension { named } => self.extension_byte(byte, named),
            State::SizeLineFeed if byte == b'\n' && self.size == 0 => Ok(State::TrailerStart),
            State::SizeLineFeed if byte == b'\n' => Ok(State::Data),
            State::SizeLineFeed => Err(Refusal::ChunkSize),
            State::DataReturn if byte == b'\r' => Ok(State::DataLineFeed),
            State::DataLineFeed if byte == b'\n' => Ok(State::Size { digits: 0 }),
            State::DataReturn | State::DataLineFeed => Err(Refusal::ChunkEnd),
            State::TrailerStart | State::TrailerName | State::TrailerValue => self.trailer_byte(byte),
            State::TrailerLineFeed if byte == b'\n' => Ok(State::TrailerStart),
            State::LastLineFeed if byte == b'\n' => Ok(State::Done),
            State::TrailerLineFeed | State::LastLineFeed => Err(Refusal::Trailer),
            State::Data | State::Done => Ok(self.state),
        }
    }

    fn size_byte(&mut self, byte: u8, digits: u32) -> Result<State, Refusal> {
        match (byte as char).to_digit(16) {
            Some(_) if digits == SIZE_DIGITS_MAX => Err(Refusal::ChunkSize),
            Some(digit) => {
                // Sixteen digits fill a u64 exactly, so the shift loses nothing.
                self.size = self.size << 4 | u64::from(digit);
                Ok(State::Size { digits: digits + 1 })
            }
            None if digits == 0 => Err(Refusal::ChunkSize),
            None => match byte {
                b'\r' => Ok(State::SizeLineFeed),
                b';' => self.extension(true),
                // RFC 9110 section 5.6.3 requires blanks here to be accepted, but only before an extension.
                b' ' | b'\t' => self.extension(false),
                _ => Err(Refusal::ChunkSize),
            },
        }
    }

    fn extension(&mut self, named: bool) -> Result<State, Refusal> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(Refusal::ChunkExtension);
        }
        Ok(State::Extension { named })
    }

    fn extension_byte(&mut self, byte: u8, named: bool) -> Result<State, Refusal> {
        match byte {
            b'\r' if named => Ok(State::SizeLineFeed),
            b';' => self.extension(true),
            b' ' | b'\t' => self.extension(named),
            0x21..=0x7e | 0x80.. if named => self.extension(named),
            _ => Err(Refusal::ChunkExtension),
        }
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<State, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > TRAILER_BYTES_MAX {
            return Err(Refusal::Trailer);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::LastLineFeed),
            (State::TrailerName, b':') => Ok(State::TrailerValue),
            (State::TrailerStart | State::TrailerName, _) if is_token(byte) => Ok(State::TrailerName),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLineFeed),
            (State::TrailerValue, b'\t' | 0x20..=0x7e | 0x80..) => Ok(State::TrailerValue),
            _ => Err(Refusal::Trailer),
        }
    }
}

/// A byte of a token (RFC 9110 section 5.6.2), as in field names.
#[inline]
pub(crate) fn is_token(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}

const TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BODY_MAX: usize = 64;

    fn decode_in_pieces(input: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
        let (mut chunked, mut body, mut used) = (Chunked::new(), Vec::new(), 0);
        for part in input.chunks(piece) {
            used += chunked.decode(part, &mut body, BODY_MAX)?;
        }
        Ok(chunked.is_done().then_some((body, used)))
    }

    #[track_caller]
    fn check(input: &str, expected: Result<Option<&str>, Refusal>) {
        for piece in [1, 2, 3, 1000] {
            let got = decode_in_pieces(input.as_bytes(), piece);
            let got = got.map(|done| done.map(|(body, _)| String::from_utf8(body).unwrap()));
            assert_eq!(got, expected.map(|body| body.map(str::to_owned)), "in pieces of {piece}");
        }
    }

    #[test]
    fn chunks_are_joined() {
        check("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", Ok(Some("hello world")));
        check("0\r\n\r\n", Ok(Some("")));
        check("A;x=1; y=\"2\"\r\n0123456789\r\n0;z\r\nTrailer: yes\r\n\r\n", Ok(Some("0123456789")));
        check("5 ;ext\r\nhello\r\n0\r\n\r\n", Ok(Some("hello")));
    }

    #[test]
    fn an_unfinished_body_wants_more() {
        for input in ["", "5", "5\r", "5\r\n", "5\r\nhel", "5\r\nhello\r\n0\r\n", "5\r\nhello\r\n0\r\n\r"] {
            check(input, Ok(None));
        }
    }

    #[test]
    fn sizes_are_hexadecimal_and_bounded() {
        for input in
            ["\r\n", "g\r\n", "0x5\r\n", "-1\r\n", "+1\r\n", "5 \r\n", " 5\r\n", "5\n", "5\rx", "00000000000000005\r\n"]
        {
            let refusal = if input == "5 \r\n" { Refusal::ChunkExtension } else { Refusal::ChunkSize };
            check(input, Err(refusal));
        }
        check("FFFFFFFFFFFFFFFF\r\n", Err(Refusal::BodyTooLarge));
        check("41\r\n", Err(Refusal::BodyTooLarge));
    }

    #[test]
    fn a_chunk_must_end_where_its_size_says() {
        check("5\r\nhello!\r\n", Err(Refusal::ChunkEnd));
        check("5\r\nhello\n0\r\n\r\n", Err(Refusal::ChunkEnd));
        check("5\r\nhello\rx", Err(Refusal::ChunkEnd));
    }

    #[test]
    fn extensions_end_with_a_whole_line_end_and_have_a_bound() {
        check("5;x\nhello\r\n0\r\n\r\n", Err(Refusal::ChunkExtension));
        check("5;x\0\r\nhello", Err(Refusal::ChunkExtension));
        check(&format!("5;{}\r\n", "x".repeat(EXTENSION_BYTES_MAX)), Err(Refusal::ChunkExtension));
        check("5 x\r\nhello\r\n0\r\n\r\n", Err(Refusal::ChunkExtension));
        let longest = "x".repeat(EXTENSION_BYTES_MAX - 1);
        check(&format!("1;{longest}\r\na\r\n0\r\n\r\n"), Ok(Some("a")));
        check(&format!("1;{longest}x\r\na\r\n0\r\n\r\n"), Err(Refusal::ChunkExtension));
        let many = format!("1;{}\r\na\r\n", "x".repeat(100)).repeat(50);
        check(&many, Err(Refusal::ChunkExtension));
    }

    #[test]
    fn trailers_are_checked_and_bounded() {
        for trailer in [" folded: x\r\n", "no colon\r\n", ": x\r\n", "a: b\n", "a: b\rc", "a: \0\r\n", "a : b\r\n"] {
            check(&format!("0\r\n{trailer}"), Err(Refusal::Trailer));
        }
        // Counted with its carriage returns.
        let longest = "x".repeat(TRAILER_BYTES_MAX - "a: \r\r".len());
        check(&format!("0\r\na: {longest}\r\n\r\n"), Ok(Some("")));
        check(&format!("0\r\na: {longest}x\r\n\r\n"), Err(Refusal::Trailer));
    }

    proptest! {
        #[test]
        fn any_body_in_any_chunks_and_any_reads_comes_back(
            body in proptest::collection::vec(any::<u8>(), 0..BODY_MAX),
            chunk in 1usize..70, piece in 1usize..200, after in "[a-z]{0,9}",
        ) {
            let mut wire = Vec::new();
            for part in body.chunks(chunk) {
                wire.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                wire.extend_from_slice(part);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let end = wire.len();
            wire.extend_from_slice(after.as_bytes());
            prop_assert_eq!(decode_in_pieces(&wire, piece), Ok(Some((body, end))));
        }

        #[test]
        fn garbage_never_panics_and_never_grows_past_the_limit(
            input in proptest::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'1'), Just(b';'), any::<u8>()], 0..200),
            piece in 1usize..50,
        ) {
            if let Ok(Some((body, _))) = decode_in_pieces(&input, piece) {
                prop_assert!(body.len() <= BODY_MAX);
            }
        }
    }
}
