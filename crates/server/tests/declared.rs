//! Declared queries: parameters of the path and of the query, the clock, limits, and long queries.

use crate::harness::{TestServer, mistakes};
use std::time::Duration;

const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /two/{group}/{price}"
query = "SELECT :group AS g, :price AS p, typeof(:price) AS t FROM items WHERE id = 1"

[[endpoints]]
route = "GET /typed/{group}/{price}"
query = "SELECT i.id FROM items i WHERE i.\"group\" = :group AND i.price = :price"
[endpoints.params]
group = { type = "string", enum = ["g0", "g1", "g2"] }
price = { type = "integer", min = 0, max = 1000 }

[[endpoints]]
route = "GET /by"
query = "SELECT id FROM goods WHERE \"group\" = :group AND price = :price"
[endpoints.params]
group = "string"
price = "integer"

[[endpoints]]
route = "GET /checked/{id}"
get = "items/{id}"
[endpoints.params]
id = { type = "integer", max = 5 }

[[endpoints]]
route = "GET /of/{other}/{id}"
get = "items/{id}"

[[endpoints]]
route = "GET /year"
result = "row"
query = "SELECT CAST(strftime('%Y', 'now') AS INTEGER) AS year, unixepoch() - :clock AS ahead FROM items WHERE id = 1"

[[endpoints]]
route = "GET /first"
limit = 2
query = "SELECT id FROM items ORDER BY id"

[[endpoints]]
route = "GET /fewer"
limit = 2
query = "SELECT id FROM items ORDER BY id LIMIT :n"
[endpoints.params]
n = "integer"

[[endpoints]]
route = "GET /sum/{group}"
wrap = "sum"
query = "SELECT COUNT(*) AS n, :group AS g FROM items WHERE price >= 0"

[[endpoints]]
route = "GET /none"
result = "row"
query = "SELECT id FROM items WHERE price = -1"

[collections.goods]
key = { field = "id", type = "u32" }
indexes = [["group", "price"]]

[params.clock]
type = "integer"
default = "clock"
"#;

#[track_caller]
fn check(server: &TestServer, target: &str, status: u16, body: &str) {
    let answer = server.get(target);
    assert_eq!(answer.status, status, "{target}: {}", answer.text());
    if status == 200 {
        assert_eq!(answer.text(), body, "{target}");
    } else {
        assert_eq!(answer.json()["status"], status, "{target}");
    }
}

#[test]
fn each_part_of_a_path_has_its_own_text() {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(0..10);
    check(&server, "/two/a/b", 200, r#"[{"g":"a","p":"b","t":"text"}]"#);
    check(&server, "/two/a%20x/%D0%B1", 200, r#"[{"g":"a x","p":"б","t":"text"}]"#);
    check(&server, "/two/a/%ff", 404, "");
}

#[test]
fn the_document_of_a_path_with_two_parameters_is_the_named_one() {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(0..10);
    check(&server, "/of/7/5", 200, r#"{"id":5,"group":"g2","price":50}"#);
    check(&server, "/of/5/x", 404, "");
}

#[test]
fn a_declared_part_of_a_path_has_its_type_and_what_is_none_of_it_is_404() {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(0..10);
    check(&server, "/typed/g1/40?price=70", 200, r#"[{"id":4}]"#);
    for target in ["/typed/g1/forty", "/typed/g3/40", "/typed/g1/1001", "/typed/g1/-1", "/checked/6", "/checked/x"] {
        check(&server, target, 404, "");
    }
    check(&server, "/checked/5", 200, r#"{"id":5,"group":"g2","price":50}"#);
    let told = mistakes(
        "[[endpoints]]\nroute = \"GET /{n}\"\nquery = \"SELECT 1 AS one FROM x\"\nparams = { n = { type = \"integer\", default = 1 } }",
    );
    assert!(told.contains("`n` is a part of the path"), "{told}");
}

/// Requests that arrive together are prefetched, whatever they request.
#[test]
fn queries_that_arrive_together_have_their_own_answers() {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(0..100);
    let good = |id: u32| format!("{{\"id\":{id},\"group\":\"g{}\",\"price\":{}}}\n", id % 3, id * 10);
    let goods: String = (0..100).map(good).collect();
    assert_eq!(server.ask("POST", "/_/collections/goods/bulk", "", goods.as_bytes()).status, 200);
    let found = |id: u32| (200, Some(format!("[{{\"id\":{id}}}]")));
    let mut asked = Vec::new();
    for price in (0..1000).step_by(10) {
        let group = format!("g{}", price / 10 % 3);
        asked.push((format!("/by?price={price}&group={group}"), found(price / 10)));
        asked.push((format!("/by?other=1&group={group}&price={price}&price=x"), found(price / 10)));
        asked.push((format!("/by?group=%67{}&price={price}", &group[1..]), found(price / 10)));
        asked.push((format!("/by?price={price}"), (200, Some("[]".to_owned()))));
        asked.push((format!("/typed/{group}/{price}"), found(price / 10)));
    }
    for wrong in [
        "/by?price=x&group=g1",
        "/by?price=&group=g1",
        "/by?group=g1&price=10%",
        "/by?group=g1&price=9999999999999999999",
    ] {
        asked.push((wrong.to_owned(), (400, None)));
    }
    asked.push(("/typed/g9/1".to_owned(), (404, None)));
    let mut client = server.connect();
    for together in asked.chunks(50) {
        together.iter().for_each(|(target, _)| client.send("GET", target, "", b""));
        for (target, (status, body)) in together {
            let answer = client.answer(false);
            assert_eq!(answer.status, *status, "{target}: {}", answer.text());
            assert!(body.as_ref().is_none_or(|body| answer.text() == body), "{target}: {}", answer.text());
        }
    }
}

#[test]
fn date_functions_know_the_time() {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(0..2);
    let row = server.get("/year").json();
    assert!(row["year"].as_i64().is_some_and(|year| year >= 2024), "{row}");
    // One reading of the clock for the parameter, one for the date functions.
    assert!(row["ahead"].as_i64().is_some_and(|ahead| (-1..=1).contains(&ahead)), "{row}");
}

#[test]
fn the_smaller_of_an_endpoints_and_the_statements_limit_counts() {
    let server = TestServer::start("", ENDPOINTS);
    server.put_items(0..10);
    check(&server, "/first", 200, r#"[{"id":0},{"id":1}]"#);
    check(&server, "/fewer?n=1", 200, r#"[{"id":0}]"#);
    check(&server, "/fewer?n=9", 200, r#"[{"id":0},{"id":1}]"#);
    check(&server, "/fewer?n=-1", 200, r#"[{"id":0},{"id":1}]"#);
}

#[test]
fn a_query_over_the_loops_budget_is_answered_late_and_whole() {
    ["pool", "io-aware", "work-stealing"].into_iter().for_each(check_late_queries);
}

fn check_late_queries(model: &str) {
    let server = TestServer::start(&format!("scan_rows_max = 30000\nquery_model = \"{model}\""), ENDPOINTS);
    server.put_items(0..25_000);
    let done = server.metric("sapsan_pool_done_total");
    check(&server, "/sum/x", 200, r#"{"sum":[{"n":25000,"g":"x"}]}"#);
    check(&server, "/none", 404, "");
    // A job is counted when it has ended, which is after its answer.
    let counted = || server.metric("sapsan_pool_done_total") - done;
    let ended = (0..200).any(|_| {
        counted() >= 2.0 || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    });
    assert!(ended && counted() <= 2.0, "{} of 2 queries ended on the pool ({model})", counted());
    server.put_items(25_000..31_000);
    check(&server, "/sum/x", 413, "");
}

#[test]
fn a_plan_is_told_where_it_is_asked_for_and_scans_are_counted() {
    let server = TestServer::start("query_log_rows = 1000000", ENDPOINTS);
    for id in 1..=3 {
        let item = serde_json::json!({ "id": id, "group": "g0", "price": id }).to_string();
        assert_eq!(server.ask("POST", "/_/collections/items", "", item.as_bytes()).status, 201);
    }
    let metric = |name: &str| {
        let metrics = server.get("/_/metrics");
        let line = metrics.text().lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    let plan = |target: &str| {
        let answer = server.ask("GET", target, "Sapsan-Plan: 1\r\n", b"");
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        answer.field("Sapsan-Plan").map(str::to_owned)
    };
    assert_eq!(plan("/sum/g0").as_deref(), Some("SCAN items FILTER 1; AGGREGATE"));
    assert_eq!((metric("sapsan_query_scans_total "), metric("sapsan_query_rows_read_total ")), (Some(1), Some(3)));
    // One document by its key; the first two in key order.
    assert!(plan("/two/a/b").is_some_and(|plan| plan.contains("BY KEY")));
    assert!(plan("/first").is_some_and(|plan| plan.contains("LIMIT")));
    assert_eq!(metric("sapsan_query_scans_total "), Some(1));
}

const STEPS: &str = r#"
[[endpoints]]
route = "POST /cheaper/{price}"
steps = [
  { sql = "SELECT id FROM items WHERE id = 1", expect = "rows = 1" },
  { sql = "UPDATE items SET price = price - 1 WHERE price > :price", expect = "rows > (SELECT COUNT(*) FROM items WHERE id = 2)" },
]
[endpoints.params]
price = "integer"

[[endpoints]]
route = "POST /one"
steps = [{ sql = "UPDATE items SET price = 7 WHERE id = 1" }]
"#;

#[test]
fn steps_that_scan_say_so_where_they_hold_and_where_not() {
    let server = TestServer::start("query_log_rows = 1000000", STEPS);
    for id in 1..=3 {
        let item = serde_json::json!({ "id": id, "group": "g0", "price": id }).to_string();
        assert_eq!(server.ask("POST", "/_/collections/items", "", item.as_bytes()).status, 201);
    }
    let counts = || {
        let metrics = server.get("/_/metrics");
        ["sapsan_query_scans_total ", "sapsan_query_rows_read_total "].map(|name| {
            let line = metrics.text().lines().find(|line| line.starts_with(name)).map(str::to_owned);
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        })
    };
    let ask = |target: &str| {
        let answer = server.ask("POST", target, "Sapsan-Plan: 1\r\n", b"");
        (answer.status, answer.field("Sapsan-Plan").map(str::to_owned))
    };
    let scan = Some("step 2: SCAN items FILTER 1".to_owned());
    assert_eq!(ask("/one"), (200, None));
    assert_eq!(counts(), [Some(0), Some(1)]);
    // One document by its key, three by the scan, one by an expectation; an expectation's result is one row each time.
    assert_eq!(ask("/cheaper/1"), (200, scan.clone()));
    assert_eq!(counts(), [Some(1), Some(1 + 7)]);
    assert_eq!(ask("/cheaper/100"), (409, scan));
    assert_eq!(counts(), [Some(2), Some(1 + 14)]);
}

/// A query that takes seconds on some thousand items.
const SLOW: &str = r#"
[[endpoints]]
route = "GET /slow/{word}"
query = "SELECT COUNT(*) AS n FROM items a, items b WHERE a.price || b.price LIKE '%' || :word || '%x%'"
result = "row"
"#;

#[test]
fn slow_queries_hold_no_loop_and_are_refused_at_once_where_too_many_wait() {
    let server = TestServer::start("memory = \"64MB\"\nscan_rows_max = 1000000000000", &format!("{ENDPOINTS}{SLOW}"));
    (0..3).for_each(|part| server.put_items(part * 1_000..(part + 1) * 1_000));
    // Two run, as many wait as a part of the memory holds, and the others are refused at once.
    let mut clients: Vec<_> = (0..400).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("GET", "/slow/g", "", b"");
    }
    // Each would have held the loop for 20,000 rows of expressions: seconds, when this was not limited.
    let began = std::time::Instant::now();
    assert_eq!(server.get("/_/health").status, 200);
    assert_eq!(server.get("/_/collections/items/7").status, 200);
    let waited = began.elapsed();
    assert!(waited < std::time::Duration::from_secs(1), "{waited:?}");
    let until = began + std::time::Duration::from_secs(30);
    while clients.iter().filter(|client| client.has_answer()).count() <= 100 {
        assert!(std::time::Instant::now() < until, "who is one too many waits");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let refused = clients.iter_mut().rev().find(|client| client.has_answer()).unwrap().answer(false);
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")), "{}", refused.text());
    assert!(refused.text().contains("declared queries"), "{}", refused.text());
    assert_eq!(server.get("/_/health").status, 200);
}

#[test]
fn a_query_that_would_wait_longer_than_it_may_is_refused_at_once() {
    let settings = "query_seconds = 1\nscan_rows_max = 1000000000000";
    let server = TestServer::start(settings, &format!("{ENDPOINTS}{SLOW}"));
    server.put_items(0..5_000);
    // Now it is known that it takes a second or more.
    assert_eq!(server.get("/slow/g").status, 504);
    let mut clients: Vec<_> = (0..20).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("GET", "/slow/g", "", b""));
    let answers: Vec<_> = clients.iter_mut().map(|client| client.answer(false)).collect();
    assert!(answers.iter().all(|answer| matches!(answer.status, 503 | 504)));
    let told = "may wait and run 1 s (`[server] query_seconds`)";
    let refused = answers.iter().find(|answer| answer.text().contains(told)).expect("one would wait too long");
    assert_eq!((refused.status, refused.field("Retry-After")), (503, Some("1")), "{}", refused.text());
}

#[test]
fn hundreds_of_clients_of_a_query_of_some_milliseconds_are_all_answered() {
    const CLIENTS: usize = 300;
    const ROUNDS: usize = 3;
    let slow = r#"
[[endpoints]]
route = "GET /some/{word}"
query = "SELECT COUNT(*) AS n FROM items WHERE \"group\" || price LIKE '%' || :word || '%'"
result = "row"
"#;
    let server = TestServer::start("query_seconds = 300", &format!("{ENDPOINTS}{slow}"));
    server.put_items(0..2_000);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for _ in 0..ROUNDS {
        clients.iter_mut().for_each(|client| client.send("GET", "/some/g1", "", b""));
        // Health and documents do not wait behind waiting queries.
        assert_eq!(server.get("/_/health").status, 200);
        assert_eq!(server.get("/_/collections/items/7").status, 200);
        for client in &mut clients {
            let answer = client.answer(false);
            assert_eq!((answer.status, answer.text()), (200, "{\"n\":667}"));
        }
    }
    assert_eq!(server.metric("sapsan_pool_refused_total"), 0.0);
    // Most of them ran on the pool.
    assert!(server.metric("sapsan_pool_done_total") > (CLIENTS * ROUNDS / 2) as f64);
    assert_eq!(server.metric("sapsan_memory_used_bytes{part=\"waiting_queries\"}"), 0.0);
}

#[test]
fn steps_that_are_long_are_not_begun_on_the_loop_each_time() {
    const CLIENTS: usize = 60;
    let slow = r#"
[[endpoints]]
route = "POST /steps/{word}"
steps = [{ sql = "UPDATE items SET price = price WHERE \"group\" || price LIKE '%' || :word || '%x%'" }]
"#;
    let server = TestServer::start("query_seconds = 300", &format!("{ENDPOINTS}{slow}"));
    server.put_items(0..15_000);
    let began = std::time::Instant::now();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("POST", "/steps/g", "", b""));
    for client in &mut clients {
        assert_eq!(client.answer(false).status, 200);
    }
    // The loop tries them again ten times a second, however many there are.
    let tries = server.metric("sapsan_query_left_loop_total");
    let most = began.elapsed().as_millis() as f64 / 100.0 + 2.0;
    assert!(tries >= 1.0 && tries <= most, "{tries} of {CLIENTS} were begun on the loop");
}

#[test]
fn a_document_that_insert_takes_is_taken_by_steps_too() {
    let body =
        "body = { type = \"object\", properties = { id = { type = \"integer\" }, note = { type = \"string\" } } }\n";
    let insert = "INSERT INTO items (id, \"group\", price, note) VALUES (:id, 'g', 1, :note)";
    let update = "UPDATE items SET note = :note WHERE id = :id";
    let endpoints = format!(
        "[[endpoints]]\nroute = \"POST /items\"\ninsert = \"items\"\n\
         [[endpoints]]\nroute = \"POST /steps\"\n{body}steps = [{{ sql = {insert:?} }}, {{ sql = {update:?} }}]\n"
    );
    // A query has 430 KB there, a document 500 KB.
    let server = TestServer::start("memory = \"64MB\"\nthreads = 2", &endpoints);
    let note = "n".repeat(220_000);
    let item = format!("{{\"id\":1,\"group\":\"g\",\"price\":1,\"note\":\"{note}\"}}");
    assert_eq!(server.ask("POST", "/items", "", item.as_bytes()).status, 201);
    let answer = server.ask("POST", "/steps", "", format!("{{\"id\":2,\"note\":\"{note}\"}}").as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (large, told) = ("n".repeat(600_000), "the most of one transaction, a part of `[server] memory`");
    for (target, body) in [
        ("/items", format!("{{\"id\":3,\"group\":\"g\",\"price\":1,\"note\":\"{large}\"}}")),
        ("/steps", format!("{{\"id\":4,\"note\":\"{large}\"}}")),
    ] {
        let answer = server.ask("POST", target, "", body.as_bytes());
        assert_eq!(answer.status, 413, "{}", answer.text());
        assert!(answer.text().contains(told), "{}", answer.text());
    }
}

#[test]
fn a_refused_parameter_tells_what_is_allowed_and_the_beginning_of_what_was_sent() {
    let codes: Vec<String> = (0..30).map(|code| format!("\"c{code}\"")).collect();
    let params = format!(
        "{{ size = {{ type = \"string\", enum = [\"s\", \"m\"] }}, code = {{ type = \"string\", enum = [{}] }}, n = \"integer\" }}",
        codes.join(", ")
    );
    let endpoint = format!(
        "[[endpoints]]\nroute = \"GET /sized\"\nquery = \"SELECT id FROM items WHERE note = :size OR note = :code OR id = :n\"\nparams = {params}\n"
    );
    let server = TestServer::start("", &format!("{ENDPOINTS}{endpoint}"));
    let told = |query: &str| server.get(&format!("/sized?{query}")).text().to_owned();
    assert!(told("size=x").contains(r#"parameter `size` is none of \"s\", \"m\""#), "{}", told("size=x"));
    assert!(told("code=x").contains(r#"\"c9\" and 20 more"#), "{}", told("code=x"));
    let long = told(&format!("n={}", "%C3%A9".repeat(500)));
    assert!(long.contains("é…`, which is not an integer") && long.len() < 300, "{long}");
}

#[test]
fn a_body_that_is_compressed_is_refused_wherever_it_goes() {
    let server = TestServer::start("", ENDPOINTS);
    let item = br#"{"id":1,"group":"g","price":1}"#;
    for target in ["/_/collections/items", "/_/collections/items/bulk", "/_/query", "/first"] {
        for coding in ["gzip", "identity\r\nContent-Encoding: br"] {
            let refused = server.ask("POST", target, &format!("Content-Encoding: {coding}\r\n"), item);
            assert_eq!(refused.status, 415, "{target}: {}", refused.text());
            assert!(refused.text().contains("bodies are taken as they are"), "{}", refused.text());
        }
    }
    assert_eq!(server.ask("POST", "/_/collections/items", "Content-Encoding: Identity\r\n", item).status, 201);
}
