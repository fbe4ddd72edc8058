//! Streams: framing, back-pressure, and what happens when they break.

use std::sync::mpsc::{Receiver, TryRecvError, channel};

use crate::harness::TestServer;
use http::{BodySource, HttpSettings, More, Status};

const MANY: usize = 16 << 20;

#[test]
fn a_stream_without_a_length_is_chunked_and_one_with_a_length_is_not() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /stream/100000 HTTP/1.1\r\nHost: h\r\n\r\nGET /stream-length/7 HTTP/1.1\r\nHost: h\r\n\r\n");
    let chunked = client.answer();
    assert!(chunked.head.contains("Transfer-Encoding: chunked") && !chunked.head.contains("Content-Length"));
    assert_eq!(chunked.body.len(), 100_000);
    let plain = client.answer();
    assert!(plain.head.contains("Content-Length: 7") && !plain.head.contains("Transfer-Encoding"));
    assert_eq!(plain.body, "xxxxxxx");
    client.probe("/after");
}

#[test]
fn a_stream_to_http_1_0_ends_with_the_connection() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /stream/200000 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    let answer = client.answer();
    assert!(answer.head.contains("Connection: close") && !answer.head.contains("Transfer-Encoding"));
    assert_eq!(answer.body.len(), 200_000);
}

#[test]
fn empty_streams_end_at_once() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /stream/0 HTTP/1.1\r\nHost: h\r\n\r\nGET /stream-length/0 HTTP/1.1\r\nHost: h\r\n\r\n");
    client.expect(200, "");
    client.expect(200, "");
    client.probe("/after");
}

#[test]
fn a_slow_client_holds_a_stream_back_and_gets_all_of_it() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(
        format!("GET /stream/{MANY} HTTP/1.1\r\nHost: h\r\n\r\nGET /after HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(),
    );
    assert!(client.read_more());
    let pieces = (MANY >> 16) as u64;
    // The client does not read: the source is pulled until socket buffers and write queue are full, and then no more.
    let mut pulls = 0;
    while server.pulls() != pulls {
        pulls = server.pulls();
        for _ in 0..20 {
            server.connect().probe("/meanwhile");
        }
    }
    assert!(pulls < pieces, "all {pieces} pieces were pulled for a client that does not read");
    assert_eq!(client.answer().body.len(), MANY);
    client.expect(200, "GET /after []");
}

#[test]
fn a_large_reply_at_once_is_sent_whole_and_holds_the_next_request_back() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let large = "GET /large/8000000 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(3);
    client.send(large.as_bytes());
    client.send(b"GET /after HTTP/1.1\r\nHost: h\r\n\r\n");
    for _ in 0..3 {
        assert_eq!(client.answer().body.len(), 8_000_000);
    }
    client.expect(200, "GET /after []");
}

#[test]
fn a_broken_stream_cuts_the_connection_without_a_last_chunk() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"GET /broken HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut bytes = Vec::new();
    let end = std::io::Read::read_to_end(&mut client.socket, &mut bytes);
    // The close may be seen as an end or as a reset, never as a timeout.
    assert!(!end.is_err_and(|error| error.kind() != std::io::ErrorKind::ConnectionReset), "the connection was not cut");
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "the body looks complete");
    server.connect().probe("/others-live");
}

/// Sends what it receives from a channel, and waits meanwhile; ends when the sender is dropped.
struct Fed(Receiver<&'static str>);

impl BodySource for Fed {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        match self.0.try_recv() {
            Ok(piece) => {
                out.extend_from_slice(piece.as_bytes());
                More::Yes
            }
            Err(TryRecvError::Empty) => More::Wait,
            Err(TryRecvError::Disconnected) => More::No,
        }
    }
}

#[test]
fn a_stream_that_has_nothing_waits_until_it_is_nudged_and_delays_nobody() {
    let server = TestServer::start(HttpSettings::default());
    for version in ["1.1", "1.0"] {
        let mut client = server.connect();
        client.send(format!("GET /late-read HTTP/{version}\r\nHost: h\r\n\r\n").as_bytes());
        let late = server.shelf.take("/late-read");
        let nudge = late.nudge();
        // Before the stream exists it has no effect.
        nudge.send();
        let (pieces, fed) = channel();
        late.stream_open(Status(200), "text/plain", Box::new(Fed(fed)));
        for piece in ["one ", "two ", "three"] {
            // The stream waits: others are served, and new data is sent at once.
            server.connect().probe("/meanwhile");
            pieces.send(piece).unwrap();
            nudge.send();
            client.read_until(piece);
        }
        drop(pieces);
        nudge.send();
        let answer = client.answer();
        assert_eq!(answer.body, "one two three");
        assert_eq!(answer.head.contains("Transfer-Encoding: chunked"), version == "1.1");
        if version == "1.1" {
            client.probe("/after");
        }
    }
}

#[test]
fn a_late_stream_to_http_1_0_has_nothing_behind_it_whatever_was_asked_meanwhile() {
    let server = TestServer::start(HttpSettings::default());
    for (method, path) in [("GET", "/late-read"), ("POST", "/late")] {
        let mut client = server.connect();
        let keep = "HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
        client.send(format!("{method} {path} {keep}GET /after {keep}POST /late?after {keep}").as_bytes());
        let late = server.shelf.take(path);
        // Others are served meanwhile, and the requests behind it on its connection have been read.
        server.connect().probe("/meanwhile");
        let (pieces, fed) = channel();
        pieces.send("all").unwrap();
        drop(pieces);
        late.stream_open(Status(200), "text/plain", Box::new(Fed(fed)));
        let answer = client.answer();
        assert!(answer.head.contains("Connection: close"), "{}", answer.head);
        assert_eq!(answer.body, "all");
        client.expect_end();
        assert!(!server.shelf.has("/late?after"), "it was begun, and never answered");
    }
    // A reply of known length continues.
    let mut client = server.connect();
    client.send(b"GET /late-read HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /after HTTP/1.0\r\n\r\n");
    server.shelf.answer("/late-read");
    client.expect(200, "/late-read");
    client.expect(200, "GET /after []");
}
