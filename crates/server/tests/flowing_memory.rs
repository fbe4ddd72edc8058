//! Memory of rows that are sent while they are made. Alone in its file: it measures the whole process.

mod harness;

use harness::{Client, TestServer};
use serde_json::json;
use std::time::Duration;

/// A cross join of a thousand items.
const MILLION: &str = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.price + b.price >= 0";
/// A million rows with everything: many times the limit of held bytes.
const RESULT_BYTES_LEAST: usize = 18 << 20;

fn ask(server: &TestServer, sql: &str, accept: &str) -> Client {
    let mut client = server.connect();
    let body = json!({ "sql": sql }).to_string();
    client.send("POST", "/_/query", &format!("Accept: {accept}\r\n"), body.as_bytes());
    client
}

/// Waits until a number is stable; returns how much memory was added meanwhile.
fn settled(server: &TestServer, name: &str, before: f64) -> f64 {
    let (mut last, mut same, mut grown) = (-1.0, 0, 0.0_f64);
    while same < 40 {
        std::thread::sleep(Duration::from_millis(10));
        let now = server.metric(name);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        grown = grown.max(server.metric("sapsan_memory_anonymous_bytes") - before);
    }
    grown
}

#[test]
fn a_million_rows_come_within_a_small_memory_and_begin_before_they_end() {
    let server = TestServer::start("memory = \"64MiB\"", "");
    server.put_items(0..1_000);
    let before = server.metric("sapsan_memory_anonymous_bytes");
    let mut client = ask(&server, MILLION, "application/x-ndjson");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("Transfer-Encoding: chunked"), "{head}");
    assert!(head.contains("Sapsan-Plan: SCAN items AS a"), "{head}");
    // Nobody reads the rows, so the query runs until its limit of held bytes is reached, and waits then.
    let mut grown = settled(&server, "sapsan_replies_in_flight_bytes", before);
    assert_eq!(server.metric("sapsan_pool_running"), 1.0);
    let (mut piece, mut rows, mut bytes) = (Vec::new(), 0, 0);
    while client.chunk(&mut piece) {
        rows += piece.iter().filter(|byte| **byte == b'\n').count();
        bytes += piece.len();
        if rows % 97 == 0 {
            grown = grown.max(server.metric("sapsan_memory_anonymous_bytes") - before);
        }
        piece.clear();
    }
    assert_eq!(rows, 1_000_000);
    assert!(bytes > RESULT_BYTES_LEAST && grown < 4e6, "{grown} bytes for {bytes}");
    let rows = ask(&server, &format!("{MILLION} LIMIT 10000"), "application/json").answer(false).json();
    assert_eq!((rows.as_array().map(Vec::len), &rows[9_999]), (Some(10_000), &json!({ "id": 9, "other": 999 })));
    let csv = ask(&server, &format!("{MILLION} LIMIT 10000"), "text/csv").answer(false);
    assert!(csv.text().starts_with("id,other\r\n0,0\r\n0,1\r\n") && csv.text().ends_with("9,999\r\n"));
    assert_eq!(server.metric("sapsan_replies_in_flight_bytes"), 0.0);
}
