//! Opening a directory again with the same or another configuration.

use crate::service::{CONFIG, Service, config, open, travels, user, visit};
use docs::config::Config;
use docs::{DatabaseOpenError, DocumentDatabase};

fn filled() -> Service {
    let service = Service::new(&travels());
    for id in 1..=30 {
        service.run(&format!("insert users {}", user(id, &format!("u{id}@x")))).unwrap();
        service.run(&format!(r#"insert locations {{"id":{id},"place":"p{}"}}"#, id % 3)).unwrap();
    }
    for id in 1..=30 {
        service.run(&format!("insert visits {}", visit(id, id, 31 - id, i64::from(id % 4)))).unwrap();
    }
    service
}

fn again(service: Service, config: &Config) -> Result<Service, String> {
    let Service { database, dir } = service;
    drop(database);
    match DocumentDatabase::open(config, dir.path(), docs::engine::StoreOptions::default()) {
        Ok((database, _)) => Ok(Service { database, dir }),
        Err(DatabaseOpenError::Mismatch(what)) => Err(what),
        Err(other) => panic!("{other}"),
    }
}

#[track_caller]
fn clean(service: &Service, entries: u64) {
    let report = docs::verify::database(&service.database).unwrap();
    assert_eq!(report.faults, [""; 0]);
    assert_eq!((report.documents, report.entries), (90, entries));
}

/// The configuration with one text replaced by another.
fn changed(from: &str, to: &str) -> Config {
    assert!(CONFIG.contains(from));
    config(&CONFIG.replacen(from, to, 1))
}

#[test]
fn what_was_written_is_there_and_goes_on() {
    let service = again(filled(), &travels()).unwrap();
    clean(&service, 90);
    service.run(r#"update users/1 {"email":"new@x"}"#).unwrap();
    clean(&again(service, &travels()).unwrap(), 90);
}

#[test]
fn an_index_that_is_to_carry_other_fields_is_built_again() {
    let mut wanted = travels();
    wanted.include("visits", &["location".into()], &["mark".into()]);
    let service = again(filled(), &wanted).unwrap();
    clean(&service, 90);
    service.run(r#"update visits/3 {"mark":1}"#).unwrap();
    clean(&service, 90);
    let service = again(service, &config(CONFIG)).unwrap();
    clean(&service, 90);
    clean(&again(service, &wanted).unwrap(), 90);
}

#[test]
fn new_indexes_and_unique_fields_are_built_and_old_ones_go() {
    let more = changed("[collections.locations]\nkey", "[collections.locations]\nindexes = [[\"place\"]]\nkey");
    let service = again(filled(), &more).unwrap();
    clean(&service, 120);
    let service = again(service, &travels()).unwrap();
    clean(&service, 90);
    service.run(r#"update locations/3 {"place":"elsewhere"}"#).unwrap();
    clean(&again(service, &more).unwrap(), 120);
    let unique = changed("[collections.locations]\nkey", "[collections.locations]\nunique = [\"place\"]\nkey");
    let refused = again(filled(), &unique).err().unwrap();
    assert_eq!(refused, "\"place\" cannot be unique: locations/3 and locations/6 have the same value");
}

#[test]
fn documents_that_do_not_fit_the_new_configuration_are_told() {
    let tight = changed("maximum = 5", "maximum = 2");
    let refused = again(filled(), &tight).err().unwrap();
    assert_eq!(
        refused,
        "the stored document visits/1 does not fit the configuration's schema: 3 does not fit \"mark\": integer, at least 0, at most 2"
    );
    let other = changed(
        "[collections.locations]\nkey = { field = \"id\", type = \"u32\" }",
        "[collections.locations]\nkey = { field = \"id\", type = \"i64\" }",
    );
    assert!(again(filled(), &other).err().unwrap().starts_with("the documents of locations were stored with the key"));
    let refers =
        changed("[collections.locations]\nkey", "[collections.locations]\nreferences = { place = \"users\" }\nkey");
    assert_eq!(
        again(filled(), &refers).err().unwrap(),
        "the stored document locations/1: \"place\": \"p1\" is no key of users (type u32)"
    );
}

#[test]
fn a_collection_that_was_away_comes_back_checked() {
    let without: String = CONFIG.split("[collections.visits]").next().unwrap().to_string();
    let service = again(filled(), &config(&without)).unwrap();
    service.run("delete users/7").unwrap();
    let refused = again(service, &travels()).err().unwrap();
    assert_eq!(refused, "\"user\" cannot refer to users: visits/7 refers to a document that is not there");
}

#[test]
fn a_refused_configuration_leaves_the_database_as_it_was() {
    let service = filled();
    let Service { database, dir } = service;
    drop(database);
    let tight = changed("maximum = 5", "maximum = 2");
    assert!(DocumentDatabase::open(&tight, dir.path(), docs::engine::StoreOptions::default()).is_err());
    let database = open(&travels(), dir.path());
    clean(&Service { database, dir }, 90);
}

/// A crash after the step that marks an index's tree to be emptied, and before the index's row is removed, leaves both rows.
#[test]
fn an_index_whose_tree_is_to_be_emptied_is_built_anew_when_it_is_declared_again() {
    let service = filled();
    let Service { database, dir } = service;
    // The trees as of the last checkpoint.
    database.store().checkpoint().unwrap();
    let trees = database.store().stat().report.trees;
    let mut names = trees.into_iter().filter_map(|tree| tree.info.name);
    let tree = names.find(|name| name.starts_with("index/visits")).unwrap();
    drop(database);
    let (store, _) = docs::engine::Store::open(dir.path(), docs::engine::StoreOptions::default()).unwrap();
    let catalog = store.tree("catalog").unwrap();
    store
        .commit(&mut |tx| {
            tx.put(catalog, format!("drop/{tree}").as_bytes(), b"{}");
            Ok(())
        })
        .unwrap();
    drop(store);
    let (database, _) = DocumentDatabase::open(&travels(), dir.path(), docs::engine::StoreOptions::default()).unwrap();
    let service = Service { database, dir };
    clean(&service, 90);
    clean(&again(service, &travels()).unwrap(), 90);
}
