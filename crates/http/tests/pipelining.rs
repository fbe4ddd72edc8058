//! Order: replies leave in the order of the requests, and reads wait for unanswered writes.

use std::thread;

use crate::harness::{Client, TestServer};
use http::{ClientLimits, HttpSettings, Status};
use proptest::prelude::*;

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn post(path: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{{}}")
}

#[track_caller]
fn expect_all(client: &mut Client, bodies: &[&str]) {
    for body in bodies {
        client.expect(200, body);
    }
}

#[test]
fn a_reply_at_once_waits_behind_a_late_one() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send((get("/late/1") + &get("/a") + &get("/late/2") + &get("/b")).as_bytes());
    server.shelf.answer("/late/2");
    server.shelf.answer("/late/1");
    expect_all(&mut client, &["/late/1", "GET /a []", "/late/2", "GET /b []"]);
    client.probe("/after");
}

#[test]
fn late_replies_in_any_order_leave_in_the_order_of_the_requests() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let paths: Vec<String> = (0..20).map(|n| format!("/late/{n}")).collect();
    client.send(paths.iter().map(|path| post(path)).collect::<String>().as_bytes());
    for n in (0..20).map(|n| n * 7 % 20) {
        server.shelf.answer(&paths[n]);
    }
    for path in &paths {
        client.expect(200, path);
    }
}

#[test]
fn writes_are_submitted_without_waiting_and_a_read_waits_for_all_of_them() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send((post("/late/1") + &post("/late/2") + &get("/late-read/3") + &post("/late/4")).as_bytes());
    let (first, second) = (server.shelf.take("/late/1"), server.shelf.take("/late/2"));
    assert!(!server.shelf.has("/late-read/3"), "the read was handed over before the writes were answered");
    second.send(Status(200), "", b"2".to_vec());
    // The answer to a probe on another connection shows that the loop has read the message.
    server.connect().probe("/other");
    assert!(!server.shelf.has("/late-read/3"));
    first.send(Status(200), "", b"1".to_vec());
    server.shelf.answer("/late/4");
    server.shelf.answer("/late-read/3");
    expect_all(&mut client, &["1", "2", "/late-read/3", "/late/4"]);
}

#[test]
fn a_request_that_stands_alone_waits_for_writes_and_lets_no_other_pass() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send((post("/late/1") + &post("/late-alone/2") + &post("/late/3") + &get("/late-read/4")).as_bytes());
    let first = server.shelf.take("/late/1");
    server.connect().probe("/other");
    assert!(!server.shelf.has("/late-alone/2"), "it was handed over before the write was answered");
    first.send(Status(200), "", b"1".to_vec());
    let alone = server.shelf.take("/late-alone/2");
    server.connect().probe("/other");
    assert!(!server.shelf.has("/late/3") && !server.shelf.has("/late-read/4"), "something passed it");
    alone.send(Status(200), "", b"2".to_vec());
    server.shelf.answer("/late/3");
    server.shelf.answer("/late-read/4");
    expect_all(&mut client, &["1", "2", "/late/3", "/late-read/4"]);
}

#[test]
fn a_read_behind_a_late_read_does_not_wait() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send((get("/late-read/1") + &get("/late-read/2")).as_bytes());
    server.shelf.answer("/late-read/2");
    server.shelf.answer("/late-read/1");
    expect_all(&mut client, &["/late-read/1", "/late-read/2"]);
}

#[test]
fn a_chunked_read_behind_a_write_waits_too() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let read = "GET /r HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    client.send((post("/late/1") + read + &get("/after")).as_bytes());
    server.shelf.answer("/late/1");
    expect_all(&mut client, &["/late/1", "GET /r [ok]", "GET /after []"]);
}

#[test]
fn unanswered_requests_have_a_limit_and_the_rest_is_served_afterwards() {
    let limits = ClientLimits { pipelined_max: 4, ..ClientLimits::default() };
    let server = TestServer::start(HttpSettings { limits, ..HttpSettings::default() });
    let mut client = server.connect();
    let paths: Vec<String> = (0..12).map(|n| format!("/late/{n}")).collect();
    client.send(paths.iter().map(|path| post(path)).collect::<String>().as_bytes());
    let held = server.shelf.take("/late/3");
    server.connect().probe("/other");
    assert!(!server.shelf.has("/late/4"), "a fifth request was handed over");
    for path in &paths[..3] {
        server.shelf.answer(path);
    }
    held.send(Status(200), "", paths[3].clone().into_bytes());
    for path in &paths[4..] {
        server.shelf.answer(path);
    }
    for path in &paths {
        client.expect(200, path);
    }
}

#[test]
fn replies_that_wait_for_their_turn_have_a_limit_together() {
    let limits = ClientLimits { held_bytes_max: 1000, ..ClientLimits::default() };
    let server = TestServer::start(HttpSettings { limits, ..HttpSettings::default() });
    let mut client = server.connect();
    client.send((get("/late/1") + &get("/large/900").repeat(2) + &get("/late/2")).as_bytes());
    let first = server.shelf.take("/late/1");
    server.connect().probe("/other");
    assert!(!server.shelf.has("/late/2"), "a request was handed over past the limit");
    first.send(Status(200), "", b"1".to_vec());
    server.shelf.answer("/late/2");
    client.expect(200, "1");
    for _ in 0..2 {
        assert_eq!(client.answer().body.len(), 900);
    }
    client.expect(200, "/late/2");
}

#[test]
fn panics_and_dropped_replies_answer_500_in_their_places() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let odd = ["/panic", "/drop", "/drop-late", "/panic-late", "/panic-in-order"];
    let bytes: String = odd.iter().map(|path| get(path) + &get("/fine")).collect();
    client.send((get("/late/1") + &bytes).as_bytes());
    server.shelf.answer("/late/1");
    client.expect(200, "/late/1");
    for path in odd {
        assert_eq!(client.answer().status, 500, "{path}");
        client.expect(200, "GET /fine []");
    }
    for path in odd {
        client.send(get(path).as_bytes());
        assert_eq!(client.answer().status, 500, "{path} alone");
    }
    // A part of its reply is made when it panics.
    client.send((get("/tagged/7?panic") + &get("/fine")).as_bytes());
    assert_eq!(client.answer().status, 500);
    client.expect(200, "GET /fine []");
    client.probe("/after");
    assert_eq!(server.metrics().panics, 7);
}

#[test]
fn a_refusal_waits_for_the_replies_before_it() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send((post("/late/1") + &post("/p") + "nonsense\r\n\r\n").as_bytes());
    server.shelf.answer("/late/1");
    expect_all(&mut client, &["/late/1", "POST /p [{}]"]);
    assert_eq!(client.answer().status, 400);
    client.expect_end();
}

#[test]
fn a_refused_request_has_a_body_by_its_own_method() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    // The head was gathered; what is in the input is a broken chunk.
    client.send(b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    std::thread::sleep(std::time::Duration::from_millis(50));
    client.send(b"HEAD ");
    let answer = client.answer();
    assert!(answer.status == 400 && !answer.body.is_empty(), "{answer:?}");
    client.expect_end();
}

#[test]
fn the_word_to_continue_waits_for_the_replies_before_it() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let expecting = "POST /p HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    client.send((post("/late/1") + expecting).as_bytes());
    server.shelf.answer("/late/1");
    client.expect(200, "/late/1");
    assert_eq!(client.answer().status, 100);
    client.send(b"hello");
    client.expect(200, "POST /p [hello]");
}

#[test]
fn every_kind_of_reply_keeps_its_place_behind_a_late_one() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    let kinds = ["/pieces", "/shared/70000", "/stream/200000", "/empty", "/stream-length/5", "/large/100000", "/a"];
    let requests: String = kinds.iter().map(|path| get(path)).collect();
    for before in [String::new(), get("/late/1")] {
        client.send((before.clone() + &requests).as_bytes());
        if !before.is_empty() {
            server.shelf.answer("/late/1");
            client.expect(200, "/late/1");
        }
        let bodies: Vec<(u16, usize)> =
            kinds.iter().map(|_| client.answer()).map(|a| (a.status, a.body.len())).collect();
        assert_eq!(bodies, [(201, 7), (200, 70_000), (200, 200_000), (204, 0), (200, 5), (200, 100_000), (200, 9)]);
    }
}

#[test]
fn late_replies_carry_their_fields_and_head_only_replies_no_body() {
    let server = TestServer::start(HttpSettings::default());
    let mut client = server.connect();
    client.send(b"HEAD /late/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut late = server.shelf.take("/late/1");
    late.header("ETag", "\"7\"").header("Bad", "a\r\nb");
    late.send(Status(200), "application/json", b"{}".to_vec());
    let answer = client.answer_to(true).unwrap();
    assert!(answer.head.contains("\r\nETag: \"7\"\r\n") && !answer.head.contains("Bad"), "{}", answer.head);
    assert!(answer.head.contains("\r\nContent-Length: 2\r\n"), "{}", answer.head);
    client.send(b"HEAD /stream/5 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(client.answer_to(true).unwrap().head.contains("Transfer-Encoding: chunked"));
    client.probe("/after");
}

#[test]
fn many_connections_with_late_replies_from_other_threads_all_get_their_own() {
    let loops = reactor::ReactorSettings { loops: 2, ..reactor::ReactorSettings::default() };
    let server = TestServer::start_on(loops, HttpSettings::default());
    thread::scope(|scope| {
        for client_no in 0..8 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect();
                for round in 0..50 {
                    let key = |n: u32| format!("/late/{client_no}-{round}-{n}");
                    client.send((0..4).map(|n| post(&key(n))).collect::<String>().as_bytes());
                    for n in [2, 0, 3, 1] {
                        server.shelf.answer(&key(n));
                    }
                    for n in 0..4 {
                        client.expect(200, &key(n));
                    }
                }
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever the mix of requests and however the bytes are cut, the replies are those of sequential requests.
    #[test]
    fn any_mix_in_any_cuts_is_answered_in_order(
        kinds in proptest::collection::vec(0usize..6, 1..12),
        cuts in proptest::collection::vec(1usize..80, 1..6),
    ) {
        let server = TestServer::start(HttpSettings::default());
        let mut client = server.connect();
        let path = |at: usize, kind: usize| match kind {
            0 | 1 => format!("/now/{at}"),
            2 | 3 => format!("/late/{at}"),
            4 => "/stream/3000".to_owned(),
            _ => "/drop-late".to_owned(),
        };
        let bytes: String = kinds.iter().enumerate().map(|(at, &kind)| {
            let path = path(at, kind);
            if kind % 2 == 1 { post(&path) } else { get(&path) }
        }).collect();
        let (mut rest, mut sizes) = (bytes.as_bytes(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            client.send(now);
            rest = later;
        }
        let shelf = server.shelf.clone();
        let late: Vec<String> = kinds.iter().enumerate().filter(|(_, k)| matches!(k, 2 | 3)).map(|(at, &k)| path(at, k)).collect();
        let answers = thread::spawn(move || late.iter().for_each(|key| shelf.answer(key)));
        for (at, &kind) in kinds.iter().enumerate() {
            let answer = client.answer();
            let expected = match kind {
                0 => (200, format!("GET /now/{at} []")),
                1 => (200, format!("POST /now/{at} [{{}}]")),
                2 | 3 => (200, path(at, kind)),
                4 => (200, "x".repeat(3000)),
                _ => (500, String::new()),
            };
            prop_assert_eq!((answer.status, answer.body), expected);
        }
        answers.join().unwrap();
    }
}
