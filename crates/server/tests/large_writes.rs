//! Large writes, and long documents under a JSON Schema that is not plain: another thread prepares them, in order.

use crate::harness::{Client, TestServer};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Limit of any wait; it is not reached.
const PATIENCE: Duration = Duration::from_secs(60);

/// Documents of nested objects, which the general checker follows.
const TREES: &str = r##"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
"$ref" = "#/$defs/tree"
[collections.trees.schema."$defs".tree]
anyOf = [
    { type = "object", additionalProperties = { "$ref" = "#/$defs/tree" } },
    { type = "array", items = { "$ref" = "#/$defs/tree" }, uniqueItems = true },
    { type = ["integer", "string"] },
]
[[endpoints]]
route = "POST /trees/{id}"
update = "trees/{id}"
"##;

/// The limit of one transaction at `memory = "64MB"` is 500 KB.
const SMALL: &str = "memory = \"64MB\"\nbody_bytes_max = \"1MiB\"";

/// A document of about this many bytes.
fn tree(id: u32, bytes: usize) -> String {
    let branch = "{\"a\":".repeat(100) + "[1,2]" + &"}".repeat(100);
    let count = bytes / (branch.len() + 8);
    let branches: Vec<String> = (0..count).map(|number| format!("\"b{number}\":{branch}")).collect();
    format!("{{\"id\":{id},\"tree\":{{{}}}}}", branches.join(","))
}

#[track_caller]
fn large_writes(server: &TestServer, expected: f64) {
    let begun = Instant::now();
    while server.metric("sapsan_large_writes_total") != expected {
        assert!(begun.elapsed() < PATIENCE, "{}", server.metric("sapsan_large_writes_total"));
    }
}

#[test]
fn long_documents_under_any_schema_and_large_bodies_are_no_work_of_a_loop() {
    let server = TestServer::start("", TREES);
    let put = |collection: &str, id: u32, body: &str| {
        let answer = server.ask("PUT", &format!("/_/collections/{collection}/{id}"), "", body.as_bytes());
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
    };
    put("trees", 1, &tree(1, 2 << 10));
    let item =
        |id: u32, bytes: usize| json!({"id": id, "group": "g", "price": 1, "note": "n".repeat(bytes)}).to_string();
    put("items", 1, &item(1, 200 << 10));
    large_writes(&server, 0.0);
    put("trees", 2, &tree(2, 32 << 10));
    put("items", 2, &item(2, 300 << 10));
    large_writes(&server, 2.0);
    // A small patch of a long document, through both APIs; and of a short one.
    assert_eq!(server.ask("PATCH", "/_/collections/trees/2", "", br#"{"more":1}"#).status, 200);
    assert_eq!(server.ask("POST", "/trees/2", "", br#"{"more":2}"#).status, 200);
    assert_eq!(server.ask("POST", "/trees/1", "", br#"{"more":2}"#).status, 200);
    large_writes(&server, 4.0);
    let refused = server.ask("POST", "/trees/2", "", br#"{"more":2.5}"#);
    assert_eq!(refused.status, 400, "{}", refused.text());
    let lines = format!("{}\n{}\n{}\n", tree(3, 6 << 10), tree(4, 1 << 10), tree(5, 6 << 10).replace("[1,2]", "[1,1]"));
    let answer = server.ask("POST", "/_/collections/trees/bulk", "", lines.as_bytes());
    assert_eq!(answer.status, 200);
    assert_eq!((answer.text().lines().count(), answer.json()["line"].as_u64()), (1, Some(3)), "{}", answer.text());
    large_writes(&server, 7.0);
    assert_eq!(server.get("/_/collections/trees/3").status, 200);
}

#[test]
fn a_long_body_of_steps_is_checked_off_the_loop_and_its_fields_are_parameters_all_the_same() {
    let steps = r#"
[[endpoints]]
route = "POST /add/{id}"
params = { more = { type = "integer" } }
steps = [{ sql = "INSERT INTO items (id, \"group\", price, note) VALUES (:id, :group, :more, :note) RETURNING id, price" }]
[endpoints.body]
type = "object"
required = ["group", "note"]
properties = { group = { type = "string", pattern = "^g" }, note = { type = "array", items = { type = "integer" } } }
"#;
    let server = TestServer::start("", steps);
    let body = |group: &str, count: usize| json!({"group": group, "note": vec![7; count]}).to_string();
    for (id, count) in [(1, 10), (2, 5_000)] {
        let answer = server.ask("POST", &format!("/add/{id}?more=5"), "", body("g", count).as_bytes());
        assert_eq!((answer.status, answer.json()), (200, json!([{"id": id, "price": 5}])), "{}", answer.text());
        let refused = server.ask("POST", &format!("/add/{}?more=5", id + 10), "", body("x", count).as_bytes());
        assert_eq!(refused.status, 400, "{}", refused.text());
    }
    let found = server.get("/_/collections/items/2").json();
    assert_eq!(found["note"].as_str().map(|note| note.matches('7').count()), Some(5_000));
}

#[test]
fn a_large_write_keeps_its_turn_among_those_of_its_connection() {
    let server = TestServer::start("", TREES);
    let mut client = server.connect();
    for round in 0..20 {
        // The last one wins, and each sees the result of the one before it.
        client.send("PUT", "/_/collections/trees/1", "", tree(1, 40 << 10).as_bytes());
        client.send("PATCH", "/_/collections/trees/1", "", format!("{{\"round\":{round}}}").as_bytes());
        client.send("GET", "/_/collections/trees/1", "", b"");
        client.send("PUT", "/_/collections/trees/1", "", br#"{"id":1}"#);
        client.send("GET", "/_/collections/trees/1", "", b"");
        let answers: Vec<_> = (0..5).map(|_| client.answer(false)).collect();
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        assert_eq!(statuses[1..], [200; 4], "round {round}");
        assert_eq!(answers[2].json()["round"], round);
        assert_eq!(answers[4].json(), json!({"id": 1}));
    }
}

#[test]
fn a_body_that_fits_into_no_transaction_is_refused_before_it_is_read() {
    let server = TestServer::start(SMALL, TREES);
    // Not JSON: the parser would report 400.
    for (method, target) in
        [("PUT", "/_/collections/trees/1"), ("PATCH", "/_/collections/trees/1"), ("POST", "/trees/1")]
    {
        let answer = server.ask(method, target, "", &vec![b'x'; 900 << 10]);
        assert_eq!(answer.status, 413, "{}", answer.text());
        assert!(answer.text().contains("the most of one transaction"), "{}", answer.text());
    }
    assert_eq!(server.ask("PUT", "/_/collections/trees/1", "", &vec![b'x'; 400 << 10]).status, 400);
    large_writes(&server, 1.0);
}

#[test]
fn clients_that_write_long_documents_leave_the_loop_to_others() {
    let server = TestServer::start(SMALL, TREES);
    server.put_items(1..2);
    let (body, is_over, written) = (tree(1, 430 << 10), AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (server, body, is_over, written) = (&server, &body, &is_over, &written);
            scope.spawn(move || {
                let mut connection = server.connect();
                while !is_over.load(Ordering::Relaxed) {
                    let body = body.replacen("\"id\":1", &format!("\"id\":{client}"), 1);
                    connection.send("PUT", &format!("/_/collections/trees/{client}"), "", body.as_bytes());
                    let answer = connection.answer(false);
                    assert!(matches!(answer.status, 200 | 201 | 503), "{}", answer.text());
                    written.fetch_add(u32::from(answer.status != 503), Ordering::Relaxed);
                }
            });
        }
        let begun = Instant::now();
        let mut reader: Client = server.connect();
        let mut read = 0;
        while (read < 500 || written.load(Ordering::Relaxed) < 16) && begun.elapsed() < PATIENCE {
            reader.send("GET", "/_/collections/items/1", "", b"");
            assert_eq!(reader.answer(false).status, 200);
            read += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(read >= 500 && written.load(Ordering::Relaxed) >= 16, "{read} reads, {written:?} writes");
    });
    assert_eq!(server.metric("sapsan_writes_in_flight_bytes"), 0.0);
}

#[test]
fn a_long_check_ends_with_its_client_and_nothing_is_written() {
    let server = TestServer::start("body_bytes_max = \"4MiB\"", TREES);
    let begun = Instant::now();
    let waits = || server.metric("sapsan_writes_in_flight_bytes") != 0.0;
    // On a busy machine a check may end before the server notices its client.
    for id in 1.. {
        let mut gone = server.connect();
        gone.send("PUT", &format!("/_/collections/trees/{id}"), "", tree(id, 3_900_000).as_bytes());
        while !waits() && server.metric("sapsan_large_writes_total") < f64::from(id) {
            assert!(begun.elapsed() < PATIENCE);
        }
        // The connection is reset.
        socket2::SockRef::from(&gone.stream).set_linger(Some(Duration::ZERO)).expect("an option");
        drop(gone);
        large_writes(&server, f64::from(id));
        while waits() {
            assert!(begun.elapsed() < PATIENCE);
        }
        if server.get(&format!("/_/collections/trees/{id}")).status == 404 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "all {id} were written");
    }
}

/// Both change all trees.
const CHANGES: &str = r#"
[[endpoints]]
route = "POST /touch"
steps = [{ sql = "UPDATE trees SET n = 1" }]
"#;

#[test]
fn a_long_check_in_a_statement_and_in_steps_ends_with_its_client_and_nothing_is_written() {
    let server = TestServer::start("body_bytes_max = \"4MiB\"", &format!("{TREES}{CHANGES}"));
    let text = tree(1, 3_900_000);
    assert_eq!(server.ask("PUT", "/_/collections/trees/1", "", text.as_bytes()).status, 201);
    let statement = json!({ "sql": "UPDATE trees SET n = 1" }).to_string();
    let begun = Instant::now();
    for (target, body) in [("/_/query", &statement[..]), ("/touch", "")] {
        // On a busy machine a check may end before the server notices its client.
        loop {
            let done = server.metric("sapsan_pool_done_total");
            let mut gone = server.connect();
            gone.send("POST", target, "", body.as_bytes());
            while server.metric("sapsan_pool_running") == 0.0 && server.metric("sapsan_pool_done_total") == done {
                assert!(begun.elapsed() < PATIENCE);
            }
            // The connection is reset.
            socket2::SockRef::from(&gone.stream).set_linger(Some(Duration::ZERO)).expect("an option");
            drop(gone);
            while server.metric("sapsan_pool_done_total") == done {
                assert!(begun.elapsed() < PATIENCE);
            }
            if server.get("/_/collections/trees/1").body == text.as_bytes() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{target} went on without its client");
            assert_eq!(server.ask("PUT", "/_/collections/trees/1", "", text.as_bytes()).status, 200);
        }
    }
}

/// A schema that checks each level of a document twice: fifty bytes take it ten thousands of steps.
const COSTLY: &str = r##"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
properties = { tree = { "$ref" = "#/$defs/tree" } }
[collections.trees.schema."$defs".tree]
allOf = [{ items = { "$ref" = "#/$defs/tree" } }, { items = { "$ref" = "#/$defs/tree" } }]
"##;

#[test]
fn short_documents_whose_check_is_long_are_no_work_of_a_loop_and_keep_their_turn() {
    let server = TestServer::start("", COSTLY);
    let costly = |id: u32, depth: usize| format!("{{\"id\":{id},\"tree\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    // As deep as needed: each level multiplies the steps.
    let depth = (1..40).find(|depth| {
        let answer = server.ask("PUT", "/_/collections/trees/1", "", costly(1, *depth).as_bytes());
        assert!(matches!(answer.status, 200 | 201), "{depth}: {}", answer.text());
        server.metric("sapsan_large_writes_total") > 0.0
    });
    let depth = depth.expect("a document whose check is long");
    assert!(costly(1, depth).len() < 500, "{depth}");
    // The loop itself handles one that changes nothing; if others have changed it by then, it is refused as busy.
    assert_eq!(server.ask("PUT", "/_/collections/trees/1", "", br#"{"id":1}"#).status, 200);
    let mut client = server.connect();
    for round in 0..50 {
        client.send("PUT", "/_/collections/trees/1", "", br#"{"id":1,"round":-1}"#);
        client.send("PUT", "/_/collections/trees/1", "", costly(1, depth).as_bytes());
        // These would overtake it.
        client.send("PATCH", "/_/collections/trees/1", "", format!("{{\"round\":{round}}}").as_bytes());
        client.send("PUT", "/_/collections/trees/2", "", br#"{"id":2}"#);
        client.send("GET", "/_/collections/trees/1", "", b"");
        let answers: Vec<_> = (0..5).map(|_| client.answer(false)).collect();
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 201)), "{}", answers[1].text());
        assert_eq!(answers[4].json()["round"], round);
        assert!(answers[4].json()["tree"].is_array(), "{}", answers[4].text());
    }
    // Those and the patches of them, except those that the loop could decide itself.
    assert!(server.metric("sapsan_large_writes_total") >= 100.0, "{}", server.metric("sapsan_large_writes_total"));
    let lines = format!("{}\n{}\n{{\"id\":12}}\n", costly(10, depth), costly(11, depth));
    let before = server.metric("sapsan_large_writes_total");
    let answer = server.ask("POST", "/_/collections/trees/bulk", "", lines.as_bytes());
    assert_eq!((answer.status, answer.text()), (200, ""), "{}", answer.text());
    assert_eq!(server.metric("sapsan_large_writes_total"), before + 2.0);
    assert_eq!(server.get("/_/collections/trees/11").status, 200);
}

#[test]
fn a_short_body_of_steps_whose_check_is_long_is_checked_off_the_loop() {
    let steps = r##"
[[endpoints]]
route = "POST /add/{id}"
steps = [{ sql = "INSERT INTO items (id, \"group\", price, note) VALUES (:id, 'g', 1, :tree) RETURNING id" }]
[endpoints.body]
type = "object"
required = ["tree"]
properties = { tree = { "$ref" = "#/$defs/tree" } }
"$defs" = { tree = { allOf = [{ items = { "$ref" = "#/$defs/tree" } }, { items = { "$ref" = "#/$defs/tree" } }] } }
"##;
    let off_the_loop = || {
        let server = TestServer::start("", steps);
        (1..40).find(|depth| {
            let body = format!("{{\"tree\":{}{}}}", "[".repeat(*depth), "]".repeat(*depth));
            let answer = server.ask("POST", &format!("/add/{depth}"), "", body.as_bytes());
            assert_eq!((answer.status, answer.json()), (200, json!([{ "id": depth }])), "{}", answer.text());
            server.metric("sapsan_pool_done_total") > 0.0
        })
    };
    // A loop that loses its core for a millisecond passes even a short check on.
    let depths: Vec<_> = std::iter::repeat_with(off_the_loop).take(5).collect();
    assert!(depths.iter().all(Option::is_some) && depths.iter().any(|depth| *depth > Some(1)), "{depths:?}");
}

/// Documents of any size, and the routes through which a short request changes them.
const NOTES: &str = r#"
[collections.notes]
key = { field = "id", type = "u32" }
[[endpoints]]
route = "POST /notes/{id}"
update = "notes/{id}"
[[endpoints]]
route = "POST /touch/{id}"
steps = [{ sql = "UPDATE notes SET n = 1 WHERE id = :id" }]
"#;

/// A document into which no loop merges anything.
fn note(id: u32) -> String {
    format!("{{\"id\":{id},\"text\":\"{}\"}}", "x".repeat(300 << 10))
}

#[test]
fn a_small_patch_of_a_large_document_is_no_work_of_its_loop() {
    let server = TestServer::start("", NOTES);
    let path = "/_/collections/notes/1";
    assert_eq!(server.ask("PUT", path, "", note(1).as_bytes()).status, 201);
    assert_eq!(server.ask("PUT", "/_/collections/notes/2", "", br#"{"id":2}"#).status, 201);
    let counts = || ["sapsan_large_writes_total", "sapsan_query_left_loop_total"].map(|name| server.metric(name));
    assert_eq!(counts(), [1.0, 0.0]);
    let tag = |path: &str| server.get(path).field("ETag").expect("a tag").to_string();
    let large = note(1);
    let restore = || assert_eq!(server.ask("PUT", path, "", large.as_bytes()).status, 200);
    let mut expected = counts();
    for (method, target, body, is_steps) in [
        ("PATCH", "/_/collections/notes/", &br#"{"n":1}"#[..], false),
        ("POST", "/notes/", br#"{"n":2}"#, false),
        ("POST", "/touch/", b"", true),
        ("PUT", "/_/collections/notes/", br#"{"id":1}"#, false),
        ("DELETE", "/_/collections/notes/", b"", false),
    ] {
        for (id, is_large) in [(1, true), (2, false)] {
            let body = String::from_utf8_lossy(body).replace("\"id\":1", &format!("\"id\":{id}"));
            let answer = server.ask(method, &format!("{target}{id}"), "", body.as_bytes());
            assert!(matches!(answer.status, 200 | 204), "{method} {target}{id}: {}", answer.text());
            expected[usize::from(is_steps)] += f64::from(u8::from(is_large));
            assert_eq!(counts(), expected, "{method} {target}{id}");
        }
        if method == "PUT" {
            restore();
            expected[0] += 1.0;
        }
    }
    assert_eq!(server.ask("PUT", path, "", large.as_bytes()).status, 201);
    let old = tag(path);
    let conditional = |tag: &str| server.ask("PATCH", path, &format!("If-Match: {tag}\r\n"), br#"{"n":7}"#).status;
    assert_eq!((conditional(&old), conditional(&old)), (200, 412));
    assert_eq!(server.get(path).json()["n"], 7);
}

#[test]
fn a_small_patch_of_a_large_document_keeps_its_turn_among_those_of_its_connection() {
    let server = TestServer::start("", NOTES);
    let mut client = server.connect();
    for round in 0..20 {
        client.send("PUT", "/_/collections/notes/1", "", note(1).as_bytes());
        client.send("PATCH", "/_/collections/notes/1", "", format!("{{\"round\":{round}}}").as_bytes());
        // These would overtake it.
        client.send("POST", "/notes/1", "", br#"{"text":"short"}"#);
        client.send("PATCH", "/_/collections/notes/1", "", br#"{"more":1}"#);
        client.send("GET", "/_/collections/notes/1", "", b"");
        let answers: Vec<_> = (0..5).map(|_| client.answer(false)).collect();
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 201)), "round {round}");
        assert_eq!(answers[4].json(), json!({ "id": 1, "text": "short", "round": round, "more": 1 }));
    }
}
