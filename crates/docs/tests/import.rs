//! Imports: formats, reports of bad records, the state after a stopped import, collections that have documents.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use crate::lives;
use crate::service::{Service, config, travels, user, visit};
use crate::simulation::content::Files as DiskFiles;
use crate::simulation::disk::{Fault, FaultPlan, SimulatedDisk};
use docs::WriteError;
use docs::import::{ImportError, Input, OnError, Options, Report};
use tempfile::TempDir;

struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Files {
        Files { dir: tempfile::tempdir().unwrap() }
    }

    fn add(&self, name: &str, text: &str) -> Input {
        let path = self.dir.path().join(name);
        fs::write(&path, text).unwrap();
        Input::File(path)
    }

    fn zip(&self, name: &str, entries: &[(&str, String)]) -> Input {
        let path: PathBuf = self.dir.path().join(name);
        let mut writer = zip::ZipWriter::new(fs::File::create(&path).unwrap());
        for (name, text) in entries {
            writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        writer.finish().unwrap();
        Input::File(path)
    }
}

fn import(service: &Service, inputs: Vec<Input>, options: &Options) -> Result<Report, String> {
    service.database.import(inputs, options, &|_| {}).map_err(|error| match error {
        ImportError::Record(bad) => {
            format!("{}: {}", bad.file.rsplit('/').next().unwrap(), bad).replace(&bad.file, "@")
        }
        ImportError::File { file, why } => format!("{}: {why}", file.rsplit('/').next().unwrap()),
        other => other.to_string(),
    })
}

fn skip() -> Options {
    Options { on_error: OnError::Skip, ..Options::default() }
}

fn into(collection: &str) -> Options {
    Options { collection: Some(collection.to_string()), ..Options::default() }
}

fn array(name: &str, records: &[String]) -> String {
    format!("{{\"{name}\": [{}]}}", records.join(", "))
}

#[track_caller]
fn clean(service: &Service, documents: u64) {
    let report = docs::verify::database(&service.database).unwrap();
    assert_eq!(report.faults, [""; 0]);
    assert_eq!(report.documents, documents);
}

fn big() -> Vec<(&'static str, String)> {
    let users: Vec<String> = (0..3000).map(|id| user(id, &format!("u{id}@x"))).collect();
    let locations: Vec<String> = (0..2000).map(|id| format!(r#"{{"id":{id},"place":"Мост {id}"}}"#)).collect();
    let visits: Vec<String> =
        (0..20_000u32).map(|id| visit(id, id * 7 % 3000, id * 13 % 2000, i64::from(id % 97))).collect();
    let mut entries = vec![
        ("visits_2.json", array("visits", &visits[9000..])),
        ("users_1.json", array("users", &users)),
        ("visits_1.json", array("visits", &visits[..9000])),
        ("locations_1.json", array("locations", &locations)),
    ];
    entries.push(("options.txt", "1\n0\n".to_string()));
    entries
}

#[test]
fn an_archive_fills_empty_collections_with_indexes_and_all() {
    let files = Files::new();
    let service = Service::new(&travels());
    let report = import(&service, vec![files.zip("data.zip", &big())], &Options::default()).unwrap();
    assert_eq!((report.documents, report.skipped), (25_000, 0));
    clean(&service, 25_000);
    assert_eq!(service.get("users/17").unwrap().1, user(17, "u17@x"));
    assert!(service.refused("delete users/14").starts_with("409"));
    service.run(r#"update visits/7 {"user":1,"mark":5}"#).unwrap();
    service.run(&format!("insert users {}", user(5000, "new@x"))).unwrap();
    clean(&service, 25_001);
    let dir = service.dir;
    drop(service.database);
    let database = crate::service::open(&travels(), dir.path());
    clean(&Service { database, dir }, 25_001);
}

#[test]
fn arrays_lines_and_streams_go_where_they_are_sent() {
    let files = Files::new();
    let service = Service::new(&travels());
    let lines = format!("{}\n\n{}\n", user(1, "a@x"), user(2, "b@x"));
    import(&service, vec![files.add("u.ndjson", &lines)], &into("users")).unwrap();
    import(&service, vec![files.add("l.json", r#"[{"id":1},{"id":2}]"#)], &into("locations")).unwrap();
    let stream =
        |text: String| Input::Stream { name: "standard input".into(), read: Box::new(std::io::Cursor::new(text)) };
    import(&service, vec![stream(array("visits", &[visit(1, 1, 1, 5)]))], &Options::default()).unwrap();
    import(&service, vec![stream(format!("{}\n", visit(2, 2, 2, 5)))], &into("visits")).unwrap();
    clean(&service, 6);
    let refused = import(&service, vec![files.add("x.json", "[{\"id\":1}]")], &Options::default()).unwrap_err();
    assert_eq!(refused, "x.json: the records stand in no named array: name their collection by --collection");
    let refused = import(&service, vec![files.add("x.json", "{\"cities\":[1]}")], &Options::default()).unwrap_err();
    assert_eq!(refused, "x.json: there is no collection \"cities\"; there are: locations, users, visits");
    assert!(
        import(&service, vec![files.add("x.zip", "no zip")], &Options::default()).unwrap_err().starts_with("x.zip: ")
    );
    assert!(
        import(&service, vec![Input::File("missing.json".into())], &Options::default())
            .unwrap_err()
            .starts_with("missing.json: ")
    );
}

#[track_caller]
fn check_bad(collection: &str, name: &str, text: &str, expected: &str, kept: u64) {
    let files = Files::new();
    let service = Service::new(&travels());
    let refused = import(&service, vec![files.add(name, text)], &into(collection)).unwrap_err();
    assert_eq!(refused, expected, "{text}");
    clean(&service, 0);
    let report =
        import(&service, vec![files.add(name, text)], &Options { collection: Some(collection.into()), ..skip() });
    let report = report.unwrap();
    assert_eq!((report.skipped, report.documents), (1, kept), "{text}");
    assert_eq!(report.told.len(), 1);
    clean(&service, kept);
}

#[test]
fn a_bad_record_is_named_by_file_and_place_and_leaves_nothing_or_is_skipped() {
    let two = |bad: &str| format!("{}\n{bad}\n{}\n", user(1, "a@x"), user(3, "c@x"));
    check_bad("users", "u.ndjson", &two("{\"id\":}"), "u.ndjson: @, line 2: unexpected character at byte 6", 2);
    check_bad(
        "users",
        "u.ndjson",
        &two("{\"id\":2}"),
        "u.ndjson: @, line 2: /email: the field \"email\" is missing",
        2,
    );
    let again = user(1, "b@x");
    let told = "u.ndjson: @, line 2: the key 1 is there already: @, line 1";
    check_bad("users", "u.ndjson", &two(&again), told, 2);
    let text = array("users", &[user(1, "a@x"), user(2, "b@x").replace("\"f\"", "1")]);
    let told = "u.json: @, byte 64: /gender: 1 does not fit \"gender\": one of \"m\", \"f\"";
    check_bad("users", "u.json", &text, told, 1);
}

#[test]
fn faults_between_records_stop_the_import_and_leave_nothing() {
    let files = Files::new();
    let service = Service::new(&travels());
    let twice = format!("{}\n{}\n", user(1, "a@x"), user(2, "a@x"));
    let refused =
        import(&service, vec![files.add("u.ndjson", &twice)], &Options { collection: Some("users".into()), ..skip() });
    let told = "u.ndjson: @, line 2: \"email\" has the same value as in the document 1 (@, line 1)";
    assert_eq!(refused.unwrap_err(), told);
    let users = files.add("u.json", &array("users", &[user(1, "a@x")]));
    let visits = files.add("v.json", &array("visits", &[visit(1, 1, 7, 5)]));
    let refused = import(&service, vec![users, visits], &Options::default()).unwrap_err();
    assert_eq!(refused, "v.json: @, byte 12: \"location\": there is no 7 in locations");
    clean(&service, 0);
    let good = vec![
        files.add("u.json", &array("users", &[user(1, "a@x")])),
        files.add("v.json", &array("visits", &[visit(1, 1, 7, 5)])),
        files.add("l.json", &array("locations", &[r#"{"id":7}"#.to_string()])),
    ];
    import(&service, good, &Options::default()).unwrap();
    clean(&service, 3);
}

#[test]
fn an_import_into_collections_with_documents_adds_to_them() {
    let files = Files::new();
    let service = Service::new(&travels());
    import(&service, vec![files.zip("data.zip", &big())], &Options::default()).unwrap();
    let more = || {
        vec![
            files.add("v.json", &array("visits", &[visit(50_000, 9000, 9000, 5), visit(50_001, 1, 1, 5)])),
            files.add("l.json", &array("locations", &[r#"{"id":9000}"#.to_string()])),
            files.add("u.json", &array("users", &[user(9000, "n@x"), user(3, "x@x"), user(9001, "u5@x")])),
        ]
    };
    let refused = import(&service, more(), &Options::default()).unwrap_err();
    assert_eq!(refused, "u.json: @, byte 67: the key 3 is in use in users; `--on-error skip` passes over such records");
    let report = import(&service, more(), &skip()).unwrap();
    assert_eq!(report.skipped, 3, "{:?}", report.told);
    clean(&service, 25_004);
}

#[test]
fn an_import_without_records_changes_nothing() {
    let files = Files::new();
    let service = Service::new(&travels());
    let report = import(&service, vec![files.add("e.json", "{}"), files.add("f.ndjson", "")], &into("users")).unwrap();
    assert_eq!((report.documents, report.skipped), (0, 0));
    clean(&service, 0);
}

#[test]
fn a_collection_that_was_emptied_is_filled_again() {
    let files = Files::new();
    let service = Service::new(&travels());
    let data = || files.add("u.json", &array("users", &[user(1, "a@x"), user(2, "b@x")]));
    import(&service, vec![data()], &Options::default()).unwrap();
    service.run("delete users/1").unwrap();
    service.run("delete users/2").unwrap();
    import(&service, vec![data()], &Options::default()).unwrap();
    clean(&service, 2);
    let (number, _) = service.get("users/1").unwrap();
    service.run("delete users/1").unwrap();
    service.run("delete users/2").unwrap();
    service.database.store().checkpoint().unwrap();
    import(&service, vec![data()], &Options::default()).unwrap();
    clean(&service, 2);
    assert!(service.get("users/1").unwrap().0 > number, "an ETag is never given twice");
}

/// Imports users, one per line in this order of ids, into an empty collection: the first record of each id is stored, and the
/// others are reported as `told`.
#[track_caller]
fn check_order(ids: &[u32], told: &[&str]) {
    let files = Files::new();
    let service = Service::new(&travels());
    let text: String = ids.iter().enumerate().map(|(line, &id)| user(id, &format!("u{line}@x")) + "\n").collect();
    assert!(text.len() > 2 * docs::import::BATCH_BYTES, "all in {} bytes", text.len());
    let options = Options { on_error: OnError::Skip, ..into("users") };
    let report = import(&service, vec![files.add("u.ndjson", &text)], &options).unwrap();
    let mut first = std::collections::BTreeMap::new();
    for (line, &id) in ids.iter().enumerate() {
        first.entry(id).or_insert(line);
    }
    assert_eq!((report.documents, report.skipped), (first.len() as u64, (ids.len() - first.len()) as u64));
    let path = files.dir.path().join("u.ndjson").display().to_string();
    assert_eq!(report.told.iter().map(|bad| bad.to_string().replace(&path, "@")).collect::<Vec<_>>(), told);
    clean(&service, first.len() as u64);
    for (id, line) in first.iter().step_by(97) {
        assert_eq!(service.get(&format!("users/{id}")).unwrap().1, user(*id, &format!("u{line}@x")));
    }
}

#[test]
fn records_in_any_order_give_the_same_documents_and_indexes() {
    let rising: Vec<u32> = (1..=20_000).collect();
    check_order(&rising, &[]);
    check_order(&rising.iter().rev().copied().collect::<Vec<_>>(), &[]);
    // Some records out of order, in the middle and at the end.
    let mut late = rising.clone();
    late.swap(10, 11);
    late.rotate_left(5_000);
    check_order(&late, &[]);
    check_order(&(0..20_000).map(|place| place * 7_919 % 20_011).collect::<Vec<_>>(), &[]);
}

#[test]
fn of_records_with_one_key_the_first_is_kept_in_any_order() {
    let rising: Vec<u32> = (1..=20_000).collect();
    let mut again = rising.clone();
    again.extend([20_000, 7, 20_001, 7]);
    check_order(
        &again,
        &[
            "@, line 20002: the key 7 is there already: @, line 7",
            "@, line 20004: the key 7 is there already: @, line 7",
            "@, line 20001: the key 20000 is there already: @, line 20000",
        ],
    );
    // The first record of a key counts even if it was out of order.
    let mut late = rising;
    late.splice(9_000..9_000, [100_000, 50_000]);
    late.push(50_000);
    check_order(&late, &["@, line 20003: the key 50000 is there already: @, line 9002"]);
}

#[test]
fn an_import_by_transactions_whose_sync_fails_says_that_nobody_knows_what_of_the_last_is_there() {
    let disk = std::sync::Arc::new(SimulatedDisk::powered(&DiskFiles::new(), u64::MAX));
    let items = config("[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n");
    let database = lives::open_powered(&disk, &items).unwrap();
    let import = |text: &'static str| {
        let input = Input::Stream { name: "items".to_string(), read: Box::new(text.as_bytes()) };
        database.import(vec![input], &into("items"), &|_| {})
    };
    import("{\"id\":1}\n").unwrap();
    // Operations: the log is written, then synced.
    disk.set_plan(Some(FaultPlan { fault: Fault::Broken, at: disk.operations() + 1, count: u64::MAX }));
    let outcome = import("{\"id\":2}\n{\"id\":3}\n");
    assert!(matches!(outcome, Err(ImportError::Write(WriteError::Unknown { .. }))), "{outcome:?}");
}

/// With one thread, the panicking encoder is the only consumer of the reader's queue.
#[test]
fn an_import_of_which_a_thread_panics_ends_with_an_error_and_changes_nothing() {
    for threads in [1, 3] {
        let service = Service::new(&config("[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n"));
        let database = service.database.clone();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let text: String = (0..200_000).map(|id| format!("{{\"id\":{id},\"text\":\"{id:0100}\"}}\n")).collect();
            let read = Box::new(std::io::Cursor::new(text));
            let input = Input::Stream { name: "items".to_string(), read };
            let options = Options { threads, ..into("items") };
            tell.send(database.import(vec![input], &options, &|_| panic!("as a test wants it")).map(drop))
        });
        let ended = told.recv_timeout(std::time::Duration::from_secs(30)).expect("the import hangs, or panicked");
        assert!(ended.as_ref().is_err_and(|error| error.to_string().contains("as a test wants it")), "{ended:?}");
        clean(&service, 0);
    }
}
