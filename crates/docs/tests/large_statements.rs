//! Statements that exceed one transaction: the same results as in one transaction, also beside concurrent writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::service::{Service, config};
use docs::sql::NoRows;
use docs::sql::{Budget, PreparedQuery, Scratch, SpillSpace};
use docs::statements::{Modification, ModifyError};
use docs::{DocumentDatabase, WriteError};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value as Json;

const ITEMS: u64 = 3000;
const ALL: &str = "SELECT id, code, place, mark, kind, passes, adds, text FROM items ORDER BY id";
const CONFIG: &str = r#"
[collections.places]
key = { field = "id", type = "u32" }
[collections.items]
key = { field = "id", type = "u32" }
indexes = [["place", "mark"], ["passes"]]
unique = ["code"]
references = { place = "places" }
[collections.notes]
key = { field = "id", type = "u32" }
indexes = [["item"]]
references = { item = "items" }
[collections.copies]
key = { field = "id", type = "u32" }
indexes = [["mark"]]
[views.marks]
query = "SELECT place, COUNT(*) AS n, SUM(mark) AS marks, MAX(mark) AS most, COUNT(DISTINCT kind) AS kinds FROM items GROUP BY place"
[views.all]
query = "SELECT SUM(passes) AS passes, SUM(adds) AS adds, COUNT(*) AS n FROM items"
"#;

struct World {
    service: Service,
    space: Arc<SpillSpace>,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let mut options = docs::engine::StoreOptions::default();
        options.durability = docs::engine::Durability::None;
        options.transaction_bytes_max = 64 << 10;
        let database = DocumentDatabase::open(&config(CONFIG), dir.path(), options).unwrap().0;
        let space = Arc::new(SpillSpace::new(dir.path(), 256 << 20));
        let world = World { service: Service { database, dir }, space };
        (0..10).for_each(|place| drop(world.service.run(&format!("insert places {{\"id\":{place}}}")).unwrap()));
        (0..ITEMS).for_each(|id| world.add_item(id).unwrap());
        world
    }

    fn add_item(&self, id: u64) -> Result<(), WriteError> {
        let (place, mark, kind) = (id % 10, id % 7, id % 3);
        let document = format!(
            r#"{{"id":{id},"code":"c{id}","place":{place},"mark":{mark},"kind":"k{kind}","passes":0,"adds":0,"text":"some words about the item"}}"#
        );
        self.service.run(&format!("insert items {document}")).map(drop)
    }

    fn modify(&self, sql: &str) -> Result<u64, ModifyError> {
        let statement = Modification::prepare(sql, self.service.database.catalog()).unwrap();
        let budget = Budget { spill: Some(&self.space), ..Budget::default() };
        Ok(self.service.database.modify(&statement, &[], &budget, &mut NoRows)?.rows)
    }

    fn query(&self, sql: &str) -> Json {
        let query = PreparedQuery::prepare(sql, self.service.database.catalog()).unwrap();
        let (session, mut out) = (self.service.database.session().unwrap(), Vec::new());
        query.write_array(session.now().view(), &[], &mut Scratch::new(), &Budget::default(), &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    /// Checks that every index entry, unique value, reference and view row matches the documents.
    #[track_caller]
    fn check(&self) {
        let report = docs::verify::database(&self.service.database).unwrap();
        assert!(report.is_clean(), "{:?}", report);
        for view in ["marks", "all"] {
            let report = self.service.database.verify_view(view).unwrap().unwrap();
            assert!(report.faults.is_empty(), "{view}: {:?}", report.faults);
        }
        assert_eq!(self.space.used(), 0);
    }
}

#[test]
fn a_statement_over_more_than_a_transaction_holds_is_done_as_a_whole() {
    let world = World::new();
    assert_eq!(world.modify("UPDATE items SET mark = mark + 1, passes = 1, kind = 'k' || (id % 4)").unwrap(), ITEMS);
    world.check();
    let by_rule =
        world.query("SELECT COUNT(*) AS n FROM items WHERE mark = id % 7 + 1 AND passes = 1 AND code = 'c' || id");
    assert_eq!(by_rule, serde_json::json!([{"n": ITEMS}]));
    assert_eq!(world.query("SELECT passes, n FROM all"), serde_json::json!([{"passes": ITEMS, "n": ITEMS}]));
    // A unique value that moves from one document to the next is free when the next one is written.
    assert_eq!(world.modify("UPDATE items SET code = 'd' || id WHERE id < 2900").unwrap(), 2900);
    world.check();
    assert_eq!(world.modify("INSERT INTO copies (id, mark) SELECT id, mark FROM items").unwrap(), ITEMS);
    assert_eq!(
        world.query("SELECT COUNT(*) AS n, SUM(mark) AS m FROM copies"),
        world.query("SELECT COUNT(*) AS n, SUM(mark) AS m FROM items")
    );
    // A source that sorts on disk finds space beside the statement's own.
    assert_eq!(world.modify("DELETE FROM copies WHERE id >= 0").unwrap(), ITEMS);
    let sql = "INSERT INTO copies (id, mark) SELECT id, mark FROM items ORDER BY code";
    let statement = Modification::prepare(sql, world.service.database.catalog()).unwrap();
    let budget = Budget { spill: Some(&world.space), memory_bytes_max: 16 << 10, ..Budget::default() };
    assert_eq!(world.service.database.modify(&statement, &[], &budget, &mut NoRows).unwrap().rows, ITEMS);
    assert_eq!(
        world.modify("DELETE FROM items WHERE id >= 100 AND id IN (SELECT id FROM copies)").unwrap(),
        ITEMS - 100
    );
    assert_eq!(world.modify("DELETE FROM copies WHERE id >= 0").unwrap(), ITEMS);
    world.check();
    assert_eq!(world.query("SELECT n, passes FROM all"), serde_json::json!([{"n": 100, "passes": 100}]));
    assert_eq!(world.query("SELECT COUNT(*) AS n FROM copies"), serde_json::json!([{"n": 0}]));
    let World { service: Service { database, dir }, .. } = &world;
    let last = database.store().stats().version;
    assert!(last > 0);
    let (config, path) = (config(CONFIG), dir.path().to_path_buf());
    let World { service: Service { database, dir }, space } = world;
    drop(database);
    let database = DocumentDatabase::open(&config, &path, docs::engine::StoreOptions::default()).unwrap().0;
    let world = World { service: Service { database, dir }, space };
    world.check();
    assert_eq!(world.query("SELECT n, passes FROM all"), serde_json::json!([{"n": 100, "passes": 100}]));
}

#[test]
fn one_that_is_refused_changes_nothing() {
    let world = World::new();
    world.service.run(r#"insert notes {"id":1,"item":2999}"#).unwrap();
    let before = world.query(ALL);
    for (sql, why) in [
        ("UPDATE items SET code = 'one' WHERE id >= 0", "another document of items has this"),
        ("UPDATE items SET place = id % 11 WHERE id >= 0", "there is no 10"),
        ("DELETE FROM items", "refer"),
        ("INSERT INTO items (id, code, place) SELECT id + 1500, 'n' || id, place FROM items", "in use"),
    ] {
        let refused = world.modify(sql).unwrap_err().to_string();
        assert!(refused.contains(why), "{sql}: {refused}");
        assert_eq!(world.query(ALL), before, "{sql}");
    }
    // A statement that must not be large reports the limit of a transaction.
    let refused = world.modify("UPDATE items SET mark = 1 RETURNING id").unwrap_err().to_string();
    assert!(refused.contains("transaction"), "{refused}");
    world.check();
}

/// Acknowledged changes of the writers.
#[derive(Default)]
struct Done {
    adds: AtomicU64,
    inserted: AtomicU64,
    deleted: AtomicU64,
}

fn write_on(world: &World, seed: u64, is_over: &AtomicBool, done: &Done) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut fresh = ITEMS + seed * 1_000_000;
    let service = &world.service;
    while !is_over.load(Ordering::Acquire) {
        let id = rng.random_range(0..ITEMS / 2);
        match rng.random_range(0..10) {
            0 => {
                world.add_item(fresh).unwrap();
                fresh += 1;
                done.inserted.fetch_add(1, Ordering::Relaxed);
            }
            // Only items in the half that is not counted.
            1 => match service.run(&format!("delete items/{}", rng.random_range(ITEMS / 2..ITEMS))) {
                Ok(_) => drop(done.deleted.fetch_add(1, Ordering::Relaxed)),
                Err(WriteError::NotFound) => {}
                Err(error) => panic!("{error}"),
            },
            2 => {
                let place = rng.random_range(0..10);
                service.run(&format!("update items/{id} {{\"place\":{place}}}")).unwrap();
            }
            3 => {
                let code = rng.random_range(0..u32::MAX);
                let _ = service.run(&format!("update items/{id} {{\"code\":\"n{code}\"}}"));
            }
            _ => {
                assert_eq!(world.modify(&format!("UPDATE items SET adds = adds + 1 WHERE id = {id}")).unwrap(), 1);
                done.adds.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn what_others_write_meanwhile_is_kept_and_passed_over_by_nothing() {
    let world = World::new();
    let (is_over, done) = (AtomicBool::new(false), Done::default());
    let mut passes = 0;
    std::thread::scope(|scope| {
        let (world, is_over, done) = (&world, &is_over, &done);
        for seed in 1..3 {
            scope.spawn(move || write_on(world, seed, is_over, done));
        }
        let until = Instant::now() + Duration::from_secs(40);
        while passes < 6 && Instant::now() < until {
            match world.modify("UPDATE items SET passes = passes + 1, mark = (mark + 1) % 7, kind = 'k' || (id % 5)") {
                Ok(_) => passes += 1,
                Err(ModifyError::Write(WriteError::Busy)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        is_over.store(true, Ordering::Release);
    });
    assert_eq!(passes, 6);
    world.check();
    let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let n = ITEMS + counted(&done.inserted) - counted(&done.deleted);
    let all = world.query("SELECT n, adds FROM all");
    assert_eq!(all, serde_json::json!([{"n": n, "adds": counted(&done.adds)}]));
    // Items that existed all the time were updated in every pass.
    let half = ITEMS / 2;
    let passed = format!(
        "SELECT COUNT(*) AS n FROM items WHERE id < {half} AND passes = {passes} AND mark = (id % 7 + {passes}) % 7"
    );
    assert_eq!(world.query(&passed), serde_json::json!([{"n": half}]));
}

#[test]
fn a_large_deletion_beside_writers_leaves_what_it_does_not_find() {
    let world = World::new();
    let (is_over, done) = (AtomicBool::new(false), Done::default());
    std::thread::scope(|scope| {
        let (world, is_over, done) = (&world, &is_over, &done);
        scope.spawn(move || write_on(world, 3, is_over, done));
        let until = Instant::now() + Duration::from_secs(40);
        let deleted = loop {
            // The writer changes the items below.
            match world.modify(&format!(
                "DELETE FROM items WHERE id BETWEEN {} AND {} AND mark < 9",
                ITEMS / 2,
                ITEMS - 1
            )) {
                Ok(deleted) => break deleted,
                Err(ModifyError::Write(WriteError::Busy)) if Instant::now() < until => {}
                Err(error) => panic!("{error}"),
            }
        };
        done.deleted.fetch_add(deleted, Ordering::Relaxed);
        is_over.store(true, Ordering::Release);
    });
    world.check();
    let n = ITEMS + done.inserted.load(Ordering::Relaxed) - done.deleted.load(Ordering::Relaxed);
    assert_eq!(world.query("SELECT n FROM all"), serde_json::json!([{"n": n}]));
}

/// Documents of nested arrays and texts, for the general checker.
const TREES: &str = r##"
[collections.trees]
key = { field = "id", type = "u32" }
[collections.trees.schema]
"$ref" = "#/$defs/tree"
[collections.trees.schema."$defs".tree]
anyOf = [
    { type = "object", additionalProperties = { "$ref" = "#/$defs/tree" } },
    { type = "array", items = { "$ref" = "#/$defs/tree" } },
    { type = ["integer", "string"] },
]
"##;

#[test]
fn a_long_document_that_others_rewrite_is_not_checked_while_all_writers_wait() {
    const SHORT: u32 = 900;
    let dir = tempfile::tempdir().unwrap();
    let mut options = docs::engine::StoreOptions::default();
    options.durability = docs::engine::Durability::None;
    options.transaction_bytes_max = 1 << 20;
    let database = DocumentDatabase::open(&config(TREES), dir.path(), options).unwrap().0;
    let (service, space) =
        (Service { database: database.clone(), dir }, SpillSpace::new(std::env::temp_dir(), 256 << 20));
    let long = |text: u32| format!("{{\"id\":0,\"text\":{text},\"tree\":[{}1]}}", "[1,2,3],".repeat(10_000));
    let text = "x".repeat(2_000);
    service.run(&format!("insert trees {}", long(0))).unwrap();
    (1..=SHORT).for_each(|id| drop(service.run(&format!("insert trees {{\"id\":{id},\"text\":\"{text}\"}}")).unwrap()));
    let statement = Modification::prepare("UPDATE trees SET n = 1", database.catalog()).unwrap();
    let space = Arc::new(space);
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (is_over, is_held, rewritten) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Rewrites the long document; all its checks run on this thread.
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                let number = rewritten.fetch_add(1, Ordering::Relaxed) as u32;
                match service.run(&format!("put trees/0 {}", long(number))) {
                    Ok(_) | Err(WriteError::Busy) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        // Writes another document on request.
        scope.spawn(|| {
            let (asked, tell) = (asked, tell);
            while asked.recv().is_ok() {
                service.run("put trees/5000 {\"id\":5000}").unwrap();
                let _ = tell.send(());
            }
        });
        // While the statement checks a document, another write must succeed.
        let (doors, count, held) = (std::sync::Mutex::new((ask, told)), AtomicU64::new(0), Arc::clone(&is_held));
        let over: docs::CancelCheck = Arc::new(move || {
            if count.fetch_add(1, Ordering::Relaxed) % 16 == 0 && !held.load(Ordering::Relaxed) {
                let doors = doors.lock().unwrap();
                doors.0.send(()).unwrap();
                if doors.1.recv_timeout(Duration::from_secs(5)).is_err() {
                    held.store(true, Ordering::Relaxed);
                }
            }
            false
        });
        for _ in 0..3 {
            let budget = Budget { spill: Some(&space), ..Budget::default() };
            let ended = docs::with_cancel_check(Some(&over), || database.modify(&statement, &[], &budget, &mut NoRows));
            // Each attempt may fail with a conflict.
            assert!(matches!(ended, Ok(_) | Err(ModifyError::Write(WriteError::Busy))), "{ended:?}");
        }
        is_over.store(true, Ordering::Release);
        drop(over);
    });
    assert!(!is_held.load(Ordering::Relaxed), "a write waited for the check of a long document");
    let budget = Budget { spill: Some(&space), ..Budget::default() };
    let done = database.modify(&statement, &[], &budget, &mut NoRows).unwrap().rows;
    assert!(done > u64::from(SHORT), "{done}");
    assert!(docs::verify::database(&database).unwrap().is_clean());
}
