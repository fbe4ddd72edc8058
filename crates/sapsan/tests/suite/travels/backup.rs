//! Backups of the running server, restored and served again; and the commands killed at any moment.

use super::client::{Client, request_bytes};
use super::process::{Server, sapsan};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rounds of a kill each; and the time in which no further one is begun.
const KILLS: u32 = 12;
const BUDGET: Duration = Duration::from_secs(15);

fn run(arguments: &[&str]) -> Output {
    sapsan(arguments).output().expect("the sapsan binary starts")
}

#[track_caller]
fn check_done(arguments: &[&str]) -> String {
    let output = run(arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn check_refused(arguments: &[&str], reason: &str) {
    let output = run(arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains(reason), "{arguments:?}: {told}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn serve(data: &Path, backups: &Path) -> Server {
    Server::start_with(data, 0, &["--backups", text(backups)])
}

/// A user: the document, and beside it the entry of its unique email.
fn user(id: u32) -> String {
    format!(
        r#"{{"id":{id},"email":"{id}@x","first_name":"{}","last_name":"B","gender":"m","birth_date":1}}"#,
        "п".repeat(20)
    )
}

/// Adds users until told to stop, or the server ends; notes each that was acknowledged.
fn write(address: SocketAddr, first: u32, acknowledged: &Mutex<Vec<u32>>, is_over: &AtomicBool) {
    let mut client = Client::new(address);
    for id in first.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let request = request_bytes("POST", "/users/new", Some(user(id).as_bytes()));
        match client.send(&request).and_then(|()| client.receive()) {
            Ok(answer) => assert_eq!(answer.status, 200),
            Err(_) => return,
        }
        acknowledged.lock().expect("no writer panicked").push(id);
    }
}

/// Ends the writers, also where an assertion fails.
struct SetAtEnd<'f>(&'f AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
fn check_users(data: &Path, ids: &[u32]) {
    let config = super::process::travels_toml();
    check_done(&["verify", text(data), "--config", text(&config)]);
    let server = Server::start(data, 0);
    let mut client = Client::new(server.address);
    for id in ids {
        let answer = client.request("GET", &format!("/users/{id}"), None);
        let found: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let expected: Value = serde_json::from_str(&user(*id)).expect("made as JSON");
        assert_eq!((answer.status, found), (200, expected), "user {id} was acknowledged before the backup");
    }
    server.stop();
}

#[test]
fn a_backup_beside_writers_restores_all_that_was_acknowledged_before_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, backups) = (folder.path().join("data"), folder.path().join("backups"));
    let server = serve(&data, &backups);
    let url = format!("http://{}", server.address);
    let (acknowledged, is_over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let count = || acknowledged.lock().expect("no writer panicked").len();
    let before = std::thread::scope(|scope| {
        let _end = SetAtEnd(&is_over);
        for writer in 1..=4 {
            let (acknowledged, is_over, address) = (&acknowledged, &is_over, server.address);
            scope.spawn(move || write(address, writer * 1_000_000, acknowledged, is_over));
        }
        while count() < 2000 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let before = acknowledged.lock().expect("no writer panicked").clone();
        let told = check_done(&["backup", &url, "first"]);
        assert!(told.contains(text(&backups.join("first"))), "{told}");
        check_refused(&["backup", &url, "first"], "the folder is not empty");
        check_refused(&["backup", &url, "../data"], "is no name of a backup");
        check_refused(
            &["backup", text(&data), text(&backups.join("second"))],
            "another process has it open. If that is a server, name its address",
        );
        before
    });
    assert!(count() > before.len());
    server.stop();
    let restored = folder.path().join("restored");
    check_done(&["restore", text(&backups.join("first")), text(&restored)]);
    check_refused(&["restore", text(&backups.join("first")), text(&restored)], "the folder is not empty");
    check_refused(&["restore", text(&backups), text(&restored)], "is no backup");
    check_users(&restored, &before);
    // Of a folder that nobody has open, without a server; and written anew in place, where that is smaller.
    let all = acknowledged.into_inner().expect("no writer panicked");
    check_done(&["backup", text(&data), text(&backups.join("second"))]);
    check_users(&backups.join("second"), &all);
    let told = check_done(&["compact", text(&data)]);
    assert!(told.contains("bytes became") || told.contains("stays: written anew"), "{told}");
    check_users(&data, &all);
}

#[test]
fn a_server_without_a_folder_for_backups_makes_none() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(data.path(), 0);
    let mut client = Client::new(server.address);
    let answer = client.request("POST", "/_/backup", Some(br#"{"to":"a"}"#));
    assert_eq!(answer.status, 403);
    assert!(String::from_utf8_lossy(&answer.body).contains("--backups DIR"));
    check_refused(&["backup", &format!("http://{}", server.address), "a"], "no folder for backups is set");
}

/// Fills a data folder with enough that a copy takes a while.
fn filled(folder: &Path, documents: u32) -> std::path::PathBuf {
    let lines: String = (1..=documents).map(|id| user(id) + "\n").collect();
    let file = folder.join("users.ndjson");
    std::fs::write(&file, lines).expect("a file");
    let (data, config) = (folder.join("data"), super::process::travels_toml());
    check_done(&["import", text(&config), "--data", text(&data), text(&file), "--collection", "users"]);
    data
}

#[test]
fn a_server_that_is_killed_in_a_backup_leaves_a_whole_one_or_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = filled(folder.path(), 20_000);
    let backups = folder.path().join("backups");
    let started = Instant::now();
    for round in 0..KILLS {
        if started.elapsed() > BUDGET {
            break;
        }
        let server = serve(&data, &backups);
        let mut client = Client::new(server.address);
        let body = json!({ "to": "b" }).to_string();
        client.send(&request_bytes("POST", "/_/backup", Some(body.as_bytes()))).expect("the request is sent");
        std::thread::sleep(Duration::from_millis(u64::from(round) * 6));
        server.kill();
        let to = backups.join("b");
        if docs::engine::Store::is_in(&to) {
            check_done(&["verify", text(&to)]);
            std::fs::remove_dir_all(&to).expect("the backup is removed");
        } else {
            // What it left has another name, and the next round takes its place.
            assert!(!to.exists());
        }
    }
    let server = serve(&data, &backups);
    if backups.join("b").join("tree").exists() {
        std::fs::remove_dir_all(backups.join("b")).expect("the backup is removed");
    }
    check_done(&["backup", &format!("http://{}", server.address), "b"]);
    server.stop();
    check_users(&backups.join("b"), &[1, 7, 19_999]);
}

#[test]
fn a_compaction_or_restore_that_is_killed_leaves_the_old_or_the_new() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = filled(folder.path(), 20_000);
    let restored = folder.path().join("restored");
    let started = Instant::now();
    for round in 0..2 * KILLS {
        if started.elapsed() > BUDGET {
            break;
        }
        let arguments =
            if round % 2 == 0 { vec!["compact", text(&data)] } else { vec!["restore", text(&data), text(&restored)] };
        let mut child = sapsan(&arguments).stdout(Stdio::null()).spawn().expect("the sapsan binary starts");
        std::thread::sleep(Duration::from_millis(u64::from(round) * 4));
        child.kill().expect("the child can be killed");
        child.wait().expect("the child can be waited for");
        check_done(&["verify", text(&data)]);
        if docs::engine::Store::is_in(&restored) {
            check_done(&["verify", text(&restored)]);
            std::fs::remove_dir_all(&restored).expect("the folder is removed");
        } else {
            assert!(!restored.exists());
        }
    }
    check_users(&data, &[1, 7, 19_999]);
}
