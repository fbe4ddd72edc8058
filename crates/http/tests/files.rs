//! Static files through sockets: their replies, files that must never be sent, and the effect of changes.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Answer, Client, TestServer};
use http::{FileCache, FileMiss, Files, HttpRequest, HttpServer, HttpSettings, Reply, Service, Status};

/// A temporary folder, removed after the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = std::env::temp_dir().join(format!("sapsan-files-{}-{number}", std::process::id()));
        fs::create_dir_all(place.join("public/css")).unwrap();
        Place(place)
    }

    fn public(&self) -> PathBuf {
        self.0.join("public")
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.public().join(name), contents).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Serves files below `/assets/`.
struct Assets(Files);

impl Service for Assets {
    type Local = FileCache;

    fn local(&self, lp: &reactor::Loop) -> FileCache {
        FileCache::new(lp, 1 << 20)
    }

    fn call(&self, cache: &mut FileCache, request: &HttpRequest<'_>, reply: Reply<'_>) {
        let found = match request.path().strip_prefix("/assets/") {
            Some(path) => self.0.find(cache, request, path),
            None => Err(FileMiss::NotFound),
        };
        match found {
            Ok(file) => file.send(reply),
            Err(FileMiss::NotFound) => reply.send(Status(404), "text/plain", b"none"),
            Err(FileMiss::Busy) => reply.send(Status(503), "text/plain", b"later"),
            Err(FileMiss::Unavailable(error)) => reply.send(Status(500), "text/plain", error.to_string().as_bytes()),
        }
    }
}

struct FileServer {
    address: SocketAddr,
    running: Option<reactor::RunningReactor>,
}

impl FileServer {
    fn start(files: Files) -> FileServer {
        let server = Arc::new(HttpServer::new(Assets(files), HttpSettings::default()));
        let mut reactor = reactor::Reactor::new(reactor::ReactorSettings { loops: 1, ..Default::default() }).unwrap();
        let address = reactor.listen("127.0.0.1:0".parse().unwrap(), server).unwrap();
        FileServer { address, running: Some(reactor.start().unwrap()) }
    }

    fn folder(path: &Path) -> FileServer {
        FileServer::start(Files::folder(path).unwrap())
    }

    fn connect(&self) -> Client {
        TestServer::client(TcpStream::connect(self.address).unwrap())
    }

    fn ask(&self, path: &str, fields: &str) -> Answer {
        ask(&mut self.connect(), "GET", path, fields)
    }
}

impl Drop for FileServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::ZERO);
            running.join().unwrap();
        }
    }
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &str) -> Answer {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n").as_bytes());
    client.answer_to(method == "HEAD").unwrap()
}

fn field<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let mut fields = answer.head.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// Repeats a request until the answer is as expected.
#[track_caller]
fn eventually(server: &FileServer, path: &str, is_right: impl Fn(&Answer) -> bool) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = server.ask(path, "");
        if is_right(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_file_is_sent_with_its_type_and_validators_and_not_again_to_who_has_it() {
    let place = Place::new();
    place.write("css/site.css", "body {}");
    let server = FileServer::folder(&place.public());
    let mut client = server.connect();
    let whole = ask(&mut client, "GET", "/assets/css/site.css", "");
    assert_eq!((whole.status, whole.body.as_str()), (200, "body {}"));
    assert_eq!(field(&whole, "Content-Type"), Some("text/css; charset=utf-8"));
    assert_eq!(field(&whole, "Content-Length"), Some("7"));
    assert_eq!(field(&whole, "Cache-Control"), Some("no-cache"));
    assert_eq!(field(&whole, "Accept-Ranges"), Some("bytes"));
    assert_eq!(field(&whole, "Vary"), Some("Accept-Encoding"));
    let head = ask(&mut client, "HEAD", "/assets/css/site.css", "");
    assert_eq!((head.status, field(&head, "Content-Length")), (200, Some("7")));
    let (tag, date) = (field(&whole, "ETag").unwrap(), field(&whole, "Last-Modified").unwrap());
    for condition in [format!("If-None-Match: W/{tag}\r\n"), format!("If-Modified-Since: {date}\r\n")] {
        let known = ask(&mut client, "GET", "/assets/css/site.css", &condition);
        assert_eq!((known.status, field(&known, "ETag")), (304, Some(tag)));
        assert_eq!(field(&known, "Content-Length"), None);
    }
    let other = ask(&mut client, "GET", "/assets/css/site.css", "If-Match: \"other\"\r\n");
    assert_eq!(other.status, 412);
}

#[test]
fn a_fingerprinted_name_is_kept_for_a_year_unless_that_is_off() {
    let place = Place::new();
    place.write("site.3f2a9c1b.js", "x");
    let server = FileServer::folder(&place.public());
    let answer = server.ask("/assets/site.3f2a9c1b.js", "");
    assert_eq!(field(&answer, "Cache-Control"), Some("max-age=31536000, immutable"));
    let server = FileServer::start(Files::folder(place.public()).unwrap().immutable(false));
    assert_eq!(field(&server.ask("/assets/site.3f2a9c1b.js", ""), "Cache-Control"), Some("no-cache"));
}

#[test]
fn a_range_is_a_part_of_a_small_and_of_a_large_file() {
    let place = Place::new();
    let text: String = (0..200_000).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    place.write("large.txt", &text);
    place.write("small.txt", &text[..1000]);
    place.write("empty.txt", "");
    let server = FileServer::folder(&place.public());
    let mut client = server.connect();
    for (name, bytes) in [("large.txt", 200_000), ("small.txt", 1000)] {
        let path = format!("/assets/{name}");
        for (range, from, to) in [("0-0", 0, 1), ("10-19", 10, 20), ("-5", bytes - 5, bytes), ("990-", 990, bytes)] {
            let part = ask(&mut client, "GET", &path, &format!("Range: bytes={range}\r\n"));
            assert_eq!((part.status, part.body.as_str()), (206, &text[from..to]), "{name} {range}");
            let told = format!("bytes {from}-{}/{bytes}", to - 1);
            assert_eq!(field(&part, "Content-Range"), Some(told.as_str()));
        }
        let outside = ask(&mut client, "GET", &path, "Range: bytes=200000-\r\n");
        let told = format!("bytes */{bytes}");
        assert_eq!((outside.status, field(&outside, "Content-Range")), (416, Some(told.as_str())));
        let several = ask(&mut client, "GET", &path, "Range: bytes=0-1,3-4\r\n");
        assert_eq!((several.status, several.body.as_str()), (200, &text[..bytes]));
        let tag = field(&several, "ETag").unwrap().to_owned();
        for (validator, status) in [(tag.as_str(), 206), ("\"other\"", 200)] {
            let fields = format!("Range: bytes=0-1\r\nIf-Range: {validator}\r\n");
            assert_eq!(ask(&mut client, "GET", &path, &fields).status, status);
        }
    }
    assert_eq!(ask(&mut client, "GET", "/assets/empty.txt", "").body, "");
    assert_eq!(ask(&mut client, "GET", "/assets/empty.txt", "Range: bytes=0-\r\n").status, 416);
}

#[test]
fn compressed_siblings_go_to_who_accepts_them() {
    let place = Place::new();
    for (name, contents) in
        [("a.js", "plain"), ("a.js.gz", "gzip"), ("a.js.br", "brotli"), ("b.js", "plain"), ("b.js.gz", "gzip")]
    {
        place.write(name, contents);
    }
    place.write("c.png", "plain");
    place.write("c.png.gz", "gzip");
    let server = FileServer::folder(&place.public());
    for (path, accepts, body, coding) in [
        ("/assets/a.js", "gzip, br", "brotli", Some("br")),
        ("/assets/a.js", "gzip, br;q=0.5", "gzip", Some("gzip")),
        ("/assets/a.js", "gzip", "gzip", Some("gzip")),
        ("/assets/a.js", "identity", "plain", None),
        ("/assets/b.js", "br, gzip", "gzip", Some("gzip")),
        ("/assets/b.js", "br", "plain", None),
        ("/assets/c.png", "gzip", "plain", None),
    ] {
        // The second answer comes from the cache.
        for _ in 0..2 {
            let answer = server.ask(path, &format!("Accept-Encoding: {accepts}\r\n"));
            assert_eq!((answer.body.as_str(), field(&answer, "Content-Encoding")), (body, coding), "{path} {accepts}");
            assert_eq!(field(&answer, "Content-Type").unwrap().starts_with("text/javascript"), path.ends_with("js"));
        }
    }
    let tag = |accepts| field(&server.ask("/assets/a.js", accepts), "ETag").map(str::to_owned);
    assert_ne!(tag("Accept-Encoding: br\r\n"), tag("Accept-Encoding: gzip\r\n"));
    assert_eq!(server.ask("/assets/a.js", "").body, "plain");
}

#[test]
fn a_folder_is_answered_with_its_index_where_that_is_on() {
    let place = Place::new();
    place.write("index.html", "root");
    place.write("css/index.html", "below");
    let server = FileServer::folder(&place.public());
    for path in ["/assets/", "/assets/css/", "/assets/css"] {
        assert_eq!(server.ask(path, "").status, 404, "{path}");
    }
    let server = FileServer::start(Files::folder(place.public()).unwrap().index(true));
    assert_eq!(server.ask("/assets/", "").body, "root");
    assert_eq!(server.ask("/assets/css/", "").body, "below");
    let moved = server.ask("/assets/css?a=b", "");
    assert_eq!((moved.status, field(&moved, "Location")), (301, Some("/assets/css/?a=b")));
    assert_eq!(server.ask("/assets/none/", "").status, 404);
}

/// Paths below `/assets/` that name no file. The first of each pair is sent literally.
const HOSTILE: [&str; 64] = [
    "../secret",
    "../../etc/passwd",
    "css/../../secret",
    "css/../site.css",
    "./site.css",
    "css/./site.css",
    "..",
    ".",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%2fsecret",
    "%2e./secret",
    ".%2e/secret",
    "%2E%2E/secret",
    "css/%2e%2e/%2e%2e/secret",
    "..%5csecret",
    "..\\secret",
    "css\\..\\..\\secret",
    "%5c..%5csecret",
    "/secret",
    "/etc/passwd",
    "//etc/passwd",
    "%2fetc%2fpasswd",
    "%2Fetc/passwd",
    "css//site.css",
    "/site.css",
    "site.css/",
    "site.css//",
    "site.css%2f",
    "site.css/.",
    "site.css/..",
    "site.css%00",
    "site.css%00.png",
    "%00",
    "site.css%0a",
    "site.css%0d%0aX-Evil:1",
    "site.css%20",
    "site.css.",
    "SITE.css",
    "site%2ecss%2e",
    "%",
    "%2",
    "%zz",
    "site.css%",
    "%ff%fe",
    "%c0%ae%c0%ae/secret",
    "%e0%80%ae%e0%80%ae/secret",
    "%252e%252e/secret",
    "..%252fsecret",
    "..%c0%afsecret",
    "..;/secret",
    ".env",
    ".git/config",
    "%2eenv",
    "css/.hidden",
    "outside",
    "absolute",
    "up/secret",
    "up/public/site.css",
    "loop",
    "pipe",
    "device",
    "magic/etc/passwd",
    "socket",
];

#[test]
fn hostile_paths_give_nothing() {
    let place = Place::new();
    let public = place.public();
    place.write("site.css", "public");
    for secret in [place.0.join("secret"), public.join(".env"), public.join("css/.hidden")] {
        fs::write(secret, "secret").unwrap();
    }
    fs::create_dir(public.join(".git")).unwrap();
    place.write(".git/config", "secret");
    symlink("../secret", public.join("outside")).unwrap();
    symlink(place.0.join("secret"), public.join("absolute")).unwrap();
    symlink("..", public.join("up")).unwrap();
    symlink("loop", public.join("loop")).unwrap();
    symlink("/dev/zero", public.join("device")).unwrap();
    symlink("/proc/self/root", public.join("magic")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(public.join("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(public.join("socket")).unwrap();
    let server = FileServer::start(Files::folder(&public).unwrap().index(true));
    for path in HOSTILE {
        let mut client = server.connect();
        for _ in 0..2 {
            let answer = ask(&mut client, "GET", &format!("/assets/{path}"), "");
            assert_eq!(answer.status, 404, "{path}: {answer:?}");
        }
        assert_eq!(ask(&mut client, "GET", "/assets/site.css", "").body, "public", "after {path}");
    }
}

#[test]
fn bytes_that_no_target_may_have_are_refused_before() {
    let place = Place::new();
    place.write("site.css", "public");
    let server = FileServer::folder(&place.public());
    for path in ["\0", "a\0b", "\u{44f}", "a#b"] {
        let mut client = server.connect();
        assert_eq!(ask(&mut client, "GET", &format!("/assets/{path}"), "").status, 400, "{path:?}");
    }
}

#[test]
fn a_changed_file_is_seen_and_so_is_one_that_goes_and_one_that_comes() {
    let place = Place::new();
    place.write("a.js", "one");
    let server = FileServer::folder(&place.public());
    let first = server.ask("/assets/a.js", "");
    assert_eq!(first.body, "one");
    place.write("new", "two");
    // Two files of one length that are written within a tick of the kernel's clock have the same time, and so the same tag.
    let new = fs::File::options().append(true).open(place.public().join("new")).unwrap();
    new.set_modified(std::time::SystemTime::now() + Duration::from_secs(1)).unwrap();
    fs::rename(place.public().join("new"), place.public().join("a.js")).unwrap();
    let second = eventually(&server, "/assets/a.js", |answer| answer.body == "two");
    assert_ne!(field(&first, "ETag"), field(&second, "ETag"));
    fs::remove_file(place.public().join("a.js")).unwrap();
    eventually(&server, "/assets/a.js", |answer| answer.status == 404);
    place.write("a.js", "three");
    eventually(&server, "/assets/a.js", |answer| answer.body == "three");
}

#[test]
fn a_folder_that_goes_answers_nothing_and_one_in_its_place_is_served() {
    let place = Place::new();
    place.write("a.js", "one");
    let server = FileServer::folder(&place.public());
    assert_eq!(server.ask("/assets/a.js", "").body, "one");
    fs::remove_dir_all(place.public()).unwrap();
    eventually(&server, "/assets/a.js", |answer| answer.status == 404);
    fs::create_dir_all(place.0.join("releases/2")).unwrap();
    fs::write(place.0.join("releases/2/a.js"), "two").unwrap();
    symlink("releases/2", place.public()).unwrap();
    eventually(&server, "/assets/a.js", |answer| answer.body == "two");
    fs::create_dir_all(place.0.join("releases/3")).unwrap();
    fs::write(place.0.join("releases/3/a.js"), "three").unwrap();
    symlink("releases/3", place.0.join("next")).unwrap();
    fs::rename(place.0.join("next"), place.public()).unwrap();
    eventually(&server, "/assets/a.js", |answer| answer.body == "three");
}

#[test]
fn a_large_file_goes_to_a_slow_client_whole_while_others_are_served() {
    let place = Place::new();
    let text: String = (0..20_000_000).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    place.write("large.txt", &text);
    place.write("a.js", "small");
    let server = FileServer::folder(&place.public());
    let mut slow = server.connect();
    slow.send(b"GET /assets/large.txt HTTP/1.1\r\nHost: h\r\n\r\nGET /assets/a.js HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(slow.read_more());
    for _ in 0..100 {
        assert_eq!(server.ask("/assets/a.js", "").body, "small");
    }
    assert!(slow.answer().body == text);
    slow.expect(200, "small");
}

#[test]
fn a_file_that_is_cut_shorter_while_it_is_sent_ends_its_connection() {
    let place = Place::new();
    place.write("large.txt", vec![b'x'; 40_000_000]);
    let server = FileServer::folder(&place.public());
    let mut slow = server.connect();
    slow.send(b"GET /assets/large.txt HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(slow.read_more());
    let file = fs::OpenOptions::new().write(true).open(place.public().join("large.txt")).unwrap();
    file.set_len(1000).unwrap();
    let mut rest = Vec::new();
    // The close may be seen as an end or as a reset.
    let _ = std::io::Read::read_to_end(&mut slow.socket, &mut rest);
    assert!(slow.received + (rest.len() as u64) < 40_000_000);
    place.write("a.js", "small");
    assert_eq!(server.ask("/assets/a.js", "").body, "small");
}

#[test]
fn embedded_files_are_sent_as_those_of_a_folder_are() {
    let server = FileServer::start(Files::embedded(http::embed!("tests/assets", "site.css", "images/dot.svg")));
    let whole = server.ask("/assets/site.css", "");
    assert_eq!(whole.body, include_str!("assets/site.css"));
    assert_eq!(server.ask("/assets/images/dot.svg", "Range: bytes=0-3\r\n").body, "<svg");
    let tag = field(&whole, "ETag").unwrap();
    assert_eq!(server.ask("/assets/site.css", &format!("If-None-Match: {tag}\r\n")).status, 304);
    for path in ["none", "images", "images/", "../assets/site.css", ""] {
        assert_eq!(server.ask(&format!("/assets/{path}"), "").status, 404, "{path}");
    }
}
