//! `sapsan proxy`, the real binary before real nodes: what it says, SIGHUP, twemproxy's file, its memory.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use crate::heavy::Place;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// What the proxy's memory must stay below.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// A process that ends with its handle.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status().unwrap().success());
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }
}

/// The path of redis-server: on the PATH, or where `cargo xtask redis` puts it.
fn redis_server() -> PathBuf {
    // The test program lies in target/PROFILE/deps.
    let target = std::env::current_exe().ok().and_then(|program| Some(program.ancestors().nth(3)?.to_owned()));
    let linked = target.map(|target| target.join("redis/redis-server")).filter(|program| program.is_file());
    linked.unwrap_or_else(|| "redis-server".into())
}

fn has_redis() -> bool {
    let there = Command::new(redis_server()).arg("--version").output().is_ok();
    if !there {
        // Past libtest, which keeps what a passing test prints by println!.
        let _ = writeln!(std::io::stdout(), "SKIPPED: redis-server is not there (`cargo xtask redis` installs it)");
    }
    there
}

fn redis() -> (Program, SocketAddr) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let arguments = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp", "--port"];
    let mut command = Command::new(redis_server());
    command.args(arguments).arg(address.port().to_string()).stdout(Stdio::null());
    let program = Program(command.spawn().unwrap());
    eventually(|| TcpStream::connect(address).is_ok());
    (program, address)
}

#[track_caller]
fn eventually(mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A proxy, the lines that it said first, and where it listens.
fn proxy(arguments: &[&str], lines: usize) -> (Program, Vec<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sapsan"));
    command.arg("proxy").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut program = Program(command.spawn().unwrap());
    let said = BufReader::new(program.0.stdout.take().unwrap()).lines().take(lines).map(Result::unwrap).collect();
    (program, said)
}

fn address_in(line: &str) -> SocketAddr {
    line.strip_prefix("listening on ").unwrap().parse().unwrap()
}

/// Sends an inline command, and gives the first line of the reply.
fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8(line).unwrap().trim_end().to_owned()
}

#[test]
fn a_hangup_has_the_nodes_read_again_and_keeps_the_clients() {
    if !has_redis() {
        return;
    }
    let ((_one, first), (_other, second)) = (redis(), redis());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nodes");
    std::fs::write(&file, format!("# ours\n{first}\n")).unwrap();
    let arguments = ["--listen", "127.0.0.1:0", "--nodes-file", file.to_str().unwrap(), "--metrics", "127.0.0.1:0"];
    let (program, said) = proxy(&arguments, 2);
    let mut stream = TcpStream::connect(address_in(&said[0])).unwrap();
    assert_eq!(ask(&mut stream, "SET a 1"), "+OK");
    assert!(said[1].starts_with("metrics are at http://127.0.0.1:"), "{said:?}");
    std::fs::write(&file, format!("{second}\n")).unwrap();
    program.signal("HUP");
    eventually(|| ask(&mut stream, "EXISTS a") == ":0");
    // A list with a mistake changes nothing.
    std::fs::write(&file, "nonsense\n").unwrap();
    program.signal("HUP");
    assert_eq!(ask(&mut stream, "SET a 2"), "+OK");
    assert_eq!(ask(&mut TcpStream::connect(second).unwrap(), "STRLEN a"), ":1");
    program.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let mut program = program;
    assert!(program.0.wait().unwrap().success());
}

#[test]
fn the_pools_of_twemproxys_file_are_served() {
    if !has_redis() {
        return;
    }
    let ((_one, first), (_other, second)) = (redis(), redis());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nutcracker.yml");
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (alpha, beta) = (free(), free());
    let text = format!(
        "alpha:\n  listen: {alpha}\n  redis: true\n  preconnect: true\n  servers:\n   - {first}:1 one\n   - {second}:1 two\n\
         beta:\n  listen: {beta}\n  redis: true\n  redis_auth: secret\n  servers:\n   - {first}:1\n"
    );
    std::fs::write(&file, text).unwrap();
    let (_program, said) = proxy(&["--nutcracker", file.to_str().unwrap()], 2);
    assert_eq!(said, [format!("listening on {alpha}"), format!("listening on {beta}")]);
    assert_eq!(ask(&mut TcpStream::connect(alpha).unwrap(), "MSET a 1 b 2 c 3 d 4"), "+OK");
    assert_eq!(ask(&mut TcpStream::connect(beta).unwrap(), "GET a"), "-NOAUTH Authentication required.");
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    for (arguments, mistake) in [
        (&["--nodes", "nothing"][..], "\"nothing\" is no HOST:PORT"),
        (&["--nutcracker", "/nonexistent"], "cannot read /nonexistent"),
        (&["--nodes", "127.0.0.1:1", "--hash", "ketama", "--hash-function", "none"], "it is none of one_at_a_time"),
        (&["--nodes", "127.0.0.1:1", "--eject-after", "2"], "--eject-after needs --hash ketama, modula or random"),
        (&["--nodes", "127.0.0.1:1", "--read-replicas"], "--read-replicas: only a cluster has known replicas"),
        (&["--nodes", "127.0.0.1:1", "--tls-client-ca", "f"], "--tls-cert"),
        (&["--nodes", "127.0.0.1:1", "--node-tls-cert", "f"], "--node-tls-key"),
        (&[], "--nodes"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_sapsan")).arg("proxy").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(mistake), "{arguments:?}: {text}");
    }
}

/// 50 clients, each with 10,000 GETs of 1 KB that it reads slowly, and one large value: the kernel's count stays below the bound.
#[test]
fn deep_pipelines_that_are_read_slowly_take_bounded_memory() {
    if !has_redis() {
        return;
    }
    const DEPTH: usize = 10_000;
    let _place = Place::take();
    let nodes: Vec<_> = (0..4).map(|_| redis()).collect();
    let names: Vec<String> = nodes.iter().map(|(_, address)| address.to_string()).collect();
    let (program, said) = proxy(&["--listen", "127.0.0.1:0", "--nodes", &names.join(",")], 1);
    let address = address_in(&said[0]);
    let mut stream = TcpStream::connect(address).unwrap();
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    for key in &keys {
        assert_eq!(ask(&mut stream, &format!("SET {key} {}", "x".repeat(1000))), "+OK");
    }
    assert_eq!(ask(&mut stream, "SETRANGE large 200000000 x"), ":200000001");
    let mut threads: Vec<_> = (0..50)
        .map(|_| {
            let requests: Vec<u8> = keys.iter().flat_map(|key| format!("GET {key}\r\n").into_bytes()).collect();
            std::thread::spawn(move || read_slowly(address, requests.repeat(DEPTH / 8), DEPTH * 1009))
        })
        .collect();
    threads.push(std::thread::spawn(move || read_slowly(address, b"GET large\r\n".to_vec(), 200_000_001)));
    let mut most = 0;
    while threads.iter().any(|thread| !thread.is_finished()) {
        most = most.max(program.resident_bytes());
        std::thread::sleep(Duration::from_millis(5));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(most < MEMORY_BYTES_MAX, "{most} bytes");
}

fn read_slowly(address: SocketAddr, requests: Vec<u8>, mut left: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || writing.write_all(&requests).unwrap());
    let mut bytes = vec![0; 256 << 10];
    while left > 0 {
        let taken = stream.read(&mut bytes).unwrap();
        assert!(taken > 0, "{left} bytes are missing");
        left = left.saturating_sub(taken);
        std::thread::sleep(Duration::from_millis(2));
    }
    writer.join().unwrap();
}
