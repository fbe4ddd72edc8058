//! Indexes and unique fields that are built while the database is open and written to.

use std::sync::atomic::{AtomicBool, Ordering};

use docs::config::Config;
use docs::key::KeyType;
use docs::sql::{Budget, Scratch};
use docs::{DocumentDatabase, Op, Precondition, ReadinessState, Write, WriteError};

const PLAIN: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const INDEXED: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\nindexes = [[\"x\"]]\n";
const UNIQUE: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\nunique = [\"x\"]\n";
const DOCUMENTS: u32 = 4_000;

fn open(folder: &std::path::Path, config: &str) -> DocumentDatabase {
    let mut config = Config::parse("c.toml".as_ref(), config).expect("a config");
    config.builds_indexes_later = true;
    config.may_drop = true;
    DocumentDatabase::open(&config, folder, docs::engine::StoreOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
        .0
}

fn write(database: &DocumentDatabase, op: Op) -> Result<(), WriteError> {
    let collection = database.collection("items").expect("declared");
    database.write_now(&Write { collection, op, precondition: Precondition::None }).map(drop)
}

fn insert(database: &DocumentDatabase, id: u32, x: u32) -> Result<(), WriteError> {
    write(database, Op::Insert { body: format!("{{\"id\":{id},\"x\":{x}}}").into_bytes() })
}

fn key(id: u32) -> Vec<u8> {
    KeyType::U32.of_text(&id.to_string()).expect("a key").as_bytes().to_vec()
}

fn fill(database: &DocumentDatabase) {
    let collection = database.collection("items").expect("declared");
    for start in (0..DOCUMENTS).step_by(500) {
        let one = |id: u32| Write {
            collection,
            op: Op::Insert { body: format!("{{\"id\":{id},\"x\":{id}}}").into_bytes() },
            precondition: Precondition::None,
        };
        database.write_all(&(start..start + 500).map(one).collect::<Vec<_>>()).expect("stored");
    }
}

fn rows(database: &DocumentDatabase, query: &docs::sql::PreparedQuery) -> String {
    let session = database.session().expect("a session");
    let (now, mut out) = (session.now(), Vec::new());
    query.write_array(now.view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).expect("rows");
    String::from_utf8(out).expect("JSON")
}

#[track_caller]
fn check_whole(database: &DocumentDatabase, entries: u64) {
    let report = docs::verify::database(database).expect("read");
    assert_eq!(report.faults, [""; 0]);
    assert_eq!(report.entries, entries);
}

fn documents(database: &DocumentDatabase) -> u64 {
    docs::verify::database(database).expect("read").documents
}

#[test]
fn an_index_is_built_beside_writes_and_used_when_it_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(&open(folder.path(), PLAIN));
    for round in 0..3 {
        // Each round builds the index anew, as the previous one opened the folder without it.
        let database = open(folder.path(), INDEXED);
        let query = database.prepare_query("SELECT id FROM items WHERE x = 1234567").expect("SQL");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..3u32 {
                let (database, over) = (&database, &over);
                scope.spawn(move || {
                    let mut mixed = u64::from(writer) + 7 * round;
                    for number in 0.. {
                        mixed = mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let id = (mixed >> 33) as u32 % (2 * DOCUMENTS);
                        let x = (mixed >> 20) as u32 % 1000;
                        // The document may or may not exist: it is inserted, changed or deleted.
                        let _ = match number % 3 {
                            0 => insert(database, id, x),
                            1 => write(
                                database,
                                Op::Update { key: key(id), patch: format!("{{\"x\":{x}}}").into_bytes() },
                            ),
                            _ => write(database, Op::Delete { key: key(id) }),
                        };
                        if over.load(Ordering::Relaxed) && number > 100 {
                            break;
                        }
                    }
                });
            }
            assert_eq!(rows(&database, &query), "[]");
            database.wait_for_indexes();
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(database.catalog().collections[0].indexes[0].readiness.state(), ReadinessState::Ready);
        let documents = documents(&database);
        check_whole(&database, documents);
        insert(&database, 1_000_000, 1_234_567).expect("stored");
        assert_eq!(rows(&database, &query), "[{\"id\":1000000}]");
        assert_eq!(query.scans(&[]), [""; 0], "the index is used");
        write(&database, Op::Delete { key: key(1_000_000) }).expect("deleted");
        drop(query);
        drop(database);
        // Opened without the index: it is dropped.
        let database = open(folder.path(), PLAIN);
        write(&database, Op::Put { key: key(5), body: b"{\"id\":5,\"x\":99999}".to_vec() }).expect("stored");
        check_whole(&database, 0);
    }
}

#[test]
fn an_index_that_carries_large_fields_is_built_in_transactions_that_fit() {
    const LARGE: u32 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let open = |text: &str, carries: bool| {
        let mut config = Config::parse("c.toml".as_ref(), text).expect("a config");
        config.builds_indexes_later = true;
        if carries {
            config.include("items", &["x".to_owned()], &["note".to_owned()]);
        }
        let mut options = docs::engine::StoreOptions::default();
        options.transaction_bytes_max = 100_000;
        DocumentDatabase::open(&config, folder.path(), options).expect("opened").0
    };
    let database = open(PLAIN, false);
    for id in 0..LARGE {
        let body = format!("{{\"id\":{id},\"x\":{},\"note\":\"{}\"}}", id % 3, "n".repeat(20_000));
        write(&database, Op::Insert { body: body.into_bytes() }).expect("stored");
    }
    drop(database);
    let database = open(INDEXED, true);
    database.wait_for_indexes();
    let readiness = &database.catalog().collections[0].indexes[0].readiness;
    assert_eq!(readiness.state(), ReadinessState::Ready);
    check_whole(&database, u64::from(LARGE));
}

#[test]
fn a_build_that_was_stopped_begins_again_and_leaves_nothing_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(&open(folder.path(), PLAIN));
    for _ in 0..5 {
        // Closed at once: most of the index is not built.
        drop(open(folder.path(), INDEXED));
    }
    let database = open(folder.path(), INDEXED);
    database.wait_for_indexes();
    check_whole(&database, u64::from(DOCUMENTS));
    drop(database);
    // It is not built again.
    let database = open(folder.path(), INDEXED);
    assert!(database.catalog().collections[0].indexes[0].readiness.is_ready());
}

#[test]
fn a_value_that_went_to_another_document_while_a_field_becomes_unique_stays_with_it() {
    const LAST: u32 = DOCUMENTS - 1;
    let took_it_in_time = (0..20).any(|_| {
        let folder = tempfile::tempdir().expect("a folder");
        fill(&open(folder.path(), PLAIN));
        let database = open(folder.path(), UNIQUE);
        let state = || database.catalog().collections[0].unique[0].readiness.state();
        while state() == ReadinessState::Building(0) {
            std::thread::yield_now();
        }
        // The first document, already entered, takes the value of the last one, not yet entered; then the last one is deleted.
        let body = format!("{{\"id\":0,\"x\":{LAST}}}").into_bytes();
        let taken = write(&database, Op::Put { key: key(0), body });
        write(&database, Op::Delete { key: key(LAST) }).expect("deleted");
        database.wait_for_indexes();
        // If this is false, the building thread was faster.
        let is_in_time = taken.is_ok() && state() == ReadinessState::Ready;
        if is_in_time {
            check_whole(&database, u64::from(LAST));
            assert!(matches!(insert(&database, LAST, LAST), Err(WriteError::Conflict { .. })));
        }
        is_in_time
    });
    assert!(took_it_in_time, "the thread was always faster");
}

#[test]
fn a_field_becomes_unique_or_is_refused_by_the_keys_of_two_documents() {
    let folder = tempfile::tempdir().expect("a folder");
    fill(&open(folder.path(), PLAIN));
    let database = open(folder.path(), UNIQUE);
    database.wait_for_indexes();
    check_whole(&database, u64::from(DOCUMENTS));
    assert!(matches!(insert(&database, 9_999, 17), Err(WriteError::Conflict { .. })));
    drop(database);
    let database = open(folder.path(), PLAIN);
    insert(&database, 9_999, 17).expect("nothing is unique");
    drop(database);
    let database = open(folder.path(), UNIQUE);
    database.wait_for_indexes();
    let state = database.catalog().collections[0].unique[0].readiness.state();
    let why = "\"x\" cannot be unique: items/17 and items/9999 have the same value";
    assert_eq!(state, ReadinessState::Refused(why.to_string()));
    // The old rules apply: nothing is unique, and queries find both.
    insert(&database, 10_000, 17).expect("stored");
    let query = database.prepare_query("SELECT COUNT(*) AS n FROM items WHERE x = 17").expect("SQL");
    assert_eq!(rows(&database, &query), "[{\"n\":3}]");
    for id in [9_999, 10_000] {
        write(&database, Op::Delete { key: key(id) }).expect("deleted");
    }
    drop(query);
    drop(database);
    let database = open(folder.path(), UNIQUE);
    database.wait_for_indexes();
    check_whole(&database, u64::from(DOCUMENTS));
}

#[test]
fn a_refused_field_leaves_no_ghosts_in_a_collection_that_was_emptied() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = open(folder.path(), PLAIN);
    for id in 0..10 {
        insert(&database, id, id % 9).expect("stored");
    }
    drop(database);
    let database = open(folder.path(), UNIQUE);
    database.wait_for_indexes();
    assert!(database.catalog().collections[0].unique[0].readiness.now() == docs::RuleState::Refused);
    for id in 0..10 {
        write(&database, Op::Delete { key: key(id) }).expect("deleted");
    }
    drop(database);
    let database = open(folder.path(), UNIQUE);
    for id in 0..9 {
        insert(&database, 100 + id, id).expect("no ghost has it");
    }
    check_whole(&database, 9);
}
