//! Requests that keep their loop busy: those of one client are served after those of others, and stop when it disconnects.

use std::time::Duration;

use crate::harness::{Client, TestServer};
use http::HttpSettings;

const CLIENTS: usize = 8;
const REQUESTS: usize = 60;

/// Clients that have requested more than a second of work, part of which is done.
fn busy(server: &TestServer) -> Vec<Client> {
    let requests = "GET /slow/2 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(REQUESTS);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.probe("/first"));
    clients.iter_mut().for_each(|client| client.send(requests.as_bytes()));
    // More requests have run than one client has sent.
    while server.slow() < REQUESTS + 10 {
        std::thread::yield_now();
    }
    clients
}

#[test]
fn a_small_request_does_not_wait_for_all_that_others_have_asked_for() {
    let server = TestServer::start(HttpSettings::default());
    let mut light = server.connect();
    light.probe("/first");
    let mut clients = busy(&server);
    for _ in 0..3 {
        let before = server.slow();
        light.probe("/small");
        let between = server.slow() - before;
        assert!(between < CLIENTS * REQUESTS / 4, "{between} heavy requests went first");
    }
    // All of them are answered in the end.
    for client in &mut clients {
        (0..REQUESTS).for_each(|_| client.expect(200, "slow"));
    }
}

#[test]
fn requests_of_clients_that_reset_do_not_run() {
    let server = TestServer::start(HttpSettings::default());
    let clients = busy(&server);
    for client in &clients {
        socket2::SockRef::from(&client.socket).set_linger(Some(Duration::ZERO)).unwrap();
    }
    drop(clients);
    while server.metrics().open > 0 {
        std::thread::yield_now();
    }
    let run = server.slow();
    assert!(run < CLIENTS * REQUESTS / 2, "{run} requests ran");
}

#[test]
fn expensive_requests_behind_late_replies_do_not_run_all_at_once() {
    let server = TestServer::start(HttpSettings::default());
    let mut light = server.connect();
    light.probe("/first");
    let clients: Vec<Client> = (0..100)
        .map(|number| {
            let mut client = server.connect();
            let slow = "GET /slow/3 HTTP/1.1\r\nHost: h\r\n\r\n".repeat(2);
            client.send(format!("POST /late/{number} HTTP/1.1\r\nHost: h\r\n\r\n{slow}").as_bytes());
            client
        })
        .collect();
    let lates: Vec<_> = (0..clients.len()).map(|number| server.shelf.take(&format!("/late/{number}"))).collect();
    // The loop is kept busy, so that the answers reach it together.
    let mut busy = server.connect();
    busy.send(b"GET /slow/150 HTTP/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(Duration::from_millis(30));
    lates.into_iter().for_each(|late| late.send(http::Status(200), "text/plain", Vec::new()));
    while server.slow() < 5 {
        std::thread::yield_now();
    }
    let before = server.slow();
    light.probe("/small");
    let between = server.slow() - before;
    assert!(between < 60, "{between} heavy requests went first");
    drop(clients);
}

#[test]
fn a_flood_over_many_connections_waits_for_itself_and_not_before_other_addresses() {
    let server = TestServer::start(HttpSettings::default());
    let mut light = server.connect();
    light.probe("/first");
    let mut flood: Vec<Client> = (0..100).map(|_| server.connect_from([127, 0, 1, 1].into())).collect();
    flood.iter_mut().for_each(|client| client.probe("/first"));
    // Most requests have arrived when the loop is done with this one, and the small one comes last.
    let mut busy = server.connect_from([127, 0, 1, 2].into());
    busy.send(b"GET /slow/200 HTTP/1.1\r\nHost: h\r\n\r\n");
    std::thread::sleep(Duration::from_millis(30));
    for client in &mut flood {
        client.send(b"GET /slow/10 HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    let before = server.slow();
    light.probe("/small");
    let between = server.slow() - before;
    assert!(between < 30, "{between} requests of another address went first");
    for client in &mut flood {
        client.expect(200, "slow");
    }
}
