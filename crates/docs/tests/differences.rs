//! Before a folder is opened with a configuration, the differences that the opening would apply are reported, completely and
//! exactly.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use docs::config::Config;
use docs::engine::{Store, StoreOptions};
use docs::{DIFFERENCES_MAX, Differences, DocumentDatabase};
use tempfile::TempDir;

use crate::service::config;

const USERS: &str = "[collections.users]\nkey = { field = \"id\", type = \"u32\" }\n";
const VISITS: &str = "[collections.visits]\nkey = { field = \"id\", type = \"u32\" }\n";
const REFERRING: &str =
    "[collections.visits]\nkey = { field = \"id\", type = \"u32\" }\nreferences = { user = \"users\" }\n";
const COUNT: &str = "[views.count]\nquery = \"SELECT COUNT(*) AS n FROM users\"\n";
const COUNT_NAMES: &str = "[views.count]\nquery = \"SELECT COUNT(name) AS n FROM users\"\n";

/// Parts of a configuration, and the differences reported when a folder made with one is opened without it, and vice versa.
const PIECES: [(&str, &str, &str); 9] = [
    (
        "indexes = [[\"name\", \"age\"]]\n",
        "index users(name,age) would be dropped",
        "index users(name,age) would be built",
    ),
    ("unique = [\"name\"]\n", "unique field users(name) would be dropped", "unique field users(name) would be built"),
    ("schema = { type = \"object\" }\n", "users would be changed (schema)", "users would be changed (schema)"),
    ("expire = { field = \"at\", after_seconds = 5 }\n", "index users(at) would be dropped", "(expire, expire_after)"),
    ("expire = { after_seconds = 5 }\n", "(expire, expire_after)", "(expire, expire_after)"),
    (VISITS, "", "the collection visits would be made"),
    (REFERRING, "the reference visits(user) would be dropped", "the index visits(user) would be built"),
    (COUNT, "the view count would be dropped", "the view count would be built"),
    ("", "", ""),
];

fn file(piece: &str) -> Config {
    config(&format!("{USERS}{piece}"))
}

/// Compares a folder with a configuration, then opens it with that. Returns the report, and whether the folder was changed.
fn compare(dir: &TempDir, file: &Config) -> (Differences, bool) {
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let version = || store.reader().unwrap().snapshot().version();
    let before = version();
    let found = Differences::find(file, &store).unwrap();
    assert_eq!(version(), before, "looking changes nothing");
    let database = DocumentDatabase::with_store(file, dir.path(), store.clone()).unwrap();
    database.wait_for_views();
    (found, version() != before)
}

fn folder(file: &Config) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    compare(&dir, file);
    dir
}

#[test]
fn what_is_told_is_what_opening_changes() {
    for (piece, gone, new) in PIECES {
        let (with, without) = (file(piece), file(""));
        for (from, to, expected) in [(&with, &without, gone), (&without, &with, new), (&with, &with, "")] {
            let dir = folder(from);
            let (found, is_changed) = compare(&dir, to);
            assert_eq!(is_changed, !found.is_empty(), "{piece}: {found}");
            assert_eq!(found.is_empty(), expected.is_empty(), "{piece}: {found}");
            assert!(found.to_string().contains(expected), "{piece}: {found}");
            let (again, is_changed) = compare(&dir, to);
            assert!(again.is_empty() && !is_changed, "{piece}: once more {again}");
        }
    }
}

#[test]
fn a_view_that_is_being_replaced_is_the_new_one() {
    let dir = folder(&file(COUNT));
    let input = docs::import::Input::Stream {
        name: "users".into(),
        read: Box::new(std::io::Cursor::new((0..5000).map(|id| format!("{{\"id\":{id}}}\n")).collect::<String>())),
    };
    let options = docs::import::ImportOptions { collection: Some("users".into()), ..Default::default() };
    let (database, _) = DocumentDatabase::open(&file(COUNT), dir.path(), StoreOptions::default()).unwrap();
    database.import(vec![input], &options, &|_| {}).unwrap();
    drop(database);
    // The build is stopped part-way, and the old view still answers.
    drop(DocumentDatabase::open(&file(COUNT_NAMES), dir.path(), StoreOptions::default()).unwrap());
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let told = |piece| Differences::find(&file(piece), &store).unwrap().to_string();
    assert_eq!((told(COUNT_NAMES), told("")), (String::new(), "the view count would be dropped".to_string()));
    assert_eq!(told(COUNT), "the view count would be built anew, of another query");
}

#[test]
fn many_differences_are_counted() {
    let indexes: Vec<String> = (0..DIFFERENCES_MAX + 3).map(|number| format!("[\"f{number:02}\"]")).collect();
    let dir = folder(&file(""));
    let (found, _) = compare(&dir, &file(&format!("indexes = [{}]\n", indexes.join(", "))));
    assert_eq!((found.listed.len(), found.more), (DIFFERENCES_MAX, 3));
    assert!(found.to_string().ends_with("users(f19) would be built; and 3 more"), "{found}");
}
