//! `guard`: a query that must return a row before an endpoint does anything, for every action.

use crate::harness::{COLLECTIONS, TestServer, mistakes};
use serde_json::json;

const GUARDED: &str = r#"
[collections.sessions]
key = { field = "id", type = "string" }
[[endpoints]]
route = "POST /sessions"
insert = "sessions"
[[endpoints]]
route = "DELETE /sessions/{id}"
delete = "sessions/{id}"

[guards.session]
sql = "SELECT user, id AS session_id FROM sessions WHERE id = :session"
params = { session = { type = "string", from = "cookie:session" } }
detail = "sign in first"

[guards.admin]
sql = "SELECT id FROM sessions WHERE id = :key AND user = 'root'"
params = { key = { type = "string", from = "header:X-Session" } }
else = 403

[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
guard = "session"
[[endpoints]]
route = "POST /items"
insert = "items"
guard = "session"
[[endpoints]]
route = "PATCH /items/{id}"
update = "items/{id}"
guard = "session"
[[endpoints]]
route = "PUT /items/{id}"
replace = "items/{id}"
guard = "session"
[[endpoints]]
route = "DELETE /items/{id}"
delete = "items/{id}"
guard = "session"
[[endpoints]]
route = "GET /mine"
query = "SELECT id, price FROM items WHERE \"group\" = :user AND price >= :least ORDER BY id"
params = { least = { type = "integer", default = 0 } }
guard = "session"
[[endpoints]]
route = "GET /mine/first"
query = "SELECT id FROM items WHERE \"group\" = :user ORDER BY id"
result = "row"
guard = "session"
[[endpoints]]
route = "GET /mine/sorted"
query = "SELECT id FROM items WHERE \"group\" = :user"
sort = { up = "ORDER BY id", down = "ORDER BY id DESC" }
guard = "session"
[[endpoints]]
route = "GET /mine/pages"
query = "SELECT id FROM items WHERE \"group\" = :user ORDER BY id"
page = { limit = 1, max = 10 }
guard = "session"
[[endpoints]]
route = "POST /mine"
steps = [{ sql = "INSERT INTO items (id, \"group\", price) VALUES (:id, :user, 1) RETURNING id" }]
body = { required = ["id"], properties = { id = { type = "integer" } } }
guard = "session"
[[endpoints]]
route = "GET /items/{id}/twin"
query = "SELECT id FROM items WHERE id = :id"
require = "items/{id}"
guard = "session"
[[endpoints]]
route = "GET /all"
query = "SELECT COUNT(*) AS n FROM items"
result = "row"
guard = "admin"
"#;

const S1: &str = "Cookie: session=s1\r\n";

fn start() -> TestServer {
    let server = TestServer::start("", GUARDED);
    for (id, user) in [("s1", "g"), ("s2", "h"), ("s3", "root")] {
        let body = json!({ "id": id, "user": user }).to_string();
        assert_eq!(server.ask("POST", "/sessions", "", body.as_bytes()).status, 201);
    }
    server
}

/// Method, target, body, and the status with a session.
const REQUESTS: [(&str, &str, &str, u16); 12] = [
    ("POST", "/items", r#"{"id":1,"group":"g","price":7}"#, 201),
    ("GET", "/items/1", "", 200),
    ("PATCH", "/items/1", r#"{"price":8}"#, 200),
    ("PUT", "/items/1", r#"{"id":1,"group":"g","price":9}"#, 200),
    ("POST", "/mine", r#"{"id":2}"#, 200),
    ("GET", "/mine", "", 200),
    ("GET", "/mine/first", "", 200),
    ("GET", "/mine/sorted?sort=down", "", 200),
    ("GET", "/mine/pages", "", 200),
    ("GET", "/items/1/twin", "", 200),
    ("GET", "/items/9/twin", "", 404),
    ("DELETE", "/items/1", "", 200),
];

#[test]
fn every_action_asks_its_guard_first() {
    let server = start();
    for (method, target, body, status) in REQUESTS {
        for fields in ["", "Cookie: session=nobody\r\n", "X-Session: s1\r\n", "Cookie: session=\r\n"] {
            let answer = server.ask(method, target, fields, body.as_bytes());
            assert!(
                answer.status == 401 && answer.text().contains("sign in first"),
                "{method} {target}: {}",
                answer.text()
            );
        }
        // No client can set it in the query.
        let separator = if target.contains('?') { "&" } else { "?" };
        let in_query = format!("{target}{separator}session=s1");
        assert_eq!(server.ask(method, &in_query, "", body.as_bytes()).status, 401, "{method} {in_query}");
        let answer = server.ask(method, target, S1, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
    }
    assert_eq!(server.ask("GET", "/mine", "Accept: text/csv\r\n", b"").status, 401);
    // An invalid body is not checked for a client that may not send any.
    assert_eq!(server.ask("POST", "/items", "", b"{").status, 401);
    assert_eq!(server.ask("POST", "/items", S1, b"{").status, 400);
    assert_eq!(server.ask("GET", "/mine", "Cookie: session=s1; session=s2\r\n", b"").status, 400);
}

#[test]
fn the_columns_of_its_row_are_parameters() {
    let server = start();
    for (id, group) in [(1, "g"), (2, "h"), (3, "g"), (4, "g")] {
        let body = json!({ "id": id, "group": group, "price": id }).to_string();
        assert_eq!(server.ask("POST", "/items", S1, body.as_bytes()).status, 201);
    }
    let ask = |target: &str, fields: &str| server.ask("GET", target, fields, b"").json();
    assert_eq!(ask("/mine?least=2", S1), json!([{ "id": 3, "price": 3 }, { "id": 4, "price": 4 }]));
    assert_eq!(ask("/mine", "Cookie: session=s2\r\n"), json!([{ "id": 2, "price": 2 }]));
    assert_eq!(ask("/mine/first", S1), json!({ "id": 1 }));
    assert_eq!(ask("/mine/sorted?sort=down", S1)[0], json!({ "id": 4 }));
    let first = ask("/mine/pages?limit=2", S1);
    assert_eq!(first["items"], json!([{ "id": 1 }, { "id": 3 }]));
    let after = first["after"].as_str().expect("a cursor");
    let second = ask(&format!("/mine/pages?limit=2&after={after}"), S1);
    assert_eq!((&second["items"], &second["after"]), (&json!([{ "id": 4 }]), &json!(null)));
    // A cursor gives no access to another user's rows.
    let other = ask(&format!("/mine/pages?after={after}"), "Cookie: session=s2\r\n");
    assert_eq!(other["items"], json!([]));
    // Rows that are sent while they are made are guarded too.
    let lines = server.ask("GET", "/mine", &format!("{S1}Accept: application/x-ndjson\r\n"), b"");
    assert_eq!((lines.status, lines.text().lines().count()), (200, 3), "{}", lines.text());
}

#[test]
fn a_guard_has_a_status_of_its_own_and_holds_until_its_row_is_gone() {
    let server = start();
    assert_eq!(server.get("/all").status, 403);
    assert_eq!(server.ask("GET", "/all", "X-Session: s1\r\n", b"").status, 403);
    assert_eq!(server.ask("GET", "/all", "X-Session: s3\r\n", b"").status, 200);
    let item = br#"{"id":1,"group":"g","price":7}"#;
    assert_eq!(server.ask("DELETE", "/sessions/s1", "", b"").status, 200);
    assert_eq!(server.ask("POST", "/items", S1, item).status, 401);
    assert_eq!(server.ask("GET", "/all", "X-Session: s3\r\n", b"").text(), r#"{"n":0}"#);
}

#[test]
fn a_write_with_a_session_that_ends_beside_it_is_done_before_the_end_or_not_at_all() {
    let server = start();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let item = |id: u32| json!({ "id": id, "group": "g", "price": 1 }).to_string();
            let write = |id: u32| server.ask("POST", "/items", S1, item(id).as_bytes()).status;
            let (began, mut answers) = (std::time::Instant::now(), Vec::new());
            // Some more after the first that is refused.
            while answers.iter().filter(|status| **status != 201).count() < 20 {
                assert!(began.elapsed() < std::time::Duration::from_secs(60), "no write is refused");
                answers.push(write(1000 + answers.len() as u32));
            }
            answers
        });
        let end = server.ask("DELETE", "/sessions/s1", "", b"");
        assert_eq!(end.status, 200);
        let answers = writer.join().expect("a writer");
        let done = answers.iter().take_while(|status| **status == 201).count();
        assert!(answers[done..].iter().all(|status| *status == 401), "{answers:?}");
    });
}

#[test]
fn the_openapi_document_tells_guards() {
    let document = start().get("/_/openapi.json").json();
    let mine = &document["paths"]["/mine"];
    assert_eq!(mine["get"]["responses"]["401"]["description"], "sign in first");
    assert_eq!(mine["post"]["responses"]["401"]["description"], "sign in first");
    assert!(document["paths"]["/all"]["get"]["responses"]["403"].is_object());
    let of = |method: &str| mine[method]["parameters"].as_array().expect("parameters").clone();
    for method in ["get", "post"] {
        let cookies = of(method).iter().filter(|parameter| parameter["in"] == "cookie").count();
        assert_eq!(cookies, 1, "{method}");
    }
    assert!(mine["post"]["description"].as_str().is_some_and(|told| told.starts_with("Runs one statement.")));
}

#[test]
fn mistakes_of_guards_are_told_once() {
    let guard = |lines: &str| {
        format!(
            "{COLLECTIONS}[guards.g]\n{lines}\n[[endpoints]]\nroute = \"GET /a\"\nquery = \"SELECT 1 AS x\"\nguard = \"g\"\n\
             [[endpoints]]\nroute = \"POST /b\"\nsteps = [{{ sql = \"SELECT 1 AS x\" }}]\nguard = \"g\"\n"
        )
    };
    for (lines, told) in [
        ("sql = \"SELECT id FROM nosuch\"", "no collection \"nosuch\""),
        ("sql = \"SELECT id FROM items WHERE id = :who\"", "the guard uses :who"),
        ("sql = \"DELETE FROM items\"", "only a SELECT"),
        ("sql = \"SELECT 1 AS x\"\nelse = 200", "from 400 to 499"),
        ("sql = \"SELECT 1 AS x\"\nwho = 1", "unknown key `who`"),
        ("params = {}", "needs `sql`"),
        ("sql = \"SELECT :p AS p\"\nparams = { p = \"string\" }", "\"header:NAME\" or \"cookie:NAME\""),
    ] {
        let all = mistakes(&guard(lines));
        let found = all.lines().filter(|line| line.contains(told)).count();
        assert_eq!(found, 1, "{lines}: {all}");
    }
    let clash = "[guards.g]\nsql = \"SELECT :id AS x\"\nparams = { id = { type = \"string\", from = \"cookie:s\" } }\n\
                 [[endpoints]]\nroute = \"GET /a/{id}\"\nquery = \"SELECT :id AS x\"\nguard = \"g\"\n";
    assert!(mistakes(&format!("{COLLECTIONS}{clash}")).contains("has a parameter `id`"), "{}", mistakes(clash));
    let all = mistakes(&format!(
        "{COLLECTIONS}[[endpoints]]\nroute = \"GET /a\"\nquery = \"SELECT 1 AS x\"\nguard = \"g\"\n"
    ));
    assert!(all.contains("the file has no guard of this name, nor any other"), "{all}");
    let unknown = guard("sql = \"SELECT 1 AS user\"").replace("SELECT 1 AS x", "SELECT :nobody AS x");
    assert!(mistakes(&unknown).contains(":nobody"), "{}", mistakes(&unknown));
}

#[test]
fn a_name_of_a_guards_column_and_of_a_parameter_is_a_mistake_of_the_file() {
    const CLASH: &str =
        "`:org` could mean either; allowed: another name for one of them, as in `SELECT … AS my_org` in the guard";
    let file = |guard: &str, endpoint: &str| {
        format!(
            "{COLLECTIONS}[collections.members]\nkey = {{ field = \"id\", type = \"string\" }}\n[guards.member]\n{guard}\n\
             [[endpoints]]\nguard = \"member\"\n{endpoint}\n"
        )
    };
    let plain = "sql = \"SELECT org FROM members WHERE id = :key\"\nparams = { key = { type = \"string\", from = \"header:X-Key\" } }";
    let query = "query = \"SELECT id FROM items WHERE \\\"group\\\" = :org\"";
    let steps = "steps = [{ sql = \"SELECT :org AS x\" }]";
    let from = |place: &str| format!("params = {{ org = {{ type = \"string\"{place} }} }}");
    let body = "body = { properties = { org = { type = \"string\" } } }";
    for (endpoint, place) in [
        (format!("route = \"GET /orgs/{{org}}/items\"\n{query}"), "the path"),
        (format!("route = \"GET /a\"\n{query}\nsort = {{ up = \"ORDER BY id\" }}\n{}", from("")), "the query"),
        (format!("route = \"GET /a\"\n{query}\n{}", from(", from = \"header:X-Org\"")), "a header field"),
        (format!("route = \"GET /a\"\n{query}\n{}", from(", from = \"cookie:org\"")), "a cookie"),
        (format!("route = \"POST /a\"\n{steps}\n{body}"), "the body"),
        (format!("route = \"POST /orgs/{{org}}\"\n{steps}"), "the path"),
        // Such an endpoint has no statement, but its author may believe that the guard decides about this part.
        ("route = \"GET /items/{org}\"\nget = \"items/{org}\"".to_owned(), "the path"),
        (format!("route = \"GET /a\"\n{query}\n[params]\norg = {{ type = \"string\", default = \"o\" }}"), "[params]"),
    ] {
        let text = file(plain, &endpoint);
        let all = mistakes(&text);
        assert!(all.contains(CLASH) && all.contains(place), "{endpoint}: {all}");
        assert_eq!(all.lines().count(), 1, "{endpoint}: {all}");
        let line = text.lines().position(|line| line == "guard = \"member\"").map(|before| before + 1);
        assert!(all.contains(&format!(":{}:9: ", line.expect("a line"))), "{endpoint}: {all}");
    }
    // The guard's own parameters are the endpoint's too.
    let own = "sql = \"SELECT :org AS org\"\nparams = { org = { type = \"string\", from = \"header:X-Org\" } }";
    let all = mistakes(&file(own, &format!("route = \"GET /a\"\n{query}")));
    assert!(all.contains(CLASH) && all.contains("a header field"), "{all}");
}
