//! Mutated replies, in pieces and whole: the result is the same.

use crate::fuzz_check::check_replies;
use crate::mutation::{apply, edits};
use proptest::prelude::*;

const REPLIES: [&[u8]; 6] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n1\r\n!\r\n0\r\nA: b\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 404 No\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 304 No\r\nContent-Length: 7\r\n\r\n",
];

const WORDS: [&[u8]; 18] = [
    b"\r\n",
    b"\n",
    b"\r\n\r\n",
    b" ",
    b":",
    b"0",
    b"f",
    b";",
    b",",
    b"\0",
    b"HTTP/1.1 200 OK\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b" folded\r\n",
];

proptest! {
    #[test]
    fn replies_are_the_same_however_they_are_cut(
        which in proptest::collection::vec(0..REPLIES.len(), 1..4),
        edits in edits(4),
        pieces in proptest::collection::vec(1..20_usize, 1..4),
        heads in any::<u8>(),
    ) {
        let stream: Vec<u8> = which.iter().flat_map(|index| REPLIES[*index]).copied().collect();
        check_replies(&stream, &pieces, 0);
        check_replies(&apply(&stream, &edits, &WORDS), &pieces, heads & 1);
    }
}
