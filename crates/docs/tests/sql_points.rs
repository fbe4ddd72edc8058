//! Lists of values that are looked up one by one: the rows, their order, and the limits.

use crate::service::Service;
use crate::sql_oracle::Both;
use docs::sql::NoRows;
use docs::sql::{Budget, PreparedQuery, QueryError, Scratch};
use docs::statements::Modification;
use serde_json::json;

/// Documents in which `a` has a few integers, reals equal to them, texts and NULL.
fn both() -> Both {
    let values = [json!(1), json!(1.0), json!("x"), json!(null), json!(2), json!(2.5), json!("abc"), json!(-1)];
    let document = |id: usize| json!({ "id": id, "a": values[id % values.len()], "b": id % 3, "c": id % 5 });
    let t: Vec<_> = (0..80).map(document).collect();
    let u: Vec<_> = (0..300).map(document).collect();
    Both::with_indexes(&t, &u, &[(&["a"], &[]), (&["b", "c"], &["a"])])
}

#[test]
fn each_value_is_found_once_in_the_order_of_the_index() {
    let both = both();
    for (sql, ordered) in [
        ("SELECT id FROM t WHERE a IN (2, 1.0, 1, 'x', 2.0, 2.5, NULL) ORDER BY a, id", true),
        ("SELECT id FROM t WHERE id IN (5, 3.0, 3, 700, -1, 'x', 1.5) ORDER BY id DESC", true),
        ("SELECT b, c, id FROM t WHERE b IN (2, 0) AND c IN (4, 1, 9) ORDER BY b DESC, c DESC, id DESC", true),
        ("SELECT b, c, id FROM t WHERE b IN (2, 0) AND c > 1 AND c <= 3 ORDER BY b, c LIMIT 7 OFFSET 2", false),
        ("SELECT id FROM t WHERE b IN (2, 0) AND c > NULL", false),
        ("SELECT id FROM t WHERE b IN (2, 0) AND c < 2 AND c > 3", false),
        ("SELECT id FROM t WHERE a IN ()", false),
        ("SELECT id FROM t WHERE a IN (NULL)", false),
        ("SELECT id FROM t WHERE a = 1 OR 'x' = a OR a IN (2, 7)", false),
        ("SELECT x.id, y.id AS y FROM t x LEFT JOIN u y ON y.a IN (x.b, x.c, 'abc') AND y.id < 20", false),
        ("SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE id IN (1, 2, 3, 4, 5))", false),
        ("SELECT id FROM t WHERE id IN (SELECT value FROM json_each('[9, 1, 9, null, \"x\", 2.0]')) ORDER BY id", true),
    ] {
        both.check(sql, ordered);
    }
}

fn run(both: &Both, sql: &str, budget: &Budget<'_>) -> Result<u64, QueryError> {
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
    query.write_array(&both.memory, &[], &mut Scratch::new(), budget, &mut Vec::new()).map(|outcome| outcome.rows_read)
}

#[test]
fn values_that_find_nothing_meet_the_budget_too() {
    let both = both();
    let missing: Vec<String> = (0..50).map(|n| (1_000 + n).to_string()).collect();
    // By an index, compiled and interpreted, by the key, and by all combinations of two lists.
    for (sql, read) in [
        (format!("SELECT b FROM t WHERE a IN ({})", missing.join(", ")), 50),
        (format!("SELECT b + 1 AS b FROM t WHERE a IN ({})", missing.join(", ")), 50),
        (format!("SELECT b FROM t WHERE id IN ({})", missing.join(", ")), 50),
        (format!("SELECT id FROM t WHERE b IN ({0}) AND c IN ({0})", missing.join(", ")), 2_500),
    ] {
        assert_eq!(run(&both, &sql, &Budget::default()).unwrap(), read, "{sql}");
        let few = Budget { rows_max: read - 1, ..Budget::default() };
        let refused = run(&both, &sql, &few);
        assert!(matches!(refused, Err(QueryError::Limit { what: "rows read", .. })), "{refused:?}");
    }
}

#[test]
fn values_of_an_inner_query_share_the_memory_with_its_rows() {
    let both = both();
    let sql = "SELECT b FROM t WHERE id IN (SELECT id FROM u)";
    let limits = (1..200).map(|kilobytes| {
        let budget = Budget { memory_bytes_max: kilobytes << 10, ..Budget::default() };
        match run(&both, sql, &budget) {
            Err(QueryError::Limit { what, limit }) => {
                assert_eq!(limit, kilobytes as u64 * 1_024);
                what
            }
            found => {
                assert!(found.is_ok(), "{found:?}");
                ""
            }
        }
    });
    let mut limits: Vec<&str> = limits.collect();
    limits.dedup();
    assert_eq!(limits, ["bytes of rows kept for a join or a subquery", "bytes of values that are looked up", ""]);
}

#[test]
fn changes_find_their_documents_by_lists_too() {
    let config = r#"
[collections.notes]
key = { field = "id", type = "i64" }
indexes = [["n"]]
"#;
    let service = Service::new(&crate::service::config(config));
    let apply = |sql: &str, rows_max: u64| {
        let statement = Modification::prepare(sql, service.database.catalog()).unwrap();
        let budget = Budget { rows_max, ..Budget::default() };
        service.database.modify(&statement, &[], &budget, &mut NoRows).map(|outcome| outcome.rows)
    };
    let rows: Vec<String> = (0..500).map(|id| format!("({id}, {})", id % 250)).collect();
    apply(&format!("INSERT INTO notes (id, n) VALUES {}", rows.join(", ")), 1_000_000).unwrap();
    // Each written document counts as sixteen rows; a scan would read 500 more.
    assert_eq!(apply("UPDATE notes SET m = 1 WHERE n IN (3, 4, 900)", 100).unwrap(), 4);
    assert_eq!(apply("UPDATE notes SET m = 2 WHERE id = 1 OR id = 2 OR id = 7000", 100).unwrap(), 2);
    assert_eq!(apply("DELETE FROM notes WHERE n IN (SELECT value FROM json_each('[3, 3, 5]'))", 100).unwrap(), 4);
    assert!(apply("DELETE FROM notes WHERE m IN (1, 2)", 100).is_err());
}
