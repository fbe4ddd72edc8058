//! A database that gets another configuration while it is read and written.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use docs::config::Config;
use docs::key::KeyType;
use docs::sql::{Budget, Scratch};
use docs::{
    DatabaseOpenError, DocumentDatabase, Op, Precondition, ReadinessState, Submission, TakeLong, Write, WriteError,
};
use serde_json::Value as Json;

const ITEMS: &str = "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\n";
/// Collections that sort before and after `items`, so that its position in the catalog changes.
const OTHERS: &str = "[collections.a]\nkey = { field = \"id\", type = \"u32\" }\n[collections.z]\nkey = { field = \"id\", type = \"u32\" }\n";
const VIEW: &str = "[views.sums]\nquery = \"SELECT g, COUNT(*) AS n, SUM(x) AS s FROM items GROUP BY g\"\n";
const KEYS: u32 = 2_000;

fn config(text: &str) -> Config {
    let mut config = Config::parse("c.toml".as_ref(), text).unwrap_or_else(|error| panic!("{error}"));
    config.builds_indexes_later = true;
    config.may_drop = true;
    config.build_threads = 2;
    config
}

fn open(folder: &Path, text: &str) -> DocumentDatabase {
    DocumentDatabase::open(&config(text), folder, docs::engine::StoreOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
        .0
}

fn reopen(database: &DocumentDatabase, text: &str) -> Result<DocumentDatabase, DatabaseOpenError> {
    database.reopen(&config(text), |_| Ok(())).map(|(database, _)| database)
}

fn key(id: u32) -> Vec<u8> {
    KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec()
}

fn put(database: &DocumentDatabase, id: u32, x: u32) -> Result<(), WriteError> {
    let collection = database.collection("items").unwrap();
    let body = format!("{{\"id\":{id},\"x\":{x},\"g\":{}}}", x % 5).into_bytes();
    let write = Write { collection, op: Op::Put { key: key(id), body }, precondition: Precondition::None };
    database.write_now(&write).map(drop)
}

fn delete(database: &DocumentDatabase, id: u32) -> Result<(), WriteError> {
    let collection = database.collection("items").unwrap();
    let write = Write { collection, op: Op::Delete { key: key(id) }, precondition: Precondition::None };
    database.write_now(&write).map(drop)
}

/// The rows as of one moment, or `None` if another database has taken over.
fn rows(database: &DocumentDatabase, sql: &str) -> Option<Vec<Json>> {
    let query = database.prepare_query(sql).unwrap();
    let session = database.session().unwrap();
    let (now, mut out) = (session.now(), Vec::new());
    let outcome = query.write_array(now.view(), &[], &mut Scratch::new(), &Budget::default(), &mut out);
    if matches!(now.check_indexes(), Err(docs::engine::StoreError::Busy)) {
        return None;
    }
    outcome.unwrap();
    Some(serde_json::from_slice(&out).unwrap())
}

#[track_caller]
fn check_clean(database: &DocumentDatabase) {
    database.wait_for_indexes();
    database.wait_for_views();
    assert_eq!(docs::verify::database(database).unwrap().faults, [""; 0]);
    for view in database.views() {
        let report = database.verify_view(&view.name).unwrap();
        assert!(report.as_ref().is_some_and(docs::views::ViewReport::is_clean), "{view:?} {report:?}");
    }
}

#[test]
fn configurations_take_turns_beside_writers_and_readers_and_all_stays_in_step() {
    let folder = tempfile::tempdir().unwrap();
    let configs = [
        ITEMS.to_string(),
        format!("{ITEMS}indexes = [[\"x\"]]\n"),
        format!("{ITEMS}indexes = [[\"x\"], [\"g\", \"x\"]]\n{VIEW}"),
        format!("{OTHERS}{ITEMS}indexes = [[\"g\"]]\n{VIEW}"),
        format!(
            "{OTHERS}{ITEMS}unique = [\"id\"]\n[collections.items.schema]\ntype = \"object\"\n[collections.items.schema.properties]\nx = {{ type = \"integer\" }}\n"
        ),
    ];
    let database = open(folder.path(), &configs[0]);
    (0..KEYS).for_each(|id| put(&database, id, id).unwrap());
    let current = Mutex::new(database);
    let now = || current.lock().unwrap().clone();
    let (over, asked, refused) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for number in 0..3u32 {
            let (now, over) = (&now, &over);
            scope.spawn(move || {
                let mut mixed = u64::from(number) + 1;
                let mut database = now();
                for round in 0.. {
                    mixed = mixed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let (id, x) = ((mixed >> 33) as u32 % (2 * KEYS), (mixed >> 20) as u32 % 1000);
                    let outcome = if round % 3 == 0 { delete(&database, id) } else { put(&database, id, x) };
                    assert!(matches!(outcome, Ok(()) | Err(WriteError::NotFound)), "{outcome:?}");
                    // Some writers continue with the old handle.
                    if round % 50 == 49 {
                        database = now();
                    }
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        let (now, over, asked, refused) = (&now, &over, &asked, &refused);
        scope.spawn(move || {
            let mut database = now();
            for round in 0.. {
                // A count through the index, if there is one, and a count of the documents: as of one moment they must be
                // equal.
                match rows(&database, "SELECT (SELECT COUNT(*) FROM items WHERE x >= 0) - COUNT(x) AS d FROM items") {
                    Some(rows) => {
                        asked.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(rows[0]["d"], 0);
                    }
                    None => {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                if round % 5 == 4 {
                    database = now();
                }
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 0..25 {
            let old = now();
            let (new, _) = old
                .reopen::<DatabaseOpenError>(&config(&configs[round % configs.len()]), |new| {
                    *current.lock().unwrap() = new.clone();
                    Ok(())
                })
                .unwrap();
            assert!(old.is_superseded() && !new.is_superseded());
            if round % 4 == 3 {
                check_settled(&new);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    check_clean(&now());
    assert!(asked.load(Ordering::Relaxed) > 0);
    let documents = rows(&now(), "SELECT COUNT(*) AS n FROM items");
    drop(current);
    let database = open(folder.path(), &configs[4]);
    check_clean(&database);
    assert_eq!(rows(&database, "SELECT COUNT(*) AS n FROM items"), documents);
}

/// Waits until everything is built, then verifies the views. Writes may run meanwhile.
#[track_caller]
fn check_settled(database: &DocumentDatabase) {
    database.wait_for_indexes();
    database.wait_for_views();
    assert!(database.is_settled());
    assert!(database.rules().iter().all(|rule| rule.state == ReadinessState::Ready), "{:?}", database.rules());
    for view in database.views() {
        let report = database.verify_view(&view.name).unwrap();
        assert!(report.as_ref().is_some_and(docs::views::ViewReport::is_clean), "{view:?} {report:?}");
    }
}

#[test]
fn an_old_handle_writes_by_the_new_rules_and_reads_by_no_index_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let old = open(folder.path(), &format!("{ITEMS}indexes = [[\"x\"]]\n"));
    (0..100).for_each(|id| put(&old, id, id).unwrap());
    let session = old.session().unwrap();
    let before = session.now();
    let new = reopen(&old, &format!("{OTHERS}{ITEMS}unique = [\"x\"]\n")).unwrap();
    new.wait_for_indexes();
    assert_eq!(
        put(&old, 1_000, 5).map_err(|error| error.to_string()).unwrap_err(),
        "another document of items has this \"x\""
    );
    put(&old, 1_000, 1_000).unwrap();
    assert_eq!(rows(&old, "SELECT id FROM items WHERE x = 1000"), None);
    assert_eq!(rows(&new, "SELECT id FROM items WHERE x = 1000"), Some(vec![serde_json::json!({ "id": 1000 })]));
    // A read that began before finishes.
    let query = old.prepare_query("SELECT COUNT(*) AS n FROM items WHERE x >= 50").unwrap();
    let mut out = Vec::new();
    query.write_array(before.view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
    before.check_indexes().unwrap();
    assert_eq!(out, b"[{\"n\":50}]");
    assert_eq!(query.scans(&[]), [""; 0], "by the index");
}

#[test]
fn a_write_of_an_event_loop_is_given_back_while_another_configuration_takes_over() {
    let folder = tempfile::tempdir().unwrap();
    let old = open(folder.path(), ITEMS);
    let session = old.session().unwrap();
    let (told, outcomes) = std::sync::mpsc::channel();
    let write = |id: u32| {
        let collection = old.collection("items").unwrap();
        let body = format!("{{\"id\":{id}}}").into_bytes();
        Write { collection, op: Op::Insert { body }, precondition: Precondition::None }
    };
    let submit = |id: u32| {
        let told = told.clone();
        let done = Box::new(move |outcome| told.send(outcome).unwrap());
        old.try_write(
            &session,
            Submission { write: write(id), guard: None, required: None, over: None, long: None, done },
        )
    };
    // First a refused configuration: then the old database accepts the write.
    let mut given_back = None;
    let refused = old.reopen(&config(&format!("{OTHERS}{ITEMS}")), |_| {
        given_back = submit(1).err();
        Err(DatabaseOpenError::Mismatch("refused".to_string()))
    });
    assert!(refused.is_err());
    assert!(old.try_write(&session, *given_back.expect("it did not wait")).is_ok());
    outcomes.recv().unwrap().unwrap();
    let mut given_back = None;
    let publish = |_: &DocumentDatabase| {
        given_back = submit(2).err();
        Ok::<(), DatabaseOpenError>(())
    };
    let (new, _) = old.reopen(&config(&format!("{OTHERS}{ITEMS}")), publish).unwrap();
    assert!(old.try_write(&session, *given_back.expect("it did not wait")).is_ok(), "by the new one");
    outcomes.recv().unwrap().unwrap();
    assert_eq!(rows(&new, "SELECT COUNT(*) AS n FROM items"), Some(vec![serde_json::json!({ "n": 2 })]));
}

/// For a long write, records the name of its collection in the database that is passed with it.
struct Taker(Mutex<std::sync::mpsc::Sender<String>>);

impl TakeLong for Taker {
    fn note(&self) {}
    fn take(&self, database: &DocumentDatabase, submission: Submission) {
        let name = database.collection_at(submission.write.collection).info.name.clone();
        self.0.lock().unwrap().send(name).unwrap();
    }
}

#[test]
fn a_write_that_is_too_long_for_its_event_loop_goes_on_by_the_configuration_that_has_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let old = open(folder.path(), ITEMS);
    let session = old.session().unwrap();
    let (collection, text) = (old.collection("items").unwrap(), "x".repeat(docs::LARGE_BYTES));
    let write = |op: Op| Write { collection, op, precondition: Precondition::None };
    old.write_now(&write(Op::Insert { body: format!("{{\"id\":1,\"text\":\"{text}\"}}").into_bytes() })).unwrap();
    let new = reopen(&old, &format!("{OTHERS}{ITEMS}")).unwrap();
    assert_ne!(new.collection("items"), Some(collection));
    let (given, taken) = std::sync::mpsc::channel();
    let submission = Submission {
        write: write(Op::Patch { key: key(1), patch: b"{\"n\":1}".to_vec() }),
        guard: None,
        required: None,
        over: None,
        long: Some(std::sync::Arc::new(Taker(Mutex::new(given)))),
        done: Box::new(|outcome| panic!("not for its loop: {outcome:?}")),
    };
    assert!(old.try_write(&session, submission).is_ok());
    assert_eq!(taken.recv().unwrap(), "items");
}

#[test]
fn what_is_refused_leaves_all_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), &format!("{ITEMS}indexes = [[\"x\"]]\n{VIEW}"));
    (0..100).for_each(|id| put(&database, id, id).unwrap());
    let text = ITEMS.replace("u32", "string");
    let refused = reopen(&database, &text).map(drop).unwrap_err().to_string();
    assert!(refused.starts_with("the documents of items were stored with the key"), "{refused}");
    let failed = database.reopen(&config(ITEMS), |_| Err(DatabaseOpenError::Mismatch("not published".to_string())));
    assert_eq!(failed.map(drop).unwrap_err().to_string(), "not published");
    assert!(!database.is_superseded());
    put(&database, 100, 100).unwrap();
    assert_eq!(rows(&database, "SELECT id FROM items WHERE x = 100").map(|rows| rows.len()), Some(1));
    check_clean(&database);
    drop(database);
    check_clean(&open(folder.path(), &format!("{ITEMS}indexes = [[\"x\"]]\n{VIEW}")));
}

#[test]
fn a_panic_in_a_change_of_the_configuration_leaves_all_as_it_was_and_hangs_no_write() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), &format!("{ITEMS}indexes = [[\"x\"]]\n{VIEW}"));
    (0..100).for_each(|id| put(&database, id, id).unwrap());
    let failed = database.reopen(&config(ITEMS), |_| -> Result<(), DatabaseOpenError> { panic!("as a test wants it") });
    let failed = failed.map(drop).unwrap_err().to_string();
    assert!(failed.contains("a panic") && failed.contains("as a test wants it"), "{failed}");
    assert!(!database.is_superseded());
    let (written, is_written) = std::sync::mpsc::channel();
    let writer = database.clone();
    std::thread::spawn(move || written.send(put(&writer, 100, 100)));
    is_written.recv_timeout(std::time::Duration::from_secs(30)).expect("a write hangs").unwrap();
    assert_eq!(rows(&database, "SELECT id FROM items WHERE x = 100").map(|rows| rows.len()), Some(1));
    check_clean(&database);
    let new = reopen(&database, ITEMS).unwrap();
    put(&new, 101, 101).unwrap();
    drop((database, new));
    check_clean(&open(folder.path(), ITEMS));
}

#[test]
fn a_view_whose_build_a_refused_configuration_stopped_is_built_anew_by_the_one_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let mut database = open(folder.path(), ITEMS);
    (0..3 * KEYS).for_each(|id| put(&database, id, id).unwrap());
    let mut stopped = 0;
    for round in 0..5 {
        let text = format!(
            "{ITEMS}{}",
            VIEW.replace("sums", &format!("of_round_{round}")).replace("COUNT(*)", "COUNT(DISTINCT x)")
        );
        database = reopen(&database, &text).unwrap();
        let failed = database.reopen(&config(&text), |_| Err(DatabaseOpenError::Mismatch("not published".to_string())));
        assert_eq!(failed.map(drop).unwrap_err().to_string(), "not published");
        put(&database, 3 * KEYS + round, 1).unwrap();
        if database.has_stopped_builds() {
            stopped += 1;
            database = reopen(&database, &text).unwrap();
            assert!(!database.has_stopped_builds());
        }
        check_settled(&database);
        assert_eq!(rows(&database, &format!("SELECT SUM(n) AS n FROM of_round_{round}")).unwrap()[0]["n"], 3 * KEYS);
    }
    assert!(stopped > 0, "every build was done before it could be stopped");
    check_clean(&database);
}

#[test]
fn a_moment_before_an_index_was_built_is_not_asked_by_that_index() {
    let folder = tempfile::tempdir().unwrap();
    let filled = open(folder.path(), ITEMS);
    (0..KEYS).for_each(|id| put(&filled, id, id).unwrap());
    drop(filled);
    let is_early = (0..20).any(|_| {
        drop(open(folder.path(), ITEMS));
        let database = open(folder.path(), &format!("{ITEMS}indexes = [[\"x\"]]\n"));
        let prepare = || database.prepare_query("SELECT COUNT(*) AS n FROM items WHERE x >= 0").unwrap();
        let (before, session) = (prepare(), database.session().unwrap());
        let now = session.now();
        // If this is false, the building thread was faster.
        let is_early = database.catalog().collections[0].indexes[0].readiness.is_pending();
        database.wait_for_indexes();
        for query in [before, prepare()] {
            let mut out = Vec::new();
            query.write_array(now.view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
            assert_eq!(String::from_utf8_lossy(&out), format!("[{{\"n\":{KEYS}}}]"));
        }
        is_early
    });
    assert!(is_early, "the thread was always faster");
    let database = open(folder.path(), &format!("{ITEMS}indexes = [[\"x\"]]\n"));
    let query = database.prepare_query("SELECT COUNT(*) AS n FROM items WHERE x >= 0").unwrap();
    assert!(query.explain(&[]).contains("INDEX"), "{}", query.explain(&[]));
}

/// A configuration is refused after the new database is made, before anything else has changed.
#[test]
fn a_configuration_that_is_refused_late_leaves_nothing_that_is_believed_later() {
    const UPPER: &str = "[views.largest]\nquery = \"SELECT MAX(n) AS most, COUNT(*) AS c FROM sums\"\n";
    let folder = tempfile::tempdir().unwrap();
    let refuse = |database: &DocumentDatabase, text: &str| {
        let refused = database.reopen(&config(text), |_| Err(DatabaseOpenError::Mismatch("not published".to_string())));
        assert_eq!(refused.map(drop).unwrap_err().to_string(), "not published");
        assert!(!database.has_stopped_builds());
    };
    let count = |database: &DocumentDatabase, sql: &str| rows(database, sql).unwrap()[0]["c"].as_u64();
    let mut database = open(folder.path(), ITEMS);
    // A view and an index of an empty collection would be complete at once.
    let more = format!("{ITEMS}indexes = [[\"x\"]]\nunique = [\"g\"]\n{VIEW}{UPPER}");
    refuse(&database, &more);
    (0..5).for_each(|id| put(&database, id, id).unwrap());
    database = reopen(&database, &more).unwrap();
    check_settled(&database);
    assert_eq!(count(&database, "SELECT COUNT(*) AS c FROM items WHERE x >= 0"), Some(5));
    assert_eq!(count(&database, "SELECT c FROM largest"), Some(5));
    // Views built since the opening still answer and follow writes, though the refused configuration would have dropped them.
    let text = format!("{ITEMS}{VIEW}{UPPER}");
    database = reopen(&database, &text).unwrap();
    for (round, other) in [ITEMS.to_string(), format!("{ITEMS}{VIEW}"), more].into_iter().enumerate() {
        refuse(&database, &other);
        let id = 100 + round as u32;
        put(&database, id, id).unwrap();
        check_settled(&database);
        assert_eq!(count(&database, "SELECT SUM(n) AS c FROM sums"), Some(6 + round as u64));
        let most = rows(&database, "SELECT MAX(n) AS n FROM sums").unwrap()[0]["n"].clone();
        assert_eq!(rows(&database, "SELECT most FROM largest").unwrap()[0]["most"], most);
    }
    drop(database);
    let database = open(folder.path(), &text);
    assert_eq!(count(&database, "SELECT SUM(n) AS c FROM sums"), Some(8));
    check_clean(&database);
}

#[test]
fn a_rule_that_came_into_force_is_known_to_queries_after_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), ITEMS);
    (0..100).for_each(|id| put(&database, id, id).unwrap());
    let text = format!("{ITEMS}expire = \"x\"\n");
    let database = reopen(&database, &text).unwrap();
    database.wait_for_indexes();
    assert!(database.gains_by_reopening());
    assert_eq!(rows(&database, "SELECT COUNT(*) AS n FROM items"), Some(vec![serde_json::json!({ "n": 100 })]));
    let database = reopen(&database, &text).unwrap();
    assert!(!database.gains_by_reopening());
    // The clock shows 1970 for this query.
    assert_eq!(rows(&database, "SELECT COUNT(*) AS n FROM items"), Some(vec![serde_json::json!({ "n": 99 })]));
}

#[test]
fn of_two_changes_at_the_same_time_the_second_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path(), ITEMS);
    std::thread::scope(|scope| {
        let mut second = None;
        let first = database.reopen(&config(&format!("{ITEMS}{OTHERS}")), |_| {
            second = Some(scope.spawn(|| reopen(&database, ITEMS).map(drop)));
            // Time for the second to begin: it waits until the first has ended.
            std::thread::sleep(Duration::from_millis(100));
            Ok::<(), DatabaseOpenError>(())
        });
        assert!(first.is_ok());
        let refused = second.unwrap().join().unwrap().unwrap_err().to_string();
        assert!(refused.contains("another configuration has taken over already"), "{refused}");
    });
}
