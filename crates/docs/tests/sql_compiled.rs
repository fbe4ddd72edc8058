//! Plans of the common shape run compiled, and any plan can run interpreted: both produce the same bytes.

use crate::sql_memory::{AVERAGE, Memory, Shape, VISITS, travels};
use docs::catalog::FieldKind;
use docs::sql::{Budget, PreparedQuery, Scratch, Value};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value as Json;

/// Two collections of arbitrary documents, each with an index on one field, and one on two fields that carries the others.
fn memory(t: &[String], u: &[String]) -> Memory {
    let mut memory = Memory::default();
    for (name, documents) in [("t", t), ("u", u)] {
        memory.add(&Shape {
            name,
            key: "id",
            fields: &["id", "a", "b", "c", "d"].map(|field| (field, FieldKind::Any)),
            closed: false,
            indexes: &[(&["a"], &["d"]), (&["b", "c"], &["a", "d"])],
            references: &[],
        });
        documents.iter().for_each(|document| memory.insert(name, document));
    }
    memory
}

/// Runs a query both ways: the output and the outcome, or the error.
fn run(
    query: &PreparedQuery,
    memory: &Memory,
    values: &[Value<'_>],
    scratch: &mut Scratch,
) -> Result<(String, u64, u64), String> {
    let mut out = Vec::new();
    let outcome = query.write_lines(memory, values, scratch, &Budget::default(), &mut out);
    let outcome = outcome.map_err(|error| error.to_string())?;
    Ok((String::from_utf8(out).unwrap(), outcome.rows, outcome.rows_read))
}

#[track_caller]
fn check(memory: &Memory, sql: &str, values: &[Value<'_>]) -> bool {
    let compiled = PreparedQuery::prepare(sql, &memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let general = PreparedQuery::prepare(sql, &memory.catalog).unwrap().interpreted();
    let present: Vec<&str> = compiled.parameters().iter().map(String::as_str).collect();
    let mut scratch = Scratch::new();
    // Twice with one scratch: cached state of the first run must not affect the second.
    for _ in 0..2 {
        let (ours, theirs) =
            (run(&compiled, memory, values, &mut scratch), run(&general, memory, values, &mut Scratch::new()));
        assert_eq!(ours, theirs, "{sql} {values:?}");
    }
    assert!(!general.is_compiled(&present));
    compiled.is_compiled(&present)
}

/// JSON as in documents: numbers of every length, texts with and without escapes, nested values, missing fields.
fn cell() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => (-3i64..6).prop_map(|n| n.to_string()),
        2 => any::<i64>().prop_map(|n| n.to_string()),
        2 => (0u32..64, -1i64..=1).prop_map(|(bit, by)| (1i64 << bit).wrapping_add(by).to_string()),
        2 => (-8i64..8).prop_map(|quarters| format!("{:?}", quarters as f64 / 4.0)),
        1 => select(vec!["-0", "1e3", "-2.5e-7", "123456789012345678901", "true", "false", "[1,2]", r#"{"x":3}"#])
            .prop_map(str::to_owned),
        4 => select(vec!["", "m", "f", "Россия", "a\"b", "a\\b", "line\nend", "12", "é", "mm"])
            .prop_map(|text| Json::from(text).to_string()),
        1 => Just(r#""\u00e9\/m""#.to_owned()),
        2 => Just("null".to_owned()),
        2 => Just(String::new()),
    ]
}

fn documents() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec((cell(), cell(), cell(), cell(), any::<bool>(), "[x]{0,300}"), 0..10).prop_map(|rows| {
        let row = |(id, (a, b, c, d, turned, long)): (usize, (String, String, String, String, bool, String))| {
            let mut fields = vec![format!("\"id\":{id}")];
            let named = [("a", a), ("b", b), ("c", c), ("d", d)];
            fields.extend(named.into_iter().filter(|(_, v)| !v.is_empty()).map(|(n, v)| format!("\"{n}\":{v}")));
            if turned {
                fields.reverse();
            }
            if id % 4 == 3 {
                fields.push(format!("\"long\":\"{long}\"")); // The document's table is wider.
            }
            format!("{{{}}}", fields.join(","))
        };
        rows.into_iter().enumerate().map(row).collect()
    })
}

/// A value for a parameter; texts are the unescaped texts of documents.
fn value() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        4 => (-3i64..6).prop_map(Value::Integer),
        1 => any::<i64>().prop_map(Value::Integer),
        1 => (-8i64..8).prop_map(|quarters| Value::Real(quarters as f64 / 4.0)),
        3 => select(vec!["", "m", "f", "Россия", "a\"b", "a\\b", "a\\\\b", "line\nend", "12", "é", "é/m"]).prop_map(Value::text),
        1 => Just(Value::Null),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let field = || select(vec!["t.a", "t.b", "t.c", "t.d", "t.id", "u.a", "u.b", "u.d", "u.id"]);
    let operator = || select(vec!["=", "<", "<=", ">", ">=", "<>"]);
    let known = || select(vec![":p", ":q", "2", "'m'", "-1", "1.5", ":p + 1", "NULL"]);
    prop_oneof![
        4 => (field(), operator(), known()).prop_map(|(field, op, known)| format!("{field} {op} {known}")),
        1 => (known(), operator(), field()).prop_map(|(known, op, field)| format!("{known} {op} {field}")),
        1 => (field(), operator(), field()).prop_map(|(field, op, other)| format!("{field} {op} {other}")),
        1 => (field(), known(), known()).prop_map(|(field, low, high)| format!("{field} BETWEEN {low} AND {high}")),
        1 => field().prop_map(|field| format!("{field} IS NULL")),
        1 => field().prop_map(|field| format!("{field} IS NOT NULL")),
    ]
}

fn outputs() -> impl Strategy<Value = String> {
    let column = select(vec!["t.id", "t.a", "t.b", "t.c", "t.d", "u.id", "u.a", "u.d", ":p", "7", "'é'"]);
    let aggregate = select(vec![
        "COUNT(*)",
        "COUNT(t.d)",
        "SUM(t.id)",
        "AVG(t.a)",
        "TOTAL(u.d)",
        "MIN(t.b)",
        "MAX(u.a)",
        "COALESCE(ROUND(AVG(t.d), 5), 0)",
    ]);
    prop_oneof![
        2 => prop::collection::vec(column, 1..5),
        1 => prop::collection::vec(aggregate, 1..4),
    ]
    .prop_map(|list| {
        let named = list.iter().enumerate().map(|(number, expr)| format!("{expr} AS x{number}"));
        named.collect::<Vec<_>>().join(", ")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() })]
    #[test]
    fn random_queries_give_the_same_bytes_both_ways(
        t in documents(),
        u in documents(),
        outputs in outputs(),
        first in select(vec!["t.a = :p", "t.b = :p AND t.c > :q", "t.b = :p", "t.id = :p", "t.id > :q", "1 = 1", "t.c <= :p", "t.a IN (:p, 2, :q, 'm')", "t.b IN (1, :p) AND t.c > :q", "t.b = 'm' AND t.c IN (1, :q)", "t.a GLOB 'm*'", "t.id IN (1, :p)"]),
        on in select(vec!["u.id = t.a", "u.id = t.d", "u.id = t.id", "t.id = u.b", "u.id = :q"]),
        conditions in prop::collection::vec(condition(), 0..3),
        tail in select(vec!["", "", " LIMIT 2", " LIMIT 3 OFFSET 1"]),
        p in value(),
        q in value(),
    ) {
        let mut sql = format!("SELECT {outputs} FROM t JOIN u ON {on} WHERE {first}");
        for condition in &conditions {
            sql += &format!(" AND {condition}");
        }
        sql += tail;
        let memory = memory(&t, &u);
        let query = PreparedQuery::prepare(&sql, &memory.catalog).unwrap();
        let values: Vec<Value<'_>> =
            query.parameters().iter().map(|name| if name == "p" { p } else { q }).collect();
        check(&memory, &sql, &values);
    }
}

#[test]
fn the_plans_of_the_travels_queries_are_compiled() {
    let memory = travels();
    for (sql, optional) in [
        (VISITS, vec!["fromDate", "toDate", "country", "toDistance"]),
        (AVERAGE, vec!["fromDate", "toDate", "gender", "fromAge", "toAge"]),
    ] {
        let query = PreparedQuery::prepare(sql, &memory.catalog).unwrap();
        assert!(query.is_compiled(&[]) && query.is_compiled(&optional), "{sql}");
    }
}

#[test]
fn ranges_and_keys_are_compiled_and_other_shapes_are_not() {
    let documents: Vec<String> =
        (0..6).map(|id| format!(r#"{{"id":{id},"a":{},"b":"m","c":{id},"d":-{id}}}"#, id % 3)).collect();
    let memory = memory(&documents, &documents);
    let one = [Value::Integer(1)];
    for sql in [
        "SELECT a, d FROM t WHERE id = :p",
        "SELECT id, d FROM t WHERE a = :p",
        "SELECT id, b FROM t WHERE a = :p AND c >= 1",
        "SELECT id, a FROM t WHERE id > :p AND c BETWEEN 1 AND 4",
        "SELECT t.id, u.id AS u, u.b FROM t JOIN u ON u.id = t.a WHERE t.b = 'm' AND t.c > :p AND u.d < 0",
        "SELECT COUNT(*) AS n, SUM(d) AS s FROM t WHERE a = :p AND d IS NOT NULL",
        "SELECT id, d FROM t WHERE a IN (:p, 0) AND c >= 1",
        "SELECT MAX(a) AS m FROM t WHERE d < :p",
    ] {
        assert!(check(&memory, sql, &one), "{sql}");
    }
    for sql in [
        "SELECT id FROM t WHERE a = :p ORDER BY d",
        "SELECT DISTINCT b FROM t WHERE a = :p",
        "SELECT a, COUNT(*) AS n FROM t WHERE id > :p GROUP BY a",
        "SELECT id, c + 1 AS c FROM t WHERE a = :p",
        "SELECT t.id FROM t LEFT JOIN u ON u.id = t.a WHERE t.a = :p",
        "SELECT id FROM t WHERE a = :p AND b LIKE 'm%'",
    ] {
        assert!(!check(&memory, sql, &one), "{sql}");
    }
}

#[test]
fn rows_of_many_batches_are_joined_in_their_order_and_with_their_own_partners() {
    let of = |count: usize, a: fn(usize) -> usize| -> Vec<String> {
        (0..count).map(|id| format!(r#"{{"id":{id},"a":{},"b":"m","c":{id},"d":"{id}"}}"#, a(id))).collect()
    };
    let memory = memory(&of(100, |id| id % 7), &of(7, |id| id));
    let wide = [Value::Integer(-1)];
    for sql in [
        "SELECT t.id, t.c, u.id AS u, u.d FROM t JOIN u ON u.id = t.a WHERE t.b = 'm' AND t.c > :p",
        "SELECT COUNT(*) AS n, SUM(t.c) AS s, MAX(u.a) AS m FROM t JOIN u ON u.id = t.a WHERE t.b = 'm' AND t.c > :p",
        "SELECT t.id, u.d FROM t JOIN u ON u.id = t.a WHERE t.b = 'm' AND t.c > :p LIMIT 40",
    ] {
        assert!(check(&memory, sql, &wide), "{sql}");
    }
}

#[test]
fn what_is_computed_of_parameters_is_remembered_for_these_parameters_only() {
    let memory = memory(&[r#"{"id":1,"a":0}"#.to_owned()], &[]);
    let sql = "SELECT id, unixepoch(:p, 'unixepoch', printf('%+d years', -:q)) AS x FROM t";
    for p in [0, 1_503_966_608, 86_400] {
        for q in [Value::Integer(1), Value::Integer(30), Value::Real(1.0), Value::Null, Value::text("2")] {
            check(&memory, sql, &[Value::Integer(p), q]);
        }
    }
    let query =
        PreparedQuery::prepare("SELECT unixepoch('now') AS now, unixepoch(:p) AS p FROM t", &memory.catalog).unwrap();
    let mut scratch = Scratch::new();
    for now_ms in [1_000, 2_000] {
        let (mut out, budget) = (Vec::new(), Budget { now_ms, ..Budget::default() });
        query.write_array(&memory, &[Value::text("now")], &mut scratch, &budget, &mut out).unwrap();
        let seconds = now_ms / 1000;
        assert_eq!(String::from_utf8(out).unwrap(), format!(r#"[{{"now":{seconds},"p":{seconds}}}]"#));
    }
}
