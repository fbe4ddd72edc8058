//! Ranges read by several threads give the same bytes as with one thread.

use std::sync::Arc;

use crate::service::Service;
use crate::sql_generator::{Random, query, world};
use docs::engine::ReadView;
use docs::sql::{Budget, PreparedQuery, Scratch, Value, Workers};

const QUERIES_OF_A_WORLD: u64 = 25;

fn workers() -> Arc<Workers> {
    Arc::new(Workers::new(2).from_entries(1))
}

/// The rows, or the error.
fn run(
    query: &PreparedQuery,
    view: &dyn ReadView,
    scratch: &mut Scratch,
    budget: &Budget<'_>,
) -> Result<String, String> {
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
            let Ok(query) = PreparedQuery::prepare(&asked.sql, &both.memory.catalog) else { continue };
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
    let query = PreparedQuery::prepare(sql, &both.memory.catalog).unwrap();
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
            // The sum of the first half exceeds 64 bits, the total does not.
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

/// A statement over `t` that may fail at one of its rows, or at none.
fn failing(random: &mut Random, rows: usize) -> String {
    let at = random.below(2 * rows);
    let fails = [
        format!("abs(-9223372036854775807 - (id = {at}))"),
        format!("json_array_length(CASE WHEN id = {at} THEN '[' ELSE '[1]' END)"),
        format!("length(printf('%*d', CASE WHEN id = {at} THEN 200000 ELSE 5 END, id))"),
        format!("length(printf('%*d', CASE WHEN id = {at} THEN 2000000 ELSE 5 END, id))"),
        "id".to_owned(),
    ];
    let fails = &fails[random.below(fails.len())];
    let limit = ["".to_owned(), format!(" LIMIT {}", random.below(rows) + 1)];
    let limit = &limit[random.below(2)];
    let condition = ["id >= 0", "id % 3 = 1", "c > 'c1'", "id > 20"][random.below(4)];
    let texts = ["c", "c || id", "c || a"][random.below(3)];
    match random.below(10) {
        0 => format!("SELECT id, {fails} AS f FROM t WHERE {condition}{limit}"),
        1 => format!("SELECT id FROM t WHERE {fails} >= 0 AND {condition}{limit}"),
        2 => format!("SELECT DISTINCT {texts} AS x, {fails} % 2 AS f FROM t{limit}"),
        3 => format!("SELECT DISTINCT {texts} AS x FROM t WHERE {condition} ORDER BY {fails}, x{limit}"),
        4 => {
            format!("SELECT {texts} AS x, COUNT(*) AS n, MAX({fails}) AS f FROM t WHERE {condition} GROUP BY x{limit}")
        }
        5 => format!("SELECT {texts} AS x, COUNT(DISTINCT c || id) AS n FROM t WHERE {fails} <> 7 GROUP BY x{limit}"),
        6 => format!("SELECT COUNT(*) AS n, SUM({fails}) AS s FROM t WHERE {condition}"),
        7 => format!("SELECT id FROM t WHERE {condition} ORDER BY {texts}, {fails}{limit}"),
        8 => format!("SELECT t.id, u.id AS other FROM t, u WHERE t.a = u.a AND {}{limit}", fails.replace("id", "t.id")),
        _ => format!("SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE {condition}) AND {fails} >= 0{limit}"),
    }
}

#[test]
fn random_queries_end_at_random_limits_as_with_one_thread() {
    let (mut ends, mut ahead) = (std::collections::BTreeMap::<String, u64>::new(), 0);
    for seed in 0..80 {
        let mut random = Random::new(seed);
        let rows = 20 + random.below(300);
        let document =
            |id| serde_json::json!({"id": id, "a": id % 5, "b": id % 3, "c": format!("c{}", id % 17), "d": id});
        let all: Vec<_> = (0..rows).map(document).collect();
        let mut both = crate::sql_oracle::Both::new(&all, &all[..rows / 3]);
        both.memory.part_entries = Some(1 + random.below(rows / 2));
        let mut helped = Scratch::new().with_workers(workers());
        for _ in 0..60 {
            let sql = failing(&mut random, rows);
            let query =
                PreparedQuery::prepare(&sql, &both.memory.catalog).unwrap_or_else(|error| panic!("{sql}: {error}"));
            let any = |random: &mut Random, most: usize, none: usize| match random.below(3) {
                0 => none,
                _ => random.below(most),
            };
            let budget = Budget {
                rows_max: any(&mut random, 3 * rows, usize::MAX) as u64,
                memory_bytes_max: any(&mut random, 120 * rows, 1 << 20),
                output_bytes_max: any(&mut random, 20 * rows, 1 << 20),
                ..Budget::default()
            };
            let alone = run(&query, &both.memory, &mut Scratch::new(), &budget);
            let shared = run(&query, &both.memory, &mut helped, &budget);
            let kind = |error: &String| error.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
            *ends.entry(alone.as_ref().map_or_else(kind, |_| "done".to_owned())).or_default() += 1;
            let is_of_memory = |error: &String| error.ends_with("bytes to sort") || error.ends_with("bytes of groups");
            // Several threads count the rows of a list together: they may reach that limit before they find that the result is
            // too long.
            let is_of_list = |error: &String| error.ends_with("rows read") || error.ends_with("bytes of result");
            let is_list = !["LIMIT", "DISTINCT", "GROUP", "ORDER", "COUNT"].iter().any(|word| sql.contains(word));
            if is_list && alone.as_ref().is_err_and(is_of_list) && shared.as_ref().is_err_and(is_of_list) {
                continue;
            }
            if alone.as_ref().is_err_and(is_of_memory) && shared.is_ok() {
                // Its parts fitted one after the other.
                let plenty = Budget { memory_bytes_max: 1 << 20, ..budget };
                assert_eq!(shared, run(&query, &both.memory, &mut Scratch::new(), &plenty), "seed {seed}: {sql}");
                ahead += 1;
                continue;
            }
            assert_eq!(
                shared, alone,
                "seed {seed}, {} rows, {} bytes: {sql}",
                budget.rows_max, budget.memory_bytes_max
            );
        }
    }
    assert!(ahead < 100, "{ahead} had room only in parts");
    let least = |end: &str| assert!(ends.get(end).is_some_and(|count| *count > 10), "{end}: {ends:?}");
    ["done", "integer overflow", "malformed JSON"].into_iter().for_each(least);
    for what in
        ["rows read", "bytes to sort", "bytes of groups", "bytes of result", "bytes that expressions compute for a row"]
    {
        least(&format!("the query exceeds its limit of  {what}"));
    }
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
        let query = PreparedQuery::prepare(sql, service.database.catalog()).unwrap();
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
