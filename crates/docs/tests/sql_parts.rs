//! Ranges that several threads read give what one thread gives, to the last byte.

use std::sync::Arc;

use crate::service::Service;
use crate::sql_generator::{Random, query, world};
use docs::engine::View;
use docs::sql::{Budget, Query, Scratch, Value, Workers};

const QUERIES_OF_A_WORLD: u64 = 25;

fn workers() -> Arc<Workers> {
    Arc::new(Workers::new(2).from_entries(1))
}

/// The rows, or why there are none.
fn run(query: &Query, view: &dyn View, scratch: &mut Scratch, budget: &Budget<'_>) -> Result<String, String> {
    let mut out = Vec::new();
    let parameters = vec![Value::Null; query.parameters().len()];
    let outcome = query.write_array(view, &parameters, scratch, budget, &mut out);
    outcome.map_err(|error| error.to_string()).map(|_| String::from_utf8(out).unwrap())
}

#[test]
fn random_queries_give_the_same_bytes_with_helpers() {
    let (mut helped, mut rows) = (Scratch::new().with_workers(workers()), 0);
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let both = world(&mut random);
        for _ in 0..QUERIES_OF_A_WORLD {
            let asked = query(&mut random);
            let Ok(query) = Query::prepare(&asked.sql, &both.memory.catalog) else { continue };
            let alone = run(&query, &both.memory, &mut Scratch::new(), &Budget::default());
            let shared = run(&query, &both.memory, &mut helped, &Budget::default());
            assert_eq!(shared, alone, "seed {seed}: {}", asked.sql);
            rows += alone.map_or(0, |rows| rows.len());
        }
    }
    assert!(rows > 100_000, "{rows} bytes of rows");
}

#[track_caller]
fn check(both: &crate::sql_oracle::Both, sql: &str, budget: &Budget<'_>, expected: Result<&str, &str>) {
    let query = Query::prepare(sql, &both.memory.catalog).unwrap();
    let mut helped = Scratch::new().with_workers(workers());
    for scratch in [&mut Scratch::new(), &mut helped] {
        let found = run(&query, &both.memory, scratch, budget);
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{sql}");
    }
}

#[test]
fn sums_of_parts_are_what_one_sum_is() {
    let t: Vec<_> = (0..60)
        .map(|id| {
            // The sum of the first half does not fit into 64 bits, with the second it does.
            let wide = if id < 30 { i64::MAX / 20 } else { -(i64::MAX / 20) };
            serde_json::json!({"id": id, "a": wide, "b": f64::from(id) * 0.1, "c": format!("g{}", id % 7), "d": id})
        })
        .collect();
    let both = crate::sql_oracle::Both::new(&t, &[]);
    let budget = Budget::default();
    check(&both, "SELECT SUM(a) AS s FROM t", &budget, Ok(r#"[{"s":0}]"#));
    check(&both, "SELECT SUM(a) AS s FROM t WHERE id < 39", &budget, Err("integer overflow"));
    check(
        &both,
        "SELECT SUM(d) AS s, AVG(d) AS m, COUNT(*) AS n FROM t",
        &budget,
        Ok(r#"[{"s":1770,"m":29.5,"n":60}]"#),
    );
    let real: f64 = 177.0;
    let expected = format!(r#"[{{"s":{real:?}}}]"#);
    check(&both, "SELECT SUM(b) AS s FROM t", &budget, Ok(&expected));
    let by_group = "SELECT c, MIN(d) AS low, MAX(d) AS high, COUNT(DISTINCT d % 3) AS n FROM t GROUP BY c LIMIT 2";
    check(&both, by_group, &budget, Ok(r#"[{"c":"g0","low":0,"high":56,"n":3},{"c":"g1","low":1,"high":57,"n":3}]"#));
    let top = "SELECT id FROM t ORDER BY c DESC LIMIT 3 OFFSET 1";
    check(&both, top, &budget, Ok(r#"[{"id":13},{"id":20},{"id":27}]"#));
}

#[test]
fn all_parts_count_against_one_budget() {
    let t: Vec<_> = (0..600).map(|id| serde_json::json!({"id": id, "a": id})).collect();
    let both = crate::sql_oracle::Both::new(&t, &[]);
    let rows = Budget { rows_max: 599, ..Budget::default() };
    check(&both, "SELECT COUNT(*) AS n FROM t", &rows, Err("the query exceeds its limit of 599 rows read"));
    let rows = Budget { rows_max: 600, ..Budget::default() };
    check(&both, "SELECT COUNT(*) AS n FROM t", &rows, Ok(r#"[{"n":600}]"#));
    let memory = Budget { memory_bytes_max: 40_000, ..Budget::default() };
    let refused = "the query exceeds its limit of 40000 bytes of groups";
    check(&both, "SELECT a, COUNT(*) AS n FROM t GROUP BY a", &memory, Err(refused));
    let over = || true;
    let late = Budget { deadline: Some(&over), ..Budget::default() };
    check(&both, "SELECT COUNT(*) AS n FROM t", &late, Err("the query's time is over"));
}

#[test]
fn a_store_is_read_by_several_threads_beside_what_has_changed() {
    let service = Service::new(&crate::service::travels());
    for id in 1..=300 {
        let user = format!(r#"insert users {{"id":{id},"email":"e{id}","gender":"m","birth_date":{id}}}"#);
        service.run(&user).unwrap();
    }
    let count = |with: &mut Scratch| {
        let sql = "SELECT birth_date % 3 AS k, COUNT(*) AS n, SUM(birth_date) AS s FROM users GROUP BY k ORDER BY k";
        let query = Query::prepare(sql, service.database.catalog()).unwrap();
        let session = service.database.session().unwrap();
        run(&query, session.now().view(), with, &Budget::default()).unwrap()
    };
    let mut helped = Scratch::new().with_workers(workers());
    service.database.store().checkpoint().unwrap();
    assert_eq!(count(&mut helped), count(&mut Scratch::new()));
    for id in (1..=300).step_by(7) {
        service.run(&format!(r#"update users/{id} {{"birth_date":1}}"#)).unwrap();
    }
    assert_eq!(count(&mut helped), count(&mut Scratch::new()));
}
