//! Entry points for fuzzing: the parsers behind a connection, as functions of bytes. Not part of the API.

use crate::limits::ClientLimits;
use crate::parsing::chunked::Chunked;
use crate::parsing::plain;
use crate::parsing::reader::{RequestReader, Step};

/// Result of parsing a connection's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseResult {
    /// A complete request.
    Request {
        /// Method's name.
        method: &'static str,
        /// Path as sent.
        path: String,
        /// Query as sent.
        query: String,
        /// Decoded body.
        body: Vec<u8>,
        /// Whether another request may follow.
        persistent: bool,
    },
    /// The client was sent `100 Continue`.
    Continue,
    /// Refused with this status; nothing follows.
    Refused(u16),
}

/// Parses a connection's bytes in reads of the given sizes, repeated. Ends at the end of the bytes, or at a refusal.
///
/// Each size is at least 1.
pub fn read_requests(stream: &[u8], reads: &[usize], limits: &ClientLimits) -> Vec<ParseResult> {
    let (mut reader, mut seen, mut plain) = (RequestReader::default(), Vec::new(), plain::SeenHead::default());
    let (mut start, mut end) = (0, 0);
    let mut reads = reads.iter().cycle();
    loop {
        match reader.next(&stream[start..end], limits, &mut plain, |_| false, Box::default) {
            Step::Request { head, body, consumed } => {
                let (path, query) = (head.path.to_owned(), head.query.to_owned());
                let (method, persistent) = (head.method.name(), head.persistent);
                seen.push(ParseResult::Request { method, path, query, body: body.to_vec(), persistent });
                start += consumed;
                reader.done();
            }
            Step::Refused(refusal) => {
                seen.push(ParseResult::Refused(refusal.status_and_detail().0.0));
                return seen;
            }
            // No service takes pieces here.
            Step::InPieces { .. } | Step::Offered { .. } => return seen,
            Step::More { consumed: 0, .. } if end == stream.len() => return seen,
            Step::More { consumed: 0, .. } => {
                end = end.saturating_add(reads.next().copied().unwrap_or(stream.len()).max(1)).min(stream.len());
            }
            Step::More { consumed, say_continue } => {
                start += consumed;
                if say_continue {
                    seen.push(ParseResult::Continue);
                }
            }
        }
    }
}

/// Decodes a chunked body in pieces of one size. Returns the body and the number of bytes used, `None` if it is incomplete, or
/// the status of the refusal.
pub fn decode_chunks(input: &[u8], piece: usize, body_bytes_max: usize) -> Result<Option<(Vec<u8>, usize)>, u16> {
    let (mut chunked, mut body, mut used) = (Chunked::new(), Vec::new(), 0);
    for part in input.chunks(piece.max(1)) {
        let taken = chunked.decode(part, &mut body, body_bytes_max);
        used += taken.map_err(|refusal| refusal.status_and_detail().0.0)?;
    }
    Ok(chunked.is_done().then_some((body, used)))
}
