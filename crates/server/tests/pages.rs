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
        // Before the position, and after it.
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
    check_refused(&server, &json!({ "sql": "SELECT COUNT(*) AS n FROM items", "limit": 5 }), "without GROUP BY");
    check_refused(&server, &json!({ "sql": "SELECT id FROM items LIMIT 3", "limit": 5 }), "LIMIT");
    check_refused(&server, &json!({ "sql": "DELETE FROM items", "limit": 5 }), "");
    let body = json!({ "sql": "SELECT id FROM items", "limit": 5 }).to_string();
    let lines = server.ask("POST", "/_/query", "Accept: application/x-ndjson\r\n", body.as_bytes());
    assert!(lines.status == 400 && lines.text().contains("a page is JSON"), "{}", lines.text());
    assert_eq!(server.get("/_/collections/items?limit=1000").json()["items"].as_array().map(Vec::len), Some(100));
}

/// Lists of declared queries.
const LISTS: &str = r#"
[views.by_price]
query = "SELECT price / 100 AS step, COUNT(*) AS n FROM items GROUP BY price / 100"
[[endpoints]]
route = "GET /items"
query = "SELECT id, price FROM items WHERE price >= :least AND price < :now"
page = { limit = 10, max = 50 }
params = { least = { type = "integer", default = 0 }, now = { type = "integer", default = "clock" } }
[endpoints.sort]
group = "ORDER BY \"group\" DESC"
note = "ORDER BY note NULLS LAST, id"
[[endpoints]]
route = "GET /groups/{group}/items"
wrap = "found"
query = "SELECT id FROM items WHERE \"group\" = :group"
page = { limit = 7 }
[[endpoints]]
route = "GET /steps"
query = "SELECT step, n FROM by_price ORDER BY n DESC"
page = { limit = 3 }
[[endpoints]]
route = "GET /sums"
query = "SELECT price / 50 AS half, SUM(price) AS sum FROM items GROUP BY half"
page = { limit = 4 }
"#;

/// The pages of a list from the first on, with an action between two of them.
#[track_caller]
fn pages(server: &TestServer, list: &str, rows: &str, mut between: impl FnMut()) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    loop {
        let answer = server.get(&format!("{list}{after}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        assert_eq!(page.as_object().map(serde_json::Map::len), Some(2), "{page}");
        found.extend(page[rows].as_array().expect("rows").iter().cloned());
        assert!(found.len() < 10_000, "pages without an end");
        match page["after"].as_str() {
            Some(cursor) => after = format!("{}after={cursor}", if list.contains('?') { "&" } else { "?" }),
            None => return found,
        }
        between();
    }
}

#[test]
fn pages_of_declared_queries_are_continued_by_their_cursors_while_writes_go_on() {
    let server = TestServer::start("", LISTS);
    server.put_items(0..100);
    let mut next = 100;
    let mut put = || {
        server.put_items(next..next + 1);
        next += 1;
    };
    let found = pages(&server, "/items?least=50", "items", &mut put);
    let ids: Vec<u64> = found.iter().filter_map(|row| row["id"].as_u64()).filter(|id| *id < 100).collect();
    let mut expected: Vec<u64> = (5..100).collect();
    expected.sort_by_key(|id| (std::cmp::Reverse(id % 3), std::cmp::Reverse(*id)));
    assert_eq!(ids, expected);
    let found = pages(&server, "/items?sort=note&limit=33", "items", &mut put);
    let ids: Vec<u64> = found.iter().filter_map(|row| row["id"].as_u64()).filter(|id| *id < 100).collect();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    let found = pages(&server, "/groups/g1/items", "found", &mut put);
    assert!(found.len() >= 33 && found.iter().enumerate().all(|(at, row)| row["id"] == json!(at * 3 + 1)), "{found:?}");
}

#[test]
fn views_and_groups_have_pages_too() {
    let server = TestServer::start("", LISTS);
    server.put_items(0..95);
    let steps = pages(&server, "/steps", "items", || {});
    let expected: Vec<Value> = [8, 7, 6, 5, 4, 3, 2, 1, 0].map(|step| json!({ "step": step, "n": 10 })).into();
    assert_eq!(steps[..9], expected);
    assert_eq!(steps[9..], [json!({ "step": 9, "n": 5 })]);
    let mut next = 95;
    let sums = pages(&server, "/sums", "items", || {
        server.put_items(next..next + 1);
        next += 1;
    });
    let sum = |half: u64| (half * 5..half * 5 + 5).map(|id| id * 10).sum::<u64>();
    let expected: Vec<Value> = (0..19).map(|half| json!({ "half": half, "sum": sum(half) })).collect();
    assert_eq!(sums[..19], expected);
}

#[test]
fn wrong_cursors_and_limits_of_declared_queries_are_refused() {
    let server = TestServer::start("", LISTS);
    server.put_items(0..100);
    let cursor = |list: &str| server.get(list).json()["after"].as_str().expect("more pages").to_owned();
    let of_items = cursor("/items?least=5");
    assert_eq!(server.get(&format!("/items?least=5&limit=50&after={of_items}")).status, 200, "another limit");
    let explicit = cursor("/items?least=5&now=9999");
    for (target, told) in [
        (format!("/items?after={of_items}"), "`after` is no cursor of this list with these parameters"),
        (format!("/items?least=6&after={of_items}"), "no cursor of this list"),
        (format!("/items?least=5&sort=note&after={of_items}"), "no cursor of this list"),
        (format!("/items?least=5&now=9998&after={explicit}"), "no cursor of this list"),
        (format!("/groups/g2/items?after={}", cursor("/groups/g1/items")), "no cursor of this list"),
        (format!("/items?least=5&after={}", &of_items[2..]), "no cursor of this list"),
        ("/items?after=%zz".to_owned(), "parameter `after`"),
        ("/items?after=".to_owned(), "parameter `after` is empty"),
        ("/items?limit=51".to_owned(), "parameter `limit` is `51`; allowed: 1 to 50"),
        ("/groups/g1/items?limit=8".to_owned(), "allowed: 1 to 7"),
        ("/items?limit=0".to_owned(), "allowed: 1 to 50"),
        ("/items?limit=x".to_owned(), "allowed: 1 to 50"),
        ("/items?least=x".to_owned(), "parameter `least`"),
    ] {
        let answer = server.get(&target);
        assert!(answer.status == 400 && answer.text().contains(told), "{target}: {} {}", answer.status, answer.text());
    }
    let lines = server.ask("GET", "/items", "Accept: application/x-ndjson\r\n", b"");
    assert!(lines.status == 400 && lines.text().contains("a page is JSON"), "{}", lines.text());
}

#[test]
fn a_page_for_which_many_rows_are_looked_at_is_made_in_the_background() {
    let server = TestServer::start("", LISTS);
    server.put_items(0..21_000);
    let found = pages(&server, "/items?least=209500&limit=17", "items", || {});
    assert_eq!(found.len(), 50);
    let answer = server.ask("GET", "/items", "Sapsan-Plan: 1\r\n", b"");
    assert!(answer.field("Sapsan-Plan").is_some(), "{}", answer.head);
}

#[test]
fn a_cursor_that_would_be_too_long_for_a_request_is_told() {
    let server = TestServer::start("", LISTS);
    let text = "n".repeat(3_100);
    for id in 0..12 {
        let body = json!({ "id": id, "group": "g", "price": 1, "note": text }).to_string();
        assert_eq!(server.ask("PUT", &format!("/_/collections/items/{id}"), "", body.as_bytes()).status, 201);
    }
    let answer = server.get("/items?sort=note");
    assert!(answer.status == 413 && answer.text().contains("of a cursor"), "{} {}", answer.status, answer.text());
    assert_eq!(server.get("/items?sort=note&limit=12").status, 200, "no cursor is needed");
}

#[test]
fn a_stored_number_that_overflows_breaks_no_page_of_others() {
    let more = "[collections.goods]\nkey = { field = \"id\", type = \"u32\" }\nindexes = [[\"price\"]]\n\
        [[endpoints]]\nroute = \"GET /dear\"\nquery = \"SELECT id FROM goods ORDER BY price DESC\"\npage = { limit = 2, max = 10 }\n";
    let server = TestServer::start("", more);
    for (id, price) in [(1, "1"), (2, "1e400"), (3, "2"), (4, "-1e400"), (5, "1e400"), (6, "\"\"")] {
        let item = format!("{{\"id\":{id},\"price\":{price}}}");
        assert_eq!(server.ask("POST", "/_/collections/goods", "", item.as_bytes()).status, 201);
    }
    let (mut ids, mut target) = (Vec::new(), "/dear".to_owned());
    loop {
        let answer = server.get(&target);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        ids.extend(page["items"].as_array().expect("rows").iter().filter_map(|row| row["id"].as_u64()));
        let Some(after) = page["after"].as_str() else { break };
        target = format!("/dear?after={after}");
        assert!(ids.len() < 10, "the pages do not end");
    }
    assert_eq!(ids, [6, 5, 2, 3, 1, 4]);
}

#[test]
fn a_parameter_that_an_answer_does_not_take_is_refused_where_it_could_ask_for_another_page() {
    const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /list"
query = "SELECT id FROM items WHERE price >= :least ORDER BY id"
page = { limit = 2, max = 10 }
params = { least = { type = "integer", default = 0 }, from_field = { type = "string", from = "header:X-From" } }
[[endpoints]]
route = "GET /sorted"
query = "SELECT id FROM items"
sort = { up = "ORDER BY id", down = "ORDER BY id DESC" }
page = { limit = 2, max = 10 }
[[endpoints]]
route = "GET /all"
query = "SELECT id FROM items ORDER BY id"
"#;
    let server = TestServer::start("backups = \"backups\"", ENDPOINTS);
    server.put_items(0..5);
    let first = server.get("/list?least=10&%6Cimit=3").json();
    assert_eq!(first["items"].as_array().expect("rows").len(), 3);
    let after = first["after"].as_str().expect("a cursor");
    assert_eq!(server.get(&format!("/list?least=10&limit=3&after={after}")).json()["items"], json!([{ "id": 4 }]));
    assert_eq!(server.get("/sorted?sort=down&limit=1").json()["items"], json!([{ "id": 4 }]));
    for (target, told) in [
        ("/list?before=3", "unknown parameter `before`; allowed: least, from_field, limit, after"),
        ("/list?least=0&offset=2", "unknown parameter `offset`; allowed: least, "),
        ("/list?sort=down", "unknown parameter `sort`; allowed: least, "),
        ("/sorted?before=1&sort=down", "unknown parameter `before`; allowed: limit, after, sort"),
        ("/_/collections/items?before=3", "unknown parameter `before`; allowed: after, limit"),
        ("/_/collections/items/1?fields=id", "unknown parameter `fields`; allowed: none"),
        ("/_/changes?after=3", "unknown parameter `after`; allowed: since, collection"),
        ("/_/views?limit=3", "unknown parameter `limit`; allowed: none"),
        ("/_/schema?collection=items", "unknown parameter `collection`; allowed: none"),
        ("/_/metrics?name=a", "unknown parameter `name`; allowed: none"),
        ("/_/openapi.json?v=3", "unknown parameter `v`; allowed: none"),
        ("/_/backup?to=b", "unknown parameter `to`; allowed: none"),
    ] {
        let answer = server.get(target);
        assert!(answer.status == 400 && answer.text().contains(told), "{target}: {} {}", answer.status, answer.text());
    }
    for (method, target) in [
        ("POST", "/_/query?limit=3"),
        ("POST", "/_/collections/items?upsert=true"),
        ("POST", "/_/collections/items/bulk?upsert=true"),
        ("PUT", "/_/collections/items/9?upsert=false"),
        ("PATCH", "/_/collections/items/1?x"),
        ("DELETE", "/_/collections/items/1?x=1"),
        ("POST", "/_/backup?to=b"),
    ] {
        let answer = server.ask(method, target, "", br#"{"sql":"SELECT 1","id":9,"group":"g","price":1}"#);
        assert!(answer.status == 400 && answer.text().contains("unknown parameter"), "{target}: {}", answer.text());
    }
    assert_eq!(server.get("/_/collections/items/1").status, 200);
    // Elsewhere they are ignored: they are tags of advertisements, or keep a cache from answering.
    assert_eq!(server.get("/all?before=3").json().as_array().expect("rows").len(), 5);
    assert_eq!(server.get("/_/health?probe=1").status, 200);
}
