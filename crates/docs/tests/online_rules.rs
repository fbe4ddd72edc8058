//! Rules that a collection with documents gets while the database is open and written to: a schema, references, expiry.

use std::path::Path;

use docs::config::Config;
use docs::key::KeyType;
use docs::{DocumentDatabase, Op, Precondition, ReadinessState, RuleStatus, Write, WriteError};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
const OWNERS: &str = "[collections.owners]\nkey = { field = \"id\", type = \"u32\" }\n";
const DOCUMENTS: u32 = 3_000;

fn open(folder: &Path, config: &str) -> DocumentDatabase {
    let mut config = Config::parse("c.toml".as_ref(), config).unwrap_or_else(|error| panic!("{error}"));
    config.builds_indexes_later = true;
    config.may_drop = true;
    DocumentDatabase::open(&config, folder, docs::engine::StoreOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
        .0
}

/// The items with a schema of these properties.
fn with_schema(properties: &str) -> String {
    format!("{ITEMS}[collections.items.schema]\ntype = \"object\"\n[collections.items.schema.properties]\n{properties}")
}

fn write(database: &DocumentDatabase, collection: &str, op: Op) -> Result<(), WriteError> {
    let collection = database.collection(collection).unwrap();
    database.write_now(&Write { collection, op, precondition: Precondition::None }).map(drop)
}

fn put(database: &DocumentDatabase, collection: &str, id: u32, fields: &str) -> Result<(), WriteError> {
    let body = format!("{{\"id\":{id}{fields}}}").into_bytes();
    write(database, collection, Op::Put { key: key(id), body })
}

fn key(id: u32) -> Vec<u8> {
    KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec()
}

fn fill(database: &DocumentDatabase) {
    let collection = database.collection("items").unwrap();
    for start in (0..DOCUMENTS).step_by(500) {
        let one = |id: u32| Write {
            collection,
            op: Op::Insert { body: format!("{{\"id\":{id},\"x\":{id},\"owner\":{}}}", id % 7).into_bytes() },
            precondition: Precondition::None,
        };
        database.write_all(&(start..start + 500).map(one).collect::<Vec<_>>()).unwrap();
    }
}

fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path(), ITEMS));
    folder
}

/// The state of the only rule, after stored documents were checked.
fn settled(database: &DocumentDatabase) -> RuleStatus {
    database.wait_for_indexes();
    let rules = database.rules();
    assert_eq!(rules.len(), 1, "{rules:?}");
    rules[0].clone()
}

#[track_caller]
fn check_clean(database: &DocumentDatabase) {
    assert_eq!(docs::verify::database(database).unwrap().faults, [""; 0]);
}

fn invalid(outcome: &Result<(), WriteError>) -> bool {
    matches!(outcome, Err(WriteError::Invalid { .. }))
}

#[test]
fn a_schema_that_all_documents_fit_is_obeyed_from_the_start_and_is_in_force_after() {
    let folder = filled();
    let database = open(folder.path(), &with_schema("x = { type = \"integer\" }"));
    assert!(invalid(&put(&database, "items", 5_000, ",\"x\":\"text\"")), "announced rules are obeyed");
    let rule = settled(&database);
    assert_eq!((rule.collection.as_str(), rule.kind, rule.state), ("items", "schema", ReadinessState::Ready));
    assert!(invalid(&put(&database, "items", 5_000, ",\"x\":\"text\"")));
    put(&database, "items", 5_000, ",\"x\":1").unwrap();
    check_clean(&database);
    drop(database);
    let database = open(folder.path(), &with_schema("x = { type = \"integer\" }"));
    assert_eq!(database.rules(), [], "it is in force");
    assert!(invalid(&put(&database, "items", 5_000, ",\"x\":\"text\"")));
}

#[test]
fn a_schema_that_documents_break_is_refused_by_their_keys_and_the_old_one_goes_on() {
    let folder = filled();
    let old = with_schema("x = { type = \"integer\" }");
    let new = with_schema("x = { type = \"integer\", maximum = 2987 }");
    let database = open(folder.path(), &old);
    settled(&database);
    drop(database);
    for _ in 0..2 {
        let database = open(folder.path(), &new);
        let ReadinessState::Refused(why) = settled(&database).state else { panic!("it is taken") };
        let keys: Vec<String> = (2988..2998).map(|id| format!("items/{id}")).collect();
        let told = format!("; 12 documents break it: {}, …", keys.join(", "));
        assert!(why.starts_with("the stored document items/2988: 2988 ") && why.ends_with(&told), "{why}");
        // The old rules apply unchanged.
        put(&database, "items", 6_000, ",\"x\":6000").unwrap();
        assert!(invalid(&put(&database, "items", 6_001, ",\"x\":\"text\"")));
        write(&database, "items", Op::Delete { key: key(6_000) }).unwrap();
        check_clean(&database);
    }
    let database = open(folder.path(), &new);
    database.wait_for_indexes();
    for id in 2988..DOCUMENTS {
        write(&database, "items", Op::Delete { key: key(id) }).unwrap();
    }
    drop(database);
    let database = open(folder.path(), &new);
    assert_eq!(settled(&database).state, ReadinessState::Ready);
    check_clean(&database);
}

#[test]
fn a_schema_that_takes_more_is_taken_at_once() {
    let folder = filled();
    let database = open(folder.path(), &with_schema("x = { type = \"integer\" }"));
    settled(&database);
    drop(database);
    let database = open(folder.path(), &with_schema("x = { type = [\"integer\", \"string\"] }"));
    assert_eq!(database.rules(), []);
    put(&database, "items", 5_000, ",\"x\":\"text\"").unwrap();
    drop(database);
    // Beside a field with a keyword that only the general checker knows.
    let with_tags =
        |types: &str| with_schema(&format!("x = {{ type = {types} }}\ntags = {{ items = {{ pattern = \"^a\" }} }}"));
    let database = open(folder.path(), &with_tags("[\"integer\", \"string\"]"));
    settled(&database);
    drop(database);
    let database = open(folder.path(), &with_tags("[\"integer\", \"string\", \"null\"]"));
    assert_eq!(database.rules(), []);
    put(&database, "items", 5_000, ",\"x\":null").unwrap();
    drop(database);
    // No schema at all.
    let database = open(folder.path(), ITEMS);
    assert_eq!(database.rules(), []);
    put(&database, "items", 5_000, ",\"x\":null").unwrap();
    check_clean(&database);
}

#[test]
fn a_schema_that_replaces_another_no_longer_heeds_that_one_when_it_is_in_force() {
    let folder = filled();
    let database = open(folder.path(), &with_schema("x = { type = \"integer\", maximum = 9999 }"));
    settled(&database);
    drop(database);
    let database = open(folder.path(), &with_schema("x = { type = \"integer\", minimum = 0 }"));
    if let Err(early) = put(&database, "items", 1, ",\"x\":10000") {
        let why = early.to_string();
        assert!(
            why.ends_with(
                "(by the schema in force; the new one replaces it when all stored documents are found to fit)"
            ),
            "{why}"
        );
    }
    assert_eq!(settled(&database).state, ReadinessState::Ready);
    put(&database, "items", 1, ",\"x\":10000").unwrap();
    assert!(invalid(&put(&database, "items", 1, ",\"x\":-1")));
    check_clean(&database);
}

#[test]
fn a_reference_comes_into_force_with_its_index_or_is_refused_by_who_dangles() {
    let folder = filled();
    let config = format!("{ITEMS}references = {{ owner = \"owners\" }}\n{OWNERS}");
    let database = open(folder.path(), &format!("{ITEMS}{OWNERS}"));
    (0..6).for_each(|id| put(&database, "owners", id, "").unwrap());
    drop(database);
    let database = open(folder.path(), &config);
    let rule = settled(&database);
    let ReadinessState::Refused(why) = rule.state else { panic!("it is taken") };
    assert_eq!((rule.kind, rule.field.as_deref()), ("reference", Some("owner")));
    let count = (0..DOCUMENTS).filter(|id| id % 7 == 6).count();
    let told = format!("; {count} documents break it: items/6, items/13, ");
    assert!(why.starts_with("the stored document items/6: \"owner\": there is no 6 in owners"), "{why}");
    assert!(why.contains(&told), "{why}");
    put(&database, "items", 5_000, ",\"owner\":99").unwrap();
    write(&database, "owners", Op::Delete { key: key(0) }).unwrap();
    check_clean(&database);
    write(&database, "items", Op::Delete { key: key(5_000) }).unwrap();
    (0..7).for_each(|id| put(&database, "owners", id, "").unwrap());
    drop(database);
    let database = open(folder.path(), &config);
    assert!(invalid(&put(&database, "items", 5_000, ",\"owner\":99")), "announced rules are obeyed");
    assert_eq!(settled(&database).state, ReadinessState::Ready);
    assert!(invalid(&put(&database, "items", 5_000, ",\"owner\":99")));
    let kept = write(&database, "owners", Op::Delete { key: key(0) });
    assert!(matches!(kept, Err(WriteError::Conflict { .. })), "{kept:?}");
    check_clean(&database);
    drop(database);
    let database = open(folder.path(), &config);
    assert_eq!(database.rules(), []);
    assert_eq!(database.catalog().collection("items").unwrap().references.len(), 1);
    let kept = write(&database, "owners", Op::Delete { key: key(0) });
    assert!(matches!(kept, Err(WriteError::Conflict { .. })), "{kept:?}");
}

#[test]
fn a_time_to_expire_is_looked_at_before_anything_goes_by_it() {
    let folder = filled();
    let expires = |field: &str| format!("{ITEMS}expire = \"{field}\"\n");
    let database = open(folder.path(), ITEMS);
    put(&database, "items", 1, ",\"until\":\"soon\"").unwrap();
    put(&database, "items", 2, ",\"until\":5").unwrap();
    drop(database);
    let database = open(folder.path(), &expires("until"));
    assert!(
        invalid(&put(&database, "items", 3, ",\"until\":\"later\""))
            || database.rules()[0].state != ReadinessState::Building(0)
    );
    let ReadinessState::Refused(why) = settled(&database).state else { panic!("it is taken") };
    assert!(why.starts_with("the stored document items/1: \"soon\" is no time (\"until\")"), "{why}");
    // If the checking thread was faster, this document is stored.
    put(&database, "items", 3, "").unwrap();
    assert_eq!(database.expiring(), [], "nothing goes by a rule that is refused");
    put(&database, "items", 1, ",\"until\":\"2100-01-01\"").unwrap();
    drop(database);
    let database = open(folder.path(), &expires("until"));
    assert_eq!(database.expiring(), []);
    assert_eq!(settled(&database).state, ReadinessState::Ready);
    drop(database);
    let database = open(folder.path(), &expires("until"));
    assert_eq!((database.rules(), database.expiring().len()), (vec![], 1));
    // Another field: the old rule applies meanwhile.
    drop(database);
    let database = open(folder.path(), &expires("x"));
    let expire = database.catalog().collection("items").unwrap().expire.clone();
    assert_eq!(expire.map(|expire| expire.field).as_deref(), Some("until"));
    assert_eq!(settled(&database).state, ReadinessState::Ready);
}
