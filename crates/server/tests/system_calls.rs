//! What requests cost in system calls: one read and one write each, or one of each for all that arrived together.

use std::io::Write;

use crate::harness::{Client, TestServer};

const ENDPOINTS: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";

/// Reads and writes that the server has asked of the kernel so far.
fn calls(asking: &mut Client) -> (u64, u64) {
    asking.send("GET", "/_/metrics", "", b"");
    let answer = asking.answer(false);
    let of = |name: &str| {
        let number = answer.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no metric {name}"))
    };
    (of("sapsan_socket_reads_total"), of("sapsan_socket_writes_total"))
}

/// What so many rounds of `pipelined` requests cost.
#[track_caller]
fn check(rounds: u64, pipelined: usize) {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(1..20);
    let (mut client, mut asking) = (server.connect(), server.connect());
    let requests = "GET /items/7 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(pipelined);
    let mut round = || {
        client.stream.write_all(requests.as_bytes()).expect("a connection");
        (0..pipelined).for_each(|_| assert_eq!(client.answer(false).status, 200));
    };
    // The first round's connection may be looked at before its bytes are there.
    round();
    let before = calls(&mut asking);
    (0..rounds).for_each(|_| round());
    let after = calls(&mut asking);
    // One more of each: the second question was read, and the first one's answer written.
    assert_eq!((after.0 - before.0, after.1 - before.1), (rounds + 1, rounds + 1), "{pipelined} at once");
}

#[test]
fn a_request_costs_one_read_and_one_write() {
    check(100, 1);
}

#[test]
fn requests_that_arrive_together_share_one_read_and_one_write() {
    check(50, 16);
}
