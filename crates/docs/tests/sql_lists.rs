//! Lists that several threads find are given as one thread gives them, row by row, and end when nobody wants more.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sql_memory::Memory;
use crate::sql_oracle::Both;
use docs::engine::{Direction, KeyRange, TreeId, View};
use docs::sql::{Budget, Field, Outcome, Query, QueryError, RowSink, Scratch, Workers};
use serde_json::json;

const DOCUMENTS: i64 = 3_000;
/// From here on `c` is no JSON.
const MALFORMED_FROM: i64 = 2_000;

fn workers() -> Arc<Workers> {
    Arc::new(Workers::new(3).from_entries(1))
}

fn many() -> Both {
    let documents: Vec<_> = (0..DOCUMENTS)
        .map(|id| {
            let c = if id < MALFORMED_FROM { "[1]" } else { "[1" };
            json!({ "id": id, "a": id % 7, "b": id * 7_919 % 1_009, "c": c, "d": "x".repeat(id as usize % 90) })
        })
        .collect();
    Both::new(&documents, &[])
}

/// Keeps what it is given.
#[derive(Default)]
struct Rows {
    text: Vec<u8>,
    /// Of which so much is whole rows.
    whole: usize,
    count: usize,
    /// Nobody wants rows from here on.
    wanted: Option<usize>,
    /// Called at the first row.
    stands_still: Option<Box<dyn Fn()>>,
}

impl Rows {
    fn whole(&self) -> &str {
        std::str::from_utf8(&self.text[..self.whole]).unwrap()
    }
}

impl RowSink for Rows {
    fn begin_row(&mut self) {
        self.stands_still.take().into_iter().for_each(|stand_still| stand_still());
    }
    fn field(&mut self, _column: usize, field: Field<'_>) {
        docs::sql::write_field(field, &mut self.text);
        self.text.push(b' ');
    }
    fn end_row(&mut self) {
        self.count += 1;
        self.text.push(b'\n');
        self.whole = self.text.len();
    }
    fn bytes(&self) -> usize {
        self.text.len()
    }
    fn is_wanted(&self) -> bool {
        self.wanted.is_none_or(|wanted| self.count < wanted)
    }
}

fn run(
    sql: &str,
    view: &Memory,
    (scratch, budget): (&mut Scratch, &Budget<'_>),
    rows: &mut Rows,
) -> Result<Outcome, QueryError> {
    Query::prepare(sql, &view.catalog).unwrap().execute(view, &[], scratch, budget, rows)
}

/// Several threads give what one gives: the rows, and how it ends.
#[track_caller]
fn check(both: &Both, sql: &str, budget: &Budget<'_>) -> usize {
    let (workers, mut alone) = (workers(), Rows::default());
    let ended = run(sql, &both.memory, (&mut Scratch::new(), budget), &mut alone);
    let ended = ended.map(|outcome| outcome.rows).map_err(|error| error.to_string());
    let mut scratch = Scratch::new().with_workers(Arc::clone(&workers));
    for _ in 0..20 {
        let mut shared = Rows::default();
        let found = run(sql, &both.memory, (&mut scratch, budget), &mut shared);
        let found = found.map(|outcome| outcome.rows).map_err(|error| error.to_string());
        assert_eq!(found, ended, "{sql}");
        assert!(shared.whole() == alone.whole(), "{sql}: {} rows, alone {}", shared.count, alone.count);
        assert_eq!(workers.busy(), 0);
    }
    alone.count
}

#[test]
fn lists_come_in_the_order_of_one_thread_wherever_they_begin_and_end() {
    let both = many();
    for memory_bytes_max in [300_000, 40_000, 0] {
        let budget = Budget { memory_bytes_max, ..Budget::default() };
        assert_eq!(check(&both, "SELECT * FROM t", &budget), DOCUMENTS as usize);
        assert_eq!(check(&both, "SELECT id, d FROM t WHERE b < 30", &budget), 90);
        check(&both, "SELECT id, a + b AS s FROM t WHERE a = 3 ORDER BY id DESC", &budget);
        check(&both, "SELECT id FROM t WHERE b > 200 LIMIT 300 OFFSET 1000", &budget);
        check(&both, "SELECT id FROM t WHERE b = 7 LIMIT 2 OFFSET 1", &budget);
        check(&both, "SELECT id, d FROM t LIMIT 2999", &budget);
        assert_eq!(check(&both, "SELECT id FROM t WHERE b < 0", &budget), 0);
    }
    let budget = Budget::default();
    check(&both, "SELECT x.id, y.b FROM t x JOIN t y ON y.id = x.b WHERE y.a < 4", &budget);
    check(&both, "SELECT DISTINCT a FROM t", &budget);
    check(&both, "SELECT DISTINCT b, a FROM t WHERE d > 'xxx' LIMIT 400 OFFSET 7", &budget);
    check(&both, "SELECT DISTINCT b % 50 AS k FROM t ORDER BY id % 11, k DESC", &budget);
}

#[test]
fn rows_before_an_error_leave_before_it() {
    let (both, budget) = (many(), Budget::default());
    let sql = "SELECT id, json_extract(c, '$[0]') AS j FROM t WHERE a + 0 < 6";
    assert_eq!(check(&both, sql, &budget), (0..MALFORMED_FROM).filter(|id| id % 7 < 6).count());
    assert_eq!(check(&both, &format!("{sql} LIMIT 1700"), &budget), 1_700);
    let few = Budget { output_bytes_max: 9_000, ..budget };
    check(&both, "SELECT id FROM t", &few);
    let known = Budget { memory_bytes_max: 20_000, ..budget };
    assert!(check(&both, "SELECT DISTINCT id FROM t", &known) > 0);
}

#[test]
fn a_fault_in_a_rows_order_counts_only_for_the_first_of_its_kind() {
    let (both, budget) = (many(), Budget::default());
    assert_eq!(check(&both, "SELECT DISTINCT a FROM t ORDER BY json_extract(c, '$[0]'), a", &budget), 7);
    assert_eq!(check(&both, "SELECT DISTINCT id / 1000 AS k FROM t ORDER BY json_extract(c, '$[0]')", &budget), 0);
}

#[test]
fn what_is_read_ahead_is_no_reason_for_an_error() {
    let both = many();
    let sql = "SELECT id FROM t WHERE a + 0 = 6 LIMIT 200";
    let enough = Budget { rows_max: 200 * 7, ..Budget::default() };
    assert_eq!(check(&both, sql, &enough), 200);
    let few = Budget { rows_max: 200 * 7 - 300, ..Budget::default() };
    let (mut rows, mut scratch) = (Rows::default(), Scratch::new().with_workers(workers()));
    let ended = run(sql, &both.memory, (&mut scratch, &few), &mut rows).expect_err("too few rows");
    assert_eq!(ended.to_string(), "the query exceeds its limit of 1100 rows read");
    let all = Budget { rows_max: 2_999, ..Budget::default() };
    let ended = run("SELECT id FROM t", &both.memory, (&mut scratch, &all), &mut Rows::default());
    assert_eq!(ended.expect_err("one row too many").to_string(), "the query exceeds its limit of 2999 rows read");
}

#[test]
fn who_goes_ends_all_threads() {
    let (both, workers) = (many(), workers());
    let mut scratch = Scratch::new().with_workers(Arc::clone(&workers));
    for wanted in [1, 100, 1_500] {
        let mut rows = Rows { wanted: Some(wanted), ..Rows::default() };
        let ended = run("SELECT * FROM t", &both.memory, (&mut scratch, &Budget::default()), &mut rows);
        assert!(matches!(ended, Err(QueryError::Unwanted)), "{ended:?}");
        assert_eq!((rows.count, workers.busy()), (wanted, 0));
    }
    let over = || true;
    let late = Budget { deadline: Some(&over), ..Budget::default() };
    let ended = run("SELECT * FROM t", &both.memory, (&mut scratch, &late), &mut Rows::default());
    assert!(matches!(ended, Err(QueryError::Deadline)), "{ended:?}");
    assert_eq!(workers.busy(), 0);
}

#[test]
fn who_stands_still_keeps_no_helpers() {
    let (both, workers) = (many(), workers());
    let waits_for = Arc::clone(&workers);
    let stand_still = move || {
        let since = Instant::now();
        while waits_for.busy() > 0 {
            assert!(since.elapsed() < Duration::from_secs(30), "{} helpers stay", waits_for.busy());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let mut rows = Rows { stands_still: Some(Box::new(stand_still)), ..Rows::default() };
    let budget = Budget { memory_bytes_max: 20_000, ..Budget::default() };
    let mut scratch = Scratch::new().with_workers(Arc::clone(&workers));
    run("SELECT * FROM t", &both.memory, (&mut scratch, &budget), &mut rows).unwrap();
    let mut alone = Rows::default();
    run("SELECT * FROM t", &both.memory, (&mut Scratch::new(), &budget), &mut alone).unwrap();
    assert!(rows.whole() == alone.whole(), "{} rows", rows.count);
}

/// Its helpers cannot read.
struct Panics<'m>(&'m Memory, std::thread::ThreadId);

#[allow(clippy::type_complexity, reason = "as for the trait")]
impl View for Panics<'_> {
    fn get(&self, tree: TreeId, key: &[u8]) -> Result<Option<Cow<'_, [u8]>>, store::Error> {
        self.0.get(tree, key)
    }
    fn scan(
        &self,
        tree: TreeId,
        range: KeyRange<'_>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), store::Error> {
        assert_eq!(std::thread::current().id(), self.1, "no helper can read");
        // So that the helpers find parts.
        std::thread::sleep(Duration::from_millis(5));
        self.0.scan(tree, range, direction, visit)
    }
    fn across(&self) -> Option<Box<dyn View + Sync + '_>> {
        Some(Box::new(Panics(self.0, self.1)))
    }
    fn cuts(&self, tree: TreeId, range: KeyRange<'_>, count: usize) -> Result<Vec<Vec<u8>>, store::Error> {
        self.0.cuts(tree, range, count)
    }
    fn entries_about(&self, tree: TreeId, range: KeyRange<'_>) -> Result<Option<u64>, store::Error> {
        self.0.entries_about(tree, range)
    }
}

#[test]
#[should_panic(expected = "a scoped thread panicked")]
fn a_helper_that_panics_ends_the_query() {
    let both = many();
    let query = Query::prepare("SELECT * FROM t", &both.memory.catalog).unwrap();
    let view = Panics(&both.memory, std::thread::current().id());
    let mut scratch = Scratch::new().with_workers(workers());
    drop(query.execute(&view, &[], &mut scratch, &Budget::default(), &mut Rows::default()));
}
