//! Replies of HTTP/1.1 on the client's side: their boundaries, their status, and whether the connection may be reused.
//!
//! A [`ReplyReader`] is given the received bytes that are not consumed yet, whenever more arrive, and returns how many it
//! consumes. It keeps no bytes and allocates nothing. A head is read in one pass once its end has arrived; only the three fields
//! that decide the framing are evaluated, the others are skipped (RFC 9112, 6.3):
//!
//! ```text
//!  1xx (but 101)               an interim reply: skipped, the final one follows
//!  HEAD, 204, 304              no body, whatever the fields say
//!  Transfer-Encoding: chunked  chunks (`chunks`)
//!  Content-Length: N           N bytes
//!  neither                     all bytes until the connection ends
//! ```
//!
//! A server under test is not trusted: heads, interim replies, lines of chunks and trailers are bounded, and invalid HTTP is a
//! [`Fault`], never a panic. Line ends may be a bare LF.

mod chunks;
mod head;

use chunks::Chunks;
use head::{Framing, Head};

pub use head::HEAD_BYTES_MAX;

/// Largest number of interim replies before a final one.
const INTERIM_MAX: u32 = 16;

/// Why bytes are not an HTTP reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The first line is not a status line of HTTP/1.
    StatusLine,
    /// A field that decides the framing has an invalid value, or two values.
    Field,
    /// No blank line within [`HEAD_BYTES_MAX`].
    HeadTooLong,
    /// Too many interim replies.
    TooManyInterim,
    /// An invalid chunk size, chunk end, or trailer.
    Chunk,
}

/// A complete reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedReply {
    /// 101, or 200 to 999.
    pub status: u16,
    /// Whether the server accepts another request on this connection.
    pub is_reusable: bool,
}

/// Receiver of a body's bytes.
pub trait BodyReceiver {
    /// A piece of the body.
    fn push(&mut self, bytes: &[u8]);

    /// The head of the reply, or of an interim one, before its body.
    #[inline]
    fn head(&mut self, _bytes: &[u8]) {}
}

/// Discards the body.
impl BodyReceiver for () {
    #[inline]
    fn push(&mut self, _bytes: &[u8]) {}
}

impl BodyReceiver for Vec<u8> {
    fn push(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[derive(Debug)]
enum State {
    Head,
    Length { left: u64 },
    Chunks(Chunks),
    UntilEnd,
}

/// Reads the replies of one connection, one after another.
#[derive(Debug)]
pub struct ReplyReader {
    state: State,
    interim: u32,
    /// The reply whose body is being read.
    reply: ReceivedReply,
}

impl Default for ReplyReader {
    fn default() -> Self {
        Self { state: State::Head, interim: 0, reply: ReceivedReply { status: 0, is_reusable: false } }
    }
}

impl ReplyReader {
    /// Reads on. Returns the number of consumed bytes of `input`, and the reply if it is complete. Bytes after a complete reply
    /// are left. The caller passes unconsumed bytes again, with more after them. `is_head`: the reply answers a HEAD.
    #[inline]
    pub fn read(
        &mut self,
        input: &[u8],
        is_head: bool,
        body: &mut impl BodyReceiver,
    ) -> Result<(usize, Option<ReceivedReply>), Fault> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            match &mut self.state {
                State::Head => {
                    let Some(head) = head::read(rest)? else { return Ok((used, None)) };
                    body.head(&rest[..head.bytes]);
                    used += head.bytes;
                    self.begin(&head, is_head)?;
                }
                State::Length { left } => {
                    let taken = (*left).min(rest.len() as u64) as usize;
                    body.push(&rest[..taken]);
                    *left -= taken as u64;
                    let is_whole = *left == 0;
                    return Ok((used + taken, is_whole.then(|| self.end())));
                }
                State::Chunks(chunks) => {
                    let (taken, is_whole) = chunks.read(rest, body)?;
                    return Ok((used + taken, is_whole.then(|| self.end())));
                }
                State::UntilEnd => {
                    body.push(rest);
                    return Ok((input.len(), None));
                }
            }
        }
    }

    /// The peer has ended its direction, and all its bytes were read. Returns the reply whose body ends thereby, if there is one.
    pub fn input_ended(&mut self) -> Option<ReceivedReply> {
        matches!(self.state, State::UntilEnd).then(|| self.end())
    }

    /// Whether no byte of a reply has been read.
    pub fn is_between_replies(&self) -> bool {
        matches!(self.state, State::Head) && self.interim == 0
    }

    #[inline]
    fn begin(&mut self, head: &Head, is_head: bool) -> Result<(), Fault> {
        if (100..200).contains(&head.status) && head.status != 101 {
            self.interim += 1;
            return if self.interim > INTERIM_MAX { Err(Fault::TooManyInterim) } else { Ok(()) };
        }
        let no_body = is_head || matches!(head.status, 101 | 204 | 304);
        let framing = if no_body { Framing::Length(0) } else { head.framing };
        let ends_with_connection = framing == Framing::UntilEnd || head.status == 101;
        self.reply = ReceivedReply { status: head.status, is_reusable: head.keeps_alive && !ends_with_connection };
        self.state = match framing {
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::Chunks(Chunks::default()),
            Framing::UntilEnd => State::UntilEnd,
        };
        Ok(())
    }

    #[inline]
    fn end(&mut self) -> ReceivedReply {
        self.state = State::Head;
        self.interim = 0;
        self.reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All replies of a stream that ends, with their bodies.
    fn replies(stream: &[u8], is_head: bool) -> Result<Vec<(u16, bool, String)>, Fault> {
        let (mut reader, mut body, mut found, mut at) = (ReplyReader::default(), Vec::new(), Vec::new(), 0);
        loop {
            let (used, reply) = reader.read(&stream[at..], is_head, &mut body)?;
            at += used;
            let Some(reply) = reply.or_else(|| (at == stream.len()).then(|| reader.input_ended()).flatten()) else {
                return Ok(found);
            };
            let text = String::from_utf8_lossy(&std::mem::take(&mut body)).into_owned();
            found.push((reply.status, reply.is_reusable, text));
        }
    }

    #[track_caller]
    fn check(stream: &str, expected: &[(u16, bool, &str)]) {
        let found = replies(stream.as_bytes(), false).unwrap();
        let found: Vec<(u16, bool, &str)> = found.iter().map(|(s, r, body)| (*s, *r, body.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[track_caller]
    fn check_fault(stream: &str, fault: Fault) {
        assert_eq!(replies(stream.as_bytes(), false), Err(fault), "{stream:?}");
    }

    #[test]
    fn a_body_has_the_length_that_its_head_says() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", &[(200, true, "hi")]);
        check("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &[(200, true, "")]);
        check("HTTP/1.1 200\r\ncontent-length:2 \r\n\r\nhi", &[(200, true, "hi")]);
        check("HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", &[(200, true, "hi")]);
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", &[(200, true, "hello")]);
    }

    #[test]
    fn chunks_are_joined() {
        let stream =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n";
        check(stream, &[(200, true, "abc0123456789")]);
        check("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, Chunked\r\n\r\n0\r\n\r\n", &[(200, true, "")]);
    }

    #[test]
    fn without_a_length_the_body_ends_with_the_connection() {
        check("HTTP/1.1 200 OK\r\n\r\nall of it", &[(200, false, "all of it")]);
        check("HTTP/1.0 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx", &[(200, false, "x")]);
    }

    #[test]
    fn some_replies_have_no_body_whatever_they_say() {
        check(
            "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n",
            &[(204, true, ""), (304, true, "")],
        );
        let head = replies(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 404 No\r\n\r\n", true).unwrap();
        assert_eq!(head.iter().map(|(status, ..)| *status).collect::<Vec<_>>(), [200, 404]);
    }

    #[test]
    fn interim_replies_are_skipped_up_to_a_bound() {
        let interim = "HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n";
        let last = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx";
        check(&format!("HTTP/1.1 100 Continue\r\n\r\n{interim}{last}"), &[(200, true, "x")]);
        check(&format!("{}{last}", interim.repeat(16)), &[(200, true, "x")]);
        check_fault(&interim.repeat(17), Fault::TooManyInterim);
    }

    #[test]
    fn a_connection_is_reusable_as_version_and_field_say() {
        check("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", &[(200, false, "")]);
        check("HTTP/1.1 200 OK\r\nConnection: x, CLOSE\r\nContent-Length: 0\r\n\r\n", &[(200, false, "")]);
        check("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", &[(200, false, "")]);
        check("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", &[(200, true, "")]);
        check("HTTP/1.1 101 Switching\r\n\r\n", &[(101, false, "")]);
    }

    #[test]
    fn pipelined_replies_are_found_one_after_another() {
        let one = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        check(&one.repeat(3), &[(200, true, "hi"), (200, true, "hi"), (200, true, "hi")]);
    }

    #[test]
    fn a_part_of_a_reply_is_none() {
        let stream = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        for end in 0..stream.len() {
            check(&stream[..end], &[]);
        }
    }

    #[test]
    fn what_is_no_reply_is_a_fault() {
        for first in [
            "hello",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 000 No\r\n\r\n",
            "\r\n\r\n",
        ] {
            check_fault(first, Fault::StatusLine);
        }
        for field in [
            "Content-Length: -1",
            "Content-Length: x",
            "Content-Length:",
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 99999999999999999999",
            " folded: 1",
        ] {
            check_fault(&format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n"), Fault::Field);
        }
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for chunk in ["x\r\n", "\r\n", "fffffffffffffffff\r\n", "1\r\nabc", "-1\r\n", "1 x\r\na\r\n"] {
            check_fault(&format!("{chunked}{chunk}"), Fault::Chunk);
        }
        check_fault(&format!("{chunked}1{}", ";".repeat(70_000)), Fault::Chunk);
        check_fault(&format!("{chunked}0\r\n{}", "a: b\r\n".repeat(20_000)), Fault::Chunk);
        check_fault(&format!("HTTP/1.1 200 OK\r\nA: {}", "x".repeat(HEAD_BYTES_MAX)), Fault::HeadTooLong);
    }
}
