//! System calls of requests: one read and one write each, or one of each for all that arrived together.

use std::io::Write;

use crate::harness::{Client, TestServer};

const ENDPOINTS: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";

/// Runs of which the machine leaves one alone.
const RUNS_MAX: usize = 10;

/// Reads and writes that the server has made so far.
fn calls(asking: &mut Client) -> (u64, u64) {
    asking.send("GET", "/_/metrics", "", b"");
    let answer = asking.answer(false);
    let of = |name: &str| {
        let number = answer.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no metric {name}"))
    };
    (of("sapsan_socket_reads_total"), of("sapsan_socket_writes_total"))
}

/// Requires one read and one write for each round of `pipelined` requests. If the machine takes the loop's core away, the
/// loop ends its turn early, which costs another write: then the run is repeated.
#[track_caller]
fn check(rounds: u64, pipelined: usize) {
    // One more of each: the second question is read, and the first one's answer written.
    let expected = (rounds + 1, rounds + 1);
    let mut costs = Vec::new();
    while costs.len() < RUNS_MAX && costs.last() != Some(&expected) {
        costs.push(cost(rounds, pipelined));
    }
    assert_eq!(costs.last(), Some(&expected), "{pipelined} at once: {costs:?}");
}

/// Reads and writes for so many rounds of `pipelined` requests.
fn cost(rounds: u64, pipelined: usize) -> (u64, u64) {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(1..20);
    let (mut client, mut asking) = (server.connect(), server.connect());
    let requests = "GET /items/7 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(pipelined);
    let mut round = || {
        client.stream.write_all(requests.as_bytes()).expect("a connection");
        (0..pipelined).for_each(|_| assert_eq!(client.answer(false).status, 200));
    };
    // The first round's connection may be polled before its bytes arrive.
    round();
    let before = calls(&mut asking);
    (0..rounds).for_each(|_| round());
    let after = calls(&mut asking);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_request_costs_one_read_and_one_write() {
    check(100, 1);
}

#[test]
fn requests_that_arrive_together_share_one_read_and_one_write() {
    // Few enough that a slow machine answers them in one turn.
    check(20, 8);
}
