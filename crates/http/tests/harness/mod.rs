//! A server on loopback and a client that sends raw bytes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a failed harness is a failed test")]

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use http::{
    BodyFault, BodyPart, BodySink, BodySource, HttpRequest, HttpServer, HttpSettings, LateReply, MetricsTotal, More,
    Reply, RequestOrder, Series, SeriesTotal, Service, Status, UNCOPIED_BYTES_MIN,
};

/// Limit of any wait in a test; it is never reached if all is well.
const PATIENCE: Duration = Duration::from_secs(20);

/// Late replies that the test answers, by path and query.
#[derive(Clone, Default)]
pub struct Shelf(Arc<(Mutex<BTreeMap<String, LateReply>>, Condvar)>);

impl Shelf {
    fn put(&self, key: String, late: LateReply) {
        self.0.0.lock().unwrap().insert(key, late);
        self.0.1.notify_all();
    }

    /// Waits until the request has reached the service, and takes its late reply.
    #[track_caller]
    pub fn take(&self, key: &str) -> LateReply {
        let lock = self.0.0.lock().unwrap();
        let missing = |shelf: &mut BTreeMap<String, LateReply>| !shelf.contains_key(key);
        let (mut lock, waited) = self.0.1.wait_timeout_while(lock, PATIENCE, missing).unwrap();
        assert!(!waited.timed_out(), "{key} never reached the service");
        lock.remove(key).unwrap()
    }

    /// Answers a late reply on the shelf, with its key as the body.
    #[track_caller]
    pub fn answer(&self, key: &str) {
        self.take(key).send(Status(200), "text/plain", key.as_bytes().to_vec());
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.0.lock().unwrap().contains_key(key)
    }
}

/// Bodies that are taken in pieces, by the path of their request.
#[derive(Clone, Default)]
pub struct Bodies(Arc<(Mutex<BTreeMap<String, Body>>, Condvar)>);

/// Received parts and state of such a body.
#[derive(Clone, Debug, Default)]
pub struct Body {
    pub text: String,
    /// This many more bytes are taken.
    pub room: usize,
    /// Bytes that it reports as held.
    pub held: usize,
    pub end: Option<Result<(), BodyFault>>,
    pub is_dropped: bool,
}

impl Bodies {
    pub fn change(&self, key: &str, change: impl FnOnce(&mut Body)) {
        change(self.0.0.lock().unwrap().entry(key.to_owned()).or_default());
        self.0.1.notify_all();
    }

    /// Waits until a body is as expected.
    #[track_caller]
    pub fn wait(&self, key: &str, is_there: impl Fn(&Body) -> bool) -> Body {
        let bodies = self.0.0.lock().unwrap();
        let waits = |bodies: &mut BTreeMap<String, Body>| !bodies.get(key).is_some_and(&is_there);
        let (bodies, waited) = self.0.1.wait_timeout_while(bodies, PATIENCE, waits).unwrap();
        assert!(!waited.timed_out(), "{key} is {:?}", bodies.get(key));
        bodies[key].clone()
    }
}

struct Taker(Bodies, String);

impl BodySink for Taker {
    fn take(&mut self, piece: &[u8]) -> usize {
        let mut bytes = 0;
        self.0.change(&self.1, |body| {
            bytes = piece.len().min(body.room);
            body.room -= bytes;
            body.text.push_str(std::str::from_utf8(&piece[..bytes]).unwrap());
        });
        bytes
    }

    fn held_bytes(&self) -> usize {
        self.0.wait(&self.1, |_| true).held
    }

    fn end(self: Box<Self>, end: Result<(), BodyFault>) {
        self.0.change(&self.1, |body| body.end = Some(end));
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.0.change(&self.1, |body| body.is_dropped = true);
    }
}

/// A part that is not copied.
pub static STATIC: &[u8] = &[b's'; 2 * UNCOPIED_BYTES_MIN];

/// Endpoints of the tests, by the first segment of the path.
pub struct TestService {
    shelf: Shelf,
    bodies: Bodies,
    slow: Arc<AtomicUsize>,
    pulls: Arc<Mutex<u64>>,
}

impl Service for TestService {
    type Local = ();

    fn local(&self, _: &reactor::Loop) {}

    fn order(&self, (): &mut (), request: &HttpRequest<'_>) -> RequestOrder {
        assert!(request.path() != "/panic-in-order");
        match request.path() {
            path if path.starts_with("/late-read") || request.method().is_safe() => RequestOrder::Read,
            path if path.starts_with("/late-alone") || path.starts_with("/in-pieces") => RequestOrder::Alone,
            _ => RequestOrder::Write,
        }
    }

    fn takes_pieces(&self, (): &mut (), request: &HttpRequest<'_>) -> bool {
        request.path().starts_with("/in-pieces")
    }

    fn is_vital(&self, request: &HttpRequest<'_>) -> bool {
        request.path() == "/vital"
    }

    fn call(&self, _: &mut (), request: &HttpRequest<'_>, mut reply: Reply<'_>) {
        let key = match request.query() {
            "" => request.path().to_owned(),
            query => format!("{}?{query}", request.path()),
        };
        match request.path().split('/').nth(1).unwrap_or_default() {
            "late" | "late-read" | "late-alone" => self.shelf.put(key, reply.later()),
            // The query is the number of bytes that are taken at first.
            "in-pieces" if request.is_in_pieces() => {
                let room = request.query().parse().unwrap_or(usize::MAX);
                self.bodies.change(&key, |body| *body = Body { room, ..Body::default() });
                let taker = Taker(self.bodies.clone(), key.clone());
                self.shelf.put(key, reply.later_in_pieces(Box::new(taker)));
            }
            "client" | "in-pieces-client" => {
                let told = format!("{} {}", request.client(), reply.cutter().host());
                reply.send(Status(200), "text/plain", told.as_bytes());
            }
            "in-pieces-refused" => reply.send(Status(409), "text/plain", b"no"),
            "watched" => self.shelf.put(key, reply.later_watched()),
            "panic" => panic!("as asked"),
            "drop" => {}
            "drop-late" => drop(reply.later()),
            "panic-late" => {
                let _late = reply.later();
                panic!("as asked");
            }
            "empty" => reply.send(Status(204), "", b""),
            "series" => {
                reply.count_under(Series(number(request) as u16));
                match request.query() {
                    "late" => self.shelf.put(key, reply.later()),
                    "stream" => self.stream(request, reply, None),
                    "panic" => panic!("as asked"),
                    "shared" => reply.send_shared(Status(203), "text/plain", Arc::from(*b"shared")),
                    _ => reply.send(Status(202), "text/plain", b"counted"),
                }
            }
            "close" => {
                reply.close();
                reply.send(Status(200), "", b"bye");
            }
            // The path contains the length of the large parts.
            "parts" | "late-parts" => {
                let large: Arc<[u8]> = vec![b'l'; number(request)].into();
                let parts = [
                    BodyPart::Copied(b"one "),
                    BodyPart::Static(STATIC),
                    BodyPart::Shared(&large),
                    BodyPart::Copied(b" two"),
                ];
                if key.starts_with("/late") {
                    reply.later().send_parts(Status(200), "text/plain", parts);
                } else {
                    reply.send_parts(Status(200), "text/plain", parts);
                }
            }
            "pieces" => reply.send_pieces(Status(201), "text/plain", &[b"one ", b"", b"two"]),
            "shared" => reply.send_shared(Status(200), "text/plain", Arc::from(vec![b's'; number(request)])),
            "slow" => {
                std::thread::sleep(Duration::from_millis(number(request) as u64));
                self.slow.fetch_add(1, Ordering::SeqCst);
                reply.send(Status(200), "text/plain", b"slow");
            }
            "large" => reply.send(Status(200), "text/plain", &vec![b'l'; number(request)]),
            "stream" => self.stream(request, reply, None),
            "stream-length" => self.stream(request, reply, Some(number(request) as u64)),
            "broken" => {
                let source = Letters { left: 10, broken: true, pulls: Arc::clone(&self.pulls) };
                reply.stream(Status(200), "text/plain", None, Box::new(source));
            }
            "fields" => {
                reply.header("X-Good", "yes").header("X-Bad", "a\r\nX-Evil: yes").header("Content-Length", "7");
                reply.send(Status(200), "text/plain", b"ok");
            }
            "tagged" => {
                reply.header("X-Before", "kept");
                let holds = || match request.query() {
                    "lost" => Err("lost"),
                    "panic" => panic!("as asked"),
                    _ => Ok(()),
                };
                if let Err((why, reply)) = reply.send_tagged(number(request) as u64, "application/json", b"{}", holds) {
                    reply.send(Status(503), "text/plain", why.as_bytes());
                }
            }
            "status" => reply.send(Status(number(request) as u16), "text/plain", b"body"),
            _ => {
                let body = String::from_utf8_lossy(request.body());
                let text = format!("{} {key} [{body}]", request.method().name());
                reply.send(Status(200), "application/json", text.as_bytes());
            }
        }
    }
}

impl TestService {
    fn stream(&self, request: &HttpRequest<'_>, reply: Reply<'_>, length: Option<u64>) {
        let source = Letters { left: number(request), broken: false, pulls: Arc::clone(&self.pulls) };
        reply.stream(Status(200), "text/plain", length, Box::new(source));
    }
}

/// The number in the last segment of the path.
fn number(request: &HttpRequest<'_>) -> usize {
    request.path().rsplit('/').next().and_then(|segment| segment.parse().ok()).unwrap_or(0)
}

struct Letters {
    left: usize,
    broken: bool,
    pulls: Arc<Mutex<u64>>,
}

impl BodySource for Letters {
    fn pull(&mut self, out: &mut Vec<u8>) -> More {
        *self.pulls.lock().unwrap() += 1;
        let bytes = self.left.min(64 << 10);
        out.resize(out.len() + bytes, b'x');
        self.left -= bytes;
        match (self.left, self.broken) {
            (0, true) if bytes == 0 => More::Broken,
            (0, false) => More::No,
            _ => More::Yes,
        }
    }
}

/// A running server; drained when it is dropped.
pub struct TestServer {
    pub address: SocketAddr,
    pub shelf: Shelf,
    pub bodies: Bodies,
    pulls: Arc<Mutex<u64>>,
    slow: Arc<AtomicUsize>,
    server: Arc<HttpServer<TestService>>,
    running: Option<reactor::RunningReactor>,
}

impl TestServer {
    pub fn start(settings: HttpSettings) -> TestServer {
        Self::start_on(reactor::ReactorSettings { loops: 1, ..reactor::ReactorSettings::default() }, settings)
    }

    pub fn start_on(loops: reactor::ReactorSettings, settings: HttpSettings) -> TestServer {
        let (shelf, pulls, slow) = (Shelf::default(), Arc::default(), Arc::default());
        let bodies = Bodies::default();
        let service = TestService {
            shelf: shelf.clone(),
            bodies: bodies.clone(),
            slow: Arc::clone(&slow),
            pulls: Arc::clone(&pulls),
        };
        let server = Arc::new(HttpServer::new(service, settings));
        let mut reactor = reactor::Reactor::new(loops).unwrap();
        let address = reactor.listen("127.0.0.1:0".parse().unwrap(), Arc::clone(&server) as _).unwrap();
        TestServer { address, shelf, bodies, pulls, slow, server, running: Some(reactor.start().unwrap()) }
    }

    pub fn connect(&self) -> Client {
        Self::client(TcpStream::connect(self.address).unwrap())
    }

    /// A client with another address of this machine.
    pub fn connect_from(&self, address: std::net::Ipv4Addr) -> Client {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from((address, 0)).into()).unwrap();
        socket.connect(&self.address.into()).unwrap();
        Self::client(socket.into())
    }

    /// A client on a connected socket.
    pub fn client(socket: TcpStream) -> Client {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { socket, seen: Vec::new(), received: 0 }
    }

    pub fn metrics(&self) -> MetricsTotal {
        self.server.metrics()
    }

    pub fn series(&self) -> Vec<SeriesTotal> {
        self.server.series()
    }

    /// Number of slow requests that have run.
    pub fn slow(&self) -> usize {
        self.slow.load(Ordering::SeqCst)
    }

    /// Bytes that connections hold between their turns.
    pub fn held_bytes(&self) -> usize {
        self.running.as_ref().unwrap().metrics().sum(|one| one.held_bytes) as usize
    }

    /// Number of pulls of a stream's source.
    pub fn pulls(&self) -> u64 {
        *self.pulls.lock().unwrap()
    }

    pub fn begin_drain(&self) {
        self.running.as_ref().unwrap().drain(Duration::from_secs(10));
    }

    /// Waits for the end of a drain.
    pub fn join(mut self) {
        self.running.take().unwrap().join().unwrap();
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::ZERO);
            running.join().unwrap();
        }
    }
}

/// A reply, as a client parses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// A connection that sends raw bytes.
pub struct Client {
    pub socket: TcpStream,
    seen: Vec<u8>,
    pub received: u64,
}

impl Client {
    /// Sends everything, unless the server closes before.
    pub fn send(&mut self, bytes: &[u8]) {
        match self.socket.write_all(bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            other => other.unwrap(),
        }
    }

    pub fn end(&mut self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Reads once. `false`: the server has ended.
    pub fn read_more(&mut self) -> bool {
        let mut buffer = vec![0; 1 << 20];
        let read = match self.socket.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => panic!("reset after {:?}", self.text()),
            other => other.expect("the server goes on in time"),
        };
        self.seen.extend_from_slice(&buffer[..read]);
        self.received += read as u64;
        read > 0
    }

    /// Reads until these bytes have arrived; they stay part of the reply.
    #[track_caller]
    pub fn read_until(&mut self, bytes: &str) {
        while !self.text().contains(bytes) {
            assert!(self.read_more(), "the server ended before {bytes:?}: {:?}", self.text());
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// The next reply. `head_only`: it answers HEAD.
    #[track_caller]
    pub fn answer_to(&mut self, head_only: bool) -> Option<Answer> {
        loop {
            if let Some((answer, bytes)) = cut_answer(&self.seen, head_only, false) {
                self.seen.drain(..bytes);
                return Some(answer);
            }
            if !self.read_more() {
                let (answer, bytes) = cut_answer(&self.seen, head_only, true)?;
                self.seen.drain(..bytes);
                return Some(answer);
            }
        }
    }

    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.answer_to(false).expect("a reply")
    }

    /// Status and body of the next reply.
    #[track_caller]
    pub fn expect(&mut self, status: u16, body: &str) {
        let answer = self.answer();
        assert_eq!((answer.status, answer.body.as_str()), (status, body), "{}", answer.head);
    }

    /// Everything until the server ends.
    pub fn rest(&mut self) -> String {
        while self.read_more() {}
        let rest = self.text();
        self.seen.clear();
        rest
    }

    /// Checks that the server ends without another byte.
    #[track_caller]
    pub fn expect_end(&mut self) {
        assert_eq!(self.rest(), "");
    }

    /// A whole GET, answered at once.
    #[track_caller]
    pub fn probe(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes());
        self.expect(200, &format!("GET {path} []"));
    }
}

/// The first reply in `bytes` and its length; `ended`: no more bytes will come.
fn cut_answer(bytes: &[u8], head_only: bool, ended: bool) -> Option<(Answer, usize)> {
    let head_end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..head_end].to_vec()).unwrap();
    let status = head.strip_prefix("HTTP/1.1 ").expect("a status line")[..3].parse().unwrap();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let rest = &bytes[head_end..];
    let (body, end) = if head_only || status < 200 || status == 204 || status == 304 {
        (Vec::new(), head_end)
    } else if field("Transfer-Encoding:") == Some("chunked") {
        let (body, used) = join_chunks(rest)?;
        (body, head_end + used)
    } else if let Some(length) = field("Content-Length:") {
        let length: usize = length.parse().unwrap();
        (rest.get(..length)?.to_vec(), head_end + length)
    } else if ended {
        (rest.to_vec(), bytes.len())
    } else {
        return None;
    };
    Some((Answer { status, head, body: String::from_utf8(body).unwrap() }, end))
}

fn join_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|window| window == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[at..at + line]).unwrap(), 16).unwrap();
        at += line + 2;
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size;
        assert_eq!(bytes.get(at..at + 2)?, b"\r\n");
        at += 2;
        if size == 0 {
            return Some((body, at));
        }
    }
}
