//! UNION, EXCEPT and INTERSECT: SQLite's rows in any combination, as subqueries and in INSERT … SELECT; bounded memory.

use docs::sql::{Budget, PreparedQuery, QueryError, Scratch};
use serde_json::{Value as Json, json};

use crate::sql_oracle::Both;

fn both() -> Both {
    let t: Vec<Json> =
        (0..12).map(|id| json!({ "id": id, "a": id % 4, "b": id % 3, "c": format!("c{}", id % 2) })).collect();
    let u: Vec<Json> = (0..8).map(|id| json!({ "id": id, "a": id % 5, "b": null, "c": "c1", "d": [id] })).collect();
    Both::new(&t, &u)
}

#[track_caller]
fn check(sql: &str, ordered: bool) {
    both().check(sql, ordered);
}

#[test]
fn operators_between_selects_are_taken_from_left_to_right() {
    for sql in [
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT a FROM t EXCEPT SELECT id FROM u WHERE id < 2",
        "SELECT a, b FROM t INTERSECT SELECT a, a FROM u",
        "SELECT a FROM t UNION ALL SELECT a FROM u",
        // INTERSECT has the same precedence as the others.
        "SELECT 3 AS a UNION ALL SELECT 1 INTERSECT SELECT 1 UNION ALL SELECT 3",
        "SELECT a FROM t UNION SELECT a FROM u EXCEPT SELECT 1 UNION ALL SELECT 1 UNION ALL SELECT 1",
        "SELECT a FROM t UNION ALL SELECT a FROM u INTERSECT SELECT a FROM u EXCEPT SELECT 2 UNION SELECT 9",
        "SELECT b FROM u UNION SELECT NULL UNION SELECT 7 AS x",
        "SELECT NULL AS b INTERSECT SELECT b FROM u",
        "SELECT COUNT(*) AS n FROM t UNION SELECT MAX(id) FROM u GROUP BY a",
    ] {
        check(sql, false);
    }
}

#[test]
fn of_equal_rows_one_stays_as_it_was_selected() {
    for sql in [
        "SELECT 1 AS a UNION SELECT 1.0",
        "SELECT 1.0 AS a UNION SELECT 1 UNION SELECT 2 UNION SELECT 2.0 UNION SELECT 1.0",
        "SELECT 1.0 AS a UNION ALL SELECT 1 EXCEPT SELECT 2",
        "SELECT 1 AS a INTERSECT SELECT 1.0",
        "SELECT 1 AS a UNION SELECT 1.0 UNION SELECT 3 EXCEPT SELECT 3",
        "SELECT 1 AS a UNION SELECT 1.0 UNION SELECT 3 INTERSECT SELECT 1",
    ] {
        check(sql, false);
    }
}

#[test]
fn of_equal_rows_that_look_different_the_one_of_sqlite_stays() {
    let t: Vec<Json> = [json!(0), json!(0.0), json!(1.0), json!(1), json!(2), json!(2.0), json!(2)]
        .into_iter()
        .zip(0..)
        .map(|(a, id)| json!({ "id": id, "a": a, "b": 5 }))
        .collect();
    let u: Vec<Json> = [json!(0.0), json!(0), json!(5), json!(2.0)]
        .into_iter()
        .zip(0..)
        .map(|(a, id)| json!({ "id": id, "a": a, "b": 5.0 }))
        .collect();
    let both = Both::new(&t, &u);
    for chain in [
        "SELECT a FROM t EXCEPT SELECT 7",
        "SELECT a FROM t UNION SELECT 7",
        "SELECT 7 AS a UNION SELECT a FROM t",
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT a FROM u UNION SELECT a FROM t",
        "SELECT a FROM t INTERSECT SELECT a FROM u",
        "SELECT a FROM u INTERSECT SELECT a FROM t",
        "SELECT a FROM u UNION ALL SELECT a FROM t EXCEPT SELECT 7",
        "SELECT a FROM u UNION ALL SELECT a FROM t UNION SELECT 7",
        "SELECT a FROM u UNION SELECT a FROM t EXCEPT SELECT 7 UNION SELECT a FROM u",
        "SELECT DISTINCT a FROM t UNION SELECT a FROM u WHERE a > 2",
    ] {
        both.check(chain, false);
        both.check(&format!("{chain} ORDER BY a"), true);
        both.check(&format!("SELECT CAST(a AS TEXT) AS x FROM ({chain}) AS w"), false);
        both.check(&format!("SELECT CAST(a AS TEXT) AS x FROM ({chain} ORDER BY a) AS w"), false);
        both.check(&format!("SELECT CAST(a AS TEXT) AS x FROM ({chain} ORDER BY a LIMIT 3) AS w"), false);
        both.check(&format!("SELECT id FROM t WHERE CAST(a AS TEXT) IN ({chain})"), false);
    }
}

#[test]
fn order_and_limit_are_those_of_the_whole() {
    check("SELECT a FROM t UNION SELECT a FROM u ORDER BY a DESC LIMIT 3 OFFSET 1", true);
    check("SELECT id AS x, c FROM t EXCEPT SELECT id, 'c1' FROM u ORDER BY c, 1 DESC", true);
    check("SELECT x FROM (SELECT a AS x FROM t INTERSECT SELECT a FROM u) WHERE x > 1 ORDER BY x", true);
}

#[test]
fn they_stand_wherever_a_query_does() {
    for sql in [
        "SELECT id FROM t WHERE a IN (SELECT a FROM u UNION SELECT 7) ORDER BY id",
        "SELECT id FROM t WHERE (a, b) IN (SELECT a, b FROM t EXCEPT SELECT 1, 1) ORDER BY id",
        "SELECT id, (SELECT a FROM u EXCEPT SELECT 0 ORDER BY a) AS least FROM t ORDER BY id",
        "SELECT id FROM t WHERE EXISTS (SELECT a FROM t INTERSECT SELECT 4) ORDER BY id",
        "SELECT t.id, w.x FROM t JOIN (SELECT a AS x FROM u UNION SELECT b FROM t) AS w ON w.x = t.a ORDER BY t.id",
        "WITH w AS (SELECT a FROM t EXCEPT SELECT 2), v AS (SELECT a FROM w UNION SELECT 8) SELECT a FROM v ORDER BY a",
    ] {
        check(sql, true);
    }
}

#[test]
fn nested_values_are_equal_by_their_text_and_come_out_as_stored() {
    let both = both();
    let rows = both.ours("SELECT d FROM u WHERE id < 2 UNION SELECT d FROM u WHERE id < 3 ORDER BY d").unwrap();
    assert_eq!(rows, [json!([[0]]), json!([[1]]), json!([[2]])]);
}

#[test]
fn what_is_on_the_right_of_except_takes_no_memory() {
    let t: Vec<Json> = (0..4_000).map(|id| json!({ "id": id, "a": id % 7, "c": format!("{id:0>60}") })).collect();
    let both = Both::new(&t, &[]);
    let run = |sql: &str| {
        let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
        let budget = Budget { memory_bytes_max: 40_000, ..Budget::default() };
        let mut out = Vec::new();
        let outcome = query.write_array(&both.memory, &[], &mut Scratch::new(), &budget, &mut out);
        outcome.map(|outcome| (outcome.rows, outcome.rows_read))
    };
    assert_eq!(run("SELECT a FROM t UNION SELECT a FROM t").unwrap(), (7, 8_000 + 7));
    assert_eq!(run("SELECT 'x' AS c UNION SELECT 'y' EXCEPT SELECT c FROM t").unwrap(), (2, 4_000 + 2));
    assert_eq!(run("SELECT 'x' AS c UNION SELECT 'y' INTERSECT SELECT c FROM t").unwrap(), (0, 4_000));
    match run("SELECT c FROM t UNION SELECT 'y'") {
        Err(QueryError::Limit { what, limit }) => {
            assert_eq!((what, limit), ("bytes of rows kept for a join or a subquery", 40_000));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn explain_names_the_operators() {
    let both = both();
    let plan = |sql: &str| PreparedQuery::prepare(sql, &both.memory.catalog).unwrap().explain(&[]);
    assert!(plan("SELECT a FROM t UNION SELECT a FROM u EXCEPT SELECT 1").contains("3 SELECT (UNION, EXCEPT)"));
    assert!(plan("SELECT a FROM t UNION ALL SELECT a FROM u").contains("2 SELECT SCAN t, u"));
}
