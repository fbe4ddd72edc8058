//! DELETE of all documents of a collection: one record for each tree if possible, and the same result in any case.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use docs::changes::DocumentChange;
use docs::engine::StoreOptions;
use docs::expire::WallClock;
use docs::sql::Budget;
use docs::statements::{Modification, ModifyError};
use docs::{DocumentDatabase, WriteError};
use serde_json::json;

use crate::declared_views::rows;
use crate::service::{Service, config};
use docs::sql::NoRows;

const ITEMS: &str = r#"
[collections.items]
key = { field = "id", type = "u32" }
indexes = [["place", "mark"]]
unique = ["code"]
"#;
const NOTES: &str = r#"
[collections.notes]
key = { field = "id", type = "u32" }
references = { item = "items" }
"#;
const VIEWS: &str = r#"
[views.places]
query = "SELECT place, COUNT(*) AS n, SUM(mark) AS marks, MAX(mark) AS most, COUNT(DISTINCT mark) AS kinds FROM items GROUP BY place"
[views.sizes]
query = "SELECT n, COUNT(*) AS places FROM places GROUP BY n"
[views.all]
query = "SELECT COUNT(*) AS n, SUM(mark) AS marks FROM items"
"#;
/// A view over the row of another view that exists even without documents.
const OVER_ALL: &str = "[views.over]\nquery = \"SELECT n, COUNT(*) AS rows FROM all GROUP BY n\"\n";

fn filled(text: &str, count: u32) -> Service {
    let service = Service::new(&config(text));
    (0..count).for_each(|id| add(&service, id).unwrap());
    service
}

fn add(service: &Service, id: u32) -> Result<(), WriteError> {
    let (place, mark) = (id % 7, id % 5);
    service.run(&format!("insert items {{\"id\":{id},\"code\":\"c{id}\",\"place\":{place},\"mark\":{mark}}}")).map(drop)
}

fn modify(database: &DocumentDatabase, sql: &str) -> Result<u64, ModifyError> {
    let statement = Modification::prepare(sql, database.catalog()).unwrap();
    Ok(database.modify(&statement, &[], &Budget::default(), &mut NoRows)?.rows)
}

/// Runs a statement; returns the number of deleted documents and the changes that followers see, in order of keys.
#[track_caller]
fn run(service: &Service, sql: &str) -> (u64, Vec<String>) {
    let since = service.database.store().stats().version;
    let count = modify(&service.database, sql).unwrap();
    let (mut changes, mut told) = (service.database.changes_since(since).unwrap(), Vec::new());
    while changes
        .next(|event| match &event.change {
            DocumentChange::Put { key, .. } => told.push(format!("put {key}")),
            DocumentChange::Delete { key } => told.push(format!("gone {key}")),
            DocumentChange::Reset => told.push("reset".to_owned()),
        })
        .unwrap()
    {}
    told.sort_by_cached_key(|told| (told.len(), told.clone()));
    (count, told)
}

/// Checks that every index entry, unique value, reference and view row matches the documents.
#[track_caller]
fn check(database: &DocumentDatabase) {
    let report = docs::verify::database(database).unwrap();
    assert!(report.is_clean(), "{report:?}");
    for view in database.views() {
        let report = database.verify_view(&view.name).unwrap().unwrap();
        assert!(report.faults.is_empty(), "{}: {:?}", view.name, report.faults);
    }
}

#[test]
fn all_documents_go_in_one_record_with_all_that_stands_on_them() {
    let service = filled(&format!("{ITEMS}{NOTES}{VIEWS}"), 300);
    let before = service.database.store().stats().version;
    assert_eq!(run(&service, "DELETE FROM items"), (300, vec!["reset".to_owned()]));
    assert_eq!(service.database.store().stats().version, before + 1);
    check(&service.database);
    assert_eq!(rows(&service.database, "SELECT id FROM items"), [json!(null); 0]);
    assert_eq!(rows(&service.database, "SELECT n FROM places"), [json!(null); 0]);
    assert_eq!(rows(&service.database, "SELECT n, marks FROM all"), [json!({ "n": 0, "marks": null })]);
    // Keys and unique values are free again, and views start from nothing.
    (0..20).for_each(|id| add(&service, id).unwrap());
    check(&service.database);
    assert_eq!(rows(&service.database, "SELECT n FROM all"), [json!({ "n": 20 })]);
    service.database.store().checkpoint().unwrap();
    check(&service.database);
    let Service { database, dir } = service;
    drop(database);
    let (database, _) =
        DocumentDatabase::open(&config(&format!("{ITEMS}{NOTES}{VIEWS}")), dir.path(), StoreOptions::default())
            .unwrap();
    check(&database);
    assert_eq!(modify(&database, "DELETE FROM items").unwrap(), 20);
    assert_eq!(modify(&database, "DELETE FROM items").unwrap(), 0);
    check(&database);
}

#[test]
fn what_may_not_go_at_once_goes_document_by_document() {
    let all = |count: u32| (0..count).map(|id| format!("gone {id}")).collect::<Vec<_>>();
    // With a condition, or with RETURNING.
    let service = filled(&format!("{ITEMS}{VIEWS}"), 30);
    assert_eq!(run(&service, "DELETE FROM items WHERE id >= 10").0, 20);
    check(&service.database);
    assert_eq!(run(&service, "DELETE FROM items RETURNING id"), (10, all(10)));
    check(&service.database);
    // A view counts the lower view's row that exists without documents.
    let service = filled(&format!("{ITEMS}{VIEWS}{OVER_ALL}"), 30);
    assert_eq!(run(&service, "DELETE FROM items"), (30, all(30)));
    check(&service.database);
    assert_eq!(rows(&service.database, "SELECT n, rows FROM over"), [json!({ "n": 0, "rows": 1 })]);
    // Other documents may refer to the deleted ones.
    let service = filled(&format!("{ITEMS}{NOTES}{VIEWS}"), 30);
    service.run("insert notes {\"id\":1}").unwrap();
    assert_eq!(run(&service, "DELETE FROM items"), (30, all(30)));
    check(&service.database);
    // Documents that refer to others can themselves be deleted at once.
    add(&service, 5).unwrap();
    service.run("insert notes {\"id\":2,\"item\":5}").unwrap();
    let refused = modify(&service.database, "DELETE FROM items").unwrap_err();
    assert!(matches!(refused, ModifyError::Write(WriteError::Conflict { .. })), "{refused}");
    check(&service.database);
    assert_eq!(run(&service, "DELETE FROM notes"), (2, vec!["reset".to_owned()]));
    assert_eq!(run(&service, "DELETE FROM items"), (1, vec!["reset".to_owned()]));
    check(&service.database);
}

#[test]
fn documents_that_are_due_go_and_are_not_counted() {
    let now = Arc::new(AtomicI64::new(1_000_000_000_000));
    let mut timed = config("[collections.items]\nkey = { field = \"id\", type = \"u32\" }\nexpire = \"at\"\n");
    timed.clock = WallClock::given(Arc::clone(&now));
    let service = Service::new(&timed);
    for id in 0..10 {
        let at = 1_000_000_000 + if id < 4 { 10 } else { 1_000 };
        service.run(&format!("insert items {{\"id\":{id},\"at\":{at}}}")).unwrap();
    }
    now.fetch_add(100_000, Ordering::SeqCst);
    assert_eq!(run(&service, "DELETE FROM items"), (6, vec!["reset".to_owned()]));
    check(&service.database);
    now.store(1_000_000_000_000, Ordering::SeqCst);
    assert_eq!(rows(&service.database, "SELECT id FROM items"), [json!(null); 0]);
}

#[test]
fn beside_writers_every_document_is_deleted_once_or_there() {
    let service = filled(&format!("{ITEMS}{VIEWS}"), 0);
    let (is_over, written, deleted) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..3u32 {
            let (service, is_over, written, deleted) = (&service, &is_over, &written, &deleted);
            scope.spawn(move || {
                for id in (number * 100_000..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    add(service, id).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                    if id % 11 == 0 {
                        // It may already have been deleted with the others.
                        let gone = modify(&service.database, &format!("DELETE FROM items WHERE id = {id}")).unwrap();
                        deleted.fetch_add(gone, Ordering::Relaxed);
                    }
                }
            });
        }
        let mut resets = 0;
        for round in 0..40 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let (count, told) = run(&service, "DELETE FROM items");
            deleted.fetch_add(count, Ordering::Relaxed);
            resets += told.iter().filter(|told| *told == "reset").count();
            if round % 8 == 0 {
                service.database.store().checkpoint().unwrap();
            }
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(resets > 0);
    });
    check(&service.database);
    let left = rows(&service.database, "SELECT COUNT(*) AS n FROM items")[0]["n"].as_u64().unwrap();
    assert_eq!(deleted.load(Ordering::Relaxed) + left, written.load(Ordering::Relaxed));
    assert_eq!(rows(&service.database, "SELECT n FROM all"), [json!({ "n": left })]);
}
