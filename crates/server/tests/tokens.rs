//! Tokens: they open the general API to any client that sends them, within their scopes and until they expire.

use crate::harness::{Answer, COLLECTIONS, Client, SERVER, TestServer, mistakes};
use server::token::NewToken;
use std::io::Write;

/// A token of this number, and its section of the file.
fn token(number: u8, name: &str, more: &str) -> (String, String) {
    let new = NewToken::new(&[number; 32]);
    (new.text, format!("[tokens.{name}]\nsha256 = \"{}\"\n{more}\n", new.sha256))
}

/// A request that is refused without a token: its host is unknown.
#[track_caller]
fn from_afar(server: &TestServer, request: &str, fields: &str, body: &str) -> Answer {
    let mut client = server.connect();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: api.example\r\nContent-Length: {length}\r\n{fields}\r\n{body}");
    client.stream.write_all(head.as_bytes()).unwrap();
    client.answer(request.starts_with("HEAD"))
}

#[track_caller]
fn with(server: &TestServer, token: &str, request: &str, body: &str) -> Answer {
    from_afar(server, request, &format!("Authorization: Bearer {token}\r\n"), body)
}

/// Three tokens of one scope each, and one of all.
fn start() -> (TestServer, [String; 4]) {
    let (reads, a) = token(1, "reads", "allow = [\"read\"]");
    let (writes, b) = token(2, "writes", "allow = [\"write\"]");
    let (admins, c) = token(3, "admins", "allow = [\"admin\"]");
    let (all, d) = token(4, "all", "allow = [\"admin\", \"write\", \"read\"]\nuntil = \"2999-01-01\"");
    (TestServer::start("backups = \"backups\"", &[a, b, c, d].concat()), [reads, writes, admins, all])
}

#[test]
fn a_token_opens_what_its_scopes_say_and_nothing_else() {
    let (server, [reads, writes, admins, all]) = start();
    server.put_items(0..10);
    let item = r#"{"id":1,"group":"g","price":7}"#;
    let select = r#"{"sql":"SELECT COUNT(*) AS n FROM items"}"#;
    let update = r#"{"sql":"UPDATE items SET price = price RETURNING price"}"#;
    let patch = r#"{"price":8}"#;
    let line = "{\"id\":100,\"group\":\"g\",\"price\":7}";
    // Request, body, the token that has permission, and the status for it.
    let cases = [
        ("GET /_/collections/items/1", "", ["reads"].as_slice(), 200),
        ("HEAD /_/collections/items/1", "", &["reads"], 200),
        ("GET /_/collections/items", "", &["reads"], 200),
        ("POST /_/query", select, &["reads"], 200),
        ("GET /_/metrics", "", &["reads"], 200),
        ("GET /_/schema", "", &["reads"], 200),
        ("GET /_/views", "", &["reads"], 200),
        ("GET /_/openapi.json", "", &["reads"], 200),
        ("PUT /_/collections/items/1", item, &["writes"], 200),
        ("PATCH /_/collections/items/1", patch, &["writes"], 200),
        ("POST /_/collections/items/bulk", line, &["writes"], 200),
        ("DELETE /_/collections/items/100", "", &["writes"], 204),
        ("POST /_/query", update, &[], 200),
        ("GET /_/backup", "", &["admins"], 200),
        ("POST /_/config/reload", "", &["admins"], 200),
        ("POST /_/views/none/verify", "", &["admins"], 404),
    ];
    let count = cases.len();
    for (request, body, may, status) in cases {
        for (name, token) in [("reads", &reads), ("writes", &writes), ("admins", &admins)] {
            let answer = with(&server, token, request, body);
            if may.contains(&name) {
                assert_eq!(answer.status, status, "{request} by {name}: {}", answer.text());
            } else {
                assert_eq!(answer.status, 403, "{request} by {name}");
                if !request.starts_with("HEAD") {
                    assert!(answer.text().contains(&format!("the token `{name}` allows")), "{}", answer.text());
                }
            }
        }
        // The failure of a bulk line with an existing key is in the body, so its status is the same the second time.
        let status = if request.starts_with("DELETE") { 404 } else { status };
        assert_eq!(with(&server, &all, request, body).status, status, "{request}");
        assert_eq!(from_afar(&server, request, "", body).status, 403, "{request}");
    }
    assert_eq!(count, 16);
    let changes =
        format!("GET /_/changes?since=0 HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer {reads}\r\n\r\n");
    let mut client = server.connect();
    client.stream.write_all(changes.as_bytes()).unwrap();
    assert!(client.head().starts_with("HTTP/1.1 200"));
}

#[test]
fn a_token_counts_for_its_own_request_alone_and_on_this_machine_too() {
    let (server, [reads, ..]) = start();
    let put = |token: &str| format!("Authorization: bearer  {token} \r\n");
    let item = br#"{"id":1,"group":"g","price":7}"#;
    // A request outside the scope is refused even if it would be answered without a token.
    assert_eq!(server.ask("PUT", "/_/collections/items/1", &put(&reads), item).status, 403);
    assert_eq!(server.ask("PUT", "/_/collections/items/1", &put("sapsan_wrong"), item).status, 401);
    assert_eq!(server.ask("PUT", "/_/collections/items/1", "", item).status, 201);
    // Another scheme is no token of this server.
    assert_eq!(server.ask("GET", "/_/schema", "Authorization: Basic YTpi\r\n", b"").status, 200);
    assert_eq!(from_afar(&server, "GET /_/schema", "Authorization: Basic YTpi\r\n", "").status, 403);
    let twice = format!("{}{}", put(&reads), put(&reads));
    assert_eq!(server.ask("GET", "/_/schema", &twice, b"").status, 401);
    // Through a proxy, and by HTTP/1.0.
    let forwarded = format!("{}X-Forwarded-For: 10.1.2.3\r\nVia: 1.1 p\r\n", put(&reads));
    assert_eq!(from_afar(&server, "GET /_/schema", &forwarded, "").status, 200);
    let mut client = server.connect();
    client.stream.write_all(format!("GET /_/schema HTTP/1.0\r\n{}\r\n", put(&reads)).as_bytes()).unwrap();
    assert_eq!(client.answer(false).status, 200);
    let mut client = server.connect();
    let one = |token: &str| format!("GET /_/schema HTTP/1.1\r\nHost: api.example\r\n{token}\r\n");
    let requests = [one(&put(&reads)), one(""), one(&put(&reads))].concat();
    client.stream.write_all(requests.as_bytes()).unwrap();
    assert_eq!([(); 3].map(|()| client.answer(false).status), [200, 403, 200]);
}

#[test]
fn wrong_tokens_are_counted_and_slowed() {
    let (server, [reads, ..]) = start();
    let mut statuses = Vec::new();
    for wrong in ["", "sapsan_", &reads[..reads.len() - 1], &format!("{reads}0"), &reads.to_uppercase(), "x y"] {
        let answer = with(&server, wrong, "GET /_/schema", "");
        assert_eq!((answer.status, answer.field("WWW-Authenticate")), (401, Some("Bearer")), "{wrong}");
        assert!(!answer.text().contains("reads"), "{}", answer.text());
        statuses.push(answer.status);
    }
    assert_eq!(server.metric("sapsan_token_failures_total"), statuses.len() as f64);
    // Sooner or later there are too many at once, however slow this machine is: they arrive together.
    let wrong = "GET /_/schema HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\n\r\n";
    let began = std::time::Instant::now();
    let slowed = loop {
        let mut client = server.connect();
        client.stream.write_all(wrong.repeat(100).as_bytes()).unwrap();
        let answers: Vec<Answer> = (0..100).map(|_| client.answer(false)).collect();
        if let Some(slowed) = answers.into_iter().find(|answer| answer.status == 429) {
            break slowed;
        }
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
    };
    assert_eq!(slowed.field("Retry-After"), Some("1"));
    assert!(server.metric("sapsan_token_slowed_total") >= 1.0);
    // Clients without a token are not affected.
    assert_eq!(server.get("/_/schema").status, 200);
}

#[test]
fn wrong_tokens_count_for_the_client_whom_a_trusted_proxy_names() {
    let (_, section) = token(1, "reads", "allow = [\"read\"]");
    let server = TestServer::start("trusted_proxies = [\"127.0.0.1\"]", &section);
    let wrong = |client: &str| {
        format!(
            "GET /_/schema HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\nX-Forwarded-For: {client}\r\n\r\n"
        )
    };
    // On one connection, as from a proxy: one client continues until it has sent too many at once.
    let mut client = server.connect();
    let began = std::time::Instant::now();
    let mut is_slowed = false;
    while !is_slowed {
        client.stream.write_all(wrong("192.0.2.1").repeat(100).as_bytes()).unwrap();
        is_slowed = (0..100).any(|_| client.answer(false).status == 429);
        assert!(began.elapsed() < std::time::Duration::from_secs(60));
        if is_slowed {
            client = server.connect();
        }
    }
    // None of another client's first ones is slowed.
    client.stream.write_all(wrong("192.0.2.2").repeat(10).as_bytes()).unwrap();
    assert_eq!([(); 10].map(|()| client.answer(false).status), [401; 10]);
}

#[test]
fn a_request_that_a_trusted_proxy_forwards_is_no_local_one() {
    let server = TestServer::start("trusted_proxies = [\"127.0.0.1\", \"unix\"]", "");
    for address in ["127.0.0.1", "192.0.2.1"] {
        let fields = format!("X-Forwarded-For: {address}\r\n");
        let mut client = server.connect();
        let head = format!("GET /_/schema HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        client.stream.write_all(head.as_bytes()).unwrap();
        assert_eq!(client.answer(false).status, 403, "{address}");
    }
}

#[test]
fn a_valid_token_is_answered_among_any_number_of_wrong_ones_of_its_address() {
    let endpoint =
        "[[endpoints]]\nroute = \"GET /mine\"\nquery = \"SELECT id FROM items\"\nallow = \"token\"\nscope = \"read\"\n";
    let (reads, section) = token(1, "reads", "allow = [\"read\"]");
    let server = TestServer::start("", &format!("{endpoint}{section}"));
    let one = |target: &str, token: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
    };
    // All on one connection, as from a proxy: 40 wrong ones are more than a burst, however slow this machine is.
    let mut client = server.connect();
    let mut rounds = 0;
    while rounds < 5 || server.metric("sapsan_token_slowed_total") < 1.0 {
        let wrong = one("/_/schema", "wrong").repeat(40);
        let both = [one("/_/schema", &reads), one("/mine", &reads)].concat();
        client.stream.write_all([wrong, both].concat().as_bytes()).unwrap();
        let statuses: Vec<u16> = (0..42).map(|_| client.answer(false).status).collect();
        assert!(statuses[..40].iter().all(|status| matches!(status, 401 | 429)), "{statuses:?}");
        assert_eq!(statuses[40..], [200, 200]);
        rounds += 1;
    }
    assert_eq!(server.metric("sapsan_token_failures_total"), f64::from(rounds * 40));
}

#[test]
fn a_token_that_has_ended_is_refused_and_a_reload_takes_and_revokes_tokens() {
    let (old, ended) = token(1, "old", "allow = [\"read\"]\nuntil = \"2020-01-01\"");
    let (new, fresh) = token(2, "new", "allow = [\"read\"]");
    let server = TestServer::start("", &ended);
    let answer = with(&server, &old, "GET /_/schema", "");
    assert_eq!(answer.status, 401);
    assert!(answer.text().contains("the token `old` has ended"), "{}", answer.text());
    assert_eq!(with(&server, &new, "GET /_/schema", "").status, 401);
    let reloaded = server.reload(&format!("{COLLECTIONS}\n[server]\n{SERVER}{fresh}"));
    assert_eq!(reloaded.status, 200, "{}", reloaded.text());
    assert_eq!(with(&server, &new, "GET /_/schema", "").status, 200);
    assert_eq!(with(&server, &old, "GET /_/schema", "").status, 401);
    assert_eq!(server.reload(&format!("{COLLECTIONS}\n[server]\n{SERVER}")).status, 200);
    assert_eq!(with(&server, &new, "GET /_/schema", "").status, 401);
}

#[test]
fn health_answers_whatever_token_is_sent() {
    let (server, [reads, writes, ..]) = start();
    for token in [&reads, &writes, "wrong"] {
        let answer = with(&server, token, "GET /_/health", "");
        assert_eq!((answer.status, answer.text()), (200, r#"{"status":"ok"}"#));
    }
}

#[test]
fn a_public_reply_tells_its_plan_only_to_those_who_may_read_and_ask() {
    let (reads, a) = token(1, "reads", "allow = [\"read\"]");
    let (writes, b) = token(2, "writes", "allow = [\"write\"]");
    let endpoints = r#"
[[endpoints]]
route = "POST /items"
insert = "items"
[[endpoints]]
route = "GET /loop"
query = "SELECT SUM(price) AS sum FROM items WHERE price >= 0"
[[endpoints]]
route = "GET /row"
query = "SELECT SUM(a.price + b.price) AS sum FROM items a, items b WHERE a.price <> b.price + 1"
result = "row"
[[endpoints]]
route = "GET /lines"
query = "SELECT price FROM items WHERE price <> 7"
[[endpoints]]
route = "POST /steps"
steps = [{ sql = "UPDATE items SET price = price WHERE price = 10" }]
"#;
    for admin in ["", "admin = \"off\""] {
        let server = TestServer::start(admin, &[endpoints, &a, &b].concat());
        for id in 0..300 {
            let item = format!("{{\"id\":{id},\"group\":\"g\",\"price\":{}}}", id * 10);
            // The general API may be off.
            assert_eq!(server.ask("POST", "/items", "", item.as_bytes()).status, 201);
        }
        for request in ["GET /loop", "GET /row", "GET /lines", "POST /steps"] {
            let lines = if request == "GET /lines" { "Accept: application/x-ndjson\r\n" } else { "" };
            let plan = |fields: &str| {
                let answer = from_afar(&server, request, &format!("{lines}{fields}"), "");
                assert_eq!(answer.status, 200, "{request}: {}", answer.text());
                answer.field("Sapsan-Plan").map(str::to_owned)
            };
            let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
            let asking = |token: &str| format!("Sapsan-Plan: 1\r\n{}", bearer(token));
            let told = plan(&asking(&reads));
            assert!(told.as_ref().is_some_and(|plan| plan.contains("SCAN")), "{request}: {told:?}");
            for fields in ["", "Sapsan-Plan: 1\r\n", &bearer(&reads), &asking(&writes), &asking("wrong")] {
                assert_eq!(plan(fields), None, "{request} with {fields}");
            }
            let (method, target) = request.split_once(' ').unwrap();
            let near = server.ask(method, target, &format!("{lines}Sapsan-Plan: 1\r\n"), b"");
            assert_eq!(near.field("Sapsan-Plan").map(str::to_owned), told, "{request}");
            assert_eq!(server.ask(method, target, lines, b"").field("Sapsan-Plan"), None);
        }
    }
}

#[test]
fn a_general_api_that_is_off_or_elsewhere_is_not_opened_by_a_token() {
    let (all, section) = token(4, "all", "allow = [\"admin\", \"write\", \"read\"]");
    for admin in ["off", "127.0.0.1:0"] {
        let server = TestServer::start(&format!("admin = \"{admin}\""), &section);
        assert_eq!(with(&server, &all, "GET /_/schema", "").status, 403);
    }
}

#[test]
fn mistakes_of_tokens_are_told_and_no_token_is_shown() {
    let (text, section) = token(1, "a", "allow = [\"read\"]");
    assert_eq!(mistakes(&section), "");
    let digest = section.lines().nth(1).unwrap();
    for (file, told) in [
        (format!("[tokens.a]\nsha256 = \"{text}\"\nallow = [\"read\"]"), "64 hexadecimal digits"),
        (format!("[tokens.a]\n{digest}"), "needs `allow`"),
        ("[tokens.a]\nallow = [\"read\"]".to_owned(), "needs `sha256`"),
        (format!("[tokens.a]\n{digest}\nallow = []"), "0 scopes"),
        (format!("[tokens.a]\n{digest}\nallow = [\"Read\"]"), "a name of a-z"),
        (format!("[tokens.a]\n{digest}\nallow = [\"read\"]\nuntil = \"soon\""), "YYYY-MM-DD"),
        (format!("[tokens.a]\n{digest}\nallow = [\"read\"]\nscope = 1"), "unknown key `scope`"),
        (format!("{section}[tokens.b]\n{digest}\nallow = [\"read\"]"), "the tokens `a` and `b` have the same SHA-256"),
    ] {
        let mistakes = mistakes(&file);
        assert!(mistakes.contains(told) && !mistakes.contains(&text), "{file}: {mistakes}");
    }
}

/// The file of [`serve`]'s server with these sections of tokens.
fn with_tokens(more: &str, tokens: &str) -> String {
    let server = "http = \"127.0.0.1:0\"\nthreads = 1\nquery_seconds = 600\n";
    format!("{COLLECTIONS}\n[server]\n{server}{more}{tokens}")
}

/// A running request of a client that sends a token.
fn begin(server: &TestServer, token: &str, request: &str, fields: &str, body: &str) -> Client {
    let mut client = server.connect();
    let length = body.len();
    let fields = format!("Content-Length: {length}\r\nAuthorization: Bearer {token}\r\n{fields}");
    let head = format!("{request} HTTP/1.1\r\nHost: api.example\r\n{fields}\r\n{body}");
    client.stream.write_all(head.as_bytes()).unwrap();
    client
}

const REVOKED: &str = "the token `t` is revoked: it is no longer in the file's `[tokens]`";

#[test]
fn the_feed_of_a_token_ends_when_the_token_is_revoked_or_has_ended_or_loses_its_scope() {
    let file = |tokens: &str| with_tokens("", tokens);
    let (text, section) = token(1, "t", "allow = [\"read\"]");
    let ended = token(1, "t", "allow = [\"read\"]\nuntil = \"2020-01-01\"").1;
    let other = token(1, "t", "allow = [\"write\"]").1;
    let server = TestServer::of_file(&file(&section)).unwrap();
    for (accept, end, after, why) in [
        ("", "{\"end\":", String::new(), REVOKED),
        ("Accept: text/event-stream\r\n", "event: end", String::new(), REVOKED),
        ("", "{\"end\":", ended, "the token `t` has ended"),
        ("", "{\"end\":", other, "the token `t` allows write; this needs read"),
    ] {
        assert_eq!(server.reload(&file(&section)).status, 200);
        let mut feed = begin(&server, &text, "GET /_/changes", accept, "");
        assert!(feed.head().starts_with("HTTP/1.1 200"));
        let mut told = String::new();
        server.put_items(0..1);
        feed.read_until(&mut told, |told| told.contains("\"price\""));
        // A file that is refused revokes nothing.
        let refused = server.reload(&file("").replace("collections.items", "collections.things"));
        assert_eq!(refused.status, 409, "{}", refused.text());
        assert_eq!(server.ask("DELETE", "/_/collections/items/0", "", b"").status, 204);
        // The same token under another name is the same token.
        let renamed = section.replace("tokens.t", "tokens.u");
        assert_eq!(server.reload(&file(&renamed)).status, 200);
        server.put_items(7..8);
        feed.read_until(&mut told, |told| told.contains("\"id\":7"));
        assert_eq!(server.ask("DELETE", "/_/collections/items/7", "", b"").status, 204);
        assert_eq!(server.reload(&file(&section)).status, 200);
        // No change is needed for its end.
        assert_eq!(server.reload(&file(&after)).status, 200);
        feed.read_until(&mut told, |told| told.contains(end) && told.ends_with("\r\n0\r\n\r\n"));
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn a_bulk_of_a_token_ends_with_the_token_and_stores_no_line_behind() {
    let (text, section) = token(1, "t", "allow = [\"write\"]");
    let server = TestServer::of_file(&with_tokens("", &section)).unwrap();
    let count = || server.query(&serde_json::json!({ "sql": "SELECT COUNT(*) AS n FROM items" })).text().to_owned();
    let line = |id: u32| format!("{{\"id\":{id},\"group\":\"g\",\"price\":1}}\n");
    let mut client = server.connect();
    let head = format!(
        "POST /_/collections/items/bulk HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer {text}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    client.stream.write_all(head.as_bytes()).unwrap();
    let lines = [line(1), line(2)].concat();
    client.stream.write_all(format!("{:x}\r\n{lines}\r\n", lines.len()).as_bytes()).unwrap();
    while count() != "[{\"n\":2}]" {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(server.reload(&with_tokens("", "")).status, 200);
    // It ends by itself: its client sends nothing. The connection ends with it, since the rest of the body is not read.
    let answer = client.answer(false);
    assert_eq!((answer.status, answer.field("Connection")), (401, Some("close")), "{}", answer.text());
    assert_eq!(answer.json()["title"], "Unauthorized");
    let detail = format!("{REVOKED}; lines 1 to 2 were taken before");
    assert_eq!(answer.json()["detail"], detail.as_str());
    let late = line(3);
    let _ = client.stream.write_all(format!("{:x}\r\n{late}\r\n0\r\n\r\n", late.len()).as_bytes());
    assert_eq!(count(), "[{\"n\":2}]");
    assert_eq!(server.metric("sapsan_writes_in_flight_bytes"), 0.0);
}

#[test]
fn queries_of_a_token_end_with_the_token() {
    const TRIPLES: &str = "FROM items a JOIN items b ON a.price + b.price >= 0 JOIN items c ON b.price + c.price >= 0";
    let endpoint = format!(
        "[[endpoints]]\nroute = \"GET /triples\"\nquery = \"SELECT a.id {TRIPLES}\"\nallow = \"token\"\nscope = \"secrets\"\n\
         [[endpoints]]\nroute = \"POST /triples\"\nsteps = [{{ sql = \"SELECT COUNT(*) AS n {TRIPLES}\" }}]\nallow = \"token\"\nscope = \"secrets\"\n"
    );
    let (text, section) = token(1, "t", "allow = [\"read\", \"write\", \"secrets\"]");
    let server = TestServer::of_file(&with_tokens(&endpoint, &section)).unwrap();
    server.put_items(0..1_000);
    let query = |sql: String| serde_json::json!({ "sql": sql }).to_string();
    let lines = "Accept: application/x-ndjson\r\n";
    for (request, fields, body) in [
        ("POST /_/query", lines, query(format!("SELECT a.id {TRIPLES}"))),
        ("POST /_/query", "", query(format!("SELECT COUNT(*) AS n {TRIPLES}"))),
        ("POST /_/query", "", query(format!("DELETE FROM items WHERE id = (SELECT COUNT(*) {TRIPLES})"))),
        ("GET /triples", lines, String::new()),
        ("POST /triples", "", String::new()),
    ] {
        assert_eq!(server.reload(&with_tokens(&endpoint, &section)).status, 200);
        let mut client = begin(&server, &text, request, fields, &body);
        let mut told = String::new();
        if fields.is_empty() {
            while server.metric("sapsan_pool_running") < 1.0 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        } else {
            // It has begun to send rows.
            client.read_until(&mut told, |told| told.contains("\"id\""));
        }
        let reloaded = server.reload(&with_tokens(&endpoint, ""));
        assert_eq!(reloaded.status, 200, "{request}: {}", reloaded.text());
        if fields.is_empty() {
            let answer = client.answer(false);
            assert_eq!((answer.status, answer.json()["detail"].as_str()), (401, Some(REVOKED)), "{request} {body}");
        } else {
            // Its last line says why. What was sent before is not kept here.
            let last = loop {
                let mut more = told.split_off(told.len().saturating_sub(1_000));
                if more.ends_with("\r\n0\r\n\r\n") {
                    break more;
                }
                assert!(client.read_into(&mut more), "{request}: it ended without a word");
                told = more;
            };
            assert!(
                last.contains(&format!("{{\"error\":{{\"detail\":{}", serde_json::Value::from(REVOKED))),
                "{request}: {last}"
            );
        }
    }
}

/// A query that runs until its client leaves.
const ENDLESS: &str = "SELECT COUNT(*) AS n FROM items a JOIN items b ON a.price + b.price >= 0 \
                       JOIN items c ON b.price + c.price >= 0 JOIN items d ON c.price + d.price >= 0";

fn wait_for(server: &TestServer, metric: &str, least: f64) {
    let began = std::time::Instant::now();
    while server.metric(metric) < least {
        assert!(began.elapsed() < std::time::Duration::from_secs(60), "{metric} is below {least}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_whole_answer_leaves_only_if_its_token_still_permits_it() {
    let body = "body = { type = \"object\", properties = { note = { type = \"string\" } } }";
    let endpoints = format!(
        "[[endpoints]]\nroute = \"POST /first\"\n{body}\nsteps = [{{ sql = \"SELECT id FROM items WHERE :note <> ''\" }}]\n\
         allow = \"token\"\nscope = \"secrets\"\n"
    );
    let (text, section) = token(1, "t", "allow = [\"read\", \"write\", \"secrets\"]");
    let server = TestServer::of_file(&with_tokens(&endpoints, &section)).unwrap();
    server.put_items(0..200);
    let query = |members: serde_json::Value| {
        let mut query = serde_json::json!({ "sql": "SELECT id FROM items WHERE id = 1" });
        query.as_object_mut().unwrap().extend(members.as_object().cloned().unwrap());
        query.to_string()
    };
    // Each waits for a thread until its token is revoked, and then takes a moment.
    let requests = [
        ("POST /_/query", query(serde_json::json!({}))),
        ("POST /_/query", query(serde_json::json!({ "limit": 1 }))),
        ("POST /_/query", serde_json::json!({ "sql": "UPDATE items SET price = 7 WHERE id = 1" }).to_string()),
        ("POST /first", format!("{{\"note\":\"{}\"}}", "n".repeat(300_000))),
    ];
    let busy: Vec<Client> = (0..2)
        .map(|_| {
            let mut client = server.connect();
            client.send("POST", "/_/query", "", serde_json::json!({ "sql": ENDLESS }).to_string().as_bytes());
            client
        })
        .collect();
    wait_for(&server, "sapsan_pool_running", 2.0);
    let mut clients: Vec<Client> =
        requests.iter().map(|(request, body)| begin(&server, &text, request, "", body)).collect();
    wait_for(&server, "sapsan_pool_queued", requests.len() as f64);
    assert_eq!(server.reload(&with_tokens(&endpoints, "")).status, 200);
    drop(busy);
    for (client, (request, _)) in clients.iter_mut().zip(&requests) {
        let answer = client.answer(false);
        assert_eq!((answer.status, answer.json()["detail"].as_str()), (401, Some(REVOKED)), "{request}");
    }
    assert_eq!(server.get("/_/collections/items/1").json()["price"], 10);
}

#[test]
fn a_reload_that_waits_is_refused_when_its_token_is_revoked_before() {
    let (text, section) = token(1, "t", "allow = [\"admin\"]");
    let (second, second_section) = token(2, "second", "allow = [\"read\"]");
    let server = TestServer::of_file(&with_tokens("", &section)).unwrap();
    server.put_items(0..200);
    // A statement that writes keeps a reload waiting.
    let mut writing = server.connect();
    let sql = format!("DELETE FROM items WHERE id = ({ENDLESS})");
    writing.send("POST", "/_/query", "", serde_json::json!({ "sql": sql }).to_string().as_bytes());
    wait_for(&server, "sapsan_pool_running", 1.0);
    let file = server.folder().join("service.toml");
    std::fs::write(&file, with_tokens("", &[section, second_section].concat())).unwrap();
    let reload = || {
        let mut client = server.connect();
        client.send("POST", "/_/config/reload", "", b"");
        // One loop: it has read that request before this one.
        assert_eq!(server.get("/_/health").status, 200);
        client
    };
    let mut first = reload();
    // Its file is in force for tokens already.
    while with(&server, &second, "GET /_/schema", "").status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::fs::write(&file, with_tokens("", "")).unwrap();
    let mut revoking = reload();
    let mut waiting = begin(&server, &text, "POST /_/config/reload", "", "");
    assert_eq!(server.get("/_/health").status, 200);
    drop(writing);
    assert_eq!([first.answer(false).status, revoking.answer(false).status], [200; 2]);
    let answer = waiting.answer(false);
    assert_eq!((answer.status, answer.json()["detail"].as_str()), (401, Some(REVOKED)));
    assert_eq!(server.metric("sapsan_config_reloads_total"), 2.0);
}
