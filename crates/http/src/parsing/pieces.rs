//! A request's body that its service takes in pieces, as they arrive, without gathering.
//!
//! Bytes that the sink does not take stay in the connection's input, which the reactor bounds, so the client gets back-pressure.

use crate::body::BodySink;
use crate::parsing::chunked::Chunked;
use crate::parsing::head::Framing;
use crate::parsing::refusal::Refusal;

/// State of a body after a piece of it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// The client has to send more.
    Starved,
    /// The sink has no room.
    NoRoom,
    /// It has been taken whole.
    Whole,
}

/// A body that is being passed to its sink.
pub(crate) struct Pieces {
    sink: Box<dyn BodySink>,
    chunked: Option<Chunked>,
    /// Missing bytes of a body of known length.
    missing: u64,
    /// Bytes of body that were taken.
    taken: usize,
    /// The reply to its request, if it has not been sent.
    pub(crate) sequence: Option<u64>,
    /// The connection stays open after it.
    pub(crate) persistent: bool,
    /// Until when it may go on arriving at a server that drains.
    pub(crate) until_ns: u64,
}

impl Pieces {
    pub(crate) fn new(framing: Framing, sink: Box<dyn BodySink>, sequence: Option<u64>, persistent: bool) -> Pieces {
        let (chunked, missing) = match framing {
            Framing::Length(length) => (None, length),
            Framing::Chunked => (Some(Chunked::new()), 0),
        };
        Pieces { sink, chunked, missing, taken: 0, sequence, persistent, until_ns: u64::MAX }
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.sink.held_bytes()
    }

    pub(crate) fn into_sink(self) -> Box<dyn BodySink> {
        self.sink
    }

    /// Offers input to the sink, and returns how many bytes of it were used.
    pub(crate) fn offer(&mut self, input: &[u8]) -> Result<(usize, Offered), Refusal> {
        let Pieces { sink, chunked, missing, taken, .. } = self;
        let mut give = |piece: &[u8]| {
            let bytes = if piece.is_empty() { 0 } else { sink.take(piece).min(piece.len()) };
            *taken += bytes;
            bytes
        };
        let Some(chunked) = chunked else {
            let piece = &input[..(*missing).min(input.len() as u64) as usize];
            let bytes = give(piece);
            *missing -= bytes as u64;
            return Ok((bytes, offered(*missing == 0, bytes < piece.len())));
        };
        let mut at = 0;
        loop {
            at += chunked.skip_to_data(&input[at..])?;
            let piece = chunked.data(&input[at..]);
            let bytes = give(piece);
            chunked.took(bytes);
            at += bytes;
            if piece.is_empty() || bytes < piece.len() {
                return Ok((at, offered(chunked.is_done(), bytes < piece.len())));
            }
        }
    }
}

fn offered(is_whole: bool, has_no_room: bool) -> Offered {
    match (is_whole, has_no_room) {
        (true, _) => Offered::Whole,
        (false, true) => Offered::NoRoom,
        (false, false) => Offered::Starved,
    }
}

/// Drops a body whose request was answered without it, so that the connection can continue.
pub(crate) struct Dropped;

impl BodySink for Dropped {
    fn take(&mut self, piece: &[u8]) -> usize {
        piece.len()
    }

    fn held_bytes(&self) -> usize {
        0
    }

    fn end(self: Box<Self>, _: Result<(), crate::body::BodyFault>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::BodyFault;
    use proptest::prelude::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Takes at most this many bytes at a time.
    struct Part(usize, Rc<RefCell<Vec<u8>>>);

    impl BodySink for Part {
        fn take(&mut self, piece: &[u8]) -> usize {
            assert!(!piece.is_empty());
            let bytes = self.0.min(piece.len());
            self.1.borrow_mut().extend_from_slice(&piece[..bytes]);
            bytes
        }

        fn held_bytes(&self) -> usize {
            self.1.borrow().len()
        }

        fn end(self: Box<Self>, _: Result<(), BodyFault>) {}
    }

    /// The body that the sink gets from these bytes, and how many of them are used; `None` if it is incomplete.
    fn read(wire: &[u8], framing: Framing, (reads, room): (usize, usize)) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
        let taken = Rc::new(RefCell::new(Vec::new()));
        let mut pieces = Pieces::new(framing, Box::new(Part(room, Rc::clone(&taken))), None, true);
        let (mut start, mut end) = (0, 0);
        loop {
            let (used, offered) = pieces.offer(&wire[start..end])?;
            start += used;
            match offered {
                Offered::Whole => return Ok(Some((taken.take(), start))),
                Offered::Starved if end == wire.len() => return Ok(None),
                Offered::Starved => end = (end + reads).min(wire.len()),
                Offered::NoRoom => assert!(used > 0 && start < end),
            }
        }
    }

    proptest! {
        #[test]
        fn a_sink_is_given_the_body_and_nothing_else_however_it_comes_and_however_little_it_takes(
            body in proptest::collection::vec(any::<u8>(), 1..300),
            chunk in 1usize..70, reads in 1usize..200, room in 1usize..90, after in "[a-z]{0,9}",
        ) {
            let mut wire = [&body, after.as_bytes()].concat();
            let length = Framing::Length(body.len() as u64);
            prop_assert_eq!(read(&wire, length, (reads, room)), Ok(Some((body.clone(), body.len()))));
            prop_assert_eq!(read(&wire[..body.len() - 1], length, (reads, room)), Ok(None));
            wire.clear();
            for part in body.chunks(chunk) {
                wire.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
                wire.extend_from_slice(part);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let end = wire.len();
            wire.extend_from_slice(after.as_bytes());
            prop_assert_eq!(read(&wire, Framing::Chunked, (reads, room)), Ok(Some((body, end))));
            prop_assert_eq!(read(&wire[..end - 1], Framing::Chunked, (reads, room)), Ok(None));
        }
    }

    #[test]
    fn a_chunk_that_ends_elsewhere_than_it_says_is_refused_behind_what_was_taken() {
        for room in [1, 100] {
            assert_eq!(read(b"5\r\nhello!\r\n", Framing::Chunked, (3, room)), Err(Refusal::ChunkEnd));
        }
    }
}
