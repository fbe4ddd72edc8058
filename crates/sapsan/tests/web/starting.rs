//! Start and end: what is missing is told before the first request; requests end before the application does.

use super::client::{Client, get, request, started};
use sapsan::{App, Database, Db, Keys, Path, Sessions, Shared, StartError, State, Threads, blocking, later};
use std::sync::mpsc::channel;
use std::time::Duration;

#[track_caller]
fn mistakes(app: App) -> String {
    match app.threads(1).start("127.0.0.1:0") {
        Err(error @ StartError::Application(_)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it started"),
    }
}

#[track_caller]
fn check(app: App, expected: &str) {
    let told = mistakes(app);
    assert!(told.contains(expected), "{told}");
}

#[test]
fn more_event_loops_than_the_database_has_readers_are_told_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path(), "").unwrap();
    match App::new().database(database).threads(400).start("127.0.0.1:0") {
        Err(error) => assert!(error.to_string().contains("App::threads(192) at most"), "{error}"),
        Ok(_) => panic!("it started"),
    }
}

#[test]
fn a_drain_may_be_as_long_as_a_duration() {
    started(App::new().get("/", || "a").drain_max(Duration::MAX)).stop();
}

#[test]
fn what_the_application_lacks_is_told_at_the_start() {
    check(App::new().get("/", |_: State<'_, u32>| "a"), "route \"GET /\": a state of type u32 is missing");
    check(App::new().get("/", |_: Shared<u32>| "a"), "Arc<u32> is missing");
    check(App::new().get("/", |_: Db<'_>| "a"), "a database is missing");
    check(App::new().get("/", |_: Option<Db<'_>>| "a"), "a database is missing");
    check(App::new().get("/", blocking("slow", |_: Database| "a")), "an executor \"slow\" is missing");
    check(App::new().get("/", blocking("slow", |_: Database| "a")), "a database is missing");
    check(App::new().get("/{a}", |_: Path<(u8, u8)>| "a"), "takes 2 path parameters, the path has 1");
    check(App::new().get("/{a}", || "a").get("/{b}", || "b"), "takes the same paths");
    check(App::new().get("a", || "a"), "begins with /");
    check(App::new().state(1u8).state(2u8), "two states of type u8");
    check(App::new().state(1u8).nest("/a", App::new().state(2u8)), "two states of type u8");
    check(App::new().nest("/a", App::new().get("/{a}", |_: Path<(u8, u8)>| "a")), "route \"GET /a/{a}\": its handler");
    let inner = || Sessions::signed(Keys::from_bytes(&[7; 32]).unwrap());
    check(App::new().nest("/a", App::new().sessions(inner())), "has sessions or form tokens");
    check(App::new().nest("/a/", App::new()), "must begin with / and not end with it");
    check(App::new().nest("a", App::new()), "must begin with / and not end with it");
    let all = mistakes(App::new().get("/a", |_: State<'_, u32>| "a").get("/b", |_: Db<'_>| "b"));
    assert_eq!(all.lines().count(), 3, "{all}");
    let none = Threads { count: 0, queue_max: 1 };
    check(App::new().executor("none", none), "an executor does not start");
}

#[test]
fn an_address_that_is_none_or_in_use_is_told() {
    let running = started(App::new().get("/", || "first"));
    let taken = running.address().to_string();
    for address in ["nowhere", &taken] {
        match App::new().threads(1).start(address) {
            Err(error @ StartError::Listen { .. }) => assert!(error.to_string().contains(address), "{error}"),
            other => panic!("{:?}", other.map(drop)),
        }
    }
    running.stop();
}

#[test]
fn it_listens_on_several_addresses_and_on_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.sock");
    let app = App::new().get("/", || "here").listen(&format!("unix:{}", path.display())).listen("127.0.0.1:0");
    let running = started(app);
    assert_eq!(running.addresses().len(), 2);
    for address in running.addresses() {
        assert_eq!(Client::to(*address).ask(&request("GET", "/", "")).told(), "200 here");
    }
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("here"), "{reply}");
    running.stop();
    assert!(!path.exists());
}

#[test]
fn requests_end_before_the_application_does() {
    let (begun_give, begun) = channel();
    let (give, take) = channel::<()>();
    let (begun_give, take) = (std::sync::Mutex::new(begun_give), std::sync::Mutex::new(Some(take)));
    let app = App::new().get("/slow", move || {
        let take = take.lock().unwrap().take();
        begun_give.lock().unwrap().send(()).unwrap();
        later(move |responder| {
            std::thread::spawn(move || {
                take.map(|take| take.recv());
                responder.send("ended");
            });
        })
    });
    let running = started(app.drain_max(Duration::from_secs(30)));
    let mut client = Client::to(running.address());
    client.send(&request("GET", "/slow", ""));
    begun.recv().unwrap();
    running.drain();
    give.send(()).unwrap();
    assert_eq!(client.reply().told(), "200 ended");
    assert!(client.is_closed());
    running.stop();
}

#[test]
fn what_does_not_end_in_time_is_cut() {
    let (give, take) = channel::<sapsan::Responder>();
    let give = std::sync::Mutex::new(give);
    let app = App::new().get("/never", move || {
        let give = give.lock().unwrap().clone();
        later(move |responder| give.send(responder).unwrap())
    });
    let running = started(app.drain_max(Duration::from_millis(50)));
    let mut client = Client::to(running.address());
    client.send(&request("GET", "/never", ""));
    let kept = take.recv().unwrap();
    running.stop();
    assert!(client.is_closed());
    kept.send("too late");
}

#[test]
fn the_metrics_count_what_was_answered() {
    let running = started(App::new().get("/", || "a"));
    get(&running, "/");
    assert_eq!(running.metrics().accepted, 1);
    running.stop();
}
