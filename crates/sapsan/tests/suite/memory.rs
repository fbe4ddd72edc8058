//! The memory setting is a ceiling: the real binary under all kinds of load at once never holds more anonymous memory
//! than the setting, refuses clearly what it cannot take, goes on, and gives back what it held.

use crate::heavy::Place;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the load lasts, and how long at most where the machine is so busy that not every kind was served by then.
const LOAD: Duration = Duration::from_secs(9);
const LOAD_MAX: Duration = Duration::from_secs(90);
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long clients that hold connections rest between two of them while the load lasts, and later at most.
const REST_MS: u64 = 5;
const REST_MS_MAX: u64 = 1_000;
const LARGE_DOCUMENTS: u32 = 24;
const SMALL_DOCUMENTS: u32 = 20_000;

/// Kinds of requests that are answered; of those in `SERVED` some are done.
const ASKED: [&str; 14] = [
    "bulk",
    "put large",
    "get large",
    "get",
    "list",
    "declared",
    "sort",
    "group",
    "rows",
    "update",
    "delete",
    "copy",
    "verify",
    "reload",
];
const SERVED: [&str; 7] = ["bulk", "put large", "get large", "get", "rows", "update", "reload"];
const DONE: [u16; 2] = [200, 201];

/// What may be said to a request of this load: done, absent, in conflict, too slow, too large, come again.
const CLEAR: [u16; 8] = [200, 201, 204, 404, 408, 409, 413, 503];

/// A schema that follows nested values, compares elements and tries one way after another.
const TREE: &str = r##"{"$ref": "#/$defs/tree", "$defs": {"tree": {"anyOf": [
    {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}, "unevaluatedProperties": false},
    {"type": "array", "items": {"$ref": "#/$defs/tree"}, "uniqueItems": true},
    {"type": "string", "pattern": "^(?!b)(a+)+$"},
    {"type": ["integer", "null"]}]}}}"##;

struct Server {
    process: Child,
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends the process that this test started.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(settings: &str) -> Server {
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!(
            "[views.groups]\nquery = \"SELECT \\\"group\\\" AS g, COUNT(*) AS n, SUM(id) AS s FROM items GROUP BY \\\"group\\\"\"\n\
             [collections.items]\nkey = {{ field = \"id\", type = \"u32\" }}\nindexes = [[\"group\"]]\n\
             [collections.trees]\nkey = {{ field = \"id\", type = \"u32\" }}\nschema = \"tree.json\"\n\
             [[endpoints]]\nroute = \"GET /items/{{id}}\"\nget = \"items/{{id}}\"\n\
             [[endpoints]]\nroute = \"GET /groups/{{group}}\"\nquery = \"SELECT id, note FROM items WHERE \\\"group\\\" = :group ORDER BY note\"\n\
             [server]\nhttp = \"127.0.0.1:0\"\n{settings}\n"
        );
        std::fs::write(folder.path().join("service.toml"), config).expect("a file");
        std::fs::write(folder.path().join("tree.json"), TREE).expect("a file");
        let log = std::fs::File::create(folder.path().join("log")).expect("a file");
        let mut process = Command::new(env!("CARGO_BIN_EXE_sapsan"))
            .current_dir(folder.path())
            .args(["serve", "service.toml", "--data", "d"])
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let line = lines.next().and_then(Result::ok).unwrap_or_else(|| panic!("{}", log_of(folder.path())));
        let address = line.strip_prefix("listening on http://").expect("an address").parse().expect("an address");
        Server { process, address, folder }
    }

    /// Resident anonymous memory, from proc_pid_status(5).
    fn anonymous_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel tells");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }

    fn connect(&self) -> std::io::Result<Client> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { reader: BufReader::new(stream) })
    }
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn send(&mut self, method: &str, target: &str, body: &[u8]) -> std::io::Result<()> {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
        self.reader.get_mut().write_all(&[head.as_bytes(), body].concat())
    }

    /// A reply's status and body.
    fn answer(&mut self) -> std::io::Result<(u16, Vec<u8>)> {
        let (mut status, mut length, mut is_chunked) = (0, 0, false);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.trim_end();
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest[..3].parse().expect("a status");
            } else if let Some(rest) = line.strip_prefix("Content-Length: ") {
                length = rest.parse().expect("a length");
            } else if line == "Transfer-Encoding: chunked" {
                is_chunked = true;
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        while is_chunked && self.chunk(&mut body)? {}
        Ok((status, body))
    }

    /// Reads a chunk of a body; false behind the last one.
    fn chunk(&mut self, body: &mut Vec<u8>) -> std::io::Result<bool> {
        let mut size = String::new();
        if self.reader.read_line(&mut size)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let size = usize::from_str_radix(size.trim_end(), 16).expect("a size");
        let start = body.len();
        body.resize(start + size + 2, 0);
        self.reader.read_exact(&mut body[start..])?;
        body.truncate(start + size);
        Ok(size > 0)
    }

    fn ask(&mut self, method: &str, target: &str, body: &[u8]) -> std::io::Result<(u16, Vec<u8>)> {
        self.send(method, target, body)?;
        self.answer()
    }
}

/// Replies by kind of client and status: how many, and the start of the first.
type Told = BTreeMap<(&'static str, u16), (u64, String)>;

/// The load: clients of each kind until the time is over, and what they were told.
struct Load<'s> {
    server: &'s Server,
    over: AtomicBool,
    /// How long a client that holds connections rests before it opens the next one.
    rest: AtomicU64,
    seed: AtomicU64,
    told: Mutex<Told>,
    /// Half of what one transaction takes: the index carries the note too, for the declared query.
    large_bytes: usize,
}

impl Load<'_> {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    /// Numbers in no order.
    fn any(&self, below: u32) -> u32 {
        let mixed = self.seed.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 33) as u32 % below
    }

    fn tell(&self, kind: &'static str, status: u16, body: &[u8]) {
        let mut told = self.told.lock().expect("no panic");
        let first = || (0, String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned());
        told.entry((kind, status)).or_insert_with(first).0 += 1;
    }

    fn count(&self, kind: &str, statuses: &[u16]) -> u64 {
        let told = self.told.lock().expect("no panic");
        told.iter()
            .filter(|((of, status), _)| *of == kind && statuses.contains(status))
            .map(|(_, (count, _))| count)
            .sum()
    }

    /// Asks on one connection again and again, on a new one after each refusal.
    fn ask(&self, kind: &'static str, request: impl Fn() -> (&'static str, String, Vec<u8>)) {
        let mut client = self.server.connect().ok();
        while self.goes_on() {
            let (method, target, body) = request();
            let answer = client.as_mut().map(|client| client.ask(method, &target, &body));
            match answer {
                Some(Ok((status, body))) => {
                    self.tell(kind, status, &body);
                    if status == 503 {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
                _ => client = self.server.connect().ok(),
            }
        }
    }

    /// Sends requests and reads no reply; holds some connections at once, each for a while.
    fn ask_and_hold(&self, at_once: usize, bytes: impl Fn() -> Vec<u8>) {
        let mut held = std::collections::VecDeque::new();
        while self.goes_on() {
            if let Ok(mut client) = self.server.connect() {
                let stream = client.reader.get_mut();
                // A server that takes no more of it is what is looked for.
                let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
                let _ = stream.write_all(&bytes());
                held.push_back(client);
            }
            if held.len() > at_once {
                held.pop_front();
            }
            std::thread::sleep(Duration::from_millis(self.rest.load(Ordering::Relaxed)));
        }
    }

    /// The same in waves: so many at once, held for a while, then none. Four bodies of a megabyte leave no room for another, so
    /// without a pause nothing would ever be written.
    fn ask_in_waves(&self, at_once: usize, bytes: impl Fn() -> Vec<u8>) {
        while self.goes_on() {
            let mut held = Vec::new();
            for _ in 0..at_once {
                if let Ok(mut client) = self.server.connect() {
                    let stream = client.reader.get_mut();
                    // A server that takes no more of it is what is looked for.
                    let _ = stream.set_write_timeout(Some(Duration::from_millis(20)));
                    let _ = stream.write_all(&bytes());
                    held.push(client);
                }
            }
            std::thread::sleep(Duration::from_millis(300));
            drop(held);
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    fn large(&self) -> (u32, Vec<u8>) {
        let id = self.any(LARGE_DOCUMENTS);
        let fill = char::from(b'a' + self.any(26) as u8);
        let note = fill.to_string().repeat(self.large_bytes);
        (id, format!("{{\"id\":{id},\"group\":\"large\",\"note\":\"{note}\"}}").into_bytes())
    }

    fn lines(&self, count: u32) -> Vec<u8> {
        let line = |_| {
            let id = LARGE_DOCUMENTS + self.any(SMALL_DOCUMENTS);
            format!("{{\"id\":{id},\"group\":\"g{}\",\"note\":\"{:0>180}\"}}\n", id % 50, self.any(1 << 30))
        };
        (0..count).map(line).collect::<String>().into_bytes()
    }
}

/// What a file may have more: an index that carries large notes, and a view of many groups with a count of many values.
const MORE: &str = "[views.pieces]\nquery = \"SELECT id / 3 AS piece, COUNT(*) AS n, MAX(id) AS last, COUNT(DISTINCT id) AS ids FROM items GROUP BY id / 3\"\n\
    [[endpoints]]\nroute = \"GET /tagged/{tag}\"\nquery = \"SELECT id, note FROM items WHERE tag = :tag ORDER BY note\"\n";

/// The file with more and without it, in turns: what is new is built beside all else.
fn change_the_file(load: &Load<'_>) {
    let file = load.server.folder.path().join("service.toml");
    let plain = std::fs::read_to_string(&file).expect("a file");
    let more = plain.replace("indexes = [[\"group\"]]", "indexes = [[\"group\"], [\"tag\"]]") + "\n" + MORE;
    let number = AtomicU64::new(0);
    load.ask("reload", || {
        let is_more = number.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        std::thread::sleep(Duration::from_millis(if is_more { 50 } else { 700 }));
        std::fs::write(&file, if is_more { &more } else { &plain }).expect("a file");
        ("POST", "/_/config/reload?allow-drop=true".to_owned(), Vec::new())
    });
}

/// Every kind of client at once.
fn run(load: &Load<'_>) {
    let get = |target: String| ("GET", target, Vec::new());
    let query = |sql: &str| ("POST", "/_/query".to_owned(), format!("{{\"sql\":\"{sql}\"}}").into_bytes());
    let raw = |method: &str, target: &str, body: &str| {
        format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| load.ask("bulk", || ("POST", "/_/collections/items/bulk".to_owned(), load.lines(800))));
            scope.spawn(|| {
                load.ask("put large", || {
                    let (id, body) = load.large();
                    ("PUT", format!("/_/collections/items/{id}"), body)
                });
            });
            scope.spawn(|| load.ask("get large", || get(format!("/items/{}", load.any(LARGE_DOCUMENTS)))));
            scope.spawn(|| load.ask("get", || get(format!("/items/{}", load.any(SMALL_DOCUMENTS)))));
            scope.spawn(|| load.ask("list", || get("/_/collections/items?after=100&limit=1000".to_owned())));
            scope.spawn(|| load.ask("declared", || get(format!("/groups/g{}", load.any(50)))));
            scope.spawn(|| load.ask("sort", || query("SELECT id, note FROM items ORDER BY note")));
            scope.spawn(|| load.ask("group", || query("SELECT note, COUNT(*) AS n FROM items GROUP BY note LIMIT 9")));
            scope.spawn(|| load.ask("rows", || query("SELECT id, note FROM items WHERE id > 100 LIMIT 800")));
        }
        // Statements that write many rows.
        scope.spawn(|| {
            load.ask("update", || {
                let from = LARGE_DOCUMENTS + load.any(SMALL_DOCUMENTS);
                let to = from + 300;
                query(&format!("UPDATE items SET tag = id % {} WHERE id >= {from} AND id < {to}", 1 + load.any(40)))
            });
        });
        scope.spawn(|| {
            load.ask("delete", || {
                let from = LARGE_DOCUMENTS + load.any(SMALL_DOCUMENTS);
                query(&format!("DELETE FROM items WHERE id >= {from} AND id < {}", from + 400))
            });
        });
        scope.spawn(|| {
            load.ask("copy", || {
                let (from, to) = (LARGE_DOCUMENTS + load.any(SMALL_DOCUMENTS), 1_000_000 + load.any(1 << 30));
                let copied = format!("SELECT id + {to}, \\\"group\\\", note FROM items WHERE id >= {from} LIMIT 400");
                query(&format!("INSERT INTO items (id, \\\"group\\\", note) {copied}"))
            });
        });
        scope.spawn(|| load.ask("verify", || ("POST", "/_/views/groups/verify".to_owned(), Vec::new())));
        scope.spawn(|| change_the_file(load));
        // A stream without end that nobody reads, a few times a second.
        scope.spawn(|| {
            let body = "{\"sql\":\"SELECT a.id, b.note FROM items a JOIN items b ON a.id + b.id >= 0\"}";
            while load.goes_on() {
                if let Ok(mut client) = load.server.connect() {
                    let _ = client.send("POST", "/_/query", body.as_bytes());
                    std::thread::sleep(Duration::from_millis(150));
                }
                std::thread::sleep(Duration::from_millis(150));
            }
        });
        // Patches of few bytes whose documents are large, many on their way at once.
        scope.spawn(|| {
            load.ask_and_hold(8, || {
                let one = |_| raw("PATCH", &format!("/_/collections/items/{}", load.any(LARGE_DOCUMENTS)), "{\"x\":1}");
                (0..100).map(one).collect::<String>().into_bytes()
            });
        });
        // Clients that do not read: large documents, lists, results; one reply each, and many.
        scope.spawn(|| {
            load.ask_and_hold(60, || raw("GET", &format!("/items/{}", load.any(LARGE_DOCUMENTS)), "").into_bytes());
        });
        scope.spawn(|| {
            load.ask_and_hold(40, || raw("GET", "/_/collections/items?limit=900", "").repeat(20).into_bytes());
        });
        scope.spawn(|| {
            let body = "{\"sql\":\"SELECT id, note FROM items LIMIT 300\"}";
            load.ask_and_hold(60, || raw("POST", "/_/query", body).repeat(30).into_bytes());
        });
        // Who follows changes and does not read them, now and from the log's beginning.
        for target in ["/_/changes", "/_/changes?since=0"] {
            scope.spawn(move || load.ask_and_hold(60, || raw("GET", target, "").into_bytes()));
        }
        // Heads and bodies that never end.
        scope.spawn(|| load.ask_and_hold(300, || format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(12_000)).into_bytes()));
        scope.spawn(|| {
            load.ask_in_waves(4, || {
                let head = "POST /_/collections/items HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
                format!("{head}{}", " ".repeat(900_000)).into_bytes()
            });
        });
        let began = Instant::now();
        std::thread::sleep(LOAD);
        // A server that has a small part of a core is held up by fewer clients than are planned here: they come half as often
        // every three seconds, until each kind was served.
        while began.elapsed() < LOAD_MAX && SERVED.iter().any(|kind| load.count(kind, &DONE) == 0) {
            std::thread::sleep(Duration::from_millis(20));
            let halvings = (began.elapsed() - LOAD).as_secs() / 3;
            load.rest.store((REST_MS << halvings.min(10)).min(REST_MS_MAX), Ordering::Relaxed);
        }
        load.over.store(true, Ordering::Relaxed);
    });
}

/// Runs the load against a server with these settings and this ceiling.
#[track_caller]
fn check(settings: &str, ceiling: u64, large_bytes: usize) {
    let _place = Place::take();
    let server = Server::start(&format!("memory = {ceiling}\n{settings}"));
    let idle = server.anonymous_bytes();
    let load = Load {
        server: &server,
        over: AtomicBool::new(false),
        rest: AtomicU64::new(REST_MS),
        seed: AtomicU64::new(1),
        told: Mutex::default(),
        large_bytes,
    };
    let sampled = AtomicBool::new(false);
    let peak = std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut peak = 0;
            while !sampled.load(Ordering::Relaxed) {
                peak = peak.max(server.anonymous_bytes());
                std::thread::sleep(Duration::from_millis(2));
            }
            peak
        });
        run(&load);
        sampled.store(true, Ordering::Relaxed);
        sampler.join().expect("the server runs to the end")
    });
    let told = load.told.lock().expect("no panic").clone();
    println!("idle {idle}, peak {peak} of {ceiling}: {told:#?}");
    assert!(peak <= ceiling, "{peak} bytes of {ceiling}");
    assert!(peak > ceiling / 4, "{peak} bytes are no load");
    assert!(told.keys().all(|(_, status)| CLEAR.contains(status)), "{told:?}");
    for kind in ASKED {
        assert!(load.count(kind, &CLEAR) > 0, "nothing of `{kind}` was answered: {told:?}");
    }
    for kind in SERVED {
        assert!(load.count(kind, &DONE) > 0, "nothing of `{kind}` was done: {told:?}");
    }
    check_goes_on(&server, ceiling);
}

/// The server takes requests again, and gives back what the load made it hold.
fn check_goes_on(server: &Server, ceiling: u64) {
    let began = Instant::now();
    let mut statuses = (0, 0);
    while began.elapsed() < PATIENCE && statuses != (200, 200) {
        let ask = |method, target, body| server.connect().and_then(|mut client| client.ask(method, target, body));
        let put = ask("PUT", "/_/collections/items/30", b"{\"id\":30,\"group\":\"g\",\"note\":\"n\"}".as_slice());
        let get = ask("GET", "/items/30", b"");
        let status = |answer: std::io::Result<(u16, Vec<u8>)>| answer.map_or(0, |(status, _)| status);
        statuses = (status(put).min(200), status(get));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(statuses, (200, 200), "{}", log_of(server.folder.path()));
    // A thread gives freed memory back when it works again: a few requests at once reach all of them.
    while server.anonymous_bytes() > ceiling / 2 && began.elapsed() < 3 * PATIENCE {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let query = b"{\"sql\":\"SELECT count(*) AS n FROM items\"}".as_slice();
                    server.connect().and_then(|mut client| client.ask("POST", "/_/query", query))
                });
            }
        });
        std::thread::sleep(Duration::from_millis(50));
    }
    let after = server.anonymous_bytes();
    assert!(after <= ceiling / 2, "{after} bytes are still held of {ceiling}");
    let log = log_of(server.folder.path());
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn sixty_four_mebibytes_are_not_exceeded_under_any_mix() {
    check("", 64 << 20, 200_000);
}

#[test]
fn the_smallest_setting_is_not_exceeded_either() {
    // Of so large a document three copies fit a transaction: two indexes may carry it at a time.
    check("threads = 1", 32 << 20, 80_000);
}

#[test]
fn a_bulk_body_of_many_times_the_memory_is_taken_within_it() {
    const CEILING: u64 = 64_000_000;
    const BODY: usize = 150_000_000;
    const LINES: usize = BODY / 400;
    let _place = Place::take();
    let server = Server::start(&format!("memory = {CEILING}\nthreads = 2\ndurability = \"none\"\nbody_seconds = 20"));
    let mut client = server.connect().expect("a connection");
    let (mut peak, mut line) = (0, String::new());
    let head = format!(
        "POST /_/collections/items/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        LINES * 400
    );
    let stream = client.reader.get_mut();
    stream.write_all(head.as_bytes()).expect("a server that reads");
    for id in 0..LINES {
        let start = line.len();
        line += &format!("{{\"id\":{id},\"group\":\"g{}\",\"note\":\"", id % 50);
        let note = 400 - 3 - (line.len() - start);
        line.extend(std::iter::repeat_n('n', note));
        line += "\"}\n";
        if id % 1_000 == 999 || id + 1 == LINES {
            stream.write_all(line.as_bytes()).expect("a server that reads");
            line.clear();
            peak = peak.max(server.anonymous_bytes());
        }
    }
    let (status, body) = client.answer().expect("a reply");
    assert_eq!((status, String::from_utf8_lossy(&body).as_ref()), (200, ""));
    println!("peak {peak} of {CEILING}");
    assert!(peak <= CEILING, "{peak} bytes of {CEILING}");
    let count = client.ask("POST", "/_/query", b"{\"sql\":\"SELECT COUNT(*) AS n FROM items\"}").expect("a reply");
    assert_eq!((count.0, String::from_utf8_lossy(&count.1).as_ref()), (200, format!("[{{\"n\":{LINES}}}]").as_str()));
}

#[test]
fn a_setting_too_small_for_its_threads_is_refused_with_what_would_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n[server]\nmemory = \"64MiB\"\n";
    std::fs::write(folder.path().join("service.toml"), config).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .current_dir(folder.path())
        .args(["serve", "service.toml", "--data", "d", "--threads", "100"])
        .output()
        .expect("the binary runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        told.contains("--threads 100: memory = \"64 MiB\" is not enough for 100 threads; allowed: memory"),
        "{told}"
    );
    assert!(!output.status.success() && !folder.path().join("d").exists());
}

/// Bodies of about so many bytes that are work for a checker of schemas: what fits, and what fits almost.
fn trees(bytes: usize) -> Vec<Vec<u8>> {
    let nested = "{\"a\":".repeat(110) + "1" + &"}".repeat(110);
    let fields = |value: &str| {
        let count = bytes / (value.len() + 14);
        let fields: Vec<String> = (0..count).map(|number| format!("\"f{number}\":{value}")).collect();
        format!("{{\"id\":1,\"t\":{{{}}}}}", fields.join(","))
    };
    let numbers: Vec<String> = (0..bytes / 8).map(|number| (1_000_000 + number).to_string()).collect();
    let texts = format!("\"{}!\"", "a".repeat(50));
    [
        fields(&nested),
        fields(&nested.replace('1', "1.5")),
        format!("{{\"id\":1,\"t\":[{}]}}", numbers.join(",")),
        format!("{{\"id\":1,\"t\":[{},1000000]}}", numbers.join(",")),
        fields("1"),
        fields(&texts),
    ]
    .map(String::into_bytes)
    .into()
}

/// Clients that write such bodies again and again until each kind was answered so often, and one that reads: the most memory.
#[track_caller]
fn check_trees(settings: &str, ceiling: u64, bytes: usize, (clients, times): (usize, u64), expected: &[u16]) {
    let _place = Place::take();
    let server = Server::start(&format!("memory = {ceiling}\n{settings}"));
    let (bodies, is_over, reads) = (trees(bytes), AtomicBool::new(false), AtomicU64::new(0));
    let answered: Vec<AtomicU64> = bodies.iter().map(|_| AtomicU64::new(0)).collect();
    let begun = Instant::now();
    let is_enough =
        || reads.load(Ordering::Relaxed) >= 200 && answered.iter().all(|count| count.load(Ordering::Relaxed) >= times);
    let peak = std::thread::scope(|scope| {
        for client in 0..clients {
            let (server, bodies, answered, is_over) = (&server, &bodies, &answered, &is_over);
            scope.spawn(move || {
                let mut connection = server.connect().expect("a connection");
                for number in client.. {
                    let kind = number % bodies.len();
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let told = connection.ask("PUT", "/_/collections/trees/1", &bodies[kind]);
                    let Ok((status, body)) = told else {
                        connection = server.connect().expect("a connection");
                        continue;
                    };
                    if status == 503 {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    assert!(expected.contains(&status), "{kind}: {status} {}", String::from_utf8_lossy(&body));
                    answered[kind].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut connection = server.connect().expect("a connection");
            while !is_over.load(Ordering::Relaxed) {
                let (status, _) = connection.ask("GET", "/items/1", &[]).expect("an answer");
                assert_eq!(status, 404);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut peak = 0;
        while !is_enough() && begun.elapsed() < LOAD_MAX {
            peak = peak.max(server.anonymous_bytes());
            std::thread::sleep(Duration::from_millis(2));
        }
        is_over.store(true, Ordering::Relaxed);
        peak
    });
    println!("peak {peak} of {ceiling} after {:?}: {answered:?}, {reads:?} reads", begun.elapsed());
    assert!(is_enough(), "{answered:?}, {reads:?} reads");
    assert!(peak <= ceiling, "{peak} bytes of {ceiling}");
}

#[test]
fn documents_that_are_work_for_a_schema_stay_within_the_memory_and_leave_the_loops_to_others() {
    check_trees("threads = 2\nbody_bytes_max = \"1MiB\"", 64_000_000, 430_000, (8, 8), &[200, 201, 400]);
}

#[test]
fn bodies_of_64_mib_are_refused_before_they_are_checked() {
    check_trees("threads = 2\nbody_bytes_max = \"64MiB\"", 1 << 30, 63 << 20, (2, 1), &[413]);
}
