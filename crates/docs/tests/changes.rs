//! The changes of documents, as read by [`docs::changes::Changes`].

use docs::changes::DocumentChange;
use docs::config::Config;
use docs::key::KeyType;
use docs::{DocumentDatabase, Op, Precondition, Write};

const CONFIG: &str = "[collections.a]\nkey = { field = \"id\", type = \"u32\" }\nindexes = [[\"x\"]]\n\
    [collections.b]\nkey = { field = \"id\", type = \"string\" }\nunique = [\"y\"]\n\
    [views.v]\nquery = \"SELECT x, COUNT(*) AS n FROM a GROUP BY x\"\n";

fn open(folder: &std::path::Path) -> DocumentDatabase {
    let config = Config::parse("c.toml".as_ref(), CONFIG).expect("a config");
    DocumentDatabase::open(&config, folder, docs::engine::StoreOptions::default()).expect("it opens").0
}

fn write(database: &DocumentDatabase, collection: &str, op: Op) -> Write {
    Write { collection: database.collection(collection).expect("declared"), op, precondition: Precondition::None }
}

fn insert(database: &DocumentDatabase, collection: &str, body: &str) -> Write {
    write(database, collection, Op::Insert { body: body.as_bytes().to_vec() })
}

/// Checks all changes after a version, one line each. Transactions are renumbered from 1, because folds into views take change
/// numbers too.
#[track_caller]
fn check(database: &DocumentDatabase, since: u64, expected: &[&str]) {
    let mut changes = database.changes_since(since).expect("they are kept");
    let (mut lines, mut numbers) = (Vec::new(), vec![since]);
    let mut more = true;
    while more {
        let next = changes.next(|event| {
            let collection = &database.catalog().collections[event.collection.0].name;
            let end = if event.is_last { "" } else { " …" };
            assert!(event.change_number >= numbers[numbers.len() - 1]);
            numbers.push(event.change_number);
            numbers.dedup();
            let place = format!("{}/{}", numbers.len() - 1, event.number);
            lines.push(match &event.change {
                DocumentChange::Put { key, document } => {
                    format!("{place} {collection}/{key} {}{end}", String::from_utf8_lossy(document.text()))
                }
                DocumentChange::Delete { key } => format!("{place} {collection}/{key} gone{end}"),
                DocumentChange::Reset => format!("{place} {collection} reset{end}"),
            });
        });
        more = next.expect("the log is good");
    }
    assert_eq!(lines, expected);
}

#[test]
fn each_transaction_tells_its_documents_and_nothing_of_indexes_and_views() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = open(folder.path());
    let since = database.session().expect("a session").now().version();
    database.write_now(&insert(&database, "a", "{\"id\":1,\"x\":5}")).expect("written");
    let two = [insert(&database, "b", "{\"id\":\"k\",\"y\":1}"), insert(&database, "a", "{\"id\":2,\"x\":5}")];
    database.write_all(&two).expect("written");
    let key = KeyType::U32.of_text("1").expect("a key").as_bytes().to_vec();
    let patch = b"{\"x\":6}".to_vec();
    database.write_now(&write(&database, "a", Op::Update { key: key.clone(), patch })).expect("written");
    let third = database.session().expect("a session").now().version();
    database.write_now(&write(&database, "a", Op::Delete { key })).expect("written");
    let expected = [
        "1/0 a/1 {\"id\":1,\"x\":5}",
        "2/0 b/k {\"id\":\"k\",\"y\":1} …",
        "2/1 a/2 {\"id\":2,\"x\":5}",
        "3/0 a/1 {\"id\":1,\"x\":6}",
        "4/0 a/1 gone",
    ];
    check(&database, since, &expected);
    check(&database, third, &["1/0 a/1 gone"]);
}

#[test]
fn an_import_resets_its_collections() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = open(folder.path());
    let since = database.session().expect("a session").now().version();
    let file = folder.path().join("a.ndjson");
    std::fs::write(&file, "{\"id\":1}\n{\"id\":2}\n").expect("a file");
    let options =
        docs::import::ImportOptions { collection: Some("a".to_string()), ..docs::import::ImportOptions::default() };
    database.import(vec![docs::import::Input::File(file)], &options, &|_| {}).expect("imported");
    let changes = {
        let mut changes = database.changes_since(since).expect("kept");
        let mut resets = Vec::new();
        while changes
            .next(|event| resets.push((event.collection, matches!(event.change, DocumentChange::Reset))))
            .expect("good")
        {}
        resets
    };
    assert_eq!(changes, [(database.collection("a").expect("declared"), true)]);
}
