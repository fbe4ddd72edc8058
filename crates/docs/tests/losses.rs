//! A configuration that would drop parts of a folder is refused, or permitted and reported.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use docs::config::Config;
use docs::engine::{Store, StoreOptions};
use docs::{DIFFERENCES_MAX, DatabaseOpenError, DocumentDatabase, ReadinessState};

use crate::service::Service;

const USERS: &str = "[collections.users]\nkey = { field = \"id\", type = \"u32\" }\n";
const VISITS: &str = "[collections.visits]\nkey = { field = \"id\", type = \"u32\" }\n";
const REFERRING: &str = "[collections.visits]\nkey = { field = \"id\", type = \"u32\" }\nindexes = [[\"user\"]]\n";
const COUNT: &str = "[views.count]\nquery = \"SELECT COUNT(*) AS n FROM users\"\n";
const IDS: &str = "[views.ids]\nquery = \"SELECT id, COUNT(*) AS n FROM users GROUP BY id\"\n";

/// The configuration that made a folder, another one, and what the folder would lose under that.
fn changes() -> Vec<(String, String, &'static str)> {
    let users = |more: &str| format!("{USERS}{more}");
    vec![
        (users("indexes = [[\"name\", \"age\"]]\n"), users(""), "the index users(name,age)"),
        (users("unique = [\"name\"]\n"), users(""), "the unique field users(name)"),
        (users("expire = \"at\"\n"), users(""), "the index users(at)"),
        (users(COUNT), users(""), "the view count"),
        (users(&format!("indexes = [[\"name\"]]\n{COUNT}{IDS}")), users(IDS), "the index users(name); the view count"),
        (users(VISITS), users(""), "the collection visits (its documents stay in the folder)"),
        (
            users(&format!("{REFERRING}references = {{ user = \"users\" }}\n")),
            users(REFERRING),
            "the reference visits(user)",
        ),
    ]
}

fn config(text: &str, may_drop: bool) -> Config {
    Config { may_drop, ..Config::parse("test.toml".as_ref(), text).unwrap() }
}

/// A folder with two documents in each collection of a configuration.
fn filled(text: &str) -> Service {
    let service = Service::new(&config(text, false));
    for id in 1..=2 {
        service.run(&format!("insert users {{\"id\":{id},\"name\":\"n{id}\",\"at\":4000000000}}")).unwrap();
        if text.contains("visits") {
            service.run(&format!("insert visits {{\"id\":{id},\"user\":1}}")).unwrap();
        }
    }
    service.database.wait_for_views();
    service
}

fn again(
    service: Service,
    text: &str,
    may_drop: bool,
) -> (Result<DocumentDatabase, DatabaseOpenError>, tempfile::TempDir) {
    let Service { database, dir } = service;
    drop(database);
    (
        DocumentDatabase::open(&config(text, may_drop), dir.path(), StoreOptions::default())
            .map(|(database, _)| database),
        dir,
    )
}

fn version(dir: &tempfile::TempDir) -> u64 {
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    store.reader().unwrap().snapshot().version().0
}

/// The parts that a refused opening would have dropped.
#[track_caller]
fn refused(result: Result<DocumentDatabase, DatabaseOpenError>) -> String {
    match result {
        Err(DatabaseOpenError::WouldDrop(lost)) => lost.to_string(),
        Err(other) => panic!("{other}"),
        Ok(database) => panic!("it was opened; dropped: {}", database.dropped()),
    }
}

#[test]
fn what_would_be_dropped_is_refused_and_the_folder_stays_as_it_was() {
    for (made, other, lost) in changes() {
        let service = filled(&made);
        let before = service.database.store().reader().unwrap().snapshot().version().0;
        let (result, dir) = again(service, &other, false);
        assert_eq!(refused(result), lost, "{made}");
        assert_eq!(version(&dir), before, "{made}");
        let (database, _) = DocumentDatabase::open(&config(&made, false), dir.path(), StoreOptions::default()).unwrap();
        assert!(database.dropped().is_empty());
        assert_eq!(docs::verify::database(&database).unwrap().faults, [""; 0], "{made}");
        assert!(database.views().iter().all(|view| view.failure.is_none() && view.documents == 0), "nothing is built");
    }
}

#[test]
fn what_may_be_dropped_is_dropped_once_and_told() {
    for (made, other, lost) in changes() {
        let (database, dir) = again(filled(&made), &other, true);
        let database = database.unwrap();
        assert_eq!(database.dropped().to_string(), lost, "{made}");
        drop(database);
        let (database, _) =
            DocumentDatabase::open(&config(&other, false), dir.path(), StoreOptions::default()).unwrap();
        assert!(database.dropped().is_empty(), "{made}: {}", database.dropped());
        assert_eq!(docs::verify::database(&database).unwrap().faults, [""; 0], "{made}");
    }
}

#[test]
fn another_configuration_for_an_open_database_is_refused_and_permitted_alike() {
    for (made, other, lost) in changes() {
        let service = filled(&made);
        let later = |may_drop| Config { builds_indexes_later: true, ..config(&other, may_drop) };
        let refused_to =
            service.database.reopen::<DatabaseOpenError>(&later(false), |_| Ok(())).map(|(database, _)| database);
        assert_eq!(refused(refused_to), lost, "{made}");
        service.run("insert users {\"id\":3,\"name\":\"n3\",\"at\":4000000000}").unwrap();
        let (database, _) = service.database.reopen::<DatabaseOpenError>(&later(true), |_| Ok(())).unwrap();
        assert_eq!(database.dropped().to_string(), lost, "{made}");
        let (database, _) = database.reopen::<DatabaseOpenError>(&later(false), |_| Ok(())).unwrap();
        assert!(database.dropped().is_empty(), "{made}: {}", database.dropped());
        assert_eq!(docs::verify::database(&database).unwrap().faults, [""; 0], "{made}");
    }
}

#[test]
fn an_index_that_another_one_begins_with_is_no_loss() {
    let made = format!("{USERS}{VISITS}references = {{ user = \"users\" }}\n");
    let longer = format!("{made}indexes = [[\"user\", \"at\"]]\n");
    let service = filled(&made);
    let later = Config { builds_indexes_later: true, ..config(&longer, false) };
    let (database, _) = service.database.reopen::<DatabaseOpenError>(&later, |_| Ok(())).unwrap();
    assert!(database.dropped().is_empty(), "{}", database.dropped());
    // The shorter index serves the reference until the longer one is built.
    assert!(service.refused("delete users/1").starts_with("409"));
    drop(database);
    let database = again(service, &longer, false).0.unwrap();
    assert!(database.dropped().is_empty(), "{}", database.dropped());
    assert_eq!(docs::verify::database(&database).unwrap().faults, [""; 0]);
    // In the reverse direction the longer index is lost, which serves more lookups.
    let back = filled(&longer);
    assert_eq!(refused(again(back, &made, false).0), "the index visits(user,at)");
}

#[test]
fn documents_of_a_collection_that_is_not_declared_stay_until_it_is_again() {
    let both = format!("{USERS}{VISITS}indexes = [[\"user\"]]\n");
    let (database, dir) = again(filled(&both), USERS, true);
    assert!(database.unwrap().collection("visits").is_none());
    let (database, _) = DocumentDatabase::open(&config(&both, false), dir.path(), StoreOptions::default()).unwrap();
    let service = Service { database, dir };
    assert_eq!(service.get("visits/2").unwrap().1, "{\"id\":2,\"user\":1}");
    let report = docs::verify::database(&service.database).unwrap();
    assert_eq!((report.faults.len(), report.documents, report.entries), (0, 4, 2));
    // The loss is reported again, as the collection was declared in between.
    let (result, dir) = again(service, USERS, false);
    assert_eq!(refused(result), "the collection visits (its documents stay in the folder)");
    // A collection without documents is no loss.
    let (database, _) = DocumentDatabase::open(&config(&both, false), dir.path(), StoreOptions::default()).unwrap();
    let service = Service { database, dir };
    service.run("delete visits/1").unwrap();
    service.run("delete visits/2").unwrap();
    let (database, _dir) = again(service, USERS, false);
    assert!(database.unwrap().dropped().is_empty());
}

#[test]
fn a_configuration_that_shares_no_collection_is_refused_even_where_it_may_drop() {
    let other = "[collections.a]\nkey = { field = \"id\", type = \"u32\" }\n";
    for (text, declared) in [(other, "the collection a"), ("", "no collection")] {
        let service = filled(&format!("{USERS}{VISITS}"));
        let reopened = service.database.reopen::<DatabaseOpenError>(&config(text, true), |_| Ok(())).map(drop);
        let (opened, dir) = again(service, text, true);
        let expected = format!(
            "the folder belongs to another service: it holds the collections users, visits, and the configuration declares {declared}"
        );
        assert_eq!(
            (reopened.unwrap_err().to_string(), opened.map(drop).unwrap_err().to_string()),
            (expected.clone(), expected)
        );
        let (database, _) =
            DocumentDatabase::open(&config(&format!("{USERS}{VISITS}"), false), dir.path(), StoreOptions::default())
                .unwrap();
        assert_eq!(docs::verify::database(&database).unwrap().documents, 4);
    }
}

#[test]
fn a_rule_that_was_refused_is_no_loss() {
    let service = filled(USERS);
    service.run("insert users {\"id\":3,\"name\":\"n1\"}").unwrap();
    let unique = format!("{USERS}unique = [\"name\"]\n");
    let later = |text: &str| Config { builds_indexes_later: true, ..config(text, false) };
    let (database, _) = service.database.reopen::<DatabaseOpenError>(&later(&unique), |_| Ok(())).unwrap();
    database.wait_for_indexes();
    let state = database.catalog().collection("users").unwrap().unique[0].readiness.state();
    assert!(matches!(state, ReadinessState::Refused(_)), "{state:?}");
    let (database, _) = database.reopen::<DatabaseOpenError>(&later(USERS), |_| Ok(())).unwrap();
    assert!(database.dropped().is_empty());
}

#[test]
fn many_losses_are_counted() {
    let indexes: Vec<String> = (0..DIFFERENCES_MAX + 3).map(|number| format!("[\"f{number:02}\"]")).collect();
    let service = filled(&format!("{USERS}indexes = [{}]\n", indexes.join(", ")));
    let (result, _dir) = again(service, USERS, false);
    let lost = refused(result);
    assert!(lost.ends_with("the index users(f19); and 3 more"), "{lost}");
}
