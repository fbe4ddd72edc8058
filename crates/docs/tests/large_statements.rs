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
[views.sizes]
query = "SELECT n, COUNT(*) AS places, SUM(marks) AS marks FROM marks GROUP BY n"
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
        for view in ["marks", "all", "sizes"] {
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
    world.check();
}

/// Acknowledged changes of the writers.
#[derive(Default)]
struct Done {
    adds: AtomicU64,
    inserted: AtomicU64,
    deleted: AtomicU64,
}

/// Repeats a write while a large statement refuses it.
fn until_taken<T>(
    is_over: &AtomicBool,
    mut write: impl FnMut() -> Result<T, WriteError>,
) -> Option<Result<T, WriteError>> {
    loop {
        match write() {
            Err(WriteError::Busy) if is_over.load(Ordering::Acquire) => return None,
            Err(WriteError::Busy) => std::thread::yield_now(),
            outcome => return Some(outcome),
        }
    }
}

fn write_on(world: &World, seed: u64, is_over: &AtomicBool, done: &Done) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut fresh = ITEMS + seed * 1_000_000;
    let service = &world.service;
    while !is_over.load(Ordering::Acquire) {
        let id = rng.random_range(0..ITEMS / 2);
        match rng.random_range(0..10) {
            0 => {
                if let Some(added) = until_taken(is_over, || world.add_item(fresh)) {
                    added.unwrap();
                    done.inserted.fetch_add(1, Ordering::Relaxed);
                }
                fresh += 1;
            }
            // Only items in the half that is not counted.
            1 => {
                let id = rng.random_range(ITEMS / 2..ITEMS);
                match until_taken(is_over, || service.run(&format!("delete items/{id}"))) {
                    Some(Ok(_)) => drop(done.deleted.fetch_add(1, Ordering::Relaxed)),
                    Some(Err(WriteError::NotFound)) | None => {}
                    Some(Err(error)) => panic!("{error}"),
                }
            }
            2 => {
                let place = rng.random_range(0..10);
                let moved = until_taken(is_over, || service.run(&format!("update items/{id} {{\"place\":{place}}}")));
                moved.map(Result::unwrap);
            }
            3 => {
                let code = rng.random_range(0..u32::MAX);
                let _ = service.run(&format!("update items/{id} {{\"code\":\"n{code}\"}}"));
            }
            _ => {
                let add = || match world.modify(&format!("UPDATE items SET adds = adds + 1 WHERE id = {id}")) {
                    Ok(rows) => Ok(rows),
                    Err(ModifyError::Write(error)) => Err(error),
                    Err(error) => panic!("{error}"),
                };
                if let Some(added) = until_taken(is_over, add) {
                    assert_eq!(added.unwrap(), 1);
                    done.adds.fetch_add(1, Ordering::Relaxed);
                }
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
        let until = Instant::now() + Duration::from_secs(60);
        for _ in 0..6 {
            // No pass fails because of the writers, and between two of them they come through.
            world
                .modify("UPDATE items SET passes = passes + 1, mark = (mark + 1) % 7, kind = 'k' || (id % 5)")
                .unwrap();
            passes += 1;
            let before = done.adds.load(Ordering::Relaxed);
            while done.adds.load(Ordering::Relaxed) == before {
                assert!(Instant::now() < until, "no writer comes through");
                std::thread::yield_now();
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
        let deletion = format!("DELETE FROM items WHERE id BETWEEN {} AND {} AND mark < 9", ITEMS / 2, ITEMS - 1);
        let deleted = world.modify(&deletion).unwrap();
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
[collections.others]
key = { field = "id", type = "u32" }
"##;

#[test]
fn writes_elsewhere_do_not_wait_for_the_check_of_a_long_document() {
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
    let is_held = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        // Writes a document of another collection on request.
        scope.spawn(|| {
            let (asked, tell) = (asked, tell);
            while asked.recv().is_ok() {
                service.run("put others/5000 {\"id\":5000}").unwrap();
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
            assert!(ended.is_ok(), "{ended:?}");
        }
        drop(over);
    });
    assert!(!is_held.load(Ordering::Relaxed), "a write waited for the check of a long document");
    let budget = Budget { spill: Some(&space), ..Budget::default() };
    let done = database.modify(&statement, &[], &budget, &mut NoRows).unwrap().rows;
    assert!(done > u64::from(SHORT), "{done}");
    assert!(docs::verify::database(&database).unwrap().is_clean());
}

#[test]
fn a_subquery_over_what_others_write_is_right_at_the_commit() {
    let world = World::new();
    let (is_over, done) = (AtomicBool::new(false), Done::default());
    std::thread::scope(|scope| {
        let (world, is_over, done) = (&world, &is_over, &done);
        scope.spawn(move || write_on(world, 5, is_over, done));
        for _ in 0..3 {
            let changed = world.modify("UPDATE items SET passes = (SELECT COUNT(*) FROM items)").unwrap();
            // Each document that existed at the commit has the number of documents that existed at the commit.
            let counted = world.query(&format!("SELECT COUNT(*) AS n FROM items WHERE passes = {changed}"));
            assert!(counted[0]["n"].as_u64().unwrap() <= changed, "{counted} of {changed}");
            let copied = world.modify("INSERT INTO copies (id, mark) SELECT id, mark FROM items").unwrap();
            let sum = world.query("SELECT COUNT(*) AS n FROM copies");
            assert_eq!(sum, serde_json::json!([{"n": copied}]));
            assert_eq!(world.modify("DELETE FROM copies WHERE id >= 0").unwrap(), copied);
        }
        is_over.store(true, Ordering::Release);
    });
    world.check();
}

#[test]
fn writes_of_referring_documents_do_not_stop_a_large_deletion() {
    let world = World::new();
    for note in 0..20 {
        world.service.run(&format!("insert notes {{\"id\":{note},\"item\":{note}}}")).unwrap();
    }
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(20));
    std::thread::scope(|scope| {
        let (world, is_over, written) = (&world, &is_over, &written);
        // Notes of items that stay, and of items that the deletion finds: those are refused, or stop the deletion.
        scope.spawn(move || {
            while !is_over.load(Ordering::Acquire) {
                let note = written.fetch_add(1, Ordering::AcqRel);
                let insert = format!("insert notes {{\"id\":{note},\"item\":{}}}", note % 20);
                until_taken(is_over, || world.service.run(&insert).map(drop)).map(Result::unwrap);
            }
        });
        let until = Instant::now() + Duration::from_secs(60);
        while written.load(Ordering::Acquire) < 30 {
            assert!(Instant::now() < until, "no note is written");
            std::thread::yield_now();
        }
        assert_eq!(world.modify("DELETE FROM items WHERE id >= 20").unwrap(), ITEMS - 20);
        is_over.store(true, Ordering::Release);
    });
    world.check();
    let lost = world.query("SELECT COUNT(*) AS n FROM notes WHERE item NOT IN (SELECT id FROM items)");
    assert_eq!(lost, serde_json::json!([{"n": 0}]));
}

#[test]
fn after_a_whole_collection_was_deleted_large_statements_work() {
    let world = World::new();
    world.modify("INSERT INTO copies (id, mark) SELECT id, mark FROM items").unwrap();
    assert_eq!(world.modify("DELETE FROM copies").unwrap(), ITEMS);
    assert_eq!(world.modify("UPDATE items SET mark = 5 WHERE id >= 0").unwrap(), ITEMS);
    assert_eq!(world.modify("INSERT INTO copies (id, mark) SELECT id, mark FROM items").unwrap(), ITEMS);
    world.check();
}

#[test]
fn a_large_statement_changes_views_of_many_groups_and_returns_rows() {
    const GROUPS: u64 = 6000;
    let dir = tempfile::tempdir().unwrap();
    let mut options = docs::engine::StoreOptions::default();
    options.durability = docs::engine::Durability::None;
    options.transaction_bytes_max = 1 << 20;
    let text = "[collections.t]\nkey = { field = \"id\", type = \"u32\" }\n[views.per]\nquery = \"SELECT owner, COUNT(*) AS n, \
                SUM(b) AS s, COUNT(DISTINCT b) AS d FROM t GROUP BY owner\"";
    let database = DocumentDatabase::open(&config(text), dir.path(), options).unwrap().0;
    let space = Arc::new(SpillSpace::new(dir.path(), 512 << 20));
    let world = World { service: Service { database, dir }, space };
    // Together the groups' keys take more than the memory that one statement may hold.
    let name = "o".repeat(700);
    for id in 0..GROUPS {
        world.service.run(&format!("insert t {{\"id\":{id},\"owner\":\"{name}{id}\",\"b\":{id}}}")).unwrap();
    }
    assert_eq!(world.modify("UPDATE t SET b = b + 1").unwrap(), GROUPS);
    assert_eq!(world.modify("UPDATE t SET b = b + 1 RETURNING id").unwrap(), GROUPS);
    let sum = (0..GROUPS).map(|id| id + 2).sum::<u64>();
    assert_eq!(world.query("SELECT SUM(s) AS s, SUM(d) AS d FROM per"), serde_json::json!([{"s": sum, "d": GROUPS}]));
    let report = world.service.database.verify_view("per").unwrap().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

#[test]
fn an_upsert_and_an_update_with_other_tables_may_be_large() {
    let world = World::new();
    world.modify("INSERT INTO copies (id, mark) SELECT id, 1 FROM items WHERE id % 2 = 0").unwrap();
    let upsert = "INSERT INTO copies (id, mark) SELECT id, 7 FROM items WHERE true ON CONFLICT (id) DO UPDATE SET mark = mark + 1";
    assert_eq!(world.modify(upsert).unwrap(), ITEMS);
    let sums = world.query("SELECT COUNT(*) AS n, SUM(mark) AS marks FROM copies");
    assert_eq!(sums, serde_json::json!([{"n": ITEMS, "marks": ITEMS / 2 * 2 + ITEMS / 2 * 7}]));
    let joined = "UPDATE copies SET mark = items.id FROM items WHERE items.id = copies.id";
    assert_eq!(world.modify(joined).unwrap(), ITEMS);
    let twice = "UPDATE copies SET mark = items.id FROM items WHERE items.place = copies.id % 10";
    let refused = world.modify(twice).unwrap_err().to_string();
    assert!(refused.contains("more than one row of FROM"), "{refused}");
    // The same, if the first of a document's rows changes nothing.
    let unchanged = "UPDATE copies SET mark = copies.mark FROM items WHERE items.place = copies.id % 10";
    let refused = world.modify(unchanged).unwrap_err().to_string();
    assert!(refused.contains("more than one row of FROM"), "{refused}");
    let sums = world.query("SELECT COUNT(*) AS n FROM copies WHERE mark = id");
    assert_eq!(sums, serde_json::json!([{"n": ITEMS}]));
}

#[test]
fn the_changes_of_a_large_statement_are_read_as_one_transaction() {
    let world = World::new();
    let since = world.service.database.session().unwrap().now().version();
    let mut changes = world.service.database.changes_since(since).unwrap();
    assert_eq!(world.modify("UPDATE items SET mark = 7 WHERE id >= 0").unwrap(), ITEMS);
    // Readers of changes see what is on disk.
    world.service.database.store().checkpoint().unwrap();
    let mut events = Vec::new();
    while changes
        .next(|event| {
            let is_put = matches!(event.change, docs::changes::DocumentChange::Put { .. });
            events.push((event.change_number, event.number, event.is_last, is_put));
        })
        .unwrap()
    {}
    assert_eq!(events.len(), ITEMS as usize);
    let number = events[0].0;
    for (place, event) in events.iter().enumerate() {
        assert_eq!(*event, (number, place as u32, place + 1 == events.len(), true));
    }
    assert_eq!(changes.within(), None);
}
