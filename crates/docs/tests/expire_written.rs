//! Expiry by last write: every kind of write renews it. A model predicts the visible documents at any moment, whatever changes
//! the clock and the configuration go through.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use docs::Swept;
use docs::config::Config;
use docs::expire::WallClock;
use docs::import::{ImportOptions, Input};
use docs::key::KeyType;
use docs::sql::NoRows;
use docs::sql::{Budget, Scratch};
use docs::statements::Modification;
use docs::{DocumentDatabase, Op, Precondition, Write, WriteError, Written};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const ITEMS: &str =
    "[collections.items]\nkey = { field = \"id\", type = \"u32\" }\nunique = [\"token\"]\nindexes = [[\"n\"]]\n";
const VIEW: &str = "[views.counts]\nquery = \"SELECT n, COUNT(*) AS c FROM items GROUP BY n\"\n";

/// The configuration with an expiry duration in seconds, or without expiry.
fn file(after: Option<i64>) -> String {
    let rule = after.map(|after| format!("expire = {{ after_seconds = {after} }}\n"));
    format!("{ITEMS}{}{VIEW}", rule.unwrap_or_default())
}

struct Service {
    database: Option<DocumentDatabase>,
    now: Arc<AtomicI64>,
    folder: tempfile::TempDir,
}

fn config(text: &str, now: &Arc<AtomicI64>) -> Config {
    let mut config = Config::parse("c.toml".as_ref(), text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    config.clock = WallClock::given(Arc::clone(now));
    config.may_drop = true;
    config
}

fn open(folder: &Path, config: &Config) -> DocumentDatabase {
    let mut options = docs::engine::StoreOptions::default();
    // Crashes are tested elsewhere; here syncs would take most of the time.
    options.durability = docs::engine::Durability::None;
    options.memtable_bytes = 256 << 10;
    options.log_segment_bytes = 64 << 10;
    DocumentDatabase::open(config, folder, options).unwrap_or_else(|error| panic!("{error}")).0
}

fn key(id: u32) -> Vec<u8> {
    KeyType::U32.of_text(&id.to_string()).unwrap().as_bytes().to_vec()
}

impl Service {
    fn new(after: Option<i64>) -> Service {
        let (folder, now) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(0)));
        let database = Some(open(folder.path(), &config(&file(after), &now)));
        Service { database, now, folder }
    }

    fn database(&self) -> &DocumentDatabase {
        self.database.as_ref().unwrap()
    }

    fn at_ms(&self, ms: i64) {
        self.now.store(ms, Ordering::Relaxed);
    }

    /// Closes the database and opens it with another duration.
    fn restart(&mut self, after: Option<i64>) {
        self.database = None;
        self.database = Some(open(self.folder.path(), &config(&file(after), &self.now)));
    }

    /// The same without closing; waits until everything new is in force.
    fn reload(&mut self, after: Option<i64>) {
        let mut settings = config(&file(after), &self.now);
        settings.builds_indexes_later = true;
        for _ in 0..2 {
            let (database, _) = self.database().reopen(&settings, |_| Ok::<(), docs::DatabaseOpenError>(())).unwrap();
            database.wait_for_indexes();
            database.wait_for_views();
            self.database = Some(database);
        }
        assert_eq!(self.database().rules(), []);
    }

    fn write(&self, op: Op) -> Result<Written, WriteError> {
        let collection = self.database().collection("items").unwrap();
        self.database().write_now(&Write { collection, op, precondition: Precondition::None })
    }

    fn sql(&self, sql: &str) -> u64 {
        let statement = Modification::prepare(sql, self.database().catalog()).unwrap();
        self.database().modify(&statement, &[], &Budget::default(), &mut NoRows).unwrap().rows
    }

    fn sweep(&self, limit: usize) -> Swept {
        let mut sweep = self.database().sweep(self.database().collection("items").unwrap());
        self.database().expire(&mut sweep, limit).unwrap()
    }

    fn rows(&self, sql: &str) -> String {
        let query = self.database().prepare_query(sql).unwrap_or_else(|error| panic!("{error}"));
        let session = self.database().session().unwrap();
        let budget = Budget { now_ms: self.now.load(Ordering::Relaxed), ..Budget::default() };
        let (now, mut out) = (session.now(), Vec::new());
        query.write_array(now.view(), &[], &mut Scratch::new(), &budget, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The documents found by lookups, a list and queries: by a scan, by an index, by a count, in a join.
    #[track_caller]
    fn check_visible(&self, expected: &BTreeMap<u32, String>) {
        let id = self.database().collection("items").unwrap();
        let session = self.database().session().unwrap();
        let (now, mut listed) = (session.now(), BTreeMap::new());
        now.list(id, None, 1000, &mut |key, stored| {
            let text = String::from_utf8(stored.text()?.to_vec()).unwrap();
            listed.insert(key.to_string().parse().unwrap(), text);
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(&listed, expected, "a list");
        for number in 0..30 {
            let bytes = key(number);
            let found = now.get(id, &KeyType::U32.of_bytes(&bytes).unwrap()).unwrap();
            let text = found.map(|found| String::from_utf8(found.text().unwrap().to_vec()).unwrap());
            assert_eq!(text.as_ref(), expected.get(&number), "a lookup of {number}");
        }
        let rows = |keys: Vec<u32>| {
            let rows: Vec<String> = keys.iter().map(|key| format!("{{\"id\":{key}}}")).collect();
            format!("[{}]", rows.join(","))
        };
        let all = || expected.keys().copied().collect::<Vec<u32>>();
        assert_eq!(self.rows("SELECT id FROM items ORDER BY id"), rows(all()));
        assert_eq!(self.rows("SELECT b.id FROM items a LEFT JOIN items b ON b.id = a.id ORDER BY a.id"), rows(all()));
        assert_eq!(self.rows("SELECT COUNT(*) AS id FROM items"), rows(vec![expected.len() as u32]));
        let ones = expected
            .iter()
            .filter(|(_, text)| text.contains("\"n\":1,") || text.contains("\"n\":1}"))
            .map(|(key, _)| *key);
        assert_eq!(self.rows("SELECT id FROM items WHERE n = 1 ORDER BY id"), rows(ones.collect()));
    }

    #[track_caller]
    fn check_clean(&self) {
        let report = docs::verify::database(self.database()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert!(self.database().verify_view("counts").unwrap().unwrap().is_clean());
    }
}

fn one(text: &str) -> BTreeMap<u32, String> {
    [(1, text.to_string())].into()
}

const BODY: &str = "{\"id\":1,\"n\":1,\"token\":\"a\"}";

#[test]
fn every_way_to_write_renews_a_document() {
    let put = |body: &str| Op::Put { key: key(1), body: body.as_bytes().to_vec() };
    type Way<'w> = (&'w str, &'w dyn Fn(&Service), &'w str);
    let ways: [Way<'_>; 7] = [
        ("a put of the same", &|service| drop(service.write(put(BODY)).unwrap()), BODY),
        ("a put", &|service| drop(service.write(put("{\"id\":1,\"n\":2}")).unwrap()), "{\"id\":1,\"n\":2}"),
        (
            "a replacement",
            &|service| drop(service.write(Op::Replace { key: key(1), body: b"{\"id\":1}".to_vec() }).unwrap()),
            "{\"id\":1}",
        ),
        (
            "an update",
            &|service| drop(service.write(Op::Update { key: key(1), patch: b"{\"token\":null}".to_vec() }).unwrap()),
            "{\"id\":1,\"n\":1}",
        ),
        (
            "an empty patch",
            &|service| drop(service.write(Op::Patch { key: key(1), patch: b"{}".to_vec() }).unwrap()),
            BODY,
        ),
        ("UPDATE", &|service| assert_eq!(service.sql("UPDATE items SET n = n"), 1), BODY),
        (
            "DELETE and INSERT",
            &|service| {
                service.sql("DELETE FROM items WHERE id = 1");
                service.sql("INSERT INTO items (id, n) VALUES (1, 3)");
            },
            "{\"id\":1,\"n\":3}",
        ),
    ];
    for (name, way, after) in ways {
        println!("{name}");
        let service = Service::new(Some(100));
        service.at_ms(1_000_000_300);
        service.write(Op::Insert { body: BODY.as_bytes().to_vec() }).unwrap();
        service.at_ms(1_000_100_999);
        service.check_visible(&one(BODY));
        way(&service);
        // Rounded up to 1,000,101.
        service.at_ms(1_000_200_999);
        service.check_visible(&one(after));
        assert_eq!(service.sweep(10), Swept::default());
        service.at_ms(1_000_201_000);
        service.check_visible(&BTreeMap::new());
        service.check_clean();
        service.at_ms(1_000_203_500);
        let swept = service.sweep(10);
        assert_eq!((swept.removed, swept.blocked, swept.lag_ms), (1, 0, 2_500));
        assert_eq!(service.rows("SELECT * FROM counts"), "[]");
        service.check_clean();
    }
}

#[test]
fn a_schema_that_permits_no_other_field_does_not_see_the_mark() {
    let closed = "schema = { properties = { id = { type = \"integer\" } }, additionalProperties = false }\n";
    let text = format!(
        "[collections.items]\nkey = {{ field = \"id\", type = \"u32\" }}\nexpire = {{ after_seconds = 9 }}\n{closed}"
    );
    let (folder, now) = (tempfile::tempdir().unwrap(), Arc::new(AtomicI64::new(0)));
    let service = Service { database: Some(open(folder.path(), &config(&text, &now))), now, folder };
    service.write(Op::Insert { body: b"{\"id\":1}".to_vec() }).unwrap();
    service.at_ms(5_000);
    service.write(Op::Patch { key: key(1), patch: b"{}".to_vec() }).unwrap();
    let refused = service.write(Op::Insert { body: b"{\"id\":2,\"x\":1}".to_vec() }).unwrap_err();
    assert_eq!(refused.to_string(), "the field \"x\" is not allowed");
    assert_eq!(service.rows("SELECT id FROM items"), "[{\"id\":1}]");
}

#[test]
fn an_imported_document_goes_so_long_after_the_import() {
    for before in [0, 1] {
        let service = Service::new(Some(100));
        service.at_ms(1_000_000_000);
        for id in 0..before {
            service.write(Op::Insert { body: format!("{{\"id\":{}}}", 20 + id).into_bytes() }).unwrap();
        }
        service.at_ms(1_000_050_000);
        let path = service.folder.path().join("items.ndjson");
        std::fs::write(&path, BODY).unwrap();
        let options = ImportOptions { collection: Some("items".to_string()), ..ImportOptions::default() };
        assert_eq!(service.database().import(vec![Input::File(path)], &options, &|_| {}).unwrap().documents, 1);
        service.check_clean();
        service.at_ms(1_000_149_999);
        service.check_visible(&one(BODY));
        service.at_ms(1_000_150_000);
        service.check_visible(&BTreeMap::new());
        assert_eq!(service.sweep(10).removed, 1 + before);
    }
}

#[test]
fn a_write_in_the_same_second_that_changes_nothing_is_none() {
    let service = Service::new(Some(100));
    let put = || service.write(Op::Put { key: key(1), body: BODY.as_bytes().to_vec() }).unwrap().change_number;
    service.at_ms(1_000_000_001);
    let first = put();
    service.at_ms(1_000_001_000);
    assert_eq!(put(), first);
    service.at_ms(1_000_001_001);
    assert_ne!(put(), first);
}

/// The model's state.
#[derive(Default)]
struct Model {
    /// The stored documents, hidden or not: the text and the mark.
    stored: BTreeMap<u32, (String, Option<i64>)>,
    /// The duration in force, and when recording began.
    rule: Option<(i64, i64)>,
    now_ms: i64,
}

impl Model {
    fn is_due(&self, mark: Option<i64>) -> bool {
        let Some((after, since)) = self.rule else { return false };
        (mark.unwrap_or(i64::MIN).max(since) + after) * 1000 <= self.now_ms
    }

    fn visible(&self) -> BTreeMap<u32, String> {
        let those = self.stored.iter().filter(|(_, (_, mark))| !self.is_due(*mark));
        those.map(|(key, (text, _))| (*key, text.clone())).collect()
    }

    fn second(&self) -> i64 {
        (self.now_ms + 999).div_euclid(1000)
    }

    fn put(&mut self, id: u32, text: &str) {
        let mark = self.rule.map(|_| self.second());
        let old = self.stored.insert(id, (text.to_string(), mark));
        // Without the rule, a write that changes nothing keeps the mark.
        if let (None, Some((before, old_mark))) = (mark, old)
            && before == text
        {
            self.stored.insert(id, (before, old_mark));
        }
    }

    /// Changes the rule's duration.
    fn declare(&mut self, after: Option<i64>) {
        let since = self.rule.map_or(self.second(), |(_, since)| since);
        self.rule = after.map(|after| (after, since));
    }
}

fn random_write(service: &Service, model: &mut Model, random: &mut SmallRng) {
    let id = random.random_range(0..20);
    let is_there = model.visible().contains_key(&id);
    let text = format!("{{\"id\":{id},\"n\":{},\"token\":\"t{id}\"}}", random.random_range(0..3));
    let body = text.as_bytes().to_vec();
    let not_found =
        |answer: Result<Written, WriteError>| assert!(matches!(answer, Err(WriteError::NotFound)), "{answer:?}");
    match random.random_range(0..6) {
        0 if is_there => {
            let answer = service.write(Op::Insert { body });
            assert!(matches!(answer, Err(WriteError::Conflict { .. })), "{answer:?}");
        }
        0 => {
            service.write(Op::Insert { body }).unwrap();
            model.put(id, &text);
        }
        1 => {
            assert_eq!(service.write(Op::Put { key: key(id), body }).unwrap().created, !is_there);
            model.put(id, &text);
        }
        2 if is_there => {
            let patch = b"{\"n\":1}".to_vec();
            service.write(Op::Update { key: key(id), patch }).unwrap();
            model.put(id, &format!("{{\"id\":{id},\"n\":1,\"token\":\"t{id}\"}}"));
        }
        2 => not_found(service.write(Op::Update { key: key(id), patch: b"{\"n\":1}".to_vec() })),
        3 => {
            assert_eq!(service.sql(&format!("UPDATE items SET n = 2 WHERE id = {id}")), u64::from(is_there));
            if is_there {
                model.put(id, &format!("{{\"id\":{id},\"n\":2,\"token\":\"t{id}\"}}"));
            }
        }
        4 if is_there => {
            service.write(Op::Replace { key: key(id), body }).unwrap();
            model.put(id, &text);
        }
        4 => not_found(service.write(Op::Replace { key: key(id), body })),
        _ if is_there => {
            service.write(Op::Delete { key: key(id) }).unwrap();
            model.stored.remove(&id);
        }
        _ => not_found(service.write(Op::Delete { key: key(id) })),
    }
}

fn random_step(service: &mut Service, model: &mut Model, random: &mut SmallRng) {
    match random.random_range(0..40) {
        0..24 => random_write(service, model, random),
        24..34 => model.now_ms += random.random_range(0..30_000),
        34 => model.now_ms -= random.random_range(0..60_000),
        35 => drop(service.database().store().checkpoint()),
        36 => service.restart(model.rule.map(|(after, _)| after)),
        37 => {
            let after = (random.random_range(0..3) > 0).then(|| random.random_range(1..150));
            model.declare(after);
            if random.random_range(0..2) == 0 { service.restart(after) } else { service.reload(after) }
        }
        _ => {
            let due = model.stored.iter().filter(|(_, (_, mark))| model.is_due(*mark)).map(|(key, _)| *key);
            let due: Vec<u32> = due.collect();
            let times = model.rule.map(|(after, since)| {
                let time = |id: &u32| (model.stored[id].1.unwrap_or(i64::MIN).max(since) + after) * 1000;
                due.iter().map(time).min().map_or(0, |first| model.now_ms - first)
            });
            let swept = service.sweep(100);
            assert_eq!((swept.removed, swept.lag_ms), (due.len() as u64, times.unwrap_or_default() as u64));
            due.iter().for_each(|id| drop(model.stored.remove(id)));
        }
    }
    service.at_ms(model.now_ms);
}

#[test]
fn at_any_moment_what_the_model_has_is_there_and_nothing_else() {
    for seed in 0..8 {
        println!("seed {seed}");
        let mut random = SmallRng::seed_from_u64(seed);
        let mut model = Model { now_ms: 1_700_000_000_123, ..Model::default() };
        let mut service = Service::new(None);
        service.at_ms(model.now_ms);
        for step in 0..150 {
            random_step(&mut service, &mut model, &mut random);
            service.check_visible(&model.visible());
            if step % 10 == 9 {
                service.check_clean();
            }
        }
        let stored: usize = service
            .rows("SELECT SUM(c) AS c FROM counts")
            .trim_matches(|c: char| !c.is_ascii_digit())
            .parse()
            .unwrap_or(0);
        assert_eq!(stored, model.stored.len(), "views count what is stored");
    }
}
