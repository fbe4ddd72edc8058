//! Imports: formats, reports of bad records, the state after a stopped import, collections that have documents.

use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;

use crate::lives;
use crate::service::{Service, config, travels, user, visit};
use crate::simulation::content::Files as DiskFiles;
use crate::simulation::disk::{Fault, FaultPlan, SimulatedDisk};
use docs::WriteError;
use docs::import::{ImportError, ImportOptions, ImportReport, Input, OnError, RecordFormat, SampledRecord};
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

fn import(service: &Service, inputs: Vec<Input>, options: &ImportOptions) -> Result<ImportReport, String> {
    service.database.import(inputs, options, &|_| {}).map_err(|error| match error {
        ImportError::Record(bad) => {
            format!("{}: {}", bad.file.rsplit('/').next().unwrap(), bad).replace(&bad.file, "@")
        }
        ImportError::File { file, why } => format!("{}: {why}", file.rsplit('/').next().unwrap()),
        other => other.to_string(),
    })
}

fn skip() -> ImportOptions {
    ImportOptions { on_error: OnError::Skip, ..ImportOptions::default() }
}

fn into(collection: &str) -> ImportOptions {
    ImportOptions { collection: Some(collection.to_string()), ..ImportOptions::default() }
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
    let report = import(&service, vec![files.zip("data.zip", &big())], &ImportOptions::default()).unwrap();
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
fn a_reference_to_an_expired_document_is_refused_whether_that_is_stored_or_comes_along() {
    let text = "[collections.sessions]\nkey = { field = \"id\", type = \"string\" }\nexpire = \"until\"\n\
                [collections.carts]\nkey = { field = \"id\", type = \"u32\" }\nreferences = { session = \"sessions\" }\n";
    let session = |id: &str, until: u64| format!("{{\"id\":\"{id}\",\"until\":{until}}}");
    let cart = |session: &str| vec![format!("{{\"id\":1,\"session\":\"{session}\"}}")];
    let sessions = [session("new", 1 << 40), session("old", 1)];
    for comes_along in [false, true] {
        for (id, is_expired) in [("old", true), ("new", false)] {
            let (files, service) = (Files::new(), Service::new(&config(text)));
            let mut archive = vec![("carts_1.json", array("carts", &cart(id)))];
            if comes_along {
                archive.push(("sessions_1.json", array("sessions", &sessions)));
            } else {
                import(&service, vec![files.add("s.json", &array("sessions", &sessions))], &ImportOptions::default())
                    .unwrap();
            }
            let done = import(&service, vec![files.zip("data.zip", &archive)], &ImportOptions::default());
            if is_expired {
                let refused = done.unwrap_err();
                assert!(refused.contains("\"session\": there is no old in sessions"), "{refused}");
            } else {
                done.unwrap();
            }
        }
    }
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
    import(&service, vec![stream(array("visits", &[visit(1, 1, 1, 5)]))], &ImportOptions::default()).unwrap();
    import(&service, vec![stream(format!("{}\n", visit(2, 2, 2, 5)))], &into("visits")).unwrap();
    clean(&service, 6);
    let refused = import(&service, vec![files.add("x.json", "[{\"id\":1}]")], &ImportOptions::default()).unwrap_err();
    assert_eq!(refused, "x.json: the file names no collection for its records: name one with --collection");
    let refused =
        import(&service, vec![files.add("x.json", "{\"cities\":[1]}")], &ImportOptions::default()).unwrap_err();
    assert_eq!(refused, "x.json: there is no collection \"cities\"; there are: locations, users, visits");
    assert!(
        import(&service, vec![files.add("x.zip", "no zip")], &ImportOptions::default())
            .unwrap_err()
            .starts_with("x.zip: ")
    );
    assert!(
        import(&service, vec![Input::File("missing.json".into())], &ImportOptions::default())
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
        import(&service, vec![files.add(name, text)], &ImportOptions { collection: Some(collection.into()), ..skip() });
    let report = report.unwrap();
    assert_eq!((report.skipped, report.documents), (1, kept), "{text}");
    assert_eq!(report.listed.len(), 1);
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
    let refused = import(
        &service,
        vec![files.add("u.ndjson", &twice)],
        &ImportOptions { collection: Some("users".into()), ..skip() },
    );
    let told = "u.ndjson: @, line 2: \"email\" has the same value as in the document 1 (@, line 1)";
    assert_eq!(refused.unwrap_err(), told);
    let users = files.add("u.json", &array("users", &[user(1, "a@x")]));
    let visits = files.add("v.json", &array("visits", &[visit(1, 1, 7, 5)]));
    let refused = import(&service, vec![users, visits], &ImportOptions::default()).unwrap_err();
    assert_eq!(refused, "v.json: @, byte 12: \"location\": there is no 7 in locations");
    clean(&service, 0);
    let good = vec![
        files.add("u.json", &array("users", &[user(1, "a@x")])),
        files.add("v.json", &array("visits", &[visit(1, 1, 7, 5)])),
        files.add("l.json", &array("locations", &[r#"{"id":7}"#.to_string()])),
    ];
    import(&service, good, &ImportOptions::default()).unwrap();
    clean(&service, 3);
}

#[test]
fn an_import_into_collections_with_documents_adds_to_them() {
    let files = Files::new();
    let service = Service::new(&travels());
    import(&service, vec![files.zip("data.zip", &big())], &ImportOptions::default()).unwrap();
    let more = || {
        vec![
            files.add("v.json", &array("visits", &[visit(50_000, 9000, 9000, 5), visit(50_001, 1, 1, 5)])),
            files.add("l.json", &array("locations", &[r#"{"id":9000}"#.to_string()])),
            files.add("u.json", &array("users", &[user(9000, "n@x"), user(3, "x@x"), user(9001, "u5@x")])),
        ]
    };
    let refused = import(&service, more(), &ImportOptions::default()).unwrap_err();
    assert_eq!(refused, "u.json: @, byte 67: the key 3 is in use in users; `--on-error skip` passes over such records");
    let report = import(&service, more(), &skip()).unwrap();
    assert_eq!(report.skipped, 3, "{:?}", report.listed);
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
    import(&service, vec![data()], &ImportOptions::default()).unwrap();
    service.run("delete users/1").unwrap();
    service.run("delete users/2").unwrap();
    import(&service, vec![data()], &ImportOptions::default()).unwrap();
    clean(&service, 2);
    let (number, _) = service.get("users/1").unwrap();
    service.run("delete users/1").unwrap();
    service.run("delete users/2").unwrap();
    service.database.store().checkpoint().unwrap();
    import(&service, vec![data()], &ImportOptions::default()).unwrap();
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
    let options = ImportOptions { on_error: OnError::Skip, ..into("users") };
    let report = import(&service, vec![files.add("u.ndjson", &text)], &options).unwrap();
    let mut first = std::collections::BTreeMap::new();
    for (line, &id) in ids.iter().enumerate() {
        first.entry(id).or_insert(line);
    }
    assert_eq!((report.documents, report.skipped), (first.len() as u64, (ids.len() - first.len()) as u64));
    let path = files.dir.path().join("u.ndjson").display().to_string();
    assert_eq!(report.listed.iter().map(|bad| bad.to_string().replace(&path, "@")).collect::<Vec<_>>(), told);
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
            let options = ImportOptions { threads, ..into("items") };
            tell.send(database.import(vec![input], &options, &|_| panic!("as a test wants it")).map(drop))
        });
        let ended = told.recv_timeout(std::time::Duration::from_secs(30)).expect("the import hangs, or panicked");
        assert!(ended.as_ref().is_err_and(|error| error.to_string().contains("as a test wants it")), "{ended:?}");
        clean(&service, 0);
    }
}

const TABLES: &str = r#"
[collections.goods]
key = { field = "sku", type = "string" }
unique = ["code"]
[collections.goods.schema]
type = "object"
additionalProperties = false
required = ["sku", "price", "note"]
[collections.goods.schema.properties]
sku = { type = "string" }
price = { type = "number", minimum = 0 }
count = { type = "integer" }
new = { type = "boolean" }
tags = { type = "array" }
note = { type = ["string", "null"] }
code = { type = ["integer", "string"] }

[collections.others]
key = { field = "id", type = "u32" }
"#;

#[test]
fn a_table_becomes_documents_by_the_types_of_the_schema() {
    let files = Files::new();
    let service = Service::new(&config(TABLES));
    let text = "\u{feff}sku,price,\"count\",new,tags,note,code\r\n\
        007,9.50,3,TRUE,\"[\"\"a\"\",1]\",\"a, \"\"b\"\"\nc\",5\r\n\
        008,1e2,,,,,\"6\"\r\n\r\n\
        009,0,,false,,\"\",";
    let report = import(&service, vec![files.add("goods.csv", text)], &into("goods")).unwrap();
    assert_eq!((report.documents, report.skipped), (3, 0));
    let text = |key: &str| service.get(&format!("goods/{key}")).unwrap().1;
    let first = r#"{"sku":"007","price":9.50,"count":3,"new":true,"tags":["a",1],"note":"a, \"b\"\nc","code":5}"#;
    assert_eq!(text("007"), first);
    assert_eq!(text("008"), r#"{"sku":"008","price":1e2,"note":null,"code":"6"}"#);
    assert_eq!(text("009"), r#"{"sku":"009","price":0,"new":false,"note":""}"#);
    // Without a schema all but the key is text.
    import(&service, vec![files.add("others.tsv", "n\tid\n\"1\t2\"\t7\n03\t8\n")], &into("others")).unwrap();
    assert_eq!(service.get("others/7").unwrap().1, r#"{"n":"1\t2","id":7}"#);
    assert_eq!(service.get("others/8").unwrap().1, r#"{"n":"03","id":8}"#);
    clean(&service, 5);
}

#[test]
fn a_table_is_read_from_an_archive_and_from_a_stream_too() {
    let files = Files::new();
    let service = Service::new(&config(TABLES));
    let entries = [("others.csv", "id\n1\n2\n".to_string()), ("remarks.txt", "id\n".to_string())];
    import(&service, vec![files.zip("data.zip", &entries)], &into("others")).unwrap();
    let read = Box::new(std::io::Cursor::new("id\n3\n"));
    let stream = Input::Stream { name: "standard input".into(), read };
    let options = ImportOptions { format: Some(RecordFormat::Csv), ..into("others") };
    import(&service, vec![stream], &options).unwrap();
    clean(&service, 3);
}

#[test]
fn a_bad_row_is_told_with_its_line_column_and_field_and_can_be_skipped() {
    let goods = |row: &str| format!("sku,price,note\na,\"1\",\"x\ny\"\n{row}\nb,2,\n");
    for (row, told) in [
        ("c,dear,", "line 4, column 2: /price: \"dear\" does not fit: number"),
        ("c,-1,", "line 4, column 2: /price: -1 does not fit \"price\": number, at least 0"),
        ("c,1", "line 4, column 2: the row has 2 fields, the header line 3"),
        ("c,1,,", "line 4, column 3: the row has 4 fields, the header line 3"),
        ("c,,", "line 4, column 2: /price: the field \"price\" is missing"),
        (
            "c,1,\"x\"y",
            "line 4, column 3: text follows the closing quote of a field; inside a quoted field a quote is written twice",
        ),
        ("a,3,", "line 4: the key a is there already: @, line 2"),
    ] {
        let files = Files::new();
        let service = Service::new(&config(TABLES));
        let refused = import(&service, vec![files.add("g.csv", &goods(row))], &into("goods")).unwrap_err();
        assert_eq!(refused, format!("g.csv: @, {told}"));
        clean(&service, 0);
        let options = ImportOptions { collection: Some("goods".into()), ..skip() };
        let report = import(&service, vec![files.add("g.csv", &goods(row))], &options).unwrap();
        assert_eq!((report.documents, report.skipped), (2, 1), "{row}");
        clean(&service, 2);
    }
}

#[test]
fn a_table_that_is_none_of_the_collection_is_refused_as_a_whole() {
    let files = Files::new();
    let service = Service::new(&config(TABLES));
    let told = |text: &str| import(&service, vec![files.add("g.csv", text)], &into("goods")).unwrap_err();
    assert_eq!(told(""), "g.csv: line 1: the file is empty; its first line must name the fields");
    assert_eq!(
        told("sku;price\na;1\n"),
        "g.csv: the header line has no column \"sku\", the key of goods; it has: \"sku;price\"; \
         the fields must be separated by commas (in a .tsv file by tabs)"
    );
    assert!(
        told("sku,cost\na,1\n")
            .starts_with("g.csv: the schema of goods does not permit the field \"cost\"; permitted: \"sku\", ")
    );
    assert_eq!(told("sku,sku\n"), "g.csv: line 1, column 2: the name \"sku\" occurs twice");
    assert_eq!(told("sku,price,note\na,1,\"x\n"), "g.csv: line 2: the file ends inside a quoted field of this row");
    clean(&service, 0);
    let unnamed = import(&service, vec![files.add("g.csv", "sku\n")], &ImportOptions::default()).unwrap_err();
    assert_eq!(unnamed, "g.csv: the file names no collection for its records: name one with --collection");
}

#[test]
fn a_sample_gives_the_first_records_of_a_file_and_the_place_of_a_bad_one() {
    let files = Files::new();
    let read = |name: &str, text: &str, most: usize| {
        let mut found = Vec::new();
        let whole = docs::import::sample(files.add(name, text), &mut |record, bytes| {
            assert!(bytes > 0 && bytes <= text.len() as u64);
            found.push(match record {
                SampledRecord::Document { array, document } => {
                    format!("{}{}", array.unwrap_or_default(), String::from_utf8_lossy(document.text()))
                }
                SampledRecord::Row { columns, cells } => format!("{columns:?}{}", cells[0].text),
            });
            if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let whole = whole.map_err(|error| error.to_string().rsplit('/').next().unwrap().to_string());
        whole.map(|whole| (found, whole))
    };
    assert_eq!(
        read("a.json", r#"{"x": [{"a": 1}], "y": [{}]}"#, 9),
        Ok((vec!["x{\"a\":1}".into(), "y{}".into()], true))
    );
    assert_eq!(read("a.ndjson", "{}\n{}\n{}\n", 2), Ok((vec!["{}".into(), "{}".into()], false)));
    assert_eq!(read("a.csv", "id,n\n1,x\n", 9), Ok((vec!["[\"id\", \"n\"]1".into()], true)));
    assert_eq!(
        read("a.csv", "id,n\n1\n", 9),
        Err("a.csv, line 2, column 1: the row has 1 fields, the header line 2".into())
    );
    assert_eq!(read("a.ndjson", "{}\n[1]\n", 9), Err("a.ndjson, line 2: a document is a JSON object".into()));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let told = read("a.ndjson", &deep, 9).unwrap_err();
    assert!(told.starts_with("a.ndjson, line 1: nested more than 128 levels deep at byte "), "{told}");
    assert_eq!(read("a.json", "7", 9), Err("a.json: byte 1: expected an array, or an object of arrays".into()));
}

#[test]
fn records_without_keys_and_names_without_a_format_are_refused_with_what_to_do() {
    let files = Files::new();
    let text = "[collections.c]\nkey = { field = \"id\", type = \"u32\", generate = \"counter\" }\n";
    let service = Service::new(&crate::service::config(text));
    let hint = "an import makes no keys: give each record one, or send the records to /_/collections/NAME/bulk, which makes them";
    let refused = |name: &str, text: &str| import(&service, vec![files.add(name, text)], &into("c")).unwrap_err();
    assert_eq!(
        refused("c.ndjson", "{\"id\":1}\n{\"a\":1}\n"),
        format!("c.ndjson: @, line 2: /id: the key \"id\" is missing; {hint}")
    );
    assert_eq!(
        refused("c.csv", "a,b\n1,2\n"),
        format!("c.csv: the header line has no column \"id\", the key of c; it has: \"a\", \"b\"; {hint}")
    );
    let refused = refused("c.nd", "{\"id\":1}\n");
    assert!(refused.contains("its name does not say the format") && refused.contains("--format"), "{refused}");
}
