//! Rows leave while they are made (`flowing_memory.rs`: in how much memory), ended with their client and their time; what is sorted and grouped
//! beyond the memory goes to disk.

use crate::harness::{Client, TestServer};
use serde_json::json;
use std::time::Duration;

/// Items; each with each makes a million rows.
const ITEMS: u32 = 1_000;
const MILLION: &str = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.price + b.price >= 0";
/// The same, with an error in the last item's rows.
const FAILING: &str = "SELECT a.id, ABS((a.id = 999) * (-9223372036854775807 - 1)) AS x FROM items a JOIN items b ON a.price + b.price >= 0";
const SORTED: &str = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.price + b.price >= 0 ORDER BY b.id * 7919 % 1009 + a.price - a.price";

fn start(settings: &str) -> TestServer {
    let server = TestServer::start(settings, "");
    server.put_items(0..ITEMS);
    server
}

fn ask(server: &TestServer, sql: &str, accept: &str) -> Client {
    let mut client = server.connect();
    let body = json!({ "sql": sql }).to_string();
    client.send("POST", "/_/query", &format!("Accept: {accept}\r\n"), body.as_bytes());
    client
}

/// Waits until something is so.
#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..400 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{what} never came");
}

#[test]
fn what_fits_a_piece_comes_with_its_length_and_what_fails_before_one_with_its_status() {
    let server = start("");
    let small = ask(&server, "SELECT id FROM items LIMIT 100", "application/x-ndjson").answer(false);
    assert_eq!(small.field("Content-Length"), Some(small.body.len().to_string().as_str()));
    let failed =
        ask(&server, "SELECT ABS((id = 999) * (-9223372036854775807 - 1)) AS x FROM items", "*/*").answer(false);
    assert_eq!(failed.status, 400, "{}", failed.text());
}

#[test]
fn an_error_behind_the_first_rows_is_a_last_line_or_a_broken_body() {
    let server = start("");
    let lines = ask(&server, FAILING, "application/x-ndjson").answer(false);
    let last = lines.text().lines().last().map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let told = json!({ "error": { "title": "Invalid request", "detail": "integer overflow" } });
    assert_eq!((lines.status, last), (200, Some(Some(told))));
    assert_eq!(lines.text().lines().count(), 999_001);
    assert!(lines.text().lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    let mut client = ask(&server, FAILING, "application/json");
    assert!(client.head().starts_with("HTTP/1.1 200"));
    let mut body = Vec::new();
    // Cut: no last chunk, and no end of the array.
    assert!(!client.rest_is_whole(&mut body) && body.len() > 1 << 20 && !body.ends_with(b"]"));
}

#[test]
fn a_query_ends_with_its_client() {
    let server = start("memory = \"64MiB\"");
    let mut clients: Vec<Client> = (0..2).map(|_| ask(&server, MILLION, "*/*")).collect();
    clients.iter_mut().for_each(|client| assert!(client.head().starts_with("HTTP/1.1 200")));
    assert_eq!(server.metric("sapsan_pool_running"), 2.0);
    drop(clients);
    // Long before the query's 30 seconds end.
    wait_until("the queries' end", || server.metric("sapsan_pool_running") == 0.0);
    wait_until("their memory", || server.metric("sapsan_replies_in_flight_bytes") == 0.0);
}

#[test]
fn a_client_that_is_too_slow_is_told_or_cut() {
    let server = start("memory = \"64MiB\"\nquery_seconds = 1");
    let mut lines = ask(&server, MILLION, "application/x-ndjson");
    let mut array = ask(&server, MILLION, "application/json");
    for client in [&mut lines, &mut array] {
        assert!(client.head().starts_with("HTTP/1.1 200"));
    }
    wait_until("the queries' end", || server.metric("sapsan_pool_running") == 0.0);
    let mut body = Vec::new();
    assert!(lines.rest_is_whole(&mut body));
    let text = String::from_utf8(body).expect("JSON is UTF-8");
    assert!(text.lines().last().is_some_and(|line| line.contains("the client did not take the rows in time")));
    let mut body = Vec::new();
    assert!(!array.rest_is_whole(&mut body) && !body.ends_with(b"]"));
}

#[test]
fn sorts_beyond_the_memory_go_to_disk_and_leave_nothing() {
    let server = start("memory = \"64MiB\"");
    let mut client = ask(&server, SORTED, "application/x-ndjson");
    assert!(client.head().starts_with("HTTP/1.1 200"));
    let (mut body, mut before, mut rows) = (Vec::new(), (0, 0), 0);
    while client.chunk(&mut body) {}
    for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let row: serde_json::Value = serde_json::from_slice(line).expect("a row");
        let (id, other) = (row["id"].as_u64().expect("an id"), row["other"].as_u64().expect("an id"));
        let place = (other * 7919 % 1009, id);
        assert!(rows == 0 || before < place, "{before:?} before {place:?}");
        (before, rows) = (place, rows + 1);
    }
    assert_eq!(rows, 1_000_000);
    assert!(server.metric("sapsan_query_spilled_bytes_total") > 2e7);
    assert_eq!(server.metric("sapsan_query_spill_bytes"), 0.0);
    let groups =
        "SELECT a.id * 1000 + b.id AS k, COUNT(*) AS n FROM items a JOIN items b ON a.price + b.price >= 0 GROUP BY k";
    let count = server.query(&json!({ "sql": format!("SELECT COUNT(*) AS n FROM ({groups} LIMIT 10)") }));
    assert_eq!(count.json(), json!([{ "n": 10 }]));
}

#[test]
fn the_disk_that_sorts_may_take_is_a_setting() {
    for (spill, told) in [("0", "bytes to sort"), ("1000000", "limit of 1000000 bytes on disk")] {
        let server = start(&format!("memory = \"64MiB\"\nquery_spill = {spill}"));
        let answer = server.query(&json!({ "sql": SORTED }));
        assert!(answer.status == 413 && answer.text().contains(told), "{}", answer.text());
        assert_eq!(server.metric("sapsan_query_spill_bytes"), 0.0);
    }
}
