//! Correlated subqueries in any position: SQLite's answers, one index lookup for each row, cached results, within the budget.

use docs::sql::{Budget, Means, PreparedQuery, QueryError, Scratch};
use serde_json::{Value as Json, json};

use crate::sql_oracle::Both;

fn both() -> Both {
    let t: Vec<Json> = (0..12)
        .map(|id| json!({ "id": id, "a": id % 4, "b": id % 3, "c": format!("c{}", id % 2), "d": [id, "x", [id]] }))
        .collect();
    let u: Vec<Json> = (0..8)
        .map(|id| json!({ "id": id, "a": if id == 3 { Json::Null } else { json!(id % 5) }, "b": id % 2, "c": "c1" }))
        .collect();
    Both::new(&t, &u)
}

#[track_caller]
fn check(sql: &str, ordered: bool) {
    both().check(sql, ordered);
}

#[test]
fn they_stand_wherever_an_expression_does() {
    for sql in [
        "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.a AND u.b = 1) ORDER BY id",
        "SELECT id FROM t x WHERE NOT EXISTS (SELECT * FROM u WHERE u.a = x.id) ORDER BY id",
        "SELECT id FROM t x WHERE x.a IN (SELECT y.a FROM u y WHERE y.id > x.id) ORDER BY id",
        "SELECT id, x.a NOT IN (SELECT y.a FROM u y WHERE y.b = x.b) AS n FROM t x ORDER BY id",
        "SELECT id FROM t x WHERE (x.a, 1) IN (SELECT y.a, y.b FROM u y WHERE y.id <> x.id) ORDER BY id",
        "SELECT id, (SELECT COUNT(*) FROM u WHERE u.a = x.a) AS n, (SELECT MAX(id) FROM u WHERE a < x.a) AS m FROM t x \
         ORDER BY id",
        "SELECT x.id FROM t x ORDER BY (SELECT y.id FROM u y WHERE y.a = x.a ORDER BY y.id DESC LIMIT 1), x.id DESC",
        "SELECT x.a, (SELECT COUNT(*) FROM u y WHERE y.a = x.a) AS n FROM t x GROUP BY x.a ORDER BY x.a",
        "SELECT x.a FROM t x GROUP BY x.a HAVING EXISTS (SELECT 1 FROM u y WHERE y.a = x.a AND y.b = 0) ORDER BY x.a",
        "SELECT SUM((SELECT y.b FROM u y WHERE y.id = x.a)) AS s FROM t x",
        "SELECT x.id, y.id AS y FROM t x LEFT JOIN u y ON EXISTS (SELECT 1 FROM t z WHERE z.id = x.a + y.a) \
         ORDER BY x.id, y.id",
        "SELECT CASE WHEN (SELECT q.id FROM u q WHERE q.id = x.id) THEN 'in' ELSE 'out' END AS w FROM t x ORDER BY x.id",
    ] {
        check(sql, true);
    }
}

#[test]
fn names_are_looked_for_from_the_inside_outwards() {
    for sql in [
        // The inner b belongs to the subquery.
        "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE b = 1 AND u.a = t.a) ORDER BY id",
        // The innermost query depends on both enclosing queries; the one between depends on the outermost, or on none.
        "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE y.a = x.a AND EXISTS (SELECT 1 FROM t z WHERE z.b = y.b \
         AND z.a = x.a)) ORDER BY id",
        "SELECT id, (SELECT (SELECT x.a + y.id FROM u z WHERE z.id = x.b) FROM u y WHERE y.id = 2) AS s FROM t x ORDER BY id",
        "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE y.id IN (SELECT z.id FROM t z WHERE z.id = x.id)) \
         ORDER BY id",
        // An inner alias hides an outer one.
        "SELECT x.id FROM t x WHERE EXISTS (SELECT 1 FROM u x WHERE x.a = 4) ORDER BY x.id",
        // A subquery in FROM does not see its neighbours, but does see the enclosing query.
        "SELECT x.id FROM t x WHERE EXISTS (SELECT 1 FROM u x, (SELECT x.a AS k) AS w WHERE w.k = x.id AND x.b = 0) \
         ORDER BY x.id",
        "SELECT x.id, (SELECT COUNT(*) FROM u y JOIN (SELECT z.a FROM t z WHERE z.id < x.id) AS w ON w.a = y.a) AS n \
         FROM t x ORDER BY x.id",
        "SELECT x.id, (SELECT COUNT(*) FROM t y JOIN u z ON z.a = y.a WHERE y.b = x.b) AS n FROM t x ORDER BY x.id",
        // A hash table that is kept for all rows depends on none of them.
        "SELECT x.id, (SELECT COUNT(*) FROM t y JOIN u z ON z.c = y.c AND z.a + 0 = x.a AND y.b + 0 = x.b) AS n FROM t x \
         ORDER BY x.id",
    ] {
        check(sql, true);
    }
}

#[test]
fn unions_and_json_each_see_the_row_too() {
    for sql in [
        "SELECT id, (SELECT COUNT(*) FROM (SELECT y.a FROM u y WHERE y.b = x.b UNION SELECT x.a)) AS n FROM t x ORDER BY id",
        "SELECT id FROM t x WHERE x.a IN (SELECT y.id FROM u y WHERE y.id > x.b EXCEPT SELECT x.id) ORDER BY id",
        "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM json_each(x.d) e WHERE e.value = 'x' AND x.id > 3) ORDER BY id",
        "SELECT id, (SELECT GROUP_CONCAT(e.value, '-') FROM json_each(x.d) e WHERE e.key < 2) AS l FROM t x ORDER BY id",
    ] {
        check(sql, true);
    }
}

#[test]
fn comparisons_convert_as_beside_the_field_itself() {
    let t = [json!({ "id": 0, "a": 7, "b": "7", "c": 7.0 }), json!({ "id": 1, "a": "7", "b": 7 })];
    let both = Both::new(&t, &t);
    for (inner, outer) in [("q.a", "x.b"), ("CAST(q.a AS TEXT)", "x.b"), ("q.a", "CAST(x.b AS TEXT)"), ("q.c", "x.a")] {
        let sql =
            format!("SELECT x.id, (SELECT COUNT(*) FROM u q WHERE {inner} = {outer}) AS n FROM t x ORDER BY x.id");
        both.check(&sql, true);
    }
    let cast = "SELECT w.id FROM (SELECT id, CAST(b AS TEXT) AS k FROM t) AS w WHERE EXISTS (SELECT 1 FROM u WHERE a + 0 = w.k)";
    both.check(cast, false);
}

#[test]
fn a_path_goes_on_into_what_is_told() {
    let t = [json!({ "id": 1, "d": { "k": [5, { "l": true }] } }), json!({ "id": 2 })];
    let both = Both::new(&t, &t);
    for inner in [
        "SELECT q.id FROM u q WHERE x.d.k[0] = q.id + 4",
        "SELECT w.v.k[1].l FROM (SELECT x.d AS v) AS w",
        "SELECT w.v.k[1].l FROM (SELECT x.d AS v UNION ALL SELECT NULL) AS w LIMIT 1",
    ] {
        let rows = both.ours(&format!("SELECT ({inner}) AS v FROM t x ORDER BY x.id")).unwrap();
        assert_eq!(rows, [json!([1]), json!([null])], "{inner}");
    }
    // An index has the value, but no access to its members.
    let covered = Both::with_indexes(&t, &t, &[(&["d"], &[])]);
    let sql = "SELECT (SELECT w.v.k[1].l FROM (SELECT x.d AS v) AS w) AS v FROM t x WHERE x.d > ''";
    assert_eq!(covered.ours(sql).unwrap(), [json!([1])]);
}

#[test]
fn rows_are_found_by_index_and_answers_are_remembered() {
    let t: Vec<Json> = (0..600).map(|id| json!({ "id": id, "a": id % 3, "b": id })).collect();
    let u: Vec<Json> = (0..900).map(|id| json!({ "id": id, "a": id / 3, "c": id })).collect();
    let both = Both::new(&t, &u);
    let run = |sql: &str| {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
        let outcome = query.write_array(&both.memory, &[], &mut Scratch::new(), &Budget::default(), &mut Vec::new());
        let analysis = query.analyze(&both.memory, &[], &Budget::default()).unwrap();
        (outcome.unwrap().rows_read, query.explain_run(&[], &Means::default(), Some(&analysis)).unwrap())
    };
    let (read, plan) = run("SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.b)");
    assert!(plan.contains("QUERY 0: CORRELATED 1 SELECT: SEARCH u USING COVERING INDEX (a=x.b)"), "{plan}");
    assert!(plan.contains("(asked 600 times, run 600 times)"), "{plan}");
    assert_eq!(read, 600 + 300);
    let (read, plan) = run("SELECT (SELECT COUNT(*) FROM u WHERE u.c > x.a) AS n FROM t x");
    assert!(plan.contains("QUERY 0: CORRELATED 1 SELECT: SCAN u FILTER 1 (asked 600 times, run 3 times)"), "{plan}");
    assert_eq!(read, 600 + 3 * 900);
    // An uncorrelated subquery inside a correlated one runs once.
    let (read, _) =
        run("SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.b AND u.b IN (SELECT b FROM t))");
    assert_eq!(read, 600 + 900 + 600);
    let (read, _) = run(
        "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.b AND u.c IN (SELECT b FROM t WHERE b > 0))",
    );
    assert_eq!(read, 600 + 501 + 599);
}

#[test]
fn answers_take_a_bounded_part_of_the_memory() {
    let t: Vec<Json> = (0..3_000).map(|id| json!({ "id": id, "a": id % 1_000, "c": format!("{id:0>50}") })).collect();
    let both = Both::new(&t, &t);
    let sql = "SELECT COUNT(*) AS n FROM t x WHERE (SELECT q.c FROM u q WHERE q.id = x.a) = x.c";
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    for memory_bytes_max in [100_000, 10_000_000] {
        let budget = Budget { memory_bytes_max, ..Budget::default() };
        let mut out = Vec::new();
        query.write_array(&both.memory, &[], &mut Scratch::new(), &budget, &mut out).unwrap();
        assert_eq!(String::from_utf8_lossy(&out), r#"[{"n":1000}]"#);
        let analysis = query.analyze(&both.memory, &[], &budget).unwrap();
        let plan = query.explain_run(&[], &Means::default(), Some(&analysis)).unwrap();
        // With enough memory each value is computed once; without, no cached value is reused before it is evicted.
        let runs = if memory_bytes_max == 100_000 { "run 3000 times" } else { "run 1000 times" };
        assert!(plan.contains(runs), "{memory_bytes_max}: {plan}");
    }
}

#[test]
fn the_budget_is_one_for_all_runs() {
    let both = both();
    let sql = "SELECT id FROM t x WHERE (SELECT COUNT(*) FROM u WHERE u.c || x.id = 'c11') > 0";
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    let run = |budget: &Budget<'_>| {
        query
            .write_array(&both.memory, &[], &mut Scratch::new(), budget, &mut Vec::new())
            .map(|outcome| outcome.rows_read)
    };
    assert_eq!(run(&Budget::default()).unwrap(), 12 + 12 * 8);
    match run(&Budget { rows_max: 60, ..Budget::default() }) {
        Err(QueryError::Limit { what, limit }) => assert_eq!((what, limit), ("rows read", 60)),
        other => panic!("{other:?}"),
    }
    // Runs of a few rows each also check the deadline.
    let over = || true;
    assert!(matches!(run(&Budget { deadline: Some(&over), ..Budget::default() }), Err(QueryError::Deadline)));
}

#[test]
fn an_error_inside_is_the_error_of_the_whole() {
    let both = both();
    let sql = "SELECT id FROM t x WHERE EXISTS (SELECT 1 FROM u y WHERE y.id = x.id AND (SELECT json_extract('{', '$') \
               FROM t z WHERE z.id = y.id) = 1)";
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    let outcome = query.write_array(&both.memory, &[], &mut Scratch::new(), &Budget::default(), &mut Vec::new());
    assert_eq!(outcome.unwrap_err().to_string(), "malformed JSON");
}

#[test]
fn they_nest_as_deep_as_is_allowed_and_no_deeper() {
    let nested = |depth: usize| {
        let inner = (1..=depth).rev().fold("SELECT 1".to_owned(), |inner, level| {
            format!("SELECT 1 FROM u x{level} WHERE x{level}.id = x0.id AND EXISTS ({inner})")
        });
        format!("SELECT id FROM t x0 WHERE EXISTS ({inner}) ORDER BY id")
    };
    let both = both();
    both.check(&nested(8), true);
    let error = PreparedQuery::prepare(&nested(9), &both.memory.catalog).unwrap_err().to_string();
    assert!(error.contains("is at most 8 queries deep"), "{error}");
}
