//! `POST /_/query` with INSERT, UPDATE, DELETE: answers, refusals, and the order among other requests.

use crate::harness::{Answer, TestServer};
use serde_json::{Value, json};

fn change(server: &TestServer, sql: &str, params: &Value) -> Answer {
    server.query(&json!({ "sql": sql, "params": params }))
}

#[track_caller]
fn check(server: &TestServer, sql: &str, params: &Value, expected: &Value) {
    let answer = change(server, sql, params);
    assert_eq!((answer.status, &answer.json()), (200, expected), "{sql}: {}", answer.text());
    let changed = expected["changed"].to_string();
    assert_eq!(answer.field("Sapsan-Changed"), Some(changed.as_str()));
}

#[test]
fn a_statement_answers_how_many_documents_it_changed_and_its_returning() {
    let server = TestServer::start("", "");
    let list = json!({ "list": [{ "i": 1, "g": "a" }, { "i": 2, "g": "b" }] });
    let insert =
        "INSERT INTO items (id, \"group\", price) SELECT value ->> 'i', value ->> 'g', 5 FROM json_each(:list)";
    check(&server, insert, &list, &json!({ "changed": 2 }));
    let update = " -- twice\n update items SET price = price * 2 WHERE id >= :from RETURNING id, price";
    check(&server, update, &json!({ "from": 2 }), &json!({ "changed": 1, "rows": [{ "id": 2, "price": 10 }] }));
    check(&server, "DELETE FROM items WHERE id = 7 RETURNING id", &json!({}), &json!({ "changed": 0, "rows": [] }));
    check(&server, "DELETE FROM items WHERE id = 1", &json!({}), &json!({ "changed": 1 }));
    assert_eq!(server.get("/_/collections/items/2").text(), r#"{"id":2,"group":"b","price":10}"#);
}

#[test]
fn a_statement_tells_its_plan_and_scans_are_counted() {
    let server = TestServer::start("scan_rows_max = 1000\n", "");
    server.put_items(0..50);
    let counts = || (server.metric("sapsan_query_scans_total"), server.metric("sapsan_query_rows_read_total"));
    let insert = change(&server, "INSERT INTO items (id, \"group\", price) VALUES (70, 'g', 1)", &json!({}));
    assert_eq!((insert.status, insert.field("Sapsan-Plan"), counts()), (200, Some(""), (0.0, 0.0)));
    let keyed = change(&server, "UPDATE items SET price = 2 WHERE id = 7", &json!({}));
    assert_eq!((keyed.field("Sapsan-Plan"), counts()), (Some("LOOKUP items BY KEY (id=?)"), (0.0, 1.0)));
    let scan = change(&server, "DELETE FROM items WHERE price = 2", &json!({}));
    assert_eq!((scan.field("Sapsan-Plan"), counts()), (Some("SCAN items FILTER 1"), (1.0, 52.0)));
    let refused = change(&server, "UPDATE items SET price = price + 1", &json!({}));
    assert_eq!((refused.status, refused.field("Sapsan-Plan"), counts().0), (200, Some("SCAN items"), 2.0));
    let copies = "INSERT INTO items (id, \"group\", price) SELECT 100 + a.id * 100 + b.id, 'g', 1 FROM items a CROSS JOIN items b";
    assert_eq!((change(&server, copies, &json!({})).status, counts()), (413, (3.0, 1102.0)));
}

#[test]
fn rows_of_returning_come_as_lines_and_csv_too() {
    let server = TestServer::start("", "");
    server.put_items(0..3);
    let body = json!({ "sql": "UPDATE items SET price = 1 WHERE id < 2 RETURNING id, \"group\"" }).to_string();
    for (accept, expected) in [
        ("application/x-ndjson", "{\"id\":0,\"group\":\"g0\"}\n{\"id\":1,\"group\":\"g1\"}\n"),
        ("text/csv", "id,group\r\n0,g0\r\n1,g1\r\n"),
    ] {
        let answer = server.ask("POST", "/_/query", &format!("Accept: {accept}\r\n"), body.as_bytes());
        assert_eq!((answer.status, answer.text()), (200, expected));
        assert_eq!(answer.field("Sapsan-Changed"), Some("2"));
    }
}

#[test]
fn what_is_refused_changes_nothing_and_says_why() {
    let server = TestServer::start("scan_rows_max = 1000\n", "");
    server.put_items(0..200);
    for (sql, status, why) in [
        ("UPDATE items SET price = 'dear'", 400, "/price: "),
        ("UPDATE items SET prize = 1", 400, "line 1, column 18: no field \"prize\""),
        ("UPDATE items SET price = :new", 400, "the parameter :new is not given"),
        ("INSERT INTO items (id, \"group\", price) VALUES (900, 'x', 1), (5, 'x', 1)", 409, "the key 5 is in use"),
        ("UPDATE items SET price = 1 RETURNING id", 413, "its limit of 1000 rows read"),
        ("EXPLAIN UPDATE items SET price = 1", 400, "line 1"),
    ] {
        let answer = change(&server, sql, &json!({}));
        assert_eq!(answer.status, status, "{sql}: {}", answer.text());
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains(why), "{sql}: {detail}");
    }
    let untouched = change(&server, "SELECT COUNT(*) AS n FROM items WHERE price = id * 10", &json!({}));
    assert_eq!(untouched.text(), r#"[{"n":200}]"#);
}

#[test]
fn pipelined_requests_meet_a_statement_in_their_order() {
    let server = TestServer::start("", "");
    let mut client = server.connect();
    let sql = |sql: &str| json!({ "sql": sql }).to_string();
    for turn in 0..20 {
        let (id, path) = (turn, format!("/_/collections/items/{turn}"));
        let item = format!("{{\"id\":{id},\"group\":\"g\",\"price\":1}}");
        client.send("POST", "/_/collections/items", "", item.as_bytes());
        client.send("POST", "/_/query", "", sql(&format!("UPDATE items SET price = 2 WHERE id = {id}")).as_bytes());
        client.send("PATCH", &path, "", b"{\"note\":\"last\"}");
        client.send(
            "POST",
            "/_/query",
            "",
            sql(&format!("UPDATE items SET price = 3 WHERE id = {id} AND note = 'last'")).as_bytes(),
        );
        client.send("GET", &path, "", b"");
        let statuses: Vec<u16> = (0..4).map(|_| client.answer(false).status).collect();
        assert_eq!(statuses, [201, 200, 200, 200]);
        assert_eq!(client.answer(false).json(), json!({ "id": id, "group": "g", "price": 3, "note": "last" }));
    }
}
