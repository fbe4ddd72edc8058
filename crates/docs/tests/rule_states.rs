//! What writes and queries do with a rule while it is built, after it was refused, and when it is replaced.

use std::path::Path;

use docs::config::Config;
use docs::key::KeyType;
use docs::sql::{Budget, NoRows, Scratch};
use docs::statements::Modification;
use docs::{DatabaseOpenError, DocumentDatabase, Op, Precondition, ReaderSession, ReadinessState, Write, WriteError};
use serde_json::{Value as Json, json};

const USERS: &str = "[collections.users]\nkey = { field = \"id\", type = \"u32\" }\n";
const READERS: usize = 16;

fn config(text: &str) -> Config {
    let mut config = Config::parse("c.toml".as_ref(), text).unwrap_or_else(|error| panic!("{error}"));
    config.builds_indexes_later = true;
    config.may_drop = true;
    config
}

fn open(folder: &Path, text: &str) -> DocumentDatabase {
    let mut options = docs::engine::StoreOptions::default();
    options.readers_max = READERS;
    DocumentDatabase::open(&config(text), folder, options).unwrap_or_else(|error| panic!("{error}")).0
}

/// Builds of indexes and checks of rules cannot go on while this lives: it has all the store's readers.
struct Held(Vec<ReaderSession>);

/// Reopens with another configuration, whose builds do not begin before the result's second part is dropped.
fn reopen_held(database: &DocumentDatabase, config: &Config) -> (DocumentDatabase, Held) {
    let mut held = Held(Vec::new());
    let reopened = database.reopen::<DatabaseOpenError>(config, |new| {
        held.0.extend(std::iter::from_fn(|| new.session().ok()));
        Ok(())
    });
    (reopened.unwrap_or_else(|error| panic!("{error}")).0, held)
}

fn reopen(database: &DocumentDatabase, text: &str) -> DocumentDatabase {
    let (database, held) = reopen_held(database, &config(text));
    drop(held);
    database.wait_for_indexes();
    database.wait_for_views();
    database
}

fn rows_in(session: &ReaderSession, sql: &str) -> Json {
    let query = session.database().prepare_query(sql).unwrap_or_else(|error| panic!("{error}"));
    let (now, mut out) = (session.now(), Vec::new());
    query.write_array(now.view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

fn rows(database: &DocumentDatabase, sql: &str) -> Json {
    rows_in(&database.session().unwrap(), sql)
}

/// The tables that a query scans as a whole.
fn scans(database: &DocumentDatabase, sql: &str) -> Vec<String> {
    database.prepare_query(sql).unwrap().scans(&[]).iter().map(|table| table.to_string()).collect()
}

fn change(database: &DocumentDatabase, sql: &str) -> Result<u64, String> {
    let statement = Modification::prepare(sql, database.catalog()).map_err(|error| error.to_string())?;
    let done = database.modify(&statement, &[], &Budget::default(), &mut NoRows);
    done.map(|done| done.rows).map_err(|error| error.to_string())
}

fn put(database: &DocumentDatabase, name: &str, document: Json) -> Result<(), WriteError> {
    let key = KeyType::U32.of_text(&document["id"].to_string()).unwrap().as_bytes().to_vec();
    let op = Op::Put { key, body: document.to_string().into_bytes() };
    let collection = database.collection(name).unwrap();
    database.write_now(&Write { collection, op, precondition: Precondition::None }).map(drop)
}

fn delete(database: &DocumentDatabase, name: &str, id: u32) -> Result<(), WriteError> {
    let op = Op::Delete { key: KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec() };
    let collection = database.collection(name).unwrap();
    database.write_now(&Write { collection, op, precondition: Precondition::None }).map(drop)
}

#[track_caller]
fn check_clean(database: &DocumentDatabase) {
    assert_eq!(docs::verify::database(database).unwrap().faults, [""; 0]);
    for view in database.views() {
        let report = database.verify_view(&view.name).unwrap();
        assert!(report.as_ref().is_some_and(docs::views::ViewReport::is_clean), "{view:?} {report:?}");
    }
}

const UPSERTS: [&str; 4] = [
    "INSERT INTO users (id, email) VALUES (9, 'y') ON CONFLICT (email) DO UPDATE SET n = n + 1",
    "INSERT INTO users (id, email) VALUES (9, 'y') ON CONFLICT (email) DO NOTHING",
    "INSERT INTO users (id, email) VALUES (9, 'y') ON CONFLICT DO NOTHING",
    "INSERT OR REPLACE INTO users (id, email) VALUES (9, 'y')",
];

#[test]
fn an_upsert_by_a_field_that_is_not_unique_yet_or_never_inserts_no_second_document() {
    let unique = format!("{USERS}unique = [\"email\"]\n");
    let folder = tempfile::tempdir().unwrap();
    let plain = open(folder.path(), USERS);
    put(&plain, "users", json!({ "id": 1, "email": "y", "n": 0 })).unwrap();
    let (database, held) = reopen_held(&plain, &config(&unique));
    for upsert in UPSERTS {
        let refused = change(&database, upsert).unwrap_err();
        assert_eq!(refused, "\"email\" of users is still being made unique: try again when it is", "{upsert}");
    }
    // Without a value it is like no other document.
    let without = "INSERT INTO users (id, n) VALUES (7, 1) ON CONFLICT (email) DO NOTHING";
    assert_eq!(change(&database, without), Ok(1));
    assert_eq!(change(&database, "DELETE FROM users WHERE id = 7"), Ok(1));
    // An upsert by the key does not depend on the field.
    let by_key = "INSERT INTO users (id, email) VALUES (1, 'z') ON CONFLICT (id) DO UPDATE SET n = 5";
    assert_eq!(change(&database, by_key), Ok(1));
    drop(held);
    database.wait_for_indexes();
    assert_eq!(change(&database, UPSERTS[0]), Ok(1));
    assert_eq!(rows(&database, "SELECT id, n FROM users"), json!([{ "id": 1, "n": 6 }]));
    check_clean(&database);

    let plain = reopen(&database, USERS);
    put(&plain, "users", json!({ "id": 2, "email": "y" })).unwrap();
    let database = reopen(&plain, &unique);
    for upsert in &UPSERTS[..2] {
        let refused = change(&database, upsert).unwrap_err();
        assert!(
            refused.starts_with("\"email\" of users did not become unique: \"email\" cannot be unique: "),
            "{refused}"
        );
    }
    assert_eq!(rows(&database, "SELECT COUNT(*) AS n FROM users"), json!([{ "n": 2 }]));
    // A refused field is not unique, so statements that name no field pass over it.
    assert_eq!(change(&database, UPSERTS[2]), Ok(1));
    check_clean(&database);
}

#[test]
fn a_moment_in_which_the_engine_takes_no_build_refuses_no_rule() {
    let folder = tempfile::tempdir().unwrap();
    let plain = open(folder.path(), USERS);
    put(&plain, "users", json!({ "id": 1, "email": "y" })).unwrap();
    let schema = "[collections.users.schema.properties]\nemail = { type = \"string\" }\n";
    let text = format!("{USERS}unique = [\"email\"]\nindexes = [[\"n\"]]\n{schema}");
    let (database, held) = reopen_held(&plain, &config(&text));
    // Without a reader the builder cannot begin. It has tried for a while.
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert!(!database.is_settled());
    drop(held);
    database.wait_for_indexes();
    let info = &database.catalog().collections[0];
    assert_eq!(info.unique[0].readiness.state(), ReadinessState::Ready);
    assert_eq!(info.indexes[0].readiness.state(), ReadinessState::Ready);
    assert_eq!(database.rules()[0].state, ReadinessState::Ready);
    check_clean(&database);
}

#[test]
fn queries_rely_on_a_reference_neither_while_another_replaces_it_nor_after() {
    let others = "[collections.persons]\nkey = { field = \"id\", type = \"u32\" }\n\
                  [collections.visits]\nkey = { field = \"id\", type = \"u32\" }\n";
    let text = |target: &str| format!("{USERS}{others}references = {{ user = \"{target}\" }}\n");
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), &text("users"));
    put(&database, "users", json!({ "id": 1 })).unwrap();
    [1, 2].into_iter().for_each(|id| put(&database, "persons", json!({ "id": id })).unwrap());
    put(&database, "visits", json!({ "id": 1, "user": 1 })).unwrap();
    let (database, held) = reopen_held(&database, &config(&text("persons")));
    let join = "SELECT v.id FROM visits v JOIN users u ON u.id = v.user ORDER BY v.id";
    let before = database.prepare_query(join).unwrap();
    // Both references are obeyed.
    assert!(matches!(put(&database, "visits", json!({ "id": 2, "user": 2 })), Err(WriteError::Invalid { .. })));
    assert!(matches!(delete(&database, "users", 1), Err(WriteError::Conflict { .. })));
    assert!(matches!(delete(&database, "persons", 1), Err(WriteError::Conflict { .. })));
    drop(held);
    database.wait_for_indexes();
    assert!(database.gains_by_reopening());
    put(&database, "visits", json!({ "id": 2, "user": 2 })).unwrap();
    let (session, mut out) = (database.session().unwrap(), Vec::new());
    before.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    assert_eq!(String::from_utf8_lossy(&out), "[{\"id\":1}]");
    assert_eq!(rows(&database, join), json!([{ "id": 1 }]));
    drop(session);
    check_clean(&database);
    // The old target is free at once.
    delete(&database, "users", 1).unwrap();
    let database = reopen(&database, &text("persons"));
    assert!(!database.gains_by_reopening() && database.rules().is_empty());
    assert_eq!(rows(&database, join), json!([]));
    check_clean(&database);
}

/// An index of `before` answers until the one of `after` is complete, across a restart too, and then it goes.
#[track_caller]
fn check_stands(before: &Config, after: &Config, sql: &str) {
    let folder = tempfile::tempdir().unwrap();
    let options = || {
        let mut options = docs::engine::StoreOptions::default();
        options.readers_max = READERS;
        options
    };
    let database = DocumentDatabase::open(before, folder.path(), options()).unwrap().0;
    put(&database, "users", json!({ "id": 0, "a": 0 })).unwrap();
    (1..50).for_each(|id| put(&database, "users", json!({ "id": id, "a": id % 7, "b": id, "boss": 0 })).unwrap());
    database.wait_for_indexes();
    let is_indexed = |database: &DocumentDatabase| scans(database, sql).is_empty();
    assert!(is_indexed(&database));
    let expected = rows(&database, sql);
    let (changed, held) = reopen_held(&database, after);
    assert_eq!(scans(&changed, sql), [""; 0]);
    assert_eq!(rows_in(&held.0[0], sql), expected);
    // It is maintained.
    put(&changed, "users", json!({ "id": 99, "a": 3, "b": 99, "boss": 0 })).unwrap();
    delete(&changed, "users", 3).unwrap();
    assert_eq!(rows_in(&held.0[0], sql).as_array().unwrap().len(), expected.as_array().unwrap().len());
    drop((held, database));
    // Closed at once: the index is most likely not complete.
    drop(changed);
    let database = DocumentDatabase::open(after, folder.path(), options()).unwrap().0;
    assert!(is_indexed(&database));
    database.wait_for_indexes();
    check_clean(&database);
    let of_declared = |database: &DocumentDatabase| {
        let indexes = database.catalog().collections[0].indexes.iter();
        indexes.filter(|index| !index.is_standing).count()
    };
    let reopened = reopen_held(&database, &Config { may_drop: false, ..after.clone() }).0;
    drop(database);
    let database = reopened;
    database.wait_for_indexes();
    assert_eq!(database.catalog().collections[0].indexes.len(), of_declared(&database));
    assert!(!database.gains_by_reopening() && is_indexed(&database));
    check_clean(&database);
    drop(database);
    let database = DocumentDatabase::open(after, folder.path(), options()).unwrap().0;
    assert!(database.catalog().collections[0].indexes.iter().all(|index| index.readiness.is_ready()));
    check_clean(&database);
}

#[test]
fn an_index_stands_until_the_one_that_replaces_it_is_built() {
    let indexed = |indexes: &str| config(&format!("{USERS}indexes = [{indexes}]\n"));
    let sql = "SELECT id FROM users WHERE a = 3 ORDER BY id";
    check_stands(&indexed("[\"a\"]"), &indexed("[\"a\", \"b\"]"), sql);
    // Another order of fields, and one field less.
    check_stands(&indexed("[\"a\", \"b\"]"), &indexed("[\"a\", \"n\"]"), sql);
    check_stands(&indexed("[\"a\", \"b\"], [\"b\"]"), &indexed("[\"b\", \"a\"], [\"a\"]"), sql);
    // Other fields that the index carries.
    let carries = |fields: &[&str]| {
        let mut config = indexed("[\"a\"]");
        config.include("users", &["a".to_owned()], &fields.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>());
        config
    };
    check_stands(&carries(&["b"]), &carries(&["b", "n"]), sql);
    check_stands(&carries(&["b", "n"]), &carries(&[]), sql);
}

#[test]
fn the_index_of_a_reference_or_of_expiry_is_changed_beside_writes() {
    let text =
        |indexes: &str| config(&format!("{USERS}references = {{ boss = \"users\" }}\nexpire = \"until\"\n{indexes}"));
    let (before, after) = (text(""), text("indexes = [[\"boss\", \"a\"], [\"until\", \"a\"]]\n"));
    check_stands(&before, &after, "SELECT id FROM users WHERE boss = 0 AND a = 3 ORDER BY id");
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), &format!("{USERS}references = {{ boss = \"users\" }}\nexpire = \"until\"\n"));
    put(&database, "users", json!({ "id": 1 })).unwrap();
    put(&database, "users", json!({ "id": 2, "boss": 1 })).unwrap();
    put(&database, "users", json!({ "id": 3, "until": 5 })).unwrap();
    let (database, held) = reopen_held(&database, &after);
    assert!(matches!(delete(&database, "users", 1), Err(WriteError::Conflict { .. })));
    drop(held);
    let users = database.collection("users").unwrap();
    assert_eq!(database.expire(&mut database.sweep(users), 10).unwrap().removed, 1);
    database.wait_for_indexes();
    assert!(matches!(delete(&database, "users", 1), Err(WriteError::Conflict { .. })));
    check_clean(&database);
}

#[test]
fn a_reference_is_refused_with_the_index_that_finds_its_documents_though_another_index_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let plain = open(folder.path(), USERS);
    put(&plain, "users", json!({ "id": 1 })).unwrap();
    put(&plain, "users", json!({ "id": 2, "boss": 1, "note": "n".repeat(2_000) })).unwrap();
    let text = format!("{USERS}references = {{ boss = \"users\" }}\nindexes = [[\"boss\", \"note\"], [\"boss\"]]\n");
    let database = reopen(&plain, &text);
    let states = database.catalog().collections[0].indexes.iter().map(|index| index.readiness.is_ready());
    assert_eq!(states.collect::<Vec<_>>(), [false, true], "an entry of the first is too long");
    let refused = ReadinessState::Refused("the index that it needs is refused".to_owned());
    assert_eq!(database.rules()[0].state, refused);
    // The next opening finds the index that is built.
    let database = reopen(&database, &text);
    assert!(matches!(delete(&database, "users", 1), Err(WriteError::Conflict { .. })));
    check_clean(&database);
}

#[test]
fn a_view_whose_names_mean_other_fields_under_a_new_schema_is_built_anew() {
    let schema = "[collections.users.schema.properties]\nShelf = { type = \"string\" }\n";
    let view = "[views.shelves]\nquery = \"SELECT shelf, COUNT(*) AS n FROM users GROUP BY shelf\"\n\
                [views.sizes]\nquery = \"SELECT n, COUNT(*) AS c FROM shelves GROUP BY n\"\n";
    let folder = tempfile::tempdir().unwrap();
    let with_schema = format!("{USERS}{schema}{view}");
    let without = format!("{USERS}{view}");
    let mut database = open(folder.path(), &with_schema);
    (1..3).for_each(|id| put(&database, "users", json!({ "id": id, "Shelf": "tea" })).unwrap());
    let counted = "SELECT shelf AS s, n FROM shelves";
    assert_eq!(rows(&database, counted), json!([{ "s": "tea", "n": 2 }]));
    database = reopen(&database, &without);
    assert_eq!(rows(&database, counted), json!([{ "s": null, "n": 2 }]));
    delete(&database, "users", 1).unwrap();
    assert_eq!(rows(&database, counted), json!([{ "s": null, "n": 1 }]));
    assert_eq!(rows(&database, "SELECT n, c FROM sizes"), json!([{ "n": 1, "c": 1 }]));
    check_clean(&database);
    drop(database);
    // The same at a start.
    database = open(folder.path(), &with_schema);
    database.wait_for_indexes();
    database.wait_for_views();
    assert_eq!(rows(&database, counted), json!([{ "s": "tea", "n": 1 }]));
    check_clean(&database);
    // A schema that changes no name keeps the rows.
    drop(database);
    let other = with_schema.replace("Shelf =", "id = { type = \"integer\" }\nShelf =");
    assert!(open(folder.path(), &other).views().iter().all(|view| view.state == docs::RuleState::Ready));
}
