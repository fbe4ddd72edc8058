//! Forms: fields by serde, files in memory and on disk, and the client behind a proxy.

use super::client::{Client, Reply, get, request, started, with_body};
use sapsan::{
    App, Error, FieldLimits, Form, Multipart, MultipartLimits, Path, RunningApp, Threads, UploadLimits, blocking,
    upload,
};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=XX";

#[derive(serde::Deserialize)]
struct Person {
    name: String,
    age: Option<u8>,
    #[serde(default)]
    tags: Vec<String>,
}

fn person(Form(person): Form<Person>) -> String {
    format!("{} {:?} {:?}", person.name, person.age, person.tags)
}

/// Fields, then files with name, type, size and their last bytes.
fn describe(form: &Multipart) -> Result<String, Error> {
    let mut told: String = form.fields().map(|(name, value)| format!("{name}={value};")).collect();
    for file in form.files() {
        let content = file.content()?;
        assert_eq!(content.len() as u64, file.bytes());
        let end = String::from_utf8_lossy(&content[content.len().saturating_sub(3)..]).into_owned();
        let (field, name, media) = (file.field(), file.name(), file.content_type().unwrap_or("-"));
        told.push_str(&format!("{field}:<{name}> {media} {} ..{end};", content.len()));
    }
    Ok(told)
}

fn files(form: Multipart, Path(id): Path<u32>) -> Result<String, Error> {
    Ok(format!("{id} {}", describe(&form)?))
}

fn typed(form: Multipart) -> Result<String, Error> {
    let Person { name, age, tags } = form.read()?;
    Ok(format!("{name} {age:?} {tags:?} {:?}", form.field("name")))
}

fn app_with(limits: UploadLimits) -> App {
    App::new()
        .executor("files", Threads { count: 1, queue_max: 8 })
        .body_bytes_max(2_000)
        .post("/people", person)
        .post("/files/{id}", upload("files", files).limits(limits))
        .post("/typed", upload("files", typed))
}

fn app() -> App {
    let form = MultipartLimits { bytes_max: 8 << 20, field_bytes_max: 1_000, ..MultipartLimits::default() };
    app_with(UploadLimits { form, ..UploadLimits::default() })
}

fn part(head: &str, content: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; {head}\r\n\r\n{content}\r\n")
}

fn multipart(parts: &[String]) -> String {
    format!("{}--XX--\r\n", parts.concat())
}

#[track_caller]
fn post(running: &RunningApp, target: &str, content_type: &str, body: &str) -> Reply {
    Client::to(running.address()).ask(&with_body("POST", target, content_type, body))
}

#[track_caller]
fn check(running: &RunningApp, (target, content_type): (&str, &str), body: &str, told: &str) {
    let reply = post(running, target, content_type, body);
    assert!(reply.told().contains(told), "{} {}", reply.told(), &body[..body.len().min(200)]);
}

#[test]
fn fields_are_read_by_serde_and_an_error_names_its_field() {
    let running = started(app());
    let form = ("/people", FORM);
    check(&running, form, "name=Ann+%C3%84&age=30&tags=a&tags=b", "200 Ann \u{c4} Some(30) [\"a\", \"b\"]");
    check(&running, ("/people", "application/x-www-form-urlencoded; charset=UTF-8"), "name=x&age=", "200 x None []");
    for (body, status, told) in [
        ("age=3", 422, "the field \\\"name\\\": it is missing"),
        ("name=a&age=300", 422, "the field \\\"age\\\": \\\"300\\\" is no whole number from 0 to 255"),
        ("name=a&name=b", 422, "the field \\\"name\\\": it is given 2 times"),
        (
            "name=a%zz",
            400,
            "the field \\\"name\\\" holds a % without two hexadecimal digits after it (byte 6 of the form)",
        ),
    ] {
        let reply = post(&running, "/people", FORM, body);
        assert_eq!(reply.status, status, "{body}");
        assert!(reply.body.contains(told), "{}", reply.body);
    }
    assert_eq!(post(&running, "/people", "application/json", "{}").status, 415);
    assert_eq!(post(&running, "/people", MULTIPART, "--XX--").status, 415);
    running.stop();
    let few = FieldLimits { fields_max: 2, ..FieldLimits::default() };
    let running = started(app().state(few));
    check(&running, form, "name=a&x&y", "the form has more than 2 fields");
    running.stop();
}

#[test]
fn a_form_with_files_is_read_whether_it_comes_whole_or_in_pieces() {
    let running = started(app());
    let small = multipart(&[
        part("name=title", "First"),
        part("name=photo; filename=\"C:\\\\x\\\\a.png\"\r\nContent-Type: image/png", "pixels"),
        part("name=empty; filename=\"\"", ""),
        part("name=title", "Second"),
    ]);
    let told = "200 7 title=First;title=Second;photo:<a.png> image/png 6 ..els;";
    assert_eq!(post(&running, "/files/7", MULTIPART, &small).told(), told);
    // Byte by byte, and by chunks.
    let mut client = Client::to(running.address());
    let whole = with_body("POST", "/files/7", MULTIPART, &small);
    whole.bytes().for_each(|byte| client.send(&char::from(byte).to_string()));
    assert_eq!(client.reply().told(), told);
    client.send(&request("POST", "/files/7", &format!("Content-Type: {MULTIPART}\r\nTransfer-Encoding: chunked\r\n")));
    for piece in small.as_bytes().chunks(7) {
        client.send(&format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.reply().told(), told);
    assert_eq!(client.ask(&with_body("POST", "/files/8", MULTIPART, "--XX--")).told(), "200 8 ");
    running.stop();
}

#[test]
fn large_files_go_through_the_disk_and_leave_nothing_there() {
    let folder = tempfile::tempdir().unwrap();
    let form = MultipartLimits { bytes_max: 8 << 20, ..MultipartLimits::default() };
    let limits = UploadLimits { form, folder: folder.path().to_owned(), ..UploadLimits::default() };
    let running = started(app_with(limits));
    // Larger than a body may be elsewhere.
    let (large, larger) = ("l".repeat(1_000_000), "r".repeat(3_000_000));
    let body = multipart(&[
        part("name=a; filename=a", &format!("{large}end")),
        part("name=b; filename=b", "small"),
        part("name=c; filename=c", &format!("{larger}\r\n--X")),
        part("name=d", "text"),
    ]);
    let mut client = Client::to(running.address());
    for _ in 0..2 {
        let reply = client.ask(&with_body("POST", "/files/1", MULTIPART, &body));
        let told = "200 1 d=text;a:<a> - 1000003 ..end;b:<b> - 5 ..all;c:<c> - 3000005 ..--X;";
        assert_eq!(reply.told(), told);
    }
    running.stop();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_wrong_form_says_what_and_where() {
    let running = started(app());
    let files = ("/files/1", MULTIPART);
    check(&running, files, "--YY--", "400 ");
    check(&running, files, "--YY--", "the form does not begin with the boundary that its Content-Type names");
    let unfinished = part("name=a", "text");
    check(&running, files, &unfinished, "the form ends before its last boundary (part 1, \\\"a\\\", byte ");
    check(&running, files, &multipart(&[part("name=a", &"x".repeat(1_001))]), "413 ");
    check(&running, files, &multipart(&[part("filename=a", "")]), "the part has no name");
    check(&running, ("/files/1", "multipart/form-data"), "", "the Content-Type names no boundary");
    assert_eq!(post(&running, "/files/1", FORM, "a=b").status, 415);
    check(&running, ("/typed", MULTIPART), &multipart(&[part("name=age", "3")]), "422 ");
    check(&running, ("/typed", MULTIPART), &multipart(&[part("name=name", "Ann")]), "200 Ann None [] Some(\"Ann\")");
    // A path parameter is wrong before any of the body is read.
    assert_eq!(post(&running, "/files/x", MULTIPART, "--XX--").status, 404);
    running.stop();
}

#[test]
fn a_form_that_is_too_large_is_refused_while_it_comes() {
    let running = started(app());
    let mut client = Client::to(running.address());
    let fields = format!("Content-Type: {MULTIPART}\r\nContent-Length: 1000000000\r\n");
    client.send(&request("POST", "/files/1", &fields));
    client.send(&part("name=a; filename=a", ""));
    // The rest never comes.
    client.send(&"x".repeat(8 << 20));
    let reply = client.reply();
    assert_eq!(reply.status, 413);
    assert!(reply.body.contains("the form is larger than 8388608 bytes"), "{}", reply.body);
    assert!(client.is_closed());
    running.stop();
}

#[test]
fn a_file_that_cannot_be_written_is_an_internal_error() {
    let folder = PathBuf::from("/no/such/folder");
    let running = started(app_with(UploadLimits { folder, ..UploadLimits::default() }));
    let file = |bytes: usize| multipart(&[part("name=a; filename=a", &"x".repeat(bytes))]);
    assert_eq!(post(&running, "/files/1", MULTIPART, &file(10)).status, 200);
    let reply = post(&running, "/files/1", MULTIPART, &file(100_000));
    assert_eq!(reply.status, 500);
    assert!(!reply.body.contains("folder"), "{}", reply.body);
    running.stop();
}

#[test]
fn room_on_disk_is_bounded_and_given_back_when_a_client_goes() {
    let limits = UploadLimits { disk_bytes_max: 3_000_000, ..UploadLimits::default() };
    let running = started(app_with(limits));
    let mut gone = Client::to(running.address());
    gone.send(&request("POST", "/files/1", &format!("Content-Type: {MULTIPART}\r\nContent-Length: 9000000\r\n")));
    gone.send(&part("name=a; filename=a", &"x".repeat(900_000)));
    let body = multipart(&[part("name=a; filename=a", &"x".repeat(500_000))]);
    // Its bytes are counted once they have their room. Each file counts 1 MiB beside them.
    while running.metrics().bytes_in < 900_000 {}
    assert_eq!(post(&running, "/files/1", MULTIPART, &body).status, 503);
    drop(gone);
    while post(&running, "/files/1", MULTIPART, &body).status != 200 {}
    running.stop();
}

/// Has the one thread of the executor wait until it is told to go on, and tells that it does.
fn held(app: App, queue_max: usize) -> (App, Receiver<()>, Sender<()>) {
    let (begun, has_begun) = channel::<()>();
    let (go_on, may_go_on) = channel::<()>();
    let (begun, may_go_on) = (Mutex::new(begun), Mutex::new(may_go_on));
    let wait = move || {
        begun.lock().unwrap().send(()).unwrap();
        may_go_on.lock().unwrap().recv().unwrap();
        "held"
    };
    let app = app
        .executor("files", Threads { count: 1, queue_max })
        .get("/hold", blocking("files", wait))
        .get("/near", || "near")
        .post("/files/{id}", upload("files", files));
    (app, has_begun, go_on)
}

#[test]
fn a_client_waits_for_the_disk_and_the_loop_does_not() {
    let (app, has_begun, go_on) = held(App::new(), 8);
    let running = started(app);
    let mut holder = Client::to(running.address());
    holder.send(&request("GET", "/hold", ""));
    has_begun.recv().unwrap();
    let body = multipart(&[part("name=a; filename=a", &"x".repeat(5_000_000))]);
    let address = running.address();
    let sender = std::thread::spawn(move || Client::to(address).ask(&with_body("POST", "/files/1", MULTIPART, &body)));
    // Nothing is written meanwhile, and others are answered.
    for _ in 0..100 {
        assert_eq!(get(&running, "/near").told(), "200 near");
    }
    go_on.send(()).unwrap();
    assert_eq!(holder.reply().told(), "200 held");
    assert_eq!(sender.join().unwrap().told(), "200 1 a:<a> - 5000000 ..xxx;");
    running.stop();
}

#[test]
fn an_executor_without_room_is_503() {
    let (app, has_begun, go_on) = held(App::new(), 1);
    let running = started(app);
    let mut first = Client::to(running.address());
    first.send(&request("GET", "/hold", ""));
    has_begun.recv().unwrap();
    let mut second = Client::to(running.address());
    // Both are taken in before a reply leaves: the queue is full then.
    second.send(&(request("GET", "/near", "") + &request("GET", "/hold", "")));
    assert_eq!(second.reply().told(), "200 near");
    for bytes in [10, 300_000] {
        let body = multipart(&[part("name=a; filename=a", &"x".repeat(bytes))]);
        let refused = post(&running, "/files/1", MULTIPART, &body);
        assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("1")), "{bytes}");
    }
    for mut client in [first, second] {
        go_on.send(()).unwrap();
        assert_eq!(client.reply().told(), "200 held");
    }
    assert_eq!(post(&running, "/files/1", MULTIPART, &multipart(&[part("name=a", "x")])).told(), "200 1 a=x;");
    running.stop();
}

#[test]
fn a_handler_that_panics_costs_its_request() {
    let app = App::new()
        .executor("files", Threads { count: 1, queue_max: 8 })
        .post("/panic", upload("files", |form: Multipart| -> String { panic!("{} parts", form.files().len()) }));
    let running = started(app);
    for _ in 0..2 {
        assert_eq!(post(&running, "/panic", MULTIPART, "--XX--").status, 500);
    }
    running.stop();
}

#[test]
fn an_upload_needs_its_executor() {
    let app = App::new().post("/files", upload("nowhere", |_: Multipart| "taken"));
    let error = app.start("127.0.0.1:0").err().expect("it does not start").to_string();
    assert!(error.contains("an executor \"nowhere\" is missing"), "{error}");
}

fn whoami(sapsan::ClientAddress(address): sapsan::ClientAddress) -> String {
    address.to_string()
}

#[test]
fn the_client_behind_a_trusted_proxy_is_known() {
    let told = |app: App| {
        let running = started(app.get("/whoami", whoami));
        let mut client = Client::to(running.address());
        let reply = client.ask(&request("GET", "/whoami", "X-Forwarded-For: 1.1.1.1, 192.0.2.7, 10.0.0.1\r\n"));
        running.stop();
        reply.told()
    };
    assert_eq!(told(App::new()), "200 127.0.0.1");
    assert_eq!(told(App::new().trusted_proxies(&["unix", "10.0.0.0/8"])), "200 127.0.0.1");
    assert_eq!(told(App::new().trusted_proxies(&["127.0.0.1", "10.0.0.0/8"])), "200 192.0.2.7");
    let error = App::new().trusted_proxies(&["::1", "10.0.0.1/8"]).start("127.0.0.1:0").err().expect("a wrong list");
    assert!(error.to_string().contains("\"10.0.0.1/8\" is not valid; allowed: the network itself"), "{error}");
}

#[test]
fn a_peer_on_a_unix_socket_is_a_proxy_of_its_own_kind() {
    let folder = tempfile::tempdir().unwrap();
    for (proxies, told) in [(["127.0.0.1"], "127.0.0.1"), (["unix"], "192.0.2.7")] {
        let path = folder.path().join("app.sock");
        let address = format!("unix:{}", path.display());
        let app = App::new().threads(1).trusted_proxies(&proxies).get("/whoami", whoami);
        let running = app.start(&address).unwrap();
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let fields = "X-Forwarded-For: 192.0.2.7\r\nConnection: close\r\n";
        stream.write_all(request("GET", "/whoami", fields).as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(reply.ends_with(&format!("\r\n\r\n{told}")), "{proxies:?}: {reply}");
        running.stop();
    }
}
