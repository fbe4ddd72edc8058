//! Bulk bodies of any length: read at the pace of the store, with a report of each failed line and of the last line that was
//! taken.

use crate::harness::{Answer, Client, TestServer};
use serde_json::{Value as Json, json};
use std::io::Write;

const BULK: &str = "/_/collections/items/bulk";

fn line(id: u32) -> String {
    format!("{{\"id\":{id},\"group\":\"g\",\"price\":{id}}}\n")
}

/// Begins a chunked body.
fn begin(server: &TestServer, fields: &str) -> Client {
    let mut client = server.connect();
    let head = format!("POST {BULK} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{fields}\r\n");
    client.stream.write_all(head.as_bytes()).unwrap();
    client
}

fn send_chunk(client: &mut Client, text: &str) {
    client.stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).unwrap();
}

fn count(server: &TestServer) -> u64 {
    let rows = server.query(&json!({ "sql": "SELECT COUNT(*) AS n FROM items" })).json();
    rows[0]["n"].as_u64().unwrap()
}

/// Waits until there are this many documents.
#[track_caller]
fn wait_for(server: &TestServer, documents: u64) {
    let began = std::time::Instant::now();
    while count(server) < documents {
        assert!(began.elapsed().as_secs() < 30, "{} documents", count(server));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn told(answer: &Answer) -> Vec<Json> {
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_body_may_have_more_lines_and_bytes_than_any_that_is_gathered() {
    let server = TestServer::start("memory = \"64MB\"", "");
    const MANY: u32 = 60_000;
    let lines: String = (0..MANY).map(line).collect();
    assert!(lines.len() > 1 << 20);
    let answer = server.ask("POST", BULK, "", lines.as_bytes());
    assert_eq!((answer.status, answer.text()), (200, ""));
    let mut client = begin(&server, "");
    for start in (0..MANY).step_by(1_000) {
        // Chunks end anywhere.
        let (first, second) = lines_of(MANY + start, 1_000);
        send_chunk(&mut client, &first);
        send_chunk(&mut client, &second);
    }
    client.stream.write_all(b"0\r\n\r\nGET /_/health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let answer = client.answer(false);
    assert_eq!((answer.status, answer.text()), (200, ""));
    assert_eq!(client.answer(false).json(), json!({ "status": "ok" }));
    assert_eq!(count(&server), u64::from(2 * MANY));
    assert_eq!(server.metric("sapsan_writes_in_flight_bytes"), 0.0);
}

fn lines_of(first: u32, lines: u32) -> (String, String) {
    let mut text: String = (first..first + lines).map(line).collect();
    let rest = text.split_off(text.len() / 3);
    (text, rest)
}

#[test]
fn lines_are_stored_while_the_body_is_on_its_way() {
    let server = TestServer::start("", "");
    let mut client = begin(&server, "");
    send_chunk(&mut client, &format!("{}{}{}", line(1), line(2), "{\"id\":3,"));
    wait_for(&server, 2);
    send_chunk(&mut client, "\"group\":\"g\",\"price\":1}");
    client.stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(client.answer(false).status, 200);
    assert_eq!(count(&server), 3, "the last line needs no end");
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_next_one_is_stored() {
    let server = TestServer::start("body_bytes_max = \"64KiB\"", "");
    let long = format!("{{\"id\":7,\"note\":\"{}\"}}\n", "n".repeat(200_000));
    let answer = server.ask("POST", BULK, "", format!("{}{long}{}{}", line(1), line(2), line(1)).as_bytes());
    let told = told(&answer);
    let pairs: Vec<_> = told.iter().map(|line| (line["line"].as_u64(), line["status"].as_u64())).collect();
    assert_eq!(pairs, [(Some(2), Some(413)), (Some(4), Some(409))], "{}", answer.text());
    assert!(told[0]["detail"].as_str().unwrap().contains("body_bytes_max"), "{}", answer.text());
    assert_eq!(count(&server), 2);
}

#[test]
fn failures_beyond_a_bound_are_counted_and_the_lines_behind_them_stored() {
    let server = TestServer::start("memory = \"64MB\"", "");
    let bad = "{}\n".repeat(30_000);
    let answer = server.ask("POST", BULK, "", format!("{bad}{}", line(1)).as_bytes());
    assert_eq!(answer.status, 200);
    let mut told = told(&answer);
    let last = told.pop().unwrap();
    assert!((100..30_000).contains(&told.len()), "{} are told", told.len());
    assert_eq!(last["more"].as_u64(), Some(30_000 - told.len() as u64), "{last}");
    assert_eq!(last["statuses"], json!({ "400": last["more"] }));
    let lines: Vec<_> = told.iter().map(|line| line["line"].as_u64().unwrap()).collect();
    assert!(lines.is_sorted() && lines[0] == 1);
    assert_eq!(count(&server), 1);
    assert_eq!(server.metric("sapsan_writes_in_flight_bytes"), 0.0);
}

#[test]
fn reports_of_many_bulks_leave_room_for_the_writes_of_others() {
    const BULKS: u32 = 12;
    let server = TestServer::start("memory = \"64MB\"", "");
    let bulks: Vec<Client> = (0..BULKS)
        .map(|bulk| {
            let mut client = begin(&server, "");
            // The last line is stored when the others have been refused. The body does not end.
            send_chunk(&mut client, &("{\"id\":1}\n".repeat(9_000) + &line(bulk)));
            client
        })
        .collect();
    wait_for(&server, u64::from(BULKS));
    let put = server.ask("PUT", "/_/collections/items/99", "", line(99).as_bytes());
    assert_eq!(put.status, 201, "{}", put.text());
    drop(bulks);
}

#[test]
fn a_body_that_ends_otherwise_than_it_should_keeps_its_lines_and_the_reply_tells_them() {
    let server = TestServer::start("", "");
    let mut client = begin(&server, "");
    send_chunk(&mut client, &format!("{}{}{}{{\"id\"", line(1), line(1), line(2)));
    wait_for(&server, 2);
    client.stream.write_all(b"no size\r\n").unwrap();
    let answer = client.answer(false);
    let detail = answer.json()["detail"].as_str().unwrap().to_owned();
    assert_eq!(answer.status, 400);
    assert!(
        detail.contains("chunk size") && detail.contains("lines 1 to 3 were taken before, and 1 of them refused"),
        "{detail}"
    );
    assert!(detail.contains("\"line\":2") && answer.field("Connection") == Some("close"), "{}", answer.head);
    assert_eq!(count(&server), 2);
    // The lines of a client that disconnects in the middle are kept too.
    let mut client = begin(&server, "");
    send_chunk(&mut client, &line(3));
    wait_for(&server, 3);
    drop(client);
    assert_eq!(server.metric("sapsan_writes_in_flight_bytes"), 0.0);
}

#[test]
fn what_is_refused_by_its_head_is_answered_before_its_body() {
    let server = TestServer::start("", "");
    let mut client = begin(&server, "Content-Encoding: gzip\r\n");
    assert_eq!(client.answer(false).status, 415);
    let mut client = server.connect();
    let head = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n";
    client.stream.write_all(format!("POST /_/collections/nobody/bulk {head}").as_bytes()).unwrap();
    let answer = client.answer(false);
    assert_eq!((answer.status, answer.field("Connection")), (404, Some("close")));
    let mut client = server.connect();
    client.stream.write_all(format!("POST {BULK} {head}").as_bytes()).unwrap();
    assert!(client.head().starts_with("HTTP/1.1 100 "));
}

#[test]
fn another_configuration_takes_over_while_a_body_is_on_its_way() {
    let file = |more: &str| {
        let collections = crate::harness::COLLECTIONS
            .replace("[collections.items.schema]\n", &format!("{more}[collections.items.schema]\n"));
        format!("{collections}[server]\n{}", crate::harness::SERVER)
    };
    let server = TestServer::of_file(&file("")).unwrap();
    let mut client = begin(&server, "");
    send_chunk(&mut client, &line(1));
    wait_for(&server, 1);
    for (more, id) in [("indexes = [[\"group\"]]\n", 2), ("unique = [\"price\"]\n", 3)] {
        assert_eq!(server.reload_dropping(&file(more)).status, 200);
        send_chunk(&mut client, &line(id));
        wait_for(&server, u64::from(id));
    }
    // Nothing holds old configurations.
    let began = std::time::Instant::now();
    while server.metric("sapsan_config_held") > 1.0 {
        assert!(began.elapsed().as_secs() < 30, "an old one is kept");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    send_chunk(&mut client, "{\"id\":9,\"group\":\"g\",\"price\":3}\n");
    client.stream.write_all(b"0\r\n\r\n").unwrap();
    let answer = client.answer(false);
    assert_eq!((answer.status, told(&answer)[0]["status"].as_u64()), (200, Some(409)), "{}", answer.text());
}
