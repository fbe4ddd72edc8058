//! Arguments of handlers: what they take, and what is said where it is wrong.

use super::client::{Client, get, post, request, started, with_body};
use sapsan::{App, Body, Error, Headers, Json, Path, Query, Request, Shared, State, Text};
use std::sync::Arc;

#[derive(serde::Deserialize)]
struct Page {
    from: u32,
    #[serde(default)]
    word: String,
}

struct Name(&'static str);

fn path_text(Path(name): Path<&str>) -> String {
    format!("<{name}>")
}

fn path_pair(Path((post, number)): Path<(&str, u8)>) -> String {
    format!("{number} of {post}")
}

fn query(Query(page): Query<Page>) -> String {
    format!("{} {}", page.from, page.word)
}

fn json(Json(numbers): Json<Vec<i64>>) -> String {
    numbers.iter().sum::<i64>().to_string()
}

#[allow(clippy::too_many_arguments, reason = "as many as a handler may have")]
fn many(
    State(name): State<'_, Name>,
    Path(id): Path<u32>,
    headers: Headers<'_>,
    Shared(shared): Shared<String>,
    request: &Request<'_>,
    Body(body): Body<'_>,
    query: Option<Query<Page>>,
    word: Result<Path<u8>, Error>,
) -> String {
    let agent = headers.get("user-agent").unwrap_or("none");
    let (method, bytes) = (request.method().name(), body.len());
    let (from, word) =
        (query.map(|Query(page)| page.from), word.map(|Path(word)| word).map_err(|error| error.status().0));
    format!("{} {id} {agent} {shared} {method} {bytes} {from:?} {word:?}", name.0)
}

fn app() -> App {
    App::new()
        .state(Name("bank"))
        .state(Arc::new("shared".to_owned()))
        .get("/names/{name}", path_text)
        .get("/posts/{post}/comments/{number}", path_pair)
        .get("/pages", query)
        .post("/sum", json)
        .post("/text", |Text(text): Text<'_>| text.to_uppercase())
        .put("/many/{id}", many)
        .get("/nothing", || ())
}

#[test]
fn path_parameters_are_decoded_and_typed() {
    let running = started(app());
    for (target, expected) in [
        ("/names/ann", "200 <ann>"),
        ("/names/a%2Fb%20c", "200 <a/b c>"),
        ("/posts/first/comments/7", "200 7 of first"),
        ("/posts/f%C3%BCr/comments/7", "200 7 of für"),
    ] {
        assert_eq!(get(&running, target).told(), expected, "{target}");
    }
    for target in ["/names/%ff", "/names/%zz", "/posts/first/comments/300", "/posts/first/comments/x", "/posts"] {
        assert_eq!(get(&running, target).status, 404, "{target}");
    }
    running.stop();
}

#[test]
fn the_query_is_read_by_serde_and_a_wrong_one_is_told() {
    let running = started(app());
    assert_eq!(get(&running, "/pages?from=7&word=a%20b+c").told(), "200 7 a b c");
    let wrong = get(&running, "/pages?from=x");
    assert_eq!(wrong.status, 400);
    assert!(wrong.body.contains("the query: "), "{}", wrong.body);
    assert_eq!(get(&running, "/pages").status, 400);
    running.stop();
}

#[test]
fn bodies_are_json_or_text_and_what_is_wrong_has_its_status() {
    let running = started(app());
    assert_eq!(post(&running, "/sum", "[1,2,3]").told(), "200 6");
    assert_eq!(post(&running, "/sum", "[1,").status, 400);
    assert_eq!(post(&running, "/sum", "[\"a\"]").status, 422);
    let mut client = Client::to(running.address());
    assert_eq!(client.ask(&with_body("POST", "/sum", "text/plain", "[1]")).status, 415);
    assert_eq!(client.ask(&with_body("POST", "/sum", "application/hal+json; charset=utf-8", "[1]")).told(), "200 1");
    assert_eq!(client.ask(&with_body("POST", "/text", "text/plain", "abc")).told(), "200 ABC");
    running.stop();
}

#[test]
fn a_body_over_the_bound_is_413() {
    let running = started(app().body_bytes_max(16));
    assert_eq!(post(&running, "/sum", "[1,2,3]").status, 200);
    assert_eq!(post(&running, "/sum", &format!("[{}1]", " ".repeat(32))).status, 413);
    running.stop();
}

#[test]
fn a_handler_takes_eight_arguments_that_borrow_and_own() {
    let running = started(app());
    let mut client = Client::to(running.address());
    let request = "PUT /many/300?from=5 HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(client.ask(request).told(), "200 bank 300 test shared PUT 3 Some(5) Err(404)");
    let request = "PUT /many/7?from=x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(client.ask(request).told(), "200 bank 7 none shared PUT 0 None Ok(7)");
    running.stop();
}

#[test]
fn routes_take_their_methods_alone() {
    let running = started(app());
    let mut client = Client::to(running.address());
    let wrong = client.ask(&with_body("POST", "/nothing", "text/plain", ""));
    assert_eq!((wrong.status, wrong.header("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    let options = client.ask(&request("OPTIONS", "/sum", ""));
    assert_eq!((options.status, options.header("Allow")), (204, Some("POST, OPTIONS")));
    assert_eq!(client.ask(&request("GET", "/nothing", "")).status, 204);
    running.stop();
}
