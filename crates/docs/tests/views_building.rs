//! Views while they are built: concurrent writes are included, the old definition answers meanwhile, and the trees of
//! undeclared views are emptied.

use crate::service::{Service, config, open};
use docs::RuleState;
use docs::sql::{Budget, Scratch};
use docs::{DocumentDatabase, Op, Precondition, Write, config::Config};
use serde_json::{Value as Json, json};

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"i64\" }\n";
/// Both give the same rows, as each amount is 1.
const COUNTED: &str = "SELECT kind, COUNT(*) AS n FROM items GROUP BY kind";
const SUMMED: &str = "SELECT kind, SUM(amount) AS n FROM items GROUP BY kind";
/// Documents before the build: tried in order until a build is not finished before the first write.
const DOCUMENTS: [i64; 3] = [10_000, 60_000, 360_000];

fn with_view(query: &str) -> Config {
    let mut config = config(&format!("{ITEMS}[views.v]\nquery = \"{query}\"\n"));
    config.build_threads = 1;
    config
}

/// An item without its key.
fn item(id: i64) -> Json {
    json!({ "kind": id % 7, "amount": 1, "text": "some text that takes a while to walk over" })
}

fn fill(database: &DocumentDatabase, count: i64) {
    let line = |id: i64| {
        let mut item = item(id);
        item["id"] = json!(id);
        format!("{item}\n")
    };
    let lines: String = (0..count).map(line).collect();
    let read = Box::new(std::io::Cursor::new(lines));
    let input = docs::import::Input::Stream { name: "items".into(), read };
    let options = docs::import::ImportOptions { collection: Some("items".into()), ..Default::default() };
    database.import(vec![input], &options, &|_| {}).unwrap();
}

fn put(database: &DocumentDatabase, id: i64) {
    let collection = database.collection("items").unwrap();
    let key = docs::key::KeyType::I64.of_scalar(docs::order::Scalar::Integer(id)).unwrap().as_bytes().to_vec();
    let mut body = item(id);
    body["id"] = json!(id);
    let op = Op::Put { key, body: body.to_string().into_bytes() };
    database.write_now(&Write { collection, op, precondition: Precondition::None }).unwrap();
}

fn total(database: &DocumentDatabase) -> Json {
    let query = database.prepare_query("SELECT SUM(n) AS n FROM v").unwrap();
    let session = database.session().unwrap();
    let mut out = Vec::new();
    query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    serde_json::from_slice::<Json>(&out).unwrap()[0]["n"].clone()
}

fn is_building(database: &DocumentDatabase) -> bool {
    database.views().iter().any(|view| view.state == RuleState::Building)
}

/// Changes a view's definition over `documents` documents, and writes until it is built. Returns the number of concurrent
/// writes.
fn build_beside_writes(documents: i64) -> i64 {
    let service = Service::new(&with_view(COUNTED));
    fill(&service.database, documents);
    assert_eq!(total(&service.database), json!(documents));
    let Service { database, dir } = service;
    drop(database);
    let database = open(&with_view(SUMMED), dir.path());
    let mut beside = 0;
    while is_building(&database) {
        put(&database, documents + beside);
        beside += 1;
        assert_eq!(total(&database), json!(documents + beside), "behind {beside} writes beside the build");
    }
    database.wait_for_views();
    assert_eq!(total(&database), json!(documents + beside));
    let report = database.verify_view("v").unwrap().unwrap();
    assert!(report.is_clean(), "{report:?}");
    check_undeclared(database, dir);
    beside
}

/// The trees of undeclared views are empty.
fn check_undeclared(database: DocumentDatabase, dir: tempfile::TempDir) {
    drop(database);
    drop(open(&config(ITEMS), dir.path()));
    let (store, _) = docs::engine::Store::open(dir.path(), docs::engine::StoreOptions::default()).unwrap();
    let reader = store.reader().unwrap();
    let mut trees = 0;
    for number in 1..4 {
        for name in [format!("view/{number}"), format!("view-values/{number}")] {
            if let Some(tree) = store.existing_tree(&name).unwrap() {
                trees += 1;
                assert_eq!(reader.snapshot().first(tree, docs::engine::KeyRange::ALL).unwrap(), None, "{name}");
            }
        }
    }
    assert!(trees >= 2, "no view had trees of these names");
}

#[test]
fn writes_beside_a_build_are_in_the_view_and_the_old_definition_answers_meanwhile() {
    // At least two, as the last one may have come after the end of the build.
    assert!(DOCUMENTS.into_iter().any(|documents| build_beside_writes(documents) >= 2), "no write was beside a build");
}
