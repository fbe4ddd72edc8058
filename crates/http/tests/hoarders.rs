//! Clients that hold memory without progress: when it is short, only they are disconnected.

use std::time::Duration;

use crate::harness::{Client, TestServer};
use http::HttpSettings;

const HELD_BYTES: usize = 1 << 20;
const ARRIVING_BYTES: usize = 300_000;
const PAUSE: Duration = Duration::from_millis(30);

fn server() -> TestServer {
    let traffic = reactor::Traffic { output_high_water: 32 << 10, ..reactor::Traffic::default() };
    let settings = reactor::ReactorSettings { loops: 1, traffic, ..reactor::ReactorSettings::default() };
    let bounds =
        reactor::ReactorSettings { held_bytes_max: HELD_BYTES, arriving_bytes_max: ARRIVING_BYTES, ..settings };
    TestServer::start_on(bounds, HttpSettings::default())
}

fn ask(server: &TestServer, request: &str) -> Client {
    let mut client = server.connect();
    client.send(request.as_bytes());
    client
}

/// Waits until each client has its first bytes.
fn wait_for_first_bytes(clients: &[Client]) {
    clients.iter().for_each(|client| drop(client.socket.peek(&mut [0])));
}

#[test]
fn who_does_not_read_is_closed_for_those_who_do() {
    let server = server();
    let request = "GET /stream/50000000 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(10);
    let mut silent: Vec<Client> = (0..40).map(|_| ask(&server, &request)).collect();
    wait_for_first_bytes(&silent);
    for _ in 0..3 {
        // New clients, small and large, at full speed, while the silent ones request more.
        server.connect().probe("/small");
        let mut honest = ask(&server, "GET /stream/20000000 HTTP/1.1\r\nHost: h\r\n\r\n");
        assert_eq!(honest.answer().body.len(), 20_000_000);
        silent.extend((0..10).map(|_| ask(&server, &request)));
        std::thread::sleep(PAUSE);
    }
    let (metrics, held) = (server.metrics(), server.held_bytes());
    assert!(metrics.hoarders > 20 && metrics.replies_5xx == 0, "{metrics:?}");
    // A turn may be running.
    assert!(held <= HELD_BYTES + (256 << 10), "{held} bytes are held");
}

#[test]
fn unfinished_bodies_go_for_one_that_comes() {
    let server = server();
    let unfinished = |bytes: usize| {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", bytes + 1);
        ask(&server, &(head + &"x".repeat(bytes)))
    };
    let mut hoarders: Vec<Client> = (0..4).map(|_| unfinished(60_000)).collect();
    std::thread::sleep(PAUSE);
    // Larger than any of them, and than the rest of the memory.
    let mut honest = unfinished(150_000);
    honest.send(b"y");
    assert_eq!(honest.answer().status, 200);
    let status = |client: &mut Client| {
        client.send(b"y");
        client.answer().status
    };
    let refused = hoarders.iter_mut().map(status).filter(|status| *status == 503).count();
    assert!((1..4).contains(&refused), "{refused} went: as many as were needed");
    assert_eq!(server.metrics().hoarders, refused as u64);
}

#[test]
fn unfinished_heads_go_for_requests_that_end() {
    let server = server();
    let half = format!("GET / HTTP/1.1\r\nHost: h\r\nA: {}", "a".repeat(7_000));
    let mut halves: Vec<Client> = (0..200).map(|_| ask(&server, &half)).collect();
    std::thread::sleep(PAUSE);
    for _ in 0..10 {
        server.connect().probe("/small");
    }
    assert!(server.held_bytes() <= HELD_BYTES + (256 << 10));
    // The first clients waited longest.
    let answer = halves[0].answer();
    assert_eq!(answer.status, 503, "{}", answer.body);
}
