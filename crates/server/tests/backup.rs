//! `POST /_/backup`: names stay inside the folder, one backup at a time, and the answer comes when the copy is complete.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

use crate::harness::TestServer;
use serde_json::json;

fn start(folder: &tempfile::TempDir) -> TestServer {
    TestServer::start(&format!("backups = {:?}", folder.path().join("b")), "")
}

#[test]
fn a_backup_is_whole_when_it_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    server.put_items(0..5000);
    assert_eq!(server.get("/_/backup").json(), json!({ "running": false }));
    let answer = server.ask("POST", "/_/backup", "", br#"{"to":"monday.1"}"#);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let to = folder.path().join("b/monday.1");
    assert_eq!(answer.json()["to"], json!(to));
    assert!(answer.json()["entries"].as_u64().unwrap() >= 5000);
    let (copy, _) = docs::engine::Store::open(&to, docs::engine::StoreOptions::default()).unwrap();
    assert!(copy.verify().is_clean());
    let entries: u64 = copy.verify().trees.iter().map(|tree| tree.info.entries).sum();
    assert_eq!(answer.json()["entries"], json!(entries));
}

#[test]
fn a_name_never_leaves_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    for name in ["", ".", "..", "../c", "a/b", "/tmp/x", ".hidden", "a\u{0}b", "ä", &"n".repeat(101)] {
        let answer = server.ask("POST", "/_/backup", "", json!({ "to": name }).to_string().as_bytes());
        assert_eq!(answer.status, 400, "{name}: {}", answer.text());
    }
    for body in ["", "[]", "{}", "{\"to\":1}", "{\"to\":\"a\",\"at\":2}"] {
        assert_eq!(server.ask("POST", "/_/backup", "", body.as_bytes()).status, 400, "{body}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_second_backup_waits_for_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(&folder);
    server.put_items(0..40_000);
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send("POST", "/_/backup", "", json!({ "to": format!("n{number}") }).to_string().as_bytes());
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.answer(false).status).collect();
    let count = |status| statuses.iter().filter(|known| **known == status).count();
    assert!(count(200) > 0 && count(409) > 0 && count(200) + count(409) == 8, "{statuses:?}");
    // The next backup may begin.
    assert_eq!(server.ask("POST", "/_/backup", "", br#"{"to":"last"}"#).status, 200);
    assert_eq!(server.ask("POST", "/_/backup", "", br#"{"to":"last"}"#).status, 409);
}
