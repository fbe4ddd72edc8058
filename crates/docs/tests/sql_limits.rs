//! The limit of rows read is exact: a query that needs one row more always fails, and one within the limit never does. That
//! holds for rows read by the query itself, by its subqueries and by several threads.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use docs::engine::{Direction, KeyRange, ReadView, TreeId};
use docs::sql::{Budget, PreparedQuery, QueryError, Scratch, Workers};
use serde_json::{Value as Json, json};

use crate::sql_memory::Memory;
use crate::sql_oracle::Both;

const HELPERS: usize = 2;
/// Rows after which a thread that scans a part reports its count.
const COUNTED_TOGETHER: u64 = 64;

/// Counts the scanned rows.
struct Looks<'m> {
    memory: &'m Memory,
    count: Arc<AtomicU64>,
}

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl ReadView for Looks<'_> {
    fn across(&self) -> Option<Box<dyn ReadView + Sync + '_>> {
        Some(Box::new(Looks { memory: self.memory, count: Arc::clone(&self.count) }))
    }
    fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, docs::engine::StoreError> {
        self.memory.cuts(tree, range, count)
    }
    fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<u64>, docs::engine::StoreError> {
        self.memory.entries_about(tree, range)
    }
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, docs::engine::StoreError> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.memory.get(tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), docs::engine::StoreError> {
        self.memory.scan(tree, range, direction, &mut |key, value| {
            self.count.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

/// `t` with `count` documents, and `u` with a third of that.
fn both(count: u32) -> Both {
    let document = |id| json!({ "id": id, "a": id % 4, "b": id % 3, "c": format!("c{}", id % 2), "d": id % 50 });
    let all: Vec<Json> = (0..count).map(document).collect();
    Both::new(&all, &all[..all.len() / 3])
}

/// The outcome of a query within a limit of rows, and the rows scanned.
fn run(query: &PreparedQuery, both: &Both, scratch: &mut Scratch, rows_max: u64) -> (Result<u64, QueryError>, u64) {
    let looks = Looks { memory: &both.memory, count: Arc::default() };
    let budget = Budget { rows_max, ..Budget::default() };
    let outcome = query.write_array(&looks, &[], scratch, &budget, &mut Vec::new());
    (outcome.map(|outcome| outcome.rows_read), looks.count.load(Ordering::Relaxed))
}

/// Tests each limit up to the rows that the query needs, and one more.
#[track_caller]
fn check(both: &Both, sql: &str) {
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    let (all, looked) = run(&query, both, &mut Scratch::new(), u64::MAX);
    let all = all.unwrap();
    assert_eq!(all, looked, "{sql}: all rows are looked at in scans");
    for limit in 0..=all + 1 {
        let (ended, looked) = run(&query, both, &mut Scratch::new(), limit);
        match ended {
            Ok(read) => assert!(read == all && limit >= all, "{sql}: {limit}"),
            Err(QueryError::Limit { what, limit: told }) => {
                assert_eq!((what, told), ("rows read", limit), "{sql}");
                assert!(limit < all, "{sql}: {limit} of {all}");
                assert_eq!(looked, limit + 1, "{sql}");
            }
            Err(other) => panic!("{sql}: {other}"),
        }
    }
}

#[test]
fn the_row_after_the_last_is_the_error_wherever_it_is_read() {
    let both = both(12);
    for sql in [
        "SELECT id FROM t WHERE a + 0 = 1",
        "SELECT id FROM t x WHERE (SELECT COUNT(*) FROM u WHERE u.c || x.id = 'c11') > 0",
        "SELECT id, (SELECT COUNT(*) FROM u WHERE u.a + 0 = x.a) AS n FROM t x ORDER BY n, id",
        "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE y.a + 0 = x.a AND EXISTS \
         (SELECT 1 FROM u z WHERE z.b + 0 = y.b + x.b))",
        "SELECT id FROM t WHERE id > 5 AND c || '' IN (SELECT c || '' FROM u)",
        "SELECT x.a FROM t x GROUP BY x.a HAVING COUNT(*) > (SELECT MIN(a + 0) FROM u WHERE a + 0 >= 0)",
        "SELECT x.a FROM t x GROUP BY x.a HAVING EXISTS (SELECT 1 FROM u y WHERE y.a + 0 = x.a)",
        "SELECT x.id FROM t x JOIN (SELECT a + 0 AS a, COUNT(*) AS n FROM u GROUP BY a) y ON y.a = x.a + 0 WHERE y.n > \
         (SELECT COUNT(*) FROM u z WHERE z.a + 0 = x.a + 7)",
        "SELECT id FROM t WHERE a + 0 IN (SELECT a + 0 FROM u WHERE b + 0 = 1 UNION ALL SELECT a + 0 FROM u WHERE b + 0 = 2)",
    ] {
        check_or_kept(&both, sql);
    }
}

/// Kept rows count when they are read again, though nothing is scanned.
#[track_caller]
fn check_or_kept(both: &Both, sql: &str) {
    if !sql.contains("JOIN") && !sql.contains("UNION") {
        return check(both, sql);
    }
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    let all = run(&query, both, &mut Scratch::new(), u64::MAX).0.unwrap();
    for limit in 0..=all + 1 {
        let (ended, looked) = run(&query, both, &mut Scratch::new(), limit);
        assert_eq!(ended.is_ok(), limit >= all, "{sql}: {limit} of {all}");
        assert!(looked <= limit + 1, "{sql}: {looked} of {limit}");
    }
}

#[test]
fn parts_count_with_what_inner_queries_have_read() {
    let both = both(600);
    let workers = Arc::new(Workers::new(HELPERS).from_entries(1));
    let late_most = COUNTED_TOGETHER * (HELPERS as u64 + 1);
    for (sql, all) in [
        ("SELECT COUNT(*) AS n FROM t WHERE a + 0 > 0", 600),
        ("SELECT COUNT(*) AS n FROM t WHERE d + 0 < (SELECT COUNT(*) FROM u WHERE a + 0 = 1)", 800),
        ("SELECT id FROM t WHERE d + 0 < (SELECT COUNT(*) FROM u WHERE a + 0 = 1)", 800),
        ("SELECT id FROM t WHERE d + 0 < (SELECT COUNT(*) FROM u WHERE a + 0 = 1) LIMIT 100000", 800),
    ] {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
        let mut scratch = Scratch::new().with_workers(Arc::clone(&workers));
        for limit in [all, all - 1, all - 100, all - 150, 500, 201, 200, 199, 1, 0] {
            let (ended, looked) = run(&query, &both, &mut scratch, limit);
            match ended {
                Ok(read) => assert_eq!((read, limit), (all, all), "{sql}"),
                Err(QueryError::Limit { what: "rows read", limit: told }) => {
                    assert!(told == limit && limit < all, "{sql}: {told}, {limit}");
                }
                Err(other) => panic!("{sql}: {other}"),
            }
            let late = if sql.contains("LIMIT") { all } else { limit + late_most };
            assert!(looked <= late, "{sql}: {looked} of {limit}");
        }
    }
}

#[test]
fn a_list_with_a_limit_ends_where_one_thread_ends_it() {
    let both = both(3_000);
    let workers = Arc::new(Workers::new(HELPERS).from_entries(1));
    let mut helped = Scratch::new().with_workers(workers);
    for sql in ["SELECT id FROM t WHERE d + 0 = 7 LIMIT 30", "SELECT DISTINCT d FROM t WHERE id + 0 >= 1000 LIMIT 40"] {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
        let wanted = run(&query, &both, &mut Scratch::new(), u64::MAX).0.unwrap();
        for limit in (wanted - 200..wanted + 20).step_by(11).chain([wanted - 1, wanted, 500, 141, 10]) {
            let write = |scratch: &mut Scratch| {
                let (mut out, budget) = (Vec::new(), Budget { rows_max: limit, ..Budget::default() });
                let ended = query.write_array(&both.memory, &[], scratch, &budget, &mut out);
                (ended.map(|outcome| outcome.rows).map_err(|error| error.to_string()), out)
            };
            let alone = write(&mut Scratch::new());
            assert_eq!(alone.0.is_ok(), limit >= wanted, "{sql}: {limit} of {wanted}");
            for _ in 0..10 {
                assert_eq!(write(&mut helped), alone, "{sql}: {limit}");
            }
        }
    }
}
