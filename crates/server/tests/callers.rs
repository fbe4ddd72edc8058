//! Who may call a declared endpoint, and its parameters from header fields and cookies: tokens, sessions, pages of other origins.

use crate::harness::{Answer, COLLECTIONS, SERVER, TestServer, mistakes};
use server::token::NewToken;

fn token(number: u8, name: &str, more: &str) -> (String, String) {
    let new = NewToken::new(&[number; 32]);
    (new.text, format!("[tokens.{name}]\nsha256 = \"{}\"\n{more}\n", new.sha256))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

const GUARDED: &str = r#"
[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
allow = "token"
[[endpoints]]
route = "POST /items"
insert = "items"
allow = "token"
[[endpoints]]
route = "DELETE /items/{id}"
delete = "items/{id}"
allow = "token"
scope = "cleaning"
[[endpoints]]
route = "GET /slow"
query = "SELECT COUNT(*) AS n FROM items a, items b WHERE a.price <> b.price + 1"
result = "row"
allow = "token"
scope = "reports"
[[endpoints]]
route = "GET /open/{id}"
get = "items/{id}"
allow = "anyone"
"#;

#[test]
fn an_endpoint_asks_for_a_token_that_allows_its_scope() {
    let (reads, a) = token(1, "reads", "allow = [\"read\", \"reports\"]");
    let (cleans, b) = token(2, "cleans", "allow = [\"cleaning\", \"write\"]");
    let (old, c) = token(3, "old", "allow = [\"read\", \"write\", \"cleaning\"]\nuntil = \"2020-01-01\"");
    let server = TestServer::start("", &[GUARDED, &a, &b, &c].concat());
    let body = r#"{"id":1,"group":"g","price":7}"#;
    let cases = [
        ("POST", "/items", body, &cleans, 201, &reads),
        ("GET", "/items/1", "", &reads, 200, &cleans),
        ("GET", "/slow", "", &reads, 200, &cleans),
        ("DELETE", "/items/1", "", &cleans, 200, &reads),
    ];
    for (method, target, body, may, status, may_not) in cases {
        for fields in [String::new(), "Authorization: Basic YTpi\r\n".to_owned(), bearer("wrong"), bearer(&old)] {
            let answer = server.ask(method, target, &fields, body.as_bytes());
            assert_eq!((answer.status, answer.field("WWW-Authenticate")), (401, Some("Bearer")), "{method} {target}");
        }
        let answer = server.ask(method, target, &bearer(may_not), body.as_bytes());
        assert!(
            answer.status == 403 && answer.text().contains("; this needs "),
            "{method} {target}: {}",
            answer.text()
        );
        let answer = server.ask(method, target, &bearer(may), body.as_bytes());
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.text());
    }
    // A client without permission does not learn whether the document exists, nor whether the path is valid.
    assert_eq!(server.get("/items/7").status, 401);
    assert_eq!(server.get("/items/x").status, 401);
    assert_eq!(server.ask("HEAD", "/items/1", "", b"").status, 401);
    assert_eq!(server.get("/open/1").status, 404);
    let document = server.get("/_/openapi.json").json();
    assert_eq!(document["paths"]["/items"]["post"]["security"], serde_json::json!([{ "token": [] }]));
    assert!(document["paths"]["/items"]["post"]["responses"]["401"].is_object());
    assert_eq!(document["paths"]["/open/{id}"]["get"]["security"], serde_json::json!([]));
}

#[test]
fn mistakes_of_who_may_call_are_told() {
    let endpoint =
        |more: &str| format!("{COLLECTIONS}[[endpoints]]\nroute = \"GET /i/{{id}}\"\nget = \"items/{{id}}\"\n{more}");
    for (more, told) in [
        ("allow = \"tokens\"", "\"anyone\", \"token\""),
        ("scope = \"x\"", "without `allow"),
        ("allow = \"anyone\"\nscope = \"x\"", "without `allow"),
        ("allow = \"token\"\nscope = \"X Y\"", "a name of a-z"),
    ] {
        let mistakes = mistakes(&endpoint(more));
        assert!(mistakes.contains(told), "{more}: {mistakes}");
    }
    assert_eq!(mistakes(&endpoint("allow = \"token\"\nscope = \"x\"")), "");
}

/// Users sign in: a session is a document, its key a cookie.
const SESSIONS: &str = r#"
[collections.sessions]
key = { field = "id", type = "string" }

[[endpoints]]
route = "POST /sessions"
insert = "sessions"

[[endpoints]]
route = "GET /mine"
steps = [
  { sql = "SELECT user FROM sessions WHERE id = :session", expect = "rows = 1", else = 401, detail = "sign in first" },
  { sql = "SELECT price FROM items WHERE \"group\" = :user AND price >= :least ORDER BY price" },
]
[endpoints.params]
session = { type = "string", from = "cookie:session" }
least = { type = "integer", default = 0 }

[[endpoints]]
route = "POST /mine"
steps = [
  { sql = "SELECT user FROM sessions WHERE id = :session", expect = "rows = 1", else = 401 },
  { sql = "INSERT INTO items (id, \"group\", price) VALUES (:id, :user, :price)" },
]
body = { required = ["id", "price"], properties = { id = { type = "integer" }, price = { type = "integer" } } }
[endpoints.params]
session = { type = "string", from = "cookie:session" }

[[endpoints]]
route = "GET /told"
query = "SELECT id, group AS g, :tenant AS tenant, :word AS word, :plain AS plain FROM items WHERE price >= :least LIMIT 1"
[endpoints.params]
tenant = { type = "integer", from = "header:X-Tenant", required = true }
word = { type = "string", from = "header:X-Word" }
least = { type = "integer", default = 0 }
plain = "string"
"#;

#[test]
fn a_session_in_a_cookie_is_checked_by_steps_on_get_too() {
    let server = TestServer::start("", SESSIONS);
    for id in ["s1", "s 2;é"] {
        let body = serde_json::json!({ "id": id, "user": format!("u-{id}") }).to_string();
        assert_eq!(server.ask("POST", "/sessions", "", body.as_bytes()).status, 201);
    }
    let mine = |fields: &str, query: &str| server.ask("GET", &format!("/mine{query}"), fields, b"");
    for price in [5, 3] {
        let body = format!("{{\"id\":{price},\"price\":{price}}}");
        let answer = server.ask("POST", "/mine", "Cookie: a=b; session=s1\r\n", body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let rows = r#"[{"price":3},{"price":5}]"#;
    for cookie in ["session=s1", "a=1;session=s1;b=2", "session=\"s1\"", "xsession=s2; session=s1 ; sessionx=s2"] {
        let answer = mine(&format!("Cookie: {cookie}\r\n"), "");
        assert_eq!((answer.status, answer.text()), (200, rows), "{cookie}");
    }
    assert_eq!(mine("Cookie: session=s1\r\n", "?least=4").text(), r#"[{"price":5}]"#);
    assert_eq!(server.ask("HEAD", "/mine", "Cookie: session=s1\r\n", b"").status, 200);
    // No client can set it in another way, however it writes the name.
    for (fields, query) in [
        ("", ""),
        ("", "?session=s1"),
        ("", "?least=0&session=s1"),
        ("", "?%73ession=s1"),
        ("session: s1\r\n", ""),
        ("Cookie: session=\r\n", "?session=s1"),
        ("Cookie: session=nobody\r\n", "?session=s1"),
        ("Cookie: SESSION=s1\r\n", ""),
    ] {
        let answer = mine(fields, query);
        assert!(answer.status == 401 && answer.text().contains("sign in first"), "{fields} {query}: {}", answer.text());
        assert_eq!(server.ask("POST", &format!("/mine{query}"), fields, br#"{"id":9,"price":9}"#).status, 401);
    }
    assert_eq!(mine("Cookie: session=s1; session=s2\r\n", "").status, 400);
    assert_eq!(mine("Cookie: session=s1\r\nCookie: session=s2\r\n", "").status, 400);
    assert_eq!(server.get("/_/collections/items/9").status, 404);
}

#[test]
fn a_parameter_in_a_header_field_has_its_type_and_its_text() {
    let server = TestServer::start("", SESSIONS);
    server.put_items(1..2);
    let ask = |fields: &str, query: &str| server.ask("GET", &format!("/told{query}"), fields, b"");
    let row = |answer: &Answer| {
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()[0].clone()
    };
    let told = row(&ask("X-Tenant: 7\r\nx-word:  a&b=c%41+\u{e9} \r\n", "?plain=p&tenant=8&word=no"));
    assert_eq!((&told["tenant"], &told["word"], &told["plain"]), (&7.into(), &"a&b=c%41+\u{e9}".into(), &"p".into()));
    assert_eq!(row(&ask("X-Tenant: -1\r\n", ""))["word"], serde_json::Value::Null);
    for (fields, query, why) in [
        ("", "", "`tenant` is required"),
        ("", "?tenant=7", "`tenant` is required"),
        ("X-Tenant: \r\n", "", "`tenant` is required"),
        ("X-Tenant: seven\r\n", "", "not an integer"),
        ("X-Tenant: 7\r\nX-Tenant: 8\r\n", "", "more than once"),
    ] {
        let answer = ask(fields, query);
        assert!(answer.status == 400 && answer.text().contains(why), "{fields}: {}", answer.text());
    }
    let document = server.get("/_/openapi.json").json();
    let parameters = document["paths"]["/told"]["get"]["parameters"].as_array().unwrap().clone();
    assert!(parameters.iter().any(|parameter| parameter["in"] == "header" && parameter["name"] == "X-Tenant"));
}

#[test]
fn mistakes_of_where_parameters_come_from_are_told() {
    let query = |parameter: &str| {
        format!(
            "{COLLECTIONS}[[endpoints]]\nroute = \"GET /i/{{group}}\"\nquery = \"SELECT id FROM items WHERE price = :p AND \\\"group\\\" = :group\"\n\
             [endpoints.params]\np = \"integer\"\n{parameter}"
        )
    };
    for (parameter, told) in [
        ("x = { type = \"string\", from = \"body:x\" }", "\"cookie:NAME\""),
        ("x = { type = \"string\", from = \"header:\" }", "\"cookie:NAME\""),
        ("x = { type = \"string\", from = \"header:a b\" }", "\"cookie:NAME\""),
        ("x = { type = \"string\", from = \"header:Cookie\" }", "\"cookie:NAME\""),
        ("group = { type = \"string\", from = \"header:X\" }", "is a part of the path, and has `from`"),
    ] {
        let mistakes = mistakes(&query(parameter));
        assert!(mistakes.contains(told), "{parameter}: {mistakes}");
    }
    let mistakes_of_file = mistakes("[params.now]\ntype = \"integer\"\nfrom = \"header:X\"\n");
    assert!(mistakes_of_file.contains("belongs to a parameter of an endpoint"), "{mistakes_of_file}");
    let writes = "[[endpoints]]\nroute = \"GET /w\"\nsteps = [{ sql = \"SELECT id FROM items\" }, { sql = \"DELETE FROM items\" }]\n";
    let told = mistakes(&format!("{COLLECTIONS}{writes}"));
    assert!(told.contains("a GET that writes") && told.contains("steps of SELECTs alone"), "{told}");
}

const PUBLIC: &str = r#"
[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
[[endpoints]]
route = "PUT /items/{id}"
replace = "items/{id}"
[[endpoints]]
route = "GET /pairs"
query = "SELECT a.id AS a FROM items a, items b WHERE a.price <> b.price + 1"
"#;

#[test]
fn a_page_of_an_origin_that_may_is_told_so_on_every_reply() {
    let cors =
        "cors = { origins = [\"https://app.example\", \"http://localhost:3000\"], credentials = true, max_age = 60 }";
    let server = TestServer::start(cors, PUBLIC);
    server.put_items(0..200);
    let page = "Origin: https://app.example\r\n";
    let marks = |answer: &Answer| {
        let field = |name: &str| answer.field(name).map(str::to_owned);
        (field("Access-Control-Allow-Origin"), field("Access-Control-Allow-Credentials"), field("Vary"))
    };
    let allowed = (Some("https://app.example".to_owned()), Some("true".to_owned()), Some("Origin".to_owned()));
    let refused = (None, None, Some("Origin".to_owned()));
    let requests: [(&str, &str, &[u8], u16); 7] = [
        ("GET", "/items/1", b"", 200),
        ("HEAD", "/items/1", b"", 200),
        ("GET", "/items/9999", b"", 404),
        ("GET", "/pairs", b"", 200),
        ("PUT", "/items/1", br#"{"id":1,"group":"g","price":1}"#, 200),
        ("PUT", "/items/1", b"{", 400),
        ("DELETE", "/items/1", b"", 405),
    ];
    for (method, target, body, status) in requests {
        let answer = server.ask(method, target, page, body);
        assert_eq!((answer.status, marks(&answer)), (status, allowed.clone()), "{method} {target}");
        assert!(answer.field("Access-Control-Expose-Headers").unwrap().contains("ETag"));
        for origin in ["https://evil.example", "null", "https://app.example.evil.example", "http://app.example", ""] {
            let answer = server.ask(method, target, &format!("Origin: {origin}\r\n"), body);
            assert_eq!((answer.status, marks(&answer)), (status, refused.clone()), "{method} {target} of {origin}");
        }
        assert_eq!(marks(&server.ask(method, target, "", body)), refused);
    }
    // The browser sends a preflight request first.
    let preflight = |target: &str, origin: &str| {
        let fields = format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: PUT\r\nAccess-Control-Request-Headers: if-match\r\n"
        );
        server.ask("OPTIONS", target, &fields, b"")
    };
    let answer = preflight("/items/1", "http://localhost:3000");
    assert_eq!((answer.status, answer.field("Access-Control-Allow-Origin")), (204, Some("http://localhost:3000")));
    assert_eq!(answer.field("Access-Control-Allow-Methods"), Some("GET, HEAD, PUT, OPTIONS"));
    assert_eq!(
        answer.field("Access-Control-Allow-Headers"),
        Some("Authorization, Content-Type, If-Match, If-None-Match")
    );
    assert_eq!(answer.field("Access-Control-Max-Age"), Some("60"));
    let answer = preflight("/items/1", "https://evil.example");
    assert_eq!((answer.status, marks(&answer), answer.field("Access-Control-Allow-Methods")), (204, refused, None));
    // The general API answers no page of another origin, whatever the setting.
    let answer = preflight("/_/query", "https://app.example");
    assert_eq!((answer.status, marks(&answer)), (403, (None, None, None)));
    let answer = server.ask("GET", "/_/health", page, b"");
    assert_eq!((answer.status, marks(&answer)), (200, (None, None, None)));
    let mut client = server.connect();
    for (fields, origin) in
        [(page, Some("https://app.example")), ("", None), (page, Some("https://app.example"))].repeat(20)
    {
        std::io::Write::write_all(
            &mut client.stream,
            format!("GET /items/1 HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").as_bytes(),
        )
        .unwrap();
        assert_eq!(client.answer(false).field("Access-Control-Allow-Origin"), origin);
    }
}

#[test]
fn without_the_setting_no_page_reads_and_with_a_star_every_one() {
    let page = "Origin: https://app.example\r\nAccess-Control-Request-Method: GET\r\n";
    let plain = TestServer::start("", PUBLIC);
    let any = TestServer::start("cors = { origins = [\"*\"], methods = [\"GET\"], headers = [\"X-A\"] }", PUBLIC);
    for (server, origin) in [(&plain, None), (&any, Some("*"))] {
        for (method, target) in [("GET", "/items/1"), ("OPTIONS", "/items/1")] {
            let answer = server.ask(method, target, page, b"");
            assert_eq!((answer.field("Access-Control-Allow-Origin"), answer.field("Vary")), (origin, None), "{method}");
        }
    }
    let answer = any.ask("OPTIONS", "/items/1", page, b"");
    assert_eq!(answer.field("Access-Control-Allow-Methods"), Some("GET"));
    assert_eq!(answer.field("Access-Control-Allow-Headers"), Some("X-A"));
    assert_eq!(answer.field("Access-Control-Allow-Credentials"), None);
}

#[test]
fn mistakes_of_cors_are_told() {
    for (cors, told) in [
        ("{ origins = [\"*\"], credentials = true }", "any origin beside"),
        ("{ origins = [\"*\", \"https://a.example\"] }", "any origin beside"),
        ("{ origins = [\"https://a.example/\"] }", "https://app.example"),
        ("{ origins = [\"https://a.example:443\"] }", "https://app.example"),
        ("{ origins = [\"https://A.example\"] }", "https://app.example"),
        ("{ origins = [\"a.example\"] }", "https://app.example"),
        ("{ origins = [\"null\"] }", "https://app.example"),
        ("{ origins = [] }", "no page may do anything"),
        ("{ methods = [\"GET\"] }", "needs `origins`"),
        ("{ origins = [\"*\"], methods = [\"get\"] }", "GET, HEAD"),
        ("{ origins = [\"*\"], headers = [\"a b\"] }", "names of header fields"),
        ("{ origins = [\"*\"], max_age = -1 }", "from 0 to 86400"),
        ("{ origins = [\"*\"], origin = 1 }", "unknown key `origin`"),
        ("true", "a table"),
    ] {
        let mistakes = mistakes(&format!("[server]\n{SERVER}cors = {cors}\n"));
        assert!(mistakes.contains(told), "{cors}: {mistakes}");
    }
}
