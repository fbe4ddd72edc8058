//! Views of a running server: what is told of them, their rows, and their verification.

use crate::harness::TestServer;
use serde_json::json;

const VIEW: &str = "[views.by_group]\nquery = \"SELECT \\\"group\\\", COUNT(*) AS n, SUM(price) AS total FROM items GROUP BY \\\"group\\\"\"\n";

#[track_caller]
fn check_rows(server: &TestServer, expected: serde_json::Value) {
    let body = json!({ "sql": "SELECT * FROM by_group ORDER BY n" }).to_string();
    let answer = server.ask("POST", "/_/query", "", body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json(), expected);
}

#[test]
fn a_view_follows_every_write_and_is_verified() {
    let server = TestServer::start("", VIEW);
    let told = server.get("/_/views").json();
    assert_eq!((told[0]["name"].as_str(), told[0]["state"].as_str()), (Some("by_group"), Some("ready")), "{told}");
    for (id, group, price) in [(1, "a", 10), (2, "b", 20), (3, "b", 30)] {
        let item = json!({ "id": id, "group": group, "price": price }).to_string();
        assert_eq!(server.ask("POST", "/_/collections/items", "", item.as_bytes()).status, 201);
    }
    check_rows(&server, json!([{ "group": "a", "n": 1, "total": 10 }, { "group": "b", "n": 2, "total": 50 }]));
    assert_eq!(server.ask("PATCH", "/_/collections/items/1", "", br#"{"group":"b"}"#).status, 200);
    assert_eq!(server.ask("DELETE", "/_/collections/items/2", "", b"").status, 204);
    check_rows(&server, json!([{ "group": "b", "n": 2, "total": 40 }]));
    let report = server.ask("POST", "/_/views/by_group/verify", "", b"").json();
    assert_eq!((report["clean"].as_bool(), report["documents"].as_u64()), (Some(true), Some(2)), "{report}");
    assert_eq!(server.get("/_/views/by_group").json()["state"], "ready");
    let metrics = server.get("/_/metrics");
    let metrics = metrics.text();
    assert!(metrics.contains("sapsan_view_ready{view=\"by_group\"} 1\n"), "{metrics}");
    assert!(metrics.contains("sapsan_view_build_seconds_left{view=\"by_group\"} NaN\n"), "{metrics}");
    assert_eq!(server.get("/_/views/other").status, 404);
    assert_eq!(server.ask("POST", "/_/views/other/verify", "", b"").status, 404);
    assert_eq!(server.ask("POST", "/_/collections/by_group", "", b"{}").status, 404);
}
