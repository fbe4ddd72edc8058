//! The nesting limit of statements: 128 levels of parentheses, calls and CASE, as the README documents; one more is refused
//! with its position. SQLite, used for comparison, accepts more.

use docs::sql::{NESTING_MAX, PreparedQuery, SqlErrorKind};
use serde_json::json;

use crate::sql_oracle::Both;

/// The text around one level, and the innermost one.
struct Kind {
    begin: &'static str,
    innermost: &'static str,
    end: &'static str,
    /// The offset in `begin` where a level begins.
    opens: usize,
}

const KINDS: [Kind; 11] = [
    Kind { begin: "(", innermost: "a = 1", end: ")", opens: 0 },
    Kind { begin: "NOT (", innermost: "a = 1", end: ")", opens: 4 },
    Kind { begin: "b - (", innermost: "a", end: ")", opens: 4 },
    Kind { begin: "abs(", innermost: "a - 2", end: ")", opens: 3 },
    Kind { begin: "1 - abs(", innermost: "a - 2", end: ")", opens: 7 },
    Kind { begin: "coalesce(NULL, ", innermost: "a = 1", end: ")", opens: 8 },
    Kind { begin: "CASE WHEN b < 9 THEN ", innermost: "a = 1", end: " ELSE 1 END", opens: 0 },
    Kind { begin: "CASE b WHEN 9 THEN 1 ELSE ", innermost: "a = 1", end: " END", opens: 0 },
    Kind { begin: "CASE WHEN ", innermost: "a = 1", end: " THEN 1 ELSE 0 END", opens: 0 },
    Kind { begin: "CAST(", innermost: "a", end: " AS INTEGER)", opens: 4 },
    Kind { begin: "a = 1 OR (b = 1 AND ", innermost: "b + a = 3", end: ")", opens: 9 },
];

fn around(depth: usize, begin: &str, inside: &str, end: &str) -> String {
    format!("{}{inside}{}", begin.repeat(depth), end.repeat(depth))
}

fn both() -> Both {
    let all: Vec<_> = (0..12).map(|id| json!({ "id": id, "a": id % 4, "b": id % 3, "c": "c", "d": 1 })).collect();
    Both::new(&all, &all[..3])
}

#[test]
fn each_kind_nests_as_deep_as_documents_with_the_rows_of_sqlite() {
    let both = both();
    for Kind { begin, innermost, end, .. } in KINDS {
        for depth in [1, 2, 19, 46, 47, NESTING_MAX - 1, NESTING_MAX] {
            let nested = format!("{}{innermost}{}", begin.repeat(depth), end.repeat(depth));
            both.check(&format!("SELECT id FROM t WHERE {nested}"), false);
            both.check(&format!("SELECT id, {nested} AS x FROM t ORDER BY x, id"), true);
        }
    }
}

#[test]
fn or_and_and_alternate_as_deep() {
    let both = both();
    for depth in [2, 15, 16, 100, NESTING_MAX] {
        let condition = (0..depth).fold("a = 1".to_owned(), |inside, level| {
            let (operator, tested) = if level % 2 == 0 { ("AND", "b < 3") } else { ("OR", "a + b = 9") };
            format!("({tested} {operator} {inside})")
        });
        both.check(&format!("SELECT id FROM t WHERE {condition}"), false);
    }
}

#[test]
fn one_level_more_is_refused_where_it_begins() {
    let both = both();
    const BEFORE: &str = "SELECT id FROM t WHERE\n ";
    for Kind { begin, innermost, end, opens } in KINDS {
        for more in [1, 2, 50] {
            let depth = NESTING_MAX + more;
            let sql = format!("{BEFORE}{}{innermost}{}", begin.repeat(depth), end.repeat(depth));
            let error = PreparedQuery::prepare(&sql, &both.memory.catalog).map(drop).expect_err(begin);
            let column = 2 + NESTING_MAX * begin.len() + opens;
            assert_eq!(
                (error.kind, error.line, error.column),
                (SqlErrorKind::Limit, 2, column as u64),
                "{begin}: {error}"
            );
            assert!(error.message.contains("nests deeper than 128"), "{error}");
        }
    }
}

#[test]
fn what_waits_for_its_operand_is_counted_too() {
    let both = both();
    for begin in ["- ", "~ ", "NOT ", "a = NOT ", "a < - ", "INTERVAL "] {
        for depth in [100, 300, 1_000] {
            let sql = format!("SELECT id FROM t WHERE {}a", begin.repeat(depth));
            if let Err(error) = PreparedQuery::prepare(&sql, &both.memory.catalog).map(drop) {
                let is_placed = error.line == 1 && error.column > 22;
                assert!(is_placed || error.message.contains("4096 tokens"), "{begin}: {error}");
            }
        }
    }
    let sql = format!("SELECT id FROM t WHERE {}a", "NOT ".repeat(300));
    let error = PreparedQuery::prepare(&sql, &both.memory.catalog).map(drop).expect_err("300 negations");
    assert_eq!((error.kind, error.column), (SqlErrorKind::Limit, 1 + 23 + 4 * 264), "{error}");
}

#[test]
fn queries_inside_queries_count_as_five() {
    let both = both();
    let nested = |depth: usize| around(depth, "SELECT id, a FROM (", "SELECT id, a FROM t", ") x");
    both.check(&nested(23), false);
    let error = PreparedQuery::prepare(&nested(24), &both.memory.catalog).map(drop).expect_err("24 queries");
    assert_eq!((error.kind, error.column), (SqlErrorKind::Limit, 24 * 19), "{error}");
    assert!(error.message.contains("23 queries in FROM or behind IN"), "{error}");
    let begin = "EXISTS (SELECT 1 FROM u WHERE ";
    let exists = |depth: usize| around(depth, begin, "1", ")");
    let exists = |depth: usize| format!("SELECT id FROM t WHERE {}", exists(depth));
    both.check(&exists(25), false);
    let error = PreparedQuery::prepare(&exists(26), &both.memory.catalog).map(drop).expect_err("26 queries");
    assert_eq!((error.kind, error.column), (SqlErrorKind::Limit, 23 + 25 * begin.len() as u64 + 8), "{error}");
    assert!(error.message.contains("a query inside another counts as 5"), "{error}");
    let lists = |depth: usize| format!("SELECT id FROM t WHERE {}", around(depth, "a IN (7, ", "b", ")"));
    both.check(&lists(57), false);
    let error = PreparedQuery::prepare(&lists(58), &both.memory.catalog).map(drop).expect_err("58 lists");
    assert_eq!((error.kind, error.column), (SqlErrorKind::Limit, 23 + 57 * 9 + 6), "{error}");
    assert!(error.message.contains("57 lists behind IN"), "{error}");
}

#[test]
fn operands_that_are_read_first_are_those_of_their_places() {
    let both = both();
    let deep = |inside: &str| around(9, "abs(1 + (", inside, "))");
    for sql in [
        format!(
            "SELECT {} + b AS x, {} AS y FROM t ORDER BY id",
            deep("-a * 2"),
            deep("CASE WHEN a > 1 THEN b ELSE -(a) END")
        ),
        format!("SELECT id FROM t WHERE {} BETWEEN {} AND 90 ORDER BY id", deep("a"), deep("NOT b")),
        format!("SELECT {} AS x FROM t GROUP BY a ORDER BY a", deep("COUNT(*) FILTER (WHERE b > (1))")),
        format!(
            "SELECT id, {} AS x FROM t x ORDER BY id",
            deep("(SELECT MAX(y.a) FROM (SELECT a FROM (u)) y WHERE y.a < x.b)")
        ),
        format!("SELECT id FROM t WHERE {} IS NOT (b + 26) AND c IS NOT NULL ORDER BY id", deep("CAST(a AS INTEGER)")),
        format!("SELECT {} || 'x' AS x FROM (t) ORDER BY id", deep("length(substr(c, 1, (1)))")),
        format!("SELECT id, {} IN ({}, (27)) AS x FROM t ORDER BY id", deep("a"), deep("b")),
    ] {
        both.check(&sql, true);
    }
    // A missing operand is reported at its position.
    let error =
        PreparedQuery::prepare(&format!("SELECT {} AS x FROM t", deep("a + )")), &both.memory.catalog).map(drop);
    let error = error.expect_err("no operand");
    assert_eq!((error.kind, error.column), (SqlErrorKind::Syntax, 8 + 81 + 4), "{error}");
}

/// Texts that sqlparser parses twice at each level, the second time after the first attempt has failed at the end.
#[test]
fn texts_that_fit_two_rules_at_each_level_end_soon() {
    let both = both();
    for begin in [
        "a IN ((SELECT a FROM u WHERE ",
        "a IN (((SELECT a FROM u WHERE ",
        "a IN ((WITH x AS (SELECT 1) SELECT a FROM u WHERE ",
        "a IN (VALUES (",
        "a IN ((VALUES (",
        "(SELECT a FROM ((SELECT a FROM t WHERE ",
        "EXISTS (SELECT 1 FROM ((",
        "if(current_time(",
        "case - ",
        "convert(",
        "a.b(",
        "position(",
    ] {
        for (innermost, end) in [("a", ")"), ("a", "), 1)"), (") (", ""), ("'", "")] {
            for depth in [20, 60, 120] {
                let sql = format!("SELECT id FROM t WHERE {}{innermost}{}", begin.repeat(depth), end.repeat(depth));
                // Only the time is tested: if each level doubled it, this would never end.
                let _ = PreparedQuery::prepare(&sql, &both.memory.catalog);
            }
        }
    }
}

#[test]
fn in_takes_a_list_that_begins_with_a_query_in_any_parentheses() {
    let both = both();
    both.check("SELECT id FROM t WHERE a IN (((SELECT MAX(a) FROM u)))", false);
    both.check("SELECT id FROM t WHERE a NOT IN (((SELECT MAX(a) FROM u)), ((SELECT 0)))", false);
    both.check("SELECT id FROM t WHERE a IN ((WITH x AS (SELECT 3 AS k) SELECT k FROM x), 1)", false);
}
