//! Properties that hold for any bytes from a server; used by the tests here and by a target of `fuzz/`.

#![allow(dead_code, clippy::unwrap_used)] // Each driver takes its part; a failed step is a failed test.

use loadtest::reply::{Fault, ReplyReader};

/// Result of reading a stream: replies with their bodies, and perhaps a fault.
type Seen = (Vec<(u16, bool, Vec<u8>)>, Option<Fault>);

/// Reads a connection's bytes in pieces of these lengths, in rotation, and then its end.
fn read(stream: &[u8], pieces: &[usize], heads: u8) -> Seen {
    let (mut reader, mut body, mut seen) = (ReplyReader::default(), Vec::new(), Vec::new());
    let (mut consumed, mut received, mut turn) = (0, 0, 0);
    loop {
        let is_head = heads >> (seen.len() % 8) & 1 == 1;
        match reader.read(&stream[consumed..received], is_head, &mut body) {
            Err(fault) => return (seen, Some(fault)),
            Ok((used, reply)) => {
                consumed += used;
                assert!(consumed <= received);
                let ended = received == stream.len() && reply.is_none();
                if let Some(reply) = reply.or_else(|| ended.then(|| reader.input_ended()).flatten()) {
                    seen.push((reply.status, reply.is_reusable, std::mem::take(&mut body)));
                    continue;
                }
            }
        }
        if received == stream.len() {
            return (seen, None);
        }
        received = (received + pieces[turn % pieces.len()].max(1)).min(stream.len());
        turn += 1;
    }
}

/// The replies are the same however the bytes are cut, and a body never has more bytes than were received. If more bytes are
/// available at once, a fault may be found earlier, so only the replies before it are compared.
pub(crate) fn check_replies(stream: &[u8], pieces: &[usize], heads: u8) {
    let (whole, fault) = read(stream, &[usize::MAX], heads);
    let (cut, cut_fault) = read(stream, pieces, heads);
    assert_eq!(cut, whole, "in pieces of {pieces:?}");
    assert_eq!(cut_fault.is_some(), fault.is_some(), "in pieces of {pieces:?}");
    assert!(whole.iter().map(|(.., body)| body.len()).sum::<usize>() <= stream.len());
}
