//! The budget of one expression: a query can be stopped inside a row, and computed values are counted before they are
//! allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use docs::sql::{Budget, PreparedQuery, QueryError, Scratch, SpillSpace};
use serde_json::json;

use crate::sql_oracle::Both;

/// How long an execution may continue after its deadline. On an idle machine it is well under a millisecond; this leaves room
/// for a busy one.
const LATE_MAX: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_millis(1);
/// Attempts for a statement to end in time.
const RUNS_MAX: usize = 8;

/// A text of almost a MiB, in few bytes of SQL.
const LONG: &str = "printf('%1000000s', 'a')";

fn both() -> Both {
    let text = "abcdefgh".repeat(1 << 10);
    let all: Vec<_> = (0..200).map(|id| json!({ "id": id, "a": id % 7, "c": text })).collect();
    Both::new(&all, &all)
}

/// Most arguments of a function.
const ARGUMENTS_MAX: usize = 30;

/// A sum with at least `count` copies of `part`, each of which is computed anew.
fn sum_of(part: &str, count: usize) -> String {
    let some = format!("max({})", vec![part; ARGUMENTS_MAX].join(", "));
    vec![&some[..]; count.div_ceil(ARGUMENTS_MAX)].join(" + ")
}

/// Statements that take seconds or minutes, grouped by the expensive operation.
fn slow() -> Vec<String> {
    let table = |expr: &str| format!("SELECT SUM({expr}) AS s FROM t WHERE id < 3");
    let long = "printf('%300000s', id)";
    vec![
        // Texts that are generated, and derived from others.
        table(&sum_of(&format!("length({LONG})"), 120)),
        table(&sum_of("length(hex(printf('%400000s', id)))", 120)),
        table(&sum_of(&format!("length(replace({long}, ' ', 'xy'))"), 120)),
        table(&sum_of(&format!("length(upper({long}) || lower({long}))"), 120)),
        table(&sum_of(&format!("length(quote({long}))"), 120)),
        // Texts that are searched.
        table(&sum_of(&format!("instr({long}, 'z')"), 120)),
        table(&sum_of(&format!("length(trim({long}))"), 120)),
        table(&sum_of(&format!("(({long}) = ({long}))"), 120)),
        table(&sum_of(&format!("max({long}, {long}, 1)"), 120)),
        table(&sum_of("CAST(printf('%0300000d', id) AS REAL)", 120)),
        table(&sum_of("(printf('%0300000d', id) + 1)", 120)),
        // Patterns.
        table(&sum_of(&format!("({long} LIKE '%aaaaaaaaaaaab%')"), 120)),
        table(&sum_of(&format!("({long} GLOB '*[^ ]*[^ ]*')"), 120)),
        table("printf('%1000000s', id) LIKE printf('%%%40000sb%%', id)"),
        // JSON.
        table(&sum_of("json_valid('[' || printf('%0300000d', id) || ']')", 120)),
        table(&sum_of("length(json_set(printf('[%.*c]', 100000, '1'), '$[#]', 1, '$[#]', 2))", 120)),
        table(&sum_of(
            "length(json_patch('{' || rtrim(replace(printf('%.9000c', 'x'), 'x', '\"' || id || '\":1,'), ',') || '}', '{' || rtrim(replace(printf('%.9000c', 'x'), 'x', '\"b\":1,'), ',') || '}'))",
            1,
        )),
        table(&sum_of("json_array_length(printf('[%.*c]', 100000, '1'))", 120)),
        table(
            "length(json_extract(printf('%.900c', '[') || printf('%900000s', id) || printf('%.900c', ']'), '$' || replace(printf('%.900c', 'x'), 'x', '[0]')))",
        ),
        // Dates, and conversions without output.
        table(&sum_of("length(strftime(replace(printf('%.150000c', 'x'), 'x', '%J'), id))", 100)),
        table(&sum_of("length(printf(replace(printf('%.300000c', 'x'), 'x', '%.0f'), 1e300))", 100)),
        // Rows of subqueries.
        "SELECT COUNT(*) AS n FROM t a, t b, t c, t d WHERE a.c || b.c || c.c || d.c = 'x'".to_owned(),
        "SELECT id FROM t x WHERE (SELECT COUNT(*) FROM t y, t z, t w WHERE y.a + z.a + w.a = x.id + 100) > 0"
            .to_owned(),
        "SELECT COUNT(*) AS n FROM t x, t y WHERE (x.id, y.id) IN (SELECT a.id + 1000, NULL FROM t a, t b)".to_owned(),
        // Sorts of long texts, and the operators after them.
        format!("SELECT id FROM t WHERE id < 100 ORDER BY {}", ["c || id"; 60].join(", ")),
        format!(
            "SELECT a.id FROM t a, t b GROUP BY a.id, b.id HAVING {} < 0",
            sum_of("length(printf('%9000s', a.id))", 50)
        ),
        "SELECT GROUP_CONCAT(printf('%4000s', a.id + b.id), '') AS s FROM t a, t b, t c GROUP BY a.id + b.id + c.id"
            .to_owned(),
    ]
}

#[test]
fn a_deadline_ends_every_expression_inside_a_row() {
    let (both, mut wrong) = (both(), Vec::new());
    for sql in slow() {
        let query = PreparedQuery::prepare(&sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let run = || {
            let began = Instant::now();
            let over = || began.elapsed() > DEADLINE;
            let budget = Budget { deadline: Some(&over), rows_max: u64::MAX, ..Budget::default() };
            let ended = query.write_array(&both.memory, &[], &mut Scratch::new(), &budget, &mut Vec::new());
            (ended, began.elapsed())
        };
        // Among other tests a thread may wait for its processor that long: then it is late once, but not every time.
        let runs: Vec<_> = (0..RUNS_MAX).map(|_| run()).take_while(|(_, took)| *took > DEADLINE + LATE_MAX).collect();
        let (ended, took) = run();
        if !matches!(ended, Err(QueryError::Deadline)) || runs.len() == RUNS_MAX {
            wrong.push(format!("{sql:.200}: {ended:?} after {took:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_row_computes_is_counted_before_it_is_allocated() {
    let both = both();
    let budget = Budget { memory_bytes_max: 400 << 10, ..Budget::default() };
    let ended = |sql: &str| {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
        query.write_array(&both.memory, &[], &mut Scratch::new(), &budget, &mut Vec::new()).map(|_| ())
    };
    for sql in [
        format!("SELECT length({LONG}) AS n"),
        format!("SELECT {} AS n", sum_of("length(printf('%100000s', 1))", 20)),
        "SELECT length(hex(hex(hex(printf('%60000s', 'a'))))) AS n".to_owned(),
        "SELECT length(trim(printf('%60000s', 'a'), printf('%99000s', 'b'))) AS n".to_owned(),
        "SELECT length(json_array(printf('%99000s', 1), printf('%99000s', 2), printf('%99000s', 3), printf('%99000s', 4))) AS n".to_owned(),
        "SELECT length(replace(printf('%9000s', ''), ' ', printf('%99s', ''))) AS n".to_owned(),
        "SELECT length(strftime(printf('%.99000c', '%J'), 1)) || printf('%400000s', 1) AS n".to_owned(),
    ] {
        match ended(&sql) {
            Err(QueryError::Limit { what, limit }) => {
                assert_eq!((what, limit), ("bytes that expressions compute for a row", 400 << 10), "{sql}");
            }
            other => panic!("{sql}: {other:?}"),
        }
    }
    // Texts of any length fit as long as there is room.
    for bytes in (1_000..40_000).step_by(777) {
        ended(&format!(
            "SELECT length(printf('%{bytes}s', id) || printf('%{}s', id)) AS n FROM t WHERE id < 2",
            bytes / 2
        ))
        .unwrap();
    }
    // Rows that are filtered out do not count.
    ended("SELECT id FROM t WHERE length(printf('%50000s', id)) = 1").unwrap();
    ended("SELECT id FROM t a WHERE (SELECT COUNT(*) FROM t b WHERE b.id < 3 AND b.c || printf('%50000s', a.id) = '') > 0")
        .unwrap();
    ended("SELECT a, MAX(printf('%50000s', id)) AS m FROM t GROUP BY a HAVING length(printf('%90000s', m)) < 9")
        .unwrap();
}

/// The outcome of a statement with 400 KiB of memory, and the bytes of the result written by then.
fn bounded(both: &Both, sql: &str, scratch: &mut Scratch) -> (Result<(), (&'static str, u64)>, usize) {
    let budget = Budget { memory_bytes_max: 400 << 10, output_bytes_max: 500 << 10, ..Budget::default() };
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut out = Vec::new();
    let ended = match query.write_array(&both.memory, &[], scratch, &budget, &mut out) {
        Ok(_) => Ok(()),
        Err(QueryError::Limit { what, limit }) => Err((what, limit)),
        Err(other) => panic!("{sql:.200}: {other}"),
    };
    (ended, out.capacity())
}

#[test]
fn a_row_of_many_copies_of_a_text_is_refused_before_they_are_made() {
    let both = both();
    let copies = |of: &str, count: usize| (0..count).map(|n| format!("{of} AS c{n}")).collect::<Vec<_>>().join(", ");
    let long = "(SELECT printf('%90000s', 1) AS x)";
    let (result, row) = (("bytes of result", 500 << 10), ("bytes of one row that is kept", 400 << 10));
    let groups = ("bytes of groups", 400 << 10);
    for (sql, told) in [
        (format!("SELECT {} FROM {long}", copies("x", 200)), result),
        (format!("SELECT {} FROM {long} ORDER BY x", copies("x", 200)), row),
        (format!("SELECT DISTINCT {} FROM {long}", copies("x", 200)), row),
        (format!("SELECT {}, COUNT(*) AS n FROM {long} GROUP BY x", copies("x", 200)), result),
        (format!("SELECT COUNT(*) AS n FROM {long} GROUP BY {}", ["x"; 8].join(", ")), row),
        ("SELECT id % 50 AS k, MAX(printf('%50000s', id)) AS m FROM t GROUP BY k".to_owned(), groups),
        ("SELECT id % 50 AS k, GROUP_CONCAT(printf('%5000s', id)) AS m FROM t GROUP BY k".to_owned(), groups),
        ("SELECT COUNT(DISTINCT printf('%5000s', id)) AS m FROM t".to_owned(), groups),
        (format!("SELECT {} FROM t", copies("c", 200)), result),
        (format!("SELECT {} FROM t ORDER BY a", copies("c", 200)), row),
        (format!("SELECT {} FROM (SELECT replace(printf('%50000s', 1), ' ', char(1)) AS x)", copies("x", 2)), result),
    ] {
        let (ended, written) = bounded(&both, &sql, &mut Scratch::new());
        assert_eq!(ended, Err(told), "{sql:.120}");
        assert!(written <= 2 * (500 << 10), "{sql:.120}: {written} bytes");
    }
}

#[test]
fn helpers_meet_the_limits_of_one_thread() {
    let both = both();
    let workers = Arc::new(docs::sql::Workers::new(3).from_entries(1));
    for bytes in [1_000, 20_000, 60_000, 110_000, 160_000] {
        for sql in [
            format!("SELECT SUM(length(printf('%{bytes}s', id))) AS n FROM t"),
            format!("SELECT a, MAX(printf('%{bytes}s', id)) AS m FROM t GROUP BY a"),
            format!("SELECT COUNT(*) AS n FROM t GROUP BY printf('%{bytes}s', id)"),
            format!("SELECT id FROM t ORDER BY printf('%{bytes}s', id) LIMIT 3"),
            format!("SELECT id FROM t ORDER BY printf('%{bytes}s', id)"),
            format!("SELECT id FROM t WHERE length(printf('%{bytes}s', id)) > 7"),
            // The longer ones exceed the limit of one row's computed values.
            format!("SELECT SUM(length(printf('%{bytes}s', id) || printf('%{bytes}s', id))) AS n FROM t"),
            format!("SELECT id FROM t WHERE length(printf('%{bytes}s', id) || printf('%{bytes}s', id)) > 7"),
        ] {
            let alone = bounded(&both, &sql, &mut Scratch::new()).0;
            let mut scratch = Scratch::new().with_workers(Arc::clone(&workers));
            assert_eq!(bounded(&both, &sql, &mut scratch).0, alone, "{sql}");
        }
    }
}

/// Number of deadline checks of a statement.
fn questions(both: &Both, sql: &str) -> u64 {
    let asked = AtomicU64::new(0);
    let over = || {
        asked.fetch_add(1, Ordering::Relaxed);
        false
    };
    let budget = Budget { deadline: Some(&over), ..Budget::default() };
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
    query.write_array(&both.memory, &[], &mut Scratch::new(), &budget, &mut Vec::new()).unwrap();
    asked.into_inner()
}

#[test]
fn a_sort_inside_a_value_asks_for_the_time_again_and_again() {
    // Characters in pseudo-random order.
    let characters = (0..1_000_000u32).map(|at| char::from(b'a' + (at.wrapping_mul(2_654_435_761) >> 28) as u8));
    let document = json!({ "id": 1, "a": 1, "c": characters.collect::<String>() });
    let both = Both::new(&[document], &[]);
    let (without, with) = ("SELECT length(trim('xyz', 'z')) AS n FROM t", "SELECT length(trim('xyz', c)) AS n FROM t");
    let asked = questions(&both, with) - questions(&both, without);
    assert!(asked > 1_000, "asked {asked} times while a million characters were sorted");
}

#[test]
fn a_text_that_is_put_together_from_disk_is_counted_before_it_is_allocated() {
    let both = both();
    let folder = tempfile::tempdir().unwrap();
    let space = Arc::new(SpillSpace::new(folder.path(), 1 << 30));
    let ended = |sql: &str, budget: &Budget<'_>| {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let mut out = Vec::new();
        let ended = query.write_array(&both.memory, &[], &mut Scratch::new(), budget, &mut out);
        ended.map(|_| out).map_err(|error| error.to_string())
    };
    let little = Budget { memory_bytes_max: 400 << 10, spill: Some(&space), ..Budget::default() };
    let told = Err(format!("the query exceeds its limit of {} bytes of one row that is kept", 400 << 10));
    for of in ["GROUP_CONCAT(u.c)", "json_group_array(u.c)", "GROUP_CONCAT(DISTINCT u.c || t.id || ',' || u.id)"] {
        let sql = |rows: usize| {
            format!("SELECT t.a, {of} AS s FROM t JOIN u ON u.a = t.a WHERE t.id < 28 AND u.id < {rows} GROUP BY t.a")
        };
        // Groups of about 900 KiB, and of about 60 KiB.
        assert_eq!(ended(&sql(200), &little), told, "{of}");
        assert_eq!(ended(&sql(14), &little), ended(&sql(14), &Budget::default()), "{of}");
    }
    assert!(space.written() > 0);
}

#[test]
fn operators_that_copy_their_operand_are_bounded_in_a_statement() {
    let both = both();
    for operator in ["a IS id", "a IS NOT 1", "a ISNULL", "c NOT GLOB 'x'", "a IN ((SELECT 1), 2)"] {
        let prepared = |count: usize| {
            let sql = format!("SELECT id FROM t WHERE {}", vec![operator; count].join(" OR "));
            PreparedQuery::prepare(&sql, &both.memory.catalog).map(drop).map_err(|error| error.to_string())
        };
        // Nested queries have a lower limit.
        prepared(if operator.contains("SELECT") { 60 } else { 128 }).unwrap();
        let refused = prepared(129).expect_err(operator);
        assert!(refused.contains("more than 128 of the operators IS before a value"), "{refused}");
    }
    for operator in ["a IS NULL", "a IS NOT NULL", "a IN (1, 2)", "c GLOB 'x'", "a NOTNULL"] {
        let sql = format!("SELECT id FROM t WHERE {}", vec![operator; 300].join(" OR "));
        PreparedQuery::prepare(&sql, &both.memory.catalog).unwrap();
    }
}
