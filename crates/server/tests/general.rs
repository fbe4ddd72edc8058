//! The general API under `/_/`: documents and their tags, lists, bulk, queries, and errors.

use crate::harness::{Answer, TestServer};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ITEM: &[u8] = br#"{"id":7,"group":"g1","price":70}"#;
const PATH: &str = "/_/collections/items/7";

/// Checks that a failure is a problem document of its status, whatever `[errors]` sets.
#[track_caller]
fn check_problem(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.field("Content-Type"), Some("application/problem+json"));
    let problem = answer.json();
    assert_eq!(problem["status"], status);
    assert!(problem["title"].is_string() && problem["detail"].is_string(), "{problem}");
}

fn start() -> TestServer {
    TestServer::start("", "[errors]\ninvalid = 422\nbody = \"no\"\n")
}

#[test]
fn a_document_is_created_read_changed_and_deleted_under_its_key() {
    let server = start();
    let created = server.ask("POST", "/_/collections/items", "", ITEM);
    assert_eq!((created.status, created.field("Location")), (201, Some(PATH)));
    let read = server.get(PATH);
    assert_eq!((read.status, read.body.as_slice()), (200, ITEM));
    assert_eq!(read.field("ETag"), created.field("ETag"));
    assert_eq!(server.ask("PATCH", PATH, "", br#"{"price":71}"#).status, 200);
    assert_eq!(server.get(PATH).json()["price"], 71);
    assert_eq!(server.ask("PUT", PATH, "", ITEM).status, 200);
    assert_eq!(server.ask("PUT", "/_/collections/items/8", "", br#"{"id":8,"group":"g","price":1}"#).status, 201);
    assert_eq!(server.ask("DELETE", PATH, "", b"").status, 204);
    check_problem(&server.get(PATH), 404);
}

#[test]
fn a_patch_may_carry_the_key_of_its_path_and_no_other() {
    let server = start();
    assert_eq!(server.ask("POST", "/_/collections/items", "", ITEM).status, 201);
    assert_eq!(server.ask("PATCH", PATH, "", br#"{"id":7,"price":72}"#).status, 200);
    assert_eq!(server.get(PATH).json()["price"], 72);
    check_problem(&server.ask("PATCH", PATH, "", br#"{"id":8,"price":73}"#), 400);
    check_problem(&server.ask("PATCH", PATH, "", br#"{"id":null}"#), 400);
    assert_eq!(server.get(PATH).json()["price"], 72);
}

#[test]
fn a_truth_value_is_no_key() {
    let free = "[collections.free]\nkey = { field = \"id\", type = \"u32\" }\n";
    let server = TestServer::start("", free);
    for id in ["true", "false", "-0", "1.5"] {
        let body = format!("{{\"id\":{id}}}");
        check_problem(&server.ask("POST", "/_/collections/free", "", body.as_bytes()), 400);
    }
    assert_eq!(server.ask("POST", "/_/collections/free", "", b"{\"id\":1.0}").status, 201);
    check_problem(&server.ask("POST", "/_/collections/free", "", b"{\"id\":1}"), 409);
    assert_eq!(server.get("/_/collections/free/1").text(), "{\"id\":1.0}");
}

#[test]
fn a_list_refuses_a_parameter_that_is_there_twice() {
    let server = start();
    server.put_items(0..5);
    for twice in ["after=1&after=2", "limit=1&limit=1", "after=1&limit=2&after=1"] {
        let answer = server.get(&format!("/_/collections/items?{twice}"));
        check_problem(&answer, 400);
        assert!(answer.text().contains("more than once"), "{}", answer.text());
    }
}

#[test]
fn preconditions_compare_tags() {
    let server = start();
    let tag = server.ask("POST", "/_/collections/items", "", ITEM).field("ETag").unwrap_or_default().to_owned();
    let same = server.ask("GET", PATH, &format!("If-None-Match: \"0\", {tag}\r\n"), b"");
    assert_eq!((same.status, same.field("ETag"), same.text()), (304, Some(tag.as_str()), ""));
    assert_eq!(server.ask("GET", PATH, "If-None-Match: \"0\"\r\n", b"").status, 200);
    assert_eq!(server.ask("GET", PATH, "If-None-Match: *\r\n", b"").status, 304);
    let changed = br#"{"id":7,"group":"g2","price":70}"#;
    assert_eq!(server.ask("PUT", PATH, &format!("If-Match: {tag}\r\n"), changed).status, 200);
    check_problem(&server.ask("PUT", PATH, &format!("If-Match: {tag}\r\n"), ITEM), 412);
    check_problem(&server.ask("PUT", PATH, "If-None-Match: *\r\n", ITEM), 412);
    check_problem(&server.ask("DELETE", "/_/collections/items/9", "If-Match: *\r\n", b""), 404);
    check_problem(&server.ask("PUT", PATH, "If-Match: seven\r\n", ITEM), 400);
}

#[test]
fn lines_of_a_precondition_are_one_list_and_two_preconditions_are_refused() {
    let server = start();
    let tag = server.ask("POST", "/_/collections/items", "", ITEM).field("ETag").unwrap_or_default().to_owned();
    check_problem(&server.ask("PUT", PATH, &format!("If-None-Match: \"0\"\r\nif-none-match: {tag}\r\n"), ITEM), 412);
    check_problem(&server.ask("PUT", PATH, "If-Match: \"0\"\r\nIf-Match: \"1\"\r\n", ITEM), 412);
    assert_eq!(server.ask("PUT", PATH, &format!("If-Match: {tag}\r\nIf-Match: \"0\"\r\n"), ITEM).status, 200);
    assert_eq!(server.ask("PUT", PATH, "If-Match: \"0\"\r\nIf-Match: *\r\n", ITEM).status, 200);
    assert_eq!(server.ask("GET", PATH, "If-None-Match: \"0\"\r\nIf-None-Match: *\r\n", b"").status, 304);
    check_problem(&server.ask("PUT", PATH, &format!("If-Match: {tag}\r\nIf-None-Match: *\r\n"), ITEM), 400);
    assert_eq!(server.get(PATH).field("ETag"), Some(tag.as_str()));
}

#[test]
fn a_list_goes_on_behind_a_key() {
    let server = start();
    server.put_items(0..5);
    let keys = |target: &str| {
        let list = server.get(target).json();
        let keys: Vec<u64> =
            list["items"].as_array().into_iter().flatten().filter_map(|item| item["id"].as_u64()).collect();
        (keys, list["after"].clone())
    };
    assert_eq!(keys("/_/collections/items?limit=2"), (vec![0, 1], json!(1)));
    assert_eq!(keys("/_/collections/items?limit=2&after=1"), (vec![2, 3], json!(3)));
    assert_eq!(keys("/_/collections/items?after=3"), (vec![4], json!(null)));
    for target in ["?limit=0", "?limit=x", "?limit=1001", "?after=x", "?page=1"] {
        check_problem(&server.get(&format!("/_/collections/items{target}")), 400);
    }
    check_problem(&server.get("/_/collections/nobody"), 404);
}

#[test]
fn bulk_tells_each_line_that_failed_and_stores_the_others() {
    let server = start();
    let lines = b"{\"id\":1,\"group\":\"a\",\"price\":1}\n\nnot JSON\n{\"id\":1,\"group\":\"a\",\"price\":2}\n{\"id\":2,\"group\":\"a\",\"price\":3}\r\n{\"id\":3}";
    let answer = server.ask("POST", "/_/collections/items/bulk", "", lines);
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("application/x-ndjson")));
    let told: Vec<serde_json::Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
    let pairs: Vec<(u64, u64)> =
        told.iter().filter_map(|line| Some((line["line"].as_u64()?, line["status"].as_u64()?))).collect();
    assert_eq!(pairs, [(3, 400), (4, 409), (6, 400)]);
    assert!(told.iter().all(|line| line["detail"].is_string()));
    let rows = server.query(&json!({ "sql": "SELECT id, price FROM items ORDER BY id" })).json();
    assert_eq!(rows, json!([{ "id": 1, "price": 1 }, { "id": 2, "price": 3 }]));
}

#[test]
fn rows_come_in_the_shape_that_is_accepted() {
    let server = start();
    server.put_items(0..3);
    let body =
        json!({ "sql": "SELECT id, \"group\" FROM items WHERE id < :n ORDER BY id", "params": { "n": 2 } }).to_string();
    for (accept, media, expected) in [
        ("*/*", "application/json", "[{\"id\":0,\"group\":\"g0\"},{\"id\":1,\"group\":\"g1\"}]"),
        ("application/x-ndjson", "application/x-ndjson", "{\"id\":0,\"group\":\"g0\"}\n{\"id\":1,\"group\":\"g1\"}\n"),
        ("text/csv", "text/csv; charset=utf-8", "id,group\r\n0,g0\r\n1,g1\r\n"),
    ] {
        let answer = server.ask("POST", "/_/query", &format!("Accept: {accept}\r\n"), body.as_bytes());
        assert_eq!((answer.status, answer.field("Content-Type"), answer.text()), (200, Some(media), expected));
    }
}

#[test]
fn an_independent_reader_finds_the_rows_of_csv_as_they_were_given() {
    let server = start();
    server.put_items(0..1);
    let texts =
        [json!("a,b"), json!(null), json!("say \"so\""), json!("two\r\nlines"), json!(""), json!(-7), json!("ü")];
    let sql = "SELECT value FROM json_each(:l)";
    let body = json!({ "sql": sql, "params": { "l": texts } }).to_string();
    let answer = server.ask("POST", "/_/query", "Accept: text/csv\r\n", body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    let read = "import csv, io, json, sys\n\
        text = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8', newline='')\n\
        print(json.dumps(list(csv.reader(text))))";
    let python = Command::new("python3").args(["-c", read]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = python else {
        // Not captured by libtest, which hides the output of passing tests: `cargo xtask test` counts this line.
        std::io::Write::write_all(&mut std::io::stdout(), b"\nSKIPPED: there is no python3\n")
            .expect("a standard output");
        return;
    };
    python.stdin.take().unwrap().write_all(&answer.body).unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&python.wait_with_output().unwrap().stdout).unwrap();
    // NULL is empty, and still a row.
    let expected = json!([["value"], ["a,b"], [""], ["say \"so\""], ["two\r\nlines"], [""], ["-7"], ["ü"]]);
    assert_eq!(rows, expected, "{}", answer.text());
}

#[test]
fn what_was_sent_is_repeated_up_to_a_hundred_bytes() {
    let server = start();
    let (long, shown) = ("x".repeat(500), format!("`{}…`", "x".repeat(100)));
    let query = |body: serde_json::Value| server.query(&body);
    for answer in [
        server.get(&format!("/_/collections/{long}")),
        server.get(&format!("/_/collections/items/{long}")),
        server.get(&format!("/_/collections/items?limit={long}")),
        server.get(&format!("/_/collections/items?after={long}")),
        server.get(&format!("/_/collections/items?{long}=1")),
        server.get(&format!("/_/changes?since={long}")),
        server.get(&format!("/_/changes?collection={long}")),
        server.get(&format!("/_/changes?{long}=1")),
        server.get(&format!("/_/views/{long}")),
        query(json!({ "sql": "SELECT 1", long.clone(): 1 })),
        server.ask("POST", &format!("/_/config/reload?allow-drop={long}"), "", b""),
    ] {
        assert!(answer.status == 400 || answer.status == 404, "{}", answer.text());
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(&shown) && !detail.contains(&long), "{detail}");
    }
}

#[test]
fn parameters_of_a_query_keep_their_json_and_lists_are_their_text() {
    let server = start();
    server.put_items(0..1);
    let sql = "SELECT :a AS a, :b AS b, :c AS c, :d AS d, typeof(:e) AS e FROM items";
    let rows = server
        .query(&json!({ "sql": sql, "params": { "a": [1, "x"], "b": { "k": null }, "c": true, "d": 1.5, "e": null } }));
    assert_eq!(rows.json(), json!([{ "a": "[1,\"x\"]", "b": "{\"k\":null}", "c": 1, "d": 1.5, "e": "null" }]));
    check_problem(&server.query(&json!({ "sql": sql, "params": { "a": 1 } })), 400);
}

#[test]
fn explain_gives_the_plan_for_the_parameters_that_are_present() {
    let server = start();
    let sql = "EXPLAIN QUERY PLAN SELECT price FROM items WHERE (:id IS NULL OR id = :id)";
    let plan =
        |params: serde_json::Value| server.query(&json!({ "sql": sql, "params": params })).json()[0]["plan"].clone();
    assert!(plan(json!({})).as_str().is_some_and(|line| line.starts_with("SCAN items")));
    assert_eq!(plan(json!({ "id": 1 })), json!("LOOKUP items BY KEY (id=:id)"));
    let csv = server.ask("POST", "/_/query", "Accept: text/csv\r\n", br#"{"sql":"explain SELECT id FROM items"}"#);
    assert!(csv.text().starts_with("plan\r\nSCAN items"), "{}", csv.text());
    let wrong = server.query(&json!({ "sql": "EXPLAIN SELECT nobody FROM items" }));
    check_problem(&wrong, 400);
    assert!(wrong.text().contains("line 1, column 16"), "{}", wrong.text());
}

#[test]
fn explain_gives_json_with_what_is_expected_and_after_a_run_what_was_done() {
    let server = start();
    server.put_items(0..30);
    let sql = "SELECT a.price FROM items a LEFT JOIN items b ON b.id = a.price WHERE a.id >= 10 AND a.id < 20";
    let ask = |explain: &str| server.query(&json!({ "sql": format!("{explain} {sql}") })).json();
    let plan = ask("EXPLAIN (FORMAT JSON)")[0]["plan"].clone();
    let levels = plan["levels"].as_array().expect("levels");
    assert_eq!(
        levels.iter().map(|level| level["alias"].as_str()).collect::<Vec<_>>(),
        [Some("a"), Some("b")],
        "{plan}"
    );
    assert!(levels.iter().all(|level| level["estimated"]["rows"].as_f64() > Some(0.0)), "{plan}");
    assert!(levels.iter().all(|level| level.get("actual").is_none()) && plan.get("actual").is_none(), "{plan}");
    let plan = ask("explain (analyze, format json)")[0]["plan"].clone();
    // Ten documents are in the range, and one document is looked up for each.
    assert_eq!(plan["levels"][0]["actual"], json!({ "loops": 1, "read": 11, "rows": 10 }), "{plan}");
    assert_eq!(plan["levels"][1]["actual"]["loops"], 10, "{plan}");
    assert_eq!(plan["levels"][1]["actual"]["rows"], 10, "{plan}");
    assert_eq!(plan["actual"]["rows"], 10, "{plan}");
    assert!(plan["actual"]["milliseconds"].as_f64() > Some(0.0), "{plan}");
    assert_eq!((&plan["threads"], &plan["may_spill"]), (&json!(1), &json!(false)), "{plan}");
    let sorted = server.query(&json!({ "sql": "EXPLAIN SELECT price FROM items ORDER BY price" })).json();
    assert_eq!(sorted[1]["plan"], "SORT (MAY SPILL)", "{sorted}");
    let text = ask("EXPLAIN ANALYZE");
    let lines: Vec<&str> = text.as_array().expect("rows").iter().filter_map(|row| row["plan"].as_str()).collect();
    assert!(
        lines[0].starts_with("SEARCH items AS a USING KEY (id>?, id<?) FILTER 2 (11 read, 10 rows; about "),
        "{lines:?}"
    );
    assert!(lines.last().is_some_and(|line| line.starts_with("10 ROWS, ") && line.ends_with(" MS")), "{lines:?}");
    let missing = server.query(&json!({ "sql": "EXPLAIN ANALYZE SELECT id FROM items WHERE id = :id" }));
    check_problem(&missing, 400);
    let wrong = server.query(&json!({ "sql": "EXPLAIN (FORMAT YAML) SELECT id FROM items" }));
    check_problem(&wrong, 400);
    assert!(wrong.text().contains("line 1, column 17"), "{}", wrong.text());
    check_problem(&server.query(&json!({ "sql": "EXPLAIN ANALYZE DELETE FROM items" })), 400);
    assert_eq!(server.query(&json!({ "sql": "SELECT COUNT(*) AS n FROM items" })).json()[0]["n"], 30);
}

#[test]
fn errors_are_problem_documents() {
    let server = start();
    let item = "/_/collections/items/1";
    for (method, target, body, status) in [
        ("GET", "/_/collections/items/x", "", 404),
        ("POST", "/_/collections/items", "{", 400),
        ("POST", "/_/collections/items", "{\"id\":1}", 400),
        ("PATCH", item, "{}", 404),
        ("POST", "/_/query", "[]", 400),
        ("POST", "/_/query", "{\"sql\":\"SELEC\"}", 400),
        ("POST", "/_/query", "{\"sql\":\"SELECT id FROM items\",\"x\":1}", 400),
        ("GET", "/_/views/any", "", 404),
        ("GET", "/_/changes?since=x", "", 400),
        ("GET", "/_/", "", 501),
    ] {
        check_problem(&server.ask(method, target, "", body.as_bytes()), status);
    }
}

#[test]
fn a_full_pool_is_busy_and_not_broken() {
    let server = TestServer::start("query_seconds = 300\nscan_rows_max = 1000000000000", "");
    server.put_items(0..3_000);
    // Two run and 64 wait: none of them ends during this test, so the others must be refused, however slow the machine is.
    let sql = "SELECT COUNT(*) AS n FROM items a, items b, items c WHERE a.price || b.price || c.price LIKE '%x%'";
    let body = json!({ "sql": sql }).to_string();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| client.send("POST", "/_/query", "", body.as_bytes()));
    let until = Instant::now() + Duration::from_secs(60);
    while clients.iter().filter(|client| client.has_answer()).count() < 34 {
        assert!(Instant::now() < until, "a query beyond those that run and wait is refused at once");
        std::thread::sleep(Duration::from_millis(5));
    }
    for client in clients.iter_mut().filter(|client| client.has_answer()) {
        check_problem(&client.answer(false), 503);
    }
    assert_eq!(server.get("/_/health").status, 200);
}

#[test]
fn waiting_writes_have_a_bound_that_bulk_keeps_as_well() {
    let server = TestServer::start("memory = \"96MiB\"\nbody_bytes_max = \"6400KiB\"", "");
    let note = "n".repeat(400_000);
    let line = |id: u32| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1,\"note\":\"{note}\"}}\n");
    let answer = server.ask("POST", "/_/collections/items/bulk", "", (1..=16).map(line).collect::<String>().as_bytes());
    assert_eq!(answer.status, 200);
    assert_eq!(answer.text(), "", "a client that is faster than the store waits");
    // Short lines take more memory as waiting writes.
    let lines = |count: u32| {
        (100..100 + count).map(|id| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1}}\n")).collect::<String>()
    };
    let many = server.ask("POST", "/_/collections/items/bulk", "", lines(10_000).as_bytes());
    assert_eq!((many.status, many.text()), (200, ""));
    assert_eq!(server.metric("sapsan_writes_in_flight_bytes"), 0.0);
}

#[test]
fn health_is_a_document() {
    assert_eq!(start().get("/_/health").json(), json!({ "status": "ok" }));
}

#[test]
fn a_query_tells_its_plan_and_scans_are_counted() {
    let server = start();
    assert_eq!(server.ask("POST", "/_/collections/items", "", ITEM).status, 201);
    let plan = |sql: &str| {
        let body = json!({ "sql": sql }).to_string();
        let answer = server.ask("POST", "/_/query", "", body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.field("Sapsan-Plan").map(str::to_owned)
    };
    let metric = |name: &str| {
        let metrics = server.get("/_/metrics");
        let line = metrics.text().lines().find(|line| line.starts_with(name)).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    let scanned = plan("SELECT price, COUNT(*) AS n FROM items GROUP BY price");
    assert_eq!(scanned.as_deref(), Some("SCAN items; GROUP BY 1 KEYS"));
    assert_eq!(plan("SELECT price FROM items WHERE id = 7").as_deref(), Some("LOOKUP items BY KEY (id=?)"));
    assert_eq!(metric("sapsan_query_scans_total "), Some(1));
    assert_eq!(metric("sapsan_query_rows_read_total "), Some(2));
}

#[test]
fn a_text_that_comes_again_is_not_prepared_again() {
    let server = start();
    assert_eq!(server.ask("POST", "/_/collections/items", "", ITEM).status, 201);
    let ask = |price: i64, page: bool| {
        let mut body = json!({ "sql": "SELECT id FROM items WHERE price > :p", "params": { "p": price } });
        if page {
            body["limit"] = json!(5);
        }
        let answer = server.ask("POST", "/_/query", "", body.to_string().as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text().matches("\"id\"").count()
    };
    assert_eq!([ask(0, false), ask(1_000_000, false), ask(0, false)], [1, 0, 1]);
    assert_eq!([ask(1_000_000, true), ask(0, true)], [0, 1]);
    let counted =
        ["found", "prepared", "evicted"].map(|what| server.metric(&format!("sapsan_query_statements_{what}_total")));
    assert_eq!(counted, [3.0, 2.0, 0.0]);
    assert!(server.get("/_/metrics").text().contains("sapsan_memory_used_bytes{part=\"statements\"} "));
}

#[test]
fn a_query_over_its_time_or_its_rows_is_told_so() {
    let server = TestServer::start("scan_rows_max = 1\nquery_seconds = 1", "");
    for id in [1, 2] {
        let item = json!({"id": id, "group": "g", "price": 1}).to_string();
        assert_eq!(server.ask("POST", "/_/collections/items", "", item.as_bytes()).status, 201);
    }
    let answer = server.ask("POST", "/_/query", "", br#"{"sql":"SELECT SUM(price) AS s FROM items"}"#);
    check_problem(&answer, 413);
    assert!(answer.text().contains("limit of 1 rows read (`[server] scan_rows_max`)"), "{}", answer.text());
    let endless = br#"{"sql":"SELECT COUNT(*) AS n FROM json_each(:l) a, json_each(:l) b, json_each(:l) c, json_each(:l) d","params":{"l":[LIST]}}"#;
    let list = vec!["1"; 300].join(",");
    let endless = String::from_utf8_lossy(endless).replace("LIST", &list);
    let unbounded = TestServer::start("scan_rows_max = 1000000000000\nquery_seconds = 1", "");
    let answer = unbounded.ask("POST", "/_/query", "", endless.as_bytes());
    check_problem(&answer, 504);
    assert!(answer.text().contains("time is over (`[server] query_seconds`)"), "{}", answer.text());
    // It counts as a scan, with as many rows as it was allowed.
    assert_eq!((server.metric("sapsan_query_scans_total"), server.metric("sapsan_query_rows_read_total")), (1.0, 1.0));
    let answer =
        server.ask("POST", "/_/query", "", br#"{"sql":"SELECT id, price FROM items ORDER BY price","limit":5}"#);
    check_problem(&answer, 413);
    assert_eq!((server.metric("sapsan_query_scans_total"), server.metric("sapsan_query_rows_read_total")), (2.0, 2.0));
}

#[test]
fn threads_of_queries_give_way_to_the_loops_and_not_to_every_process_of_the_machine() {
    let server = TestServer::start("scan_rows_max = 1000000000000\nquery_seconds = 600", "");
    // Each thread sets its priority when it begins its first query; these two end with their clients.
    let _clients = [(); 2].map(|()| {
        let mut client = server.connect();
        client.send("POST", "/_/query", "", endless().as_bytes());
        client
    });
    let deadline = Instant::now() + Duration::from_secs(30);
    let nice = loop {
        let nice = nice_values_of_query_threads();
        if nice.len() >= 2 && nice.iter().all(|nice| *nice > 0) {
            break nice;
        }
        assert!(Instant::now() < deadline, "{nice:?}");
        std::thread::sleep(Duration::from_millis(5));
    };
    // The lowest priority, 19, would leave a seventieth of a core beside one busy process.
    assert!(nice.iter().all(|nice| *nice <= 5), "{nice:?}");
}

/// A query of 300⁴ rows.
fn endless() -> String {
    let sql = "SELECT COUNT(*) AS n FROM json_each(:l) a, json_each(:l) b, json_each(:l) c, json_each(:l) d";
    json!({ "sql": sql, "params": { "l": vec![1; 300] } }).to_string()
}

fn nice_values_of_query_threads() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread that has ended meanwhile has no file.
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    stats
        .filter_map(|stat| {
            let (head, rest) = stat.rsplit_once(") ").unwrap();
            // The 19th field, see proc_pid_stat(5).
            head.contains("(query-").then(|| rest.split(' ').nth(16).unwrap().parse().unwrap())
        })
        .collect()
}

#[test]
fn waiting_for_a_thread_is_part_of_a_querys_time_and_past_it_the_query_is_not_begun() {
    let server = TestServer::start("scan_rows_max = 1000000000000\nquery_seconds = 1", "");
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send("POST", "/_/query", "", endless().as_bytes());
    }
    let answers: Vec<_> = clients.iter_mut().map(|client| client.answer(false)).collect();
    // Two run until their time limit; then the others' limit has passed too, or has microseconds left.
    let mut told: Vec<_> = answers.iter().map(|answer| (answer.status, answer.field("Retry-After"))).collect();
    told.sort_unstable();
    assert_eq!(told[2..], [(504, None), (504, None)]);
    assert!(told.iter().all(|told| [(503, Some("1")), (504, None)].contains(told)), "{told:?}");
    for waited in answers.iter().filter(|answer| answer.status == 503) {
        assert!(waited.text().contains("no thread was free within the time of a query"), "{}", waited.text());
    }
}

#[test]
fn a_document_over_what_one_transaction_takes_is_told_with_the_setting_that_bounds_it() {
    let server = TestServer::start("memory = \"32MiB\"", "");
    let body = json!({ "id": 1, "group": "a", "price": 1, "note": "n".repeat(400_000) }).to_string();
    let answer = server.ask("POST", "/_/collections/items", "", body.as_bytes());
    assert_eq!(answer.status, 413, "{}", answer.text());
    let told = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(told.contains("over 262144 bytes") && told.ends_with("a part of `[server] memory`"), "{told}");
}
