//! The feed of changes of the real binary, which is killed at any moment: who comes again with the last number that it heard
//! hears every acknowledged change once and in order.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

const CONFIG: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n\
    [server]\nhttp = \"127.0.0.1:0\"\nthreads = 2\n";
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);
const KILLS: u32 = 6;
const BETWEEN_KILLS: Duration = Duration::from_millis(250);
const WRITERS: u32 = 4;
const CONSUMERS: usize = 3;

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(folder: &Path) -> Server {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sapsan"))
            .current_dir(folder)
            .args(["serve", "service.toml", "--data", "d"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let line = lines.next().and_then(Result::ok).expect("it says where it listens");
        let address = line.strip_prefix("listening on http://").expect("an address").parse().expect("an address");
        Server { process, address }
    }

    /// Kills the process that this test started.
    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the server is now, for those who connect again; and when all is over.
struct Scene {
    address: Mutex<SocketAddr>,
    moved: Condvar,
    writers_end: AtomicBool,
    /// The last change number that was acknowledged, once no more is written; 0 before.
    last: AtomicU64,
}

impl Scene {
    /// Connects to the server, wherever it is by then.
    fn connect(&self) -> TcpStream {
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "the server does not come back");
            let address = *self.address.lock().expect("a lock");
            if let Ok(stream) = TcpStream::connect(address) {
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
                stream.set_nodelay(true).expect("a socket");
                return stream;
            }
            let lock = self.address.lock().expect("a lock");
            drop(self.moved.wait_timeout(lock, Duration::from_millis(20)).expect("a lock"));
        }
    }
}

/// Head and body of a reply with a Content-Length; none where the connection ended.
fn answer(reader: &mut BufReader<TcpStream>) -> Option<(u16, String)> {
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let start = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        let line = head[start..].trim();
        if line.is_empty() {
            break;
        }
        if let Some(text) = line.strip_prefix("Content-Length: ") {
            length = text.parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((head.split(' ').nth(1)?.parse().ok()?, head))
}

fn etag(head: &str) -> u64 {
    let line = head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("a tag");
    line.trim().trim_matches('"').parse().expect("a number")
}

/// Inserts documents until it is told to end; what was acknowledged, by change number.
fn write(scene: &Scene, writer: u32) -> BTreeMap<u64, u64> {
    let (mut acknowledged, mut id) = (BTreeMap::new(), writer * 10_000_000);
    while !scene.writers_end.load(Ordering::Relaxed) {
        let mut reader = BufReader::new(scene.connect());
        loop {
            id += 1;
            let body = format!("{{\"id\":{id}}}");
            let head = format!(
                "POST /_/collections/items HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            if reader.get_mut().write_all(head.as_bytes()).is_err() {
                break;
            }
            let Some((status, head)) = answer(&mut reader) else { break };
            assert!(matches!(status, 201 | 503), "{head}");
            if status == 201 {
                acknowledged.insert(etag(&head), u64::from(id));
            }
            if scene.writers_end.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    acknowledged
}

/// A chunked body without its framing, until the connection ends.
struct Unchunked<R> {
    inner: R,
    /// Of the chunk in hand.
    left: usize,
}

impl<R: BufRead> Read for Unchunked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let mut size = String::new();
        while self.left == 0 {
            size.clear();
            if self.inner.read_line(&mut size)? == 0 {
                return Ok(0);
            }
            // The end of the chunk before is an empty line.
            if !size.trim().is_empty() {
                self.left = usize::from_str_radix(size.trim(), 16).map_err(std::io::Error::other)?;
                if self.left == 0 {
                    return Ok(0);
                }
            }
        }
        let most = buffer.len().min(self.left);
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// Follows the feed from its beginning, again and again, until it has heard the last change.
fn follow(scene: &Scene, is_events: bool) -> Vec<(u64, u64)> {
    let (mut heard, mut last) = (Vec::new(), "0".to_owned());
    loop {
        let mut stream = scene.connect();
        let accept = if is_events { "text/event-stream" } else { "application/x-ndjson" };
        let head =
            format!("GET /_/changes HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nLast-Event-ID: {last}\r\n\r\n");
        if stream.write_all(head.as_bytes()).is_err() {
            continue;
        }
        let mut id = String::new();
        let mut reader = BufReader::new(stream);
        let Some((status, head)) = answer(&mut reader) else { continue };
        if status != 200 {
            assert_eq!(status, 503, "{head}");
            continue;
        }
        let mut reader = BufReader::new(Unchunked { inner: reader, left: 0 });
        let mut line = Vec::new();
        loop {
            line.clear();
            // Half a line at the end of a connection was not heard.
            if reader.read_until(b'\n', &mut line).is_err() || line.last() != Some(&b'\n') {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end();
            if let Some(text) = text.strip_prefix("id: ") {
                text.clone_into(&mut id);
                continue;
            }
            let json = if is_events { text.strip_prefix("data: ") } else { text.starts_with('{').then_some(text) };
            let Some(json) = json else { continue };
            let event: serde_json::Value = serde_json::from_str(json).expect("JSON");
            if let (Some(change), Some(key)) = (event["change"].as_u64(), event["key"].as_u64()) {
                assert!(event["op"] == "put" && event["document"]["id"] == key, "{event}");
                heard.push((change, key));
                last = if is_events { id.clone() } else { change.to_string() };
            }
            let end = scene.last.load(Ordering::Relaxed);
            if end != 0 && heard.last().is_some_and(|(change, _)| *change >= end) {
                return heard;
            }
        }
    }
}

#[test]
fn every_acknowledged_change_is_told_once_and_in_order_across_kills() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("service.toml"), CONFIG).expect("a file");
    let mut server = Server::start(folder.path());
    let scene = Scene {
        address: Mutex::new(server.address),
        moved: Condvar::new(),
        writers_end: AtomicBool::new(false),
        last: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        let scene = &scene;
        let consumers: Vec<_> =
            (0..CONSUMERS).map(|number| scope.spawn(move || follow(scene, number % 2 == 0))).collect();
        let writers: Vec<_> = (1..=WRITERS).map(|writer| scope.spawn(move || write(scene, writer))).collect();
        for _ in 0..KILLS {
            std::thread::sleep(BETWEEN_KILLS);
            server.kill();
            server = Server::start(folder.path());
            *scene.address.lock().expect("a lock") = server.address;
            scene.moved.notify_all();
        }
        std::thread::sleep(BETWEEN_KILLS);
        scene.writers_end.store(true, Ordering::Relaxed);
        let mut acknowledged = BTreeMap::new();
        for writer in writers {
            acknowledged.extend(writer.join().expect("a writer"));
        }
        let (end, _) = acknowledged.last_key_value().expect("something was written");
        scene.last.store(*end, Ordering::Relaxed);
        // One more, for who has heard all and waits.
        let mut reader = BufReader::new(scene.connect());
        let body = "POST /_/collections/items HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\n{\"id\":1}";
        reader.get_mut().write_all(body.as_bytes()).expect("sent");
        assert_eq!(answer(&mut reader).expect("an answer").0, 201);
        for consumer in consumers {
            let heard = consumer.join().expect("a consumer");
            assert!(heard.windows(2).all(|two| two[0].0 < two[1].0), "once and in order");
            let heard: BTreeMap<u64, u64> = heard.into_iter().collect();
            let missing = acknowledged.iter().find(|(change, key)| heard.get(change) != Some(key));
            assert_eq!(missing, None, "of {} acknowledged and {} heard", acknowledged.len(), heard.len());
        }
    });
}
