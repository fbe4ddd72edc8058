//! Fields that are unique together: `unique = [["tenant", "slug"]]`, with the guarantees of one unique field, compared with
//! SQLite's UNIQUE.

use docs::config::Config;
use docs::import::{ImportOptions, Input};
use docs::sql::{Budget, PreparedQuery, Scratch};
use docs::statements::Modification;
use docs::{DocumentDatabase, ReadinessState, WriteError};

use crate::service::{Service, config};
use docs::sql::NoRows;

const PAGES: &str = r#"
[collections.pages]
key = { field = "id", type = "i64" }
unique = ["code", ["tenant", "slug"]]
"#;

fn run(database: &DocumentDatabase, sql: &str) -> Result<u64, String> {
    let statement = Modification::prepare(sql, database.catalog()).map_err(|error| error.to_string())?;
    let done = database.modify(&statement, &[], &Budget::default(), &mut NoRows);
    done.map(|outcome| outcome.rows).map_err(|error| error.to_string())
}

fn all(database: &DocumentDatabase, sql: &str) -> String {
    let query = PreparedQuery::prepare(sql, database.catalog()).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let (session, mut out) = (database.session().unwrap(), Vec::new());
    query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn theirs(sqlite: &rusqlite::Connection) -> String {
    let rows = "SELECT json_group_array(json_object('id', id, 'code', code, 'tenant', tenant, 'slug', slug, 'n', n)) \
                FROM (SELECT * FROM pages ORDER BY id)";
    sqlite.query_row(rows, [], |row| row.get(0)).unwrap()
}

#[track_caller]
fn check_whole(database: &DocumentDatabase) {
    assert_eq!(docs::verify::database(database).unwrap().faults, [""; 0]);
}

#[test]
fn statements_meet_it_as_they_meet_sqlites() {
    let service = Service::new(&config(PAGES));
    let database = &service.database;
    let sqlite = rusqlite::Connection::open_in_memory().unwrap();
    sqlite
        .execute_batch(
            "CREATE TABLE pages (id INTEGER PRIMARY KEY, code UNIQUE, tenant, slug, n, UNIQUE (tenant, slug))",
        )
        .unwrap();
    for sql in [
        "INSERT INTO pages (id, code, tenant, slug, n) VALUES (1, 'a', 1, 'home', 0), (2, 'b', 1, 'about', 0), (3, 'c', 2, 'home', 0)",
        // The same pair, also with an equal number of another kind, and in other documents.
        "INSERT INTO pages (id, tenant, slug) VALUES (4, 1, 'home')",
        "INSERT INTO pages (id, tenant, slug) VALUES (4, 1.0, 'home')",
        "INSERT INTO pages (id, tenant, slug) VALUES (4, 3, 'x'), (5, 3, 'x')",
        // If one of them is NULL or missing, no conflict arises.
        "INSERT INTO pages (id, tenant, slug) VALUES (6, NULL, 'home'), (7, NULL, 'home'), (8, 1, NULL), (9, 1, NULL)",
        "INSERT INTO pages (id) VALUES (10), (11)",
        // The boundary between the two values matters.
        "INSERT INTO pages (id, tenant, slug) VALUES (12, 'ab', 'c'), (13, 'a', 'bc'), (14, '', 'abc'), (15, 'abc', '')",
        "INSERT INTO pages (id, tenant, slug) VALUES (16, 5, 5.5), (17, 5.5, 5)",
        "INSERT OR IGNORE INTO pages (id, tenant, slug, n) VALUES (20, 1, 'home', 9), (21, 4, 'new', 9)",
        "INSERT INTO pages (id, tenant, slug, n) VALUES (22, 1, 'about', 7) ON CONFLICT (tenant, slug) DO UPDATE SET n = n + excluded.n",
        "INSERT INTO pages (id, tenant, slug, n) VALUES (22, 1, 'about', 7) ON CONFLICT (slug, tenant) DO UPDATE SET n = n + excluded.n",
        "INSERT INTO pages (id, tenant, slug, n) VALUES (22, 2, 'home', 7) ON CONFLICT (slug, TENANT) DO NOTHING",
        // A conflict of another rule than the named one.
        "INSERT INTO pages (id, code, tenant, slug) VALUES (22, 'a', 9, 'nine') ON CONFLICT (tenant, slug) DO NOTHING",
        "INSERT INTO pages (id, code, tenant, slug) VALUES (1, 'z', 9, 'nine') ON CONFLICT (tenant, slug) DO NOTHING",
        "INSERT OR REPLACE INTO pages (id, code, tenant, slug, n) VALUES (30, 'c', 1, 'home', 1)",
        "REPLACE INTO pages (id, code, tenant, slug, n) VALUES (2, 'b', 4, 'new', 1)",
        "UPDATE pages SET slug = 'about' WHERE id = 30",
        "UPDATE pages SET slug = 'home', tenant = 'ab' WHERE id = 13",
        "UPDATE pages SET slug = 'c', tenant = 'ab' WHERE id = 13",
        "UPDATE pages SET tenant = NULL WHERE id = 12",
        "UPDATE pages SET slug = 'c', tenant = 'ab' WHERE id = 13",
        "DELETE FROM pages WHERE tenant = 'ab' AND slug = 'c'",
        "INSERT INTO pages (id, tenant, slug) VALUES (40, 'ab', 'c')",
    ] {
        let (ours, wanted) = (run(database, sql), sqlite.execute(sql, []));
        assert_eq!(ours.is_ok(), wanted.is_ok(), "{sql}: {ours:?}, SQLite: {wanted:?}");
        if let Ok(count) = ours {
            assert_eq!(count, wanted.unwrap() as u64, "{sql}");
        }
        let rows: Vec<serde_json::Value> =
            serde_json::from_str(&all(database, "SELECT id, code, tenant, slug, n FROM pages ORDER BY id")).unwrap();
        let wanted: Vec<serde_json::Value> = serde_json::from_str(&theirs(&sqlite)).unwrap();
        assert_eq!(rows, wanted, "after {sql}");
        check_whole(database);
    }
}

#[test]
fn a_refusal_names_the_fields() {
    let service = Service::new(&config(PAGES));
    let insert = |body: &str| service.run(&format!("insert pages {body}"));
    insert(r#"{"id":1,"tenant":1,"slug":"home"}"#).unwrap();
    let Err(WriteError::Conflict { what }) = insert(r#"{"id":2,"tenant":1,"slug":"home"}"#) else { panic!("stored") };
    assert_eq!(what, "another document of pages has this \"tenant\", \"slug\"");
    let long = format!(r#"{{"id":2,"tenant":"{0}","slug":"{0}"}}"#, "x".repeat(600));
    assert!(matches!(insert(&long), Err(WriteError::TooLarge { limit: 1024, .. })));
    insert(r#"{"id":2,"tenant":1}"#).unwrap();
    let Err(WriteError::Conflict { .. }) = service.run(r#"patch pages/2 {"slug":"home"}"#) else { panic!("stored") };
    for (target, why) in [
        ("(tenant, code)", "ON CONFLICT of \"tenant\", \"code\", which are not unique together"),
        ("(tenant)", "ON CONFLICT of \"tenant\", which is neither the key nor unique"),
    ] {
        let sql = format!("INSERT INTO pages (id) VALUES (3) ON CONFLICT {target} DO NOTHING");
        assert_eq!(run(&service.database, &sql).unwrap_err(), format!("line 1, column 48: {why}"));
    }
}

#[test]
fn both_values_find_the_document_at_once() {
    let service = Service::new(&config(PAGES));
    for id in 0..50 {
        service.run(&format!(r#"insert pages {{"id":{id},"tenant":{},"slug":"s{}"}}"#, id % 5, id / 5)).unwrap();
    }
    let plan = |sql: &str| PreparedQuery::prepare(sql, service.database.catalog()).unwrap().explain(&[]);
    let both = "SELECT id FROM pages WHERE slug = 's3' AND tenant = 2 AND id > 0";
    assert!(plan(both).contains("LOOKUP pages BY UNIQUE (tenant=?, slug=?)"), "{}", plan(both));
    assert_eq!(all(&service.database, both), "[{\"id\":17}]");
    assert_eq!(all(&service.database, "SELECT id FROM pages WHERE slug = 's3' AND tenant = NULL"), "[]");
    let one = "SELECT COUNT(*) AS n FROM pages WHERE tenant = 2";
    assert!(!plan(one).contains("UNIQUE"), "{}", plan(one));
    assert_eq!(all(&service.database, one), "[{\"n\":10}]");
    let list = "SELECT COUNT(*) AS n FROM pages WHERE tenant IN (2, 3)";
    assert_eq!(all(&service.database, list), "[{\"n\":20}]");
    let join = "SELECT b.id FROM pages a JOIN pages b ON b.tenant = a.tenant AND b.slug = 's1' WHERE a.id = 14";
    assert_eq!(all(&service.database, join), "[{\"id\":9}]");
}

#[test]
fn it_comes_into_force_beside_writes_or_is_refused_by_stored_documents() {
    let without = PAGES.replace(", [\"tenant\", \"slug\"]", "");
    let open = |text: &str, folder: &std::path::Path| {
        let mut config = config(text);
        config.builds_indexes_later = true;
        let database = DocumentDatabase::open(&config, folder, docs::engine::StoreOptions::default()).unwrap().0;
        database.wait_for_indexes();
        database
    };
    let folder = tempfile::tempdir().unwrap();
    let database = open(&without, folder.path());
    run(
        &database,
        "INSERT INTO pages (id, tenant, slug) VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'a'), (4, 1, NULL), (5, 1, NULL)",
    )
    .unwrap();
    drop(database);
    let database = open(PAGES, folder.path());
    let unique = &database.catalog().collections[0].unique[1];
    assert_eq!(unique.fields, ["tenant", "slug"]);
    let why = "\"tenant\", \"slug\" cannot be unique: pages/1 and pages/3 have the same value";
    assert_eq!(unique.readiness.state(), ReadinessState::Refused(why.to_owned()));
    run(&database, "INSERT INTO pages (id, tenant, slug) VALUES (6, 1, 'b')").unwrap();
    run(&database, "DELETE FROM pages WHERE id IN (3, 6)").unwrap();
    drop(database);
    let database = open(PAGES, folder.path());
    assert_eq!(database.catalog().collections[0].unique[1].readiness.state(), ReadinessState::Ready);
    run(&database, "INSERT INTO pages (id, tenant, slug) VALUES (6, 1, 'b')").unwrap_err();
    check_whole(&database);
    drop(database);
    // Another order is another rule, with another tree.
    let database = open(&PAGES.replace("[\"tenant\", \"slug\"]", "[\"slug\", \"tenant\"]"), folder.path());
    run(&database, "INSERT INTO pages (id, tenant, slug) VALUES (6, 1, 'b')").unwrap_err();
    check_whole(&database);
    drop(database);
    // An opening without a server builds the rule first, and reports why it cannot.
    let database = open(&without, folder.path());
    run(&database, "INSERT INTO pages (id, tenant, slug) VALUES (6, 1, 'b')").unwrap();
    drop(database);
    let refused = DocumentDatabase::open(&config(PAGES), folder.path(), docs::engine::StoreOptions::default())
        .map(drop)
        .unwrap_err();
    assert!(refused.to_string().contains("\"tenant\", \"slug\" cannot be unique: pages/2 and pages/6"), "{refused}");
}

#[test]
fn an_import_stops_at_the_second_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pages.ndjson");
    let lines = [
        r#"{"id":1,"tenant":1,"slug":"a"}"#,
        r#"{"id":2,"tenant":2,"slug":"a"}"#,
        r#"{"id":3,"tenant":1}"#,
        r#"{"id":4,"tenant":1}"#,
        r#"{"id":5,"tenant":1,"slug":"a"}"#,
    ];
    let import = |lines: &[&str]| {
        let service = Service::new(&config(PAGES));
        std::fs::write(&file, lines.join("\n")).unwrap();
        let options = ImportOptions { collection: Some("pages".to_owned()), ..ImportOptions::default() };
        let done = service.database.import(vec![Input::File(file.clone())], &options, &|_| {});
        check_whole(&service.database);
        done.map(drop).map_err(|error| error.to_string())
    };
    import(&lines[..4]).unwrap();
    let refused = import(&lines).unwrap_err();
    assert!(refused.contains("\"tenant\", \"slug\" has the same value as in the document 1"), "{refused}");
}

#[test]
fn the_file_says_it_by_lists_among_the_names() {
    let parse = |unique: &str| {
        let text = format!("[collections.c]\nkey = {{ field = \"id\", type = \"u32\" }}\nunique = {unique}\n");
        Config::parse("c.toml".as_ref(), &text).map(|config| config.collections[0].unique.clone())
    };
    assert_eq!(parse("[\"a\", [\"b\", \"c\"], [\"d\"]]").unwrap(), [vec!["a"], vec!["b", "c"], vec!["d"]]);
    assert_eq!(parse("[[\"a\", \"b\"], [\"a\", \"c\"], \"a\"]").unwrap(), [vec!["a", "b"], vec!["a", "c"], vec!["a"]]);
    for (unique, why) in [
        ("[\"a\", [\"a\"]]", "`a` is listed twice"),
        ("[[\"a\", \"b\"], [\"b\", \"a\"]]", "`collections.c.unique[1]` is listed twice"),
        ("[[\"a\", \"a\"]]", "`a` is listed twice"),
        ("[[]]", "`collections.c.unique[0]` has 0 fields"),
        ("[1]", "allowed: a field, or a list of fields that are unique together"),
        ("[[\"a\", 1]]", "`collections.c.unique[0][1]` is an integer"),
        ("[[\"a.b\", \"c\"]]", "`a.b` looks like a path"),
        ("\"a\"", "`collections.c.unique` is a string; allowed: a list in brackets"),
    ] {
        let mistakes = parse(unique).expect_err(unique).to_string();
        assert!(mistakes.contains(why), "{unique}: {mistakes}");
    }
}
