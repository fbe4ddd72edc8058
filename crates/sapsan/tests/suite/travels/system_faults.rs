//! The real binary where the system fails under it: a disk that gives errors, and an event loop that cannot go on. The faults come from a
//! library that is loaded into it (`faults/faults.c`); without a C compiler these tests are skipped, and say so.

use super::client::Client;
use super::process::{Server, serve, travels_toml};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the server may take to notice.
const PATIENCE: Duration = Duration::from_secs(20);

/// The library, and the folder in which a file begins a fault.
struct Faults {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Faults {
    /// None where it cannot be compiled.
    fn new() -> Option<Faults> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/travels/faults/faults.c");
        let library = folder.path().join("faults.so");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .args(["-ldl", "-lpthread"])
            .output();
        if compiled.is_ok_and(|output| output.status.success()) {
            return Some(Faults { folder, library });
        }
        // Past libtest, which keeps what a passing test prints: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: no C compiler makes a library of faults here\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        None
    }

    /// A server that the faults are for.
    fn serve(&self, data: &Path) -> Server {
        let mut command = serve(&travels_toml(), data, 0);
        Server::of(command.env("LD_PRELOAD", &self.library).env("SAPSAN_FAULTS", self.folder.path()))
    }

    fn begin(&self, fault: &str) {
        std::fs::write(self.folder.path().join(fault), "").expect("a file");
    }
}

fn create(client: &mut Client, id: u32) -> u16 {
    let body = format!(r#"{{"id":{id},"place":"p","country":"c","city":"t","distance":1}}"#);
    client.request("POST", "/locations/new", Some(body.as_bytes())).status
}

#[track_caller]
fn check_there(client: &mut Client, ids: std::ops::Range<u32>) {
    for id in ids {
        assert_eq!(client.request("GET", &format!("/locations/{id}"), None).status, 200, "location {id}");
    }
}

#[test]
fn a_server_whose_disk_fails_takes_no_writes_and_its_health_says_so_until_it_is_started_again() {
    let Some(faults) = Faults::new() else { return };
    let data = tempfile::tempdir().expect("a temporary folder");
    let server = faults.serve(data.path());
    let mut client = Client::new(server.address);
    assert!((1..50).all(|id| create(&mut client, id) == 200));
    assert_eq!(client.request("GET", "/_/health", None).status, 200);
    faults.begin("disk");
    assert_eq!(create(&mut client, 50), 503, "nobody knows what is on the disk");
    let health = client.request("GET", "/_/health", None);
    let told = String::from_utf8_lossy(&health.body).into_owned();
    assert!(health.status == 503 && told.contains("no writes") && told.contains("failed"), "{}: {told}", health.status);
    assert_eq!(create(&mut client, 51), 503);
    check_there(&mut client, 1..50);
    drop(client);
    server.kill();
    let server = Server::start(data.path(), 0);
    let mut client = Client::new(server.address);
    assert_eq!(client.request("GET", "/_/health", None).status, 200);
    check_there(&mut client, 1..50);
    assert_eq!(client.request("GET", "/locations/51", None).status, 404, "it was refused");
    server.stop();
}

#[test]
fn a_server_that_loses_an_event_loop_ends_with_status_70_and_keeps_what_it_acknowledged() {
    let Some(faults) = Faults::new() else { return };
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut server = faults.serve(data.path());
    let mut client = Client::new(server.address);
    assert!((1..50).all(|id| create(&mut client, id) == 200));
    faults.begin("loop");
    // Wakes a loop, whose next wait fails.
    let began = Instant::now();
    let status = loop {
        let _ = std::net::TcpStream::connect(server.address);
        match server.ended() {
            Some(status) => break status,
            None => assert!(began.elapsed() < PATIENCE, "it goes on without a loop"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(70), "{status}");
    let server = Server::start(data.path(), 0);
    check_there(&mut Client::new(server.address), 1..50);
    server.stop();
}
