//! The stack that statements use stays within the stack that is reserved for them, at any nesting depth.

use docs::sql::{Budget, PreparedQuery, STACK_BYTES_MAX, Scratch};
use serde_json::json;

use crate::sql_memory::Memory;
use crate::sql_oracle::Both;

/// More than any statement may use, so that an excess is measured, too.
const STACK_BYTES: usize = 64 << 20;
/// Deeper than any statement may nest.
const DEPTH_MOST: usize = 4_096;

/// Statements of one kind of nesting, by depth.
type Kind = (&'static str, fn(usize) -> String);

fn around(depth: usize, begin: &str, inside: &str, end: &str) -> String {
    format!("{}{inside}{}", begin.repeat(depth), end.repeat(depth))
}

fn tests(condition: &str) -> String {
    format!("SELECT id FROM t WHERE {condition}")
}

fn sum() -> String {
    around(70, "", "a", " + a")
}

const KINDS: [Kind; 35] = [
    ("parentheses", |depth| tests(&around(depth, "(", "a = 1", ")"))),
    ("sums", |depth| tests(&around(depth, "", "a", " + a"))),
    ("sums to the right", |depth| tests(&around(depth, "a + (", "a", ")"))),
    ("texts", |depth| tests(&around(depth, "", "c", " || c"))),
    ("conditions", |depth| tests(&around(depth, "", "a = 1", " AND b = 1 OR d = 2"))),
    ("comparisons", |depth| tests(&around(depth, "", "a", " = 1"))),
    ("signs", |depth| tests(&around(depth, "- ", "a", ""))),
    ("negations", |depth| tests(&around(depth, "NOT ", "a", ""))),
    ("functions", |depth| tests(&around(depth, "abs(", "a", ")"))),
    ("cases", |depth| tests(&around(depth, "CASE WHEN a THEN ", "a", " ELSE 1 END"))),
    ("FROM", |depth| around(depth, "SELECT id, a FROM (", "SELECT id, a FROM t", ") x")),
    ("FROM with groups", |depth| {
        around(depth, "SELECT a, COUNT(*) AS n FROM (", "SELECT id, a FROM t", ") x GROUP BY a ORDER BY a")
    }),
    ("FROM around sums", |depth| {
        around(depth, "SELECT id, a FROM (", &format!("SELECT id, {} AS a FROM t", sum()), ") x")
    }),
    ("FROM around conditions", |depth| {
        around(
            depth,
            "SELECT id, a FROM (",
            &tests(&around(200, "", "a = 1", " AND b = 1 OR d = 2")).replace("id", "id, a"),
            ") x",
        )
    }),
    ("functions around sums", |depth| tests(&around(depth, "abs(", &sum(), ")"))),
    ("subqueries around sums", |depth| {
        tests(&around(depth, &format!("a + 0 IN (SELECT {} FROM u WHERE ", sum()), "a = 1", ")"))
    }),
    ("OR and AND", |depth| {
        let condition = (0..depth).fold("a = 1".to_owned(), |inside, level| {
            format!("b = 1 {} ({inside})", if level % 2 == 0 { "AND" } else { "OR" })
        });
        tests(&condition)
    }),
    ("negated parentheses", |depth| tests(&around(depth, "NOT (", "a = 1", ")"))),
    ("negations as operands", |depth| tests(&around(depth, "a = NOT ", "b", ""))),
    ("functions of sums", |depth| tests(&around(depth, "1 + abs(", "a", ")"))),
    ("functions of two", |depth| tests(&around(depth, "coalesce(b, ", "a", ")"))),
    ("lists", |depth| tests(&around(depth, "a IN (1, ", "b", ")"))),
    ("casts", |depth| tests(&around(depth, "CAST(", "a", " AS INTEGER)"))),
    ("all precedences", |depth| tests(&around(depth, "a OR b AND c = d < a & b + c * d || (", "a", ")"))),
    ("tables in parentheses", |depth| format!("SELECT id FROM {}", around(depth, "(", "t", ")"))),
    ("names of WITH", |depth| {
        let named = (1..=depth).map(|level| format!("n{level} AS (SELECT id, a FROM n{})", level - 1));
        let named: Vec<String> = named.collect();
        format!("WITH n0 AS (SELECT id, a FROM t), {} SELECT id, a FROM n{depth}", named.join(", "))
    }),
    ("results", |depth| format!("SELECT {} AS x FROM t GROUP BY a", around(depth, "abs(", "MAX(b)", ")"))),
    ("calls around FROM", |depth| {
        let from = around(19, "SELECT a FROM (", "SELECT a FROM t", ") x");
        tests(&around(7, "abs(", &format!("a IN ({from}) + {}", around(depth, "abs(", "b", ")")), ")"))
    }),
    ("IS NOT", |depth| tests(&around(depth, "a IS NOT (", "b", ")"))),
    ("calls in lists", |depth| tests(&around(depth, "a IN (1, abs(", "b", "))"))),
    ("conditions of joins", |depth| {
        let on = around(depth, "x.a = 1 OR (", "y.a = x.a", ")");
        format!("SELECT x.id FROM (t x JOIN (u y JOIN t z ON {on}) ON {on})")
    }),
    ("subqueries", |depth| tests(&around(depth, "a + 0 IN (SELECT a FROM u WHERE ", "a = 1", ")"))),
    ("joins", |depth| {
        let joins =
            (1..=depth).map(|number| format!(" LEFT JOIN u u{number} ON u{number}.id = t.id AND u{number}.a < 9"));
        format!("SELECT t.id FROM t{} ORDER BY u{depth}.a", joins.collect::<String>())
    }),
    ("joins of kept rows", |depth| {
        let joins =
            (1..=depth).map(|number| format!(" LEFT JOIN u u{number} ON u{number}.c = t.c AND u{number}.id = 1"));
        format!("SELECT t.id, {} FROM t{} ORDER BY u{depth}.a", sum().replace('a', "t.a"), joins.collect::<String>())
    }),
    ("correlated queries", |depth| {
        let inner = (0..depth).rev().fold("1".to_owned(), |inner, level| {
            format!("EXISTS (SELECT 1 FROM u x{level} WHERE x{level}.a <> t.id + 100 AND {inner})")
        });
        tests(&inner)
    }),
];

/// The touched size of the calling thread's stack.
fn touched() -> usize {
    let place = 0u8;
    let address = std::ptr::from_ref(&place).addr();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_here = false;
    for line in maps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((from, to)) = first.split_once('-') {
            let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16).unwrap());
            is_here = (from..to).contains(&address);
        } else if first == "Rss:" && is_here {
            let kilobytes = line.split_whitespace().nth(1).unwrap();
            return kilobytes.parse::<usize>().unwrap() << 10;
        }
    }
    panic!("no mapping has the stack");
}

/// Runs on a separate thread: the stack used, or `None` if the statement is refused.
fn run(memory: &Memory, sql: &str) -> Option<usize> {
    std::thread::scope(|scope| {
        let work = || {
            let query = PreparedQuery::prepare(sql, &memory.catalog).ok()?;
            let outcome = query.write_array(memory, &[], &mut Scratch::new(), &Budget::default(), &mut Vec::new());
            // May fail, for example with an overflow, after all levels were entered.
            drop((outcome, query));
            Some(touched())
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

/// The depth of the deepest accepted statement, and the stack that it uses.
fn deepest(memory: &Memory, kind: fn(usize) -> String) -> (usize, usize) {
    let (mut least, mut most) = (1, DEPTH_MOST);
    let Some(mut bytes) = run(memory, &kind(least)) else { return (1, 0) };
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        match run(memory, &kind(middle)) {
            Some(touched) => (least, bytes) = (middle, touched),
            None => most = middle,
        }
    }
    (least, bytes)
}

#[test]
fn the_deepest_statement_of_each_kind_stays_within_what_is_counted() {
    let documents: Vec<_> = (0..3).map(|id| json!({ "id": id, "a": 1, "b": 1, "c": "c", "d": 2 })).collect();
    let both = Both::new(&documents, &documents);
    let mut over = Vec::new();
    for (name, kind) in KINDS {
        let (depth, bytes) = deepest(&both.memory, kind);
        println!("{name}: {depth} deep, {} KiB", bytes >> 10);
        assert!((1..DEPTH_MOST - 1).contains(&depth), "{name}: {depth} deep");
        if bytes > STACK_BYTES_MAX {
            over.push(format!("{name}, {depth} deep: {bytes}"));
        }
    }
    assert!(over.is_empty(), "{over:?} of {STACK_BYTES_MAX}");
}
