//! The service under siege: its file, its documents, its process.

use crate::cores;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What the file says.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);
/// Bytes of a large document, and how many there are.
pub(crate) const LARGE_BYTES: usize = 300_000;
pub(crate) const LARGE_DOCUMENTS: u32 = 8;
/// The whole setting must hold a body of this.
const BODY_BYTES: usize = 1 << 20;

const CONFIG: &str = r##"
[collections.items]
key = { field = "id", type = "u32" }
indexes = [["group"]]
[collections.large]
key = { field = "id", type = "u32" }
[collections.kept]
key = { field = "id", type = "u32" }
[collections.goods]
key = { field = "id", type = "u32" }
[collections.schemed]
key = { field = "id", type = "u32" }
[collections.schemed.schema]
type = "object"
[collections.schemed.schema.properties]
tree = { "$ref" = "#/$defs/node" }
tags = { type = "array", uniqueItems = true }
[collections.schemed.schema."$defs".node]
type = "object"
additionalProperties = { "$ref" = "#/$defs/node" }

[views.groups]
query = "SELECT \"group\" AS g, COUNT(*) AS n FROM items GROUP BY \"group\""

[[endpoints]]
route = "GET /items/{id}"
get = "items/{id}"
[[endpoints]]
route = "GET /large/{id}"
get = "large/{id}"
[[endpoints]]
route = "GET /search"
query = "SELECT id, note FROM items WHERE note LIKE :text"
params = { text = { type = "string", required = true } }
[[endpoints]]
route = "GET /bomb"
query = "SELECT id, length(replace(printf('%20000d', id), ' ', 'xyz')) AS n FROM items WHERE note LIKE :text"
params = { text = { type = "string", required = true } }
[[endpoints]]
route = "GET /find"
query = """
  SELECT id FROM items WHERE (:a IS NULL OR id > :a) AND (:b IS NULL OR id < :b) AND (:c IS NULL OR "group" = :c)
  AND (:d IS NULL OR n > :d) AND (:e IS NULL OR n < :e) AND (:f IS NULL OR n <> :f) AND (:g IS NULL OR id <> :g)
  AND (:h IS NULL OR n % 7 = :h) ORDER BY id LIMIT 5"""
params = { a = "integer", b = "integer", c = "string", d = "integer", e = "integer", f = "integer", g = "integer", h = "integer" }
[[endpoints]]
route = "POST /raise/{id}"
steps = [
  { sql = "UPDATE goods SET n = n + 1, note = printf('%2000d', n) WHERE id >= :id AND id < :id + 50" },
  { sql = "SELECT COUNT(*) AS n FROM goods WHERE note LIKE '%1%2%'" },
]
"##;

/// What the file has more after every other reload.
pub(crate) const MORE: &str =
    "\n[views.more]\nquery = \"SELECT n, COUNT(*) AS c, MAX(id) AS m FROM items GROUP BY n\"\n";

/// The file's text.
pub(crate) fn file(memory: Option<u64>) -> String {
    let mut text = CONFIG.to_owned();
    let _ = write!(text, "\n[server]\nhttp = \"127.0.0.1:0\"\ndrain_seconds = {}\n", DRAIN.as_secs());
    if let Some(bytes) = memory {
        let _ = writeln!(text, "memory = {bytes}");
    }
    text
}

/// Where the file lies.
pub(crate) fn file_path(folder: &Path) -> PathBuf {
    folder.join("service.toml")
}

pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    folder: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends the process that this test started.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    pub(crate) fn start(folder: &Path, memory: Option<u64>) -> Server {
        std::fs::write(file_path(folder), file(memory)).expect("a file");
        let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
        command
            .current_dir(folder)
            .args(["serve", "service.toml", "--data", "d", "--allow-drop"])
            .stdout(Stdio::piped())
            .stderr(log);
        let mut process = cores::of_server(|| command.spawn()).expect("the binary runs");
        let mut lines = BufReader::new(process.stdout.take().expect("its output")).lines();
        let line = lines.next().and_then(Result::ok).unwrap_or_else(|| panic!("{}", log_of(folder)));
        let address = line.strip_prefix("listening on http://").expect("an address").parse().expect("an address");
        Server { process, address, folder: folder.to_owned() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn log(&self) -> String {
        log_of(&self.folder)
    }

    /// SIGTERM; how long the process then took to end, and whether it ended well. Killed after the patience.
    pub(crate) fn stop(&mut self, patience: Duration) -> (Duration, bool) {
        let (id, began) = (self.process.id().to_string(), Instant::now());
        assert!(Command::new("kill").args(["-TERM", &id]).status().is_ok_and(|status| status.success()));
        while began.elapsed() < patience {
            if let Some(status) = self.process.try_wait().expect("the child can be waited for") {
                return (began.elapsed(), status.success());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        (began.elapsed(), false)
    }
}

/// The most anonymous memory that was resident in a process until it is over.
pub(crate) fn watch_memory(id: u32, over: &AtomicBool) -> u64 {
    let mut most = 0;
    while !over.load(Ordering::Relaxed) {
        most = most.max(anonymous_bytes(id).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(3));
    }
    most
}

/// Resident anonymous memory, from proc_pid_status(5).
fn anonymous_bytes(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes * 1024)
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// What `sapsan verify` has to say against the folder.
pub(crate) fn verify(folder: &Path) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .current_dir(folder)
        .args(["verify", "d", "--config", "service.toml", "--views"])
        .output()
        .expect("the binary runs");
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let is_clean = output.status.success();
    if is_clean { Vec::new() } else { vec![format!("verify: {}{}", told(&output.stdout), told(&output.stderr))] }
}

/// Stores what attackers and honest clients ask for.
pub(crate) fn fill(address: SocketAddr, documents: u32) {
    let note = |id: u32| format!("{:0>160}", u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let item =
        |id: u32| format!("{{\"id\":{id},\"group\":\"g{}\",\"n\":{},\"note\":\"{}\"}}\n", id % 50, id % 997, note(id));
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let ids: Vec<u32> = (0..documents).collect();
    for ids in ids.chunks(1_000) {
        bulk(&mut stream, "items", &ids.iter().map(|id| item(*id)).collect::<String>());
    }
    let goods: String = (0..2_000).map(|id| format!("{{\"id\":{id},\"n\":{id},\"note\":\"\"}}\n")).collect();
    bulk(&mut stream, "goods", &goods);
    for id in 0..LARGE_DOCUMENTS {
        let note = "x".repeat(LARGE_BYTES.min(BODY_BYTES / 2));
        bulk(&mut stream, "large", &format!("{{\"id\":{id},\"note\":\"{note}\"}}\n"));
    }
}

fn bulk(stream: &mut TcpStream, collection: &str, lines: &str) {
    let head = format!(
        "POST /_/collections/{collection}/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        lines.len()
    );
    stream.write_all(&[head.as_bytes(), lines.as_bytes()].concat()).expect("the server takes it");
    let mut reply = Vec::new();
    // The reply is chunked, and ends with an empty chunk; or it has no body.
    while !reply.ends_with(b"\r\n\r\n") && !reply.ends_with(b"0\r\n\r\n") {
        let mut piece = [0; 4096];
        let count = stream.read(&mut piece).expect("the server answers");
        assert!(count > 0, "{}", String::from_utf8_lossy(&reply));
        reply.extend_from_slice(&piece[..count]);
    }
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
}
