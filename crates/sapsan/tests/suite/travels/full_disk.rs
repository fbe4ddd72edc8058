//! The real binary on a file system that gets full: told by health, reads go on, and so do writes when there is room.

use super::client::Client;
use super::process::{Server, sapsan, travels_toml};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the server may take to notice. It looks ten times a second; the rest is the machine's.
const PATIENCE: Duration = Duration::from_secs(20);
/// Size of the file system: a log of a few segments, and some data.
const SIZE: &str = "size=160m";

/// A file system in memory, gone with this value.
struct Mount {
    folder: tempfile::TempDir,
}

impl Mount {
    fn new() -> Option<Mount> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", SIZE, "none"]).arg(folder.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(Mount { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

fn body(id: u32) -> String {
    format!(r#"{{"id":{id},"place":"{}","country":"c","city":"t","distance":1}}"#, "p".repeat(5000))
}

/// Creates locations until ten were refused in a row; the ones that were not.
fn fill(client: &mut Client, next: &mut u32) -> Vec<u32> {
    let (mut done, mut refused) = (Vec::new(), 0);
    while refused < 10 {
        *next += 1;
        match client.request("POST", "/locations/new", Some(body(*next).as_bytes())).status {
            200 => {
                done.push(*next);
                refused = 0;
            }
            503 => refused += 1,
            other => panic!("location {next}: {other}"),
        }
        assert!(*next < 200_000, "never full");
    }
    done
}

#[track_caller]
fn check_there(client: &mut Client, ids: &[u32]) {
    for id in ids.iter().step_by(17).chain(ids.last()) {
        assert_eq!(client.request("GET", &format!("/locations/{id}"), None).status, 200, "location {id}");
    }
}

#[track_caller]
fn check_health(client: &mut Client, expected: u16) {
    let began = Instant::now();
    loop {
        let answer = client.request("GET", "/_/health", None);
        if answer.status == expected {
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(expected == 200 || told.contains("disk is full"), "{told}");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "health says {}", answer.status);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_full_file_system_is_told_by_health_and_writes_go_on_when_there_is_room() {
    let Some(mount) = Mount::new() else {
        // Past libtest, which keeps what a passing test prints: `cargo xtask test` counts this line.
        let line = "\nSKIPPED: a file system cannot be mounted here\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    };
    let data = mount.path().join("data");
    let server = Server::start(&data, 0);
    let mut client = Client::new(server.address);
    check_health(&mut client, 200);
    std::fs::write(mount.path().join("filler"), vec![1; 40 << 20]).expect("room for the filler");
    let mut next = 0;
    let mut done = fill(&mut client, &mut next);
    check_health(&mut client, 503);
    check_there(&mut client, &done);
    // A start on the full disk, after a kill.
    drop(client);
    server.kill();
    let server = Server::start(&data, 0);
    let mut client = Client::new(server.address);
    check_there(&mut client, &done);
    done.extend(fill(&mut client, &mut next));
    check_health(&mut client, 503);
    std::fs::remove_file(mount.path().join("filler")).expect("the filler goes");
    check_health(&mut client, 200);
    next += 1;
    assert_eq!(client.request("POST", "/locations/new", Some(body(next).as_bytes())).status, 200);
    done.push(next);
    check_there(&mut client, &done);
    server.stop();
    let verified = sapsan(&["verify"]).arg(&data).arg("--config").arg(travels_toml()).output().expect("it starts");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
}

#[test]
fn views_that_cannot_be_verified_on_a_full_file_system_say_what_to_do() {
    let Some(mount) = Mount::new() else {
        let line = "\nSKIPPED: a file system cannot be mounted here\n";
        std::io::Write::write_all(&mut std::io::stdout(), line.as_bytes()).expect("a standard output");
        return;
    };
    let (data, config, lines) =
        (mount.path().join("data"), mount.path().join("c.toml"), mount.path().join("items.ndjson"));
    let text = "[server]\nmemory = \"48MB\"\n[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n[collections.items.schema]\n\
                properties = { id = { type = \"integer\" }, name = { type = \"string\" } }\n\
                [views.names]\nquery = \"SELECT name, COUNT(*) AS n FROM items GROUP BY name\"\n";
    std::fs::write(&config, text).expect("room");
    // More groups than a verification keeps in memory.
    let all: String = (0..60_000).map(|id| format!("{{\"id\":{id},\"name\":\"{id:0>80}\"}}\n")).collect();
    std::fs::write(&lines, all).expect("room");
    let run = |arguments: &[&str]| {
        let mut command = sapsan(arguments);
        command.arg(&data).arg("--config").arg(&config).output().expect("it starts")
    };
    let mut import = sapsan(&["import", "--collection", "items"]);
    let imported = import.arg(&config).arg("--data").arg(&data).arg(&lines).output().expect("it starts");
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    std::fs::remove_file(&lines).expect("it is there");
    let clean = run(&["verify", "--views"]);
    assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stderr));
    // Until nothing fits any more.
    let filler = std::fs::File::create(mount.path().join("filler")).expect("a file");
    while std::io::Write::write(&mut &filler, &[1; 4096]).is_ok_and(|written| written > 0) {}
    let full = run(&["verify", "--views"]);
    let told = String::from_utf8_lossy(&full.stderr).into_owned();
    assert!(!full.status.success() && told.contains("disk full") && told.contains("sapsan restore"), "{told}");
}
