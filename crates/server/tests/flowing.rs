//! Rows are sent while they are made (`flowing_memory.rs`: with how much memory); queries end with their client and their time
//! limit; sorts and groups beyond the memory go to disk.

use crate::harness::{Client, TestServer};
use serde_json::json;
use std::time::{Duration, Instant};

/// Number of items; a cross join makes a million rows.
const ITEMS: u32 = 1_000;
const MILLION: &str = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.price + b.price >= 0";
/// The same, with an error in the last item's rows.
const FAILING: &str = "SELECT a.id, ABS((a.id = 999) * (-9223372036854775807 - 1)) AS x FROM items a JOIN items b ON a.price + b.price >= 0";
const SORTED: &str = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.price + b.price >= 0 ORDER BY b.id * 7919 % 1009 + a.price - a.price";

/// The same as declared queries.
const DECLARED: &str = r#"
[[endpoints]]
route = "GET /pairs"
wrap = "pairs"
query = "SELECT a.id, b.id AS other FROM items a JOIN items b ON a.price + b.price >= :least"
params = { least = { type = "integer", default = 0 } }
[[endpoints]]
route = "GET /groups/{id}/pairs"
require = "items/{id}"
query = "SELECT a.id, ABS((a.id = :id) * (-9223372036854775807 - 1)) AS x FROM items a JOIN items b ON a.price + b.price >= 0"
[[endpoints]]
route = "GET /triples"
query = "SELECT b.price % 7 AS rest, COUNT(*) AS n FROM items a JOIN items b ON a.price + b.price >= 0 JOIN items c ON b.price + c.price >= 0 GROUP BY rest"
[[endpoints]]
route = "GET /triples/sorted"
query = "SELECT a.id FROM items a JOIN items b ON a.price + b.price >= 0 JOIN items c ON b.price + c.price >= 0 ORDER BY b.price * c.price % 13"
limit = 10
"#;

fn start(settings: &str) -> TestServer {
    // Queries have low priority: on a busy machine they take long.
    let patience = if settings.contains("query_seconds") { "" } else { "\nquery_seconds = 600" };
    let server = TestServer::start(&format!("{settings}{patience}"), DECLARED);
    server.put_items(0..ITEMS);
    server
}

fn ask(server: &TestServer, sql: &str, accept: &str) -> Client {
    let mut client = server.connect();
    let body = json!({ "sql": sql }).to_string();
    client.send("POST", "/_/query", &format!("Accept: {accept}\r\n"), body.as_bytes());
    client
}

/// Waits until a condition holds.
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
    // The connection was closed: no last chunk, and no end of the array.
    assert!(!client.rest_is_whole(&mut body) && body.len() > 1 << 20 && !body.ends_with(b"]"));
}

#[test]
fn a_query_ends_with_its_client() {
    let server = start("memory = \"64MiB\"");
    let mut clients: Vec<Client> = (0..2).map(|_| ask(&server, MILLION, "*/*")).collect();
    clients.iter_mut().for_each(|client| assert!(client.head().starts_with("HTTP/1.1 200")));
    assert_eq!(server.metric("sapsan_pool_running"), 2.0);
    drop(clients);
    // Long before the queries' time limit.
    wait_until("the queries' end", || server.metric("sapsan_pool_running") == 0.0);
    wait_until("their memory", || server.metric("sapsan_replies_in_flight_bytes") == 0.0);
}

/// Seconds of work in one row without a table: patterns that almost match everywhere.
fn without_a_table() -> String {
    let near = format!("(printf('%999999s', '') LIKE '%{}b%')", " ".repeat(12));
    let many = format!("max({})", vec![near; 30].join(", "));
    format!("SELECT {} AS n", vec![many; 4].join(" + "))
}

#[test]
fn an_expression_ends_with_its_client_and_with_the_server() {
    const SOON: Duration = Duration::from_secs(5);
    let server = start("query_seconds = 600\ndrain_seconds = 1");
    let sql = without_a_table();
    let both_run = || {
        let clients: Vec<Client> = (0..2).map(|_| ask(&server, &sql, "application/json")).collect();
        wait_until("both queries", || server.metric("sapsan_pool_running") == 2.0);
        clients
    };
    drop(both_run());
    let began = Instant::now();
    wait_until("the queries' end", || server.metric("sapsan_pool_running") == 0.0);
    assert!(began.elapsed() < SOON, "they went on for {:?}", began.elapsed());
    // These clients wait for their replies, and the server does not wait for them.
    let clients = both_run();
    let began = Instant::now();
    drop(server);
    assert!(began.elapsed() < SOON, "the server took {:?}", began.elapsed());
    drop(clients);
}

#[test]
fn a_client_that_is_too_slow_is_told_or_cut() {
    let server = start("memory = \"64MiB\"\nquery_seconds = 1");
    // Once more if the time limit passed before the first rows: the machine was busy.
    let begun = |accept: &str| {
        let mut clients = (0..20).map(|_| ask(&server, MILLION, accept));
        clients.find_map(|mut client| client.head().starts_with("HTTP/1.1 200").then_some(client)).expect("a reply")
    };
    let (mut lines, mut array) = (begun("application/x-ndjson"), begun("application/json"));
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

fn get(server: &TestServer, target: &str, fields: &str) -> Client {
    let mut client = server.connect();
    client.send("GET", target, fields, b"");
    client
}

#[test]
fn rows_of_declared_queries_leave_while_they_are_made_in_the_shape_that_is_asked_for() {
    let server = start("memory = \"64MiB\"");
    let mut client = get(&server, "/pairs", "Sapsan-Plan: 1\r\n");
    let head = client.head();
    assert!(head.contains("Transfer-Encoding: chunked") && head.contains("Sapsan-Plan: "), "{head}");
    let mut body = Vec::new();
    while client.chunk(&mut body) {}
    let rows = server.metric("sapsan_query_rows_read_total");
    assert!(rows >= 1e6, "{rows}");
    let whole: serde_json::Value = serde_json::from_slice(&body).expect("one object around the rows");
    assert_eq!(whole["pairs"].as_array().map(Vec::len), Some(1_000_000));
    let lines = get(&server, "/pairs", "Accept: application/x-ndjson\r\n").answer(false);
    assert_eq!((lines.field("Content-Type"), lines.text().lines().count()), (Some("application/x-ndjson"), 1_000_000));
    let csv = get(&server, "/pairs", "Accept: text/csv\r\n").answer(false);
    assert!(csv.text().starts_with("id,other\r\n0,0\r\n") && csv.text().lines().count() == 1_000_001);
    // A query that a loop could run has the same format.
    let few = get(&server, "/pairs?least=19970", "Accept: application/x-ndjson\r\n").answer(false);
    assert_eq!(few.text(), "{\"id\":998,\"other\":999}\n{\"id\":999,\"other\":998}\n{\"id\":999,\"other\":999}\n");
    let few = get(&server, "/pairs?least=19980", "Accept: text/html, */*\r\n").answer(false);
    assert_eq!(few.text(), r#"{"pairs":[{"id":999,"other":999}]}"#);
}

#[test]
fn a_declared_query_that_fails_on_its_way_is_cut_and_one_that_fails_before_has_its_status() {
    let server = start("");
    let lines = get(&server, "/groups/999/pairs", "Accept: application/x-ndjson\r\n").answer(false);
    assert!(
        lines.status == 200
            && lines.text().ends_with("\"detail\":\"integer overflow\",\"title\":\"Invalid request\"}}\n")
    );
    let mut array = get(&server, "/groups/999/pairs", "");
    let (mut body, head) = (Vec::new(), array.head());
    while array.chunk(&mut body) {}
    assert!(head.starts_with("HTTP/1.1 200") && body.len() > 1 << 20 && !body.ends_with(b"]"));
    assert_eq!(get(&server, "/groups/0/pairs", "").answer(false).status, 400);
    assert_eq!(get(&server, "/groups/1000/pairs", "Accept: text/csv\r\n").answer(false).status, 404);
}

#[test]
fn clients_that_end_their_side_keep_no_thread_from_others() {
    const SOON: Duration = Duration::from_secs(10);
    let server = start("scan_rows_max = 1000000000000");
    let ended = |_| {
        let client = get(&server, "/triples", "");
        client.stream.shutdown(std::net::Shutdown::Write).expect("it is open");
        client
    };
    // With a second for each of them, the two threads would be busy for 20.
    let ended: Vec<Client> = (0..40).map(ended).collect();
    let began = Instant::now();
    let answer = get(&server, "/pairs?least=19980", "Accept: application/x-ndjson\r\n").answer(false);
    assert_eq!((answer.status, answer.text()), (200, "{\"id\":999,\"other\":999}\n"));
    assert!(began.elapsed() < SOON, "its turn came after {:?}", began.elapsed());
    drop(ended);
}

/// A query of minutes that has sent no row yet ends when its client disconnects.
#[track_caller]
fn check_ended(server: &TestServer, ask: impl Fn() -> Client) {
    let client = ask();
    wait_until("the query", || server.metric("sapsan_pool_running") == 1.0);
    drop(client);
    wait_until("the query's end", || server.metric("sapsan_pool_running") == 0.0);
}

#[test]
fn a_query_without_a_row_ends_with_its_client() {
    let server = start("scan_rows_max = 1000000000000");
    let triples = "FROM items a JOIN items b ON a.price + b.price >= 0 JOIN items c ON b.price + c.price >= 0";
    let counted = format!("SELECT COUNT(*) AS n {triples}");
    check_ended(&server, || ask(&server, &counted, "*/*"));
    check_ended(&server, || get(&server, "/triples", ""));
    check_ended(&server, || get(&server, "/triples/sorted", ""));
    check_ended(&server, || get(&server, "/triples/sorted", "Accept: text/csv\r\n"));
    // A connection is not read any more after a request with `Connection: close`.
    check_ended(&server, || get(&server, "/triples", "Connection: close\r\n"));
    check_ended(&server, || {
        let mut client = server.connect();
        let body = json!({ "sql": format!("SELECT b.id, COUNT(*) AS n {triples} GROUP BY b.id"), "limit": 5 });
        client.send("POST", "/_/query", "", body.to_string().as_bytes());
        client
    });
}

#[test]
fn a_client_that_has_ended_its_half_is_answered_soon_or_told() {
    let server = start("scan_rows_max = 1000000000000");
    let mut soon = ask(&server, "SELECT id FROM items LIMIT 100", "*/*");
    soon.stream.shutdown(std::net::Shutdown::Write).expect("a half that is open");
    assert_eq!(soon.answer(false).status, 200);
    let mut late = get(&server, "/triples", "");
    late.stream.shutdown(std::net::Shutdown::Write).expect("a half that is open");
    let told = late.answer(false);
    assert!(told.status == 400 && told.text().contains("keep it open"), "{} {}", told.status, told.text());
}

#[test]
fn clients_that_do_not_read_large_results_keep_no_thread_from_others() {
    let server = start("memory = \"64MiB\"");
    let silent: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = ask(&server, MILLION, "*/*");
            assert!(client.head().starts_with("HTTP/1.1 200"));
            client
        })
        .collect();
    assert_eq!(server.metric("sapsan_pool_running"), 2.0);
    // Small results, whose clients do not read them either, leave their thread at once.
    let begun = std::time::Instant::now();
    let small: Vec<Client> = (0..8).map(|_| get(&server, "/pairs?least=19900", "Accept: text/csv\r\n")).collect();
    let few = ask(&server, "SELECT id FROM items LIMIT 100", "*/*").answer(false);
    assert_eq!(few.status, 200);
    for mut client in small {
        assert_eq!(client.answer(false).status, 200);
    }
    // Long before those clients are disconnected for receiving nothing, which is after 30 seconds.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    drop(silent);
}

#[test]
fn what_a_client_that_has_gone_had_asked_for_is_not_begun() {
    let server = start("scan_rows_max = 1000000000000");
    let triples = "FROM items a JOIN items b ON a.price + b.price >= 0 JOIN items c ON b.price + c.price >= 0";
    let busy: Vec<Client> = (0..2).map(|_| ask(&server, &format!("SELECT COUNT(*) AS n {triples}"), "*/*")).collect();
    wait_until("both threads are taken", || server.metric("sapsan_pool_running") == 2.0);
    let gone = ask(&server, "UPDATE items SET note = 'changed' WHERE id = 5", "*/*");
    wait_until("it waits", || server.metric("sapsan_pool_queued") == 1.0);
    socket2::SockRef::from(&gone.stream).set_linger(Some(Duration::ZERO)).expect("an option");
    drop(gone);
    // When this is answered, the loop has noticed it.
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(server.get("/_/health").status, 200);
    drop(busy);
    wait_until("the pool is idle", || {
        server.metric("sapsan_pool_running") + server.metric("sapsan_pool_queued") == 0.0
    });
    let rows = server.query(&json!({ "sql": "SELECT COUNT(*) AS n FROM items WHERE note = 'changed'" }));
    assert_eq!(rows.json(), json!([{ "n": 0 }]));
}

#[test]
fn a_slow_reader_of_wide_rows_slows_only_its_query() {
    let server = TestServer::start("memory = \"64MB\"\nquery_seconds = 600", DECLARED);
    let note = "n".repeat(200_000);
    for id in 0..60 {
        let body = json!({ "id": id, "group": "g", "price": 1, "note": note }).to_string();
        assert_eq!(server.ask("PUT", &format!("/_/collections/items/{id}"), "", body.as_bytes()).status, 201);
    }
    let mut slow = ask(&server, "SELECT id, note FROM items", "application/x-ndjson");
    assert!(slow.head().starts_with("HTTP/1.1 200"));
    let held = || server.metric("sapsan_replies_in_flight_bytes");
    // The query waits for its client, with what it may keep for it: again and again as much, although its client takes nothing.
    let bound = server.metric("sapsan_memory_bound_bytes{part=\"large_replies\"}");
    for _ in 0..25 {
        std::thread::sleep(Duration::from_millis(20));
        assert!(held() < bound / 2.0, "{} of {bound}", held());
    }
    assert_eq!(server.metric("sapsan_pool_running"), 1.0);
    let mut body = Vec::new();
    assert!(slow.rest_is_whole(&mut body), "after {} bytes", body.len());
    assert_eq!(body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 60);
    assert_eq!(server.metric("sapsan_http_hoarders_total"), 0.0);
}
