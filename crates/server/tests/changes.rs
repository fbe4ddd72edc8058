//! The feed of changes: every change once and in order, across connections; filters; consumers that are too slow or too late;
//! invalid requests.

use std::io::Read;
use std::net::TcpStream;

use crate::harness::{Answer, TestServer};
use serde_json::{Value as Json, json};

const MORE: &str = "[collections.notes]\nkey = { field = \"id\", type = \"string\" }\n";

/// Heartbeats before an event, one every ten seconds: no wait is longer.
const SIGNS_MAX: u32 = 6;

/// A consumer of the feed: the lines of its body.
struct Consumer {
    stream: TcpStream,
    /// Bytes of the body that are not read as lines yet.
    unread: Vec<u8>,
    raw: Vec<u8>,
    is_ended: bool,
}

impl Consumer {
    #[track_caller]
    fn connect(server: &TestServer, target: &str, fields: &str) -> Consumer {
        let mut client = server.connect();
        client.send("GET", target, fields, b"");
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
        let (stream, raw) = client.into_parts();
        Consumer { stream, unread: Vec::new(), raw, is_ended: false }
    }

    /// Joins the complete chunks.
    fn unchunk(&mut self) {
        while let Some(end) = self.raw.windows(2).position(|two| two == b"\r\n") {
            let size = std::str::from_utf8(&self.raw[..end]).expect("a size");
            let size = usize::from_str_radix(size, 16).expect("a size");
            if self.raw.len() < end + 2 + size + 2 {
                return;
            }
            self.unread.extend_from_slice(&self.raw[end + 2..end + 2 + size]);
            self.raw.drain(..end + 2 + size + 2);
            self.is_ended |= size == 0;
        }
    }

    /// The next line; `None` at the body's end.
    #[track_caller]
    fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8(self.unread.drain(..=end).collect()).expect("UTF-8");
                return Some(line.trim_end().to_owned());
            }
            if self.is_ended {
                assert!(self.unread.is_empty(), "half a line");
                return None;
            }
            let mut piece = [0; 16 << 10];
            let read = self.stream.read(&mut piece).expect("the feed goes on in time");
            assert!(read > 0, "the connection was cut");
            self.raw.extend_from_slice(&piece[..read]);
            self.unchunk();
        }
    }

    /// The next event of a feed in lines, skipping heartbeats.
    #[track_caller]
    fn event(&mut self) -> Json {
        let mut signs = 0;
        loop {
            assert!(signs <= SIGNS_MAX, "it lives, and nothing comes");
            signs += 1;
            let line = self.line().expect("the feed goes on");
            let event: Json = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if event.get("op").is_some() || event.get("end").is_some() {
                return event;
            }
        }
    }

    /// The next event of a feed of server-sent events: id and data.
    #[track_caller]
    fn sent_event(&mut self) -> (String, Json) {
        let (mut id, mut data, mut signs) = (String::new(), None, 0);
        loop {
            assert!(signs <= SIGNS_MAX, "it lives, and nothing comes");
            let line = self.line().expect("the feed goes on");
            match line.split_once(": ") {
                Some(("id", text)) => id = text.to_owned(),
                Some(("data", text)) => data = Some(serde_json::from_str(text).expect("JSON")),
                _ if line.is_empty() => match data.take() {
                    Some(data) => return (id, data),
                    None => id.clear(),
                },
                _ if line == ":" => signs += 1,
                _ => assert!(line.starts_with("retry: ") || line == "event: end", "{line}"),
            }
        }
    }
}

/// Checks that a failure is a problem document of its status.
#[track_caller]
fn check_problem(answer: &Answer, status: u16) {
    assert_eq!(
        (answer.status, answer.json()["status"].as_u64()),
        (status, Some(u64::from(status))),
        "{}",
        answer.text()
    );
    assert_eq!(answer.field("Content-Type"), Some("application/problem+json"));
}

/// Only durable changes are sent: with `durability = "none"` that would be at checkpoints.
fn start(settings: &str, more: &str) -> TestServer {
    TestServer::start(&format!("durability = \"commit\"\n{settings}"), more)
}

fn put(server: &TestServer, id: u32, price: u32) -> u64 {
    let body = json!({ "id": id, "group": "g", "price": price }).to_string();
    let answer = server.ask("PUT", &format!("/_/collections/items/{id}"), "", body.as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    change_of(&answer)
}

fn change_of(answer: &Answer) -> u64 {
    answer.field("ETag").expect("a tag").trim_matches('"').parse().expect("a number")
}

#[test]
fn each_kind_of_change_is_told_as_it_is_acknowledged() {
    let server = start("", MORE);
    let mut all = Consumer::connect(&server, "/_/changes", "");
    let mut notes = Consumer::connect(&server, "/_/changes?collection=notes", "");
    let first = put(&server, 7, 70);
    let told = all.event();
    let document = json!({ "id": 7, "group": "g", "price": 70 });
    let expected = json!({ "change": first, "collection": "items", "op": "put", "key": 7, "document": document });
    assert_eq!(told, expected);
    let note = server.ask("POST", "/_/collections/notes", "", b"{\"id\":\"a\\\"b\",\"x\":1}");
    assert_eq!(note.status, 201);
    let expected = json!({
        "change": change_of(&note), "collection": "notes", "op": "put", "key": "a\"b", "document": { "id": "a\"b", "x": 1 },
    });
    assert_eq!((all.event(), notes.event()), (expected.clone(), expected));
    assert_eq!(server.ask("DELETE", "/_/collections/items/7", "", b"").status, 204);
    let gone = all.event();
    assert_eq!((&gone["op"], &gone["key"], gone.get("document")), (&json!("delete"), &json!(7), None));
    let same = put(&server, 8, 80);
    assert_eq!(all.event()["change"], same);
    // A write that changes nothing is no change.
    assert_eq!(put(&server, 8, 80), same);
    let next = put(&server, 9, 90);
    assert_eq!(all.event()["change"], next);
    assert_eq!(server.metric("sapsan_changes_consumers"), 2.0);
}

#[test]
fn a_consumer_that_comes_again_goes_on_where_it_was_from_the_window_and_from_the_log() {
    let server = start("", MORE);
    let mut changes: Vec<u64> = (0..300).map(|id| put(&server, id, id)).collect();
    // There is no consumer: the log has the change.
    for since in [0, changes[0], changes[250]] {
        let mut consumer = Consumer::connect(&server, &format!("/_/changes?since={since}"), "");
        for expected in changes.iter().filter(|change| **change > since) {
            assert_eq!(consumer.event()["change"], *expected);
        }
        // It is live now.
        let next = put(&server, 1000, u32::try_from(since).expect("small"));
        assert_eq!(consumer.event()["change"], next);
        changes.push(next);
    }
    // While another consumer is live, the window has it.
    let mut follower = Consumer::connect(&server, "/_/changes", "Accept: text/event-stream\r\n");
    let newer: Vec<u64> = (0..50).map(|id| put(&server, id, 1000 + id)).collect();
    let mut last = String::new();
    for expected in &newer[..20] {
        let (id, data) = follower.sent_event();
        assert_eq!((id.as_str(), &data["change"]), (expected.to_string().as_str(), &json!(expected)));
        last = id;
    }
    let fields = format!("Accept: text/event-stream\r\nLast-Event-ID: {last}\r\n");
    let mut again = Consumer::connect(&server, "/_/changes?since=1", &fields);
    drop(follower);
    for expected in &newer[20..] {
        assert_eq!(again.sent_event().0, expected.to_string());
    }
}

#[test]
fn many_consumers_get_every_change_of_many_writers_once_and_in_order() {
    const WRITERS: u32 = 4;
    const WRITES: u32 = 400;
    const CONSUMERS: usize = 20;
    let server = start("threads = 2", "");
    let since = put(&server, 0, 0);
    std::thread::scope(|scope| {
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                let server = &server;
                scope.spawn(move || {
                    let mut since = since.to_string();
                    let (mut seen, mut connections) = (Vec::new(), 0);
                    let total = (WRITERS * WRITES) as usize;
                    while seen.len() < total {
                        connections += 1;
                        let mut consumer = Consumer::connect(server, &format!("/_/changes?since={since}"), "");
                        // Reconnects after a while; the last consumers more often.
                        for _ in 0..(60 + 97 * (CONSUMERS - number)) {
                            if seen.len() == total {
                                break;
                            }
                            let event = consumer.event();
                            let change = event["change"].as_u64().expect("a number");
                            seen.push((change, event["key"].as_u64().expect("a key")));
                            since = change.to_string();
                        }
                    }
                    assert!(connections > 0 && seen.is_sorted());
                    seen
                })
            })
            .collect();
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.connect();
                    let mut acknowledged = Vec::new();
                    for number in 0..WRITES {
                        let id = writer * 10_000 + number;
                        let body = json!({ "id": id, "group": "g", "price": number }).to_string();
                        client.send("POST", "/_/collections/items", "", body.as_bytes());
                        let answer = client.answer(false);
                        assert_eq!(answer.status, 201);
                        acknowledged.push((change_of(&answer), u64::from(id)));
                    }
                    acknowledged
                })
            })
            .collect();
        let mut acknowledged: Vec<_> =
            writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
        acknowledged.sort_unstable();
        for consumer in consumers {
            assert_eq!(consumer.join().expect("a consumer"), acknowledged);
        }
    });
}

#[test]
fn a_consumer_that_does_not_read_is_cut_off_and_goes_on_where_it_was() {
    let server = start("memory = \"64MiB\"\nchanges_kept_bytes = \"200MB\"", "");
    let mut slow = Consumer::connect(&server, "/_/changes", "");
    let mut quick = Consumer::connect(&server, "/_/changes", "");
    let note = "n".repeat(100_000);
    let mut changes = Vec::new();
    for id in 0..200 {
        let body = json!({ "id": id, "group": "g", "price": 1, "note": note }).to_string();
        changes.push(change_of(&server.ask("POST", "/_/collections/items", "", body.as_bytes())));
        assert_eq!(quick.event()["change"], changes[changes.len() - 1]);
    }
    let mut seen = Vec::new();
    let end = loop {
        let event = slow.event();
        match event["change"].as_u64() {
            Some(change) => seen.push(change),
            None => break event,
        }
    };
    assert!(end["end"].as_str().is_some_and(|why| why.starts_with("too slow")), "{end}");
    assert_eq!(slow.line(), None, "the body ends as a whole one");
    assert_eq!(end["since"], seen[seen.len() - 1], "{end}");
    assert_eq!(server.metric("sapsan_changes_cut_off_total"), 1.0);
    let mut again = Consumer::connect(&server, &format!("/_/changes?since={}", seen[seen.len() - 1]), "");
    while seen.len() < changes.len() {
        seen.push(again.event()["change"].as_u64().expect("a change"));
    }
    assert_eq!(seen, changes);
}

#[test]
fn who_begins_early_is_served_with_little_memory_too() {
    for memory in ["32MiB", "40MB", "48MB", "64MB"] {
        let server = start(&format!("memory = \"{memory}\""), "");
        for id in 0..3 {
            let body = json!({ "id": id, "group": "g", "price": 1 }).to_string();
            assert_eq!(server.ask("POST", "/_/collections/items", "", body.as_bytes()).status, 201);
        }
        // A live consumer holds the memory that the feed needs for itself.
        let mut follows = Consumer::connect(&server, "/_/changes", "");
        let mut behind = Consumer::connect(&server, "/_/changes?since=0", "");
        for id in 0..3 {
            assert_eq!(behind.event()["key"], id, "{memory}");
        }
        assert_eq!(server.ask("DELETE", "/_/collections/items/0", "", b"").status, 204);
        assert_eq!((&follows.event()["op"], &behind.event()["op"]), (&json!("delete"), &json!("delete")));
    }
}

#[test]
fn consumers_that_do_not_take_their_pieces_do_not_keep_others_from_theirs() {
    let server = start("", "");
    let note = "n".repeat(100_000);
    let body = |id: u32| json!({ "id": id, "group": "g", "price": 1, "note": note }).to_string();
    (0..150).for_each(|id| {
        assert_eq!(server.ask("POST", "/_/collections/items", "", body(id).as_bytes()).status, 201);
    });
    let lazy: Vec<Consumer> = (0..6).map(|_| Consumer::connect(&server, "/_/changes?since=0", "")).collect();
    let mut eager = Consumer::connect(&server, "/_/changes?since=0", "");
    for id in 0..150 {
        assert_eq!(eager.event()["key"], id);
    }
    drop(lazy);
}

#[test]
fn many_consumers_that_do_not_read_do_not_delay_one_that_is_behind() {
    let server = start("changes_kept_bytes = \"64MiB\"", "");
    // Small pieces, so that a client that does not read stops in the middle of one.
    let note = "n".repeat(10_000);
    let line = |id| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1,\"note\":\"{note}\"}}\n");
    for first in (0..600).step_by(60) {
        let lines: String = (first..first + 60).map(line).collect();
        assert_eq!(server.ask("POST", "/_/collections/items/bulk", "", lines.as_bytes()).status, 200);
    }
    let silent: Vec<_> = (0..150)
        .map(|_| {
            let mut client = server.connect();
            client.send("GET", "/_/changes?since=0", "", b"");
            client
        })
        .collect();
    let begun = std::time::Instant::now();
    let mut honest = Consumer::connect(&server, "/_/changes?since=0", "");
    for _ in 0..600 {
        assert_eq!(honest.event()["op"], "put");
    }
    // A fifth of a second for each of the silent ones would be half a minute.
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    drop(silent);
}

#[test]
fn draining_ends_every_feed_as_a_whole_body() {
    let server = start("", "");
    let change = put(&server, 1, 1);
    let mut lines = Consumer::connect(&server, "/_/changes?since=0", "");
    let mut events = Consumer::connect(&server, "/_/changes", "Accept: text/event-stream\r\n");
    assert_eq!(lines.event()["change"], change);
    drop(server);
    let end = lines.event();
    assert!(end["end"].as_str().is_some_and(|why| why.starts_with("the server stops")), "{end}");
    assert_eq!((end["since"].as_u64(), lines.line()), (Some(change), None), "{end}");
    assert_eq!(events.sent_event().1["since"], change);
    assert_eq!(events.line(), None);
}

#[test]
fn what_is_wrong_is_refused_and_what_is_too_old_says_from_where_there_is_more() {
    let server = start("", "");
    let change = put(&server, 1, 1);
    for (target, status) in [
        ("since=x", 400),
        ("since=-1", 400),
        ("since=1.0", 400),
        ("since=1&since=1", 400),
        ("collection=nobody", 404),
        ("limit=1", 400),
        ("since=99999999", 400),
    ] {
        check_problem(&server.get(&format!("/_/changes?{target}")), status);
    }
    check_problem(&server.ask("GET", "/_/changes", "Last-Event-ID: x\r\n", b""), 400);
    let ahead = server.get(&format!("/_/changes?since={}", change + 1));
    assert!(ahead.text().contains(&format!("newest change is {change}")), "{}", ahead.text());
    let head = server.ask("HEAD", "/_/changes", "", b"");
    assert_eq!((head.status, head.field("Content-Type")), (200, Some("application/x-ndjson")));
    assert_eq!(server.ask("POST", "/_/changes", "", b"").status, 405);
}

#[test]
fn changes_that_are_kept_no_longer_are_gone_with_the_number_from_which_they_are_there() {
    let server = start("memory = \"64MiB\"", "");
    let note = "n".repeat(200_000);
    // Checkpoints allow segments of the log to be removed.
    let mut oldest = 0.0;
    for id in 0..5_000 {
        let body = json!({ "id": id % 50, "group": "g", "price": id, "note": note }).to_string();
        assert!(matches!(
            server.ask("PUT", &format!("/_/collections/items/{}", id % 50), "", body.as_bytes()).status,
            200 | 201
        ));
        if id % 50 == 0 {
            oldest = server.metric("sapsan_store_changes_oldest");
            if oldest > 1.0 {
                break;
            }
        }
    }
    assert!(oldest > 1.0, "no segment of the log went");
    let gone = server.get("/_/changes?since=0");
    check_problem(&gone, 410);
    let from = gone.json()["oldest"].as_u64().expect("a number");
    assert!(from as f64 >= oldest);
    let mut consumer = Consumer::connect(&server, &format!("/_/changes?since={from}"), "");
    assert!(consumer.event()["change"].as_u64() > Some(from));
}

/// Many documents, and settings with which the feed's part of the memory is about half of all for large replies.
fn with_older_changes() -> TestServer {
    let server = start("memory = \"64MiB\"\nchanges_kept_bytes = \"200MB\"", "");
    let note = "n".repeat(10_000);
    for start in (0..1_000).step_by(50) {
        let line = |id| json!({ "id": id, "group": "g", "price": id, "note": note }).to_string() + "\n";
        let lines: String = (start..start + 50).map(line).collect();
        assert_eq!(server.ask("POST", "/_/collections/items/bulk", "", lines.as_bytes()).status, 200);
    }
    server
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{what} never came");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_consumer_that_waits_holds_no_memory_and_a_window_holds_its_changes() {
    let server = start("memory = \"64MiB\"", "");
    let held = || server.metric("sapsan_replies_in_flight_bytes");
    let mut consumer = Consumer::connect(&server, "/_/changes", "");
    // The first line is sent once the feed has opened its window.
    assert!(consumer.line().is_some());
    assert_eq!(held(), 0.0);
    put(&server, 1, 1);
    assert_eq!(consumer.event()["key"], 1);
    assert_eq!(held(), server.metric("sapsan_changes_window_bytes"));
    assert!(held() > 0.0);
}

#[test]
fn consumers_that_stand_still_hold_no_memory_and_reset_no_query() {
    let server = with_older_changes();
    let lazy: Vec<Consumer> = (0..6).map(|_| Consumer::connect(&server, "/_/changes?since=0", "")).collect();
    // Long enough that an account from the beginning of the query would look like one that holds its bytes all the time.
    let sql = "SELECT a.id, b.price FROM items a JOIN items b ON a.price + b.price >= 0 ORDER BY b.price * 7919 % 1009, a.id LIMIT 100";
    for _ in 0..3 {
        let answer = server.query(&json!({ "sql": sql }));
        assert_eq!((answer.status, answer.json().as_array().map(Vec::len)), (200, Some(100)), "{}", answer.text());
    }
    wait_until("the end of their seats", || server.metric("sapsan_replies_in_flight_bytes") == 0.0);
    assert_eq!(server.metric("sapsan_changes_behind"), 6.0);
    assert_eq!(server.metric("sapsan_http_hoarders_total"), 0.0);
    // They lose nothing by that.
    let mut seen: Vec<u64> = Vec::new();
    let mut first = lazy.into_iter().next().expect("a consumer");
    while seen.len() < 1_000 {
        seen.push(first.event()["key"].as_u64().expect("a key"));
    }
    assert!(seen.into_iter().eq(0..1_000));
}
