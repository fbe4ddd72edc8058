//! More clients than connections that may be open: idle clients are disconnected, clients with requests stay, and an address that
//! holds more than its share gives some up.

use std::time::Duration;

use crate::harness::{Client, TestServer};
use http::{ClientLimits, Deadlines, HttpSettings};
use std::net::Ipv4Addr;

const PLACES: usize = 3;
const SHORT: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(60);

/// No deadline passes in a test except this one: how long a client may keep an idle connection while others wait.
fn server(crowded: Duration) -> TestServer {
    let deadlines = Deadlines { head: LONG, body: LONG, idle: LONG, crowded, ..Deadlines::default() };
    let loops = reactor::ReactorSettings { loops: 1, connections_max: PLACES, ..reactor::ReactorSettings::default() };
    TestServer::start_on(loops, HttpSettings { deadlines, ..HttpSettings::default() })
}

/// The same with connections in reserve.
fn server_with_reserve(crowded: Duration) -> TestServer {
    let deadlines = Deadlines { head: LONG, body: LONG, idle: LONG, crowded, ..Deadlines::default() };
    let limits = ClientLimits { connections_max: PLACES, connections_reserved: RESERVED, ..ClientLimits::default() };
    let connections_max = PLACES + RESERVED;
    let loops = reactor::ReactorSettings { loops: 1, connections_max, ..reactor::ReactorSettings::default() };
    TestServer::start_on(loops, HttpSettings { deadlines, limits, ..HttpSettings::default() })
}

const RESERVED: usize = 2;
const HOLDER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Clients of one address that take all places, each with a request that is not answered.
fn holders(server: &TestServer) -> Vec<Client> {
    let mut holders: Vec<Client> = (0..PLACES).map(|_| server.connect_from(HOLDER)).collect();
    for (number, holder) in holders.iter_mut().enumerate() {
        holder.send(format!("GET /late-read/{number} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        while !server.shelf.has(&format!("/late-read/{number}")) {
            std::thread::yield_now();
        }
    }
    holders
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LONG, "{what} never came");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_address_that_holds_all_places_gives_one_to_another_address() {
    let server = server_with_reserve(LONG);
    let mut busy: Vec<Client> = (0..PLACES).map(|_| server.connect_from(HOLDER)).collect();
    busy.iter_mut().for_each(|client| client.probe("/busy"));
    let mut others: Vec<Client> =
        (20..22).map(|number| server.connect_from(Ipv4Addr::new(127, 0, 0, number))).collect();
    others.iter_mut().for_each(|client| client.probe("/other"));
    wait_until("the places", || {
        // Each further client makes the server ask again.
        server.connect_from(Ipv4Addr::new(127, 0, 0, 20)).probe("/vital");
        server.metrics().open <= PLACES as u64
    });
    others.iter_mut().for_each(|client| client.probe("/other"));
    assert_eq!(server.metrics().turned_away, 0);
}

#[test]
fn a_vital_request_is_answered_while_requests_of_its_address_hold_all_places() {
    let server = server_with_reserve(LONG);
    let mut holders = holders(&server);
    for _ in 0..3 * RESERVED {
        let mut client = server.connect_from(HOLDER);
        client.probe("/vital");
        client.expect_end();
    }
    let mut waiting = server.connect_from(HOLDER);
    waiting.send(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n");
    server.connect_from(HOLDER).probe("/vital");
    assert_eq!(server.metrics().made_room, 0, "clients that wait for the server keep their places");
    drop(holders.remove(0));
    server.shelf.answer("/late-read/0");
    waiting.expect(200, "GET /other []");
    waiting.probe("/and-stays");
}

#[test]
fn a_request_that_finds_no_place_in_time_is_told_so() {
    let server = server_with_reserve(SHORT);
    let _holders = holders(&server);
    let mut client = server.connect_from(HOLDER);
    client.send(b"GET /other HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.answer().status, 503);
    client.expect_end();
}

#[test]
fn requests_of_an_address_above_its_share_end_if_others_wait_longer_than_a_moment() {
    let server = server_with_reserve(SHORT);
    let holders = holders(&server);
    wait_until("a place", || {
        server.connect_from(Ipv4Addr::new(127, 0, 0, 20)).probe("/vital");
        server.metrics().made_room > 0
    });
    drop(holders);
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
