//! Lists that several threads read are returned in the order of one thread, row by row, and end when the consumer stops.

use std::ops::Bound;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::sql_memory::Memory;
use crate::sql_oracle::Both;
use docs::sql::{Budget, ExecutionCounts, FieldValue, PreparedQuery, QueryError, RowSink, Scratch, Workers};
use serde_json::json;

const DOCUMENTS: i64 = 3_000;
/// Entries of a part, in tests that need several parts of some size.
const PART_ENTRIES: usize = 100;
/// From this id on `c` is malformed JSON.
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

/// Collects the result.
#[derive(Default)]
struct Rows {
    text: Vec<u8>,
    /// Bytes of complete rows in `text`.
    whole: usize,
    count: usize,
    /// The consumer stops after so many rows.
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
    fn field(&mut self, _column: usize, field: FieldValue<'_>) {
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
) -> Result<ExecutionCounts, QueryError> {
    PreparedQuery::prepare(sql, &view.catalog).unwrap().execute(view, &[], scratch, budget, rows)
}

/// Several threads give the same rows, and the same outcome, as one thread.
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
        // As many as the first part has.
        assert_eq!(check(&both, "SELECT id FROM t WHERE a >= 0 LIMIT 2 OFFSET 1", &budget), 2);
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
    let mut both = many();
    both.memory.part_entries = Some(PART_ENTRIES);
    // The part before the last needed one is read late: later parts are read before it.
    both.memory.on_scan = Some(Box::new(|range| {
        if range.from == Bound::Included(&1_200u32.to_be_bytes()) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }));
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
fn for_one_who_has_gone_no_further_part_is_read() {
    let (mut both, own) = (many(), std::thread::current().id());
    let (has_gone, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (sees_gone, counts) = (Arc::clone(&has_gone), Arc::clone(&begun));
    both.memory.part_entries = Some(PART_ENTRIES);
    // Helpers begin the later parts, and read them after the consumer has stopped.
    both.memory.on_scan = Some(Box::new(move |range| {
        let is_later = matches!(range.from, Bound::Included(from) if *from > 0u32.to_be_bytes()[..]);
        if is_later && std::thread::current().id() != own {
            counts.fetch_add(1, Ordering::Relaxed);
            while !sees_gone.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // Time for all of them to be stopped before they could read everything.
            std::thread::sleep(Duration::from_millis(50));
        }
    }));
    let goes = Box::new(move || has_gone.store(true, Ordering::Relaxed));
    let mut rows = Rows { wanted: Some(1), stands_still: Some(goes), ..Rows::default() };
    let mut scratch = Scratch::new().with_workers(workers());
    let ended = run("SELECT * FROM t", &both.memory, (&mut scratch, &Budget::default()), &mut rows);
    assert!(matches!(ended, Err(QueryError::Unwanted)), "{ended:?}");
    let begun = begun.load(Ordering::Relaxed);
    assert!(begun < DOCUMENTS as usize / PART_ENTRIES / 2, "{begun} parts");
}

#[test]
fn who_waits_for_a_helper_looks_at_the_time() {
    /// Fewer rows than between two deadline checks of a reading thread.
    const FEW: usize = 60;
    let (mut both, own) = (many(), std::thread::current().id());
    let (is_told, has_begun) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let sees_told = Arc::clone(&is_told);
    both.memory.part_entries = Some(FEW);
    // A helper begins a part, and reads it after the deadline.
    both.memory.on_scan = Some(Box::new(move |_| {
        let is_helper = std::thread::current().id() != own;
        has_begun.fetch_or(is_helper, Ordering::Relaxed);
        let (waits_for, since) = (if is_helper { &*sees_told } else { &has_begun }, Instant::now());
        while !waits_for.load(Ordering::Relaxed) && since.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }));
    let over = || {
        is_told.store(true, Ordering::Relaxed);
        true
    };
    let budget = Budget { deadline: Some(&over), ..Budget::default() };
    let mut scratch = Scratch::new().with_workers(workers());
    let ended = run("SELECT * FROM t", &both.memory, (&mut scratch, &budget), &mut Rows::default());
    assert!(matches!(ended, Err(QueryError::Deadline)), "{ended:?}");
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

#[test]
fn a_helper_that_panics_ends_the_query() {
    let (mut both, own, since) = (many(), std::thread::current().id(), Instant::now());
    both.memory.on_scan = Some(Box::new(move |_| {
        assert_eq!(std::thread::current().id(), own, "no helper can read");
        // Time for the helpers to take parts.
        std::thread::sleep(Duration::from_millis(5));
    }));
    let is_late = || since.elapsed() > Duration::from_secs(30);
    let (workers, budget) = (workers(), Budget { deadline: Some(&is_late), ..Budget::default() });
    let mut scratch = Scratch::new().with_workers(Arc::clone(&workers));
    let mut rows = Rows::default();
    let run = || run("SELECT * FROM t", &both.memory, (&mut scratch, &budget), &mut rows);
    let ended = std::panic::catch_unwind(AssertUnwindSafe(run)).map_err(drop);
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!((is_late(), workers.busy()), (false, 0), "whether it waited for what never comes, and helpers");
}
