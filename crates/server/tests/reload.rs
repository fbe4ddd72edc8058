//! Changes of the configuration while the server serves.

use crate::harness::{SERVER, TestServer};
use serde_json::{Value as Json, json};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const GET: &str = "[[endpoints]]\nroute = \"GET /items/{id}\"\nget = \"items/{id}\"\n";
const PUT: &str = "[[endpoints]]\nroute = \"POST /items\"\ninsert = \"items\"\n";
const BY: &str = "[[endpoints]]\nroute = \"GET /by/{g}\"\nparams = { g = { type = \"integer\" } }\n\
    query = \"SELECT COUNT(*) AS n FROM items WHERE g = :g\"\nresult = \"row\"\n";
/// Sorts before the items: their number changes.
const BEFORE: &str = "[collections.a]\nkey = { field = \"id\", type = \"u32\" }\n";

fn file(parts: &[&str]) -> String {
    // `[server]` last: its keys must not belong to another table.
    format!("{}\n[server]\n{SERVER}", parts.concat())
}

fn fill(server: &TestServer, count: u32) {
    let lines: String = (0..count).map(|id| format!("{{\"id\":{id},\"g\":{},\"t\":{id}}}\n", id % 3)).collect();
    assert_eq!(server.ask("POST", "/_/collections/items/bulk", "", lines.as_bytes()).text(), "");
}

/// Waits until nothing is being built, and no rule is pending.
#[track_caller]
fn settle(server: &TestServer) -> Json {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let told = server.get("/_/schema").json();
        let text = told.to_string();
        let waits = told["collections"].as_array().unwrap().iter().any(|collection| {
            collection["rules"].as_array().is_some_and(|rules| rules.iter().any(|rule| rule["state"] == "ready"))
        });
        if !waits && !text.contains("\"building\"") {
            return told;
        }
        assert!(Instant::now() < until, "{told}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[track_caller]
fn check_reloaded(answer: &crate::harness::Answer) -> Json {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    assert_eq!(told["reloaded"], true, "{told}");
    told
}

#[test]
fn collections_indexes_and_endpoints_switch_beside_requests_that_none_notices() {
    let server = TestServer::of_file(&file(&[ITEMS, GET, PUT])).unwrap();
    fill(&server, 3_000);
    assert_eq!(server.get("/by/1").status, 404);
    let configs = [
        file(&[BEFORE, ITEMS, "indexes = [[\"g\"]]\n", GET, PUT, BY]),
        file(&[ITEMS, "unique = [\"id\"]\n", GET, PUT, BY]),
        file(&[BEFORE, ITEMS, GET, PUT]),
    ];
    let (over, next) = (AtomicBool::new(false), AtomicU32::new(10_000));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (server, over, next) = (&server, &over, &next);
            scope.spawn(move || {
                let mut client = server.connect();
                while !over.load(Ordering::Relaxed) {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    client.send("POST", "/items", "", format!("{{\"id\":{id},\"g\":{}}}", id % 3).as_bytes());
                    let answer = client.answer(false);
                    assert_eq!(answer.status, 201, "{}", answer.text());
                    client.send("GET", &format!("/items/{id}"), "", b"");
                    let answer = client.answer(false);
                    assert_eq!((answer.status, answer.json()["id"].as_u64()), (200, Some(u64::from(id))));
                    // There or not, and correct if there: this client's inserts are in it.
                    client.send("GET", "/by/1", "", b"");
                    let answer = client.answer(false);
                    assert!(answer.status == 404 || answer.json()["n"].as_u64() >= Some(1_000), "{}", answer.text());
                }
            });
        }
        for round in 0..15 {
            check_reloaded(&server.reload_dropping(&configs[round % 3]));
            let found = server.get("/by/1").status;
            assert_eq!(found, if round % 3 == 2 { 404 } else { 200 }, "round {round}");
            settle(&server);
        }
        over.store(true, Ordering::Relaxed);
    });
    check_reloaded(&server.reload_dropping(&configs[0]));
    let told = settle(&server);
    assert_eq!(told["collections"][1]["indexes"], json!([{ "fields": ["g"], "state": "ready" }]), "{told}");
    let scanned = server.query(&json!({ "sql": "SELECT COUNT(*) AS n FROM items WHERE g + 0 = 1" })).json();
    assert_eq!(server.get("/by/1").json(), scanned[0]);
    assert_eq!(server.metric("sapsan_config_reloads_total"), 16.0);
    assert!(server.get("/_/openapi.json").json()["paths"]["/by/{g}"].is_object());
}

/// Queries of every kind, all of which go to the pool: rows that are sent while they are made, one row, a page.
const LATE: &str = r#"
[[endpoints]]
route = "GET /rows/{g}"
params = { g = { type = "integer" } }
query = "SELECT id, 'OLD' AS of FROM items WHERE g = :g ORDER BY id LIMIT 2"
[[endpoints]]
route = "GET /row"
query = "SELECT 'OLD' AS of, COUNT(*) AS n FROM items a JOIN items b ON a.g + b.g >= 0 AND a.id < 300"
result = "row"
[[endpoints]]
route = "GET /page"
query = "SELECT b.id, 'OLD' AS of FROM items b WHERE b.id + 0 >= (SELECT COUNT(*) FROM items a JOIN items c ON a.g + c.g < 0 AND a.id < 300) ORDER BY b.id"
page = { limit = 2 }
[[endpoints]]
route = "GET /gone"
query = "SELECT 'OLD' AS of FROM items LIMIT 1"
[[endpoints]]
route = "GET /now/{id}"
query = "SELECT 'OLD' AS of FROM items WHERE id + 0 = :id LIMIT 1"
"#;

#[test]
fn queries_that_wait_for_a_thread_while_another_configuration_takes_over_are_answered_by_it() {
    let pool = "query_seconds = 600\nscan_rows_max = 1000000000000\n";
    let old = format!("{}{pool}", file(&[ITEMS, GET, LATE]));
    let new_late = LATE.replace("'OLD'", "'NEW'").replace("GET /gone", "GET /other");
    let new_late = new_late.replace("route = \"GET /now/{id}\"", "route = \"GET /then/{id}\"");
    let now_get = GET.replace("/items/{id}", "/now/{id}");
    let new = format!("{}{pool}", file(&[BEFORE, ITEMS, "indexes = [[\"g\"]]\n", GET, &new_late, &now_get]));
    let server = TestServer::of_file(&old).unwrap();
    fill(&server, 3_000);
    // Both threads are busy until their clients disconnect.
    let list = vec!["1"; 300].join(",");
    let endless = format!(
        "{{\"sql\":\"SELECT COUNT(*) AS n FROM json_each(:l) a, json_each(:l) b, json_each(:l) c, json_each(:l) d\",\"params\":{{\"l\":[{list}]}}}}"
    );
    let mut busy: Vec<_> = (0..2).map(|_| server.connect()).collect();
    busy.iter_mut().for_each(|client| client.send("POST", "/_/query", "", endless.as_bytes()));
    let wait_for = |name: &str, count: f64| {
        let until = Instant::now() + Duration::from_secs(30);
        while server.metric(name) != count {
            assert!(Instant::now() < until, "{name} never was {count}, but {}", server.metric(name));
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for("sapsan_pool_running", 2.0);
    let sql = |more: &str| format!("{{\"sql\":\"SELECT id FROM items WHERE g = 1 ORDER BY id LIMIT 2\"{more}}}");
    let asked = [
        ("GET", "/rows/1", "Accept: text/csv\r\n", String::new()),
        ("GET", "/rows/1", "Accept: application/x-ndjson\r\n", String::new()),
        ("GET", "/row", "", String::new()),
        ("GET", "/page", "", String::new()),
        ("GET", "/gone", "Accept: text/csv\r\n", String::new()),
        ("GET", "/now/7", "Accept: text/csv\r\n", String::new()),
        ("POST", "/_/query", "", sql("")),
    ];
    let mut clients: Vec<_> = asked.iter().map(|_| server.connect()).collect();
    for (client, (method, target, fields, body)) in clients.iter_mut().zip(&asked) {
        client.send(method, target, fields, body.as_bytes());
    }
    wait_for("sapsan_pool_queued", 7.0);
    check_reloaded(&server.reload(&new));
    drop(busy);
    let answers: Vec<_> = clients.iter_mut().map(|client| client.answer(false)).collect();
    let told: Vec<_> = answers.iter().map(|answer| (answer.status, answer.text())).collect();
    assert_eq!(told[0], (200, "id,of\r\n1,NEW\r\n4,NEW\r\n"));
    assert_eq!(told[1], (200, "{\"id\":1,\"of\":\"NEW\"}\n{\"id\":4,\"of\":\"NEW\"}\n"));
    assert_eq!(told[2], (200, "{\"of\":\"NEW\",\"n\":900000}"));
    assert_eq!(told[3].0, 200, "{told:?}");
    assert!(told[3].1.starts_with("{\"items\":[{\"id\":0,\"of\":\"NEW\"}"), "{told:?}");
    assert_eq!(told[4].0, 404, "{told:?}");
    assert_eq!((told[5].0, &answers[5].json()["id"]), (200, &json!(7)));
    assert_eq!(told[6], (200, "[{\"id\":1},{\"id\":4}]"));
}

#[test]
fn loops_that_nobody_asks_for_anything_let_the_old_configuration_go() {
    let text = file(&[ITEMS, GET]).replace("threads = 1", "threads = 3");
    let server = TestServer::of_file(&text).unwrap();
    // All requests use one connection, so that two loops sleep.
    let mut client = server.connect();
    let mut held = || {
        client.send("GET", "/_/metrics", "", b"");
        let text = client.answer(false).text().to_owned();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("sapsan_config_held "));
        lines.next().map(str::to_owned)
    };
    assert_eq!(held().as_deref(), Some("1"));
    for number in 0..3 {
        check_reloaded(&server.reload(&text.replace("/items/", &format!("/items{number}/"))));
        let until = Instant::now() + Duration::from_secs(20);
        while held().as_deref() != Some("1") {
            assert!(Instant::now() < until, "the configuration before is held");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn pools_that_nobody_asks_for_anything_let_the_old_configuration_go() {
    let pairs =
        "[[endpoints]]\nroute = \"GET /pairs\"\nquery = \"SELECT a.id FROM items a, items b WHERE a.t + b.t = 5\"\n";
    let text = file(&[ITEMS, GET, pairs]);
    let server = TestServer::of_file(&text).unwrap();
    fill(&server, 300);
    for number in 0..3 {
        // It scans so many rows that it runs on the pool.
        assert_eq!(server.get("/pairs").json().as_array().map(Vec::len), Some(6));
        check_reloaded(&server.reload(&text.replace("/items/", &format!("/items{number}/"))));
        let until = Instant::now() + Duration::from_secs(20);
        while server.metric("sapsan_config_held") != 1.0 {
            assert!(Instant::now() < until, "the configuration before is held");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn statements_that_waited_behind_a_reload_run_with_what_is_in_force() {
    let view = "[views.by_g]\nquery = \"SELECT g, COUNT(*) AS n FROM items GROUP BY g\"\n";
    let text = file(&[ITEMS, "indexes = [[\"g\"]]\n", view]);
    let server = TestServer::of_file(&text).unwrap();
    fill(&server, 3_000);
    settle(&server);
    let ask = |target: &str, body: Json| {
        let mut client = server.connect();
        client.send("POST", target, "", body.to_string().as_bytes());
        client
    };
    // Every thread of the pool is busy until its client disconnects.
    let endless = "SELECT COUNT(*) AS n FROM items a, items b, items c WHERE a.t + b.t + c.t < 0";
    let held: Vec<_> = (0..2).map(|_| ask("/_/query", json!({ "sql": endless }))).collect();
    let until = Instant::now() + Duration::from_secs(20);
    while server.metric("sapsan_pool_running") < 2.0 {
        assert!(Instant::now() < until, "a thread is free");
        std::thread::sleep(Duration::from_millis(5));
    }
    let counted = "SELECT COUNT(*) AS n FROM items WHERE g = 1";
    let mut waiting = [
        ask("/_/query", json!({ "sql": counted })),
        ask("/_/query", json!({ "sql": "SELECT g, n FROM by_g ORDER BY g" })),
        ask("/_/query", json!({ "sql": "SELECT id FROM items WHERE g = 2 ORDER BY id", "limit": 2 })),
        ask("/_/query", json!({ "sql": "UPDATE items SET h = 1 WHERE g = 0 RETURNING id" })),
    ];
    let queued = 2.0 + waiting.len() as f64;
    while server.metric("sapsan_pool_queued") + server.metric("sapsan_pool_running") < queued {
        assert!(Instant::now() < until, "not all that is asked waits");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Neither the index nor the view continues under the old configuration.
    check_reloaded(&server.reload_dropping(&text.replace("[\"g\"]", "[\"g\", \"t\"]").replace("COUNT(*)", "MAX(id)")));
    drop(held);
    let answers: Vec<_> = waiting.iter_mut().map(|client| client.answer(false)).collect();
    for answer in &answers {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(answers[0].json(), json!([{ "n": 1_000 }]));
    assert_eq!(answers[2].json()["items"], json!([{ "id": 2 }, { "id": 5 }]));
    assert_eq!(answers[3].json()["changed"], 1_000);
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_is_told_with_its_place() {
    let server = TestServer::of_file(&file(&[ITEMS, GET])).unwrap();
    for (text, place) in [
        (file(&[ITEMS, "indexs = []\n", GET, BY]), "service.toml:3:1: unknown key `indexs`"),
        (file(&[ITEMS, GET, &BY.replace("COUNT", "COUNTER")]), "service.toml:9:"),
        (file(&[ITEMS, GET, &BY.replace("FROM items", "FROM nobody")]), "service.toml:9:"),
    ] {
        let answer = server.reload(&text);
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert!(answer.text().contains(place), "{}", answer.text());
        assert_eq!(server.get("/by/1").status, 404);
        // Writes continue.
        assert_eq!(server.ask("POST", "/_/collections/items", "", b"{\"id\":1}").status, 201);
        assert_eq!(server.ask("DELETE", "/_/collections/items/1", "", b"").status, 204);
    }
    let answer = server.reload(&file(&[&ITEMS.replace("u32", "string"), GET]));
    assert_eq!(answer.status, 200, "the collection is empty: {}", answer.text());
    assert_eq!(server.ask("POST", "/_/collections/items", "", b"{\"id\":\"x\"}").status, 201);
    let answer = server.reload(&file(&[ITEMS, GET, BY]));
    assert_eq!(answer.status, 409, "{}", answer.text());
    assert!(answer.text().contains("were stored with the key"), "{}", answer.text());
    assert_eq!((server.get("/items/x").status, server.get("/by/1").status), (200, 404));
    assert_eq!(server.metric("sapsan_config_reloads_refused_total"), 4.0);
}

#[test]
fn what_needs_a_restart_is_told_by_name_and_the_rest_is_taken() {
    let server = TestServer::of_file(&file(&[ITEMS])).unwrap();
    let text = file(&[ITEMS, BY]).replace("threads = 1", "threads = 2\nmemory = \"700 MB\"\nidle_seconds = 7");
    for _ in 0..2 {
        let told = check_reloaded(&server.reload(&text));
        assert_eq!(told["needs_restart"], json!(["threads", "memory", "idle_seconds"]));
    }
    assert_eq!(server.get("/by/1").status, 200);
    assert_eq!(check_reloaded(&server.reload(&file(&[ITEMS])))["needs_restart"], json!([]));
}

#[test]
fn a_schema_that_documents_break_is_refused_and_told_everywhere() {
    let server = TestServer::of_file(&file(&[ITEMS])).unwrap();
    fill(&server, 100);
    let schema = |most: u32| {
        file(&[
            ITEMS,
            &format!(
                "schema = {{ type = \"object\", properties = {{ t = {{ type = \"integer\", maximum = {most} }} }} }}\n"
            ),
        ])
    };
    assert_eq!(server.get("/_/health").json(), json!({ "status": "ok" }));
    let until = Instant::now() + Duration::from_secs(30);
    let answer = loop {
        let answer = server.reload(&schema(97));
        // A busy machine may need longer for a hundred documents than an answer waits.
        if answer.json()["is_building"] == false {
            break answer;
        }
        assert!(Instant::now() < until, "{}", answer.text());
    };
    assert_eq!((answer.status, &answer.json()["reloaded"]), (409, &json!(false)), "{}", answer.text());
    let refused = &answer.json()["refused"];
    assert_eq!((&refused[0]["collection"], &refused[0]["rule"]), (&json!("items"), &json!("schema")), "{refused}");
    let told = settle(&server);
    assert_eq!(refused[0]["failure"], told["collections"][0]["rules"][0]["failure"]);
    let in_force = |server: &TestServer| server.get("/_/openapi.json").json()["components"]["schemas"]["items"].clone();
    assert_eq!(in_force(&server), json!({ "type": "object" }));
    let rule = &told["collections"][0]["rules"][0];
    assert_eq!((&rule["rule"], &rule["state"]), (&json!("schema"), &json!("refused")), "{told}");
    let why = rule["failure"].as_str().unwrap();
    assert!(why.contains("items/98") && why.ends_with("2 documents break it: items/98, items/99"), "{why}");
    let health = server.get("/_/health");
    assert_eq!((health.status, &health.json()["schema"]), (200, &json!(format!("refused: {why}"))));
    assert_eq!(server.metric("sapsan_schema_refused"), 1.0);
    assert_eq!(server.ask("PUT", "/_/collections/items/500", "", b"{\"id\":500,\"t\":\"text\"}").status, 201);
    assert_eq!(server.ask("DELETE", "/_/collections/items/500", "", b"").status, 204);
    // A rule that all documents satisfy comes into force.
    check_reloaded(&server.reload(&schema(99)));
    assert_eq!(settle(&server)["collections"][0]["rules"], Json::Null);
    assert_eq!(in_force(&server)["properties"]["t"]["maximum"], 99);
    assert_eq!(server.ask("PUT", "/_/collections/items/500", "", b"{\"id\":500,\"t\":100}").status, 400);
    assert_eq!(server.get("/_/health").json(), json!({ "status": "ok" }));
}

#[test]
fn documents_begin_to_expire_when_all_have_a_time() {
    let server = TestServer::of_file(&file(&[ITEMS, GET])).unwrap();
    fill(&server, 100);
    assert_eq!(server.get("/items/1").status, 200);
    check_reloaded(&server.reload(&file(&[ITEMS, "expire = \"t\"\n", GET])));
    settle(&server);
    assert_eq!(server.get("/items/1").status, 404);
    let until = Instant::now() + Duration::from_secs(20);
    while server.metric("sapsan_expired_total") < 100.0 {
        assert!(Instant::now() < until, "nobody removes them");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn who_follows_changes_goes_on_where_it_was_when_collections_come() {
    // The reported state is on disk.
    let server = TestServer::of_file(&file(&[ITEMS]).replace("none", "commit")).unwrap();
    let follow = |since: &str| {
        let mut client = server.connect();
        client.send("GET", &format!("/_/changes?since={since}"), "", b"");
        client.head();
        client
    };
    let (mut client, mut text) = (follow("0"), String::new());
    fill(&server, 1);
    client.read_until(&mut text, |text| text.contains("\"items\""));
    // The same collections: clients notice nothing.
    check_reloaded(&server.reload(&file(&[ITEMS, "indexes = [[\"g\"]]\n"])));
    assert_eq!(server.ask("POST", "/_/collections/items", "", b"{\"id\":7}").status, 201);
    client.read_until(&mut text, |text| text.contains("\"id\":7"));
    check_reloaded(&server.reload_dropping(&file(&[BEFORE, ITEMS])));
    client.read_until(&mut text, |text| text.contains("go on from"));
    let mut client = follow("0");
    assert_eq!(server.ask("POST", "/_/collections/a", "", b"{\"id\":8}").status, 201);
    text.clear();
    client.read_until(&mut text, |text| text.contains("\"id\":8"));
    let new = text.lines().find(|line| line.contains("\"id\":8")).unwrap();
    assert!(new.contains("\"collection\":\"a\"") && text.contains("\"id\":7"), "{text}");
}

#[test]
fn a_file_that_would_drop_something_is_refused_with_a_list_unless_the_request_permits_it() {
    let view = "[views.by_g]\nquery = \"SELECT g, COUNT(*) AS n FROM items GROUP BY g\"\n";
    let whole = file(&[BEFORE, ITEMS, "indexes = [[\"g\"]]\nunique = [\"t\"]\n", GET, view]);
    let server = TestServer::of_file(&whole).unwrap();
    fill(&server, 100);
    assert_eq!(server.ask("POST", "/_/collections/a", "", b"{\"id\":1}").status, 201);
    settle(&server);
    let less = file(&[ITEMS, GET, PUT]);
    let refused = server.reload(&less);
    assert_eq!(refused.status, 409, "{}", refused.text());
    let lost = json!([
        "the collection a (its documents stay in the folder)",
        "the index items(g)",
        "the unique field items(t)",
        "the view by_g"
    ]);
    assert_eq!((&refused.json()["would_drop"], &refused.json()["status"]), (&lost, &json!(409)));
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("the index items(g)") && detail.contains("reload?allow-drop=true"), "{detail}");
    // Everything is as it was.
    assert_eq!(server.get("/_/views").json()[0]["state"], "ready");
    assert_eq!(server.get("/_/collections/a/1").status, 200);
    assert_eq!(server.ask("POST", "/items", "", b"{\"id\":1000}").status, 404);
    for (query, told) in [
        ("?allow-drop=yes", "allow-drop is `yes`; allowed: true, false"),
        ("?alow-drop=true", "unknown parameter `alow-drop`; allowed: allow-drop"),
        ("?allow-drop=true&allow-drop=true", "more than once"),
    ] {
        let answer = server.ask("POST", &format!("/_/config/reload{query}"), "", b"");
        assert!(answer.status == 400 && answer.text().contains(told), "{}", answer.text());
    }
    assert_eq!(server.ask("POST", "/_/config/reload?allow-drop=false", "", b"").status, 409);
    let told = check_reloaded(&server.reload_dropping(&less));
    assert_eq!(told["dropped"], lost);
    // Gone after this one reload: from the list of views, from SQL, and without an error.
    assert_eq!(server.get("/_/views").json(), json!([]));
    assert_eq!(server.query(&json!({ "sql": "SELECT n FROM by_g" })).status, 400);
    assert_eq!(server.get("/_/health").json(), json!({ "status": "ok" }));
    assert_eq!(server.get("/_/collections/a/1").status, 404);
    assert_eq!(server.ask("POST", "/items", "", b"{\"id\":1000}").status, 201);
    // The permission counts once: the next reload drops nothing more.
    assert_eq!(check_reloaded(&server.reload(&less))["dropped"], Json::Null);
    // The documents of the collection have stayed.
    check_reloaded(&server.reload(&file(&[BEFORE, ITEMS, GET, PUT])));
    assert_eq!(server.get("/_/collections/a/1").status, 200);
    // A file of another service is refused, whatever is permitted.
    let other = server.reload_dropping(&file(&[&BEFORE.replace("[collections.a]", "[collections.b]")]));
    assert_eq!(other.status, 409);
    let detail = other.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("it holds the collections a, items") && detail.contains("the collection b"), "{detail}");
    assert_eq!(server.get("/_/collections/a/1").status, 200);
}
