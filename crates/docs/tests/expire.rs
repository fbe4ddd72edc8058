//! Documents that expire: hidden at once, removed by the sweep, with a clock that the test sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use docs::Swept;
use docs::config::Config;
use docs::expire::WallClock;
use docs::key::KeyType;
use docs::sql::NoRows;
use docs::sql::{Budget, QueryError, Scratch};
use docs::statements::{Modification, ModifyError, StepText, Steps, StepsDid, StepsError};
use docs::{DocumentDatabase, Op, Precondition, Required, RowsWanted, StepsCall, Write, WriteError};

const CONFIG: &str = "[collections.sessions]\nkey = { field = \"id\", type = \"u32\" }\nexpire = \"until\"\nunique = [\"token\"]\n\
    [collections.notes]\nkey = { field = \"id\", type = \"u32\" }\nexpire = { field = \"made\", after_seconds = 100 }\n\
    references = { session = \"sessions\" }\n\
    [views.by_user]\nquery = \"SELECT user, COUNT(*) AS n FROM sessions GROUP BY user\"\n";

struct Service {
    database: DocumentDatabase,
    now: Arc<AtomicI64>,
    folder: tempfile::TempDir,
}

fn open(folder: &std::path::Path, config: &str, now: &Arc<AtomicI64>) -> DocumentDatabase {
    let mut config = Config::parse("c.toml".as_ref(), config).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    config.clock = WallClock::given(Arc::clone(now));
    config.may_drop = true;
    DocumentDatabase::open(&config, folder, docs::engine::StoreOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
        .0
}

impl Service {
    fn new() -> Service {
        let (folder, now) = (tempfile::tempdir().expect("a folder"), Arc::new(AtomicI64::new(0)));
        Service { database: open(folder.path(), CONFIG, &now), now, folder }
    }

    fn at(&self, seconds: i64) {
        self.now.store(seconds * 1000, Ordering::Relaxed);
    }

    fn write(&self, collection: &str, op: Op) -> Result<(), WriteError> {
        let collection = self.database.collection(collection).expect("declared");
        self.database.write_now(&Write { collection, op, precondition: Precondition::None }).map(drop)
    }

    /// The same data with another file.
    fn reopened(self, config: &str) -> Service {
        let Service { database, now, folder } = self;
        drop(database);
        Service { database: open(folder.path(), config, &now), now, folder }
    }

    fn insert(&self, collection: &str, body: &str) -> Result<(), WriteError> {
        self.write(collection, Op::Insert { body: body.as_bytes().to_vec() })
    }

    fn sweep(&self, collection: &str, limit: usize) -> Swept {
        let mut sweep = self.database.sweep(self.database.collection(collection).expect("declared"));
        self.database.expire(&mut sweep, limit).expect("swept")
    }

    fn rows(&self, sql: &str) -> String {
        let query = self.database.prepare_query(sql).unwrap_or_else(|error| panic!("{error}"));
        let session = self.database.session().expect("a session");
        let budget = Budget { now_ms: self.now.load(Ordering::Relaxed), ..Budget::default() };
        let (now, mut out) = (session.now(), Vec::new());
        query.write_array(now.view(), &[], &mut Scratch::new(), &budget, &mut out).expect("rows");
        String::from_utf8(out).expect("JSON")
    }

    /// Lists of up to `limit` keys, one after another to the end.
    fn lists(&self, collection: &str, limit: usize) -> Vec<Vec<String>> {
        let id = self.database.collection(collection).expect("declared");
        let session = self.database.session().expect("a session");
        let (mut lists, mut behind): (_, Option<Vec<u8>>) = (Vec::new(), None);
        loop {
            let (mut keys, mut last) = (Vec::new(), None);
            let after = behind.as_deref().and_then(|key| KeyType::U32.of_bytes(key));
            let goes_on_behind = session.now().list(id, after.as_ref(), limit, &mut |key, _| {
                keys.push(key.to_string());
                last = (keys.len() == limit).then(|| key.as_bytes().to_vec());
                Ok(std::ops::ControlFlow::Continue(()))
            });
            behind = last.or(goes_on_behind.expect("read"));
            lists.push(keys);
            if behind.is_none() {
                return lists;
            }
        }
    }

    /// The keys found by a lookup, a list, and queries by scan, by index and through a join.
    #[track_caller]
    fn check_visible(&self, collection: &str, expected: &[u32]) {
        let id = self.database.collection(collection).expect("declared");
        let session = self.database.session().expect("a session");
        let now = session.now();
        let key = |id: u32| KeyType::U32.of_text(&id.to_string()).expect("a key").as_bytes().to_vec();
        let found = (0..20).filter(|number| {
            let key = key(*number);
            now.get(id, &KeyType::U32.of_bytes(&key).expect("a key")).expect("read").is_some()
        });
        assert_eq!(found.collect::<Vec<u32>>(), expected, "lookups");
        let mut listed = Vec::new();
        now.list(id, None, expected.len().max(1), &mut |key, _| {
            listed.push(key.to_string().parse::<u32>().expect("a number"));
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .expect("a list");
        assert_eq!(listed, expected, "a list");
        let count = format!("SELECT COUNT(*) AS id FROM {collection}");
        let all = format!("SELECT id FROM {collection} ORDER BY id");
        let joined = format!("SELECT a.id FROM {collection} a LEFT JOIN {collection} b ON b.id = a.id ORDER BY a.id");
        let inner = format!("SELECT id FROM (SELECT id FROM {collection}) ORDER BY id");
        let rows = |numbers: &[u32]| {
            let rows: Vec<String> = numbers.iter().map(|number| format!("{{\"id\":{number}}}")).collect();
            format!("[{}]", rows.join(","))
        };
        for sql in [all, joined, inner] {
            assert_eq!(self.rows(&sql), rows(expected), "{sql}");
        }
        assert_eq!(self.rows(&count), rows(&[expected.len() as u32]));
    }
}

fn key(id: u32) -> Vec<u8> {
    KeyType::U32.of_text(&id.to_string()).expect("a key").as_bytes().to_vec()
}

#[test]
fn a_document_is_hidden_when_its_time_comes_and_removed_by_the_next_sweep() {
    let service = Service::new();
    for body in [
        "{\"id\":1,\"user\":\"a\",\"until\":1000}",
        "{\"id\":2,\"user\":\"a\",\"until\":1000.5}",
        "{\"id\":3,\"user\":\"b\",\"until\":\"1970-01-01T00:20:00Z\"}",
        "{\"id\":4,\"user\":\"b\",\"until\":\"1970-01-02\"}",
        "{\"id\":5,\"user\":\"c\",\"until\":null}",
        "{\"id\":6,\"user\":\"c\"}",
    ] {
        service.insert("sessions", body).expect("stored");
    }
    let all: &[u32] = &[1, 2, 3, 4, 5, 6];
    for (seconds, visible) in [(999, all), (1000, &all[1..]), (1001, &all[2..]), (1199, &all[2..]), (1201, &all[3..])] {
        service.at(seconds);
        service.check_visible("sessions", visible);
    }
    let views = "SELECT user, n FROM by_user ORDER BY user";
    let before = service.rows(views);
    let swept = service.sweep("sessions", 100);
    assert_eq!((swept.removed, swept.blocked, swept.has_more, swept.lag_ms), (3, 0, false, 201_000));
    service.check_visible("sessions", &all[3..]);
    assert_ne!(service.rows(views), before, "a view counts what is stored");
    assert!(service.database.verify_view("by_user").expect("read").is_some_and(|report| report.is_clean()));
    // Removed documents do not come back when the clock is set back; no others are removed.
    service.at(0);
    service.check_visible("sessions", &all[3..]);
    assert_eq!(service.sweep("sessions", 100), Swept::default());
    service.at(86_400);
    service.check_visible("sessions", &[5, 6]);
    assert_eq!(service.sweep("sessions", 100).removed, 1);
    service.at(253_402_300_799);
    service.check_visible("sessions", &[5, 6]);
    assert_eq!(service.sweep("sessions", 100).removed, 0);
}

#[test]
fn a_duration_is_added_to_the_field() {
    let service = Service::new();
    service.at(950);
    service.insert("notes", "{\"id\":1,\"made\":900}").expect("stored");
    service.insert("notes", "{\"id\":2,\"made\":\"1970-01-01T00:15:01Z\"}").expect("stored");
    service.at(999);
    service.check_visible("notes", &[1, 2]);
    service.at(1000);
    service.check_visible("notes", &[2]);
    service.at(1002);
    service.check_visible("notes", &[]);
    assert_eq!(service.sweep("notes", 100).removed, 2);
}

#[test]
fn a_write_finds_no_document_whose_time_has_come_and_an_insert_takes_its_place() {
    let service = Service::new();
    for id in 1..=5 {
        service.insert("sessions", &format!("{{\"id\":{id},\"token\":\"t{id}\",\"until\":1000}}")).expect("stored");
    }
    service.at(1000);
    let patch = b"{\"until\":9000}".to_vec();
    for op in [
        Op::Update { key: key(1), patch: patch.clone() },
        Op::Patch { key: key(1), patch },
        Op::Replace { key: key(1), body: b"{\"id\":1}".to_vec() },
        Op::Delete { key: key(1) },
    ] {
        let answer = service.write("sessions", op.clone());
        assert!(matches!(answer, Err(WriteError::NotFound)), "{op:?}: {answer:?}");
    }
    service.insert("sessions", "{\"id\":2,\"token\":\"t2\",\"until\":9000}").expect("its place is free");
    service
        .write("sessions", Op::Put { key: key(3), body: b"{\"id\":3,\"token\":\"t3\"}".to_vec() })
        .expect("so is this");
    let insert = Modification::prepare("INSERT INTO sessions (id, until) VALUES (4, 9000)", service.database.catalog());
    let insert = insert.expect("SQL");
    let budget = Budget { now_ms: 1_000_000, ..Budget::default() };
    service.database.modify(&insert, &[], &budget, &mut NoRows).expect("and this");
    service.check_visible("sessions", &[2, 3, 4]);
    assert_eq!(service.sweep("sessions", 100).removed, 2);
    service.check_visible("sessions", &[2, 3, 4]);
    let report = docs::verify::database(&service.database).expect("read");
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_list_asks_whether_it_goes_on_beside_hidden_documents_too() {
    let service = Service::new();
    for id in 0..1_000 {
        let until = if id < 800 { 10 } else { 2_000 };
        service.insert("sessions", &format!("{{\"id\":{id},\"until\":{until}}}")).expect("stored");
    }
    service.at(1_000);
    let session = service.database.session().expect("a reader");
    let id = service.database.collection("sessions").expect("declared");
    // For a list that is cancelled after `most` checks: whether it finished, the documents it visited, and the checks it made.
    let list = |most: u32| {
        let (asked, mut seen) = (std::cell::Cell::new(0), 0);
        let goes_on = || asked.replace(asked.get() + 1) < most;
        let listed = session.now().list_while(id, None, 1_000, &goes_on, &mut |_, _| {
            seen += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        });
        (listed.is_ok(), seen, asked.get())
    };
    assert_eq!(list(u32::MAX), (true, 200, 31));
    assert_eq!(list(3), (false, 0, 4));
    assert_eq!(list(30), (false, 191, 31));
}

#[test]
fn what_is_referred_to_is_hidden_and_goes_when_nothing_refers_to_it() {
    let service = Service::new();
    for id in 1..=3 {
        service.insert("sessions", &format!("{{\"id\":{id},\"until\":1000}}")).expect("stored");
    }
    service.insert("notes", "{\"id\":1,\"session\":2,\"made\":950}").expect("stored");
    service.at(1000);
    let swept = service.sweep("sessions", 100);
    assert_eq!((swept.removed, swept.blocked), (2, 1));
    service.check_visible("sessions", &[]);
    service.at(1050);
    assert_eq!(service.sweep("notes", 100).removed, 1);
    assert_eq!(service.sweep("sessions", 100).removed, 1);
}

#[test]
fn a_sweep_looks_at_no_more_than_it_is_asked_to_and_the_next_goes_on() {
    let service = Service::new();
    for id in 0..300 {
        service.insert("sessions", &format!("{{\"id\":{id},\"until\":{}}}", id % 7)).expect("stored");
    }
    // Two documents that cannot be removed, and do not block others.
    service.at(-1);
    for id in [0, 7] {
        service.insert("notes", &format!("{{\"id\":{id},\"session\":{id},\"made\":950}}")).expect("stored");
    }
    service.at(3);
    let mut sweep = service.database.sweep(service.database.collection("sessions").expect("declared"));
    let (mut removed, mut blocked) = (0, 0);
    for goes_on in [true, true, false] {
        let swept = service.database.expire(&mut sweep, 70).expect("swept");
        assert!(swept.has_more == goes_on && swept.removed + swept.blocked <= 70, "{swept:?}");
        (removed, blocked) = (removed + swept.removed, blocked + swept.blocked);
    }
    let expected = (0..300).filter(|id| id % 7 <= 3).count() as u64;
    assert_eq!((removed, blocked), (expected - 2, 2));
}

#[test]
fn what_is_no_time_is_refused_when_it_is_written() {
    let service = Service::new();
    for until in ["true", "\"soon\"", "\"2026-11-22 10:00\"", "[]", "{}", "\"2026-11-22T10:00:00+1:00\"", "\"\""] {
        let answer = service.insert("sessions", &format!("{{\"id\":1,\"until\":{until}}}"));
        assert!(
            matches!(&answer, Err(WriteError::Invalid { pointer, .. }) if pointer == "/until"),
            "{until}: {answer:?}"
        );
    }
}

#[test]
fn expiry_that_is_declared_later_indexes_and_checks_what_is_stored() {
    let service = Service::new();
    let plain = CONFIG.replace("expire = \"until\"\n", "");
    let Service { database, now, folder } = service;
    drop(database);
    let database = open(folder.path(), &plain, &now);
    let service = Service { database, now, folder };
    service.insert("sessions", "{\"id\":1,\"until\":1000}").expect("stored");
    service.insert("sessions", "{\"id\":2,\"until\":\"soon\"}").expect("stored");
    let Service { database, now, folder } = service;
    drop(database);
    let mut config = Config::parse("c.toml".as_ref(), CONFIG).expect("a config");
    config.clock = WallClock::given(Arc::clone(&now));
    let refused = DocumentDatabase::open(&config, folder.path(), docs::engine::StoreOptions::default()).map(drop);
    assert!(refused.is_err_and(|error| error.to_string().contains("sessions/2")), "it names the document");
    let service = Service { database: open(folder.path(), &plain, &now), now, folder };
    service.write("sessions", Op::Delete { key: key(2) }).expect("deleted");
    let Service { database, now, folder } = service;
    drop(database);
    let service = Service { database: open(folder.path(), CONFIG, &now), now, folder };
    service.at(1000);
    service.check_visible("sessions", &[]);
    assert_eq!(service.sweep("sessions", 100).removed, 1);
}

#[test]
fn a_list_ends_where_it_has_passed_over_many_hidden_documents_and_goes_on_behind_them() {
    let service = Service::new();
    let until = |id: u32| if id % 30_000 == 29_999 { 1000 } else { 10 };
    let lines: String = (0..90_000).map(|id| format!("{{\"id\":{id},\"until\":{}}}\n", until(id))).collect();
    let input = docs::import::Input::Stream { name: "s".into(), read: Box::new(std::io::Cursor::new(lines)) };
    let options = docs::import::ImportOptions { collection: Some("sessions".into()), ..Default::default() };
    service.database.import(vec![input], &options, &|_| {}).expect("imported");
    assert_eq!(service.lists("sessions", 50_000).len(), 2, "nothing is hidden yet");
    service.at(20);
    let lists = service.lists("sessions", 2);
    assert_eq!(lists.concat(), ["29999", "59999", "89999"]);
    assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 1, 0, 1]);
}

#[test]
fn a_document_that_broke_a_view_expires_like_any_other() {
    let service = Service::new();
    let long = "u".repeat(2_000);
    for id in 1..=3 {
        let user = if id == 2 { &long } else { "a" };
        let body = format!("{{\"id\":{id},\"agent\":\"{user}\",\"until\":1000}}");
        service.insert("sessions", &body).expect("stored");
    }
    let by_agent = "[views.by_agent]\nquery = \"SELECT agent, COUNT(*) AS n FROM sessions GROUP BY agent\"\n";
    let service = service.reopened(&format!("{CONFIG}{by_agent}"));
    service.database.wait_for_views();
    service.at(1000);
    let swept = service.sweep("sessions", 100);
    assert_eq!((swept.removed, swept.blocked, swept.unremovable), (3, 0, 0), "{swept:?}");
}

#[test]
fn a_sweep_goes_on_past_what_cannot_be_removed_and_says_why() {
    // Without this document, the sum of the other two exceeds 64 bits, which a view over the view cannot represent.
    const SUMS: &str = "[views.sums]\nquery = \"SELECT user, SUM(n) AS s FROM sessions GROUP BY user\"\n\
        [views.by_sum]\nquery = \"SELECT s, COUNT(*) AS n FROM sums GROUP BY s\"\n";
    let service = Service::new().reopened(&format!("{CONFIG}{SUMS}"));
    for (id, n) in [(1, -5), (2, i64::MAX), (3, 5)] {
        let until = if id == 1 { "1000" } else { "null" };
        let body = format!("{{\"id\":{id},\"user\":\"u\",\"n\":{n},\"until\":{until}}}");
        service.insert("sessions", &body).expect("stored");
    }
    for id in 10..200 {
        service.insert("sessions", &format!("{{\"id\":{id},\"user\":\"v\",\"until\":{}}}", id % 10)).expect("stored");
    }
    service.at(1000);
    let swept = service.sweep("sessions", 1_000);
    assert_eq!((swept.removed, swept.blocked, swept.unremovable, swept.has_more), (190, 0, 1, false), "{swept:?}");
    let why = swept.why.expect("told");
    assert!(why.starts_with("sessions/1: a view over a view cannot store"), "{why}");
    service.check_visible("sessions", &[2, 3]);
    // It is removed once nothing prevents it.
    service.write("sessions", Op::Delete { key: key(3) }).expect("deleted");
    let swept = service.sweep("sessions", 1_000);
    assert_eq!((swept.removed, swept.unremovable, swept.why), (1, 0, None));
}

/// Submits steps as an event loop does, and retries if they exceed a loop's millisecond on a busy machine.
fn submit(database: &DocumentDatabase, mut call: StepsCall) -> Result<Vec<u8>, StepsError> {
    let session = database.session().expect("a session");
    loop {
        let (told, tells) = std::sync::mpsc::channel();
        let done = Box::new(move |call, _, outcome| told.send((call, outcome)).expect("somebody waits"));
        assert!(database.try_submit_steps(&session, call, done).is_ok());
        let (again, outcome) = tells.recv().expect("told");
        match outcome {
            Err(StepsError::Failed { error: ModifyError::Query(QueryError::Deadline), .. }) => call = again,
            outcome => return outcome,
        }
    }
}

/// Steps that insert a note; `required` names a session that must exist at the commit.
fn note_of(service: &Service, required: Option<u32>, sql: &str) -> Result<Vec<u8>, StepsError> {
    let texts = [StepText { sql, expect: None }];
    let steps =
        Steps::prepare(&texts, &[], service.database.catalog()).map_err(|mut mistakes| mistakes.remove(0).error);
    let call = StepsCall {
        steps: Arc::new(steps.expect("SQL")),
        parameters: Vec::new(),
        required: required.map(|id| Required {
            collection: service.database.collection("sessions").expect("declared"),
            key: key(id),
        }),
        rows: RowsWanted::None,
        // The time of the request: the transaction runs later.
        now_ms: 999_000,
        rows_max: 1_000,
        bytes_max: 10_000,
        reply_bytes_max: 1_000,
    };
    let budget = Budget { now_ms: 999_000, ..Budget::default() };
    let waited = service.database.run_steps(&call, &budget, &mut StepsDid::default());
    let submitted = submit(&service.database, call);
    assert_eq!(waited.is_ok(), submitted.is_ok(), "{waited:?} {submitted:?}");
    submitted
}

#[test]
fn what_is_required_has_not_come_due_when_the_transaction_is_done_though_something_refers_to_it() {
    let service = Service::new();
    for id in 1..=2 {
        service.insert("sessions", &format!("{{\"id\":{id},\"until\":1000}}")).expect("stored");
    }
    service.insert("notes", "{\"id\":1,\"session\":1,\"made\":950}").expect("stored");
    service.at(999);
    let touch = "UPDATE notes SET n = 1 WHERE id = 1";
    assert!(note_of(&service, Some(1), touch).is_ok());
    // The clock has advanced since the request.
    service.at(1000);
    assert_eq!(service.sweep("sessions", 100).blocked, 1);
    for gone in [1, 2] {
        let refused = note_of(&service, Some(gone), touch);
        assert!(matches!(refused, Err(StepsError::Missing)), "{gone}: {refused:?}");
    }
    assert!(note_of(&service, None, touch).is_ok());
    // The same for single writes, and for sessions that never existed.
    let collection = |name: &str| service.database.collection(name).expect("declared");
    let write_where = |required: u32| {
        let op = Op::Update { key: key(1), patch: b"{\"n\":2}".to_vec() };
        let write = Write { collection: collection("notes"), op, precondition: Precondition::None };
        let required = Required { collection: collection("sessions"), key: key(required) };
        let (told, tells) = std::sync::mpsc::channel();
        let done = Box::new(move |outcome| told.send(outcome).expect("somebody waits"));
        let session = service.database.session().expect("a session");
        service.database.write_where(&session, write, Some(required), done);
        tells.recv().expect("told").map(drop)
    };
    for gone in 1..=3 {
        assert!(matches!(write_where(gone), Err(WriteError::NotFound)), "{gone}");
    }
    service.at(999);
    write_where(1).expect("it is there");
}

#[test]
fn nothing_new_refers_to_a_document_whose_time_has_come() {
    let service = Service::new();
    for id in 1..=2 {
        service.insert("sessions", &format!("{{\"id\":{id},\"until\":1000}}")).expect("stored");
    }
    service.insert("notes", "{\"id\":1,\"session\":1,\"made\":950}").expect("stored");
    service.insert("notes", "{\"id\":2,\"made\":950}").expect("stored");
    service.at(1000);
    assert_eq!(service.sweep("sessions", 100).blocked, 1, "the first stays, hidden");
    let is_dangling = |answer: Result<(), WriteError>| matches!(answer, Err(WriteError::Invalid { why, .. }) if why == "\"session\": there is no 1 in sessions");
    let patch = |patch: &str| Op::Update { key: key(2), patch: patch.as_bytes().to_vec() };
    assert!(is_dangling(service.insert("notes", "{\"id\":3,\"session\":1,\"made\":950}")));
    assert!(is_dangling(service.write("notes", patch("{\"session\":1}"))));
    let put = Op::Put { key: key(3), body: b"{\"id\":3,\"session\":1,\"made\":950}".to_vec() };
    assert!(is_dangling(service.write("notes", put)));
    let insert = note_of(&service, None, "INSERT INTO notes (id, session, made) VALUES (4, 1, 950)");
    assert!(insert.is_err_and(|error| format!("{error:?}").contains("there is no 1 in sessions")));
    // Documents that already refer to it can still be changed.
    let touch = Op::Update { key: key(1), patch: b"{\"n\":1}".to_vec() };
    service.write("notes", touch).expect("changed");
    let twice = Op::Update { key: key(1), patch: b"{\"session\":1,\"n\":2}".to_vec() };
    service.write("notes", twice).expect("changed");
    // When the clock is set back, it becomes visible again.
    service.at(999);
    service.write("notes", patch("{\"session\":1}")).expect("it is there");
}

/// Texts with an offset stand in the index at their local time: both signs are hidden at their time in UTC, and none is removed
/// before it.
#[test]
fn a_time_with_an_offset_is_a_moment_in_utc() {
    let service = Service::new();
    for (id, until) in [
        (1, "1970-01-01T02:16:40Z"),
        (2, "1970-01-01T04:16:40+02:00"),
        (3, "1969-12-31T22:16:40-04:00"),
        (4, "1970-01-01T07:46:40.5+05:30"),
    ] {
        service.insert("sessions", &format!(r#"{{"id":{id},"token":{id},"until":"{until}"}}"#)).expect("a time");
    }
    service.at(8_199);
    service.check_visible("sessions", &[1, 2, 3, 4]);
    assert_eq!(service.sweep("sessions", 10).removed, 0);
    service.at(8_201);
    service.check_visible("sessions", &[]);
    // The positive offsets are removed when their local time has passed.
    assert_eq!(service.sweep("sessions", 10).removed, 2);
    service.at(8_201 + 2 * 3_600);
    assert_eq!(service.sweep("sessions", 10).removed, 1);
    service.at(8_201 + 6 * 3_600);
    assert_eq!(service.sweep("sessions", 10).removed, 1);
    for wrong in ["2099-02-30", "2099-02-29", "2099-04-31T10:00:00Z", "2099-01-31T10:00:00+2:00"] {
        let refused = service.insert("sessions", &format!(r#"{{"id":9,"token":9,"until":"{wrong}"}}"#));
        assert!(matches!(refused, Err(WriteError::Invalid { why, .. }) if why.contains("is no time")), "{wrong}");
    }
}
