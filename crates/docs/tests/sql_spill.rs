//! Sorts and groups that spill to disk give the same bytes as in memory; queries that cannot spill report their limit.

use std::sync::Arc;

use crate::sql_generator::{Random, query, world};
use crate::sql_oracle::Both;
use docs::sql::{Budget, PreparedQuery, Scratch, SpillSpace, Value, Workers};
use serde_json::json;

const QUERIES_OF_A_WORLD: u64 = 25;
/// Memory limits in bytes: for nothing, for about one row, for some rows.
const MEMORIES: [usize; 3] = [0, 400, 4_000];
const SPACE_BYTES: u64 = 1 << 30;

struct Disk {
    _folder: tempfile::TempDir,
    space: Arc<SpillSpace>,
}

impl Disk {
    fn new(bytes_max: u64) -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let space = Arc::new(SpillSpace::new(folder.path(), bytes_max));
        Disk { _folder: folder, space }
    }

    fn budget(&self, memory_bytes_max: usize) -> Budget<'_> {
        Budget { memory_bytes_max, spill: Some(&self.space), ..Budget::default() }
    }
}

fn helped() -> Scratch {
    Scratch::new().with_workers(Arc::new(Workers::new(2).from_entries(1)))
}

/// The rows, or the error.
fn run(query: &PreparedQuery, both: &Both, scratch: &mut Scratch, budget: &Budget<'_>) -> Result<String, String> {
    let mut out = Vec::new();
    let parameters = vec![Value::Null; query.parameters().len()];
    let outcome = query.write_array(&both.memory, &parameters, scratch, budget, &mut out);
    outcome.map_err(|error| error.to_string()).map(|_| String::from_utf8(out).unwrap())
}

/// Whether a query keeps rows outside sorts and groups, or groups that cannot spill.
fn needs_memory(answer: &Result<String, String>) -> bool {
    let reasons = ["bytes of rows kept", "bytes of groups", "bytes of rows of json_each"];
    answer.as_ref().is_err_and(|error| reasons.iter().any(|reason| error.contains(reason)))
}

#[test]
fn random_queries_give_the_same_bytes_from_disk() {
    let (disk, mut scratches) = (Disk::new(SPACE_BYTES), [Scratch::new(), helped()]);
    let (mut spilled, mut refused) = (0, 0);
    for seed in 0..160 {
        let mut random = Random::new(seed);
        let both = world(&mut random);
        for _ in 0..QUERIES_OF_A_WORLD {
            let asked = query(&mut random);
            let Ok(query) = PreparedQuery::prepare(&asked.sql, &both.memory.catalog) else { continue };
            let alone = run(&query, &both, &mut Scratch::new(), &Budget::default());
            for memory in MEMORIES {
                for scratch in &mut scratches {
                    let written = disk.space.written();
                    let found = run(&query, &both, scratch, &disk.budget(memory));
                    assert_eq!(disk.space.used(), 0, "seed {seed}: {}", asked.sql);
                    if needs_memory(&found) {
                        refused += 1;
                        continue;
                    }
                    assert_eq!(found, alone, "seed {seed}, {memory} bytes: {}", asked.sql);
                    spilled += usize::from(disk.space.written() > written);
                }
            }
        }
    }
    assert!(spilled > 1_500, "{spilled} spilled, {refused} refused");
}

/// Results with spilling equal those in memory, with one thread and with several; `spills` is whether the disk must be used.
#[track_caller]
fn check(both: &Both, sql: &str, spills: bool) {
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    let alone = run(&query, both, &mut Scratch::new(), &Budget::default());
    let disk = Disk::new(SPACE_BYTES);
    for memory in [200, 2_000, 20_000] {
        for scratch in [&mut Scratch::new(), &mut helped()] {
            assert_eq!(run(&query, both, scratch, &disk.budget(memory)), alone, "{memory} bytes: {sql}");
        }
    }
    assert_eq!(disk.space.written() > 0, spills, "{sql}");
}

fn many() -> Both {
    Both::new(&many_documents(3_000), &[])
}

fn many_documents(count: i64) -> Vec<serde_json::Value> {
    (0..count)
        .map(|id| {
            let mixed = match id % 4 {
                0 => json!(id % 13),
                1 => json!((id % 13) as f64),
                2 => json!(format!("t{}", id % 17)),
                _ => json!(null),
            };
            json!({ "id": id, "a": mixed, "b": id * 7_919 % 1_009, "c": (id as f64) * 0.1, "d": "x".repeat(id as usize % 40) })
        })
        .collect()
}

#[test]
fn sorts_go_to_disk() {
    let both = many();
    check(&both, "SELECT * FROM t ORDER BY b, a DESC", true);
    check(&both, "SELECT id, a FROM t ORDER BY a DESC", true);
    check(&both, "SELECT id, d FROM t ORDER BY d DESC LIMIT 700 OFFSET 900", true);
    check(&both, "SELECT id, b FROM t ORDER BY d LIMIT 2", true);
    check(&both, "SELECT id FROM t ORDER BY id", false);
}

#[test]
fn groups_go_to_disk_and_come_in_their_order() {
    let both = many();
    check(&both, "SELECT b, COUNT(*) AS n, SUM(c) AS s, MIN(d) AS low, MAX(a) AS high FROM t GROUP BY b", true);
    check(
        &both,
        "SELECT b % 500 AS k, AVG(id) AS m, TOTAL(c) AS s FROM t GROUP BY k HAVING m > 1000 LIMIT 9 OFFSET 3",
        true,
    );
    check(&both, "SELECT a, GROUP_CONCAT(id, a || ';') AS ids FROM t GROUP BY a", true);
    check(
        &both,
        "SELECT b, GROUP_CONCAT(d) FILTER (WHERE id % 3 = 0) AS ds FROM t GROUP BY b ORDER BY ds DESC, b",
        true,
    );
    check(&both, "SELECT a, json_group_array(id) AS ids, json_group_object(id, a) AS s FROM t GROUP BY a", true);
    check(
        &both,
        "SELECT b, json_group_object(id, d) FILTER (WHERE id % 3 = 0) AS ds FROM t GROUP BY b ORDER BY ds DESC, b",
        true,
    );
    check(&both, "SELECT a, b, COUNT(*) AS n FROM t GROUP BY a, b ORDER BY n DESC", true);
    let overflow = "SELECT b, SUM(9223372036854775807 - b) AS s FROM t GROUP BY b";
    check(&both, overflow, true);
}

#[test]
fn distinct_rows_and_values_go_to_disk() {
    let both = many();
    check(&both, "SELECT DISTINCT a FROM t", true);
    check(&both, "SELECT DISTINCT b, a FROM t LIMIT 500 OFFSET 20", true);
    check(&both, "SELECT DISTINCT b % 300 AS k, a FROM t ORDER BY a, k % 7", true);
    check(&both, "SELECT COUNT(DISTINCT b) AS n, COUNT(DISTINCT a) AS m, COUNT(*) AS k FROM t", true);
    check(&both, "SELECT a, COUNT(DISTINCT b) AS n, MIN(DISTINCT d) AS d FROM t GROUP BY a", true);
    check(&both, "SELECT DISTINCT COUNT(*) AS n, b % 100 AS r FROM t GROUP BY b", true);
}

#[test]
fn the_bound_of_the_disk_is_told() {
    let (both, disk) = (many(), Disk::new(10_000));
    let query = PreparedQuery::prepare("SELECT * FROM t ORDER BY b", &both.memory.catalog).unwrap();
    for scratch in [&mut Scratch::new(), &mut helped()] {
        let refused = run(&query, &both, scratch, &disk.budget(2_000)).expect_err("the disk is too small");
        assert_eq!(
            refused,
            "the query exceeds its limit of 10000 bytes on disk, shared by all queries that sort or group"
        );
        assert_eq!(disk.space.used(), 0);
    }
}

#[test]
fn sums_and_texts_of_distinct_values_go_to_disk() {
    let both = many();
    check(&both, "SELECT SUM(DISTINCT b) AS s, AVG(DISTINCT c) AS m, TOTAL(DISTINCT a) AS t FROM t", true);
    // Of equal values the first one counts: an integer or a real.
    check(&both, "SELECT id % 11 AS k, SUM(DISTINCT a) AS s FROM t GROUP BY k", true);
    check(&both, "SELECT id % 3 AS k, SUM(DISTINCT 9223372036854775800 + b % 8) AS s FROM t GROUP BY k", true);
    check(&both, "SELECT GROUP_CONCAT(DISTINCT b) AS s FROM t", true);
    check(&both, "SELECT a, GROUP_CONCAT(DISTINCT d) AS ds, SUM(DISTINCT b) AS s FROM t GROUP BY a ORDER BY ds", true);
    check(&both, "SELECT id % 5 AS k, GROUP_CONCAT(DISTINCT a) FILTER (WHERE b > 500) AS s FROM t GROUP BY k", true);
    check(
        &both,
        "SELECT a, json_group_array(DISTINCT d) AS ds, json_group_array(DISTINCT a) AS s FROM t GROUP BY a",
        true,
    );
    check(&both, "SELECT json_group_array(DISTINCT b) AS s FROM t", true);
    // More than the longest text; with little memory the query fails earlier.
    let long = "SELECT GROUP_CONCAT(DISTINCT id || REPLACE(d, 'x', 'xxxxxxxxxxxxxxxxxxxxxxxxx')) AS s FROM t";
    let query = PreparedQuery::prepare(long, &both.memory.catalog).unwrap();
    let alone = run(&query, &both, &mut Scratch::new(), &Budget::default());
    let little = Err("the query exceeds its limit of 131072 bytes of one row that is kept".to_owned());
    for (memory, told) in [(200, &little), (20_000, &little), (4 << 20, &alone)] {
        let disk = Disk::new(SPACE_BYTES);
        for scratch in [&mut Scratch::new(), &mut helped()] {
            assert_eq!(&run(&query, &both, scratch, &disk.budget(memory)), told, "{memory} bytes");
        }
        assert!(disk.space.written() > 0, "{memory} bytes");
    }
}

#[test]
fn rows_of_joins_go_to_disk() {
    let (t, u) = (many_documents(700), many_documents(900));
    let both = Both::new(&t, &u);
    check(&both, "SELECT t.id, u.id AS other FROM t JOIN u ON u.c = t.c", true);
    check(&both, "SELECT t.id, u.id AS other, u.d FROM t LEFT JOIN u ON u.c = t.c + 0.1 AND u.b > 300", true);
    check(&both, "SELECT t.id, u.b FROM t JOIN u ON u.d = t.d WHERE t.b < 40 LIMIT 900 OFFSET 20", true);
    check(&both, "SELECT t.d, COUNT(*) AS n, SUM(u.c) AS s FROM t JOIN u ON u.d = t.d GROUP BY t.d ORDER BY n", true);
    check(&both, "SELECT t.id, k.n FROM t JOIN (SELECT d, COUNT(*) AS n FROM u GROUP BY d) AS k ON k.d = t.d", true);
    check(&both, "SELECT COUNT(*) AS n FROM t, (SELECT a, b FROM u WHERE b < 90) AS k WHERE k.a <> t.a", true);
    // Keys of all kinds, and none.
    check(&both, "SELECT t.id, u.id AS other FROM t JOIN u ON u.a || '' = t.a || '' WHERE t.id > 500", true);
}

#[test]
fn rows_that_an_expression_asks_for_stay_in_memory_and_more_of_them_is_told() {
    let (both, disk) = (many(), Disk::new(SPACE_BYTES));
    for sql in
        ["SELECT id FROM t WHERE c IN (SELECT c FROM t)", "SELECT id FROM t WHERE (c, d) IN (SELECT c, d FROM t)"]
    {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
        let refused = run(&query, &both, &mut Scratch::new(), &disk.budget(2_000)).expect_err(sql);
        let told = "the query exceeds its limit of 2000 bytes of rows kept for a join or a subquery";
        assert_eq!(refused, told, "{sql}");
    }
}

#[test]
fn the_time_ends_a_merge() {
    let (both, disk) = (many(), Disk::new(SPACE_BYTES));
    let query = PreparedQuery::prepare("SELECT * FROM t ORDER BY b", &both.memory.catalog).unwrap();
    // Counts the deadline checks: reading makes one for every 256 rows, and one for each run.
    let asked = std::sync::atomic::AtomicU32::new(0);
    let budget = disk.budget(100_000);
    let mut count = Budget { deadline: None, ..budget };
    let counts = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > u32::MAX / 2;
    count.deadline = Some(&counts);
    run(&query, &both, &mut Scratch::new(), &count).unwrap();
    let questions = asked.load(std::sync::atomic::Ordering::Relaxed);
    let over = || asked.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 1;
    let late = Budget { deadline: Some(&over), ..budget };
    let ended = run(&query, &both, &mut Scratch::new(), &late).expect_err("its last question ends it");
    assert_eq!((ended.as_str(), questions > 3_000 / 256 + 1), ("the query's time is over", true));
}
