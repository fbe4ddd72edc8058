//! A streamed reply: pieces of a source, framed as they are pulled.
//!
//! A chunk's size precedes its data but is known only afterwards, so eight digits are reserved and filled in later (leading zeros
//! are allowed, RFC 9112 section 7.1). This saves a copy of the data.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::body::{BodySource, More};
use crate::reply::composer::Length;

/// Room for a chunk's size.
const SIZE_PLACE: &[u8; 10] = b"00000000\r\n";
const LAST_CHUNK: &[u8; 5] = b"0\r\n\r\n";

/// How the pieces are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFraming {
    Chunked,
    /// This many bytes are still missing.
    Length(u64),
    UntilClose,
}

impl StreamFraming {
    /// The framing of a body of this length, and its length for the head.
    pub(crate) fn of(length: Option<u64>, http10: bool) -> (StreamFraming, Length) {
        match length {
            Some(bytes) => (StreamFraming::Length(bytes), Length::Known(bytes)),
            None if http10 => (StreamFraming::UntilClose, Length::UntilClose),
            None => (StreamFraming::Chunked, Length::Chunked),
        }
    }
}

/// A streamed reply that is being sent.
pub(crate) struct Stream {
    source: Box<dyn BodySource>,
    framing: StreamFraming,
    /// Bytes appended to the write queue, with the head.
    pub(crate) sent: usize,
}

impl Stream {
    pub(crate) fn new(source: Box<dyn BodySource>, framing: StreamFraming) -> Self {
        Stream { source, framing, sent: 0 }
    }

    /// Appends the next piece with its framing. After `More::Broken` the reply must not be ended regularly.
    pub(crate) fn pull(&mut self, out: &mut Vec<u8>) -> More {
        let start = out.len();
        if self.framing == StreamFraming::Chunked {
            out.extend_from_slice(SIZE_PLACE);
        }
        let data = out.len();
        let pulled = catch_unwind(AssertUnwindSafe(|| self.source.pull(out)));
        let more = pulled.unwrap_or(More::Broken);
        if more == More::Broken || out.len() < data {
            out.truncate(start);
            return More::Broken;
        }
        match self.framing {
            StreamFraming::UntilClose => more,
            StreamFraming::Length(owed) => self.count(owed, out.len() - data, more),
            StreamFraming::Chunked => end_chunk(out, start, data, more),
        }
    }

    fn count(&mut self, owed: u64, bytes: usize, more: More) -> More {
        match (owed.checked_sub(bytes as u64), more) {
            (None, _) => More::Broken,
            (Some(0), _) => More::No,
            (Some(_), More::No) => More::Broken,
            (Some(left), more) => {
                self.framing = StreamFraming::Length(left);
                more
            }
        }
    }
}

fn end_chunk(out: &mut Vec<u8>, start: usize, data: usize, more: More) -> More {
    let Ok(bytes) = u32::try_from(out.len() - data) else { return More::Broken };
    if bytes == 0 {
        // A chunk of size zero would end the body.
        out.truncate(start);
    } else {
        for (place, digit) in (0..8).rev().zip(0u32..) {
            out[start + place] = b"0123456789abcdef"[(bytes >> (4 * digit) & 15) as usize];
        }
        out.extend_from_slice(b"\r\n");
    }
    if more == More::No {
        out.extend_from_slice(LAST_CHUNK);
    }
    more
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Pieces(Vec<&'static str>);

    impl BodySource for Pieces {
        fn pull(&mut self, out: &mut Vec<u8>) -> More {
            let piece = self.0.remove(0);
            assert!(piece != "panic");
            out.extend_from_slice(piece.as_bytes());
            if self.0.is_empty() { More::No } else { More::Yes }
        }
    }

    #[track_caller]
    fn check(pieces: &[&'static str], framing: StreamFraming, expected: &str, end: More) {
        let mut stream = Stream::new(Box::new(Pieces(pieces.to_vec())), framing);
        let mut out = b"head ".to_vec();
        let last = std::iter::repeat_with(|| stream.pull(&mut out)).find(|more| *more != More::Yes);
        assert_eq!((String::from_utf8_lossy(&out).as_ref(), last.unwrap()), (format!("head {expected}").as_str(), end));
    }

    #[test]
    fn chunks_carry_their_size_and_empty_pieces_none() {
        let expected = "00000005\r\nhello\r\n00000001\r\n!\r\n0\r\n\r\n";
        check(&["hello", "", "!"], StreamFraming::Chunked, expected, More::No);
        check(&["hello", "!", ""], StreamFraming::Chunked, expected, More::No);
        check(&[""], StreamFraming::Chunked, "0\r\n\r\n", More::No);
    }

    #[test]
    fn a_known_length_is_kept_or_the_stream_is_broken() {
        check(&["hello", "!"], StreamFraming::Length(6), "hello!", More::No);
        check(&["hello", "!"], StreamFraming::Length(5), "hello", More::No);
        check(&["hello", "!"], StreamFraming::Length(7), "hello!", More::Broken);
        check(&["hello", "!"], StreamFraming::Length(4), "hello", More::Broken);
    }

    /// Waits after its first piece.
    struct Waiting;

    impl BodySource for Waiting {
        fn pull(&mut self, out: &mut Vec<u8>) -> More {
            out.push(b'a');
            More::Wait
        }
    }

    #[test]
    fn a_source_that_waits_is_not_pulled_again_whatever_the_framing() {
        for framing in [StreamFraming::Length(5), StreamFraming::Chunked, StreamFraming::UntilClose] {
            assert_eq!(Stream::new(Box::new(Waiting), framing).pull(&mut Vec::new()), More::Wait, "{framing:?}");
        }
    }

    #[test]
    fn a_panic_of_the_source_breaks_the_stream() {
        check(&["hello", "panic"], StreamFraming::Chunked, "00000005\r\nhello\r\n", More::Broken);
    }
}
