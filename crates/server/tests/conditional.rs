//! Conditional requests of declared endpoints: a version that the client has is not sent again, and no update is lost.

use crate::harness::{Answer, TestServer, mistakes};

const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
[[endpoints]]
route = "POST /items"
insert = "items"
[[endpoints]]
route = "PATCH /items/{id}"
update = "items/{id}"
[[endpoints]]
route = "PUT /items/{id}"
replace = "items/{id}"
[[endpoints]]
route = "DELETE /items/{id}"
delete = "items/{id}"
reply = { gone = true }
"#;

fn start(more: &str) -> TestServer {
    assert_eq!(mistakes(&format!("{}{ENDPOINTS}{more}", crate::harness::COLLECTIONS)), "");
    TestServer::start("", &format!("{ENDPOINTS}{more}"))
}

/// The tag of a successful reply.
#[track_caller]
fn tag(answer: &Answer) -> String {
    assert!((200..300).contains(&answer.status), "{}", answer.text());
    answer.field("ETag").expect("a tag").to_owned()
}

fn item(price: u32) -> Vec<u8> {
    format!("{{\"id\":1,\"group\":\"g\",\"price\":{price}}}").into_bytes()
}

#[test]
fn a_document_that_the_client_has_is_not_sent_again() {
    let server = start("");
    let inserted = tag(&server.ask("POST", "/items", "", &item(1)));
    let read = server.get("/items/1");
    assert_eq!((tag(&read), read.body), (inserted.clone(), item(1)));
    // The general API has the same tags.
    assert_eq!(tag(&server.get("/_/collections/items/1")), inserted);
    let ask = |fields: &str| server.ask("GET", "/items/1", &format!("{fields}\r\n"), b"");
    for fields in [
        format!("If-None-Match: {inserted}"),
        format!("if-none-match: W/{inserted}"),
        format!("If-None-Match: \"0\", {inserted}"),
        "If-None-Match: *".to_owned(),
    ] {
        let answer = ask(&fields);
        assert_eq!((answer.status, answer.field("ETag"), answer.text()), (304, Some(&inserted[..]), ""), "{fields}");
    }
    assert_eq!(ask("If-None-Match: 1").status, 400);
    assert_eq!(ask("If-None-Match: \"0\"").body, item(1));
    assert_eq!(ask(&format!("If-Match: {inserted}")).body, item(1));
    assert_eq!(ask("If-Match: \"0\"").status, 412);
    let head = server.ask("HEAD", "/items/1", &format!("If-None-Match: {inserted}\r\n"), b"");
    assert_eq!((head.status, head.field("ETag")), (304, Some(&inserted[..])));
    assert_eq!(server.ask("GET", "/items/2", &format!("If-None-Match: {inserted}\r\n"), b"").status, 404);
    // Another version of it is sent.
    let changed = tag(&server.ask("PATCH", "/items/1", "", br#"{"price":2}"#));
    assert_ne!(changed, inserted);
    let answer = ask(&format!("If-None-Match: {inserted}"));
    assert_eq!((tag(&answer), answer.body), (changed, item(2)));
}

#[test]
fn a_large_document_has_its_tag_too() {
    let server = start("");
    let note = "n".repeat(100_000);
    let body = format!("{{\"id\":1,\"group\":\"g\",\"price\":1,\"note\":\"{note}\"}}");
    let inserted = tag(&server.ask("POST", "/items", "", body.as_bytes()));
    let read = server.get("/items/1");
    assert_eq!(tag(&read), inserted);
    assert_eq!(read.text(), body);
    assert_eq!(server.ask("GET", "/items/1", &format!("If-None-Match: {inserted}\r\n"), b"").status, 304);
}

#[test]
fn a_change_of_what_the_client_has_not_read_is_refused() {
    let server = start("");
    let first = tag(&server.ask("POST", "/items", "", &item(1)));
    let second = tag(&server.ask("PUT", "/items/1", &format!("If-Match: {first}\r\n"), &item(2)));
    let requests = [("PUT", item(3)), ("PATCH", br#"{"price":3}"#.to_vec()), ("DELETE", Vec::new())];
    for (method, body) in &requests {
        for fields in [format!("If-Match: {first}"), "If-Match: \"x\"".to_owned(), "If-None-Match: *".to_owned()] {
            let answer = server.ask(method, "/items/1", &format!("{fields}\r\n"), body);
            assert_eq!(answer.status, 412, "{method} with {fields}: {}", answer.text());
        }
        let twice = format!("If-Match: \"x\"\r\nIf-Match: {first}\r\n");
        assert_eq!(server.ask(method, "/items/1", &twice, body).status, 412);
        assert_eq!(
            server.ask(method, "/items/1", &format!("If-Match: {second}\r\nIf-None-Match: *\r\n"), body).status,
            400
        );
        // If there is none, the reply is 404.
        assert_eq!(server.ask(method, "/items/7", &format!("If-Match: {second}\r\n"), body).status, 404);
    }
    assert_eq!(server.get("/items/1").body, item(2));
    let third = tag(&server.ask("PATCH", "/items/1", &format!("If-Match: \"0\", {second}\r\n"), br#"{"price":3}"#));
    let deleted = server.ask("DELETE", "/items/1", &format!("If-Match: {third}\r\n"), b"");
    assert_eq!((deleted.status, deleted.text(), deleted.field("ETag")), (200, r#"{"gone":true}"#, None));
    assert_eq!(server.ask("DELETE", "/items/1", "If-Match: *\r\n", b"").status, 404);
}

#[test]
fn pipelined_requests_have_each_its_own_condition() {
    let server = start("");
    let first = tag(&server.ask("POST", "/items", "", &item(1)));
    let mut client = server.connect();
    // As many times as a loop needs to cache the fields of heads.
    for _ in 0..40 {
        for (fields, status) in [
            (format!("If-None-Match: {first}\r\n"), 304),
            (String::new(), 200),
            ("If-None-Match: \"0\"\r\n".to_owned(), 200),
        ] {
            client.send("GET", "/items/1", &fields, b"");
            assert_eq!(client.answer(false).status, status);
            // Without Content-Length in the head.
            let head = format!("GET /items/1 HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
            std::io::Write::write_all(&mut client.stream, head.repeat(3).as_bytes()).unwrap();
            assert_eq!([(); 3].map(|()| client.answer(false).status), [status; 3]);
        }
    }
}

#[test]
fn a_declared_body_of_errors_is_sent_for_a_condition_too() {
    let server = start("[errors]\nbody = \"no\"\n");
    server.ask("POST", "/items", "", &item(1));
    let answer = server.ask("PUT", "/items/1", "If-Match: \"0\"\r\n", &item(2));
    assert_eq!((answer.status, answer.text()), (412, "no"));
}

#[test]
fn of_clients_who_add_to_what_they_have_read_none_is_lost() {
    const CLIENTS: u32 = 4;
    const EACH: u32 = 25;
    let server = start("");
    server.ask("POST", "/items", "", &item(0));
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = server.connect();
                let mut added = 0;
                while added < EACH {
                    client.send("GET", "/items/1", "", b"");
                    let read = client.answer(false);
                    let price = read.json()["price"].as_u64().unwrap();
                    let body = format!("{{\"price\":{}}}", price + 1);
                    client.send("PATCH", "/items/1", &format!("If-Match: {}\r\n", tag(&read)), body.as_bytes());
                    let answer = client.answer(false);
                    assert!(matches!(answer.status, 200 | 412), "{}", answer.text());
                    added += u32::from(answer.status == 200);
                }
            });
        }
    });
    assert_eq!(server.get("/items/1").json()["price"], CLIENTS * EACH);
}
