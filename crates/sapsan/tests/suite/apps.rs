//! The example services that come with a script of their own: the script runs through all of the service and fails at a wrong answer.
//!
//! The scripts need Python 3 and nothing else. Where there is no `python3` a test is skipped and says so. Where Chromium is
//! installed the tracker's script uses its page in the browser, too.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Matches that the leaderboard's script imports here: a tenth of what it does by itself.
const MATCHES: &str = "1000";
/// Origin of the tracker's page, as its file has it.
const PAGE_PORT: &str = "8001";

fn app(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../apps").join(name)
}

fn has_python() -> bool {
    if Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    // Past libtest, which keeps what a passing test prints: `cargo xtask test` counts this line.
    std::io::stdout().write_all(b"\nSKIPPED: there is no python3\n").expect("a standard output");
    false
}

/// Runs a script; what it says is shown where it fails.
#[track_caller]
fn run(script: &Path, arguments: &[&str]) {
    let output = Command::new("python3").arg("-B").arg(script).args(arguments).output().expect("python3 starts");
    let told = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(output.status.success(), "{}: {}", script.display(), String::from_utf8_lossy(&told));
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// A server, ended with the test.
struct Server(Child);

impl Server {
    /// Returns when it listens; its port.
    fn start(file: &Path, data: &Path) -> (Server, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sapsan"))
            .arg("serve")
            .arg(file)
            .arg("--data")
            .arg(data)
            .args(["--http", "127.0.0.1:0", "--log", "warn"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let port = line.trim().rsplit_once(':').expect("an address").1.to_owned();
        (Server(child), port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_leaderboard_gives_right_answers() {
    if has_python() {
        run(&app("leaderboard/check.py"), &[env!("CARGO_BIN_EXE_sapsan"), MATCHES]);
    }
}

#[test]
fn the_tracker_gives_right_answers() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let page_port = free_port().to_string();
    let text = std::fs::read_to_string(app("tracker/tracker.toml")).expect("the tracker's file");
    let file = folder.path().join("tracker.toml");
    std::fs::write(&file, text.replace(PAGE_PORT, &page_port)).expect("a file");
    let (_server, port) = Server::start(&file, &folder.path().join("data"));
    run(&app("tracker/check.py"), &["--port", &port, "--page-port", &page_port]);
}
