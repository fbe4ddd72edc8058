//! Expiry in a running server: expired documents are hidden from every read, removed in the background, and reported by the feed.

use crate::harness::TestServer;
use serde_json::json;
use std::time::{Duration, Instant};

const MORE: &str = "[collections.sessions]\nkey = { field = \"id\", type = \"u32\" }\nexpire = \"until\"\n\
    [views.users]\nquery = \"SELECT user, COUNT(*) AS n FROM sessions GROUP BY user\"\n\
    [[endpoints]]\nroute = \"GET /sessions/{id}\"\nget = \"sessions/{id}\"\n\
    [[endpoints]]\nroute = \"GET /of/{user}\"\nquery = \"SELECT id FROM sessions WHERE user = :user ORDER BY id\"\n";

fn unix_seconds() -> u64 {
    std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

#[test]
fn a_document_goes_a_second_after_its_last_write_and_its_going_is_told() {
    let more = "[collections.sessions]\nkey = { field = \"id\", type = \"u32\" }\nexpire = { after_seconds = 1 }\n\
        [[endpoints]]\nroute = \"POST /touch/{id}\"\nsteps = [{ sql = \"UPDATE sessions SET n = n + 1 WHERE id = :id\" }]\n\
        params = { id = \"integer\" }\n";
    let server = TestServer::start("durability = \"commit\"", more);
    let put = |id: u32| {
        server.ask("PUT", &format!("/_/collections/sessions/{id}"), "", format!("{{\"id\":{id},\"n\":0}}").as_bytes())
    };
    assert_eq!((put(1).status, put(2).status), (201, 201));
    let (mut touched, until) = (0, Instant::now() + Duration::from_secs(20));
    while server.metric("sapsan_expired_total") < 1.0 {
        assert!(Instant::now() < until, "nobody removes it");
        assert_eq!(server.ask("POST", "/touch/1", "", b"{}").status, 200);
        touched += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.get("/_/collections/sessions/2").status, 404);
    let mut client = server.connect();
    client.send("GET", "/_/changes?since=0&collection=sessions", "", b"");
    let mut text = String::new();
    client.head();
    while !text.contains("\"op\":\"delete\",\"key\":2") {
        assert!(client.read_into(&mut text), "the feed ended: {text}");
    }
    assert!(!text.contains("mark") && text.contains(&format!("{{\"id\":1,\"n\":{}}}", touched.min(2))), "{text}");
}

#[test]
fn a_document_of_the_past_is_never_seen_goes_by_itself_and_its_going_is_told() {
    let server = TestServer::start("durability = \"commit\"", MORE);
    let put = |id: u32, until: u64| {
        let body = json!({ "id": id, "user": "u", "until": until }).to_string();
        assert_eq!(server.ask("POST", "/_/collections/sessions", "", body.as_bytes()).status, 201);
    };
    put(1, unix_seconds() + 1000);
    for id in 2..=40 {
        put(id, unix_seconds() - 10);
        assert_eq!(server.get(&format!("/sessions/{id}")).status, 404);
        assert_eq!(server.get(&format!("/_/collections/sessions/{id}")).status, 404);
        assert_eq!(server.get("/of/u").json(), json!([{ "id": 1 }]));
    }
    assert_eq!(server.get("/sessions/1").status, 200);
    let until = Instant::now() + Duration::from_secs(20);
    while server.metric("sapsan_expired_total") < 39.0 {
        assert!(Instant::now() < until, "nobody removes them");
        std::thread::sleep(Duration::from_millis(50));
    }
    let rows = server.query(&json!({ "sql": "SELECT * FROM users" })).json();
    assert_eq!(rows, json!([{ "user": "u", "n": 1 }]));
    let report = server.ask("POST", "/_/views/users/verify", "", b"").json();
    assert_eq!(report["clean"], true, "{report}");
    // The feed reports each document's insertion and removal.
    let mut client = server.connect();
    client.send("GET", "/_/changes?since=0&collection=sessions", "", b"");
    let mut text = String::new();
    client.head();
    while text.matches("\"op\":\"delete\"").count() < 39 {
        assert!(client.read_into(&mut text), "the feed ended: {text}");
    }
    assert_eq!(text.matches("\"op\":\"put\"").count(), 40);
    assert_eq!(server.metric("sapsan_expiry_blocked"), 0.0);
}

#[test]
fn a_list_that_passes_over_many_hidden_documents_is_no_work_of_a_loop() {
    let more = "[collections.sessions]\nkey = { field = \"id\", type = \"u32\" }\nexpire = \"until\"\n\
        [collections.notes]\nkey = { field = \"id\", type = \"u32\" }\nreferences = { session = \"sessions\" }\n";
    let server = TestServer::start("body_bytes_max = \"8MiB\"", more);
    const COUNT: u32 = 20_000;
    let chunks = || (0..COUNT).step_by(5_000).map(|start| start..start + 5_000);
    let fill = |collection: &str, line: &dyn Fn(u32) -> String| {
        for ids in chunks() {
            let lines: String = ids.map(line).collect();
            let answer = server.ask("POST", &format!("/_/collections/{collection}/bulk"), "", lines.as_bytes());
            assert_eq!((answer.status, answer.text()), (200, ""));
        }
    };
    let fields: String = (0..30).map(|number| format!(",\"f{number}\":{number}")).collect();
    fill("sessions", &|id| format!("{{\"id\":{id}{fields}}}\n"));
    // A document that others refer to is hidden, and stays.
    fill("notes", &|id| format!("{{\"id\":{id},\"session\":{id}}}\n"));
    for ids in chunks() {
        let sql =
            format!("UPDATE sessions SET until = 1 WHERE id >= {} AND id < {}", ids.start, ids.end.min(COUNT - 5));
        let answer = server.query(&json!({ "sql": sql }));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let done = server.metric("sapsan_pool_done_total");
    let answer = server.get("/_/collections/sessions?limit=10");
    assert_eq!((answer.status, answer.json()["items"].as_array().map(Vec::len)), (200, Some(5)), "{}", answer.text());
    let until = Instant::now() + Duration::from_secs(30);
    while server.metric("sapsan_pool_done_total") == done {
        assert!(Instant::now() < until, "the loop did it");
        std::thread::sleep(Duration::from_millis(5));
    }
}
