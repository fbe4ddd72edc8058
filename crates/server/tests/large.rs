//! Replies over 64 KB: complete for clients that read, bounded for clients that do not, and cut off if a document changes
//! half-way.

use crate::harness::{Client, TestServer};
use std::io::Read;

const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"

[[endpoints]]
route = "GET /notes"
query = "SELECT note FROM items"
"#;

const NOTE_BYTES: usize = 7 << 20;

fn put(server: &TestServer, id: u32, note: &str) {
    let body = format!("{{\"id\":{id},\"group\":\"g\",\"price\":1,\"note\":\"{note}\"}}");
    let answer = server.ask("PUT", &format!("/_/collections/items/{id}"), "", body.as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
}

/// Sends a request and does not read its reply.
fn ask_without_reading(server: &TestServer, method: &str, target: &str, body: &[u8]) -> Client {
    let mut client = server.connect();
    client.send(method, target, "", body);
    client
}

#[test]
fn a_large_document_comes_whole_through_every_door() {
    let server = TestServer::start("body_bytes_max = \"8MiB\"", ENDPOINTS);
    let note = "n".repeat(NOTE_BYTES);
    put(&server, 1, &note);
    for target in ["/items/1", "/_/collections/items/1"] {
        let answer = server.get(target);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["note"].as_str().map(str::len), Some(NOTE_BYTES), "{target}");
        let head = server.ask("HEAD", target, "", b"");
        assert_eq!(head.field("Content-Length"), Some(answer.body.len().to_string().as_str()));
    }
    let list = server.get("/_/collections/items").json();
    assert_eq!(list["items"][0]["note"].as_str().map(str::len), Some(NOTE_BYTES));
    let rows = server.get("/notes").json();
    assert_eq!(rows[0]["note"].as_str().map(str::len), Some(NOTE_BYTES));
    let rows = server.query(&serde_json::json!({ "sql": "SELECT note FROM items" })).json();
    assert_eq!(rows[0]["note"].as_str().map(str::len), Some(NOTE_BYTES));
    assert_eq!(server.metric("sapsan_replies_in_flight_bytes"), 0.0);
}

#[test]
fn replies_behind_a_late_stream_keep_their_order() {
    let server = TestServer::start("body_bytes_max = \"8MiB\"", ENDPOINTS);
    put(&server, 1, &"n".repeat(300_000));
    let mut client = server.connect();
    let body = serde_json::json!({ "sql": "SELECT note FROM items" }).to_string();
    for _ in 0..3 {
        client.send("POST", "/_/query", "", body.as_bytes());
        client.send("GET", "/items/2", "", b"");
    }
    for _ in 0..3 {
        let rows = client.answer(false);
        assert_eq!((rows.status, rows.json()[0]["note"].as_str().map(str::len)), (200, Some(300_000)));
        assert_eq!(client.answer(false).status, 404);
    }
}

#[test]
fn clients_that_do_not_read_hold_no_documents_and_a_bounded_part_of_rows() {
    let server = TestServer::start("body_bytes_max = \"8MiB\"\nmemory = \"1GB\"", ENDPOINTS);
    put(&server, 1, &"n".repeat(NOTE_BYTES));
    let before = server.metric("sapsan_memory_anonymous_bytes");
    let clients: Vec<Client> = (0..40).map(|_| ask_without_reading(&server, "GET", "/items/1", b"")).collect();
    // Each has its first bytes, so each was served.
    clients.iter().for_each(|client| assert_eq!(client.stream.peek(&mut [0]).unwrap(), 1));
    let grown = server.metric("sapsan_memory_anonymous_bytes") - before;
    assert!(grown < (10 * NOTE_BYTES) as f64, "{grown} bytes for 40 clients");
    drop(clients);
    let mut clients: Vec<Client> = (0..24).map(|_| ask_without_reading(&server, "GET", "/notes", b"")).collect();
    // Each was served; one that does not read may be disconnected already.
    for client in &clients {
        let is_cut = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ConnectionReset;
        let first = client.stream.peek(&mut [0]);
        assert!(matches!(first, Ok(1)) || first.as_ref().is_err_and(is_cut), "{first:?}");
    }
    let bound = server.metric("sapsan_memory_bound_bytes{part=\"large_replies\"}");
    assert!(server.metric("sapsan_replies_in_flight_bytes") <= bound);
    // The largest holders are closed for a new one.
    std::thread::sleep(std::time::Duration::from_millis(150));
    for _ in 0..3 {
        assert_eq!(server.get("/notes").status, 200);
        clients.push(ask_without_reading(&server, "GET", "/notes", b""));
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    assert!(server.metric("sapsan_http_hoarders_total") >= 1.0);
    assert!(server.metric("sapsan_replies_in_flight_bytes") <= bound);
    drop(clients);
    assert_eq!(server.get("/notes").status, 200);
}

#[test]
fn a_document_that_changes_half_way_is_cut() {
    let server = TestServer::start("body_bytes_max = \"8MiB\"", ENDPOINTS);
    put(&server, 1, &"n".repeat(NOTE_BYTES));
    let client = ask_without_reading(&server, "GET", "/items/1", b"");
    assert_eq!(client.stream.peek(&mut [0]).unwrap(), 1);
    // Of the same length: only the change number differs.
    put(&server, 1, &"m".repeat(NOTE_BYTES));
    client.stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a timeout");
    let (mut stream, mut bytes) = (client.stream, Vec::new());
    // Ends regularly or by a reset: it must only be incomplete.
    let _ = stream.read_to_end(&mut bytes);
    assert!(bytes.len() < NOTE_BYTES, "{} bytes", bytes.len());
}
