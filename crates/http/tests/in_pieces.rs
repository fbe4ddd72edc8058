//! Bodies that their service takes in pieces: of any length, at its pace, with a defined result however they end.

use std::io::Write;
use std::time::Duration;

use crate::harness::{Body, Client, TestServer};
use http::{ClientLimits, Deadlines, HttpSettings, Status};

const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(60);
/// Limit of a gathered body.
const BODY_MAX: usize = 1_000;
const KEY: &str = "/in-pieces";

fn server_with(change: impl FnOnce(&mut Deadlines)) -> TestServer {
    let mut deadlines = Deadlines { head: LONG, body: LONG, idle: LONG, ..Deadlines::default() };
    change(&mut deadlines);
    let limits = ClientLimits { body_bytes_max: BODY_MAX, ..ClientLimits::default() };
    TestServer::start(HttpSettings { deadlines, limits, ..HttpSettings::default() })
}

fn server() -> TestServer {
    server_with(|_| {})
}

fn post(server: &TestServer, rest: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("POST {rest}").as_bytes());
    client
}

const CHUNKED: &str = "/in-pieces HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

#[test]
fn pieces_are_taken_as_they_come_and_what_is_behind_the_body_waits_for_its_reply() {
    let server = server();
    let head = "/in-pieces HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n";
    for (head, first, second) in
        [(head, "hello ", "world"), (CHUNKED, "3\r\nhel\r\n3\r\nlo ", "\r\n5\r\nworld\r\n0\r\n\r\n")]
    {
        let mut client = post(&server, head);
        client.send(first.as_bytes());
        server.bodies.wait(KEY, |body| body.text == "hello ");
        client.send(format!("{second}GET /after HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        let body = server.bodies.wait(KEY, |body| body.end.is_some());
        assert_eq!((body.text.as_str(), body.end), ("hello world", Some(Ok(()))));
        server.shelf.answer(KEY);
        client.expect(200, KEY);
        client.expect(200, "GET /after []");
        client.probe("/goes-on");
    }
}

#[test]
fn a_body_may_be_larger_than_any_that_is_gathered() {
    let server = server();
    let mut client = post(&server, "/in-pieces HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n");
    client.send(&vec![b'x'; 3_000_000]);
    assert_eq!(server.bodies.wait(KEY, |body| body.end.is_some()).text.len(), 3_000_000);
    server.shelf.answer(KEY);
    client.expect(200, KEY);
    // A body that came whole with its head is no larger than the limit.
    client.send(b"POST /in-pieces HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nwhole");
    client.expect(200, "POST /in-pieces [whole]");
}

#[test]
fn a_service_without_room_holds_its_client_back_and_does_not_count_the_time_against_it() {
    let server = server_with(|deadlines| deadlines.body = SHORT);
    let key = "/in-pieces?100";
    let mut client = post(&server, "/in-pieces?100 HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\n\r\n");
    client.socket.set_write_timeout(Some(SHORT * 3)).unwrap();
    let piece = vec![b'x'; 1 << 20];
    let mut sent = 0;
    // Untaken bytes fill the buffers of both kernels; then no more is sent.
    while let Ok(bytes) = client.socket.write(&piece) {
        sent += bytes;
        assert!(sent < 50_000_000, "all of it was read");
    }
    assert_eq!(server.bodies.wait(key, |_| true).text.len(), 100);
    assert!(server.held_bytes() < 1 << 20, "{} bytes are held", server.held_bytes());
    server.bodies.change(key, |body| body.room = usize::MAX);
    let late = server.shelf.take(key);
    late.nudge().send();
    client.socket.set_write_timeout(Some(LONG)).unwrap();
    while sent < 50_000_000 {
        sent += client.socket.write(&piece[..piece.len().min(50_000_000 - sent)]).unwrap();
    }
    assert_eq!(server.bodies.wait(key, |body| body.end.is_some()).end, Some(Ok(())));
    late.send(Status(200), "text/plain", b"all".to_vec());
    client.expect(200, "all");
}

/// The end reported to a body's sink; the reply is sent by its service, and it is the last one.
#[track_caller]
fn check_fault(server: &TestServer, mut client: Client, text: &str, status: u16) {
    let body = server.bodies.wait(KEY, |body| body.end.is_some());
    let fault = body.end.expect("an end").expect_err("a fault");
    assert_eq!((body.text.as_str(), fault.status.0), (text, status), "{fault:?}");
    server.shelf.take(KEY).send(fault.status, "text/plain", b"so far".to_vec());
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.as_str()), (status, "so far"));
    assert!(answer.head.contains("Connection: close"), "{}", answer.head);
    client.expect_end();
    server.bodies.change(KEY, |body| *body = Body::default());
}

#[test]
fn a_malformed_chunk_a_client_that_ends_and_one_that_sends_no_more_are_told_to_the_service() {
    let server = server_with(|deadlines| deadlines.body = SHORT);
    check_fault(&server, post(&server, &format!("{CHUNKED}5\r\nhello\r\nxyz\r\n")), "hello", 400);
    let mut half = post(&server, &format!("{CHUNKED}5\r\nhel"));
    half.end();
    check_fault(&server, half, "hel", 400);
    check_fault(&server, post(&server, &format!("{CHUNKED}5\r\nhel")), "hel", 408);
}

#[test]
fn a_client_that_is_gone_ends_its_body() {
    let server = server();
    let client = post(&server, &format!("{CHUNKED}5\r\nhel"));
    server.bodies.wait(KEY, |body| body.text == "hel");
    drop(client);
    server.bodies.wait(KEY, |body| body.is_dropped);
}

#[test]
fn a_reply_before_the_end_of_the_body_is_the_last() {
    let server = server();
    let mut client = post(&server, &format!("{CHUNKED}5\r\nhel"));
    server.bodies.wait(KEY, |body| body.text == "hel");
    server.shelf.answer(KEY);
    let answer = client.answer();
    assert!(answer.status == 200 && answer.head.contains("Connection: close"), "{}", answer.head);
    let body = server.bodies.wait(KEY, |body| body.is_dropped);
    assert_eq!(body.end, None);
    client.send(b"lo\r\n0\r\n\r\nGET /after HTTP/1.1\r\nHost: h\r\n\r\n");
    client.expect_end();
}

#[test]
fn behind_a_request_that_is_answered_by_its_head_a_small_body_is_dropped_and_any_other_ends_the_connection() {
    let server = server();
    let mut client = post(&server, "/in-pieces-refused HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\n\r\n");
    client.expect(409, "no");
    client.send(b"GET /a HTTP");
    client.probe("/goes-on");
    for rest in [
        "Transfer-Encoding: chunked\r\n\r\n",
        "Content-Length: 1001\r\n\r\n",
        "Content-Length: 11\r\nExpect: 100-continue\r\n\r\n",
    ] {
        let mut client = post(&server, &format!("/in-pieces-refused HTTP/1.1\r\nHost: h\r\n{rest}"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.as_str()), (409, "no"), "{rest}");
        assert!(answer.head.contains("Connection: close"), "{rest}: {}", answer.head);
        client.expect_end();
    }
}

#[test]
fn a_client_that_waits_for_a_word_gets_it_when_its_body_is_taken() {
    let server = server();
    for version in ["1.1", "1.1\r\nConnection: close"] {
        let mut client = post(
            &server,
            &format!("/in-pieces HTTP/{version}\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"),
        );
        client.read_until("HTTP/1.1 100 Continue\r\n\r\n");
        client.send(b"hello");
        server.bodies.wait(KEY, |body| body.end.is_some());
        server.shelf.answer(KEY);
        assert_eq!(client.answer().status, 100);
        client.expect(200, KEY);
    }
}

#[test]
fn an_http_1_0_client_sends_its_body_by_its_length() {
    let server = server();
    let mut client = post(&server, "/in-pieces HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhel");
    server.bodies.wait(KEY, |body| body.text == "hel");
    client.send(b"loGET /after HTTP/1.0\r\n\r\n");
    server.bodies.wait(KEY, |body| body.end == Some(Ok(())));
    server.shelf.answer(KEY);
    client.expect(200, KEY);
    client.expect(200, "GET /after []");
    client.expect_end();
}

#[test]
fn a_server_that_stops_gives_a_body_a_moment_and_tells_the_service() {
    for ends in [true, false] {
        let server = server_with(|deadlines| deadlines.drain_grace = if ends { LONG } else { SHORT });
        let mut client = post(&server, &format!("{CHUNKED}5\r\nhel"));
        server.bodies.wait(KEY, |body| body.text == "hel");
        server.begin_drain();
        if ends {
            client.send(b"lo\r\n0\r\n\r\n");
            assert_eq!(server.bodies.wait(KEY, |body| body.end.is_some()).end, Some(Ok(())));
            server.shelf.answer(KEY);
            client.expect(200, KEY);
            client.expect_end();
        } else {
            check_fault(&server, client, "hel", 503);
        }
        server.join();
    }
}

#[test]
fn what_a_body_holds_counts_as_bodies_that_arrive() {
    let loops =
        reactor::ReactorSettings { loops: 1, arriving_bytes_max: 100_000, ..reactor::ReactorSettings::default() };
    let server = TestServer::start_on(loops, HttpSettings::default());
    let mut client = post(&server, &format!("{CHUNKED}5\r\nhel"));
    server.bodies.wait(KEY, |body| body.text == "hel");
    server.bodies.change(KEY, |body| body.held = 100_001);
    // The loop may count it before this byte or after it.
    client.send(b"l");
    let fault = server.bodies.wait(KEY, |body| body.end.is_some()).end.unwrap().unwrap_err();
    assert_eq!(fault.status, Status(503));
    server.shelf.answer(KEY);
    client.expect(200, KEY);
    client.expect_end();
}
