//! Pages of queries: `limit` and `after` of `/_/query`.

use crate::harness::TestServer;
use serde_json::{Value, json};

const SQL: &str = "SELECT id, price FROM items WHERE price >= :least ORDER BY \"group\" DESC";

fn ask(server: &TestServer, limit: u64, after: &Value) -> Value {
    let answer = server.query(&json!({ "sql": SQL, "params": { "least": 50 }, "limit": limit, "after": after }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.field("Sapsan-Plan").is_some());
    answer.json()
}

#[test]
fn pages_are_asked_for_by_the_token_of_the_one_before_while_writes_go_on() {
    let server = TestServer::start("", "");
    server.put_items(0..100);
    let (mut ids, mut after, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let page = ask(&server, 10, &after);
        ids.extend(page["items"].as_array().expect("rows").iter().filter_map(|row| row["id"].as_u64()));
        // Before the place, and behind it.
        server.put_items(100 + pages..101 + pages);
        (after, pages) = (page["after"].clone(), pages + 1);
        if after.is_null() {
            break;
        }
        assert!(pages < 50, "the pages do not end");
    }
    let stayed: Vec<u64> = ids.iter().copied().filter(|id| *id < 100).collect();
    let mut expected: Vec<u64> = (5..100).collect();
    expected.sort_by_key(|id| (std::cmp::Reverse(id % 3), std::cmp::Reverse(*id)));
    assert_eq!(stayed, expected);
    assert!(pages >= 10);
}

#[track_caller]
fn check_refused(server: &TestServer, request: &Value, told: &str) {
    let answer = server.query(request);
    assert!(answer.status == 400 && answer.text().contains(told), "{} {}", answer.status, answer.text());
}

#[test]
fn wrong_and_foreign_tokens_and_what_has_no_pages_are_refused() {
    let server = TestServer::start("", "");
    server.put_items(0..100);
    let token = ask(&server, 10, &Value::Null)["after"].clone();
    let of = |sql: &str, least: u64, after: &Value| json!({ "sql": sql, "params": { "least": least }, "after": after });
    assert_eq!(server.query(&of(SQL, 50, &token)).status, 200);
    check_refused(&server, &of(SQL, 51, &token), "no token of this statement");
    check_refused(&server, &of(&SQL.replace("DESC", "ASC"), 50, &token), "no token of this statement");
    check_refused(&server, &of(SQL, 50, &json!("00ff")), "no token of this statement");
    check_refused(&server, &of(SQL, 50, &json!(7)), "a token or null");
    check_refused(&server, &json!({ "sql": "SELECT id FROM items", "limit": 0 }), "allowed: 1 to 10000");
    check_refused(&server, &json!({ "sql": "SELECT COUNT(*) AS n FROM items", "limit": 5 }), "groups");
    check_refused(&server, &json!({ "sql": "SELECT id FROM items LIMIT 3", "limit": 5 }), "LIMIT");
    check_refused(&server, &json!({ "sql": "DELETE FROM items", "limit": 5 }), "");
    let body = json!({ "sql": "SELECT id FROM items", "limit": 5 }).to_string();
    let lines = server.ask("POST", "/_/query", "Accept: application/x-ndjson\r\n", body.as_bytes());
    assert!(lines.status == 400 && lines.text().contains("a page is JSON"), "{}", lines.text());
    assert_eq!(server.get("/_/collections/items?limit=1000").json()["items"].as_array().map(Vec::len), Some(100));
}
