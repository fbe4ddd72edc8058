//! More clients than connections that may be open: idle clients are disconnected, and clients with requests stay.

use std::time::Duration;

use crate::harness::{Client, TestServer};
use http::{Deadlines, HttpSettings};

const PLACES: usize = 3;
const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(60);

/// No deadline passes in a test except this one: how long a client may keep an idle connection while others wait.
fn server(crowded: Duration) -> TestServer {
    let deadlines = Deadlines { head: LONG, body: LONG, idle: LONG, crowded, ..Deadlines::default() };
    let loops = reactor::ReactorSettings { loops: 1, connections_max: PLACES, ..reactor::ReactorSettings::default() };
    TestServer::start_on(loops, HttpSettings { deadlines, ..HttpSettings::default() })
}

fn half(server: &TestServer, request: &str) -> Client {
    let mut client = server.connect();
    client.send(request.as_bytes());
    client
}

#[test]
fn half_requests_give_their_places_to_whole_ones() {
    let server = server(SHORT);
    let silent = server.connect();
    let mut head = half(&server, "GET / HTTP/1.1\r\nHos");
    let mut body = half(&server, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nab");
    // Each new client has sent a request, so none of them is disconnected for the next.
    let whole: Vec<Client> = (0..PLACES)
        .map(|number| half(&server, &format!("GET /late-read/{number} HTTP/1.1\r\nHost: h\r\n\r\n")))
        .collect();
    let lates: Vec<_> = (0..PLACES).map(|number| server.shelf.take(&format!("/late-read/{number}"))).collect();
    for (mut client, late) in whole.into_iter().zip(lates) {
        late.send(http::Status(200), "text/plain", b"late".to_vec());
        client.expect(200, "late");
    }
    assert_eq!((head.answer().status, body.answer().status), (408, 408));
    { silent }.expect_end();
    assert_eq!((server.metrics().made_room, server.metrics().timed_out), (3, 0));
}

#[test]
fn who_waits_for_the_server_keeps_its_place() {
    let server = server(Duration::ZERO);
    let mut waiting = half(&server, "GET /late-read/1 HTTP/1.1\r\nHost: h\r\n\r\n");
    let late = server.shelf.take("/late-read/1");
    for _ in 0..2 * PLACES {
        server.connect().probe("/new");
    }
    let mut idle: Vec<Client> = (1..PLACES).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(|client| client.probe("/idle"));
    // The idle clients are disconnected for these.
    let mut others: Vec<Client> =
        (1..PLACES).map(|_| half(&server, "GET /other HTTP/1.1\r\nHost: h\r\n\r\n")).collect();
    others.iter_mut().for_each(|client| client.expect(200, "GET /other []"));
    idle.iter_mut().for_each(Client::expect_end);
    late.send(http::Status(200), "text/plain", b"late".to_vec());
    waiting.expect(200, "late");
}

#[test]
fn while_there_are_places_nobody_has_to_go() {
    let server = server(Duration::ZERO);
    let mut clients: Vec<Client> = (0..PLACES).map(|_| half(&server, "GET /a HTTP/1.1\r\n")).collect();
    for client in &mut clients {
        client.send(b"Host: h\r\n\r\n");
        client.expect(200, "GET /a []");
    }
    assert_eq!(server.metrics().made_room, 0);
}
