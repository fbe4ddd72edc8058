//! Results of handlers: each kind as it goes over the wire, and late ones.

use super::client::{Client, get, request, started, with_body};
use sapsan::{App, Error, Html, Json, Later, Parts, Redirect, Response, Status, Stream, later};
use std::sync::Arc;
use std::sync::mpsc::channel;

#[derive(serde::Serialize)]
struct Point {
    x: i32,
}

fn numbers() -> Stream {
    let mut next = 0;
    Stream::new("text/plain", move |out: &mut Vec<u8>| {
        out.extend_from_slice(format!("{next},").as_bytes());
        next += 1;
        Ok(next < 5)
    })
}

fn parts() -> Parts {
    Parts::html().with("<b>").with(vec![b'7'; 3]).with(Arc::<[u8]>::from(b"!".as_slice())).with("</b>".to_owned())
}

fn slow() -> Later {
    later(|responder| drop(std::thread::spawn(move || responder.send((Status(201), "at last")))))
}

fn app() -> App {
    App::new()
        .get("/static", || "text")
        .get("/owned", || "owned".to_owned())
        .get("/bytes", || vec![b'b'; 2])
        .get("/shared", || Arc::<[u8]>::from(b"shared".as_slice()))
        .get("/html", || Html(format_args!("<p>{}</p>", 1).to_string()))
        .get("/json", || Json(Point { x: 1 }))
        .get("/to", || Redirect::to("/there"))
        .get("/found", || Redirect::found("/there"))
        .get("/created", || (Status(201), "made"))
        .get("/gone", || Status(410))
        .get("/accepted", || Status(202))
        .get("/none", || None::<&'static str>)
        .get("/some", || Some("some"))
        .get("/ok", || Ok::<_, Error>("ok"))
        .get("/error", || Err::<&'static str, _>(Error::conflict("taken")))
        .get("/own", || Response::new(Status(200), "image/x", *b"i").with_header("A", "1").with_header("B", "2"))
        .get("/split", || "x".to_owned() + "y")
        .get("/evil", || Response::empty(Status(200)).with_header("A", "1\r\nB: 2"))
        .get("/numbers", numbers)
        .get("/four", || {
            Stream::new("text/plain", |out: &mut Vec<u8>| {
                out.extend_from_slice(b"four");
                Ok(false)
            })
            .with_length(4)
        })
        .get("/parts", parts)
        .get("/late", slow)
        .get("/late/stream", || later(|responder| responder.send(numbers())))
        .get("/late/parts", || later(|responder| responder.send(parts())))
        .get("/late/error", || later(|responder| responder.send(Error::not_found())))
        .get("/late/late", || later(|responder| responder.send(slow())))
        .get("/late/dropped", || later(drop))
}

#[test]
fn each_kind_of_result_is_sent_with_its_type() {
    let running = started(app());
    for (target, content_type, expected) in [
        ("/static", "text/plain; charset=utf-8", "200 text"),
        ("/owned", "text/plain; charset=utf-8", "200 owned"),
        ("/bytes", "application/octet-stream", "200 bb"),
        ("/shared", "application/octet-stream", "200 shared"),
        ("/html", "text/html; charset=utf-8", "200 <p>1</p>"),
        ("/json", "application/json", "200 {\"x\":1}"),
        ("/created", "text/plain; charset=utf-8", "201 made"),
        ("/some", "text/plain; charset=utf-8", "200 some"),
        ("/ok", "text/plain; charset=utf-8", "200 ok"),
        ("/own", "image/x", "200 i"),
        ("/numbers", "text/plain", "200 0,1,2,3,4,"),
        ("/four", "text/plain", "200 four"),
        ("/parts", "text/html; charset=utf-8", "200 <b>777!</b>"),
        ("/late", "text/plain; charset=utf-8", "201 at last"),
        ("/late/late", "text/plain; charset=utf-8", "201 at last"),
        ("/late/stream", "text/plain", "200 0,1,2,3,4,"),
        ("/late/parts", "text/html; charset=utf-8", "200 <b>777!</b>"),
    ] {
        let reply = get(&running, target);
        assert_eq!((reply.told().as_str(), reply.header("Content-Type")), (expected, Some(content_type)), "{target}");
    }
    for (target, expected) in [
        ("/gone", 410),
        ("/accepted", 202),
        ("/none", 404),
        ("/error", 409),
        ("/late/error", 404),
        ("/late/dropped", 500),
    ] {
        assert_eq!(get(&running, target).status, expected, "{target}");
    }
    running.stop();
}

#[test]
fn header_fields_are_sent_and_none_breaks_the_head() {
    let running = started(app());
    let to = get(&running, "/to");
    assert_eq!((to.status, to.header("Location")), (303, Some("/there")));
    assert_eq!(get(&running, "/found").status, 302);
    let own = get(&running, "/own");
    assert_eq!((own.header("A"), own.header("B")), (Some("1"), Some("2")));
    let evil = get(&running, "/evil");
    assert_eq!((evil.header("A"), evil.header("B")), (None, None));
    running.stop();
}

#[test]
fn head_has_the_length_and_no_body() {
    let running = started(app());
    let mut client = Client::to(running.address());
    client.send(&request("HEAD", "/static", ""));
    client.send(&request("GET", "/owned", ""));
    let mut bytes = String::new();
    while !bytes.contains("owned") {
        let mut piece = [0; 1024];
        let read = client.read_raw(&mut piece);
        bytes.push_str(std::str::from_utf8(&piece[..read]).unwrap());
    }
    assert!(
        bytes.contains("Content-Length: 4\r\n") && !bytes.contains("text\r") && !bytes.contains("\r\n\r\ntext"),
        "{bytes}"
    );
    running.stop();
}

#[test]
fn late_replies_leave_in_the_order_of_their_requests() {
    let (give, take) = channel::<()>();
    let take = std::sync::Mutex::new(Some(take));
    let app = App::new()
        .get("/slow", move || {
            let take = take.lock().unwrap().take();
            later(move |responder| {
                std::thread::spawn(move || {
                    take.map(|take| take.recv());
                    responder.send("slow");
                });
            })
        })
        .get("/fast", || "fast");
    let running = started(app);
    let mut client = Client::to(running.address());
    client.send(&(request("GET", "/slow", "") + &request("GET", "/fast", "")));
    assert_eq!(get(&running, "/fast").told(), "200 fast", "another connection does not wait");
    give.send(()).unwrap();
    assert_eq!((client.reply().body.as_str(), client.reply().body.as_str()), ("slow", "fast"));
    running.stop();
}

#[test]
fn a_write_waits_for_the_one_before_it_that_answers_late() {
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (first, second) = (Arc::clone(&log), Arc::clone(&log));
    let (give, take) = channel::<()>();
    let take = std::sync::Mutex::new(Some(take));
    let app = App::new()
        .post("/first", move || {
            let (take, log) = (take.lock().unwrap().take(), Arc::clone(&first));
            later(move |responder| {
                std::thread::spawn(move || {
                    take.map(|take| take.recv());
                    log.lock().unwrap().push("first");
                    responder.send("first");
                });
            })
        })
        .post("/second", move || {
            second.lock().unwrap().push("second");
            "second"
        })
        .get("/log", move || log.lock().unwrap().join(","));
    let running = started(app);
    let mut client = Client::to(running.address());
    client.send(&(with_body("POST", "/first", "text/plain", "") + &with_body("POST", "/second", "text/plain", "")));
    assert_eq!(get(&running, "/log").body, "");
    give.send(()).unwrap();
    assert_eq!((client.reply().body.as_str(), client.reply().body.as_str()), ("first", "second"));
    assert_eq!(get(&running, "/log").body, "first,second");
    running.stop();
}
