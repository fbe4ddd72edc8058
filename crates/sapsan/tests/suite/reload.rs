//! SIGHUP has the real binary read its file again.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const ENDPOINT: &str =
    "[[endpoints]]\nroute = \"GET /count\"\nquery = \"SELECT COUNT(*) AS n FROM items\"\nresult = \"row\"\n";
const SERVER: &str = "[server]\nhttp = \"127.0.0.1:0\"\nthreads = 2\n";
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Killed when the test is over.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn signal(process: &Process, name: &str) {
    let sent = Command::new("kill").args([name, &process.0.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

fn count(address: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(b"GET /count HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn sighup_has_the_file_read_again_and_sigterm_still_ends_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("service.toml");
    std::fs::write(&file, format!("{ITEMS}{SERVER}")).expect("written");
    let started = Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .current_dir(folder.path())
        .args(["serve", "service.toml", "--data", "d"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut process = Process(started.expect("the binary runs"));
    let mut lines = BufReader::new(process.0.stdout.take().expect("its output")).lines();
    let line = lines.next().and_then(Result::ok).expect("it says where it listens");
    let address = line.strip_prefix("listening on http://").expect("an address");
    assert!(count(address).starts_with("HTTP/1.1 404"));
    // With a mistake: nothing changes, and it goes on.
    std::fs::write(&file, "[collections").expect("written");
    signal(&process, "-HUP");
    // A service that began with none grows to many without a restart.
    let endpoint = |n: u32| {
        format!(
            "[[endpoints]]\nroute = \"GET /sums/{n}\"\nquery = \"SELECT SUM(a{n}) AS s FROM items WHERE b = {n}\"\n"
        )
    };
    let many: String = (0..120).map(endpoint).collect();
    std::fs::write(&file, format!("{ITEMS}{ENDPOINT}{many}{SERVER}")).expect("written");
    signal(&process, "-HUP");
    let until = Instant::now() + PATIENCE;
    while !count(address).ends_with("{\"n\":0}") {
        assert!(Instant::now() < until, "it does not read the file");
        std::thread::sleep(Duration::from_millis(20));
    }
    signal(&process, "-TERM");
    assert!(process.0.wait().expect("it ends").success());
}

#[test]
fn sighup_drops_nothing_and_the_log_says_what_it_would_drop() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("service.toml");
    std::fs::write(&file, format!("{ITEMS}indexes = [[\"g\"]]\n{SERVER}")).expect("written");
    let started = Command::new(env!("CARGO_BIN_EXE_sapsan"))
        .current_dir(folder.path())
        .args(["serve", "service.toml", "--data", "d"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut process = Process(started.expect("the binary runs"));
    let mut lines = BufReader::new(process.0.stdout.take().expect("its output")).lines();
    let line = lines.next().and_then(Result::ok).expect("it says where it listens");
    let address = line.strip_prefix("listening on http://").expect("an address");
    std::fs::write(&file, format!("{ITEMS}{ENDPOINT}{SERVER}")).expect("written");
    signal(&process, "-HUP");
    let mut log = BufReader::new(process.0.stderr.take().expect("its log")).lines().map_while(Result::ok);
    let told = log.find(|line| line.contains("not reloaded")).expect("a line of the log");
    assert!(told.contains("This would be dropped: the index items(g)"), "{told}");
    assert!(count(address).starts_with("HTTP/1.1 404"));
    signal(&process, "-TERM");
    assert!(process.0.wait().expect("it ends").success());
}
