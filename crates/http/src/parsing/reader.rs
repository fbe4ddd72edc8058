//! Request reader: turns a connection's bytes into whole requests, without any I/O.
//!
//! Each call of [`RequestReader::next`] reads all bytes that were received and not consumed. A request whose body came with its
//! head is returned as slices of them. If the body is still arriving (or chunked), the request is gathered: its head is copied,
//! and its body is decoded as it arrives, so a large body never has to fit the read buffer.
//!
//! Invariants:
//! - `next` is repeatable: a request that is neither consumed nor [`RequestReader::done`] is returned again.
//! - No byte is scanned again at each read, however the stream is cut: the scan resumes, and the fast path is tried only at the
//!   first read.
//! - Memory grows with the bytes that have arrived, never with the length that a head announces.

use crate::limits::ClientLimits;
use crate::parsing::chunked::Chunked;
use crate::parsing::head::{self, Framing, Head};
use crate::parsing::pieces::{Offered, Pieces};
use crate::parsing::plain::{self, SeenHead};
use crate::parsing::refusal::Refusal;
use crate::parsing::scan::HeadScan;

/// Empty lines skipped before a request (RFC 9112 section 2.2 requires at least one; some load testers send one after each POST).
const BLANK_LINES_MAX: u8 = 8;
/// Bytes of a request line besides its target: the longest method, two blanks, the version.
const LINE_BESIDES_TARGET: usize = 32;
/// Buffers over this size are not reused for the next gathered body.
const KEPT_BYTES_MAX: usize = 16 << 10;

/// Meaning of the bytes so far.
pub(crate) enum Step<'i> {
    /// No whole request yet. Drop `consumed` bytes of the input.
    More {
        consumed: usize,
        /// The head asked for `100 Continue`, and it must be sent now.
        say_continue: bool,
    },
    /// A request. Drop `consumed` bytes of the input and call [`RequestReader::done`] after it was served.
    Request { head: Head<'i>, body: &'i [u8], consumed: usize },
    /// A head whose body is taken in pieces. Drop `head_bytes` of the input after the request was served, and call
    /// [`RequestReader::begin_pieces`].
    InPieces { head: Head<'i>, head_bytes: usize },
    /// A body in pieces was offered the input. Drop `consumed` bytes of the input.
    Offered { consumed: usize, offered: Offered },
    /// No later byte can be interpreted.
    Refused(Refusal),
}

/// A request whose body is arriving. Reused by its loop.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    head: Vec<u8>,
    body: Vec<u8>,
    chunked: Option<Chunked>,
    /// Missing bytes of a body of known length.
    missing: usize,
}

impl Gathering {
    fn begin(&mut self, head: &[u8], framing: Framing) {
        self.head.clear();
        self.head.extend_from_slice(head);
        self.body.clear();
        (self.chunked, self.missing) = match framing {
            Framing::Length(length) => (None, length as usize),
            Framing::Chunked => (Some(Chunked::new()), 0),
        };
    }

    fn is_whole(&self) -> bool {
        self.missing == 0 && self.chunked.as_ref().is_none_or(Chunked::is_done)
    }

    /// Takes the bytes that belong to the body, and returns their number.
    fn take(&mut self, input: &[u8], limits: &ClientLimits) -> Result<usize, Refusal> {
        if let Some(chunked) = &mut self.chunked {
            make_room(&mut self.body, input.len(), limits.body_bytes_max);
            return chunked.decode(input, &mut self.body, limits.body_bytes_max);
        }
        let take = self.missing.min(input.len());
        let length = self.body.len() + self.missing;
        make_room(&mut self.body, take, length);
        self.body.extend_from_slice(&input[..take]);
        self.missing -= take;
        Ok(take)
    }

    /// Bytes of memory.
    fn bytes(&self) -> usize {
        self.head.capacity() + self.body.capacity()
    }

    /// Whether it is small enough to be reused for the next body.
    pub(crate) fn is_worth_keeping(&self) -> bool {
        self.bytes() <= KEPT_BYTES_MAX
    }
}

/// Makes room for more bytes of a body: doubles the capacity as a `Vec` does, but never beyond `bytes_max`: the body's length, or
/// the limit of a body if its length is unknown. So a bound on gathered bytes need not allow for twice the amount.
fn make_room(body: &mut Vec<u8>, bytes: usize, bytes_max: usize) {
    let needed = (body.len() + bytes).min(bytes_max);
    if needed > body.capacity() {
        let target = needed.max(body.capacity() * 2).min(bytes_max);
        body.reserve_exact(target - body.len());
    }
}

/// Reader of one connection's requests.
#[derive(Default)]
pub(crate) struct RequestReader {
    scan: HeadScan,
    arriving: Arriving,
    blank_lines: u8,
}

/// The body that is arriving.
#[derive(Default)]
enum Arriving {
    #[default]
    Nothing,
    Gathered(Box<Gathering>),
    InPieces(Box<Pieces>),
}

impl RequestReader {
    /// Reads the bytes received and not consumed. `seen` is the loop's cache of plain heads; `in_pieces` decides from a head
    /// whether its body is taken in pieces; `spare` provides a buffer for a body that must be gathered.
    #[inline]
    pub(crate) fn next<'i>(
        &'i mut self,
        input: &'i [u8],
        limits: &ClientLimits,
        seen: &mut SeenHead,
        in_pieces: impl FnOnce(&Head<'i>) -> bool,
        spare: impl FnOnce() -> Box<Gathering>,
    ) -> Step<'i> {
        if self.in_body() {
            return self.go_on(input, limits);
        }
        let plain = if self.scan.is_fresh() { plain::read(input, limits, seen) } else { None };
        let (head, head_bytes) = match plain {
            Some(plain) => plain,
            None => match self.any_head(input, limits) {
                Ok(found) => found,
                Err(step) => return step,
            },
        };
        let (head_part, body) = input.split_at(head_bytes);
        match head.framing {
            Framing::Length(length) if length <= body.len() as u64 && length <= limits.body_bytes_max as u64 => {
                let length = length as usize;
                Step::Request { head, body: &body[..length], consumed: head_bytes + length }
            }
            _ if in_pieces(&head) => Step::InPieces { head, head_bytes },
            Framing::Length(length) if length > limits.body_bytes_max as u64 => Step::Refused(Refusal::BodyTooLarge),
            framing => {
                // RFC 9110 section 10.1.1: no `100 Continue` is needed if the body has begun to arrive.
                let say_continue = head.expects_continue && body.is_empty();
                let mut gathering = spare();
                gathering.begin(head_part, framing);
                self.arriving = Arriving::Gathered(gathering);
                Step::More { consumed: head_bytes, say_continue }
            }
        }
    }

    /// A head that is not plain, and its length; `Err`: it is incomplete or refused.
    #[inline(never)]
    fn any_head<'i>(&mut self, input: &'i [u8], limits: &ClientLimits) -> Result<(Head<'i>, usize), Step<'i>> {
        if input.starts_with(b"\r\n") {
            return Err(self.skip_blank_lines(input));
        }
        match self.find_head(input, limits) {
            Ok(Some(head_bytes)) => {
                let head = head::parse(&input[..head_bytes], limits).map_err(Step::Refused)?;
                Ok((head, head_bytes))
            }
            Ok(None) => Err(Step::More { consumed: 0, say_continue: false }),
            Err(refusal) => Err(Step::Refused(refusal)),
        }
    }

    /// The last returned request was served or refused: the next one begins.
    #[inline]
    pub(crate) fn done(&mut self) -> Option<Box<Gathering>> {
        self.scan = HeadScan::default();
        self.blank_lines = 0;
        // The usual case: nothing is dropped.
        if !self.in_body() {
            return None;
        }
        match std::mem::take(&mut self.arriving) {
            Arriving::Gathered(gathering) => Some(gathering),
            Arriving::Nothing | Arriving::InPieces(_) => None,
        }
    }

    /// The request whose head was returned last was served: its body is taken in pieces from now on.
    pub(crate) fn begin_pieces(&mut self, pieces: Pieces) {
        self.done();
        self.arriving = Arriving::InPieces(Box::new(pieces));
    }

    /// The body that is taken in pieces.
    pub(crate) fn pieces(&mut self) -> Option<&mut Pieces> {
        match &mut self.arriving {
            Arriving::InPieces(pieces) => Some(pieces),
            Arriving::Nothing | Arriving::Gathered(_) => None,
        }
    }

    /// Ends the body that is taken in pieces, and returns it.
    pub(crate) fn end_pieces(&mut self) -> Option<Pieces> {
        match std::mem::take(&mut self.arriving) {
            Arriving::InPieces(pieces) => Some(*pieces),
            other => {
                self.arriving = other;
                None
            }
        }
    }

    /// Whether the request that is being read asks for no body of its reply. `input`: the bytes that are not consumed, with which it
    /// begins unless its head was gathered.
    pub(crate) fn is_head(&self, input: &[u8]) -> bool {
        let head = match &self.arriving {
            Arriving::Gathered(gathering) => &gathering.head,
            Arriving::Nothing | Arriving::InPieces(_) => input,
        };
        head.starts_with(b"HEAD ")
    }

    /// Whether a body in pieces is arriving.
    #[inline]
    pub(crate) fn is_in_pieces(&self) -> bool {
        matches!(self.arriving, Arriving::InPieces(_))
    }

    /// Whether a body is arriving.
    #[inline]
    pub(crate) fn in_body(&self) -> bool {
        !matches!(self.arriving, Arriving::Nothing)
    }

    /// Bytes of the body that have arrived, without chunk sizes.
    pub(crate) fn body_bytes(&self) -> usize {
        match &self.arriving {
            Arriving::Nothing => 0,
            Arriving::Gathered(gathering) => gathering.body.len(),
            Arriving::InPieces(pieces) => pieces.taken(),
        }
    }

    /// Bytes of memory held for an arriving body.
    pub(crate) fn gathered_bytes(&self) -> usize {
        match &self.arriving {
            Arriving::Nothing => 0,
            Arriving::Gathered(gathering) => gathering.bytes(),
            Arriving::InPieces(pieces) => pieces.held_bytes(),
        }
    }

    fn skip_blank_lines<'i>(&mut self, input: &[u8]) -> Step<'i> {
        let lines = input.chunks_exact(2).take_while(|pair| pair == b"\r\n").count();
        self.blank_lines = self.blank_lines.saturating_add(lines.min(usize::from(u8::MAX)) as u8);
        if self.blank_lines > BLANK_LINES_MAX {
            return Step::Refused(Refusal::BlankLines);
        }
        // The scan may have stopped at the CR of the first line.
        self.scan = HeadScan::default();
        Step::More { consumed: lines * 2, say_continue: false }
    }

    fn find_head(&mut self, input: &[u8], limits: &ClientLimits) -> Result<Option<usize>, Refusal> {
        match self.scan.scan(input)? {
            Some(head_bytes) if head_bytes <= limits.head_bytes_max => Ok(Some(head_bytes)),
            None if input.len() < limits.head_bytes_max && !self.target_is_too_long(input, limits) => Ok(None),
            _ if self.target_is_too_long(input, limits) => Err(Refusal::TargetTooLong),
            _ => Err(Refusal::HeadTooLarge),
        }
    }

    fn target_is_too_long(&self, input: &[u8], limits: &ClientLimits) -> bool {
        let line_bytes = self.scan.first_line_bytes().unwrap_or(input.len());
        line_bytes > limits.target_bytes_max + LINE_BESIDES_TARGET
    }

    /// Continues a body.
    fn go_on<'i>(&'i mut self, input: &[u8], limits: &ClientLimits) -> Step<'i> {
        let gathering = match &mut self.arriving {
            Arriving::Nothing => return Step::More { consumed: 0, say_continue: false },
            Arriving::InPieces(pieces) => {
                return match pieces.offer(input) {
                    Ok((consumed, offered)) => Step::Offered { consumed, offered },
                    Err(refusal) => Step::Refused(refusal),
                };
            }
            Arriving::Gathered(gathering) => gathering,
        };
        match gathering.take(input, limits) {
            Err(refusal) => Step::Refused(refusal),
            Ok(0) if gathering.is_whole() => match head::parse(&gathering.head, limits) {
                Ok(head) => Step::Request { head, body: &gathering.body, consumed: 0 },
                Err(refusal) => Step::Refused(refusal),
            },
            Ok(consumed) => Step::More { consumed, say_continue: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limits() -> ClientLimits {
        ClientLimits { head_bytes_max: 256, target_bytes_max: 64, body_bytes_max: 1000, ..ClientLimits::default() }
    }

    /// Feeds a stream in reads of the given sizes, repeated, and lists the results.
    fn read_all(stream: &[u8], reads: &[usize]) -> Vec<String> {
        let (mut reader, mut seen) = (RequestReader::default(), Vec::new());
        let (mut start, mut end) = (0, 0);
        let mut reads = reads.iter().cycle();
        loop {
            match reader.next(&stream[start..end], &limits(), &mut SeenHead::default(), |_| false, Box::default) {
                Step::Request { head, body, consumed } => {
                    let body = String::from_utf8_lossy(body).into_owned();
                    seen.push(format!("{} {} [{body}]", head.method.name(), head.path));
                    start += consumed;
                    reader.done();
                }
                Step::Refused(refusal) => {
                    seen.push(format!("{refusal:?}"));
                    return seen;
                }
                Step::InPieces { .. } | Step::Offered { .. } => panic!("nobody takes pieces"),
                Step::More { consumed: 0, .. } if end == stream.len() => return seen,
                Step::More { consumed: 0, .. } => end = (end + reads.next().unwrap()).min(stream.len()),
                Step::More { consumed, say_continue } => {
                    start += consumed;
                    if say_continue {
                        seen.push("continue".to_owned());
                    }
                }
            }
        }
    }

    #[track_caller]
    fn check(stream: &str, expected: &[&str]) {
        for size in [1, 2, 7, 100_000] {
            let seen = read_all(stream.as_bytes(), &[size]);
            let seen: Vec<&str> = seen.iter().map(String::as_str).filter(|line| *line != "continue").collect();
            assert_eq!(seen, expected, "in reads of {size}");
        }
    }

    const GET: &str = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    const POST: &str = "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &str =
        "PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n";

    #[test]
    fn requests_come_out_one_after_the_other() {
        check(&format!("{GET}{POST}{CHUNKED}{GET}"), &["GET /a []", "POST /b [hello]", "PUT /c [hello!]", "GET /a []"]);
        check("", &[]);
    }

    #[test]
    fn few_empty_lines_are_skipped_and_many_are_refused() {
        check(&format!("\r\n{GET}\r\n\r\n{GET}\r\n"), &["GET /a []", "GET /a []"]);
        check(&format!("{}{GET}", "\r\n".repeat(8)), &["GET /a []"]);
        check(&format!("{}{GET}", "\r\n".repeat(9)), &["BlankLines"]);
        check(&format!("\n{GET}"), &["BareLineFeed"]);
    }

    #[test]
    fn heads_and_targets_over_the_limit_are_refused_before_they_end() {
        check(&format!("GET /{}", "a".repeat(120)), &["TargetTooLong"]);
        check(&format!("GET /a HTTP/1.1\r\nA: {}", "a".repeat(250)), &["HeadTooLarge"]);
        check(&format!("GET /a HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "a".repeat(250)), &["HeadTooLarge"]);
    }

    #[test]
    fn a_target_at_the_limit_is_taken_however_slowly_its_head_comes() {
        // Not plain, so that the scan resumes at each read.
        let path = format!("/{}", "a".repeat(63));
        check(&format!("GET {path} HTTP/1.0\r\nA: b\r\n\r\n"), &[&format!("GET {path} []")]);
        check(&format!("GET {path}a HTTP/1.0\r\nA: b\r\n\r\n"), &["TargetTooLong"]);
    }

    #[test]
    fn bodies_over_the_limit_are_refused_at_their_head() {
        check("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", &["BodyTooLarge"]);
        let chunk = format!("258\r\n{}\r\n", "a".repeat(600));
        check(
            &format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}"),
            &["BodyTooLarge"],
        );
    }

    #[test]
    fn the_client_is_told_to_continue_once_and_only_while_its_body_has_not_begun() {
        let head = "POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
        let whole = format!("{head}hello");
        assert_eq!(read_all(whole.as_bytes(), &[head.len(), 1]), ["continue", "POST /b [hello]"]);
        assert_eq!(read_all(whole.as_bytes(), &[head.len() + 1]), ["POST /b [hello]"]);
    }

    #[test]
    fn a_request_is_handed_out_again_until_it_is_done() {
        for stream in [GET, POST, CHUNKED] {
            let (mut reader, mut start) = (RequestReader::default(), 0);
            let mut seen = 0;
            while seen < 3 {
                match reader.next(
                    &stream.as_bytes()[start..],
                    &limits(),
                    &mut SeenHead::default(),
                    |_| false,
                    Box::default,
                ) {
                    Step::Request { .. } => seen += 1,
                    Step::More { consumed, .. } => start += consumed,
                    Step::Refused(refusal) => panic!("{refusal:?}"),
                    Step::InPieces { .. } | Step::Offered { .. } => panic!("nobody takes pieces"),
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_cut_into_reads_gives_the_same_requests(
            parts in proptest::collection::vec(
                prop_oneof![Just(GET), Just(POST), Just(CHUNKED), Just("\r\n"), Just("GET"), Just("\n"), Just(" ")], 0..8),
            reads in proptest::collection::vec(1usize..60, 1..9),
        ) {
            let stream = parts.concat();
            let drop_continue = |seen: Vec<String>| seen.into_iter().filter(|line| line != "continue").collect::<Vec<_>>();
            prop_assert_eq!(
                drop_continue(read_all(stream.as_bytes(), &reads)),
                drop_continue(read_all(stream.as_bytes(), &[usize::MAX >> 1]))
            );
        }
    }
}
