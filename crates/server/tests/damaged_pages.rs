//! A data file with damaged pages: every answer is correct or an error, through any endpoint; no acknowledged write was computed
//! from damaged data; and health reports the damage.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

use crate::harness::{Answer, COLLECTIONS, Client};
use serde_json::{Value, json};
use server::RunningServer;
use server::config::ServiceConfig;
use std::os::unix::fs::FileExt;
use std::path::Path;

const ITEMS: u32 = 1500;
/// Items that are requested of a damaged file.
const ASKED: u32 = 60;
const DAMAGES: u32 = 20;
const PAGE: usize = 4096;

const ENDPOINTS: &str = r#"
[[endpoints]]
route = "GET /groups/{group}"
params = { group = { type = "string" } }
query = "SELECT id, price, note FROM items WHERE \"group\" = :group ORDER BY id"
"#;

fn config(folder: &Path) -> ServiceConfig {
    let path = folder.join("service.toml");
    let server =
        format!("http = \"127.0.0.1:0\"\nthreads = 1\ndurability = \"none\"\nbackups = {:?}", folder.join("b"));
    let indexed =
        COLLECTIONS.replacen("[collections.items.schema]", "indexes = [[\"group\"]]\n[collections.items.schema]", 1);
    std::fs::write(&path, format!("{indexed}\n[server]\n{server}\n{ENDPOINTS}")).unwrap();
    ServiceConfig::load(&path, &[]).unwrap()
}

fn start(folder: &Path) -> RunningServer {
    server::start(&config(folder), &folder.join("data")).unwrap_or_else(|error| panic!("{error}"))
}

fn stop(running: RunningServer) {
    running.drain();
    running.join().unwrap();
}

fn ask(client: &mut Client, method: &str, target: &str, body: &str) -> Answer {
    client.send(method, target, "", body.as_bytes());
    client.answer(false)
}

/// Every fifteenth item has pages of its own.
fn item(id: u32) -> Value {
    let note = format!("{id} ").repeat(if id.is_multiple_of(15) { 1500 } else { 40 });
    json!({ "id": id, "group": format!("g{}", id % 7), "price": id * 10, "note": note })
}

/// A folder whose items are all in the data file.
fn fill(folder: &Path) {
    let running = start(folder);
    let mut client = Client::new(running.address());
    let lines: String = (0..ITEMS).map(|id| format!("{}\n", item(id))).collect();
    let answer = ask(&mut client, "POST", "/_/collections/items/bulk", &lines);
    assert_eq!(answer.status, 200, "{}", answer.text());
    stop(running);
    let (store, _) = docs::engine::Store::open(&folder.join("data"), docs::engine::StoreOptions::default()).unwrap();
    store.checkpoint().unwrap();
}

/// The files before the damage.
struct Files {
    folder: std::path::PathBuf,
    files: Vec<(std::path::PathBuf, Vec<u8>)>,
}

impl Files {
    fn of(folder: &Path) -> Files {
        let names = std::fs::read_dir(folder.join("data")).unwrap().map(|entry| entry.unwrap().path());
        let files = names.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
        Files { folder: folder.join("data"), files }
    }

    fn tree(&self) -> &[u8] {
        &self.files.iter().find(|(path, _)| path.ends_with("tree")).unwrap().1
    }

    fn restore(&self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
        std::fs::create_dir(&self.folder).unwrap();
        self.files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    }

    /// Leaves, branches and the first pages of long values.
    fn of_kind(&self, kind: u8) -> Vec<usize> {
        let tree = self.tree();
        let is_of_kind = |page: &usize| {
            let bytes = &tree[page * PAGE..(page + 1) * PAGE];
            bytes[8] == kind && bytes[4..8] == (*page as u32).to_le_bytes()
        };
        (2..tree.len() / PAGE).filter(is_of_kind).collect()
    }
}

/// Bytes whose change leaves the page plausible: digits of numbers and of texts, parts of keys, positions of children.
fn damage(folder: &Path, files: &Files, number: u32) -> String {
    let spread = |by: u32| (number + 1).wrapping_mul(by) as usize;
    let kind = [1, 2, 3][number as usize % 3];
    let pages = files.of_kind(kind);
    let page = pages[spread(2_654_435_761) % pages.len()];
    let at = page * PAGE + 24 + spread(40_503) % (PAGE - 64);
    let tree = files.tree();
    let file = std::fs::OpenOptions::new().write(true).open(folder.join("data/tree")).unwrap();
    match number % 4 {
        // A digit becomes another one; in any other byte one bit changes.
        0 | 1 => {
            let digit = (at..(page + 1) * PAGE).find(|at| tree[*at].is_ascii_digit()).unwrap_or(at);
            file.write_all_at(&[tree[digit] ^ 1], digit as u64).unwrap();
        }
        2 => file.write_all_at(&[0; 32], at as u64).unwrap(),
        _ => {
            let other = pages[spread(97) % pages.len()];
            let body = &tree[other * PAGE + 24..(other + 1) * PAGE];
            file.write_all_at(body, (page * PAGE + 24) as u64).unwrap();
        }
    }
    format!("damage {number}, of page {page} of kind {kind}")
}

/// Checks that an answer is correct or a server error; returns whether it is correct.
#[track_caller]
fn is_right(answer: &Answer, expected: &Value, what: &str) -> bool {
    match answer.status {
        200 => assert!(answer.json() == *expected, "{what}: {}", answer.text()),
        status => assert!(matches!(status, 500 | 503), "{what}: {status} {}", answer.text()),
    }
    answer.status == 200
}

/// Makes requests of every kind; returns how many answers were errors.
#[track_caller]
fn check(client: &mut Client, what: &str, number: u32) -> u32 {
    let mut failed = 0;
    let asked = (0..ASKED).map(|at| (at * 37 + number * 11) % ITEMS);
    for id in asked.clone() {
        let answer = ask(client, "GET", &format!("/_/collections/items/{id}"), "");
        failed += u32::from(!is_right(&answer, &item(id), what));
    }
    for start in (0..ITEMS).step_by(300) {
        let after = if start == 0 { String::new() } else { format!("&after={}", start - 1) };
        let answer = ask(client, "GET", &format!("/_/collections/items?limit=300{after}"), "");
        let items: Vec<Value> = (start..start + 300).map(item).collect();
        if answer.status == 200 {
            assert!(answer.json()["items"] == json!(items), "{what}: a wrong list");
        } else {
            assert!(matches!(answer.status, 500 | 503), "{what}: {}", answer.text());
            failed += 1;
        }
    }
    for group in 0..7 {
        let answer = ask(client, "GET", &format!("/groups/g{group}"), "");
        let rows: Vec<Value> = (0..ITEMS).filter(|id| id % 7 == group).map(item).collect();
        let row = |row: &Value| json!({ "id": row["id"], "price": row["price"], "note": row["note"] });
        failed += u32::from(!is_right(&answer, &json!(rows.iter().map(row).collect::<Vec<_>>()), what));
    }
    let sum = ask(
        client,
        "POST",
        "/_/query",
        &json!({ "sql": "SELECT SUM(price) AS s, COUNT(*) AS n FROM items" }).to_string(),
    );
    let expected: u64 = (0..u64::from(ITEMS)).map(|id| id * 10).sum();
    failed += u32::from(!is_right(&sum, &json!([{ "s": expected, "n": ITEMS }]), what));
    // An acknowledged document is the old one with this change, and nothing else.
    for id in asked.step_by(5) {
        let target = format!("/_/collections/items/{id}");
        let answer = ask(client, "PATCH", &target, "{\"price\":7}");
        if answer.status != 200 {
            assert!(matches!(answer.status, 500 | 503), "{what}: {}", answer.text());
            failed += 1;
            continue;
        }
        let mut patched = item(id);
        patched["price"] = json!(7);
        let answer = ask(client, "GET", &target, "");
        assert!(answer.status == 200 && answer.json() == patched, "{what}: acknowledged {}", answer.text());
    }
    failed
}

#[test]
fn an_answer_from_damaged_pages_is_right_or_an_error_and_health_tells() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let files = Files::of(folder.path());
    let mut told = 0;
    for number in 0..DAMAGES {
        let what = damage(folder.path(), &files, number);
        // If the start needs a damaged page, it fails.
        if let Ok(running) = server::start(&config(folder.path()), &folder.path().join("data")) {
            let mut client = Client::new(running.address());
            let failed = check(&mut client, &what, number);
            let health = ask(&mut client, "GET", "/_/health", "");
            assert_eq!(health.status, 200, "{what}: {}", health.text());
            let is_told = health.json()["status"] == "damaged";
            assert!(is_told || failed == 0, "{what}: {failed} errors, and health says {}", health.text());
            assert_eq!(is_told, health.json()["damage"].as_str().is_some_and(|damage| damage.contains("tree at byte")));
            told += u32::from(is_told);
            drop(client);
            stop(running);
        }
        files.restore();
    }
    assert!(told > DAMAGES / 2, "{told} damages were met");
}

#[test]
fn writes_that_a_damaged_page_stops_are_refused_with_the_reason_and_health_says_so() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path());
    let files = Files::of(folder.path());
    let running = start(folder.path());
    let mut client = Client::new(running.address());
    assert_eq!(ask(&mut client, "PATCH", "/_/collections/items/701", "{\"price\":7}").status, 200);
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("data/tree")).unwrap();
    let note = "701 701 701".as_bytes();
    let tree = files.tree();
    let is_it = |page: &usize| tree[page * PAGE..(page + 1) * PAGE].windows(note.len()).any(|bytes| bytes == note);
    for page in files.of_kind(1).into_iter().filter(is_it) {
        file.write_all_at(&[!tree[page * PAGE + 2000]], (page * PAGE + 2000) as u64).unwrap();
    }
    // A backup begins with a checkpoint, which must rewrite that page.
    let backup = ask(&mut client, "POST", "/_/backup", "{\"to\":\"a\"}");
    assert_eq!(backup.status, 500, "{}", backup.text());
    let health = ask(&mut client, "GET", "/_/health", "");
    assert_eq!(health.status, 503, "{}", health.text());
    let refused = ask(&mut client, "PATCH", "/_/collections/items/3", "{\"price\":8}");
    assert_eq!(refused.status, 503, "{}", refused.text());
    for answer in [health, refused] {
        assert!(
            answer.text().contains("tree at byte") && answer.text().contains("no writes are taken"),
            "{}",
            answer.text()
        );
    }
    // Acknowledged writes are there, and so is everything else.
    assert_eq!(ask(&mut client, "GET", "/_/collections/items/701", "").json()["price"], 7);
    assert_eq!(ask(&mut client, "GET", "/_/collections/items/3", "").json(), item(3));
    client.send("GET", "/_/metrics", "", b"");
    assert!(client.answer(false).text().contains("\nsapsan_store_stopped_by_damage 1\n"));
    drop(client);
    stop(running);
}
